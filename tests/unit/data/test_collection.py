"""The layouts of one's own images, each told from what is there."""

import io
import tarfile
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from dpssl.data.collection import Collection, UnlabeledFiles, read_collection
from dpssl.data.image_files import read_image
from dpssl.errors import InputError

Photos = Callable[..., Path]


def ids(files: list) -> list[str]:
    return [file.id for file in files]


def write(path: Path, *lines: str) -> str:
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return str(path)


def summary(found: Collection) -> tuple[list[str], list[str], dict[str, str], bool]:
    return ids(found.images), ids(found.test_images), found.labels, found.are_given


def test_a_table_of_labels(photos: Photos, tmp_path: Path) -> None:
    root = photos("x/1.png", "x/2.png", "3.png")
    found = read_collection(root, write(tmp_path / "mine.csv", "path,label", "x/1.png,cat", "3.png,dog"))
    assert summary(found) == (["3.png", "x/1.png", "x/2.png"], [], {"x/1.png": "cat", "3.png": "dog"}, True)
    assert found.class_names == ("cat", "dog")
    assert "labels of mine.csv" in found.layout


def test_a_table_that_names_every_image_still_gives_labels(photos: Photos, tmp_path: Path) -> None:
    root = photos("1.png", "2.png")
    assert read_collection(root, write(tmp_path / "l.csv", "path,label", "1.png,a", "2.png,b")).are_given


def test_a_table_beside_a_test_folder(photos: Photos, tmp_path: Path) -> None:
    table = write(tmp_path / "l.csv", "path,label", "1.png,cat", "2.png,dog")
    root = photos("1.png", "2.png", "3.png", "test/cat/4.png", "test/dog/5.png")
    assert summary(read_collection(root, table))[:2] == (
        ["1.png", "2.png", "3.png"],
        ["test/cat/4.png", "test/dog/5.png"],
    )


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ("test/dgo/6.png", "test/ has the folder 'dgo', but the classes are cat, dog; rename the folder, or move it"),
        ("test/Dog/6.png", "test/ has the folder 'Dog', but the classes are cat, dog"),
        ("test/unlabeled/6.png", "test/ has the folder 'unlabeled', but the classes are cat, dog"),
        ("test/6.png", "test/ has '6.png' in no class folder"),
    ],
)
@pytest.mark.parametrize("with_table", [True, False])
def test_a_test_folder_that_is_no_class(
    more: str, message: str, with_table: bool, photos: Photos, tmp_path: Path
) -> None:
    table = write(tmp_path / "l.csv", "path,label", "cat/1.png,cat", "dog/2.png,dog")
    root = photos("cat/1.png", "dog/2.png", "unlabeled/3.png", "test/cat/4.png", more)
    if more == "test/Dog/6.png" and not with_table:
        message = "the class folders 'Dog' and 'dog' differ by case alone"
    with pytest.raises(InputError, match=message):
        read_collection(root, table if with_table else "")


@pytest.mark.parametrize("more", ["test/6.png", "test/horse/6.png"])
def test_a_test_folder_without_classes_is_like_any_other_beside_a_table(
    more: str, photos: Photos, tmp_path: Path
) -> None:
    table = write(tmp_path / "l.csv", "path,label", "1.png,cat", "2.png,dog")
    found = read_collection(photos("1.png", "2.png", more), table)
    assert (found.n_test, len(found.images)) == (0, 3)
    assert "those of test/ among the images to label" in found.layout


def test_class_folders_with_unlabelled_images(photos: Photos) -> None:
    root = photos("cat/1.png", "dog/deep/2.png", "unlabeled/3.png", "test/cat/4.png")
    assert summary(read_collection(root)) == (
        ["cat/1.png", "dog/deep/2.png", "unlabeled/3.png"],
        ["test/cat/4.png"],
        {"cat/1.png": "cat", "dog/deep/2.png": "dog", "test/cat/4.png": "cat"},
        True,
    )


