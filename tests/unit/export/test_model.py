"""The end model in onnxruntime and as a program of torch.export: the same output for any number of images."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from dpssl.config import BackboneConfig
from dpssl.data.batches import ImageBank
from dpssl.end_model.predict import predict_probabilities
from dpssl.end_model.storage import save_end_model
from dpssl.errors import InputError, RunFolderError
from dpssl.export.model import image_shape, write_onnx, write_torch
from dpssl.nets.backbones import build_backbone
from dpssl.nets.classifier import Classifier
from dpssl.run_folder import RunFolder

NAMES = ("cat", "dög", "=x")


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[RunFolder, np.ndarray, np.ndarray]:
    """A run folder with an end model; images that are no square; what the network says of them."""
    folder = RunFolder(tmp_path_factory.mktemp("run"))
    torch.manual_seed(0)
    shape = BackboneConfig(depth=7, width=1, strides=(1, 2))
    images = np.random.default_rng(0).integers(0, 256, (5, 12, 9, 3), np.uint8)
    bank = ImageBank.from_numpy(images, torch.device("cpu"))
    network = Classifier(build_backbone(shape, 3), len(NAMES)).eval()
    folder.write_json("images.json", {"data": "somewhere", "shape": [12, 9, 3]})
    save_end_model(folder, network, bank, NAMES, shape)
    return folder, images, np.asarray(predict_probabilities(network, bank))


def test_onnxruntime_says_what_the_network_says(
    trained: tuple[RunFolder, np.ndarray, np.ndarray], tmp_path: Path
) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    folder, images, expected = trained
    write_onnx(folder, tmp_path / "model.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx", providers=["CPUExecutionProvider"])
    (given,) = session.get_inputs()
    assert (given.name, given.type, given.shape[1:]) == ("images", "tensor(uint8)", [12, 9, 3])
    for n in (1, 2, 5):
        (found,) = session.run(["probabilities"], {"images": images[:n]})
        np.testing.assert_allclose(found, expected[:n], atol=1e-5)
    assert json.loads(session.get_modelmeta().custom_metadata_map["class_names"]) == list(NAMES)


def test_the_program_of_torch_says_what_the_network_says(
    trained: tuple[RunFolder, np.ndarray, np.ndarray], tmp_path: Path
) -> None:
    folder, images, expected = trained
    write_torch(folder, tmp_path / "model.pt2")
    extra = {"class_names.json": ""}
    program = torch.export.load(tmp_path / "model.pt2", extra_files=extra).module()
    for n in (1, 5):
        np.testing.assert_allclose(program(torch.from_numpy(images[:n])).detach(), expected[:n], atol=1e-6)
    assert json.loads(extra["class_names.json"]) == list(NAMES)


def test_onnx_without_its_packages_says_what_to_install(
    trained: tuple[RunFolder, np.ndarray, np.ndarray], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "onnxscript", None)
    with pytest.raises(InputError, match=r"--to onnx needs onnxscript: pip install 'dpssl\[onnx\]'"):
        write_onnx(trained[0], tmp_path / "model.onnx")


@pytest.mark.parametrize("recorded", [[], {"shape": [8, 8]}, {"shape": [8, "x", 1]}, {"shape": [0, 8, 1]}])
def test_a_damaged_image_size_is_refused(tmp_path: Path, recorded: object) -> None:
    folder = RunFolder(tmp_path)
    folder.write_json("images.json", recorded)
    with pytest.raises(RunFolderError, match=r"images\.json: is damaged"):
        image_shape(folder)
