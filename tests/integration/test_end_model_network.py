"""An end model with a network of its own: smaller or larger than that of the labeling functions."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits

from dpssl import DPSSLClassifier
from dpssl.config import Config, with_values
from dpssl.end_model.storage import load_end_model
from dpssl.review.corrections import CorrectionLog
from dpssl.run_folder import RunFolder

# After so few steps some LFs are silent still, and the label model says so.
pytestmark = pytest.mark.filterwarnings(
    "ignore:labeling functions that never vote", "ignore:no labeling function votes"
)
OWN = ("--end-depth", 7, "--end-width", 3, "--end-strides", 1, 2)


@pytest.fixture(scope="module")
def run(warm_cli: Any, tiny: list[str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    out: Path = tmp_path_factory.mktemp("own") / "run"
    done = warm_cli("run", *tiny, *OWN, "--end-start", "scratch", "--warm-steps", 2, "--out", out)
    assert done.returncode == 0, done.stderr
    return out


def test_it_has_the_shape_that_was_asked_for_and_the_lfs_have_theirs(run: Path) -> None:
    network = load_end_model(RunFolder(run), torch.device("cpu")).network
    assert network.backbone.n_features == 16 * 3 * 2
    lfs, _ = RunFolder(run).read_safetensors("lf_model.safetensors")
    assert lfs["backbone.bn.weight"].numel() != network.backbone.n_features


def test_its_features_are_the_embeddings(run: Path) -> None:
    assert RunFolder(run).read_arrays("embeddings.npz", "embeddings")["embeddings"].shape[1] == 96


def test_later_commands_read_it(warm_cli: Any, run: Path, tmp_path: Path) -> None:
    images = tmp_path / "images.npy"
    np.save(images, np.random.default_rng(0).integers(0, 256, (4, 8, 8), dtype=np.uint8))
    done = warm_cli("predict", run, images, "--out", tmp_path / "answers.csv")
    assert done.returncode == 0, done.stderr
    assert len((tmp_path / "answers.csv").read_text().splitlines()) == 5


def test_step_3_can_be_done_again_with_another(warm_cli: Any, tiny: list[str], tmp_path: Path) -> None:
    done = warm_cli("run", *tiny, "--out", tmp_path / "run")
    assert done.returncode == 0, done.stderr
    before = load_end_model(RunFolder(tmp_path / "run"), torch.device("cpu")).network.backbone.n_features
    redo = "train", tmp_path / "run", "--redo", "--end-steps", 2
    done = warm_cli(*redo, "--end-width", 2, "--end-start", "lfs")
    assert done.returncode == 2
    assert "--end-start scratch" in done.stderr
    done = warm_cli(*redo, "--end-width", 2, "--end-start", "scratch")
    assert done.returncode == 0, done.stderr
    assert load_end_model(RunFolder(tmp_path / "run"), torch.device("cpu")).network.backbone.n_features == 2 * before


@pytest.mark.parametrize("own", [False, True])
def test_a_network_of_its_own_begins_with_drawn_weights(
    warm_cli: Any, tiny: list[str], tmp_path: Path, own: bool
) -> None:
    """Also where it has the shape of step 1's: what differs is that it is asked for."""
    still = "--end-learning-rate", 0, "--weight-decay", 0, "--warm-steps", 2, "--end-start", "scratch"
    done = warm_cli("run", *tiny, *still, *(("--end-width", 1) if own else ()), "--out", tmp_path / "run")
    assert done.returncode == 0, done.stderr
    warm, _ = RunFolder(tmp_path / "run").read_safetensors("backbone.safetensors")
    end, _ = RunFolder(tmp_path / "run").read_safetensors("end_model.safetensors")
    assert torch.equal(warm["stem.weight"], end["backbone.stem.weight"]) != own


def test_a_refined_run_may_have_another(warm_cli: Any, run: Path, tmp_path: Path) -> None:
    """It goes on from the end model before, and from drawn weights where the shape is another."""
    file = RunFolder(run).read_soft_labels()
    log = CorrectionLog(RunFolder(run), list(map(str, file.ids)), file.class_names, file.soft_labels.argmax(1), "Ada")
    log.decide([(50, 3)])
    log.close()
    out = tmp_path / "refined"
    done = warm_cli("refine", run, "--out", out)
    assert done.returncode == 0, done.stderr
    done = warm_cli("train", out, "--redo", "--end-learning-rate", 0, "--weight-decay", 0)
    assert done.returncode == 0, done.stderr
    before, after = (RunFolder(place).read_safetensors("end_model.safetensors")[0] for place in (run, out))
    assert torch.equal(before["backbone.stem.weight"], after["backbone.stem.weight"])
    done = warm_cli("train", out, "--redo", "--end-width", 1, "--end-steps", 2)
    assert done.returncode == 0, done.stderr
    assert load_end_model(RunFolder(out), torch.device("cpu")).network.backbone.n_features == 32


def test_a_shape_that_is_none_is_refused_before_training(warm_cli: Any, tiny: list[str], tmp_path: Path) -> None:
    done = warm_cli("run", *tiny, "--end-depth", 9, "--end-start", "scratch", "--out", tmp_path / "run")
    assert done.returncode == 2
    assert "the end model (--end-depth" in done.stderr
    assert not (tmp_path / "run").exists()


def test_the_estimator_takes_it_too() -> None:
    pixels, truth = load_digits(return_X_y=True)
    images = (pixels[:60].reshape(-1, 8, 8) * 15).astype(np.uint8)
    y = np.where(np.arange(60) < 30, truth[:60], -1)
    settings = {
        "n_lfs": 6, "mcl_min_steps": 2, "mcl_max_steps": 2, "steps": 2, "batch_size": 10, "unlabeled_ratio": 1,
        "end_steps": 2, "end_batch_size": 10, "end_unlabeled_ratio": 1, "warm_steps": 2, "warm_batch_size": 10,
        "end_width": 2, "end_start": "scratch", "end_uncovered": "prior",
    }  # fmt: skip
    classifier = DPSSLClassifier(device="cpu", settings=settings).fit(images, y)
    assert classifier.end_model_.backbone.n_features == 2 * 64
    assert classifier.predict(images).shape == (60,)


def test_drawn_weights_where_step_1_had_given_ones() -> None:
    config = with_values(Config(), {"backbone": "timm:resnet18", "backbone_weights": "cache", "end_width": 4})
    own = config.end_backbone
    assert (own.backbone, own.backbone_weights, own.depth, own.width) == ("wide-resnet", "", 28, 4)
    assert with_values(config, {"end_width": 0}).end_backbone == config.backbone
