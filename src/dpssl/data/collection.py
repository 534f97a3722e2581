"""One's own image files with the labels there are: what a folder or a TAR holds, told from its layout.

| layout | labels |
| --- | --- |
| `--labels FILE` | its rows; images without one are to be labelled |
| `metadata.csv` (or .parquet) in the folder, or in its train/ and test/ | its rows (Hugging Face's image folder) |
| a folder a class, `unlabeled/` or loose images beside them | the folders' names (ImageFolder) |
| a TAR | members `key.cls`, `key.txt` or `key.json` (WebDataset) |

A folder `test/` with a folder a class holds test images. Where every image has a label and nobody asked for anything to
be labelled, the labels are the truth of a benchmark: hidden but for those that a split reveals. Folders that are known
by their names (ROLES) may be written in any case.
"""

from collections.abc import Container, Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from dpssl.data.image_files import ImageFile, ImageFiles, find_images, printable
from dpssl.data.label_table import match_rows, read_label_table, require_distinct_by_case, sorted_classes
from dpssl.data.tar import read_tar
from dpssl.errors import InputError

ROLES = {
    "train": "train", "test": "test", "unlabeled": "unlabeled", "unlabelled": "unlabeled",
    "val": "val", "valid": "val", "validation": "val",
}  # fmt: skip
METADATA = ("metadata.csv", "metadata.parquet")
N_SHOWN = 10  # names in a message


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


class UnlabeledFiles(InputError):
    """Image files without any label: a run refuses them; `collection` is for who describes them all the same."""

    def __init__(self, message: str, found: ImageFiles) -> None:
        super().__init__(message)
        self.collection = Collection(found, 0, {}, True, "images without labels")


def read_collection(
    path: Path, labels: str = "", follow_links: bool = False, only: Container[str] | None = None
) -> Collection:
    """The images of a folder or TAR, or `only` those of the ids given; `labels` is what `--labels` named."""
    if path.is_dir():
        found = find_images(path, follow_links)
        found = found if only is None else found.only(only)
        _require_images(found, "JPEG, PNG, WebP, BMP, TIFF or GIF files, at any depth")
        if labels:
            return _by_table(found, Path(labels).expanduser())
        return _by_metadata(found) or _by_class_folders(found) or _without_labels(found)
    found, beside = read_tar(path)
    if only is not None:
        found = found.only(only)
        others = set(found.passed_over)
        beside = {name: label for name, label in beside.items() if name not in others}
    _require_images(found, "members named like key.jpg")
    if labels:
        return _by_table(found, Path(labels).expanduser())
    if not beside:
        message = f"--data {path}: {len(found.files):,} images, but no label: give --labels FILE, or add key.cls"
        raise UnlabeledFiles(message, found)
    require_distinct_by_case(beside.values(), f"--data {path}")
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
    """Labels from `table`; test images are those of test/, if one of its folders is named like a class."""
    rows = read_label_table(table)
    ids = (file.id for file in found.files)
    labels = match_rows(rows, ids, table, found.root, found.skipped, found.passed_over)
    layout = f"images with the labels of {table.name}"
    test = [file for file in found.files if _role(file.id) == "test" and file.id not in labels]
    of_test = {file.id: _class_folder(_inner(file.id)) for file in test}
    classes = set(labels.values())
    if not _share_a_name(of_test.values(), classes):
        if test:
            layout += ", those of test/ among the images to label since none of its folders is a class"
        return Collection(found, 0, labels, True, layout)
    _require_test_classes(of_test, classes, found.root)
    return _with_test(found, test, {**labels, **of_test}, True, f"{layout}, and test images in a folder a class")


def _by_metadata(found: ImageFiles) -> Collection | None:
    """Hugging Face's image folder: one table at the top, or one in each of train/ and test/."""
    labels: dict[str, str] = {}
    test_ids: set[str] = set()
    tables = 0
    folders = sorted({_class_folder(file.id) for file in found.files if _role(file.id) in ("train", "test", "val")})
    for prefix in ("", *(f"{folder}/" for folder in folders)):
        for table in (found.root / prefix / name for name in METADATA):
            if not table.is_file():
                continue
            if _role(prefix) == "val":
                raise _no_use_for(prefix, found.root)
            tables += 1
            inner = [file.id.removeprefix(prefix) for file in found.files if file.id.startswith(prefix)]
            others = [name.removeprefix(prefix) for name in found.passed_over if name.startswith(prefix)]
            matched = match_rows(read_label_table(table), inner, table, found.root / prefix, found.skipped, others)
            labels.update({prefix + name: label for name, label in matched.items()})
            if _role(prefix) == "test":
                test_ids |= {prefix + name for name in matched}
    if not tables:
        return None
    test = [file for file in found.files if file.id in test_ids]
    return _with_test(found, test, labels, len(labels) < len(found.files), "images with metadata.csv")


