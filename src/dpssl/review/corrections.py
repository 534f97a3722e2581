"""What a person decided: `corrections.csv` in the run folder, one row a decision, never changed and never removed.

A row is id, old, new, who, when. `new` is a class, `-` for an image of none of the classes, or empty where a decision
was taken back; `old` is what held before: the run's own label at first. The last row of an image counts. Rows of one
action (a whole page) have the same `when`. Each action is on the disk before it is confirmed; a row that a kill cut
short is dropped.
"""

import contextlib
import csv
import io
import os
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import numpy as np
from numpy.typing import NDArray

from dpssl.errors import RunFolderError
from dpssl.run_folder import RunFolder
from dpssl.step_files import spreadsheet_text

CORRECTIONS, LOCK = "corrections.csv", ".review.lock"
COLUMNS = ("id", "old", "new", "who", "when")
UNDECIDED, NO_CLASS = -2, -1  # what a decision may be besides a class
NO_CLASS_TEXT, UNDECIDED_TEXT = "-", ""


@dataclass(frozen=True)
class Correction:
    """One row of the file."""

    row: int  # of the image
    decision: int  # a class, NO_CLASS, or UNDECIDED
    who: str
    when: str


def read_corrections(folder: RunFolder, ids: Sequence[str], class_names: Sequence[str]) -> list[Correction]:
    """Every row, the oldest first; empty where there is no file. An unknown id or class is an error with its line."""
    place = folder.path(CORRECTIONS)
    try:
        content = place.read_bytes()
        text = content[: _end_of_whole_rows(content)].decode()
    except FileNotFoundError:
        return []
    except (OSError, UnicodeDecodeError) as error:
        raise RunFolderError(f"{place}: cannot be read ({error}); restore it from a copy") from error
    rows = csv.reader(io.StringIO(text, newline=""))
    positions = {name: row for row, name in enumerate(ids)}
    decisions = _decisions(class_names)
    if tuple(next(rows, COLUMNS)) != COLUMNS:
        raise RunFolderError(f"{place}: its first line is not {','.join(COLUMNS)}; restore it from a copy")
    found = []
    for values in rows:
        line = rows.line_num
        if len(values) != len(COLUMNS):
            raise RunFolderError(
                f"{place}: line {line} has {len(values)} values, not {len(COLUMNS)}; mend or delete it"
            )
        name, _, new, who, when = values
        if _plain(name) not in positions:
            raise RunFolderError(f"{place}: line {line} names {name!r}, which is no image of this run; delete it")
        if new not in decisions:
            raise RunFolderError(
                f"{place}: line {line} has the class {new!r}, which this run has not; mend or delete the line"
            )
        found.append(Correction(positions[_plain(name)], decisions[new], _plain(who), when))
    return found


def last_decisions(corrections: Sequence[Correction], n_images: int) -> NDArray[np.int64]:
    """(n,) what holds for each image: the last row wins; UNDECIDED without any."""
    decisions = np.full(n_images, UNDECIDED, dtype=np.int64)
    for correction in corrections:
        decisions[correction.row] = correction.decision
    return decisions


