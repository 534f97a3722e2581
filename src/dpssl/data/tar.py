"""A TAR of images in WebDataset's layout: `key.jpg`, and beside it the label as `key.cls`, `key.json` or `key.txt`.

Nothing is unpacked: images are read in place. A member's key is its path up to the first dot of its file name. As in a
folder, hidden members and what other programs leave there are passed over.
"""

import json
import tarfile
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import IO, NamedTuple

from dpssl.data.decode import SUFFIXES
from dpssl.data.image_files import ImageFile, ImageFiles, is_passed_over, printable, why_no_id
from dpssl.data.label_table import LABEL_COLUMNS, plain_label
from dpssl.errors import InputError

LABEL_SUFFIXES = (".cls", ".json", ".txt")  # of several beside one image the first counts: a text may be a caption
SURE_SUFFIXES = (".cls", ".json")  # labels even where no image is beside them; a text may be a note
MOST_LABEL_BYTES = 1 << 20
LEAVES = "its name leaves the archive"
SPARSE = "is stored as a sparse file; pack it without --sparse"
NO_TARGET = "is a hard link to nothing that the archive holds before it; pack the file itself"
NO_IMAGE = "is a label without an image beside it"
UNREADABLE_TAR = (tarfile.TarError, OSError, EOFError, ValueError)


class _Label(NamedTuple):
    member: str
    text: str  # empty for one that says there is none


def read_tar(path: Path) -> tuple[ImageFiles, dict[str, str]]:
    """The images of the archive, and the class of each labelled one by id."""
    try:
        with path.open("rb") as content, tarfile.open(fileobj=content, mode="r:") as archive:
            found = _Members(path, content)
            while (member := archive.next()) is not None:
                archive.members = []  # type: ignore[attr-defined]  # it would keep a kilobyte of each
                found.add(member)
            content.seek(archive.offset)
            if content.read(tarfile.BLOCKSIZE).strip(b"\0"):  # tarfile takes a header cut short for the end
                raise tarfile.ReadError("it ends in the middle of a member")
    except UNREADABLE_TAR as error:
        if isinstance(error, InputError):
            raise
        raise InputError(
            f"--data {path}: not a whole, uncompressed TAR ({error}); pack it again, or unpack it and give the folder"
        ) from error
    skipped = sorted(found.skipped + found.labels_alone())
    return ImageFiles(path, sorted(found.images.values()), skipped), found.classes()


@dataclass
class _Members:
    """What was met in the archive so far."""

    path: Path
    content: IO[bytes]
    images: dict[str, ImageFile] = field(default_factory=dict)  # by id
    labels: dict[tuple[str, str], _Label] = field(default_factory=dict)  # by key and suffix
    skipped: list[tuple[str, str]] = field(default_factory=list)
    keys: set[str] = field(default_factory=set)  # of images, skipped ones too

    def __post_init__(self) -> None:
        self.changed = self.path.stat().st_mtime_ns

    def add(self, member: tarfile.TarInfo) -> None:
        name = member.name.removeprefix("./")
        if not (member.isreg() or member.islnk()) or _is_hidden(name):
            return
        if _suffix(name) in SUFFIXES:
            self._add_image(name, member)
        elif _suffix(name) in LABEL_SUFFIXES and not _why_unusable(name):
            self._add_label(name, member)

    def labels_alone(self) -> list[tuple[str, str]]:
        """Labels of which no image was met, with that as the reason."""
        return [
            (printable(label.member), NO_IMAGE)
            for (key, suffix), label in self.labels.items()
            if label.text and suffix in SURE_SUFFIXES and key not in self.keys
        ]

    def classes(self) -> dict[str, str]:
        """The class of each labelled image, by id."""
        classes = {}
        for image in sorted(self.images):
            beside = (self.labels.get((_key(image), suffix)) for suffix in LABEL_SUFFIXES)
            label = next((label for label in beside if label is not None), None)
            if label is not None and label.text:
                classes[image] = label.text
        return classes

    def _add_image(self, name: str, member: tarfile.TarInfo) -> None:
        self.keys.add(_key(name))
        reason = _why_unusable(name) or (SPARSE if member.sparse is not None else "")
        size, offset = member.size, member.offset_data
        if member.islnk():  # the second name of a file that the archive holds under its first
            target = self.images.get(member.linkname.removeprefix("./"))
            if target is None:
                reason = reason or NO_TARGET
            else:
                size, offset = target.size, target.offset
        if reason:
            self.skipped.append((printable(name), reason))
            return
        if name in self.images:
            raise InputError(f"--data {self.path}: holds two members named {name!r}; ids must be unique")
        self.images[name] = ImageFile(name, size, self.changed, offset)

    def _add_label(self, name: str, member: tarfile.TarInfo) -> None:
        text: str | None
        if member.islnk():
            target = member.linkname.removeprefix("./")
            linked = self.labels.get((_key(target), _suffix(target)))
            text = None if linked is None else linked.text
            if linked is None and _suffix(name) in SURE_SUFFIXES:
                self.skipped.append((printable(name), NO_TARGET))
        elif member.size > MOST_LABEL_BYTES or member.sparse is not None:
            return
        else:
            text = self._read_label(name, member)
        if text is not None:
            self.labels[_key(name), _suffix(name)] = _Label(name, text)

    def _read_label(self, name: str, member: tarfile.TarInfo) -> str | None:
        """None for a JSON document that has no field for it."""
        place = self.content.tell()
        self.content.seek(member.offset_data)
        text = self.content.read(member.size)
        self.content.seek(place)
        try:
            if _suffix(name) != ".json":
                return plain_label(text.decode().strip())
            document = json.loads(text)
            found = {str(key).lower(): value for key, value in document.items()} if isinstance(document, dict) else {}
            values = [found[column] for column in (*LABEL_COLUMNS, "cls") if column in found]
            return plain_label(values[0]) if values else None
        except (UnicodeDecodeError, json.JSONDecodeError, RecursionError) as error:
            raise InputError(
                f"--data {self.path}, member {name!r}: holds no label ({error}); repair or remove it"
            ) from error


def _key(name: str) -> str:
    folder, slash, file = name.rpartition("/")
    return folder + slash + file.partition(".")[0]


def _suffix(name: str) -> str:
    return PurePosixPath(name).suffix.lower()


def _is_hidden(name: str) -> bool:
    return any(is_passed_over(part) for part in name.split("/") if part not in (".", ".."))


def _why_unusable(name: str) -> str:
    leaves = name.startswith("/") or ".." in name.split("/")
    return LEAVES if leaves else why_no_id(name)