def _by_class_folders(found: ImageFiles) -> Collection | None:
    """A folder a class, at the top or in train/; `unlabeled/` and loose images have none, those of test/ are for it."""
    inside: dict[str, set[str]] = {}  # folder at the top -> the folders in it, "" for images right there
    for file in found.files:
        inside.setdefault(_class_folder(file.id), set()).add(_class_folder(_inner(file.id)))
    in_train = {top for top, folders in inside.items() if _role(f"{top}/") == "train" and folders != {""}}
    class_folders = set() if in_train else _class_folders_of(inside)
    labels: dict[str, str] = {}
    of_test: dict[str, str] = {}
    for file in found.files:
        top, inner = _class_folder(file.id), _class_folder(_inner(file.id))
        if _role(file.id) == "test":
            of_test[file.id] = inner
        elif top in in_train and inner and _role(f"{inner}/") != "unlabeled":
            labels[file.id] = inner
        elif top in class_folders:
            labels[file.id] = top
    classes = set(labels.values())
    every_class = (classes | set(of_test.values())) - {""}
    if len(every_class) < 2 or not (classes or len(of_test) == len(found.files)):
        return None
    test = [file for file in found.files if file.id in of_test]
    n_unlabeled = len(found.files) - len(labels) - len(of_test)
    layout = _layout_in_train(inside, in_train) if in_train else "a folder a class"
    collection = _with_test(found, test, {**labels, **of_test}, n_unlabeled > 0, layout)
    for top, folders in inside.items():
        if _role(f"{top}/") == "val" and (in_train or _share_a_name(folders, classes)):
            raise _no_use_for(f"{top}/", found.root)
    require_distinct_by_case(every_class, f"--data {found.root}", "class folders")
    _require_test_classes(of_test, classes, found.root)
    return collection


def _class_folders_of(inside: dict[str, set[str]]) -> set[str]:
    """The folders at the top that are classes: also train/ and val/ with images right in them, beside any other."""
    named = {top for top in inside if top and _role(f"{top}/") not in ("test", "unlabeled")}
    return named if any(not _role(f"{top}/") for top in named) else set()


def _layout_in_train(inside: dict[str, set[str]], in_train: set[str]) -> str:
    others = sorted(top for top in inside if top not in in_train and top and not _role(f"{top}/"))
    to_label = f", the images of {_listed(f'{top}/' for top in others)} to be labelled" if others else ""
    return f"a folder a class in train/{to_label}"


def _without_labels(found: ImageFiles) -> Collection:
    raise UnlabeledFiles(
        f"--data {found.root}: {len(found.files):,} images, but no labels: give --labels FILE with a column of paths "
        "and one of classes, or sort the labelled ones into a folder a class with unlabeled/ beside them",
        found,
    )


def _require_test_classes(of_test: dict[str, str], classes: set[str], root: Path) -> None:
    """Every test image lies in a folder named like a class."""
    for image, label in of_test.items():
        if not label:
            raise InputError(f"--data {root}: test/ has {_inner(image)!r} in no class folder; move it into one")
    unknown = sorted(set(of_test.values()) - classes)
    if unknown:
        raise InputError(
            f"--data {root}: test/ has the folder {_listed(map(repr, unknown))}, but the classes are "
            f"{_listed(sorted(classes))}; rename the folder, or move it out of test/"
        )


def _no_use_for(folder: str, root: Path) -> InputError:
    return InputError(
        f"--data {root}: it is not clear what {folder} is for; call it test/ to test on its images, call it unlabeled/ "
        "to have them labelled, or move it elsewhere"
    )


def _with_test(
    found: ImageFiles, test: list[ImageFile], labels: dict[str, str], are_given: bool, layout: str
) -> Collection:
    test_ids = {file.id for file in test}
    images = [file for file in found.files if file.id not in test_ids]
    if not images:
        raise InputError(f"--data {found.root}: all its images are test images; put those to label beside test/")
    return Collection(replace(found, files=[*images, *test]), len(test), labels, are_given, layout)


def _class_folder(name: str) -> str:
    """The first folder of a path; empty for a file in none."""
    return name.partition("/")[0] if "/" in name else ""


def _inner(name: str) -> str:
    """A path below its first folder."""
    return name.partition("/")[2] if "/" in name else name


def _role(name: str) -> str:
    """What the first folder of a path is known for by its name; empty for any other."""
    return ROLES.get(_class_folder(name).casefold(), "")


def _share_a_name(some: Iterable[str], others: Iterable[str]) -> bool:
    """Whether a name is in both, in whatever case."""
    return bool({name.casefold() for name in some} & {name.casefold() for name in others})


def _listed(names: Iterable[str]) -> str:
    every = list(map(printable, names))
    return ", ".join(every[:N_SHOWN]) + (", …" if len(every) > N_SHOWN else "")