class CorrectionLog:
    """The file, open for one writer: decisions as they stand, new ones appended, the last action taken back."""

    def __init__(
        self,
        folder: RunFolder,
        ids: Sequence[str],
        class_names: Sequence[str],
        labels: NDArray[np.int64],
        who: str,
    ) -> None:
        """`labels` (n,) is what the run itself says, -1 where it says nothing."""
        self._lock_file = folder.lock(LOCK, "reviewing")
        self._folder, self._ids, self._class_names, self._labels = folder, ids, class_names, labels
        self.who = who
        self._turn = threading.Lock()
        self.records = read_corrections(folder, ids, class_names)
        self.decisions = np.full(len(ids), UNDECIDED, dtype=np.int64)
        self._actions: list[list[tuple[int, int, int]]] = []  # row, before, after: what undo can take back
        for action in _by_action(self.records):
            self._replay([(item.row, item.decision) for item in action])
        self._texts = {decision: text for text, decision in _decisions(class_names).items()}
        _drop_torn_row(folder)

    def close(self) -> None:
        if self._lock_file is not None:
            self._lock_file.close()

    @property
    def can_undo(self) -> bool:
        return bool(self._actions)

    def decide(self, changes: Sequence[tuple[int, int]]) -> None:
        """One action: (image, class or NO_CLASS) each. What already holds is not written again."""
        with self._turn:
            changed = [(row, new) for row, new in dict(changes).items() if self.decisions[row] != new]
            self._append(changed)

    def undo(self) -> list[int]:
        """Take the last action back; returns the images it was about."""
        with self._turn:
            if not self._actions:
                return []
            former = [(row, before) for row, before, _ in self._actions[-1]]
            self._append(former)
            return [row for row, _ in former]

    def _append(self, changes: list[tuple[int, int]]) -> None:
        if not changes:
            return
        when = self._now()
        text = io.StringIO()
        table = csv.writer(text, lineterminator="\n")
        for row, new in changes:
            held = int(self.decisions[row])
            if held == UNDECIDED and self._labels[row] >= 0:
                held = int(self._labels[row])
            table.writerow([_escaped(self._ids[row]), self._texts[held], self._texts[new], _escaped(self.who), when])
        path = self._folder.path(CORRECTIONS)
        try:
            with path.open("ab") as file:
                header = "" if file.tell() else ",".join(COLUMNS) + "\n"
                file.write((header + text.getvalue()).encode())
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            _drop_torn_row(self._folder)  # of a full disk
            raise RunFolderError(f"{path}: cannot be written ({error.strerror or error}); free some space") from error
        self.records += [Correction(row, new, self.who, when) for row, new in changes]
        self._replay(changes)

    def _replay(self, changes: Sequence[tuple[int, int]]) -> None:
        """Let an action hold. One that restores what the last action changed has taken it back."""
        action = [(row, int(self.decisions[row]), new) for row, new in changes]
        for row, new in changes:
            self.decisions[row] = new
        if self._actions and action == [(row, after, before) for row, before, after in self._actions[-1]]:
            self._actions.pop()
        else:
            self._actions.append(action)

    def _now(self) -> str:
        """UTC in milliseconds, later than the action before it even where the clock was set back."""
        now = datetime.now(UTC)
        with contextlib.suppress(IndexError, ValueError, TypeError):  # no action yet, or one whose time a hand changed
            now = max(now, datetime.fromisoformat(self.records[-1].when) + timedelta(milliseconds=1))
        return now.isoformat(timespec="milliseconds")


def _by_action(records: Sequence[Correction]) -> Iterator[list[Correction]]:
    start = 0
    for at in range(1, len(records) + 1):
        if at == len(records) or records[at].when != records[start].when:
            yield list(records[start:at])
            start = at


def _decisions(class_names: Sequence[str]) -> dict[str, int]:
    """What `new` may be in the file. The two words that are no class stand bare; a class of that name is escaped."""
    named = {_escaped(name): label for label, name in enumerate(class_names)}
    return {**named, NO_CLASS_TEXT: NO_CLASS, UNDECIDED_TEXT: UNDECIDED}


def _escaped(value: str) -> str:
    """As in `soft_labels.csv`, where a spreadsheet must not run a name; an empty one is an apostrophe."""
    return spreadsheet_text(value) if value else "'"


def _plain(value: str) -> str:
    return value.removeprefix("'")


def _end_of_whole_rows(content: bytes) -> int:
    """Behind the last line end outside quotes: ids may hold line ends."""
    end = position = quotes = 0
    for line in content.split(b"\n")[:-1]:
        position += len(line) + 1
        quotes += line.count(b'"')
        if quotes % 2 == 0:
            end = position
    return end


def _drop_torn_row(folder: RunFolder) -> None:
    """What a kill or a full disk left of a row would spoil the next one."""
    path = folder.path(CORRECTIONS)
    if path.is_file():
        os.truncate(path, _end_of_whole_rows(path.read_bytes()))
