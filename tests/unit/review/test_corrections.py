"""corrections.csv: nothing lost, nothing rewritten, whatever the names are and whenever the writer dies."""

import csv
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dpssl.errors import RunFolderError
from dpssl.review.corrections import NO_CLASS, UNDECIDED, CorrectionLog, last_decisions, read_corrections
from dpssl.run_folder import RunFolder

IDS = ["a.png", "b.png", "c.png"]
CLASSES = ["cat", "dog"]
LABELS = np.array([0, 1, -1])
Open = Callable[..., CorrectionLog]


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    return RunFolder(tmp_path)


@pytest.fixture
def open_log(folder: RunFolder) -> Open:
    def start(ids: Sequence[str] = IDS, classes: Sequence[str] = CLASSES) -> CorrectionLog:
        return CorrectionLog(folder, ids, classes, LABELS, "Ada")

    return start


def rows(folder: RunFolder) -> list[list[str]]:
    with folder.path("corrections.csv").open(newline="", encoding="utf-8") as table:
        return [line[:4] for line in csv.reader(table)]


def reopened(log: CorrectionLog, open_log: Open) -> CorrectionLog:
    log.close()
    return open_log()


def test_a_row_says_what_held_what_holds_who_and_when(folder: RunFolder, open_log: Open) -> None:
    log = open_log()
    log.decide([(0, 1)])
    log.decide([(0, 0), (1, 1)])
    log.decide([(2, NO_CLASS)])
    assert rows(folder) == [
        ["id", "old", "new", "who"],
        ["a.png", "cat", "dog", "Ada"],
        ["a.png", "dog", "cat", "Ada"],
        ["b.png", "dog", "dog", "Ada"],  # confirmed
        ["c.png", "", "-", "Ada"],
    ]
    assert log.decisions.tolist() == [0, 1, NO_CLASS]
    stamps = [record.when for record in log.records]
    assert stamps == sorted(stamps)
    assert stamps[1] == stamps[2], "one stamp an action"
    assert all(stamp.endswith("+00:00") for stamp in stamps)


@pytest.mark.parametrize("before", ["2999-12-31T23:59:59.999+00:00", "2999-12-31T23:59:59.999", "last Tuesday"])
def test_actions_are_told_apart_whatever_the_clock_said_before(folder: RunFolder, open_log: Open, before: str) -> None:
    folder.path("corrections.csv").write_text(f"id,old,new,who,when\na.png,cat,dog,Ada,{before}\n")
    log = open_log()
    for row in (0, 1, 2):
        log.decide([(row, 0)])
    stamps = [record.when for record in log.records]
    assert len(set(stamps)) == 4
    assert stamps[1:] == sorted(stamps[1:])
    assert log.undo() == [2]


def test_undo_is_a_row_more_and_goes_back_action_by_action(folder: RunFolder, open_log: Open) -> None:
    log = open_log()
    log.decide([(0, 1)])
    log.decide([(0, NO_CLASS), (1, 0)])
    assert log.undo() == [0, 1]
    assert log.decisions.tolist() == [1, UNDECIDED, UNDECIDED]
    assert log.undo() == [0]
    assert log.decisions.tolist() == [UNDECIDED] * 3
    assert log.undo() == []
    assert [row[1:3] for row in rows(folder)[4:]] == [["-", "dog"], ["cat", ""], ["dog", ""]]


def test_everything_is_there_after_a_restart_undo_included(open_log: Open) -> None:
    log = open_log()
    log.decide([(0, 1)])
    log.decide([(1, 0), (2, 0)])
    log.decide([(0, 0)])
    log.undo()
    before = log.decisions.copy()
    log = reopened(log, open_log)
    assert (log.decisions == before).all()
    assert log.undo() == [1, 2]
    assert reopened(log, open_log).undo() == [0]


def test_the_same_decision_again_is_no_row(folder: RunFolder, open_log: Open) -> None:
    log = open_log()
    log.decide([(0, 1)])
    log.decide([(0, 1)])
    assert len(rows(folder)) == 2


@pytest.mark.parametrize("cut", range(1, 40, 3))
def test_a_row_cut_short_is_dropped_and_the_next_one_whole(folder: RunFolder, open_log: Open, cut: int) -> None:
    ids = ['ä\nö "quoted", b', *IDS[1:]]
    log = open_log(ids)
    log.decide([(1, 0)])
    log.decide([(0, 1)])
    log.close()
    path = folder.path("corrections.csv")
    path.write_bytes(path.read_bytes()[:-cut])
    assert [(item.row, item.decision) for item in read_corrections(folder, ids, CLASSES)] == [(1, 0)]
    log = open_log(ids)
    log.decide([(2, 0)])
    assert last_decisions(read_corrections(folder, ids, CLASSES), 3).tolist() == [UNDECIDED, 0, 0]


def test_a_header_cut_short_is_written_again(folder: RunFolder, open_log: Open) -> None:
    folder.path("corrections.csv").write_bytes(b"id,ol")
    open_log().decide([(0, 1)])
    assert rows(folder)[0] == ["id", "old", "new", "who"]


def test_names_come_back_whatever_they_are(folder: RunFolder, open_log: Open) -> None:
    ids, classes = ["=cmd|x", "'", 'a\r\nb,"c'], ["-", "", "'x", "\u202e<b>"]
    log = CorrectionLog(folder, ids, classes, np.array([-1, -1, -1]), "=SUM(A1)")
    for row, label in ((0, 0), (1, 1), (2, 3), (0, 2)):
        log.decide([(row, label)])
    found = read_corrections(folder, ids, classes)
    assert [(item.row, item.decision, item.who) for item in found] == [
        (0, 0, "=SUM(A1)"), (1, 1, "=SUM(A1)"), (2, 3, "=SUM(A1)"), (0, 2, "=SUM(A1)"),
    ]  # fmt: skip
    assert not any(value.startswith(("=", "@", "+")) for row in rows(folder) for value in row)


def test_two_do_not_write_at_once(open_log: Open) -> None:
    pytest.importorskip("fcntl")
    log = open_log()
    with pytest.raises(RunFolderError, match=r"another dpssl \(pid \d+\) is reviewing .*wait for it or stop it"):
        open_log()
    reopened(log, open_log).close()


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("z.png,cat,dog,Ada,now", "line 2 names 'z.png', which is no image of this run"),
        ("a.png,cat,cow,Ada,now", "line 2 has the class 'cow', which this run has not"),
        ("a.png,cat,dog", "line 2 has 3 values, not 5"),
    ],
)
def test_a_bad_row_is_named(folder: RunFolder, line: str, told: str) -> None:
    folder.path("corrections.csv").write_text(f"id,old,new,who,when\n{line}\n")
    with pytest.raises(RunFolderError, match=told):
        read_corrections(folder, IDS, CLASSES)


def test_another_table_is_refused(folder: RunFolder) -> None:
    folder.path("corrections.csv").write_text("id,label\n")
    with pytest.raises(RunFolderError, match="first line is not id,old,new,who,when"):
        read_corrections(folder, IDS, CLASSES)


def test_a_full_disk_leaves_whole_rows_and_says_so(
    folder: RunFolder, open_log: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = open_log()
    log.decide([(0, 1)])
    before = folder.path("corrections.csv").read_bytes()

    def full(_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(RunFolderError, match="No space left"):
        log.decide([(1, 0)])
    assert log.decisions.tolist() == [1, UNDECIDED, UNDECIDED]
    monkeypatch.undo()
    assert folder.path("corrections.csv").read_bytes().startswith(before)
