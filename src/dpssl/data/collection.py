"""One's own image files with the labels there are: what a folder or a TAR holds, told from its layout.

| layout | labels |
| --- | --- |
| `--labels FILE` | its rows; images without one are to be labelled |
| `metadata.csv` (or .parquet) in the folder, or in its train/ and test/ | its rows (Hugging Face's image folder) |
| a folder a class, `unlabeled/` or loose images beside them | the folders' names (ImageFolder) |
| a TAR | members `key.cls`, `key.txt` or `key.json` (WebDataset) |

A folder `test/` with a folder a class holds test images. Where every image has a label and nobody asked for anything to
be labelled, the labels are the truth of a benchmark: hidden but for those that a split reveals.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from dpssl.data.image_files import ImageFile, ImageFiles, find_images
from dpssl.data.label_table import match_rows, read_label_table, sorted_classes
from dpssl.data.tar import read_tar
from dpssl.errors import InputError

UNLABELED_FOLDERS = ("unlabeled", "unlabelled")
METADATA = ("metadata.csv", "metadata.parquet")


@dataclass(frozen=True)
class Collection:
    """Image files in order, the test images last, and the class of those that have one."""

    files: ImageFiles
    n_test: int
    labels: dict[str, str]  # by id, test images included
    are_given: bool  # to the run; else they are a benchmark's truth
    layout: str  # in words

    @property
    def class_names(self) -> tuple[str, ...]:
        return sorted_classes(self.labels.values())

    @property
    def images(self) -> list[ImageFile]:
        return self.files.files[: len(self.files.files) - self.n_test]

    @property
    def test_images(self) -> list[ImageFile]:
        return self.files.files[len(self.files.files) - self.n_test :]


def read_collection(path: Path, labels: str = "", follow_links: bool = False) -> Collection:
    """The images of a folder or TAR; `labels` is what `--labels` named."""
    if path.is_dir():
        found = find_images(path, follow_links)
        _require_images(found, "JPEG, PNG, WebP, BMP, TIFF or GIF files, at any depth")
        if labels:
            return _by_table(found, Path(labels).expanduser())
        return _by_metadata(found) or _by_class_folders(found) or _without_labels(found)
    found, beside = read_tar(path)
    _require_images(found, "members named like key.jpg")
    if labels:
        return _by_table(found, Path(labels).expanduser())
    if not beside:
        raise InputError(
            f"--data {path}: {len(found.files):,} images, but no label: give --labels FILE, or add key.cls"
        )
    some_unlabeled = len(beside) < len(found.files)
    return Collection(found, 0, beside, some_unlabeled, "a TAR of images with their labels beside them")


def _require_images(found: ImageFiles, expected: str) -> None:
    if found.files:
        return
    if found.skipped:
        name, reason = found.skipped[0]
        raise InputError(f"--data {found.root}: none of its {len(found.skipped)} images can be used: {name} {reason}")
    raise InputError(f"--data {found.root}: there are no images in it; expected {expected}")


def _by_table(found: ImageFiles, table: Path) -> Collection:
    """Labels from `table`; test images are those of test/, if its folders are named like the classes."""
    rows = read_label_table(table)
    labels = match_rows(rows, (file.id for file in found.files), table, found.root, found.skipped)
    classes = set(labels.values())
    test = [file for file in found.files if file.id.startswith("test/") and file.id not in labels]
    of_test = {file.id: _class_folder(file.id.removeprefix("test/")) for file in test}
    if not test or any(label not in classes for label in of_test.values()):
        return Collection(found, 0, labels, True, f"images with the labels of {table.name}")
    layout = f"images with the labels of {table.name}, and test images in a folder a class"
    return _with_test(found, test, {**labels, **of_test}, True, layout)


def _by_metadata(found: ImageFiles) -> Collection | None:
    """Hugging Face's image folder: one table at the top, or one in each of train/ and test/."""
    labels: dict[str, str] = {}
    test_ids: set[str] = set()
    tables = 0
    for prefix in ("", "train/", "test/"):
        for table in (found.root / prefix / name for name in METADATA):
            if not table.is_file():
                continue
            tables += 1
            inner = [file.id.removeprefix(prefix) for file in found.files if file.id.startswith(prefix)]
            matched = match_rows(read_label_table(table), inner, table, found.root / prefix, found.skipped)
            labels.update({prefix + name: label for name, label in matched.items()})
            if prefix == "test/":
                test_ids = {prefix + name for name in matched}
    if not tables:
        return None
    test = [file for file in found.files if file.id in test_ids]
    return _with_test(found, test, labels, len(labels) < len(found.files), "images with metadata.csv")


def _by_class_folders(found: ImageFiles) -> Collection | None:
    """A folder a class, at the top or in train/; `unlabeled/` and loose images have none, those of test/ are for it."""
    in_train = any(file.id.startswith("train/") for file in found.files)
    labels: dict[str, str] = {}
    test = []
    for file in found.files:
        top = _class_folder(file.id)
        inner = file.id.removeprefix("train/" if in_train and top == "train" else "test/" if top == "test" else "")
        label = _class_folder(inner)
        if top == "test":
            if not label:
                raise InputError(f"--data {found.root}: test/ has {inner!r} in no class folder; move it into one")
            test.append(file)
        elif label in UNLABELED_FOLDERS or (in_train and top != "train"):
            continue
        if label:
            labels[file.id] = label
    if len(set(labels.values())) < 2:
        return None
    _require_distinct_by_case(set(labels.values()), found.root)
    n_unlabeled = len(found.files) - len(labels)
    return _with_test(found, test, labels, n_unlabeled > 0, "a folder a class")


def _without_labels(found: ImageFiles) -> Collection:
    raise InputError(
        f"--data {found.root}: {len(found.files):,} images, but no labels: give --labels FILE with a column of paths "
        "and one of classes, or sort the labelled ones into a folder a class with unlabeled/ beside them"
    )


def _with_test(
    found: ImageFiles, test: list[ImageFile], labels: dict[str, str], are_given: bool, layout: str
) -> Collection:
    test_ids = {file.id for file in test}
    images = [file for file in found.files if file.id not in test_ids]
    if not images:
        raise InputError(f"--data {found.root}: all its images are test images; put those to label beside test/")
    return Collection(ImageFiles(found.root, [*images, *test], found.skipped), len(test), labels, are_given, layout)


def _class_folder(name: str) -> str:
    """The first folder of a path; empty for a file in none."""
    return name.partition("/")[0] if "/" in name else ""


def _require_distinct_by_case(names: Iterable[str], root: Path) -> None:
    spelled: dict[str, str] = {}
    for name in sorted(names):
        other = spelled.setdefault(name.casefold(), name)
        if other != name:
            raise InputError(
                f"--data {root}: the class folders {other!r} and {name!r} differ by case alone; merge them"
            )
