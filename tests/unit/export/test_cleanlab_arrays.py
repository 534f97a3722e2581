"""The arrays in cleanlab itself, and the end model's opinion without its network."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from dpssl.config import BackboneConfig
from dpssl.data.batches import ImageBank
from dpssl.end_model.predict import embed, predict_probabilities
from dpssl.end_model.storage import save_end_model
from dpssl.errors import InputError, RunFolderError
from dpssl.export.cleanlab_arrays import end_model_probabilities, write_cleanlab
from dpssl.export.labels import LabelRows, read_labels
from dpssl.nets.backbones import build_backbone
from dpssl.nets.classifier import Classifier
from dpssl.run_folder import RunFolder


def arrays_of(path: Path) -> dict[str, Any]:
    with np.load(path, allow_pickle=False) as archive:
        return dict(archive)


@pytest.fixture
def trained(rows: LabelRows, folder: RunFolder) -> np.ndarray:
    """An end model with its features beside the labels; returns what the network says."""
    torch.manual_seed(0)
    shape = BackboneConfig(depth=7, width=1, strides=(1, 2))
    images = np.random.default_rng(0).integers(0, 255, (len(rows), 8, 8, 1), np.uint8)
    bank = ImageBank.from_numpy(images, torch.device("cpu"))
    network = Classifier(build_backbone(shape, 1), len(rows.class_names)).eval()
    order = np.random.default_rng(1).permutation(len(rows))  # rows are joined by id, whatever their order
    folder.write_arrays("embeddings.npz", ids=rows.ids[order], embeddings=embed(network, bank)[order].half().numpy())
    save_end_model(folder, network, bank, rows.class_names, shape)
    return np.asarray(predict_probabilities(network, bank))


def test_probabilities_are_the_networks(trained: np.ndarray, rows: LabelRows, folder: RunFolder) -> None:
    found = end_model_probabilities(folder, rows.ids)
    np.testing.assert_allclose(found, trained, atol=1e-3)


def test_cleanlab_finds_a_wrong_label(folder: RunFolder, tmp_path: Path, recwarn: pytest.WarningsRecorder) -> None:
    """Two well-separated classes; one given label is wrong and the other opinion, here the soft labels, knows."""
    filter = pytest.importorskip("cleanlab.filter")
    n = 60
    truth = np.arange(n) % 2
    soft_labels = np.where(np.arange(2) == truth[:, None], 0.95, 0.05)
    ids = [f"image-{row}" for row in range(n)]
    folder.write_soft_labels(ids, ("cat", "dog"), soft_labels, np.ones(n, bool))
    folder.write_json("split.json", {"labeled": {ids[7]: int(1 - truth[7]), ids[8]: int(truth[8])}})
    assert write_cleanlab(read_labels(folder), folder, tmp_path / "cleanlab.npz") == n
    assert "no end model" in str(recwarn.pop(UserWarning).message)
    found = arrays_of(tmp_path / "cleanlab.npz")
    issues = filter.find_label_issues(found["labels"], found["pred_probs"], return_indices_ranked_by="self_confidence")
    assert found["ids"][issues].tolist() == [ids[7]]
    assert found["given"].sum() == 2


def test_only_images_with_a_label_are_written(
    trained: np.ndarray, rows: LabelRows, folder: RunFolder, tmp_path: Path
) -> None:
    assert write_cleanlab(rows, folder, tmp_path / "cleanlab.npz") == len(rows) - 1
    found = arrays_of(tmp_path / "cleanlab.npz")
    assert found["labels"].min() >= 0
    np.testing.assert_allclose(found["pred_probs"], np.delete(trained, 3, 0), atol=1e-3)
    with pytest.raises(InputError, match="lower --min-confidence"):
        write_cleanlab(rows.take(rows.labels < 0), folder, tmp_path / "none.npz")


def test_features_of_another_run_are_refused(trained: np.ndarray, rows: LabelRows, folder: RunFolder) -> None:
    folder.write_arrays("embeddings.npz", ids=rows.ids[:3], embeddings=np.zeros((3, 32), np.float16))
    with pytest.raises(RunFolderError, match=r"embeddings\.npz: does not belong to .*dpssl train .* --redo"):
        end_model_probabilities(folder, rows.ids)
