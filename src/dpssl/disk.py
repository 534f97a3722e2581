"""Files that a kill leaves whole: a new one takes the old one's place, a log grows by whole lines, a folder is claimed.

A file is written to a hidden neighbour, synced to the disk and renamed over the old one, so a reader sees the file
before or the file after. Errors name the file and what to do.
"""

import os
from collections.abc import Callable
from pathlib import Path
from typing import IO

from dpssl.errors import RunFolderError


def replace_file(path: Path, write: Callable[[IO[bytes]], object]) -> None:
    """Let `write` fill the file anew; folders on the way are made."""
    unfinished = path.with_name(f".{path.name}.unfinished")  # a fixed name: what a kill leaves is overwritten next time
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            with unfinished.open("wb") as file:
                write(file)
                file.flush()
                os.fsync(file.fileno())
            os.replace(unfinished, path)
        finally:
            unfinished.unlink(missing_ok=True)
        _sync_folder(path.parent)
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


def _sync_folder(folder: Path) -> None:
    if os.name != "posix":  # Windows cannot open a folder, and journals the rename by itself
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


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
