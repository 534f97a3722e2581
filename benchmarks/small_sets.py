"""Small sets for the plans of `harness.py` that a CPU can do, written here or under --out.

    python benchmarks/small_sets.py                # digits_uneven.npz
    python benchmarks/small_sets.py --fashion      # pictures_even.npz and pictures_uneven.npz too
    python benchmarks/small_sets.py --svhn svhn    # svhn16.npz too

Uneven classes have SVHN's shares. Digits: 36 images a class for testing, the others thinned. Pictures: 3,000 of
Fashion-MNIST's training images, the first 3,000 of its test images. SVHN at 16 pixels: all of it, the means of 2 x 2
pixels.
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
    save(folder / "digits_uneven.npz", images[train], digits.target[train], images[test], digits.target[test])


def pictures(folder: Path) -> None:
    fashion, generator = load_dataset("fashion-mnist"), np.random.default_rng(DRAW)
    tests = fashion.test_images[:N_PICTURES], fashion.test_truth[:N_PICTURES]
    for name, shares in (("even", np.full(10, 0.1)), ("uneven", SHARES)):
        counts = np.round(N_PICTURES * shares).astype(int)
        orders = [generator.permutation(np.flatnonzero(fashion.truth == label)) for label in range(10)]
        rows = np.concatenate([order[:n] for order, n in zip(orders, counts, strict=True)])
        save(folder / f"pictures_{name}.npz", fashion.images[rows], fashion.truth[rows], *tests)


def halved_svhn(data: str, folder: Path) -> None:
    svhn = load_dataset(data)
    save(folder / "svhn16.npz", halved(svhn.images), svhn.truth, halved(svhn.test_images), svhn.test_truth)


def halved(images: np.ndarray) -> np.ndarray:
    """Means of 2 x 2 pixels, rounded."""
    n, height, width, channels = images.shape
    blocks = images.reshape(n, height // 2, 2, width // 2, 2, channels)
    return blocks.mean((2, 4), dtype=np.float32).round().astype(np.uint8)


def save(path: Path, images: np.ndarray, labels: np.ndarray, *tests: np.ndarray) -> None:
    np.savez(path, train_x=images, train_y=labels, test_x=tests[0], test_y=tests[1])
    print(f"{path}: {np.bincount(labels).tolist()} images of each class, {images.shape[1]} pixels a side")


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fashion", action="store_true", help="of Fashion-MNIST (`dpssl data fetch fashion-mnist`)")
    parser.add_argument("--svhn", help="of SVHN: its name (`dpssl data fetch svhn`) or its .npz, as of dpssl run")
    parser.add_argument("--out", type=Path, default=Path(), help="folder; default: this one")
    chosen = parser.parse_args(arguments)
    thinned_digits(chosen.out)
    if chosen.fashion:
        pictures(chosen.out)
    if chosen.svhn:
        halved_svhn(chosen.svhn, chosen.out)


if __name__ == "__main__":
    main()
