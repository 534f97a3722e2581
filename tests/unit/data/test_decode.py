"""One image file: every format and mode, against the same picture stored without loss."""

import io
import struct
import zlib
from collections.abc import Callable

import numpy as np
import pytest
from PIL import Image, ImageOps

from dpssl.data.decode import BACKGROUND, ColourMet, DamagedImage, decode_image, read_header

SIDE = 24


def decoded(content: bytes, channels: int = 3, side: int = SIDE) -> np.ndarray:
    return decode_image(content, side, channels)[0].astype(int)


@pytest.fixture
def expected(picture: Image.Image, as_file: Callable[..., bytes]) -> np.ndarray:
    return decoded(as_file(picture, "PNG"))


def test_the_centre_square_is_resized(picture: Image.Image, as_file: Callable[..., bytes]) -> None:
    """48 x 36 at 36: nothing to resize, six columns cut on either side."""
    found = decoded(as_file(picture, "PNG"), side=36)
    np.testing.assert_array_equal(found, np.asarray(picture)[:, 6:42])
    assert decoded(as_file(picture, "PNG")).shape == (SIDE, SIDE, 3)
    assert decoded(as_file(picture.resize((2, 1)), "PNG")).shape == (SIDE, SIDE, 3)


@pytest.mark.parametrize(
    ("format", "options", "tolerance"),
    [
        ("BMP", {}, 0),
        ("TIFF", {}, 0),
        ("TIFF", {"compression": "tiff_lzw"}, 0),
        ("WEBP", {"lossless": True}, 0),
        ("GIF", {}, 0),
        ("JPEG", {"quality": 95, "subsampling": 0}, 3),
        ("JPEG", {"quality": 95, "progressive": True}, 4),
        ("MPO", {"quality": 95}, 4),
    ],
)
def test_formats(
    format: str,
    options: dict,
    tolerance: float,
    picture: Image.Image,
    as_file: Callable[..., bytes],
    expected: np.ndarray,
) -> None:
    found = decoded(as_file(picture, format, **options))
    assert np.abs(found - expected).mean() <= tolerance


def test_a_large_jpeg_decoded_small_is_the_same_picture(picture: Image.Image, as_file: Callable[..., bytes]) -> None:
    """The decoder's own scaling against decoding in full."""
    large = picture.resize((960, 720), Image.Resampling.BICUBIC)
    scaled, in_full = decoded(as_file(large, "JPEG", quality=95)), decoded(as_file(large, "PNG"))
    assert np.abs(scaled - in_full).mean() < 2


@pytest.mark.parametrize("mode", ["P", "RGBA", "CMYK"])
def test_colour_modes(mode: str, picture: Image.Image, as_file: Callable[..., bytes], expected: np.ndarray) -> None:
    image = picture.quantize(16) if mode == "P" else picture.convert(mode)
    assert np.abs(decoded(as_file(image, "TIFF" if mode == "CMYK" else "PNG")) - expected).mean() < 1


def test_a_cmyk_jpeg(picture: Image.Image, as_file: Callable[..., bytes], expected: np.ndarray) -> None:
    assert np.abs(decoded(as_file(picture.convert("CMYK"), "JPEG", quality=98, subsampling=0)) - expected).mean() < 4


def chunk(kind: bytes, body: bytes) -> bytes:
    """Of a PNG."""
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))


def test_16_bit_colour(picture: Image.Image, expected: np.ndarray) -> None:
    """Pillow writes none, so here is a PNG by hand."""
    levels = np.asarray(picture).astype(">u2") * 257
    rows = b"".join(b"\0" + row.tobytes() for row in levels)
    header = struct.pack(">IIBBBBB", picture.width, picture.height, 16, 2, 0, 0, 0)
    content = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")
    np.testing.assert_array_equal(decoded(content), expected)


def grey_versions(picture: Image.Image) -> dict[str, tuple[Image.Image, str]]:
    grey = picture.convert("L")
    levels = np.asarray(grey)
    return {
        "L": (grey, "PNG"),
        "LA": (grey.convert("LA"), "PNG"),
        "I;16": (Image.fromarray(levels.astype(np.uint16) * 257), "PNG"),
        "I": (Image.fromarray(levels.astype(np.int32) * 257), "TIFF"),
        "F": (Image.fromarray((levels / 255).astype(np.float32)), "TIFF"),
        "JPEG": (grey, "JPEG"),
    }


