"""The files of a published set by their published names, from its folder or from the archive as it was downloaded.

Comes in: a place on the disk. Goes out: bytes. Only names that a reader asks for are looked up, and nothing an archive
says decides where anything is written: `unpack` too writes names of ours, into a folder of ours. Whatever is wrong with
a file is one `InputError` that names it and the command that fetches it again.
"""

import gzip
import os
import shutil
import tarfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Protocol, cast

from dpssl.errors import InputError

MOST_BYTES = 1 << 30  # of a file that is read whole; the largest published one, a CIFAR-100 train set, has 154 MB
BLOCK = 1 << 20
# What tarfile, gzip and the disk raise for an archive that is cut short or overwritten.
UNREADABLE = (OSError, EOFError, ValueError, OverflowError, tarfile.TarError, zlib.error)


class SetFiles(Protocol):
    """Where the files of one set lie; `fetch` is the command that gets them."""

    fetch: str

    def place(self, name: str) -> str:
        """How a message calls the file."""
        ...

    def open(self, name: str) -> IO[bytes]:
        """The content, uncompressed. Raises one of UNREADABLE."""
        ...

    def close(self) -> None:
        """Let go of the archive."""
        ...


class FolderFiles:
    """Files in a folder, each as it is or compressed with gzip under its name and `.gz`."""

    def __init__(self, folder: Path, fetch: str) -> None:
        self.folder, self.fetch = folder, fetch

    def place(self, name: str) -> str:
        return str(self._path(name))

    def open(self, name: str) -> IO[bytes]:
        path = self._path(name)
        return cast(IO[bytes], gzip.open(path)) if path.suffix == ".gz" else path.open("rb")

    def close(self) -> None:
        pass

    def _path(self, name: str) -> Path:
        packed = self.folder / f"{name}.gz"
        return packed if packed.is_file() and not (self.folder / name).is_file() else self.folder / name


class ArchiveFiles:
    """Files of the folder that a .tar.gz holds, read in place."""

    def __init__(self, archive: Path, folder: str, fetch: str) -> None:
        self.archive, self.folder, self.fetch = archive, folder, fetch
        self._members: dict[str, tarfile.TarInfo] | None = None
        self._tar: tarfile.TarFile | None = None

    def place(self, name: str) -> str:
        return f"{self.archive} ({self.folder}/{name})"

    def open(self, name: str) -> IO[bytes]:
        if self._tar is None or self._members is None:
            self._tar = tarfile.open(self.archive, "r:gz")  # noqa: SIM115  # for the other files too, until `close`
            self._members = {member.name.removeprefix("./"): member for member in self._tar if member.isreg()}
        member = self._members.get(f"{self.folder}/{name}")
        content = None if member is None else self._tar.extractfile(member)
        if content is None:
            raise FileNotFoundError("the archive does not hold it")
        return content

    def close(self) -> None:
        if self._tar is not None:
            self._tar.close()


@contextmanager
def open_file(files: SetFiles, name: str) -> Iterator[IO[bytes]]:
    """The content of the file called `name`; any fault in opening or reading it is an InputError."""
    try:
        with files.open(name) as content:
            yield content
    except InputError:
        raise
    except UNREADABLE as error:
        raise damaged(files, name, f"cannot be read ({error})") from error


def read_whole(files: SetFiles, name: str, most: int = MOST_BYTES) -> bytes:
    with open_file(files, name) as content:
        data = read_up_to(content, most + 1)
    if len(data) > most:
        raise damaged(files, name, f"holds more than {most:,} bytes")
    return data


def read_up_to(content: IO[bytes], n_bytes: int) -> bytes:
    """`n_bytes`, or all there are. In blocks: a header that promises too much reserves no memory."""
    blocks = []
    while n_bytes > 0 and (block := content.read(min(n_bytes, BLOCK))):
        blocks.append(block)
        n_bytes -= len(block)
    return b"".join(blocks)


def damaged(files: SetFiles, name: str, problem: str) -> InputError:
    return InputError(f"{files.place(name)}: {problem}; get the published file again with `{files.fetch}`")


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """A disk that is full or may not be written to is an InputError."""
    try:
        yield
    except OSError as error:
        raise InputError(
            f"{path}: cannot be written ({error.strerror or error}); free some space or choose another --to"
        ) from error


def unpack(archive: Path, folder: str, names: Sequence[str], target: Path, fetch: str) -> None:
    """Write the files called `names` out of the archive into `target`, each whole or not at all.

    By the first of them the set is found, so it comes last; what else lies in `target` stays.
    """
    files = ArchiveFiles(archive, folder, fetch)
    unfinished = target.with_name(f".{target.name}.unfinished")
    shutil.rmtree(unfinished, ignore_errors=True)
    try:
        with writing(target):
            unfinished.mkdir(parents=True)
            for name in names:
                _copy(files, name, unfinished / name)
            target.mkdir(exist_ok=True)
            for name in reversed(names):
                os.replace(unfinished / name, target / name)
    finally:
        files.close()
        shutil.rmtree(unfinished, ignore_errors=True)


def _copy(files: SetFiles, name: str, target: Path) -> None:
    with target.open("wb") as copy:
        with open_file(files, name) as content:
            while block := content.read(BLOCK):
                with writing(target):  # not the archive's fault
                    copy.write(block)
        copy.flush()
        os.fsync(copy.fileno())
