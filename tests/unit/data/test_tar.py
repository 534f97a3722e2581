"""What the members of a TAR are: images, their labels, links, and what is passed over or named."""

import io
import tarfile
from pathlib import Path

import pytest

from dpssl.data.collection import read_collection
from dpssl.data.image_files import BACKSLASH, NOT_UTF8, ImageFiles, read_image
from dpssl.data.tar import LEAVES, NO_IMAGE, NO_TARGET, SPARSE, read_tar
from dpssl.errors import InputError


def pack(path: Path, *members: tuple[str, bytes | str]) -> Path:
    """Members in order: a name and its bytes, or a name and the name that it is a hard link to."""
    with tarfile.open(path, "w", format=tarfile.GNU_FORMAT) as archive:
        for name, content in members:
            member = tarfile.TarInfo(name)
            if isinstance(content, str):
                member.type, member.linkname = tarfile.LNKTYPE, content
                archive.addfile(member)
            else:
                member.size = len(content)
                archive.addfile(member, io.BytesIO(content))
    return path


def ids(found: ImageFiles) -> list[str]:
    return [file.id for file in found.files]


@pytest.mark.parametrize("prefix", ["", "./"])
def test_hidden_members_and_those_of_other_programs_are_passed_over(prefix: str, tmp_path: Path) -> None:
    passed_over = (
        "._1.jpg",
        "._1.cls",
        "__MACOSX/a/._1.jpg",
        "__MACOSX/1.jpg",
        "a/.hidden/1.png",
        "a/.2.png",
        ".3.cls",
    )
    tar = pack(
        tmp_path / "shard.tar", *((prefix + name, b"\xff") for name in passed_over), ("1.jpg", b"1"), ("1.cls", b"cat")
    )
    found, labels = read_tar(tar)
    assert (ids(found), found.skipped, labels) == (["1.jpg"], [], {"1.jpg": "cat"})


@pytest.mark.parametrize("order", [1, -1])
@pytest.mark.parametrize(
    ("beside", "label"),
    [
        ({"1.cls": b"cat", "1.txt": b"a cat on a mat"}, "cat"),
        ({"1.cls": b"cat", "1.json": b'{"label": "dog"}', "1.txt": b"a cat"}, "cat"),
        ({"1.json": b'{"label": "dog"}', "1.txt": b"a cat on a mat"}, "dog"),
        ({"1.json": b'{"width": 8}', "1.txt": b"dog"}, "dog"),
        ({"1.CLS": b"cat", "1.JSON": b'{"label": "dog"}'}, "cat"),
        ({"1.cls": b"-1", "1.txt": b"a cat on a mat"}, None),
    ],
)
def test_of_several_labels_the_surest_counts(
    beside: dict[str, bytes], label: str | None, order: int, tmp_path: Path
) -> None:
    tar = pack(tmp_path / "shard.tar", ("1.jpg", b"1"), *list(beside.items())[::order])
    assert read_tar(tar)[1].get("1.jpg") == label


def test_classes_that_differ_by_case(tmp_path: Path) -> None:
    tar = pack(tmp_path / "shard.tar", ("1.jpg", b"1"), ("1.cls", b"Cat"), ("2.jpg", b"2"), ("2.cls", b"cat"))
    with pytest.raises(InputError, match=r"shard\.tar: the classes 'Cat' and 'cat' differ by case alone"):
        read_collection(tar)
    table = tmp_path / "labels.csv"
    table.write_text("path,label\n1.jpg,cat\n", encoding="utf-8")
    assert read_collection(tar, str(table)).class_names == ("cat",)  # labels that are not asked for do no harm


def test_a_hard_link_is_the_image_or_the_label_it_leads_to(tmp_path: Path) -> None:
    tar = pack(
        tmp_path / "shard.tar",
        ("./1.jpg", b"one"), ("./1.cls", b"cat"),
        ("./2.jpg", "./1.jpg"), ("./2.cls", "./1.cls"), ("./3.jpg", "./2.jpg"),
    )  # fmt: skip
    found, labels = read_tar(tar)
    assert ids(found) == ["1.jpg", "2.jpg", "3.jpg"]
    assert [read_image(tar, file) for file in found.files] == [b"one"] * 3
    assert labels == {"1.jpg": "cat", "2.jpg": "cat"}
    assert found.skipped == []


def test_hard_links_to_nothing_are_named(tmp_path: Path) -> None:
    links = (("2.jpg", "gone.jpg"), ("2.cls", "gone.cls"), ("3.jpg", "notes"), ("4.jpg", "4.jpg"), ("5.md", "gone.md"))
    found, _ = read_tar(pack(tmp_path / "shard.tar", ("1.jpg", b"1"), ("notes", b""), *links))
    assert ids(found) == ["1.jpg"]
    assert found.skipped == [(name, NO_TARGET) for name in ("2.cls", "2.jpg", "3.jpg", "4.jpg")]


def test_labels_without_an_image_are_named(tmp_path: Path) -> None:
    tar = pack(
        tmp_path / "shard.tar",
        ("1.jpg", b"1"), ("1.cls", b"cat"), ("2.cls", b"dog"), ("a/1.json", b'{"label": "dog"}'), ("3.heic", b"3"),
        ("3.seg.cls", b"dog"), ("readme.txt", b"about the images"), ("meta.json", b'{"version": 1}'), ("4.cls", b"-1"),
    )  # fmt: skip
    found, labels = read_tar(tar)
    assert labels == {"1.jpg": "cat"}
    assert found.skipped == [(name, NO_IMAGE) for name in ("2.cls", "3.seg.cls", "a/1.json")]


def test_names_that_can_be_no_id_have_their_own_reason_and_count_once(tmp_path: Path) -> None:
    bad = ("caf\udce9", "a\\b", "../out")
    members = [(name + suffix, b"1") for name in bad for suffix in (".jpg", ".cls", ".md")]
    found, _ = read_tar(pack(tmp_path / "shard.tar", ("1.jpg", b"1"), *members))
    assert ids(found) == ["1.jpg"]
    assert found.skipped == [("../out.jpg", LEAVES), ("a\\b.jpg", BACKSLASH), ("caf\\xe9.jpg", NOT_UTF8)]


def test_sparse_images_are_named(tmp_path: Path) -> None:
    path = tmp_path / "shard.tar"
    with tarfile.open(path, "w", format=tarfile.GNU_FORMAT) as archive:
        archive.addfile(tarfile.TarInfo("1.jpg"))
        member = tarfile.TarInfo("2.jpg")
        member.type = tarfile.GNUTYPE_SPARSE
        archive.addfile(member)
    found, _ = read_tar(path)
    assert (ids(found), found.skipped) == (["1.jpg"], [("2.jpg", SPARSE)])