def test_class_folders_of_labelled_images_alone_are_a_benchmark(photos: Photos) -> None:
    found = read_collection(photos("train/cat/1.png", "train/dog/2.png", "test/dog/3.png"))
    assert summary(found)[0] == ["train/cat/1.png", "train/dog/2.png"]
    assert found.labels["train/cat/1.png"] == "cat"
    assert not found.are_given


@pytest.mark.parametrize("beside", ["unlabelled/3.png", "3.png"])
def test_other_places_for_unlabelled_images(beside: str, photos: Photos) -> None:
    found = read_collection(photos("cat/1.png", "dog/2.png", beside))
    assert found.are_given
    assert beside not in found.labels


@pytest.mark.parametrize("unlabeled", ["Unlabeled", "UNLABELED", "Unlabelled", "unlabeled"])
def test_known_folders_in_any_case(unlabeled: str, photos: Photos) -> None:
    found = read_collection(photos("cat/1.png", "dog/2.png", f"{unlabeled}/3.png", "Test/cat/4.png"))
    assert found.class_names == ("cat", "dog")
    assert f"{unlabeled}/3.png" not in found.labels
    assert ids(found.test_images) == ["Test/cat/4.png"]


def test_train_and_test_in_any_case(photos: Photos, tmp_path: Path) -> None:
    root = photos("Train/cat/1.png", "Train/dog/2.png", "Train/Unlabeled/3.png", "TEST/dog/4.png")
    labels = {"Train/cat/1.png": "cat", "Train/dog/2.png": "dog", "TEST/dog/4.png": "dog"}
    found = read_collection(root)
    assert (found.labels, ids(found.test_images)) == (labels, ["TEST/dog/4.png"])
    table = write(tmp_path / "l.csv", "path,label", "1.png,cat", "2.png,dog")
    assert ids(read_collection(root, table).test_images) == ["TEST/dog/4.png"]


def test_a_class_called_train(photos: Photos) -> None:
    found = read_collection(photos("bus/1.png", "car/2.png", "train/3.png", "unlabeled/4.png", "test/train/5.png"))
    assert found.class_names == ("bus", "car", "train")
    assert ids(found.test_images) == ["test/train/5.png"]
    assert "unlabeled/4.png" not in found.labels


def test_a_folder_beside_train_is_said_to_be_labelled(photos: Photos) -> None:
    found = read_collection(photos("train/cat/1.png", "train/dog/2.png", "more/3.png", "Unlabeled/4.png"))
    assert found.labels == {"train/cat/1.png": "cat", "train/dog/2.png": "dog"}
    assert found.layout == "a folder a class in train/, the images of more/ to be labelled"


@pytest.mark.parametrize("val", ["val", "Valid", "validation"])
@pytest.mark.parametrize("train", ["train/", ""])
def test_a_folder_of_validation_images_has_no_use(val: str, train: str, photos: Photos) -> None:
    root = photos(f"{train}cat/1.png", f"{train}dog/2.png", f"{val}/cat/3.png", f"{val}/dog/4.png")
    with pytest.raises(InputError, match=f"it is not clear what {val}/ is for; call it test/"):
        read_collection(root)


@pytest.mark.parametrize(
    "names", [("train/1.png", "val/2.png"), ("train/1.png", "test/2.png"), ("1.png", "test/a/2.png", "test/b/3.png")]
)
def test_splits_without_classes_are_images_without_labels(names: tuple[str, ...], photos: Photos) -> None:
    with pytest.raises(UnlabeledFiles, match="images, but no labels") as caught:
        read_collection(photos(*names))
    assert len(caught.value.collection.images) == len(names)


def test_a_hugging_face_folder(photos: Photos) -> None:
    root = photos("1.png", "data/2.png", "3.png")
    write(root / "metadata.csv", "file_name,label", "1.png,cat", "data/2.png,dog", "3.png,")
    found = read_collection(root)
    assert (found.labels, found.are_given) == ({"1.png": "cat", "data/2.png": "dog"}, True)


