"""Which published sets `--data` and `dpssl data fetch` know: names, classes, files, addresses and checksums.

Addresses and MD5 sums are those the authors publish (CIFAR) or that the usual loaders check (torchvision, Keras). MD5
is no protection against forgery, so what these files say is trusted no more than a file from anywhere else.
"""

from dataclasses import dataclass
from pathlib import PurePosixPath

from dpssl.data.published.class_names import (
    CIFAR10_CLASSES,
    CIFAR100_CLASSES,
    CIFAR100_COARSE_CLASSES,
    DIGITS,
    FASHION_CLASSES,
    STL10_CLASSES,
)


@dataclass(frozen=True)
class Download:
    """A file on its publisher's server."""

    url: str
    md5: str

    @property
    def file(self) -> str:
        return PurePosixPath(self.url).name


@dataclass(frozen=True)
class Layout:
    """One form in which a set is published: files in a folder of the data folder, or an archive of that folder."""

    kind: str  # which reader
    folders: tuple[str, ...]  # where the files may lie, "" for the data folder itself; `fetch` writes to the first
    files: tuple[str, ...]  # what the reader needs; any of them may also be there as .gz
    archive: str = ""  # its name as downloaded


@dataclass(frozen=True)
class PublishedSet:
    name: str
    title: str
    class_names: tuple[str, ...]
    layouts: tuple[Layout, ...]  # as they are looked for; `fetch` gets the first
    downloads: tuple[Download, ...]


TORONTO, STANFORD = "https://www.cs.toronto.edu/~kriz", "http://ufldl.stanford.edu/housenumbers"
CIFAR10_TRAIN, CIFAR10_TEST = tuple(f"data_batch_{number}" for number in range(1, 6)), "test_batch"
CIFAR10_FILES = (*CIFAR10_TRAIN, CIFAR10_TEST)
CIFAR10_LAYOUTS = (
    Layout(
        "cifar-binary",
        ("cifar-10-batches-bin",),
        tuple(f"{file}.bin" for file in CIFAR10_FILES),
        "cifar-10-binary.tar.gz",
    ),
    Layout("cifar-python", ("cifar-10-batches-py",), CIFAR10_FILES, "cifar-10-python.tar.gz"),
)
CIFAR100_LAYOUTS = (
    Layout("cifar-binary", ("cifar-100-binary",), ("train.bin", "test.bin"), "cifar-100-binary.tar.gz"),
    Layout("cifar-python", ("cifar-100-python",), ("train", "test"), "cifar-100-python.tar.gz"),
)
CIFAR100_DOWNLOADS = (Download(f"{TORONTO}/cifar-100-binary.tar.gz", "03b5dce01913d631647c71ecec9e9cb8"),)
SVHN_DOWNLOADS = (
    Download(f"{STANFORD}/train_32x32.mat", "e26dedcc434d2e4c54c9b2d4a06d8373"),
    Download(f"{STANFORD}/test_32x32.mat", "eb5a983be6a315427106f1b164d9cef3"),
)
SVHN_EXTRA = Download(f"{STANFORD}/extra_32x32.mat", "a93ce644f1a588dc4d68dda5feec44a7")
STL10_FILES = ("train_X.bin", "train_y.bin", "unlabeled_X.bin", "test_X.bin", "test_y.bin", "fold_indices.txt")
IDX_FILES = ("train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte")


def _idx_downloads(address: str, *md5s: str) -> tuple[Download, ...]:
    return tuple(Download(f"{address}/{file}.gz", md5) for file, md5 in zip(IDX_FILES, md5s, strict=True))


def _svhn(name: str, title: str, downloads: tuple[Download, ...]) -> PublishedSet:
    files = tuple(download.file for download in downloads)
    return PublishedSet(name, title, DIGITS, (Layout("svhn", ("svhn", ""), files),), downloads)


PUBLISHED = {
    known.name: known
    for known in (
        PublishedSet(
            "cifar10",
            "CIFAR-10",
            CIFAR10_CLASSES,
            CIFAR10_LAYOUTS,
            (Download(f"{TORONTO}/cifar-10-binary.tar.gz", "c32a1d4ab5d03f1284b67883e8d87530"),),
        ),
        PublishedSet("cifar100", "CIFAR-100", CIFAR100_CLASSES, CIFAR100_LAYOUTS, CIFAR100_DOWNLOADS),
        PublishedSet(
            "cifar100-coarse",
            "CIFAR-100 with its 20 coarse classes",
            CIFAR100_COARSE_CLASSES,
            CIFAR100_LAYOUTS,
            CIFAR100_DOWNLOADS,
        ),
        _svhn("svhn", "SVHN, cropped digits", SVHN_DOWNLOADS),
        _svhn("svhn-extra", "SVHN with its extra images", (*SVHN_DOWNLOADS, SVHN_EXTRA)),
        PublishedSet(
            "stl10",
            "STL-10",
            STL10_CLASSES,
            (Layout("stl10", ("stl10_binary",), STL10_FILES, "stl10_binary.tar.gz"),),
            (
                Download(
                    "http://ai.stanford.edu/~acoates/stl10/stl10_binary.tar.gz", "91f7769df0f17e558f3565bffb0c7dfb"
                ),
            ),
        ),
        PublishedSet(
            "mnist",
            "MNIST",
            DIGITS,
            (Layout("idx", ("mnist", "MNIST/raw"), IDX_FILES),),
            _idx_downloads(
                "https://ossci-datasets.s3.amazonaws.com/mnist",
                "f68b3c2dcbeaaa9fbdd348bbdeb94873",
                "d53e105ee54ea40749a09fcbcd1e9432",
                "9fb629c4189551a2d022fa330f9573f3",
                "ec29112dd5afa0611ce80d1b7f02629c",
            ),
        ),
        PublishedSet(
            "fashion-mnist",
            "Fashion-MNIST",
            FASHION_CLASSES,
            (Layout("idx", ("fashion-mnist", "FashionMNIST/raw"), IDX_FILES),),
            _idx_downloads(
                "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com",
                "8d4fb7e6c68d591d4c3dfef9ec88bf0d",
                "25c81989df183df01b3e8a0aad5dffbe",
                "bef4ecab320f06d8554ea6380940ec79",
                "bb300cfdad3c16e7a12a480ee83cd310",
            ),
        ),
    )
}
