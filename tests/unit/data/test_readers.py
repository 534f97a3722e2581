"""What `--data` may name: scikit-learn's digits, the benchmark sets, and .npz files of both kinds."""

import os
from pathlib import Path

import numpy as np
import pytest

from dpssl.config import DataConfig
from dpssl.data.readers import UnlabeledArray, load_dataset
from dpssl.errors import InputError

IMAGES = np.random.default_rng(0).integers(0, 256, (6, 4, 4, 3), dtype=np.uint8)


def save(path: Path, **arrays: object) -> str:
    np.savez(path, **arrays)  # type: ignore[arg-type]
    return str(path)


def test_digits_are_scaled_to_bytes_and_nothing_is_revealed() -> None:
    dataset = load_dataset("digits")
    assert dataset.images.shape == (1797, 8, 8, 1)
    assert (dataset.images.min(), dataset.images.max()) == (0, 255)
    assert len(np.unique(dataset.images)) == 17  # 0..16 in the original: scaling merges no two levels
    assert dataset.class_names == tuple("0123456789")
    assert np.bincount(dataset.truth).tolist() == [178, 182, 177, 183, 181, 182, 181, 179, 174, 180]
    assert (dataset.given_labels == -1).all()
    assert len(dataset.test_images) == 0


def test_a_benchmark_file_hides_its_labels(tmp_path: Path) -> None:
    labels = np.array([0, 1, 2, 0, 1, -1])
    path = save(tmp_path / "set.npz", train_x=IMAGES, train_y=labels, test_x=IMAGES[:2], test_y=np.array([3, 0]))
    dataset = load_dataset(path)
    assert dataset.name == "set"
    assert np.array_equal(dataset.images, IMAGES)
    assert np.array_equal(dataset.truth, labels)
    assert (dataset.given_labels == -1).all()
    assert dataset.test_truth.tolist() == [3, 0]
    assert dataset.class_names == ("0", "1", "2", "3")  # the test labels count too


def test_ones_own_file_gives_its_labels(tmp_path: Path) -> None:
    labels = np.array([0, 1, -1, -1, -1, -1], dtype=np.int8)
    path = save(
        tmp_path / "own.npz",
        images=IMAGES[..., 0] / 255.0,
        labels=labels,
        class_names=np.array(["cat", "dog"]),
        ids=np.array(list("uvwxyz")),
    )
    dataset = load_dataset(path)
    assert np.array_equal(dataset.images, IMAGES[..., :1])
    assert dataset.given_labels.tolist() == labels.tolist() == dataset.truth.tolist()
    assert dataset.class_names == ("cat", "dog")
    assert dataset.ids.tolist() == list("uvwxyz")


@pytest.mark.parametrize("place", ["DPSSL_DATA", "data", "cache"])
def test_benchmarks_are_found_where_the_error_says(place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folders = {
        "DPSSL_DATA": tmp_path / "sets",
        "data": tmp_path / "work" / "data",
        "cache": tmp_path / "home" / ".cache" / "dpssl",
    }
    for folder in folders.values():
        folder.mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "work")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("DPSSL_DATA", str(folders["DPSSL_DATA"]))
    with pytest.raises(InputError) as error:
        load_dataset("cifar10")
    for folder in (folders["DPSSL_DATA"], Path("data"), folders["cache"]):
        assert str(folder) in str(error.value)

    save(folders[place] / "cifar10.npz", train_x=IMAGES, train_y=np.arange(6))
    dataset = load_dataset("cifar10")
    assert dataset.class_names[0] == "airplane"
    assert dataset.n_classes == 10


def test_without_the_variable_the_other_places_are_searched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("DPSSL_DATA", raising=False)
    (tmp_path / "data").mkdir()
    save(tmp_path / "data" / "svhn.npz", train_x=IMAGES, train_y=np.arange(6))
    assert load_dataset("svhn").class_names == tuple("0123456789")


GOOD = {"images": IMAGES, "labels": np.array([0, 1, -1, -1, -1, -1])}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"labels": np.array([0, 1, -1])}, r"array labels: has shape \(3,\).*6 images"),
        ({"labels": np.array([0.0, 1, -1, -1, -1, -1])}, r"array labels:.*float64"),
        ({"labels": np.array([0, 1, -5, -1, -1, -1])}, r"row 2 .* is -5"),
        ({"labels": np.array([0, 1, -1, 3_000_000_000, -1, -1])}, r"array labels: row 3 is 3000000000.*of 6 images"),
        ({"test_x": IMAGES, "test_y": np.array([0, 1, 6, 0, 0, 0])}, r"array test_y: row 2 is 6"),
        ({"images": np.full((6, 2, 2), np.nan)}, r"array images: image 0 .*nan"),
        ({"images": np.zeros((6, 2))}, r"array images: .*shape \(6, 2\)"),
        ({"test_x": IMAGES}, r"test_x and test_y come together"),
        ({"class_names": np.array(["cat", "dog"]), "labels": np.array([0, 7, -1, -1, -1, -1])}, r"row 1 .* is 7"),
        ({"class_names": np.array([1.5, 2.5])}, r"array class_names: .*texts"),
        ({"ids": np.array(["a"] * 6)}, r"id 'a' occurs 6 times"),
        ({"ids": np.array(["a"])}, r"ids has shape \(1,\)"),
    ],
)
def test_unusable_arrays_are_named(changes: dict[str, np.ndarray], message: str, tmp_path: Path) -> None:
    path = save(tmp_path / "bad.npz", **(GOOD | changes))
    with pytest.raises(InputError, match=message):
        load_dataset(path)


