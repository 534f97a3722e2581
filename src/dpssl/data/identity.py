"""Which images a run was made from: the content of `images.json`, by which other images in their place are noticed."""

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from dpssl.data.readers import is_built_in
from dpssl.data.table import Dataset, Images
from dpssl.errors import RunFolderError

RUN_LENGTH = 1024  # images
MOST_HASHED = 1 << 30  # bytes; of more, evenly spaced images are taken, so that opening a run stays a matter of seconds


def describe_images(data: str, dataset: Dataset) -> dict[str, Any]:
    """Where the images are, whatever folder a later command is started in, and what they are."""
    return {
        "data": data if is_built_in(data) else str(Path(data).expanduser().resolve()),
        "shape": list(dataset.images.shape[1:]),
        "dtype": str(dataset.images.dtype),
        "n_images": len(dataset.images) + len(dataset.test_images),
        "sha256": _checksum([dataset.images, dataset.test_images]),
        "class_names": list(dataset.class_names),
        "origin": dataset.origin.statement,
        "decoding": dict(dataset.origin.decoding),
    }


def place_of_images(recorded: str, as_given: str, source: Path) -> str:
    """`recorded` if there is something; a run that was copied to another machine falls back on what `--data` said.

    `source` is the file that holds `recorded`.
    """
    for place in (recorded, as_given):
        if is_built_in(place) or Path(place).expanduser().exists():
            return place
    raise RunFolderError(
        f"{source}: the images of this run were in {recorded}, where there is nothing now; put them back, or go to a "
        f"folder from which {as_given} leads to them"
    )


def require_same_images(recorded: Mapping[str, Any], found: Mapping[str, Any], source: Path) -> None:
    """`recorded` is what `source` holds, `found` describes the data as it is read now."""
    for name in ("n_images", "shape", "dtype", "sha256", "class_names"):
        if recorded.get(name, found[name]) != found[name]:
            raise RunFolderError(
                f"{source}: the run was made from images of {name} {recorded[name]} in {recorded['data']}, but "
                f"{found['data']} now has {found[name]}; put the former back, or start a new run with another --out"
            )


def _checksum(parts: list[Images]) -> str:
    """SHA-256 of all pixels, or of every k-th run of images of each part where they are more than MOST_HASHED bytes.

    Neighbours, since single images would touch nearly every page of a memory-mapped file.
    """
    every = -(-sum(part.nbytes for part in parts) // MOST_HASHED) or 1
    digest = hashlib.sha256()
    for part in parts:
        for start in range(0, len(part), every * RUN_LENGTH):
            digest.update(np.ascontiguousarray(part[start : start + RUN_LENGTH]).data)
    return digest.hexdigest()
