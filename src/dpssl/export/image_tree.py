"""Labelled images as files: a folder a class, or a Hugging Face image folder with metadata.csv.

Files of the run are linked or copied; pixels without a file are written as PNG. Names come from ids by way of
dpssl.export.names, so the table beside the images says which file is which id.
"""

import csv
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from dpssl.constants import UNLABELED
from dpssl.errors import InputError
from dpssl.export.images import RunImages
from dpssl.export.labels import LabelRows
from dpssl.export.names import safe_names
from dpssl.export.tables import csv_lines
from dpssl.step_files import spreadsheet_text

INDEX, METADATA = "index.csv", "metadata.csv"
COPY = "copy"


def write_class_folders(rows: LabelRows, images: RunImages, folder: Path, mode: str) -> int:
    """`CLASS/IMAGE` for every image with a label, and index.csv; returns the number of images."""
    labelled = rows.take(rows.labels != UNLABELED)
    folders = safe_names(rows.class_names)
    for name in folders:
        (folder / name).mkdir()  # also of a class without an image: class numbers stay what they are
    files = _file_names(labelled, images)
    paths = [f"{folders[label]}/{file}" for label, file in zip(labelled.labels, files, strict=True)]
    _write_images(labelled, images, folder, paths, mode)
    _write_table(labelled, folder / INDEX, paths)
    return len(labelled)


def write_huggingface(rows: LabelRows, images: RunImages, folder: Path, mode: str) -> int:
    """`images/IMAGE` and metadata.csv, as the builder `imagefolder` of datasets reads them."""
    (folder / "images").mkdir()
    paths = [f"images/{file}" for file in _file_names(rows, images)]
    _write_images(rows, images, folder, paths, mode)
    _write_table(rows, folder / METADATA, paths)
    return len(rows)


def _file_names(rows: LabelRows, images: RunImages) -> list[str]:
    ids = rows.ids.tolist()
    if images.root is None:
        ids = [id if id.lower().endswith(".png") else f"{id}.png" for id in ids]
    return safe_names(ids)


def _write_images(rows: LabelRows, images: RunImages, folder: Path, paths: list[str], mode: str) -> None:
    for id, path in zip(rows.ids.tolist(), paths, strict=True):
        if images.root is None:
            (folder / path).write_bytes(images.png_of(id))
        elif mode == COPY:
            shutil.copyfile(images.file_of(id), folder / path)
        else:
            _link(images.file_of(id), folder / path)


def _link(source: Path, path: Path) -> None:
    try:
        os.symlink(source.absolute(), path)
    except (OSError, NotImplementedError) as error:
        if path.is_symlink() or isinstance(error, FileNotFoundError):
            raise
        raise InputError(f"{path}: no link can be made here ({error}); use --copy") from error


def _write_table(rows: LabelRows, path: Path, files: list[str]) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows(_with_files(rows, files))


def _with_files(rows: LabelRows, files: list[str]) -> Iterator[list[str]]:
    for first, cells in zip(["file_name", *files], csv_lines(rows), strict=True):
        yield [spreadsheet_text(first), *cells]
