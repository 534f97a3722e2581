"""The run folder: where every step leaves its files and finds those of the step before.

A reader sees a file before or after a change, whatever kills the writer (dpssl.disk). One process writes to a run at a
time (it holds the lock), save that `evaluate` replaces summary.json without it: the last one's stays. Equal content
gives equal bytes. Nothing is pickled.
"""

import io
import json
import math
import os
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpssl.disk import append_line, claim, living_holders, next_free, note_holders, replace_file
from dpssl.errors import UNREADABLE_NPZ, InputError, RunFolderError, require_utf8
from dpssl.step_files import SoftLabelFile, VoteFile, soft_label_table, string_array

if TYPE_CHECKING:
    import torch

__all__ = ["RunFolder", "SoftLabelFile", "VoteFile"]

VOTES = "votes.npz"
SOFT_LABELS = "soft_labels.npz"
SOFT_LABELS_TABLE = "soft_labels.csv"
SPLIT = "split.json"
MADE_BY = {
    VOTES: "dpssl lfs",
    "lf_model.safetensors": "dpssl lfs",
    SOFT_LABELS: "dpssl label",
    "label_model.safetensors": "dpssl label",
    "end_model.safetensors": "dpssl train",
}
START = "start"  # folder of what a run starts from that refines or combines others
METADATA_KEY = "dpssl"
LOCK = ".lock"


