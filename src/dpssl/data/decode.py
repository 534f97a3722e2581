"""One image file -> square uint8 pixels, whatever its format, size and mode.

In: the bytes of a JPEG, PNG, WebP, BMP, TIFF or GIF (of several frames, the first). Out: (side, side, channels) uint8,
from the largest centred square, upright by its EXIF entry, transparency laid over white. Files are untrusted: what
cannot be decoded, whatever the library raises, is a `DamagedImage` with a reason.
"""

import io
import struct
import warnings
import zlib
from typing import IO, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import ExifTags, Image, UnidentifiedImageError

SUFFIXES = (".jpg", ".jpeg", ".png", ".webp", ".bmp", ".tif", ".tiff", ".gif")
FORMATS = ("JPEG", "PNG", "WEBP", "BMP", "TIFF", "GIF")  # the decoders admitted
BACKGROUND = 255  # under transparent pixels
MOST_BYTES = 1 << 30  # of one file
GREY_MODES = frozenset({"1", "L", "LA", "La", "I", "F", "I;16", "I;16L", "I;16B", "I;16N"})
RESIZABLE = frozenset({"L", "LA", "RGB", "RGBA", "RGBX", "CMYK", "YCbCr"})

# What Pillow raises for bytes that are no whole image, found by cutting and flipping files of all formats.
UNREADABLE = (
    OSError, SyntaxError, ValueError, TypeError, EOFError, LookupError, ArithmeticError, AttributeError, RuntimeError,
    MemoryError, AssertionError, struct.error, zlib.error, Image.DecompressionBombError, Image.DecompressionBombWarning,
)  # fmt: skip

# EXIF's orientation -> what sets the image upright (ImageOps.exif_transpose, but free of rewriting the EXIF block).
UPRIGHT = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}


class DamagedImage(Exception):
    """A file that holds no whole image; the message says why."""


class ColourMet(Exception):
    """A colour image among those to be decoded as grey."""


class Header(NamedTuple):
    """What a file says of itself before its pixels are decoded."""

    width: int
    height: int
    mode: str  # Pillow's: L, RGB, P, RGBA, CMYK, I;16, …
    format: str
    has_grey_palette: bool = False

    @property
    def is_grey(self) -> bool:
        return self.mode in GREY_MODES or self.has_grey_palette


def read_header(file: IO[bytes]) -> Header:
    """Size and mode, from the start of a file; the pixels may be damaged all the same."""
    try:
        with warnings.catch_warnings(), _open(file) as image:
            return _header(image)
    except UNREADABLE as error:
        raise DamagedImage(_reason(error)) from error


def decode_image(content: bytes, side: int, channels: int) -> tuple[NDArray[np.uint8], Header]:
    """(side, side, channels) pixels and the header. `ColourMet` where `channels` is 1 and the image has colours."""
    try:
        if not content:
            raise ValueError("is empty")
        with warnings.catch_warnings(), _open(io.BytesIO(content)) as image:
            header = _header(image)
            if channels == 1 and not header.is_grey:
                raise ColourMet
            return _pixels(image, side, channels), header
    except UNREADABLE as error:
        raise DamagedImage(_reason(error)) from error


def _open(file: IO[bytes]) -> Image.Image:
    warnings.simplefilter("ignore")
    warnings.simplefilter("error", Image.DecompressionBombWarning)  # Pillow's limit on pixels, as an error
    return Image.open(file, formats=FORMATS)


def _header(image: Image.Image) -> Header:
    if not image.width or not image.height:
        raise ValueError(f"is {image.width}x{image.height} pixels")
    return Header(image.width, image.height, image.mode, image.format or "", _has_grey_palette(image))


def _has_grey_palette(image: Image.Image) -> bool:
    """Whether the image is made of a palette's colours and all of those are grey, used or not."""
    if image.mode not in ("P", "PA") or image.palette is None:
        return False
    swatch = Image.new("P", (1, 1))  # the image's own getpalette would decode its pixels
    swatch.putpalette(image.palette.palette, image.palette.rawmode or "RGB")
    levels = swatch.getpalette("RGB") or []
    return levels[0::3] == levels[1::3] == levels[2::3]


def _pixels(image: Image.Image, side: int, channels: int) -> NDArray[np.uint8]:
    shorter = min(image.size)
    if image.format in ("JPEG", "MPO") and shorter > side:
        # The decoder's own scaling by 2, 4 or 8 leaves at least `side` pixels, and skips most of the arithmetic.
        scaled = [-(-length * side // shorter) for length in image.size]
        image.draft(None, (scaled[0], scaled[1]))
    image.load()
    orientation = _orientation(image)  # a PNG may hold it behind its pixels
    square = _resize_centre(_eight_bits(image), side)
    if "A" in square.getbands():
        square = _over_background(square)
    mode = "L" if channels == 1 else "RGB"
    if square.mode != mode:  # converting to the same mode would copy
        square = square.convert(mode)
    if orientation in UPRIGHT:
        square = square.transpose(UPRIGHT[orientation])
    pixels = np.asarray(square)
    return pixels[..., None] if channels == 1 else pixels


def _eight_bits(image: Image.Image) -> Image.Image:
    """The image in a mode that can be resized: palettes looked up, 16 bits and floats brought to 8."""
    if image.mode in RESIZABLE and "transparency" not in image.info:
        return image
    if image.mode.startswith("I"):  # 16 bits, which Pillow may hold as 32
        levels = np.asarray(image).astype(np.int64) // 257
        return Image.fromarray(np.clip(levels, 0, 255).astype(np.uint8))
    if image.mode == "F":
        values: NDArray[Any] = np.asarray(image)
        if not (np.isfinite(values).all() and values.min() >= 0 and values.max() <= 1):
            raise ValueError("has float pixels outside [0, 1]")
        return Image.fromarray(np.rint(values * 255).astype(np.uint8))
    if "transparency" in image.info:
        return image.convert("LA" if image.mode in ("1", "L") else "RGBA")
    if image.mode == "PA":
        return image.convert("RGBA")
    return image.convert("L" if image.mode == "1" else "RGB")


def _resize_centre(image: Image.Image, side: int) -> Image.Image:
    """The largest centred square at `side` x `side`, antialiased."""
    if image.size == (side, side):
        return image
    width, height = image.size
    shorter = min(width, height)
    left, top = (width - shorter) / 2, (height - shorter) / 2
    box = (left, top, left + shorter, top + shorter)
    return image.resize((side, side), Image.Resampling.BILINEAR, box=box, reducing_gap=2.0)


def _over_background(image: Image.Image) -> Image.Image:
    colour = image.convert("L" if image.mode == "LA" else "RGB")
    background = Image.new(colour.mode, image.size, (BACKGROUND,) * len(colour.getbands()))
    return Image.composite(colour, background, image.getchannel("A"))


def _orientation(image: Image.Image) -> int:
    """By EXIF; 1, upright, where there is none or it cannot be read. Pillow turns TIFFs by itself."""
    if image.format == "TIFF" or "exif" not in image.info:
        return 1
    try:
        return int(image.getexif().get(ExifTags.Base.Orientation, 1))
    except UNREADABLE:
        return 1


def _reason(error: BaseException) -> str:
    if isinstance(error, UnidentifiedImageError):
        return "is no image of a known format"
    if isinstance(error, Image.DecompressionBombError | Image.DecompressionBombWarning):
        return f"has more than {Image.MAX_IMAGE_PIXELS:,} pixels"
    if isinstance(error, MemoryError):
        return "needs more memory than there is"
    return " ".join(str(error).split()) or type(error).__name__
