"""One review of a run: what the page asks for, as plain values. Knows nothing of the web.

Everything that a person did is in `corrections.csv`; a session adds the count of what was done since it began.
"""

import time
from functools import lru_cache
from typing import Any

import numpy as np

from dpssl.constants import ABSTAIN
from dpssl.errors import InputError
from dpssl.report.contents import RunContents
from dpssl.report.names import shown
from dpssl.report.thumbnails import LONGEST_SIDE, LOSSLESS_SIDE, picture_bytes
from dpssl.review.corrections import NO_CLASS, UNDECIDED, CorrectionLog
from dpssl.review.queue import Queue, Rows

ORDERS = ("useful", "suspects", "class", "search", "reviewed")
LARGE_SIDE = 512  # pixels of the picture in the single view
CACHED_PICTURES = 4096
MOST_CLASSES_EXPLAINED = 6
N_NEIGHBOURS = 5


class ReviewSession:
    def __init__(self, contents: RunContents, who: str) -> None:
        self.contents, self.queue = contents, Queue(contents)
        dataset = contents.dataset
        self.log = CorrectionLog(
            contents.folder, [str(name) for name in dataset.ids], contents.class_names, self.queue.labels, who
        )
        self._reviewed_before, self._started = int((self.log.decisions != UNDECIDED).sum()), time.monotonic()
        self._searched = lru_cache(maxsize=64)(self.queue.search)
        self.picture = lru_cache(maxsize=CACHED_PICTURES)(self._picture)
        _ = self.queue.useful  # computed now, not when the first page is asked for

    def close(self) -> None:
        self.log.close()

    @property
    def n_images(self) -> int:
        return len(self.contents.dataset.ids)

    @property
    def n_classes(self) -> int:
        return len(self.contents.class_names)

    def require_row(self, row: int) -> int:
        if not 0 <= row < self.n_images:
            raise InputError(f"image {row}: this run has images 0 to {self.n_images - 1}")
        return row

    # What the page shows

    def about(self) -> dict[str, Any]:
        """What stays the same while the page is open."""
        contents = self.contents
        return {
            "name": shown(contents.folder.folder.resolve().name),
            "dataset": shown(contents.dataset.name),
            "classes": [shown(name) for name in contents.class_names],
            "n_images": self.n_images,
            "n_given": len(contents.split.labeled),
            "n_lfs": 0 if contents.votes is None else contents.votes.votes.shape[1],
            "is_pixelated": max(contents.dataset.images.shape[1:3]) <= LOSSLESS_SIDE,
            "who": shown(self.log.who),
            "class_counts": [len(self.queue.of_class(label)) for label in range(self.n_classes)],
        }

    def page(self, order: str, start: int | None, count: int, label: int = 0, text: str = "") -> dict[str, Any]:
        """`count` images of an order from `start`; without one, from the page of the first undecided image."""
        rows = self._rows(order, label, text)
        undecided = np.flatnonzero(self.log.decisions[rows] == UNDECIDED)
        if start is None:
            start = int(undecided[0]) // count * count if len(undecided) else 0
        start = min(start, max(0, (len(rows) - 1) // count * count))
        return {
            "start": start,
            "total": len(rows),
            "n_decided": len(rows) - len(undecided),
            "images": [self.image(int(row)) for row in rows[start : start + count]],
            **self.progress(),
        }

    def _rows(self, order: str, label: int, text: str) -> Rows:
        if order == "useful":
            return self.queue.useful
        if order == "suspects":
            return self.queue.suspects
        if order == "class":
            if not 0 <= label < self.n_classes:
                raise InputError(f"class {label}: this run has classes 0 to {self.n_classes - 1}")
            return self.queue.of_class(label)
        if order == "search":
            return self._searched(text)
        latest_first = dict.fromkeys(record.row for record in reversed(self.log.records))
        decided = [row for row in latest_first if self.log.decisions[row] != UNDECIDED]
        return np.array(decided, dtype=np.int64)

    def image(self, row: int) -> dict[str, Any]:
        """What stands below a picture."""
        return {
            "row": row,
            "id": shown(str(self.contents.dataset.ids[row])),
            "label": int(self.queue.labels[row]),
            "given": bool(self.contents.split.given_labels[row] >= 0),
            "probabilities": self._probabilities(row),
            "decision": int(self.log.decisions[row]),
            "n_alike": int(self.queue.n_alike[row]),
        }

    def explain(self, row: int) -> dict[str, Any]:
        """Why the run believes what it does: probabilities, who said what, and the given labels that look alike."""
        return {
            **self.image(row),
            "votes": self._votes(row),
            "neighbours": self._neighbours(row),
            "history": [
                {"decision": record.decision, "who": shown(record.who), "when": record.when}
                for record in self.log.records
                if record.row == row
            ][-10:],
        }

    def _probabilities(self, row: int) -> list[list[float]]:
        """The likeliest classes and their probabilities; empty without a vote."""
        soft = self.contents.soft_labels
        if soft is None or not soft.covered[row]:
            return []
        order = np.argsort(-soft.soft_labels[row], kind="stable")[:MOST_CLASSES_EXPLAINED]
        return [[int(label), float(soft.soft_labels[row, label])] for label in order]

    def _votes(self, row: int) -> list[dict[str, Any]]:
        """A class each, the one with most votes first: the labeling functions that name it, the surest first."""
        file, summary = self.contents.votes, self.contents.lf_summary
        if file is None:
            return []
        voted: dict[int, list[dict[str, Any]]] = {}
        for lf in np.argsort(-file.confidence[row], kind="stable"):
            if file.votes[row, lf] == ABSTAIN:
                continue
            accuracy = float(summary.estimated_accuracy[lf]) if summary is not None else float("nan")
            voted.setdefault(int(file.votes[row, lf]), []).append(
                {
                    "lf": int(lf),
                    "confidence": float(file.confidence[row, lf]),
                    "accuracy": accuracy if np.isfinite(accuracy) else None,
                    "specialties": [int(label) for label in np.flatnonzero(file.specialties[lf])],
                }
            )
        ranked = sorted(voted.items(), key=lambda item: -len(item[1]))
        return [{"label": label, "lfs": lfs} for label, lfs in ranked]

    def _neighbours(self, row: int) -> list[dict[str, Any]]:
        features, labeled = self.contents.embeddings, self.contents.split.labeled
        if features is None:
            return []
        others = labeled[labeled != row]
        distance = np.square(features[others].astype(np.float32) - features[row].astype(np.float32)).sum(axis=1)
        given = self.contents.split.given_labels
        return [
            {"row": int(other), "label": int(given[other])}
            for other in others[np.argsort(distance, kind="stable")[:N_NEIGHBOURS]]
        ]

    def progress(self) -> dict[str, Any]:
        """Counts over the whole run, and of this session."""
        decisions, labels = self.log.decisions, self.queue.labels
        decided = decisions != UNDECIDED
        n_reviewed = int(decided.sum())
        return {
            "version": len(self.log.records),
            "can_undo": self.log.can_undo,
            "n_reviewed": n_reviewed,
            "n_changed": int((decided & ((decisions != labels) | (labels < 0))).sum()),
            "n_no_class": int((decisions == NO_CLASS).sum()),
            "session_reviewed": n_reviewed - self._reviewed_before,
            "session_minutes": round((time.monotonic() - self._started) / 60, 2),
        }

    def _picture(self, row: int, large: bool) -> tuple[bytes, str]:
        return picture_bytes(self.contents.dataset.images[row], LARGE_SIDE if large else LONGEST_SIDE)

    # What a person does

    def decide(self, changes: list[tuple[int, int]]) -> dict[str, Any]:
        """One action: images and their class, or NO_CLASS."""
        for row, label in changes:
            self.require_row(row)
            if not NO_CLASS <= label < self.n_classes:
                raise InputError(f"class {label}: this run has classes 0 to {self.n_classes - 1}, and -1 for none")
        self.log.decide(changes)
        return self._as_they_stand([row for row, _ in changes])

    def undo(self) -> dict[str, Any]:
        """Take the last action back, whichever page it was made on."""
        return self._as_they_stand(self.log.undo())

    def changes(self, since: int) -> dict[str, Any]:
        """What was decided since the version `since`: by another page, say."""
        return self._as_they_stand(list(dict.fromkeys(record.row for record in self.log.records[since:])))

    def _as_they_stand(self, rows: list[int]) -> dict[str, Any]:
        return {"decisions": [[row, int(self.log.decisions[row])] for row in rows], **self.progress()}
