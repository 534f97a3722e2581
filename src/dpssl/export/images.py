"""The images of a run for those who export them: the files they were read from, or their pixels as PNG.

Comes in: images.json, and a way to load the pixels, which is used only where there are no files. An id is part of a
path here, and a run folder may come from anybody: no id leads out of the folder of the images.
"""

import io
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpssl.errors import RunFolderError
from dpssl.run_folder import RunFolder

IMAGES = "images.json"
Pixels = tuple[NDArray[np.str_], NDArray[np.uint8]]  # ids (n,) and images (n, H, W, channels)


@dataclass(frozen=True)
class RunImages:
    """Images by id. `root` is the folder of their files, None where they came as arrays or in an archive."""

    root: Path | None
    load_pixels: Callable[[], Pixels]

    @classmethod
    def of(cls, folder: RunFolder, load_pixels: Callable[[], Pixels]) -> "RunImages":
        recorded = folder.read_json(IMAGES)
        data = recorded.get("data") if isinstance(recorded, Mapping) else None
        if not isinstance(data, str):
            raise RunFolderError(f"{folder.path(IMAGES)}: is damaged (no text `data`); take it from a copy of the run")
        has_files = bool(recorded.get("decoding")) and Path(data).is_dir()
        return cls(Path(data) if has_files else None, load_pixels)

    def file_of(self, id: str) -> Path:
        """The file an image was read from."""
        assert self.root is not None
        parts = PurePosixPath(id).parts
        leads_out = not parts or ".." in parts or PurePosixPath(id).is_absolute() or "\0" in id or "\\" in id
        if leads_out:
            raise RunFolderError(f"id {id!r} is no path inside {self.root}; was soft_labels.npz edited?")
        path = self.root / id
        if not path.is_file():
            raise RunFolderError(f"{path}: no such file; put the images of the run back, or start a new run")
        return path

    def png_of(self, id: str) -> bytes:
        """The pixels that the run was trained on."""
        from PIL import Image

        rows, images = self._pixels
        if id not in rows:
            raise RunFolderError(f"soft_labels.npz names the image {id!r}, which the data of the run do not have")
        pixels = images[rows[id]]
        content = io.BytesIO()
        Image.fromarray(pixels[..., 0] if pixels.shape[-1] == 1 else pixels).save(content, "PNG")
        return content.getvalue()

    @cached_property
    def _pixels(self) -> tuple[dict[str, int], Any]:
        ids, images = self.load_pixels()
        return {id: row for row, id in enumerate(ids.tolist())}, images
