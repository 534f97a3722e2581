"""Networks of timm as backbones: shapes, weights from files, a whole run, and what is said where timm does not work.

Needs no conftest (`pytest --noconftest` runs it) and downloads nothing. timm imports torchvision, whose wheel may
belong to another build of torch: then two of its operators are missing, which no backbone uses. Their names alone,
declared here, let it be imported.
"""

import importlib.util
import json
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from dpssl import cli
from dpssl.config import BackboneConfig
from dpssl.data.batches import ImageBank
from dpssl.end_model.storage import load_end_model, save_end_model
from dpssl.errors import InputError
from dpssl.nets.backbones import (
    TimmBackbone,
    build_backbone,
    check_backbone,
    rescale_to,
    scale_free_norm,
    start_backbone,
)
from dpssl.nets.classifier import Classifier
from dpssl.nets.wide_resnet import WideResNet
from dpssl.run_folder import RunFolder

SMALL = "timm:test_resnet"  # half a million weights
MISSING_OPERATORS = torch.library.Library("torchvision", "FRAGMENT")


@pytest.fixture(scope="session")
def timm() -> object:
    if importlib.util.find_spec("timm") is None:
        pytest.skip("timm is not installed")
    try:
        import torchvision  # noqa: F401
    except RuntimeError:
        for name in ("nms", "qnms"):
            if not hasattr(torch.ops.torchvision, name):
                MISSING_OPERATORS.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    try:
        import timm
    except (ImportError, RuntimeError) as problem:
        pytest.skip(f"timm cannot be imported: {problem}")
    return timm


def started(shape: BackboneConfig, n_channels: int = 3, seed: int = 0) -> nn.Module:
    backbone = build_backbone(shape, n_channels)
    start_backbone(backbone, shape, n_channels, torch.Generator().manual_seed(seed))
    return backbone


def same_weights(one: nn.Module, other: nn.Module) -> bool:
    return all(torch.equal(a, b) for a, b in zip(one.parameters(), other.parameters(), strict=True))


def test_the_default_is_the_wide_resnet() -> None:
    backbone = build_backbone(BackboneConfig(depth=10, width=1), 1)
    assert isinstance(backbone, WideResNet)


@pytest.mark.parametrize("name", ["resnet18", "", "timm", "wide_resnet"])
def test_a_name_of_neither_kind_is_refused(name: str) -> None:
    with pytest.raises(InputError, match=f"--backbone '{name}': choose wide-resnet or timm:NAME"):
        build_backbone(BackboneConfig(backbone=name), 3)


@pytest.mark.parametrize(
    ("name", "n_channels", "size"),
    [
        (SMALL, 3, (96, 64)),
        (SMALL, 1, (8, 8)),  # smaller than one position
        ("timm:test_convnext", 3, (33, 33)),  # no padding: fails below its stride
        ("timm:test_vit", 1, (40, 50)),  # tokens, and no multiple of the patch
        ("timm:swin_s3_tiny_224", 3, (224, 224)),  # channels last
    ],
)
def test_feature_map_of_any_network_and_size(timm: object, name: str, n_channels: int, size: tuple[int, int]) -> None:
    backbone = build_backbone(BackboneConfig(backbone=name), n_channels).eval()
    with torch.no_grad():
        features = backbone(torch.randn(2, n_channels, *size))
    assert features.ndim == 4
    assert features.shape[:2] == (2, backbone.n_features)
    assert features.shape[2] * features.shape[3] >= 4, "one position would leave nothing to the feature transform"


def test_weights_are_drawn_from_the_generator_alone(timm: object) -> None:
    shape = BackboneConfig(backbone=SMALL)
    before = torch.get_rng_state()
    assert same_weights(started(shape, seed=1), started(shape, seed=1))
    assert not same_weights(started(shape, seed=1), started(shape, seed=2))
    assert torch.equal(torch.get_rng_state(), before)


def test_batch_norm_takes_the_momentum(timm: object) -> None:
    backbone = build_backbone(BackboneConfig(backbone=SMALL, bn_momentum=0.25), 3)
    assert {m.momentum for m in backbone.modules() if isinstance(m, nn.BatchNorm2d)} == {0.25}


def pretrained(n_classes: int = 7) -> dict[str, Tensor]:
    """What somebody would have trained: a whole classifier of timm on colour images."""
    import timm

    torch.manual_seed(5)
    return dict(timm.create_model("test_resnet", num_classes=n_classes).state_dict())