def test_missing_arrays_are_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"has the arrays \['pictures'\]; expected train_x and train_y"):
        load_dataset(save(tmp_path / "other.npz", pictures=IMAGES))


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"images": IMAGES}, "holds images without labels; give --labels FILE, by row number from 0, or add"),
        ({"images": IMAGES, "ids": np.arange(6)}, "holds images without labels; give --labels FILE, by id"),
        ({"train_x": IMAGES}, "holds train_x without labels; add train_y, or rename .* and give --labels FILE"),
    ],
)
def test_arrays_without_labels_may_be_labelled_by_a_table(
    arrays: dict[str, np.ndarray], message: str, tmp_path: Path
) -> None:
    with pytest.raises(UnlabeledArray, match=message) as caught:
        load_dataset(save(tmp_path / "own.npz", **arrays))
    assert np.array_equal(caught.value.images, IMAGES)
    assert len(caught.value.ids) == len(IMAGES)


@pytest.mark.parametrize("content", [b"", b"not a zip", b"PK\x03\x04 cut short"])
def test_a_damaged_file_is_named(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "damaged.npz"
    path.write_bytes(content)
    with pytest.raises(InputError, match=r"damaged\.npz: not a readable \.npz"):
        load_dataset(str(path))


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_an_overwritten_header_is_named(tmp_path: Path) -> None:
    """numpy parses a header as Python, whose tokenizer has errors of its own, before it sees a checksum."""
    path = tmp_path / "damaged.npz"
    images = np.zeros((200, 8, 8), np.uint8)
    save(path, images=images, labels=np.arange(200) % 2)
    whole = path.read_bytes()
    start = whole.index(b"{'descr'")
    for at in range(start, whole.index(b"}", start) + 1):
        for byte in b"( '":
            if byte != whole[at]:
                path.write_bytes(whole[:at] + bytes([byte]) + whole[at + 1 :])
                try:
                    assert len(load_dataset(str(path)).images) == len(images)
                except InputError:
                    continue


class _Trap:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.mkdir, ("unpickled",)


def test_pickled_objects_are_never_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    path = save(tmp_path / "trap.npz", images=IMAGES, labels=np.array([_Trap()], dtype=object))
    with pytest.raises(InputError, match="not a readable"):
        load_dataset(path)
    assert not (tmp_path / "unpickled").exists()


def test_what_is_not_supported_says_what_is(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"no such file, folder or data set; supported: digits, cifar10"):
        load_dataset("digts")
    (tmp_path / "photos.zip").write_bytes(b"")
    with pytest.raises(InputError, match=r"not a kind of file that can be read; supported: .* a folder"):
        load_dataset(str(tmp_path / "photos.zip"))
    with pytest.raises(InputError, match=r"--labels labels\.csv: --data digits has its own labels"):
        load_dataset("digits", labels="labels.csv")


def write_table(path: Path, *rows: str) -> str:
    path.write_text("\n".join(rows) + "\n", encoding="utf-8")
    return str(path)


def test_npy_images_are_labelled_by_row_and_stay_on_disk(tmp_path: Path) -> None:
    np.save(tmp_path / "pictures.npy", IMAGES)
    table = write_table(tmp_path / "labels.csv", "row,label", "0,cat", "2,dog")
    dataset = load_dataset(str(tmp_path / "pictures.npy"), table)
    assert isinstance(dataset.images.base, np.memmap)
    np.testing.assert_array_equal(dataset.images[..., 0] if IMAGES.ndim == 3 else dataset.images, IMAGES)
    assert dataset.class_names == ("cat", "dog")
    assert dataset.given_labels.tolist()[:3] == [0, -1, 1]
    assert "labels of labels.csv" in dataset.origin.statement


def test_npz_images_are_labelled_by_id(tmp_path: Path) -> None:
    ids = np.array([f"frog-{number}" for number in range(len(IMAGES))])
    path = save(tmp_path / "own.npz", images=IMAGES, ids=ids, class_names=np.array(["cat", "dog"]))
    table = write_table(tmp_path / "labels.csv", "id,label", "frog-1,dog", "frog-0,cat")
    assert load_dataset(path, table).given_labels.tolist()[:3] == [0, 1, -1]
    write_table(tmp_path / "labels.csv", "id,label", "frog-1,horse")
    with pytest.raises(InputError, match=r"'frog-1' is labelled 'horse', but the classes are cat, dog"):
        load_dataset(path, table)


def test_tables_and_arrays_that_do_not_go_together(tmp_path: Path) -> None:
    np.save(tmp_path / "pictures.npy", IMAGES)
    with pytest.raises(InputError, match="without labels; give --labels"):
        load_dataset(str(tmp_path / "pictures.npy"))
    table = write_table(tmp_path / "labels.csv", "row,label", f"{len(IMAGES)},cat", "0,dog")
    with pytest.raises(InputError, match=rf"line 2: '{len(IMAGES)}' is no image of"):
        load_dataset(str(tmp_path / "pictures.npy"), table)
    both = save(tmp_path / "both.npz", images=IMAGES, labels=np.zeros(len(IMAGES), dtype=int))
    with pytest.raises(InputError, match="expected images without labels"):
        load_dataset(both, table)
    with pytest.raises(InputError, match="--image-size 32: only for image files"):
        load_dataset(both, settings=DataConfig(image_size=32))
    (tmp_path / "broken.npy").write_bytes(b"\x93NUMPY")
    with pytest.raises(InputError, match=r"not a readable \.npy"):
        load_dataset(str(tmp_path / "broken.npy"), table)


def test_a_folder_with_the_name_of_a_published_set_is_asked_for_by_its_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match=r"--data svhn has its own labels; leave one of the two out$"):
        load_dataset("svhn", "labels.csv")
    (tmp_path / "svhn").mkdir()
    with pytest.raises(InputError, match=r"for the folder of that name write \./svhn"):
        load_dataset("svhn", "labels.csv")
