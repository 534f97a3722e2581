"""`dpssl predict`: labels for images that a run has not seen, by its end model.

Comes in: an image file, a folder or TAR of them, or an array in .npy or .npz. Goes out: `LabelRows`. Image files are
decoded as those of a run are (dpssl.data.decode), to the size and colours the model was trained on; arrays must have
that size already. Decoded images are held a chunk at a time, so a folder may be larger than memory.
"""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image

from dpssl.data.decode import ColourMet, DamagedImage, decode_image
from dpssl.data.image_files import ImageFile, ImageFiles, find_images
from dpssl.data.table import Images, as_uint8_images, numbered_ids
from dpssl.data.tar import read_tar
from dpssl.end_model.predict import predict_probabilities
from dpssl.end_model.storage import load_end_model
from dpssl.errors import UNREADABLE_NPZ, InputError
from dpssl.export.labels import LabelRows
from dpssl.export.model import image_shape
from dpssl.progress import ProgressBar
from dpssl.run_folder import RunFolder
from dpssl.step_files import string_array

CHUNK = 1024  # decoded images in memory
ARRAY_NAMES = ("images", "test_x", "train_x")  # in this order, where an .npz has several

Shape = tuple[int, int, int]  # height, width, channels
Damaged = dict[str, str]  # by name of the file, why it has no label
Chunks = Iterator[tuple[list[str], Images]]


def label_new_images(
    folder: RunFolder, source: Path, device: torch.device, follow_links: bool = False
) -> tuple[LabelRows, Damaged]:
    """Labels of every image of `source` that can be read, and what could not."""
    shape = image_shape(folder)
    model = load_end_model(folder, device)
    damaged: Damaged = {}
    ids: list[str] = []
    parts: list[NDArray[np.float32]] = []
    for names, images in _chunks(source, shape, damaged, follow_links):
        ids += names
        parts.append(predict_probabilities(model.network, model.bank.with_images(images)).numpy())
    if not ids:
        reason = next((f": {name} {why}" for name, why in damaged.items()), "")
        raise InputError(f"{source}: holds no image that can be read{reason}")
    probabilities = np.concatenate(parts)
    labels = probabilities.argmax(1)
    return LabelRows(model.class_names, string_array(ids), labels, probabilities.max(1), probabilities), damaged


def _chunks(source: Path, shape: Shape, damaged: Damaged, follow_links: bool) -> Chunks:
    if source.suffix.lower() in (".npy", ".npz"):
        return _array_chunks(source, shape)
    return _file_chunks(_image_files(source, follow_links), shape, damaged)


def _image_files(source: Path, follow_links: bool) -> ImageFiles:
    if source.is_dir():
        return find_images(source, follow_links)
    if not source.is_file():
        raise InputError(f"{source}: no such file or folder; name an image, a folder or TAR of images, .npz or .npy")
    if source.suffix.lower() == ".tar":
        return read_tar(source)[0]
    status = source.stat()
    return ImageFiles(source.parent, [ImageFile(source.name, status.st_size, status.st_mtime_ns)], [])


def _file_chunks(files: ImageFiles, shape: Shape, damaged: Damaged) -> Chunks:
    height, width, channels = shape
    if height != width:
        raise InputError(
            f"{files.root}: the run was made from arrays of {width}x{height} pixels, and image files are decoded to "
            "squares; give the new images as .npz or .npy of that size"
        )
    damaged.update(files.skipped)

    def decode(file: ImageFile) -> Images | DamagedImage:
        try:
            return _decode(files.read(file), height, channels)
        except DamagedImage as problem:
            return problem

    n_files = len(files.files)
    bar = ProgressBar("Labelling", n_files, shown=n_files > CHUNK, unit="image")
    with ThreadPoolExecutor() as pool:
        for start in range(0, n_files, CHUNK):
            part = files.files[start : start + CHUNK]
            good: dict[str, Images] = {}
            for file, found in zip(part, pool.map(decode, part), strict=True):
                if isinstance(found, DamagedImage):
                    damaged[file.id] = str(found)
                else:
                    good[file.id] = found
            if good:
                yield list(good), np.stack(list(good.values()))
            bar.update(start + len(part), {})
    bar.close()


def _decode(content: bytes, side: int, channels: int) -> Images:
    try:
        return decode_image(content, side, channels)[0]
    except ColourMet:  # the model knows grey images alone
        colours = decode_image(content, side, 3)[0]
        return np.asarray(Image.fromarray(colours).convert("L"))[..., None]


def _array_chunks(source: Path, shape: Shape) -> Chunks:
    array, ids = _read_array(source)
    try:
        images = as_uint8_images(array)
    except InputError as problem:
        raise InputError(f"{source}: {problem}") from None
    if images.shape[1:] != shape:
        raise InputError(f"{source}: images are {images.shape[1:]}, but the run was trained on {shape}; resize them")
    names = numbered_ids("image", len(images)).tolist() if ids is None else ids
    if len(names) != len(images):
        raise InputError(f"{source}: has {len(names)} ids for {len(images)} images; give one each")
    for start in range(0, len(images), CHUNK):
        yield names[start : start + CHUNK], images[start : start + CHUNK]


def _read_array(source: Path) -> tuple[NDArray[Any], list[str] | None]:
    """The images and, in an .npz beside `images`, their ids."""
    try:
        loaded = np.load(source, allow_pickle=False)
        if isinstance(loaded, np.ndarray):
            return loaded, None
        with loaded as archive:
            name = next((name for name in ARRAY_NAMES if name in archive.files), None)
            if name is None:
                raise InputError(f"{source}: has the arrays {sorted(archive.files)}; expected `images`")
            has_ids = name != "test_x" and "ids" in archive.files
            return archive[name], list(map(str, archive["ids"].tolist())) if has_ids else None
    except InputError:
        raise
    except UNREADABLE_NPZ as problem:
        raise InputError(f"{source}: cannot be read as arrays ({problem}); write it with numpy.savez") from problem
