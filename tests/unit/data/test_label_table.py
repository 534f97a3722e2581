"""A table of labels: its columns, which image a row means, and every row that does not fit."""

from pathlib import Path

import pytest

from dpssl.data.label_table import match_rows, plain_label, read_label_table, sorted_classes
from dpssl.errors import InputError

IDS = ["a/1.jpg", "a/2.jpg", "b/1.jpg", "b/3.png", "c d/é.png"]


@pytest.fixture
def labels(tmp_path: Path):
    """`labels("path,label", "a/1.jpg,cat")`: the classes that the table gives to IDS."""

    def match(*lines: str, skipped: tuple[tuple[str, str], ...] = ()) -> dict[str, str]:
        table = tmp_path / "labels.csv"
        table.write_text("\n".join(lines) + "\n", encoding="utf-8")
        return match_rows(read_label_table(table), IDS, table, tmp_path / "photos", skipped)

    return match


@pytest.mark.parametrize(
    "lines",
    [
        ("path,label", "a/2.jpg,cat", "b/3.png,dog"),
        ("label,file_name", "cat,a/2.jpg", "dog,b/3.png"),
        ("Filename;Class", "2.jpg;cat", "3.png;dog"),
        ("Image Name,species", "2.jpg,cat", "3.png,dog"),
        ("label,where", "cat,2.jpg", "dog,3.png"),
        ("image\ttarget", "./a/2.jpg\tcat", "x/../b/3.png\tdog"),
        ("\ufeffid,label", "2,cat", "b/3,dog"),
        ("number,path,class", "7,a\\2.jpg,cat", '8,"b/3.png","dog"', "", "9,a/1.jpg,", "9,b/1.jpg,-1"),
        ("path,label", "photos/a/2.jpg,cat", "photos/b/3.png,dog"),
        ("path,label", "a/2.jpg,cat", "a/2.jpg,cat", "b/3.png,dog"),
    ],
)
def test_ways_to_name_an_image(lines: tuple[str, ...], labels) -> None:
    assert labels(*lines) == {"a/2.jpg": "cat", "b/3.png": "dog"}


def test_absolute_paths_below_the_folder(labels, tmp_path: Path) -> None:
    assert labels("path,label", f"{tmp_path}/photos/c d/é.png,cat") == {"c d/é.png": "cat"}


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (("path,label", "a/1.jpg,cat", "a/9.jpg,dog"), r"line 3: 'a/9.jpg' is no image of .*photos; correct the path"),
        (("path,label", "x.jpg,cat", "y.jpg,dog"), r"line 2: 'x.jpg' is no image .*\(and 1 more rows like it\)"),
        (("path,label", "a/1.jpg,cat", "a/1.jpg,dog"), r"line 3: 'a/1.jpg' is 'dog' here and 'cat' in line 2"),
        (("path,label", "a/1.jpg,cat", "A/1.JPG,cat"), r"there is 'a/1.jpg': names differ by case"),
        (("path,label", "1.jpg,cat"), r"'1.jpg' may be 'a/1.jpg' or 'b/1.jpg'; give the path"),
        (("path,label", "../secret.jpg,cat"), r"line 2: '../secret.jpg' leaves"),
        (("path,label", "a/../../secret.jpg,cat"), r"leaves"),
        (("path,label", "/etc/secret.jpg,cat"), r"'/etc/secret.jpg' leaves"),
        (("path,label", "C:\\secret.jpg,cat"), r"leaves"),
        (("path,label", "a/1.jpg,cat", "a/2.jpg,Cat"), r"the classes 'Cat' and 'cat' differ by case alone"),
        (
            ("path,size,species", "a/1.jpg,1,cat"),
            r"columns 'path', 'size', 'species'; the one with its class must be named",
        ),
        (("where,when,label", "a/1.jpg,1,cat"), r"the one with the image's path or file name must be named path"),
        (("a/1.jpg,cat", "a/2.jpg,dog"), r"has the columns 'a/1.jpg', 'cat'; the one with the image's path"),
        (("path,label", "a/1.jpg"), r"line 2: has 1 columns, the header 2"),
        (("path,label", ",cat"), r"line 2: names no image for the label 'cat'"),
        (("path,label", "a/1.jpg,"), r"holds no label"),
        (("",), r"has the columns"),
    ],
)
def test_rows_that_do_not_fit(lines: tuple[str, ...], message: str, labels) -> None:
    with pytest.raises(InputError, match=message):
        labels(*lines)


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (('a/1.jpg,"cat', "a/2.jpg,dog", "b/1.jpg,dog"), r"labels\.csv, line 3: opens a quote that nothing closes"),
        (('"a/1.jpg,cat', "a/2.jpg,dog"), r"labels\.csv, line 3: opens a quote"),
        (('a/1.jpg,"cat', 'a/2.jpg,"dog"', "b/1.jpg,dog"), r"labels\.csv, line 3: 'cat' goes on in the next line"),
        (('"a/1.jpg,cat', '"a/2.jpg",dog'), r"labels\.csv, line 3: 'a/1\.jpg,cat' goes on"),
        (('a/1.jpg,"cat', *["a/2.jpg,dog"] * 20_000), r"labels\.csv, line 3: .*a quote that nothing closes"),
    ],
)
def test_a_quote_left_open_is_named_by_its_line(lines: tuple[str, ...], message: str, labels) -> None:
    with pytest.raises(InputError, match=message):
        labels("path,label", "b/3.png,dog", *lines)


