"""Small sets whose classes have SVHN's shares, for `harness.py thresholds-digits` and `thresholds-pictures`.

    python benchmarks/uneven_sets.py              # digits_uneven.npz, here
    python benchmarks/uneven_sets.py --pictures   # pictures_even.npz and pictures_uneven.npz too, of Fashion-MNIST

Digits: 36 images a class for testing, the others thinned. Pictures: 3,000 of the training images, the first 3,000 of
the test images.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from dpssl.data.readers import load_dataset

DRAW = 7
SHARES = np.array([4948, 13861, 10585, 8497, 7458, 6882, 5727, 5595, 5045, 4659]) / 73257  # SVHN's training digits
N_DIGITS = (51, 146, 107, 90, 78, 73, 59, 57, 50, 49)  # of each class, as many as there are 1s left to train on
N_TEST_DIGITS = 36
N_PICTURES = 3000


def thinned_digits(folder: Path) -> None:
    from sklearn.datasets import load_digits

    digits, generator = load_digits(), np.random.default_rng(DRAW)
    images = (digits.images * 255 / 16).round().astype(np.uint8)[..., None]
    orders = [generator.permutation(np.flatnonzero(digits.target == label)) for label in range(10)]
    test = np.concatenate([order[:N_TEST_DIGITS] for order in orders])
    train = np.concatenate(
        [order[N_TEST_DIGITS : N_TEST_DIGITS + n] for order, n in zip(orders, N_DIGITS, strict=True)]
    )
    save(folder / "digits_uneven.npz", images, digits.target, train, images[test], digits.target[test])


def pictures(folder: Path) -> None:
    fashion, generator = load_dataset("fashion-mnist"), np.random.default_rng(DRAW)
    tests = fashion.test_images[:N_PICTURES], fashion.test_truth[:N_PICTURES]
    for name, shares in (("even", np.full(10, 0.1)), ("uneven", SHARES)):
        counts = np.round(N_PICTURES * shares).astype(int)
        orders = [generator.permutation(np.flatnonzero(fashion.truth == label)) for label in range(10)]
        rows = np.concatenate([order[:n] for order, n in zip(orders, counts, strict=True)])
        save(folder / f"pictures_{name}.npz", fashion.images, fashion.truth, rows, *tests)


def save(path: Path, images: np.ndarray, labels: np.ndarray, rows: np.ndarray, *tests: np.ndarray) -> None:
    np.savez(path, train_x=images[rows], train_y=labels[rows], test_x=tests[0], test_y=tests[1])
    print(f"{path}: {np.bincount(labels[rows]).tolist()} images of each class")


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--pictures", action="store_true", help="of Fashion-MNIST too (`dpssl data fetch fashion-mnist`)"
    )
    parser.add_argument("--out", type=Path, default=Path(), help="folder; default: this one")
    chosen = parser.parse_args(arguments)
    thinned_digits(chosen.out)
    if chosen.pictures:
        pictures(chosen.out)


if __name__ == "__main__":
    main()
