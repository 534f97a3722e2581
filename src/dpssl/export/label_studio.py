"""Labels as Label Studio takes them: tasks.json with a prediction each, and the labeling configuration that fits them.

A task's image is its file by Label Studio's local storage, an address below `--image-url`, or, where the run was made
from arrays, the picture itself as a data: address. A label that a person gave is an annotation as well.
"""

import base64
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote
from xml.sax.saxutils import quoteattr

from dpssl.export.images import RunImages
from dpssl.export.labels import GIVEN, LabelRows
from dpssl.export.names import printable_names
from dpssl.export.tables import write_json_lines

TASKS, LABELING_CONFIG = "tasks.json", "labeling_config.xml"
CONTROL, OBJECT = "label", "image"  # the names by which tasks and configuration refer to each other
LOCAL_FILES = "/data/local-files/?d="


def write_label_studio(rows: LabelRows, images: RunImages, folder: Path, image_url: str, model_version: str) -> int:
    """tasks.json and labeling_config.xml; returns the number of tasks."""
    choices = printable_names(rows.class_names)
    (folder / LABELING_CONFIG).write_text(labeling_config(choices), encoding="utf-8")
    write_json_lines(folder / TASKS, _tasks(rows, images, choices, image_url, model_version))
    return len(rows)


def labeling_config(choices: list[str]) -> str:
    lines = "".join(f"    <Choice value={quoteattr(name)}/>\n" for name in choices)
    return (
        f'<View>\n  <Image name="{OBJECT}" value="${OBJECT}"/>\n'
        f'  <Choices name="{CONTROL}" toName="{OBJECT}" choice="single" showInLine="true">\n'
        f"{lines}  </Choices>\n</View>\n"
    )


def _tasks(
    rows: LabelRows, images: RunImages, choices: list[str], image_url: str, model_version: str
) -> Iterator[dict[str, Any]]:
    for row, id in enumerate(rows.ids.tolist()):
        task: dict[str, Any] = {"data": {OBJECT: _address(id, images, image_url), "id": id}}
        if rows.label_of(row) is not None:
            choice = choices[int(rows.labels[row])]
            score = round(float(rows.confidence[row]), 6)
            prediction = {"model_version": model_version, "score": score, "result": [_result(choice)]}
            task["predictions"] = [prediction]
            if rows.source is not None and rows.source[row] == GIVEN:
                task["annotations"] = [{"ground_truth": True, "result": [_result(choice)]}]
        yield task


def _result(choice: str) -> dict[str, Any]:
    return {"from_name": CONTROL, "to_name": OBJECT, "type": "choices", "value": {"choices": [choice]}}


def _address(id: str, images: RunImages, image_url: str) -> str:
    path = quote(id, errors="replace")
    if image_url:
        return image_url + path
    if images.root is not None:
        return LOCAL_FILES + quote(images.file_of(id).relative_to(images.root.parent).as_posix())
    return "data:image/png;base64," + base64.b64encode(images.png_of(id)).decode("ascii")
