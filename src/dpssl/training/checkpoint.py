"""Checkpoints: a folder each, written beside its final place and renamed, with a checksum for every file.

The last two are kept. A damaged one is named in a warning and the one before is used: nothing half-written is ever
read.
"""

import hashlib
import json
import os
import shutil
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from dpssl.disk import sync_folder
from dpssl.errors import RunFolderError

MANIFEST = "manifest.json"
N_KEPT = 2

TensorFiles = dict[str, dict[str, Tensor]]


@dataclass(frozen=True)
class Checkpoint:
    step: int
    files: TensorFiles
    notes: dict[str, Any]  # what the stage needs besides tensors, JSON


class CheckpointStore:
    """Checkpoints of one stage in `folder`/`stage`-`step`."""

    def __init__(self, folder: Path, stage: str) -> None:
        self.folder, self.stage = folder, stage

    def save(self, step: int, files: Mapping[str, Mapping[str, Tensor]], notes: Mapping[str, Any]) -> None:
        final = self.folder / f"{self.stage}-{step:08d}"
        draft = self.folder / f".{final.name}.draft"
        try:
            shutil.rmtree(draft, ignore_errors=True)
            draft.mkdir(parents=True)
            for name, tensors in files.items():
                save_file({key: tensor.contiguous() for key, tensor in tensors.items()}, draft / f"{name}.safetensors")
            checksums = {path.name: _checksum(path) for path in sorted(draft.iterdir())}
            content = json.dumps({"step": step, "checksums": checksums, "notes": dict(notes)})
            manifest = {"content": content, "checksum": hashlib.sha256(content.encode()).hexdigest()}
            (draft / MANIFEST).write_text(json.dumps(manifest), encoding="utf-8")
            for path in draft.iterdir():
                _flush(path)
            sync_folder(draft)
            shutil.rmtree(final, ignore_errors=True)
            draft.rename(final)
            sync_folder(self.folder)
        except (OSError, SafetensorError) as problem:  # safetensors reports a full disk as its own error
            shutil.rmtree(draft, ignore_errors=True)
            raise RunFolderError(
                f"{final}: the checkpoint cannot be written ({getattr(problem, 'strerror', None) or problem}); "
                "free some space or check the permissions, then `dpssl resume` the run"
            ) from problem
        for old in self._folders()[:-N_KEPT]:
            shutil.rmtree(old, ignore_errors=True)

    def latest(self) -> Checkpoint | None:
        """The newest readable checkpoint, or None. Damaged ones are skipped with a warning."""
        folders = self._folders()
        while folders:
            folder = folders.pop()
            try:
                return _read(folder)
            except (OSError, ValueError, KeyError, SafetensorError) as problem:
                instead = "using the one before it" if folders else "there is none before it, so the stage starts again"
                warnings.warn(f"checkpoint {folder} is damaged ({problem}); {instead}", stacklevel=2)
        return None

    def clear(self) -> None:
        """Remove the stage's checkpoints, once its result is written, and the drafts that a kill left."""
        for folder in [*self._folders(), *self.folder.glob(f".{self.stage}-[0-9]*.draft")]:
            shutil.rmtree(folder, ignore_errors=True)

    def _folders(self) -> list[Path]:
        return sorted(self.folder.glob(f"{self.stage}-[0-9]*"))


def _read(folder: Path) -> Checkpoint:
    sealed = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
    if not isinstance(sealed, dict) or hashlib.sha256(sealed["content"].encode()).hexdigest() != sealed["checksum"]:
        raise ValueError(f"{MANIFEST} does not match its checksum")
    manifest = json.loads(sealed["content"])
    for name, expected in manifest["checksums"].items():
        if _checksum(folder / name) != expected:
            raise ValueError(f"{name} does not match its checksum")
    files = {Path(name).stem: load_file(folder / name) for name in manifest["checksums"]}
    return Checkpoint(int(manifest["step"]), files, manifest["notes"])


def _checksum(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _flush(path: Path) -> None:
    with path.open("rb+") as file:  # Windows syncs no file that is open for reading alone
        os.fsync(file.fileno())
