"""Where an export goes: written beside its place and renamed, so it is there whole or not at all.

Nothing is overwritten unless asked for, and a folder only where dpssl made it: `--redo --out photos` must not cost
anybody their photos. A note inside tells such a folder, and what it was made from.
"""

import json
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from dpssl import __version__
from dpssl.errors import RunFolderError

NOTE = ".dpssl_export.json"


@contextmanager
def new_file(path: Path, redo: bool = False) -> Iterator[Path]:
    """Yields where to write; becomes `path` when all is written."""
    require_free(path, redo)
    draft = path.with_name(f".{path.name}.unfinished")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield draft
        _flush(draft)
        os.replace(draft, path)
    except RunFolderError:
        raise
    except OSError as error:
        raise _unwritable(path, error) from error
    finally:
        if draft.exists():
            draft.unlink()


@contextmanager
def new_folder(path: Path, redo: bool, note: Mapping[str, Any]) -> Iterator[Path]:
    """Yields a folder to fill, with `note` inside; becomes `path` when all is written."""
    require_free(path, redo, is_folder=True)
    draft, replaced = (path.with_name(f".{path.name}.{state}") for state in ("unfinished", "replaced"))
    try:
        for left_by_a_kill in (draft, replaced):
            if (left_by_a_kill / NOTE).is_file():
                shutil.rmtree(left_by_a_kill)
        draft.mkdir(parents=True)
        (draft / NOTE).write_text(json.dumps({"dpssl": __version__, **note}) + "\n", encoding="utf-8")
        yield draft
        if path.exists():
            os.replace(path, replaced)
        os.replace(draft, path)
        shutil.rmtree(replaced, ignore_errors=True)
    except RunFolderError:
        raise
    except OSError as error:
        raise _unwritable(path, error) from error
    finally:
        if (draft / NOTE).is_file():
            shutil.rmtree(draft, ignore_errors=True)


def require_free(path: Path, redo: bool, is_folder: bool = False) -> None:
    """Before minutes of work: nothing that may not be replaced is at `path`."""
    if not path.exists() and not path.is_symlink():
        return
    if is_folder and path.is_dir() and not any(path.iterdir()):
        return
    if not redo:
        raise RunFolderError(f"{path}: exists, and an export is never overwritten; choose another --out, or --redo")
    if is_folder != path.is_dir() or path.is_symlink() or (is_folder and not (path / NOTE).is_file()):
        raise RunFolderError(f"{path}: is no export of dpssl, so --redo leaves it alone; choose another --out")


def _flush(path: Path) -> None:
    with path.open("rb+") as file:
        os.fsync(file.fileno())


def _unwritable(path: Path, error: OSError) -> RunFolderError:
    return RunFolderError(
        f"{path}: cannot be written ({error.strerror or error}); free some space or choose another --out"
    )
