"""A look at evenly spaced files of a collection: what names it in the cache, which size and colour it decodes to."""

import hashlib
import io
from statistics import median

from dpssl.data.decode import DamagedImage, Header, read_header
from dpssl.data.image_files import ImageFile, ImageFiles

N_SAMPLED = 128  # files whose headers decide on size and colour, and whose content names the collection
LARGEST_CHOSEN = 64  # pixels: a Wide ResNet on a larger side costs more than most collections gain
SIDE_STEP = 4  # the strides of a Wide ResNet divide it


def collection_key(files: ImageFiles, image_size: int) -> str:
    """By the size asked for, every file's name, size and time of change, and what is in evenly spaced ones.

    Names, sizes and times alone may be those of other pictures: bitmaps, or what a program unpacked with one date.
    """
    digest = hashlib.sha256(f"{image_size}\n".encode())
    for file in files.files:
        digest.update(f"{file.id}\0{file.size}\0{file.changed}\0{file.offset}\n".encode())
    for file in _sample(files):
        try:
            digest.update(hashlib.sha256(files.read(file)).digest())
        except DamagedImage:  # cannot be read, or is larger than any image: told when it is decoded
            digest.update(b"-")
    return digest.hexdigest()[:32]


def chosen_shape(files: ImageFiles, image_size: int) -> tuple[int, int]:
    """Side and channels by the headers of a sample; grey only where all of those are."""
    headers = []
    for file in _sample(files):
        try:
            with io.BytesIO(files.read(file)) if file.offset else (files.root / file.id).open("rb") as opened:
                headers.append(read_header(opened))
        except (DamagedImage, OSError):
            continue
    grey = bool(headers) and all(header.is_grey for header in headers)
    return image_size or choose_side(headers), 1 if grey else 3


def choose_side(headers: list[Header]) -> int:
    """The median shorter side, at most LARGEST_CHOSEN, a multiple of SIDE_STEP."""
    if not headers:
        return LARGEST_CHOSEN
    typical = median(min(header.width, header.height) for header in headers)
    return max(2 * SIDE_STEP, int(min(typical, LARGEST_CHOSEN)) // SIDE_STEP * SIDE_STEP)


def _sample(files: ImageFiles) -> list[ImageFile]:
    """Evenly spaced files, N_SAMPLED at most."""
    return files.files[:: -(-len(files.files) // N_SAMPLED) or 1]