def test_a_hugging_face_folder_with_splits(photos: Photos) -> None:
    root = photos("train/1.png", "train/2.png", "test/1.png")
    write(root / "train" / "metadata.csv", "file_name,label", "1.png,cat", "2.png,dog")
    write(root / "test" / "metadata.csv", "file_name,label", "1.png,dog")
    found = read_collection(root)
    assert summary(found)[1:] == (
        ["test/1.png"],
        {"train/1.png": "cat", "train/2.png": "dog", "test/1.png": "dog"},
        False,
    )
    (root / "train").rename(root / "Train")
    (root / "test").rename(root / "Test")
    assert ids(read_collection(root).test_images) == ["Test/1.png"]


def test_a_hugging_face_folder_with_validation_images(photos: Photos) -> None:
    root = photos("train/1.png", "train/2.png", "val/1.png")
    write(root / "train" / "metadata.csv", "file_name,label", "1.png,cat", "2.png,dog")
    write(root / "val" / "metadata.csv", "file_name,label", "1.png,dog")
    with pytest.raises(InputError, match="it is not clear what val/ is for"):
        read_collection(root)


@pytest.mark.parametrize(
    ("names", "message"),
    [
        ((), "there are no images in it; expected JPEG"),
        (("1.png", "2.png"), "2 images, but no labels: give --labels FILE"),
        (("cat/1.png",), "1 images, but no labels"),
        (("cat/1.png", "Cat/2.png", "dog/3.png"), "the class folders 'Cat' and 'cat' differ by case alone"),
        (("cat/1.png", "dog/2.png", "test/3.png"), "test/ has '3.png' in no class folder"),
        (("test/cat/1.png", "test/dog/2.png"), "all its images are test images"),
    ],
)
def test_folders_that_cannot_be_read(names: tuple[str, ...], message: str, photos: Photos) -> None:
    with pytest.raises(InputError, match=message):
        read_collection(photos(*names))


def test_a_folder_of_links_that_lead_out(photos: Photos) -> None:
    outside = photos("1.png", folder="outside")
    root = photos()
    (root / "1.png").symlink_to(outside / "1.png")
    with pytest.raises(InputError, match=r"none of its 1 images can be used: 1.png is a link .*--follow-links true"):
        read_collection(root)


# TAR


def pack(path: Path, members: Mapping[str, bytes], **options: object) -> Path:
    with tarfile.open(path, "w", **options) as archive:  # type: ignore[call-overload]
        for name, content in members.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return path


def test_a_tar_in_webdataset_layout(tmp_path: Path) -> None:
    members = {
        "./a/1.jpg": b"one", "./a/1.cls": b"3\n", "2.seg.png": b"two", "2.json": b'{"label": "12"}', "3.png": b"three",
        "notes.txt": b"about nothing", "4.png": b"four", "4.txt": b"12",
    }  # fmt: skip
    found = read_collection(pack(tmp_path / "shard.tar", members))
    assert ids(found.images) == ["2.seg.png", "3.png", "4.png", "a/1.jpg"]
    assert found.labels == {"a/1.jpg": "3", "2.seg.png": "12", "4.png": "12"}
    assert found.class_names == ("3", "12")
    assert found.are_given
    assert [read_image(found.files.root, file) for file in found.images] == [b"two", b"three", b"four", b"one"]


def test_a_tar_with_a_table(tmp_path: Path) -> None:
    tar = pack(tmp_path / "shard.tar", {"1.png": b"1", "2.png": b"2"})
    assert read_collection(tar, write(tmp_path / "l.csv", "file,label", "2.png,cat")).labels == {"2.png": "cat"}
    with pytest.raises(InputError, match="2 images, but no label"):
        read_collection(tar)


@pytest.mark.parametrize(
    "added",
    [
        ("x/4.png",),
        ("y/1.png",),  # by its file name alone a row may mean either
        ("test/cat/5.png", "val/cat/6.png"),
    ],
)
def test_only_some_images_with_a_table(photos: Photos, tmp_path: Path, added: tuple[str, ...]) -> None:
    root, wanted = photos("x/1.png", "x/2.png", "3.png", *added), {"x/1.png", "x/2.png", "3.png"}
    rows = ["path,label", "1.png,cat", "3.png,dog", *(f"{name},new class" for name in added)]
    found = read_collection(root, write(tmp_path / "l.csv", *rows), only=wanted)
    assert summary(found) == (["3.png", "x/1.png", "x/2.png"], [], {"x/1.png": "cat", "3.png": "dog"}, True)
    assert found.class_names == ("cat", "dog")
    assert found.files.passed_over == tuple(sorted(added))


