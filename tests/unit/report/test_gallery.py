"""Which images are shown of a class, as what pictures, and how shares and names are written."""

import base64
import io
from typing import Any

import numpy as np
import pytest
from PIL import Image

from dpssl.report.gallery import class_galleries
from dpssl.report.names import joined, percent, probability, short, shown
from dpssl.report.thumbnails import data_address, picture_bytes


def test_rows_are_the_surest_the_most_typical_and_the_least_sure(make_run: Any) -> None:
    contents = make_run(n_channels=1).contents()
    labels = contents.labels
    cats = class_galleries(contents, labels)[0]
    assert cats.name == "cat"
    members = np.flatnonzero(labels.label == 0)
    assert cats.n_images == len(members)
    rows = {title: [picture.name for picture in pictures] for title, pictures in cats.rows}
    assert list(rows) == ["surest", "most typical", "least sure"]
    by_confidence = sorted(members, key=lambda at: -labels.confidence[at])
    confidence = {f"image-{labels.rows[at]}": labels.confidence[at] for at in members}
    assert [confidence[name] for name in rows["surest"]] == [labels.confidence[at] for at in by_confidence[:6]]
    assert [confidence[name] for name in rows["least sure"]] == [labels.confidence[at] for at in by_confidence[:-7:-1]]
    features = contents.embeddings[labels.rows[members]].astype(float)
    nearest = np.argsort(np.linalg.norm(features - features.mean(0), axis=1))[:6]
    assert rows["most typical"] == [f"image-{labels.rows[members[at]]}" for at in nearest]


def test_without_embeddings_nothing_is_typical(make_run: Any) -> None:
    contents = make_run(files=("votes", "labels")).contents()
    assert [title for title, _ in class_galleries(contents, contents.labels)[0].rows] == ["surest", "least sure"]


def test_a_small_picture_keeps_every_pixel() -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (8, 8, 3), dtype=np.uint8)
    address = data_address(pixels)
    assert address.startswith("data:image/png;base64,")
    content = base64.b64decode(address.partition(",")[2])
    np.testing.assert_array_equal(np.asarray(Image.open(io.BytesIO(content))), pixels)


@pytest.mark.parametrize("n_channels", [1, 3])
def test_a_large_picture_is_made_small_in_proportion(n_channels: int) -> None:
    content, media_type = picture_bytes(np.zeros((200, 400, n_channels), dtype=np.uint8))
    assert media_type == "image/jpeg"
    assert Image.open(io.BytesIO(content)).size == (96, 48)


def test_shares_are_never_rounded_to_certainty() -> None:
    assert [percent(share) for share in (0, 0.0001, 0.123, 1)] == ["0.0 %", "< 0.1 %", "12.3 %", "100.0 %"]
    assert [probability(share) for share in (0.5, 0.9994, 0.9999, 1)] == ["50.0 %", "99.9 %", "> 99.9 %", "> 99.9 %"]


def test_names_are_made_fit_to_be_shown() -> None:
    assert shown("a\nb\u202ec\x00") == "a\ufffdb\ufffdc\ufffd"
    assert shown("می\u200cخواهم") == "می\u200cخواهم"
    assert shown("") == "\ufffd"
    assert short("a" * 20, 5) == "aaaa…"
    assert [joined(names) for names in ([], ["a"], ["a", "b"], ["a", "b", "c"])] == ["", "a", "a and b", "a, b and c"]
    assert joined(list("abcdefghij"), 3) == "a, b, c and 7 more"
