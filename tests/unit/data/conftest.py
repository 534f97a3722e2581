"""Pictures that are made here and stored in the true formats."""

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

SaveImage = Callable[..., bytes]


@pytest.fixture(scope="session")
def picture() -> Image.Image:
    """48 x 36, colour: each quarter a colour of its own, so that turning and mirroring show."""
    pixels = np.zeros((36, 48, 3), dtype=np.uint8)
    pixels[:18, :24], pixels[:18, 24:] = (200, 30, 40), (30, 180, 60)
    pixels[18:, :24], pixels[18:, 24:] = (40, 60, 220), (230, 220, 50)
    return Image.fromarray(pixels)


@pytest.fixture(scope="session")
def as_file() -> SaveImage:
    """`as_file(image, "JPEG", quality=95)`: the bytes of the file."""

    def save(image: Image.Image, format: str, **options: Any) -> bytes:
        content = io.BytesIO()
        image.save(content, format, **options)
        return content.getvalue()

    return save


@pytest.fixture
def photos(tmp_path: Path) -> Callable[..., Path]:
    """`photos("cat/1.png", "2.jpg")`: a folder of small images that all differ, with these paths."""

    def make(*names: str, folder: str = "photos", first: int = 0) -> Path:
        root = tmp_path / folder
        root.mkdir(exist_ok=True)
        for number, name in enumerate(names, start=first):
            path = root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.new("RGB", (12, 12), (number % 256, number // 256, 100)).save(path)
        return root

    return make