def test_only_some_images_of_class_folders(photos: Photos) -> None:
    names = ("cat/1.png", "cat/2.png", "dog/3.png")
    before = read_collection(photos(*names))
    found = read_collection(photos(*names, "owl/4.png", "loose.png", "test/what/5.png"), only=set(names))
    assert summary(found) == summary(before)
    assert found.layout == before.layout


def test_only_some_images_with_metadata(photos: Photos) -> None:
    root, wanted = photos("train/1.png", "train/2.png", "train/3.png", "test/4.png"), {"train/1.png", "train/2.png"}
    write(root / "train" / "metadata.csv", "file_name,label", "1.png,cat", "2.png,dog", "3.png,owl")
    found = read_collection(root, only=wanted)
    assert summary(found) == (sorted(wanted), [], {"train/1.png": "cat", "train/2.png": "dog"}, False)


def test_only_some_images_of_a_tar(tmp_path: Path) -> None:
    members = {"1.png": b"1", "1.cls": b"cat", "2.png": b"2", "2.cls": b"dog", "3.png": b"3", "3.cls": b"owl"}
    found = read_collection(pack(tmp_path / "shard.tar", members), only={"1.png", "2.png"})
    assert summary(found) == (["1.png", "2.png"], [], {"1.png": "cat", "2.png": "dog"}, False)


def test_of_other_images_altogether_none_is_passed_over(photos: Photos) -> None:
    found = read_collection(photos("cat/1.png", "dog/2.png"), only={"3.png"})
    assert ids(found.images) == ["cat/1.png", "dog/2.png"]
    assert found.files.passed_over == ()


def test_members_that_leave_the_archive_and_links_are_not_read(tmp_path: Path) -> None:
    path = tmp_path / "shard.tar"
    with tarfile.open(path, "w") as archive:
        for name in ("../out.png", "/etc/out.png", "a/../../out.png", "ok.png"):
            archive.addfile(tarfile.TarInfo(name))
        link = tarfile.TarInfo("link.png")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        archive.addfile(link)
        label = tarfile.TarInfo("ok.cls")
        label.size = 1
        archive.addfile(label, io.BytesIO(b"1"))
    found = read_collection(path)
    assert ids(found.images) == ["ok.png"]
    assert sorted(name for name, _ in found.files.skipped) == ["../out.png", "/etc/out.png", "a/../../out.png"]


@pytest.mark.parametrize(
    ("members", "message"),
    [
        ({"notes.txt": b"1"}, "there are no images in it; expected members"),
        ({"1.png": b"", "1.json": b"{"}, "member '1.json': holds no label"),
        ({"1.png": b"", "1.cls": b"\xff"}, "member '1.cls': holds no label"),
    ],
)
def test_archives_that_cannot_be_used(members: dict[str, bytes], message: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=message):
        read_collection(pack(tmp_path / "shard.tar", members))


def test_two_members_of_one_name(tmp_path: Path) -> None:
    path = tmp_path / "shard.tar"
    with tarfile.open(path, "w") as archive:
        archive.addfile(tarfile.TarInfo("1.png"))
        archive.addfile(tarfile.TarInfo("./1.png"))
    with pytest.raises(InputError, match=r"two members named '1\.png'"):
        read_collection(path)


def test_compressed_or_cut_archives_are_named(tmp_path: Path) -> None:
    whole = pack(tmp_path / "shard.tar", {"1.png": bytes(5000), "1.cls": b"1", "2.png": bytes(5000)}).read_bytes()
    for content in (b"", b"\x1f\x8b\x08nonsense", whole[:600], whole[:7000]):
        (tmp_path / "bad.tar").write_bytes(content)
        with pytest.raises(InputError, match=r"bad\.tar: "):
            read_collection(tmp_path / "bad.tar")
