"""The run folder: whole files or none, equal bytes for equal content, and a cure named for every damage."""

import csv
import io
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from dpssl.errors import InputError, RunFolderError
from dpssl.run_folder import RunFolder, VoteFile
from dpssl.step_files import damaged_files, damaged_table, spreadsheet_text


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    return RunFolder.create(str(tmp_path / "run"))


def a_vote_file(**changes: object) -> VoteFile:
    fields: dict[str, object] = {
        "votes": np.array([[0, -1], [1, 1], [-1, 2]]),
        "confidence": np.array([[0.9, 0.6], [0.5, 1.0], [0.7, 0.8]]),
        "specialties": np.array([[1, 1, 0], [0, 1, 1]], dtype=bool),
        "ids": np.array(["a", "b", "c"]),
        "class_names": ("cat", "dog", "fox"),
    }
    return VoteFile(**(fields | changes))  # type: ignore[arg-type]


# Making and opening


def test_the_default_is_the_next_free_folder_under_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert [RunFolder.create(None).folder for _ in range(3)] == [Path(f"runs/run-00{i}") for i in (1, 2, 3)]


def test_an_existing_run_is_never_overwritten(run: RunFolder) -> None:
    run.write_text("config.toml", "seed = 1\n")
    with pytest.raises(RunFolderError, match=r"--out .*not empty.*dpssl resume"):
        RunFolder.create(str(run.folder))
    assert run.read_text("config.toml") == "seed = 1\n"