@pytest.mark.parametrize("ending", ["safetensors", "pth", "nested.pth"])
def test_weights_from_a_file(timm: object, tmp_path: Path, ending: str) -> None:
    weights, path = pretrained(), tmp_path / f"weights.{ending}"
    if ending == "safetensors":
        save_file(weights, path)
    else:
        torch.save({"state_dict": weights} if ending == "nested.pth" else weights, path)
    shape = BackboneConfig(backbone=SMALL, backbone_weights=str(path))
    check_backbone(shape)
    backbone = started(shape)
    assert isinstance(backbone, TimmBackbone)
    for name, tensor in backbone.network.state_dict().items():
        assert torch.equal(tensor, weights[name]), name
    grey = started(shape, n_channels=1)
    assert isinstance(grey, TimmBackbone)
    stem = "conv1.0.weight"
    torch.testing.assert_close(grey.network.state_dict()[stem], weights[stem].sum(1, keepdim=True))


def test_files_that_hold_no_such_weights_are_refused(timm: object, tmp_path: Path) -> None:
    class Hostile:
        def __reduce__(self) -> tuple[object, tuple[str]]:
            return Path.touch, (tmp_path / "ran",)  # type: ignore[return-value]

    weights = pretrained()
    cases: dict[str, tuple[object, str]] = {
        "other.pth": ({"conv.weight": torch.zeros(3)}, "has no 'conv1.0.weight'"),
        "shape.pth": ({**weights, "bn1.weight": torch.zeros(1)}, "not the weights of timm:test_resnet"),
        "list.pth": ([1, 2], "holds no state dict of tensors"),
        "hostile.pth": ({"conv1.0.weight": Hostile()}, "cannot be read as weights"),
        "text.safetensors": (None, "cannot be read as weights"),
        "missing.pth": (None, "cannot be read as weights"),
    }
    for name, (content, message) in cases.items():
        path = tmp_path / name
        if content is not None:
            torch.save(content, path)
        elif name.startswith("text"):
            path.write_text("no tensors")
        with pytest.raises(InputError, match=f"--backbone-weights .*{name}.*{message}"):
            check_backbone(BackboneConfig(backbone=SMALL, backbone_weights=str(path)))
    assert not (tmp_path / "ran").exists(), "a weights file ran code"


def test_weights_from_the_cache_are_never_downloaded(
    timm: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    shape = BackboneConfig(backbone=SMALL, backbone_weights="cache")
    with pytest.raises(InputError, match=r"cache: no weights of timm:test_resnet.*pretrained=True"):
        check_backbone(shape)
    weights, found = pretrained(), tmp_path / "found.safetensors"
    save_file(weights, found)
    monkeypatch.setattr("huggingface_hub.try_to_load_from_cache", lambda repository, file: str(found))
    backbone = started(shape)
    assert torch.equal(backbone.state_dict()["network.conv1.0.weight"], weights["conv1.0.weight"])


def test_a_start_from_shrunk_weights_gets_the_norm_of_drawn_ones(tmp_path: Path) -> None:
    path = tmp_path / "backbone.safetensors"
    trained = started(BackboneConfig(depth=10, width=2))
    drawn = scale_free_norm(trained)
    rescale_to(trained, drawn / 5)
    assert scale_free_norm(trained) == pytest.approx(drawn / 5, rel=1e-4)
    save_file(trained.state_dict(), path)
    norms = [
        scale_free_norm(started(BackboneConfig(depth=10, width=2, backbone_weights=str(path), rescale_start=rescale)))
        for rescale in (False, True)
    ]
    assert norms == pytest.approx([drawn / 5, drawn], rel=1e-4)


@pytest.mark.parametrize("n_channels", [1, 3])
def test_weights_of_a_wide_resnet_from_a_file(tmp_path: Path, n_channels: int) -> None:
    path = tmp_path / "backbone.safetensors"
    shape = BackboneConfig(depth=10, width=1)
    saved = started(shape, n_channels)
    save_file(saved.state_dict(), path)
    shape = BackboneConfig(depth=10, width=1, backbone_weights=str(path))
    check_backbone(shape)
    again = build_backbone(shape, n_channels)
    start_backbone(again, shape, n_channels, torch.Generator().manual_seed(99))
    for name, tensor in again.state_dict().items():
        assert torch.equal(tensor, saved.state_dict()[name]), name
    with pytest.raises(InputError, match=r"--backbone-weights .*: not the weights of a Wide ResNet-10-2"):
        check_backbone(BackboneConfig(depth=10, width=2, backbone_weights=str(path)))
    with pytest.raises(InputError, match=r"Wide ResNet-10-1 for such images .*stem\.weight"):
        started(shape, 4 - n_channels)
    with pytest.raises(InputError, match="cannot be read as weights"):
        check_backbone(BackboneConfig(backbone_weights=str(tmp_path / "missing.safetensors")))


def test_weights_without_timm_and_unknown_networks_are_refused(timm: object) -> None:
    with pytest.raises(InputError, match="--backbone-weights cache: only for networks of timm"):
        check_backbone(BackboneConfig(backbone_weights="cache"))
    with pytest.raises(InputError, match=r"--backbone timm:resnet17: timm .* has no such network; near: .*resnet"):
        build_backbone(BackboneConfig(backbone="timm:resnet17"), 3)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "needs timm, and timm is not installed: pip install 'dpssl\\[vision\\]'"),
        ("raise RuntimeError('operator torchvision::nms does not exist')", "nms does not exist.*of the same release"),
    ],
)
def test_where_timm_cannot_be_imported_the_message_says_why(
    content: str | None, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in sys.modules if name.split(".")[0] == "timm"]:
        monkeypatch.delitem(sys.modules, name)
    if content is None:
        monkeypatch.setattr(sys, "path", [entry for entry in sys.path if not (Path(entry) / "timm").exists()])
    else:
        (tmp_path / "timm.py").write_text(content)
        monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(InputError, match=message):
        build_backbone(BackboneConfig(backbone=SMALL), 3)


