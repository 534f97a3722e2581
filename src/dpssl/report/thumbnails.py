"""Images as small pictures inside a page: uint8 pixels to PNG or JPEG bytes, and to a data: address."""

import base64
import io
from typing import Any

from numpy.typing import NDArray

LONGEST_SIDE = 96  # pixels; twice the size at which a page shows a picture, for sharp screens
LOSSLESS_SIDE = 48  # pictures up to this side stay as they are: enlarged by the browser, every pixel counts
JPEG_QUALITY = 82


def picture_bytes(pixels: NDArray[Any], longest_side: int = LONGEST_SIDE) -> tuple[bytes, str]:
    """A picture of one image (H, W, channels) uint8, no side above `longest_side`, and its media type."""
    from PIL import Image

    image = Image.fromarray(pixels[..., 0] if pixels.shape[-1] == 1 else pixels)
    image.thumbnail((longest_side, longest_side), Image.Resampling.LANCZOS)
    lossless = max(pixels.shape[:2]) <= LOSSLESS_SIDE
    content = io.BytesIO()
    if lossless:
        image.save(content, "PNG", optimize=True)
    else:
        image.save(content, "JPEG", quality=JPEG_QUALITY, optimize=True)
    return content.getvalue(), "image/png" if lossless else "image/jpeg"


def data_address(pixels: NDArray[Any]) -> str:
    """The picture as a data: address, so that a page needs no other file."""
    content, media_type = picture_bytes(pixels)
    return f"data:{media_type};base64,{base64.b64encode(content).decode('ascii')}"