@pytest.mark.parametrize("kind", ["L", "LA", "I;16", "I", "F", "JPEG"])
def test_grey_modes_stay_grey_or_become_colour(
    kind: str, picture: Image.Image, as_file: Callable[..., bytes], expected: np.ndarray
) -> None:
    image, format = grey_versions(picture)[kind]
    content = as_file(image, format)
    found = decoded(content, channels=1)
    assert found.shape == (SIDE, SIDE, 1)
    np.testing.assert_allclose(
        found, decoded(as_file(picture.convert("L"), "PNG"), channels=1), atol=1 if format != "JPEG" else 8
    )
    np.testing.assert_array_equal(decoded(content), np.repeat(found, 3, axis=2))
    assert read_header(io.BytesIO(content)).is_grey


def test_black_and_white(as_file: Callable[..., bytes]) -> None:
    image = Image.fromarray(np.tile(np.array([[0, 255]], dtype=np.uint8), (SIDE, SIDE // 2))).convert("1")
    assert np.unique(decoded(as_file(image, "PNG"), channels=1)).tolist() == [0, 255]


def with_palette(picture: Image.Image, *colours: tuple[int, int, int]) -> Image.Image:
    """The quarters of the picture in the first four of the colours."""
    levels = np.asarray(picture.convert("L"))
    image = Image.fromarray(np.searchsorted(np.unique(levels), levels).astype(np.uint8))
    image.putpalette([level for colour in colours for level in colour])
    return image


GREYS = tuple((level, level, level) for level in (200, 10, 90, 255, 3))


@pytest.mark.parametrize("format", ["GIF", "PNG", "BMP", "TIFF"])
def test_a_grey_palette_is_grey(format: str, picture: Image.Image, as_file: Callable[..., bytes]) -> None:
    image = with_palette(picture, *GREYS)
    content = as_file(image, format)
    header = read_header(io.BytesIO(content))
    assert (header.mode, header.is_grey) == ("P", True)
    found = decoded(content, channels=1)
    np.testing.assert_array_equal(found, decoded(as_file(image.convert("L"), "PNG"), channels=1))
    np.testing.assert_array_equal(decoded(content), np.repeat(found, 3, axis=2))


@pytest.mark.parametrize("format", ["GIF", "PNG", "BMP", "TIFF"])
@pytest.mark.parametrize("colour", [(201, 200, 200), (200, 201, 200), (200, 200, 201)])
def test_one_colour_in_a_palette_makes_a_colour_image(
    format: str, colour: tuple[int, int, int], picture: Image.Image, as_file: Callable[..., bytes]
) -> None:
    content = as_file(with_palette(picture, *GREYS[:3], colour), format)
    assert not read_header(io.BytesIO(content)).is_grey
    with pytest.raises(ColourMet):
        decode_image(content, SIDE, 1)


@pytest.mark.parametrize("format", ["GIF", "PNG"])
def test_a_grey_palette_with_a_transparent_level(
    format: str, picture: Image.Image, as_file: Callable[..., bytes]
) -> None:
    found = decoded(as_file(with_palette(picture, *GREYS), format, transparency=1), channels=1)
    assert sorted({found[0, 0, 0], found[0, -1, 0], found[-1, 0, 0], found[-1, -1, 0]}) == [90, 200, BACKGROUND]


def test_a_header_is_read_without_the_pixels(picture: Image.Image, as_file: Callable[..., bytes]) -> None:
    content = as_file(with_palette(picture, *GREYS), "PNG")
    assert read_header(io.BytesIO(content[: content.index(b"IDAT") + 4])).is_grey


def test_colour_is_not_taken_for_grey(picture: Image.Image, as_file: Callable[..., bytes]) -> None:
    with pytest.raises(ColourMet):
        decode_image(as_file(picture, "PNG"), SIDE, 1)


@pytest.mark.parametrize("mode", ["RGBA", "LA", "P"])
def test_transparent_pixels_show_the_background(mode: str, as_file: Callable[..., bytes]) -> None:
    image = Image.new("RGBA", (SIDE, SIDE), (10, 10, 10, 255))
    image.paste((10, 10, 10, 0), (0, 0, SIDE // 2, SIDE))
    found = decoded(as_file(image.convert(mode) if mode != "P" else image.quantize(8), "PNG"))
    assert (found[:, : SIDE // 2 - 1] == BACKGROUND).all()
    assert np.abs(found[:, SIDE // 2 + 1 :] - 10).max() <= 1


@pytest.mark.parametrize("format", ["JPEG", "PNG", "WEBP", "TIFF"])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_exif_sets_the_picture_upright(
    format: str, orientation: int, picture: Image.Image, as_file: Callable[..., bytes]
) -> None:
    exif = Image.Exif()
    exif[0x0112] = orientation
    content = as_file(picture, format, exif=exif, **({"lossless": True} if format == "WEBP" else {}))
    with Image.open(io.BytesIO(content)) as image:
        upright = ImageOps.exif_transpose(image).convert("RGB")
    assert np.abs(decoded(content) - decoded(as_file(upright, "PNG"))).mean() < 4


@pytest.mark.parametrize("orientation", range(1, 9))
def test_exif_behind_the_pixels_of_a_png(orientation: int, picture: Image.Image, as_file: Callable[..., bytes]) -> None:
    exif = Image.Exif()
    exif[0x0112] = orientation
    before = as_file(picture, "PNG", exif=exif)
    end = chunk(b"IEND", b"")
    behind = as_file(picture, "PNG").removesuffix(end) + chunk(b"eXIf", exif.tobytes().removeprefix(b"Exif\0\0")) + end
    assert behind.index(b"eXIf") > behind.index(b"IDAT")
    np.testing.assert_array_equal(decoded(behind), decoded(before))


def test_damaged_exif_does_not_lose_the_picture(picture: Image.Image, as_file: Callable[..., bytes]) -> None:
    content = as_file(picture, "JPEG", exif=b"Exif\0\0II*\0\xff\xff\xff\xff")
    assert decoded(content).shape == (SIDE, SIDE, 3)


def test_only_the_first_frame_of_a_gif_counts(picture: Image.Image, as_file: Callable[..., bytes]) -> None:
    other = Image.new("RGB", picture.size, (255, 255, 255))
    content = as_file(picture, "GIF", save_all=True, append_images=[other, other])
    np.testing.assert_array_equal(decoded(content), decoded(as_file(picture, "GIF")))


# What is no image


def test_what_cannot_be_decoded_has_a_reason(picture: Image.Image, as_file: Callable[..., bytes]) -> None:
    jpeg = as_file(picture.resize((400, 300)), "JPEG")
    for content, reason in [
        (b"", "is empty"),
        (b"not an image at all", "no image of a known format"),
        (jpeg[: len(jpeg) // 2], "truncated"),
        (as_file(picture, "PNG")[:-60], "."),
        (as_file(Image.fromarray(np.full((9, 9), np.nan, dtype=np.float32)), "TIFF"), "float pixels outside"),
        (b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n", "no image of a known format"),
    ]:
        with pytest.raises(DamagedImage, match=reason):
            decode_image(content, SIDE, 3)


def bomb(width: int, height: int) -> bytes:
    """A BMP that claims more pixels than it has bytes."""
    header = struct.pack("<IiiHHIIiiII", 40, width, height, 1, 24, 0, 0, 0, 0, 0, 0)
    return b"BM" + struct.pack("<IHHI", 54 + 16, 0, 0, 54) + header + bytes(16)


@pytest.mark.parametrize("size", [(10_000, 10_000), (60_000, 60_000)])
def test_decompression_bombs_are_refused_by_their_header(size: tuple[int, int]) -> None:
    """Pillow warns of the first and refuses the second."""
    with pytest.raises(DamagedImage, match="has more than 89,478,485 pixels"):
        decode_image(bomb(*size), SIDE, 3)
    with pytest.raises(DamagedImage):
        read_header(io.BytesIO(bomb(*size)))
