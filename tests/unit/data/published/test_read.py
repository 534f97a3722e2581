"""Every published set, in every published form, gives the images and labels that were written."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dpssl.config import DataConfig
from dpssl.data.published.catalog import PUBLISHED
from dpssl.data.readers import load_dataset
from dpssl.errors import InputError

WHOLE = [  # name, form, archive
    ("cifar10", "cifar10-binary", ""),
    ("cifar10", "cifar10-python", ""),
    ("cifar10", "cifar10-binary", "cifar-10-binary.tar.gz"),
    ("cifar10", "cifar10-python", "cifar-10-python.tar.gz"),
    ("cifar100", "cifar100-binary", ""),
    ("cifar100", "cifar100-python", ""),
    ("cifar100", "cifar100-python", "cifar-100-python.tar.gz"),
    ("svhn", "svhn", ""),
    ("mnist", "mnist", ""),
    ("fashion-mnist", "fashion-mnist", ""),
]


@pytest.mark.parametrize(("name", "form", "archive"), WHOLE)
def test_images_and_labels_come_back(name: str, form: str, archive: str, write_set: Callable[..., Any]) -> None:
    tiny = write_set(form, archive)
    dataset = load_dataset(name)
    assert dataset.name == name
    assert dataset.class_names == PUBLISHED[name].class_names
    assert np.array_equal(dataset.images, tiny.train[0])
    assert np.array_equal(dataset.truth, tiny.train[1])
    assert np.array_equal(dataset.test_images, tiny.test[0])
    assert np.array_equal(dataset.test_truth, tiny.test[1])
    assert (dataset.given_labels == -1).all()
    assert dataset.origin.statement.endswith(f"{PUBLISHED[name].title}, from its published files")
    assert Path(dataset.origin.statement.split(":")[0]).exists()
    assert (dataset.ids[0], dataset.test_ids[-1]) == ("train-00000", f"test-{len(tiny.test[1]) - 1:05d}")


@pytest.mark.parametrize("form", ["cifar100-binary", "cifar100-python"])
def test_cifar100_has_coarse_classes_too(form: str, write_set: Callable[..., Any]) -> None:
    tiny = write_set(form)
    dataset = load_dataset("cifar100-coarse")
    assert dataset.n_classes == 20
    assert np.array_equal(dataset.truth, tiny.coarse[0])
    assert np.array_equal(dataset.test_truth, tiny.coarse[1])


def test_svhn_takes_its_extra_images_when_asked(write_set: Callable[..., Any], data_folder: Path) -> None:
    tiny = write_set("svhn")
    dataset = load_dataset("svhn-extra")
    assert np.array_equal(dataset.images, np.concatenate([tiny.train[0], tiny.extra[0]]))
    assert np.array_equal(dataset.truth, np.concatenate([tiny.train[1], tiny.extra[1]]))
    assert dataset.ids[len(tiny.train[0])] == "extra-00000"
    (data_folder / "svhn" / "extra_32x32.mat").unlink()
    assert np.array_equal(load_dataset("svhn").images, tiny.train[0])
    with pytest.raises(InputError, match=r"extra_32x32\.mat: cannot be read .*dpssl data fetch svhn-extra"):
        load_dataset("svhn-extra")


def test_svhn_may_lie_in_the_data_folder_itself(write_set: Callable[..., Any], data_folder: Path) -> None:
    tiny = write_set("svhn")
    for file in (data_folder / "svhn").iterdir():
        file.rename(data_folder / file.name)
    assert np.array_equal(load_dataset("svhn").images, tiny.train[0])


@pytest.mark.parametrize("archive", ["", "stl10_binary.tar.gz"])
def test_stl10_has_unlabelled_images_and_folds(archive: str, write_set: Callable[..., Any]) -> None:
    tiny = write_set("stl10", archive)
    dataset = load_dataset("stl10")
    n_labeled = len(tiny.train[0])
    assert np.array_equal(dataset.images[:n_labeled], tiny.train[0])
    assert np.array_equal(dataset.images[n_labeled:], tiny.unlabeled)
    assert np.array_equal(dataset.truth[:n_labeled], tiny.train[1])
    assert (dataset.truth[n_labeled:] == -1).all()
    assert dataset.ids[n_labeled] == "unlabeled-00000"
    assert np.array_equal(dataset.test_truth, tiny.test[1])
    assert [fold.tolist() for fold in dataset.folds] == [fold.tolist() for fold in tiny.folds]


def test_torchvisions_folders_are_found(write_set: Callable[..., Any], data_folder: Path) -> None:
    tiny = write_set("fashion-mnist")
    (data_folder / "FashionMNIST").mkdir()
    shutil.move(data_folder / "fashion-mnist", data_folder / "FashionMNIST" / "raw")
    assert np.array_equal(load_dataset("fashion-mnist").images, tiny.train[0])


@pytest.mark.parametrize("name", list(PUBLISHED))
def test_a_missing_set_names_the_places_and_the_command(name: str, data_folder: Path) -> None:
    with pytest.raises(InputError, match=rf"--data {name}: .*`dpssl data fetch {name}` gets it") as error:
        load_dataset(name)
    for folder in (data_folder, Path("data"), Path.home() / ".cache" / "dpssl"):
        assert str(folder) in str(error.value)
    assert f"{name}.npz" in str(error.value)


def test_published_images_keep_their_size(write_set: Callable[..., Any]) -> None:
    write_set("mnist")
    with pytest.raises(InputError, match=r"--image-size 32: only for image files; mnist is taken as it is"):
        load_dataset("mnist", settings=DataConfig(image_size=32))


def test_class_names_are_as_many_as_published() -> None:
    counts = {name: len(known.class_names) for name, known in PUBLISHED.items()}
    assert counts.pop("cifar100") == 100
    assert counts.pop("cifar100-coarse") == 20
    assert set(counts.values()) == {10}
    assert all(len(set(known.class_names)) == len(known.class_names) for known in PUBLISHED.values())
