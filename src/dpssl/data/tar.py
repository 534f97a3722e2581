"""A TAR of images in WebDataset's layout: `key.jpg`, and beside it the label as `key.cls`, `key.txt` or `key.json`.

Nothing is unpacked: images are read in place. A member's key is its path up to the first dot of its file name.
"""

import json
import tarfile
from itertools import pairwise
from pathlib import Path, PurePosixPath
from typing import IO

from dpssl.data.decode import SUFFIXES
from dpssl.data.image_files import ImageFile, ImageFiles, printable
from dpssl.data.label_table import LABEL_COLUMNS, plain_label
from dpssl.errors import InputError

LABEL_SUFFIXES = (".cls", ".txt", ".json")
MOST_LABEL_BYTES = 1 << 20
LEAVES = "its name leaves the archive"
UNREADABLE_TAR = (tarfile.TarError, OSError, EOFError, ValueError)


def read_tar(path: Path) -> tuple[ImageFiles, dict[str, str]]:
    """The images of the archive, and the class of each labelled one by id."""
    files: list[ImageFile] = []
    skipped: list[tuple[str, str]] = []
    labels: dict[str, str] = {}  # by key
    changed = path.stat().st_mtime_ns
    try:
        with path.open("rb") as content, tarfile.open(fileobj=content, mode="r:") as archive:
            while (member := archive.next()) is not None:
                archive.members = []  # type: ignore[attr-defined]  # it would keep a kilobyte of each
                if not member.isreg() or member.sparse is not None:
                    continue
                name = member.name.removeprefix("./")
                suffix = PurePosixPath(name).suffix.lower()
                if _leaves(name):
                    skipped.append((printable(member.name), LEAVES))
                elif suffix in SUFFIXES:
                    files.append(ImageFile(name, member.size, changed, member.offset_data))
                elif suffix in LABEL_SUFFIXES and member.size <= MOST_LABEL_BYTES:
                    label = _read_label(path, name, content, member)
                    if label:
                        labels[_key(name)] = label
            content.seek(archive.offset)
            if content.read(tarfile.BLOCKSIZE).strip(b"\0"):  # tarfile takes a header cut short for the end
                raise tarfile.ReadError("it ends in the middle of a member")
    except UNREADABLE_TAR as error:
        if isinstance(error, InputError):
            raise
        raise InputError(
            f"--data {path}: not a whole, uncompressed TAR ({error}); pack it again, or unpack it and give the folder"
        ) from error
    files.sort()
    for one, other in pairwise(files):
        if one.id == other.id:
            raise InputError(f"--data {path}: holds two members named {one.id!r}; ids must be unique")
    return ImageFiles(path, files, skipped), {
        file.id: labels[_key(file.id)] for file in files if _key(file.id) in labels
    }


def _read_label(path: Path, name: str, content: IO[bytes], member: tarfile.TarInfo) -> str:
    place = content.tell()
    content.seek(member.offset_data)
    text = content.read(member.size)
    content.seek(place)
    try:
        if not name.endswith(".json"):
            return plain_label(text.decode().strip())
        document = json.loads(text)
        found = {str(key).lower(): value for key, value in document.items()} if isinstance(document, dict) else {}
        values = [found[column] for column in (*LABEL_COLUMNS, "cls") if column in found]
        return plain_label(values[0]) if values else ""
    except (UnicodeDecodeError, json.JSONDecodeError, RecursionError) as error:
        raise InputError(f"--data {path}, member {name!r}: holds no label ({error}); repair or remove it") from error


def _key(name: str) -> str:
    folder, slash, file = name.rpartition("/")
    return folder + slash + file.partition(".")[0]


def _leaves(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return True
    return name.startswith("/") or "\\" in name or ".." in name.split("/")