def test_an_empty_folder_may_become_a_run(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    assert RunFolder.create(str(tmp_path / "empty")).folder == tmp_path / "empty"


def test_a_lock_left_behind_does_not_fill_a_folder(tmp_path: Path) -> None:
    (tmp_path / ".lock").write_text("123\n")
    assert RunFolder.create(str(tmp_path)).folder == tmp_path


def test_places_where_no_run_can_be_are_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(RunFolderError, match=r"--out .*file: is a file"):
        RunFolder.create(str(tmp_path / "file"))
    with pytest.raises(RunFolderError, match=r"--out .*file/run: cannot make the run folder"):
        RunFolder.create(str(tmp_path / "file" / "run"))
    with pytest.raises(RunFolderError, match=r"missing: no such run folder"):
        RunFolder.open(tmp_path / "missing")


# Atomic writes


WRITER = """
import sys
import numpy as np
from dpssl.run_folder import RunFolder
run = RunFolder.open(sys.argv[1])
for number in range(10**6):
    run.write_arrays("votes.npz", votes=np.full(300_000, number))
    print(number, flush=True)
"""


@pytest.mark.parametrize("n_writes", [1, 4, 9])
def test_a_killed_writer_leaves_a_whole_file(run: RunFolder, n_writes: int) -> None:
    writer = subprocess.Popen([sys.executable, "-c", WRITER, str(run.folder)], stdout=subprocess.PIPE)
    assert writer.stdout is not None
    for _ in range(n_writes):
        assert writer.stdout.readline()
    writer.send_signal(signal.SIGKILL)
    writer.wait()
    writer.stdout.close()
    votes = run.read_arrays("votes.npz", "votes")["votes"]
    assert votes.shape == (300_000,)
    assert (votes == votes[0]).all()
    assert votes[0] >= n_writes - 1
    run.write_arrays("votes.npz", votes=np.zeros(2))
    assert os.listdir(run.folder) == ["votes.npz"]  # what the kill left is gone after the next write


def test_what_a_kill_left_goes_and_what_others_write_stays(run: RunFolder) -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    run.path(f".votes.npz.{ended.pid}.unfinished").write_bytes(b"half")
    others = {
        f".votes.npz.{os.getppid()}.unfinished",
        f".votes.npz.csv.{ended.pid}.unfinished",
        ".votes.npz.unfinished",
    }
    for name in others:
        run.path(name).write_bytes(b"half")
    run.write_arrays("votes.npz", votes=np.zeros(2))
    assert set(os.listdir(run.folder)) == {"votes.npz", *others}


SUMMARY_WRITER = """
import sys
from dpssl.run_folder import RunFolder
run = RunFolder.open(sys.argv[1])
for number in range(300):
    run.write_json("summary.json", {"writer": sys.argv[2], "numbers": [number] * 100})
"""


def test_two_writers_of_one_file_both_succeed(run: RunFolder) -> None:
    """`dpssl evaluate` replaces summary.json without the lock, beside another that may."""
    writers = [
        subprocess.Popen([sys.executable, "-c", SUMMARY_WRITER, str(run.folder), name], stderr=subprocess.PIPE)
        for name in ("one", "two")
    ]
    for writer in writers:
        problem = writer.communicate()[1].decode()
        assert writer.returncode == 0, problem
    assert run.read_json("summary.json")["numbers"] == [299] * 100
    assert os.listdir(run.folder) == ["summary.json"]


def test_a_failed_write_leaves_the_file_before(run: RunFolder) -> None:
    run.write_json("summary.json", {"seed": 1})
    with pytest.raises(TypeError, match="not JSON serializable"):
        run.write_json("summary.json", {"seed": object()})
    with pytest.raises(TypeError, match=r"array ids holds Python objects"):
        run.write_arrays("summary.json", ids=np.array([object()]))
    assert run.read_json("summary.json") == {"seed": 1}
    assert os.listdir(run.folder) == ["summary.json"]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full, the disk that is always full")
def test_a_full_disk_is_named_and_the_file_before_stays(run: RunFolder) -> None:
    run.write_arrays("votes.npz", votes=np.zeros(3))
    run.path(f".votes.npz.{os.getpid()}.unfinished").symlink_to("/dev/full")
    with pytest.raises(
        RunFolderError, match=r"votes\.npz: cannot be written \(No space left on device\); free some space"
    ):
        run.write_arrays("votes.npz", votes=np.ones(3))
    assert (run.read_arrays("votes.npz")["votes"] == 0).all()
    run.path("metrics.jsonl").symlink_to("/dev/full")
    with pytest.raises(RunFolderError, match=r"metrics\.jsonl: cannot be written"):
        run.append_jsonl("metrics.jsonl", {"step": 1})


def test_an_unwritable_place_is_named(run: RunFolder) -> None:
    run.write_text("checkpoint", "a file where a folder is needed")
    with pytest.raises(RunFolderError, match=r"checkpoint/weights\.safetensors: cannot be written"):
        run.write_safetensors("checkpoint/weights.safetensors", {"x": torch.zeros(1)})
    with pytest.raises(RunFolderError, match=r"checkpoint/log\.jsonl: cannot be written"):
        run.append_jsonl("checkpoint/log.jsonl", {})


# JSON and logs


def test_json_takes_numpy_values_and_has_no_nan(run: RunFolder) -> None:
    run.write_json(
        "summary.json",
        {
            "n": np.int64(3),
            "share": np.float32(0.5),
            "rows": np.array([[1, 2]]),
            "loss": float("nan"),
            "ß": (True, None),
        },
    )
    assert run.read_json("summary.json") == {"n": 3, "share": 0.5, "rows": [[1, 2]], "loss": None, "ß": [True, None]}
    assert "NaN" not in run.read_text("summary.json")


def test_a_log_survives_a_line_cut_short(run: RunFolder) -> None:
    for step in range(3):
        run.append_jsonl("metrics.jsonl", {"step": step, "loss": np.float64(0.5)})
    whole = run.path("metrics.jsonl").read_bytes()
    run.path("metrics.jsonl").write_bytes(whole + b'{"step": 3, "lo')
    assert [record["step"] for record in run.read_jsonl("metrics.jsonl")] == [0, 1, 2]
    run.append_jsonl("metrics.jsonl", {"step": 4})
    assert [record["step"] for record in run.read_jsonl("metrics.jsonl")] == [0, 1, 2, 4]


@pytest.mark.parametrize("n_bytes", [1, 4095, 4096, 4097, 10_000])
def test_cut_lines_of_any_length_are_dropped(run: RunFolder, n_bytes: int) -> None:
    for before in (b"", b'{"step": 0}\n'):
        run.path("metrics.jsonl").write_bytes(before + b"x" * n_bytes)
        run.append_jsonl("metrics.jsonl", {"step": 1})
        assert run.path("metrics.jsonl").read_bytes() == before + b'{"step": 1}\n'


def test_a_log_can_be_replaced(run: RunFolder) -> None:
    records = [{"step": 0}, {"step": 1}]
    run.append_jsonl("metrics.jsonl", {"step": 99})
    run.write_jsonl("metrics.jsonl", records)
    assert run.read_jsonl("metrics.jsonl") == records


# Votes and soft labels


def test_votes_come_back_in_the_types_of_the_contract(run: RunFolder) -> None:
    run.write_votes(a_vote_file())
    file = run.read_votes()
    assert (file.votes.dtype, file.confidence.dtype, file.specialties.dtype) == (np.int8, np.float16, np.bool_)
    assert file.votes.tolist() == [[0, -1], [1, 1], [-1, 2]]
    assert file.confidence[0, 0] == np.float16(0.9)
    assert file.specialties.tolist() == [[True, True, False], [False, True, True]]
    assert file.ids.tolist() == ["a", "b", "c"]
    assert file.class_names == ("cat", "dog", "fox")


@pytest.mark.parametrize(("n_classes", "dtype"), [(127, np.int8), (128, np.int16)])
def test_votes_widen_above_127_classes(run: RunFolder, n_classes: int, dtype: type) -> None:
    highest = n_classes - 1
    run.write_votes(
        VoteFile(
            votes=np.array([[highest]]),
            confidence=np.ones((1, 1), np.float16),
            specialties=np.ones((1, n_classes), dtype=bool),
            ids=np.array(["a"]),
            class_names=tuple(map(str, range(n_classes))),
        )
    )
    assert run.read_votes().votes.dtype == dtype
    assert run.read_votes().votes[0, 0] == highest


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"votes": np.array([[0, -1], [1, 3], [-1, 2]])}, r"row 1, LF 1: 3 is no class; votes go from 0 to 2"),
        ({"votes": np.array([[0, -1], [1, 1], [-2, 2]])}, r"row 2, LF 0: -2"),
        ({"votes": np.zeros((3, 2))}, r"dtype float64"),
        ({"votes": np.zeros(3, dtype=int)}, r"shape \(3,\)"),
        ({"confidence": np.zeros((3, 1))}, r"confidence has shape \(3, 1\); expected \(3, 2\)"),
        ({"specialties": np.zeros((2, 2), dtype=bool)}, r"specialties has shape \(2, 2\); expected \(2, 3\)"),
        ({"ids": np.array(["a"])}, r"ids has shape \(1,\)"),
    ],
)
def test_votes_against_the_contract_are_refused(changes: dict[str, np.ndarray], message: str, run: RunFolder) -> None:
    with pytest.raises(InputError, match=message):
        a_vote_file(**changes)
    good = vars(a_vote_file()) | {"class_names": np.array(["cat", "dog", "fox"])}
    run.write_arrays("votes.npz", **(good | changes))
    with pytest.raises(RunFolderError, match=rf"votes\.npz: is damaged \(.*{message}.*`dpssl lfs`"):
        run.read_votes()


