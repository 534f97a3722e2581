"""tasks.json against Label Studio's published task format, and against its SDK where that is installed.

The format: https://labelstud.io/guide/tasks and https://labelstud.io/guide/predictions. The SDK pulls in half a
gigabyte and another numpy, so it is no part of the extra `dev`.
"""

import base64
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from PIL import Image

from dpssl.export.images import RunImages
from dpssl.export.label_studio import write_label_studio
from dpssl.export.labels import LabelRows

MakeRun = Callable[[], tuple[LabelRows, RunImages]]


def read(out: Path) -> tuple[list[dict[str, Any]], str]:
    tasks = json.loads((out / "tasks.json").read_text(encoding="utf-8"))
    return tasks, (out / "labeling_config.xml").read_text(encoding="utf-8")


@pytest.fixture
def written(rows: LabelRows, images: RunImages, tmp_path: Path) -> tuple[list[dict[str, Any]], str]:
    (tmp_path / "out").mkdir()
    assert write_label_studio(rows, images, tmp_path / "out", "", "dpssl run") == len(rows)
    return read(tmp_path / "out")


def check_result(result: list[dict[str, Any]], control: ElementTree.Element, allowed: set[str]) -> None:
    (item,) = result
    assert item["from_name"] == control.get("name")
    assert item["to_name"] == control.get("toName")
    assert item["type"] == control.tag.lower()
    assert set(item["value"]) == {item["type"]}
    (choice,) = item["value"]["choices"]
    assert choice in allowed


def test_tasks_follow_the_published_format(written: tuple[list[dict[str, Any]], str], rows: LabelRows) -> None:
    tasks, config = written
    view = ElementTree.fromstring(config)
    image, control = view.find("Image"), view.find("Choices")
    assert image is not None
    assert control is not None
    assert control.get("toName") == image.get("name")
    allowed = {choice.get("value", "") for choice in control.findall("Choice")}
    assert len(allowed) == len(rows.class_names)
    assert {"cat", "Cat", "=cmd()|' /C calc'!A1", "../../etc"} <= allowed
    for row, task in enumerate(tasks):
        assert set(task) <= {"data", "predictions", "annotations"}
        assert image.get("value", "")[1:] in task["data"]
        assert task["data"]["id"] == rows.ids[row]
        for prediction in task.get("predictions", []):
            assert set(prediction) == {"model_version", "score", "result"}
            assert prediction["score"] == pytest.approx(float(rows.confidence[row]), abs=1e-6)
            check_result(prediction["result"], control, allowed)
        for annotation in task.get("annotations", []):
            check_result(annotation["result"], control, allowed)
    assert "predictions" not in tasks[3], "an image without a label has no prediction"
    assert [row for row, task in enumerate(tasks) if "annotations" in task] == [5], "a label that was given"


def test_label_studio_accepts_configuration_and_predictions(written: tuple[list[dict[str, Any]], str]) -> None:
    label_interface = pytest.importorskip("label_studio_sdk.label_interface", reason="label-studio-sdk is no dev extra")
    tasks, config = written
    interface = label_interface.LabelInterface(config)
    interface.validate()
    for task in tasks:
        for prediction in task.get("predictions", []):
            assert interface.validate_prediction(prediction, return_errors=True) == []
        for annotation in task.get("annotations", []):
            assert interface.validate_annotation(annotation)


def test_pictures_without_a_file_are_inside(written: tuple[list[dict[str, Any]], str]) -> None:
    for row, task in enumerate(written[0]):
        kind, _, content = task["data"]["image"].partition(",")
        assert kind == "data:image/png;base64"
        assert np.asarray(Image.open(io.BytesIO(base64.b64decode(content))))[0, 0] == row


def test_files_are_named_for_local_storage_or_below_an_address(image_files: MakeRun, tmp_path: Path) -> None:
    rows, images = image_files()
    for out, url in (("local", ""), ("web", "https://images.example/")):
        (tmp_path / out).mkdir()
        write_label_studio(rows, images, tmp_path / out, url, "dpssl")
    local = [task["data"]["image"] for task in read(tmp_path / "local")[0]]
    assert local[1:] == [
        "/data/local-files/?d=my%20photos/sub/two.png",
        "/data/local-files/?d=my%20photos/sub%232/thr%C3%A9e.png",
    ]
    web = [task["data"]["image"] for task in read(tmp_path / "web")[0]]
    assert web[2] == "https://images.example/sub%232/thr%C3%A9e.png"
