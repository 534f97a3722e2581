"""Arrays for cleanlab's find_label_issues: the label of each image, and what another model thinks of it.

The label model cannot doubt its own labels, so `pred_probs` are the end model's: its stored features (embeddings.npz)
times its last layer. No network runs. Where there is no end model they are the soft labels, and only labels that a
person gave can be found wrong.
"""

import warnings
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpssl.constants import UNLABELED
from dpssl.errors import InputError, RunFolderError
from dpssl.export.labels import GIVEN, LabelRows
from dpssl.run_folder import RunFolder
from dpssl.step_files import string_array

EMBEDDINGS, END_MODEL = "embeddings.npz", "end_model.safetensors"
CHUNK = 65536  # rows in float32 at a time


def write_cleanlab(rows: LabelRows, folder: RunFolder, path: Path) -> int:
    """An .npz of labels, pred_probs, given, ids and class_names, of the images that have a label; returns how many."""
    labelled = rows.take(rows.labels != UNLABELED)
    if not len(labelled):
        raise InputError("no image has such a label, so there is nothing for cleanlab; lower --min-confidence")
    probabilities = end_model_probabilities(folder, labelled.ids)
    if probabilities is None:
        warnings.warn(
            f"{folder.folder} has no end model, so pred_probs are the soft labels themselves: only labels that you "
            "gave can disagree with them; `dpssl train` makes the end model",
            stacklevel=2,
        )
        probabilities = labelled.probabilities
    arrays = {
        "labels": labelled.labels,
        "pred_probs": probabilities,
        "given": labelled.source == GIVEN,
        "ids": labelled.ids,
        "class_names": string_array(rows.class_names),
    }
    with path.open("wb") as file:
        np.savez(file, **arrays)  # type: ignore[arg-type]  # keys are ours, none is a keyword of savez
    return len(labelled)


def end_model_probabilities(folder: RunFolder, ids: NDArray[np.str_]) -> NDArray[np.float32] | None:
    """Class probabilities (n, C) of the end model for `ids`, from its features and its linear layer."""
    if not (folder.has(END_MODEL) and folder.has(EMBEDDINGS)):
        return None
    arrays = folder.read_arrays(EMBEDDINGS, "ids", "embeddings")
    tensors, _ = folder.read_safetensors(END_MODEL)
    position = {id: row for row, id in enumerate(arrays["ids"].tolist())}
    try:
        rows = np.array([position[id] for id in ids.tolist()], dtype=np.int64)
        weight, bias = (tensors[f"head.{name}"].float().numpy() for name in ("weight", "bias"))
        parts = [_softmax(arrays["embeddings"][part].astype(np.float32) @ weight.T + bias) for part in _chunks(rows)]
    except (KeyError, ValueError) as problem:
        raise RunFolderError(
            f"{folder.path(EMBEDDINGS)}: does not belong to {END_MODEL} and soft_labels.npz ({problem}); "
            f"make it again with `dpssl train {folder.folder} --redo`"
        ) from problem
    return np.concatenate(parts)


def _softmax(logits: NDArray[np.float32]) -> NDArray[np.float32]:
    scaled = np.exp(logits - logits.max(1, keepdims=True))
    return np.asarray(scaled / scaled.sum(1, keepdims=True), dtype=np.float32)


def _chunks(rows: NDArray[np.int64]) -> list[NDArray[Any]]:
    return [rows[start : start + CHUNK] for start in range(0, len(rows), CHUNK)]