def test_rows_are_joined_by_id(run: RunFolder) -> None:
    run.write_votes(a_vote_file())
    run.write_soft_labels(["a", "b", "c"], ("cat", "dog"), [[0.1, 0.9], [0.75, 0.25], [0.5, 0.5]], [True, True, False])
    ids = np.array(["c", "a", "b"])
    votes, labels = run.read_votes(ids), run.read_soft_labels(ids)
    assert votes.votes.tolist() == [[-1, 2], [0, -1], [1, 1]]
    assert votes.confidence[0, 1] == np.float16(0.8)
    assert votes.ids.tolist() == labels.ids.tolist() == ["c", "a", "b"]
    assert np.allclose(labels.soft_labels, [[0.5, 0.5], [0.1, 0.9], [0.75, 0.25]])
    assert labels.covered.tolist() == [False, True, True]


@pytest.mark.parametrize(
    ("ids", "message"),
    [
        (["a", "d", "c", "e"], "no row for the image 'd'"),
        (["a", "b"], "3 rows for 2 images"),
    ],
)
def test_rows_of_other_images_are_refused(ids: list[str], message: str, run: RunFolder) -> None:
    run.write_votes(a_vote_file())
    run.write_soft_labels(["a", "b", "c"], ("cat", "dog"), np.full((3, 2), 0.5), [True] * 3)
    with pytest.raises(RunFolderError, match=rf"votes\.npz.*{message}"):
        run.read_votes(np.array(ids))
    with pytest.raises(RunFolderError, match=rf"soft_labels\.npz.*{message}"):
        run.read_soft_labels(np.array(ids))