def test_a_quote_left_open_in_a_last_line_without_end(tmp_path: Path) -> None:
    (tmp_path / "labels.csv").write_text('path,label\na/1.jpg,"cat', encoding="utf-8")
    with pytest.raises(InputError, match=r"line 2: opens a quote"):
        read_label_table(tmp_path / "labels.csv")


def test_other_columns_may_hold_line_breaks(labels) -> None:
    lines = ("path,label,remark", 'a/1.jpg,cat,"a long', 'remark"', "a/2.jpg,dog,")
    assert labels(*lines) == {"a/1.jpg": "cat", "a/2.jpg": "dog"}
    with pytest.raises(InputError, match=r"line 5: 'a/9.jpg' is no image"):
        labels(*lines, "a/9.jpg,dog,")


def test_a_row_for_a_skipped_file_says_why(labels) -> None:
    with pytest.raises(InputError, match=r"line 2: 'out.png' is a link that leads out"):
        labels("path,label", "out.png,cat", skipped=(("out.png", "is a link that leads out of the folder"),))


def test_parquet(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    table = pyarrow.table({"file_name": ["a/1.jpg", "a/2.jpg", "b/3.png"], "label": [0.0, None, 2.0]})
    parquet.write_table(table, tmp_path / "labels.parquet")
    rows = read_label_table(tmp_path / "labels.parquet")
    assert [(row.name, row.label) for row in rows] == [("a/1.jpg", "0"), ("b/3.png", "2")]
    (tmp_path / "labels.parquet").write_bytes(b"PAR1")
    with pytest.raises(InputError, match="not a readable Parquet file"):
        read_label_table(tmp_path / "labels.parquet")


@pytest.mark.parametrize("content", [b"path,label\n\xff\xfe,cat\n", b'path,label\n"a' + b"x" * 200_000 + b"\n"])
def test_bytes_that_are_no_csv(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "labels.csv").write_bytes(content)
    with pytest.raises(InputError, match="not a readable CSV in UTF-8"):
        read_label_table(tmp_path / "labels.csv")


def test_files_that_are_no_table(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such file"):
        read_label_table(tmp_path / "labels.csv")
    (tmp_path / "labels.xlsx").write_bytes(b"")
    with pytest.raises(InputError, match=r"expected a \.csv or \.parquet"):
        read_label_table(tmp_path / "labels.xlsx")


def test_labels_as_text() -> None:
    assert [plain_label(value) for value in (3, 3.0, "3.0", " cat ", "v1.0", None, float("nan"), "", -1, "-1")] == [
        "3", "3", "3", "cat", "v1.0", "", "", "", "", ""
    ]  # fmt: skip
    assert sorted_classes(["10", "9", "1"]) == ("1", "9", "10")
    assert sorted_classes(["10", "9", "b"]) == ("10", "9", "b")