def test_the_end_model_is_saved_and_read_again(timm: object, tmp_path: Path) -> None:
    shape = BackboneConfig(backbone=SMALL, backbone_weights=str(tmp_path / "gone.pth"), bn_momentum=0.25)
    network = Classifier(build_backbone(shape, 3), 2).eval()
    bank = ImageBank.from_numpy(
        np.random.default_rng(0).integers(0, 255, (4, 20, 20, 3), np.uint8), torch.device("cpu")
    )
    folder = RunFolder(tmp_path)
    save_end_model(folder, network, bank, ("cat", "dog"), shape)
    model = load_end_model(folder, torch.device("cpu"))
    assert model.class_names == ("cat", "dog")
    assert "gone.pth" not in (tmp_path / "end_model.safetensors").read_bytes().decode("latin1")
    inputs = bank.network_input(bank.images)
    with torch.no_grad():
        torch.testing.assert_close(model.network(inputs), network(inputs))


@pytest.mark.parametrize("device", ["cpu", *(["cuda"] if torch.cuda.is_available() else [])])
def test_a_whole_run_stopped_and_resumed(
    timm: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, device: str
) -> None:
    """Steps 1 and 3 on a timm network: trained, averaged, checkpointed, resumed, saved and scored."""
    monkeypatch.chdir(tmp_path)
    save_file(pretrained(), "weights.safetensors")
    rng = np.random.default_rng(0)
    labels = np.where(np.arange(24) < 8, np.arange(24) % 2, -1)
    images = rng.integers(0, 128, (24, 12, 12, 3), np.uint8)
    np.savez("own.npz", images=images, labels=labels, test_x=images[:6], test_y=labels[:6])
    flags = {
        "backbone": SMALL, "backbone-weights": "weights.safetensors", "data": "own.npz", "n-lfs": 6,
        "mcl-min-steps": 1, "mcl-max-steps": 1, "steps": 2, "window": 1, "mcl-window": 1, "batch-size": 4,
        "unlabeled-ratio": 1, "end-steps": 2, "end-batch-size": 4, "end-unlabeled-ratio": 1, "label-model": "majority",
        "device": device, "threads": 1, "end-uncovered": "prior",
    }  # fmt: skip
    given = [text for name, value in flags.items() for text in (f"--{name}", str(value))]
    assert cli.main(["run", *given, "--out", "whole"]) == 0
    assert cli.main(["run", *given, "--out", "parts", "--max-minutes", "0.00001"]) == 0
    while not Path("parts/summary.json").exists() or not Path("parts/end_model.safetensors").exists():
        assert cli.main(["resume", "parts", "--max-minutes", "0.00001"]) == 0
    for name in ("votes.npz", "soft_labels.npz", "end_model.safetensors", "embeddings.npz"):
        same = Path("parts", name).read_bytes() == Path("whole", name).read_bytes()
        assert same or device == "cuda", name  # a GPU sums in any order
    assert json.loads(Path("whole/summary.json").read_text())["test_accuracy"] is not None
    model = load_end_model(RunFolder(Path("whole")), torch.device("cpu"))
    assert isinstance(model.network.backbone, TimmBackbone)
    Path("weights.safetensors").unlink()
    assert cli.main(["evaluate", "whole"]) == 0, "a trained model needs its first weights no more"