def test_soft_labels_come_back_and_fill_the_table(run: RunFolder) -> None:
    soft_labels = np.array([[0.1, 0.9], [0.75, 0.25], [0.5, 0.5]])
    run.write_soft_labels(["a", "=b", "ü,\nc"], ("cat", "dog"), soft_labels, [True, True, False])
    file = run.read_soft_labels()
    assert file.soft_labels.dtype == np.float32
    assert np.allclose(file.soft_labels, soft_labels)
    assert file.covered.tolist() == [True, True, False]
    assert file.ids.tolist() == ["a", "=b", "ü,\nc"]
    assert file.class_names == ("cat", "dog")
    table = list(csv.reader(io.StringIO(run.read_text("soft_labels.csv"), newline="")))
    assert table == [
        ["id", "label", "confidence", "covered"],
        ["a", "dog", "0.900000", "True"],
        ["'=b", "cat", "0.750000", "True"],
        ["ü,\nc", "", "0.500000", "False"],  # no vote: the prior has no argmax
    ]


@pytest.mark.parametrize("row", [[0.5, 0.6], [1.5, -0.5], [np.nan, 1.0], [0.0, 0.0]])
def test_soft_labels_must_be_probabilities(row: list[float], run: RunFolder) -> None:
    with pytest.raises(InputError, match=r"soft_labels of row 1"):
        run.write_soft_labels(["a", "b"], ("cat", "dog"), [[0.5, 0.5], row], [True, True])
    run.write_arrays(
        "soft_labels.npz",
        soft_labels=[[0.5, 0.5], row],
        covered=[True, True],
        ids=["a", "b"],
        class_names=["cat", "dog"],
    )
    with pytest.raises(RunFolderError, match=r"soft_labels\.npz: is damaged .*row 1.*`dpssl label`"):
        run.read_soft_labels()


@given(st.text())
def test_no_cell_starts_a_formula_and_every_id_can_be_read_back(value: str) -> None:
    cell = spreadsheet_text(value)
    assert not cell.startswith(("=", "+", "-", "@", "\t", "\r"))
    assert cell.removeprefix("'") == value


# Equal bytes, damage


def test_equal_arrays_give_equal_bytes(run: RunFolder) -> None:
    matrix = np.arange(6.0).reshape(2, 3)
    run.write_arrays("one.npz", matrix=matrix, number=np.float64(1))
    run.write_arrays("two.npz", matrix=np.asfortranarray(matrix), number=np.float64(1))
    assert run.path("one.npz").read_bytes() == run.path("two.npz").read_bytes()
    run.write_votes(a_vote_file())
    first = run.path("votes.npz").read_bytes()
    run.write_votes(a_vote_file(ids=np.array(["a", "b", "c"], dtype="<U40")))
    assert run.path("votes.npz").read_bytes() == first


WEIGHTS_WRITER = """
import sys
import torch
from dpssl.run_folder import RunFolder
metadata = {f"setting-{i}": i / 7 for i in range(9)}
RunFolder.open(sys.argv[1]).write_safetensors(sys.argv[2], {"b": torch.ones(2, 3), "a": torch.zeros(())}, metadata)
"""


def test_equal_weights_give_equal_bytes_in_every_process(run: RunFolder) -> None:
    for name in ("one.safetensors", "two.safetensors"):
        subprocess.run([sys.executable, "-c", WEIGHTS_WRITER, str(run.folder), name], check=True)
    assert run.path("one.safetensors").read_bytes() == run.path("two.safetensors").read_bytes()


def test_weights_come_back_with_their_metadata(run: RunFolder) -> None:
    tensors = {
        "scalar": torch.tensor(3, dtype=torch.int64),
        "half": torch.randn(3, 2, generator=torch.Generator().manual_seed(0)).to(torch.bfloat16),
        "transposed": torch.arange(6.0).reshape(2, 3).T,
        "empty": torch.empty(0, 4),
        "trained": torch.ones(2, requires_grad=True),
    }
    run.write_safetensors("end_model.safetensors", tensors, {"backbone": "wrn-10-1", "widths": (1, 2)})
    restored, metadata = run.read_safetensors("end_model.safetensors")
    assert metadata == {"backbone": "wrn-10-1", "widths": [1, 2]}
    assert restored.keys() == tensors.keys()
    for key, tensor in tensors.items():
        assert restored[key].dtype == tensor.dtype
        assert torch.equal(restored[key], tensor.detach())


