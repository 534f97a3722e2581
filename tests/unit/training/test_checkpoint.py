import os
import signal
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch

from dpssl.errors import RunFolderError
from dpssl.training.checkpoint import CheckpointStore, TensorFiles


@pytest.fixture
def store(tmp_path: Path) -> CheckpointStore:
    return CheckpointStore(tmp_path / "checkpoint", "lfs")


def files(value: float, size: int = 4) -> TensorFiles:
    return {"weights": {"weights": torch.full((size,), float(value))}, "buffers": {"a": torch.tensor(int(value))}}


def newest(store: CheckpointStore) -> Path:
    return max(path for path in store.folder.iterdir() if not path.name.startswith("."))


def test_what_was_saved_is_read(store: CheckpointStore) -> None:
    assert store.latest() is None
    store.save(7, files(1.5), {"losses": [1.0, 0.5], "text": "é"})
    checkpoint = store.latest()
    assert checkpoint is not None
    assert checkpoint.step == 7
    assert checkpoint.notes == {"losses": [1.0, 0.5], "text": "é"}
    assert torch.equal(checkpoint.files["weights"]["weights"], torch.full((4,), 1.5))
    assert checkpoint.files["buffers"]["a"].dtype == torch.int64


def test_channels_last_and_empty_tensors_are_saved(store: CheckpointStore) -> None:
    weight = torch.arange(24.0).view(1, 2, 3, 4).permute(0, 3, 1, 2)
    store.save(1, {"weights": {"w": weight, "none": torch.zeros(0)}}, {})
    checkpoint = store.latest()
    assert checkpoint is not None
    assert torch.equal(checkpoint.files["weights"]["w"], weight)


def test_the_last_two_are_kept_in_the_order_of_steps(store: CheckpointStore) -> None:
    for step in (5, 50, 500, 100_000):
        store.save(step, files(step), {})
    assert len(list(store.folder.iterdir())) == 2
    checkpoint = store.latest()
    assert checkpoint is not None
    assert checkpoint.step == 100_000


def test_saving_a_step_again_replaces_it(store: CheckpointStore) -> None:
    store.save(5, files(1), {})
    store.save(5, files(2), {})
    checkpoint = store.latest()
    assert checkpoint is not None
    assert checkpoint.files["weights"]["weights"][0] == 2


def test_stages_do_not_see_each_other(store: CheckpointStore) -> None:
    other = CheckpointStore(store.folder, "end")
    for step in (1, 2, 3):
        store.save(step, files(step), {})
    assert other.latest() is None
    other.save(1, files(9), {})
    other.clear()
    assert other.latest() is None
    checkpoint = store.latest()
    assert checkpoint is not None
    assert checkpoint.step == 3


