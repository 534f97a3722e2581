"""The image files below a folder, or in a TAR: their names, and how their bytes are read.

An image's id is its path below the folder with forward slashes, or its name in the archive. What can be no id (a name
that is not UTF-8, a name or a link that leads elsewhere) is skipped with a reason, never read.
"""

import os
from collections.abc import Container
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple, Self

from dpssl.data.decode import MOST_BYTES, SUFFIXES, DamagedImage
from dpssl.errors import InputError

IGNORED_FOLDERS = frozenset({"__MACOSX", "@eaDir"})  # what other programs leave beside images
CANNOT_BE_READ = "cannot be read"
NOT_UTF8 = "its name is not UTF-8; rename it"
BACKSLASH = "its name has a backslash, which elsewhere parts folders; rename it"
LEADS_OUT = "is a link that leads out of the folder; copy the file, or give --follow-links true"


class ImageFile(NamedTuple):
    """One image, and what tells whether its file was changed since."""

    id: str
    size: int  # bytes
    changed: int  # nanoseconds; of an archive's members, those of the archive
    offset: int = 0  # in the archive


@dataclass(frozen=True)
class ImageFiles:
    """Images of one folder or one archive, ordered by id, and what was skipped there: (name, reason)."""

    root: Path
    files: list[ImageFile]
    skipped: list[tuple[str, str]]
    passed_over: tuple[str, ...] = ()  # ids of images that nobody asked for

    def only(self, wanted: Container[str]) -> Self:
        """The `wanted` images, by id. Where none of them is there, all: then they are other images altogether."""
        kept = [file for file in self.files if file.id in wanted]
        if not kept:
            return self
        skipped = [(name, reason) for name, reason in self.skipped if name in wanted]
        others = tuple(file.id for file in self.files if file.id not in wanted)
        return replace(self, files=kept, skipped=skipped, passed_over=others)

    def read(self, file: ImageFile) -> bytes:
        return read_image(self.root, file)


def read_image(root: Path, file: ImageFile) -> bytes:
    """The bytes of one image of the folder or archive `root`."""
    if file.size > MOST_BYTES:
        raise DamagedImage(f"is a file of {file.size:,} bytes; at most {MOST_BYTES:,} are read")
    try:
        with open(root if file.offset else os.path.join(root, file.id), "rb", buffering=0) as opened:
            opened.seek(file.offset)
            return opened.read(file.size) if file.offset else opened.readall()
    except OSError as error:
        raise DamagedImage(f"{CANNOT_BE_READ} ({error.strerror or error})") from error


def find_images(folder: Path, follow_links: bool = False) -> ImageFiles:
    """Every image file at any depth, by its suffix; hidden files and folders are passed over.

    A folder that is a link is entered only where it leads out and links are followed: inside, its files are found in
    their own place. No folder is entered twice, by whatever names it is reached: a link may lead to one that holds
    `folder` itself.
    """
    inside = folder.resolve()
    files: list[ImageFile] = []
    skipped: list[tuple[str, str]] = []
    entered = {_identity(inside)}
    pending = [""]  # folders to list, as the start of their ids
    while pending:
        prefix = pending.pop()
        for entry in _entries(folder / prefix):
            name, linked = prefix + entry.name, entry.is_symlink()
            if is_passed_over(entry.name):
                continue
            if _is_folder(entry):
                if linked and (not follow_links or _leads_into(Path(entry.path), inside)):
                    continue
                if follow_links:
                    identity = _identity(Path(entry.path))
                    if identity in entered:
                        continue
                    entered.add(identity)
                pending.append(f"{name}/")
            elif entry.name.lower().endswith(SUFFIXES):
                if linked and not follow_links and not _leads_into(Path(entry.path), inside):
                    skipped.append((printable(name), LEADS_OUT))
                elif reason := why_no_id(name):
                    skipped.append((printable(name), reason))
                else:
                    _add(entry, name, files, skipped)
    files.sort()
    skipped.sort()
    return ImageFiles(folder, files, skipped)


def _add(entry: "os.DirEntry[str]", name: str, files: list[ImageFile], skipped: list[tuple[str, str]]) -> None:
    try:
        status = entry.stat()
    except OSError as error:  # a link to nothing, or to itself
        skipped.append((name, f"{CANNOT_BE_READ} ({error.strerror or error})"))
        return
    if entry.is_file():
        files.append(ImageFile(name, status.st_size, status.st_mtime_ns))


def _entries(folder: Path) -> list["os.DirEntry[str]"]:
    try:
        with os.scandir(folder) as entries:
            return sorted(entries, key=lambda entry: entry.name)  # which of two names a folder gets must not vary
    except OSError as error:
        raise InputError(f"--data: {printable(str(folder))} cannot be listed ({error.strerror or error})") from error


def _is_folder(entry: "os.DirEntry[str]") -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a link to itself
        return False


def _leads_into(link: Path, folder: Path) -> bool:
    return Path(os.path.realpath(link)).is_relative_to(folder)


def _identity(folder: Path) -> tuple[int, int]:
    status = folder.stat()
    return status.st_dev, status.st_ino


def is_passed_over(name: str) -> bool:
    """Whether a file or folder of this name is hidden, or left there by another program."""
    return name.startswith(".") or name in IGNORED_FOLDERS


def why_no_id(name: str) -> str:
    """Why no image can have this name as its id; empty where it can."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return NOT_UTF8
    return BACKSLASH if "\\" in name else ""


def printable(name: str) -> str:
    """A file name that others chose, without what a terminal would obey or UTF-8 cannot hold."""
    text = name.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