def test_weights_of_another_program_are_refused(run: RunFolder) -> None:
    from safetensors.torch import save_file

    save_file({"x": torch.zeros(2)}, run.path("end_model.safetensors"))
    with pytest.raises(RunFolderError, match=r"end_model\.safetensors: is damaged"):
        run.read_safetensors("end_model.safetensors")


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_no_flipped_or_missing_byte_goes_unnoticed(run: RunFolder) -> None:
    """A damaged file raises RunFolderError or, where the byte carried no content, gives the same values."""
    run.write_arrays("votes.npz", votes=np.arange(4, dtype=np.int8))
    run.write_safetensors("weights.safetensors", {"x": torch.arange(4.0)}, {"steps": 3})
    readers = {
        "votes.npz": lambda: run.read_arrays("votes.npz")["votes"].tolist(),
        "weights.safetensors": lambda: (
            (content := run.read_safetensors("weights.safetensors"))[0]["x"].tolist(),
            content[1],
        ),
    }
    for name, read in readers.items():
        expected, whole, n_noticed = read(), run.path(name).read_bytes(), 0
        damaged = [whole[:end] for end in range(len(whole))]
        damaged += [
            whole[:at] + bytes([whole[at] ^ flip]) + whole[at + 1 :] for at in range(len(whole)) for flip in (1, 64)
        ]
        for content in damaged:
            run.path(name).write_bytes(content)
            try:
                assert read() == expected
            except RunFolderError:
                n_noticed += 1
        assert n_noticed > len(damaged) / 2


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_an_overwritten_header_is_damage(run: RunFolder) -> None:
    """A header may ask for fewer bytes than there are, and numpy would not come to see the checksum of a long array."""
    run.write_arrays("votes.npz", votes=np.zeros(10_000, dtype=np.int8))
    whole = run.path("votes.npz").read_bytes()
    start = whole.index(b"{'descr'")
    for at in range(start, whole.index(b"\n", start)):
        for byte in b"( '9\x00\n":
            run.path("votes.npz").write_bytes(whole[:at] + bytes([byte]) + whole[at + 1 :])
            if byte != whole[at]:
                with pytest.raises(RunFolderError, match=r"votes\.npz: is damaged"):
                    run.read_arrays("votes.npz")


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("summary.json", b'{"seed": 1', r"summary\.json: is damaged .*dpssl resume"),
        ("summary.json", b"\xff\xfe", r"summary\.json: is damaged"),
        ("metrics.jsonl", b'{"a": 1}\n{"a\n', r"metrics\.jsonl: is damaged"),
    ],
)
def test_damaged_text_is_named(name: str, content: bytes, message: str, run: RunFolder) -> None:
    run.path(name).write_bytes(content)
    with pytest.raises(RunFolderError, match=message):
        (run.read_jsonl if name.endswith("l") else run.read_json)(name)


def test_missing_files_name_the_step_that_makes_them(run: RunFolder) -> None:
    assert not run.has("votes.npz")
    with pytest.raises(RunFolderError, match=r"votes\.npz: no such file; make it with `dpssl lfs` first"):
        run.read_votes()
    with pytest.raises(RunFolderError, match=r"soft_labels\.npz: no such file; make it with `dpssl label` first"):
        run.read_soft_labels()
    with pytest.raises(RunFolderError, match=r"summary\.json: no such file"):
        run.read_json("summary.json")


def test_a_missing_array_is_named(run: RunFolder) -> None:
    run.write_arrays("votes.npz", votes=np.zeros((1, 1), dtype=int))
    with pytest.raises(RunFolderError, match=r"no array 'confidence', only \['votes'\]"):
        run.read_votes()


def test_torch_is_not_imported_until_weights_are_touched() -> None:
    code = "import dpssl.run_folder, dpssl.metrics, sys; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_damaged_files_are_read_back() -> None:
    names = ["a.png", "=1+1.png", "'quoted'.png", 'b, "c".png', "two\nlines.png"]
    assert damaged_files(damaged_table({name: "is empty" for name in names})) == names
    assert damaged_files("name,reason\na.png,is empty\n") == [""], "a table that somebody edited"
    assert damaged_files("") == []