@pytest.mark.parametrize("name", ["weights.safetensors", "buffers.safetensors", "manifest.json"])
@pytest.mark.parametrize("damage", ["cut", "empty", "gone", "garbage"])
def test_a_damaged_checkpoint_falls_back_to_the_one_before(store: CheckpointStore, name: str, damage: str) -> None:
    store.save(1, files(1), {})
    store.save(2, files(2), {})
    path = newest(store) / name
    whole = path.read_bytes()
    if damage == "gone":
        path.unlink()
    else:
        path.write_bytes({"cut": whole[: len(whole) // 2], "empty": b"", "garbage": b"[1]"}[damage])
    with pytest.warns(UserWarning, match=rf"{newest(store).name}.* is damaged"):
        checkpoint = store.latest()
    assert checkpoint is not None
    assert checkpoint.step == 1
    assert checkpoint.files["weights"]["weights"][0] == 1


def test_no_flipped_byte_goes_unseen(store: CheckpointStore) -> None:
    """Every byte of every file, the manifest's step and notes included: the checkpoint is refused or reads the same."""
    store.save(2, files(2), {"losses": [0.25]})
    for path in sorted(newest(store).iterdir()):
        whole = path.read_bytes()
        for position in range(len(whole)):
            flipped = bytearray(whole)
            flipped[position] ^= 1
            path.write_bytes(flipped)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                checkpoint = store.latest()
            if checkpoint is not None:
                assert checkpoint.step == 2, f"{path.name}, byte {position}"
                assert checkpoint.notes == {"losses": [0.25]}, f"{path.name}, byte {position}"
                assert checkpoint.files["weights"]["weights"].tolist() == [2.0] * 4
        path.write_bytes(whole)


def test_all_damaged_is_none_at_all(store: CheckpointStore) -> None:
    for step in (1, 2):
        store.save(step, files(step), {})
        (newest(store) / "weights.safetensors").write_bytes(b"")
    with pytest.warns(UserWarning, match="is damaged") as notes:
        assert store.latest() is None
    assert ["using the one before it" in str(note.message) for note in notes] == [True, False]


def test_clearing_leaves_nothing_of_the_stage(store: CheckpointStore) -> None:
    store.save(1, files(1), {})
    (store.folder / ".lfs-00000002.draft").mkdir()
    (store.folder / ".end-00000001.draft").mkdir()
    store.clear()
    assert [path.name for path in store.folder.iterdir()] == [".end-00000001.draft"]


def test_an_unwritable_folder_is_named(tmp_path: Path) -> None:
    (tmp_path / "checkpoint").write_text("a file where a folder is needed")
    store = CheckpointStore(tmp_path / "checkpoint", "lfs")
    with pytest.raises(RunFolderError, match=r"lfs-00000003: the checkpoint cannot be written .*dpssl resume"):
        store.save(3, files(1), {})
    assert store.latest() is None


def test_a_full_disk_is_named_and_the_checkpoint_before_stays(store: CheckpointStore) -> None:
    """A limit on the size of files stands for the disk: writing past it fails in the same place."""
    resource = pytest.importorskip("resource")
    store.save(1, files(1), {})
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, before[1]))
    try:
        with pytest.raises(RunFolderError, match=r"lfs-00000002: the checkpoint cannot be written"):
            store.save(2, files(2, size=1 << 20), {})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    checkpoint = store.latest()
    assert checkpoint is not None
    assert checkpoint.step == 1
    assert len(list(store.folder.iterdir())) == 1  # nothing half-written is left behind


def test_where_folders_cannot_be_opened_checkpoints_are_saved(
    store: CheckpointStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Windows refuses to open a folder, and to sync a file that is open for reading alone."""
    fcntl = pytest.importorskip("fcntl")
    sync, open_handle = os.fsync, os.open

    def open_file(path: Path, flags: int, *rest: Any, **options: Any) -> int:
        if Path(path).is_dir():
            raise PermissionError(13, "Permission denied", str(path))
        return open_handle(path, flags, *rest, **options)

    def sync_writable(handle: int) -> None:
        if fcntl.fcntl(handle, fcntl.F_GETFL) & os.O_ACCMODE == os.O_RDONLY:
            raise OSError(9, "Bad file descriptor")
        sync(handle)

    with monkeypatch.context() as windows:
        windows.setattr(os, "open", open_file)
        windows.setattr(os, "fsync", sync_writable)
        windows.setattr(os, "name", "not posix")
        store.save(1, files(1), {})
    checkpoint = store.latest()
    assert checkpoint is not None
    assert checkpoint.step == 1


WRITER = """
import sys
from pathlib import Path
import torch
from dpssl.training.checkpoint import CheckpointStore
store = CheckpointStore(Path(sys.argv[1]), "lfs")
for step in range(10**6):
    store.save(step, {"weights": {"weights": torch.full((200_000,), float(step))}}, {"step": step})
    print(step, flush=True)
"""


@pytest.mark.parametrize("n_writes", [1, 4])
def test_a_killed_writer_leaves_a_whole_checkpoint(store: CheckpointStore, n_writes: int) -> None:
    writer = subprocess.Popen([sys.executable, "-c", WRITER, str(store.folder)], stdout=subprocess.PIPE)
    assert writer.stdout is not None
    for _ in range(n_writes):
        assert writer.stdout.readline()
    writer.send_signal(signal.SIGKILL)
    writer.wait()
    writer.stdout.close()
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # what is there under its final name is whole
        checkpoint = store.latest()
    assert checkpoint is not None
    assert checkpoint.step >= n_writes - 1
    assert checkpoint.notes == {"step": checkpoint.step}
    assert (checkpoint.files["weights"]["weights"] == checkpoint.step).all()


def test_no_pickle(store: CheckpointStore) -> None:
    store.save(1, files(1), {})
    assert {os.path.splitext(name)[1] for name in os.listdir(newest(store))} == {".safetensors", ".json"}