@dataclass(frozen=True)
class RunFolder:
    """Reads and writes the files of one run; `name` is relative to the folder and may contain a subfolder."""

    folder: Path

    @classmethod
    def create(cls, out: str | None = None) -> Self:
        """A new, empty run folder: `out`, or the next free runs/run-001, run-002, ... A run is never overwritten."""
        require_utf8("--out", out or "")
        try:
            if not out:
                return cls(next_free(Path("runs")))
            folder = Path(out)
            folder.parent.mkdir(parents=True, exist_ok=True)
            if claim(folder):
                return cls(folder)
            if not folder.is_dir():
                raise RunFolderError(f"--out {out}: is a file, not a folder; choose another --out")
            if any(path.name != LOCK for path in folder.iterdir()):
                raise RunFolderError(
                    f"--out {out}: is not empty, and a run is never overwritten; "
                    f"finish that run with `dpssl resume {out}`, or choose another --out"
                )
            return cls(folder)
        except RunFolderError:
            raise
        except OSError as error:
            raise RunFolderError(
                f"--out {out or 'runs'}: cannot make the run folder ({error}); choose another --out"
            ) from error

    @classmethod
    def open(cls, path: str | Path) -> Self:
        """The folder of an earlier run."""
        if not Path(path).is_dir():
            raise RunFolderError(f"{path}: no such run folder; start one with `dpssl run --out {path}`")
        return cls(Path(path))

    def path(self, name: str) -> Path:
        return self.folder / name

    def has(self, name: str) -> bool:
        return self.path(name).is_file()

    def lock(self, name: str = LOCK, work: str = "writing to") -> IO[str] | None:
        """Take the run for this process, until the file is closed or the process dies. Windows has no such lock."""
        try:
            import fcntl
        except ModuleNotFoundError:
            return None
        try:
            file = self.path(name).open("a+", encoding="utf-8")
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            note_holders(file, [os.getpid()])
            return file
        except BlockingIOError:
            holders = ", ".join(living_holders(self.read_text(name)))
            held_by = f"another dpssl (pid {holders})" if holders else "another dpssl, perhaps on another machine,"
            raise RunFolderError(f"{held_by} is {work} {self.folder}; wait for it or stop it") from None
        except OSError as error:
            raise RunFolderError(f"{self.path(name)}: cannot be locked ({error}); check the permissions") from error

    # Text and JSON

    def write_text(self, name: str, text: str) -> None:
        replace_file(self.path(name), lambda file: file.write(text.encode()))

    def read_text(self, name: str) -> str:
        try:
            return self._read_bytes(name).decode()
        except UnicodeDecodeError as error:
            raise self._damaged(name, error) from error

    def write_json(self, name: str, value: Any) -> None:
        """Numpy values become plain ones; NaN and infinities, which JSON lacks, become null."""
        self.write_text(name, json.dumps(_plain(value), indent=2, allow_nan=False, ensure_ascii=False) + "\n")

    def read_json(self, name: str) -> Any:
        try:
            return json.loads(self.read_text(name))
        except json.JSONDecodeError as error:
            raise self._damaged(name, error) from error

    def append_jsonl(self, name: str, record: Mapping[str, Any]) -> None:
        """Add one line to a log. One that a kill cut short is dropped by the reader."""
        append_line(self.path(name), json.dumps(_plain(record), allow_nan=False, ensure_ascii=False))

    def read_jsonl(self, name: str) -> list[Any]:
        whole_lines = self.read_text(name).split("\n")[:-1]
        try:
            return [json.loads(line) for line in whole_lines]
        except json.JSONDecodeError as error:
            raise self._damaged(name, error) from error

    def write_jsonl(self, name: str, records: Iterable[Mapping[str, Any]]) -> None:
        """Replace a whole log: resuming drops what was logged after the checkpoint."""
        lines = (json.dumps(_plain(record), allow_nan=False, ensure_ascii=False) + "\n" for record in records)
        self.write_text(name, "".join(lines))

    # Arrays

    def write_arrays(self, name: str, **arrays: ArrayLike) -> None:
        """An uncompressed .npz of plain arrays; np.savez dates its members 1980, so equal arrays give equal bytes."""
        plain = {key: np.asarray(array, order="C") for key, array in arrays.items()}
        for key, array in plain.items():
            if array.dtype.hasobject:
                raise TypeError(f"{name}: array {key} holds Python objects, which would be pickled")
        replace_file(self.path(name), lambda file: np.savez(file, **plain))  # type: ignore[arg-type]  # keys are ours, none is a keyword of savez

    def read_arrays(self, name: str, *expected: str) -> dict[str, NDArray[Any]]:
        """All arrays of the .npz; those named in `expected` must be among them."""
        content = self._read_bytes(name)
        try:
            with np.load(io.BytesIO(content), allow_pickle=False) as archive:
                if archive.zip.testzip() is not None:  # numpy checks what a header asks for, be it too little
                    raise ValueError("its checksum does not match")
                arrays = {key: archive[key] for key in archive.files}
        except UNREADABLE_NPZ as error:
            raise self._damaged(name, error) from error
        missing = [key for key in expected if key not in arrays]
        if missing:
            raise self._damaged(name, f"no array {missing[0]!r}, only {sorted(arrays)}")
        return arrays

    def write_votes(self, file: VoteFile) -> None:
        self.write_arrays(
            VOTES,
            votes=file.votes,
            confidence=file.confidence,
            specialties=file.specialties,
            ids=file.ids,
            class_names=string_array(file.class_names),
        )

    def read_votes(self, ids: NDArray[np.str_] | None = None) -> VoteFile:
        """The votes, with the rows in the order of `ids` where those are given."""
        arrays = self.read_arrays(VOTES, "votes", "confidence", "specialties", "ids", "class_names")
        try:
            file = VoteFile(
                votes=arrays["votes"],
                confidence=arrays["confidence"],
                specialties=arrays["specialties"],
                ids=arrays["ids"],
                class_names=tuple(arrays["class_names"].tolist()),
            )
            return file if ids is None else file.aligned_to(ids)
        except InputError as error:
            raise self._damaged(VOTES, error) from error

    def write_soft_labels(
        self, ids: ArrayLike, class_names: Iterable[str], soft_labels: ArrayLike, covered: ArrayLike
    ) -> None:
        """`soft_labels.npz`, and beside it `soft_labels.csv` for a spreadsheet (see `soft_label_table`)."""
        file = SoftLabelFile(
            string_array(ids), tuple(class_names), np.asarray(soft_labels, np.float32), np.asarray(covered)
        )
        self.write_text(SOFT_LABELS_TABLE, soft_label_table(file))
        self.write_arrays(
            SOFT_LABELS,
            soft_labels=file.soft_labels,
            covered=file.covered,
            ids=file.ids,
            class_names=string_array(file.class_names),
        )

    def read_soft_labels(self, ids: NDArray[np.str_] | None = None) -> SoftLabelFile:
        """The soft labels, with the rows in the order of `ids` where those are given."""
        arrays = self.read_arrays(SOFT_LABELS, "soft_labels", "covered", "ids", "class_names")
        try:
            file = SoftLabelFile(
                arrays["ids"], tuple(arrays["class_names"].tolist()), arrays["soft_labels"], arrays["covered"]
            )
            return file if ids is None else file.aligned_to(ids)
        except InputError as error:
            raise self._damaged(SOFT_LABELS, error) from error

    # Weights

    def write_safetensors(
        self, name: str, tensors: Mapping[str, "torch.Tensor"], metadata: Mapping[str, Any] | None = None
    ) -> None:
        """Tensors, and `metadata` (any JSON value) as one JSON text: the format writes several entries in random order.

        The text also carries a checksum of tensors and metadata, which the format itself lacks.
        """
        from safetensors.torch import save

        tensors = {key: tensor.detach().cpu().contiguous() for key, tensor in tensors.items()}
        plain = _plain(metadata or {})
        text = json.dumps({"metadata": plain, "crc32": _checksum(tensors, plain)}, sort_keys=True)
        content = save(tensors, metadata={METADATA_KEY: text})
        replace_file(self.path(name), lambda file: file.write(content))

    def read_safetensors(self, name: str) -> tuple[dict[str, "torch.Tensor"], dict[str, Any]]:
        """The tensors, on the CPU, and the metadata."""
        from safetensors import SafetensorError
        from safetensors.torch import load

        content = self._read_bytes(name)
        try:
            tensors = load(content)
            header = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])
            stored = json.loads(header["__metadata__"][METADATA_KEY])
            checksum, metadata = stored["crc32"], stored["metadata"]
        except (SafetensorError, ValueError, KeyError, TypeError) as error:
            raise self._damaged(name, error) from error
        if checksum != _checksum(tensors, metadata):
            raise self._damaged(name, "its checksum does not match")
        return tensors, metadata

    def _read_bytes(self, name: str) -> bytes:
        path = self.path(name)
        try:
            return path.read_bytes()
        except FileNotFoundError as error:
            maker = MADE_BY.get(name)
            cure = f"make it with `{maker}` first" if maker else "is this a run folder?"
            raise RunFolderError(f"{path}: no such file; {cure}") from error
        except OSError as error:
            raise RunFolderError(f"{path}: cannot be read ({error}); check its permissions") from error

    def _damaged(self, name: str, reason: object) -> RunFolderError:
        maker = MADE_BY.get(name, f"dpssl resume {self.folder}")
        return RunFolderError(f"{self.path(name)}: is damaged ({reason}); delete it and make it again with `{maker}`")


def _plain(value: Any) -> Any:
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def _checksum(tensors: Mapping[str, "torch.Tensor"], metadata: Any) -> int:
    import torch

    checksum = zlib.crc32(json.dumps(metadata, sort_keys=True).encode())
    for key, tensor in sorted(tensors.items()):
        checksum = zlib.crc32(f"{key} {tensor.dtype} {tuple(tensor.shape)}".encode(), checksum)
        checksum = zlib.crc32(tensor.reshape(-1).view(torch.uint8).numpy().data, checksum)
    return checksum
