"""Files that a kill leaves whole: a new one takes the old one's place, a log grows by whole lines, a folder is claimed.

A file is written to a hidden neighbour, synced to the disk and renamed over the old one, so a reader sees the file
before or the file after. The neighbour's name has the process id: of two processes that write one file each has its
own, and the last one's stays. A lock says who holds it. Errors name the file and what to do.
"""

import os
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from dpssl.errors import RunFolderError


def replace_file(path: Path, write: Callable[[IO[bytes]], object]) -> None:
    """Let `write` fill the file anew; folders on the way are made."""
    with replacing(path) as file:
        write(file)


@contextmanager
def replacing(path: Path) -> Iterator[IO[bytes]]:
    """What is written becomes `path` when all of it is, and goes if anything fails; folders on the way are made."""
    unfinished = path.with_name(f".{path.name}.{os.getpid()}.unfinished")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        _remove_what_kills_left(path)
        try:
            with unfinished.open("wb") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            os.replace(unfinished, path)
        finally:
            unfinished.unlink(missing_ok=True)
        sync_folder(path.parent)
    except RunFolderError:  # of a file that is written inside
        raise
    except OSError as error:
        raise _unwritable(path, error) from error


def append_line(path: Path, line: str) -> None:
    """Add a line to a log, the one write that is not a rename. One that a kill cut short is dropped before it."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("ab+") as file:
            file.truncate(_end_of_last_line(file))
            file.write(f"{line}\n".encode())
    except OSError as error:
        raise _unwritable(path, error) from error


def next_free(parent: Path) -> Path:
    """A new folder run-001, run-002, ... in `parent`."""
    parent.mkdir(parents=True, exist_ok=True)
    number = 1
    while not claim(parent / f"run-{number:03d}"):
        number += 1
    return parent / f"run-{number:03d}"


def claim(folder: Path) -> bool:
    """Make the folder; False where it was there. Test and claim in one call: two runs started together get two."""
    try:
        folder.mkdir()
        return True
    except FileExistsError:
        return False


def note_holders(lock: IO[str], processes: Iterable[int]) -> None:
    """Write into a lock which processes hold it: the one that took it, and those that inherited it."""
    lock.truncate(0)
    print(*processes, file=lock, flush=True)


def living_holders(text: str) -> list[str]:
    """The processes that `note_holders` wrote down and that still run."""
    return [word for word in text.split() if word.isdecimal() and _is_running(int(word))]


def sync_folder(folder: Path) -> None:
    """Make renames in the folder, and new files of it, outlast a power cut."""
    if os.name != "posix":  # Windows cannot open a folder, and journals the rename by itself
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _remove_what_kills_left(path: Path) -> None:
    """Unfinished neighbours of `path` whose process has ended."""
    unfinished = re.compile(rf"\.{re.escape(path.name)}\.([0-9]{{1,9}})\.unfinished")
    for name in os.listdir(path.parent):
        found = unfinished.fullmatch(name)
        if found and not _is_running(int(found[1])):
            with suppress(FileNotFoundError, PermissionError):  # another was faster; Windows: it is open
                (path.parent / name).unlink()


def _is_running(process: int) -> bool:
    if os.name != "posix":  # os.kill would end it; but there no file can be removed that is open
        return False
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # another user's
        return True
    return True


def _end_of_last_line(file: IO[bytes]) -> int:
    position = file.seek(0, os.SEEK_END)
    while position > 0:
        start = max(0, position - 4096)
        file.seek(start)
        newline = file.read(position - start).rfind(b"\n")
        if newline >= 0:
            return start + newline + 1
        position = start
    return 0


def _unwritable(path: Path, error: OSError) -> RunFolderError:
    return RunFolderError(
        f"{path}: cannot be written ({error.strerror or error}); free some space or choose another --out"
    )
