"""Decoding image files, ours beside a plain Pillow loop: the same JPEGs, as many processes -> results/decode.json.

    python benchmarks/decode.py [--out results/decode.json] [--images 5000] [--processes 2] [--repeats 5]

The plain loop is what an ImageFolder does: open, convert to RGB, resize the shorter side, crop the centre. Both start
their processes anew, take blocks of the same size and leave the pixels in one file; ours also takes every file's
checksum, notes its size and mode, and can be interrupted. They take turns; which begins changes every round. The
speed-up is the median over the rounds of the ratio of their times; that of their processors' times, which other work on
the machine disturbs less, is beside it. Then ours opens its cache, and the pixels are summed from the memory map and
from the file.

The JPEGs are made here, 500 x 375 at quality 85: noise whose power falls with the square of the frequency, as
photographs' does, under a few hard edges.
"""

import argparse
import multiprocessing
import os
import platform
import resource
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import PIL
from PIL import Image
from results_file import REPOSITORY, commit, write_results

from dpssl.data.cache import cache_folder, decoded_images
from dpssl.data.decode_blocks import BLOCK, count_workers
from dpssl.data.image_files import find_images

WIDTH, HEIGHT, QUALITY, SIDE = 500, 375, 85, 64
PLAIN, OURS = "plain Pillow loop", "dpssl"


def make_photo(draws: np.random.Generator) -> Image.Image:
    frequency = np.hypot(np.fft.fftfreq(HEIGHT)[:, None], np.fft.rfftfreq(WIDTH))
    frequency[0, 0] = 1.0
    layers = []
    for _ in range(3):
        noise = np.fft.rfft2(draws.standard_normal((HEIGHT, WIDTH))) / frequency
        field = np.fft.irfft2(noise, (HEIGHT, WIDTH))
        layers.append(128 + 45 * field / field.std())
    pixels = np.clip(np.stack(layers, -1), 0, 255).astype(np.uint8)
    for _ in range(8):
        y, x = draws.integers(0, HEIGHT - 40), draws.integers(0, WIDTH - 40)
        pixels[y : y + draws.integers(10, 90), x : x + draws.integers(10, 90)] //= 2
    return Image.fromarray(pixels)


def make_folder(folder: Path, n_images: int) -> int:
    """Returns the bytes of all files. A hundred photos are drawn; the others are their crops, mirrored or not."""
    draws = np.random.default_rng(0)
    originals = [make_photo(draws) for _ in range(min(100, n_images))]
    for number in range(n_images):
        image = originals[number % len(originals)]
        if number >= len(originals):
            left, top = draws.integers(0, 40), draws.integers(0, 30)
            image = image.crop((left, top, left + WIDTH - 40, top + HEIGHT - 30)).resize((WIDTH, HEIGHT))
        image.save(folder / f"{number:06d}.jpg", quality=QUALITY)
    return sum(path.stat().st_size for path in folder.iterdir())


def plain_block(folder: str, names: list[str], target: str, first: int, n_images: int) -> int:
    pixels = np.memmap(target, dtype=np.uint8, mode="r+", shape=(n_images, SIDE, SIDE, 3))
    for row, name in enumerate(names, start=first):
        with Image.open(os.path.join(folder, name)) as opened:
            image = opened.convert("RGB")
        scale = SIDE / min(image.size)
        image = image.resize((round(image.width * scale), round(image.height * scale)), Image.Resampling.BILINEAR)
        left, top = (image.width - SIDE) // 2, (image.height - SIDE) // 2
        pixels[row] = np.asarray(image.crop((left, top, left + SIDE, top + SIDE)))
    return len(names)


def plain_loop(folder: Path, target: Path, n_processes: int) -> np.ndarray:
    names = sorted(os.listdir(folder))
    with target.open("wb") as file:
        file.truncate(len(names) * SIDE * SIDE * 3)
    with ProcessPoolExecutor(n_processes, mp_context=multiprocessing.get_context("spawn")) as pool:
        starts = range(0, len(names), BLOCK)
        blocks = [
            pool.submit(plain_block, str(folder), names[start : start + BLOCK], str(target), start, len(names))
            for start in starts
        ]
        assert sum(block.result() for block in blocks) == len(names)
    return np.memmap(target, dtype=np.uint8, mode="r", shape=(len(names), SIDE, SIDE, 3))


def mean_difference(folder: Path, ours: np.ndarray, n_images: int = 100) -> float:
    """Levels by which ours differs from decoding in full and resizing the very same square."""
    centre = ((WIDTH - HEIGHT) / 2, 0, (WIDTH + HEIGHT) / 2, HEIGHT)
    differences = []
    for pixels, path in zip(ours[:n_images], sorted(folder.iterdir()), strict=False):
        with Image.open(path) as image:
            in_full = np.asarray(image.convert("RGB").resize((SIDE, SIDE), Image.Resampling.BILINEAR, box=centre))
        differences.append(np.abs(pixels.astype(int) - in_full).mean())
    return float(np.mean(differences))


def timed(work: Any) -> tuple[float, float, Any]:
    """Seconds by the clock and of all processors, child processes included, and the result."""
    start, spent = time.perf_counter(), processor_seconds()
    result = work()
    return time.perf_counter() - start, processor_seconds() - spent, result


def processor_seconds() -> float:
    usage = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in usage)


def measure(n_images: int, n_processes: int, n_repeats: int, scratch: Path) -> dict[str, Any]:
    folder = scratch / "photos"
    folder.mkdir()
    n_bytes = make_folder(folder, n_images)
    rounds: dict[str, list[tuple[float, float]]] = {PLAIN: [], OURS: []}
    decoded = None
    for repeat in range(n_repeats):
        os.environ["DPSSL_CACHE"] = str(scratch / f"cache {repeat}")
        for name in (PLAIN, OURS) if repeat % 2 == 0 else (OURS, PLAIN):
            if name == PLAIN:
                seconds, spent, _ = timed(lambda: plain_loop(folder, scratch / "plain.bin", n_processes))
            else:
                seconds, spent, decoded = timed(lambda: decoded_images(find_images(folder), SIDE, n_processes))
                assert decoded.n_decoded == n_images
            rounds[name].append((seconds, spent))
        print(f"round {repeat + 1}: " + ", ".join(f"{name} {times[-1][0]:.2f} s" for name, times in rounds.items()))
    assert decoded is not None
    opened, _, again = timed(lambda: decoded_images(find_images(folder), SIDE, n_processes))
    assert again.n_decoded == 0
    (pixels,) = cache_folder().rglob("pixels.bin")
    from_map, _, _ = timed(lambda: again.pixels.sum(dtype=np.int64))
    from_file, _, _ = timed(lambda: np.fromfile(pixels, dtype=np.uint8).sum(dtype=np.int64))
    ratios = np.array(rounds[PLAIN]) / np.array(rounds[OURS])  # (rounds, 2)
    return {
        "n_images": n_images,
        "mean_file_bytes": round(n_bytes / n_images),
        "side": SIDE,
        "processes": n_processes,
        "seconds": {name: [clock for clock, _ in times] for name, times in rounds.items()},
        "processor_seconds": {name: [spent for _, spent in times] for name, times in rounds.items()},
        "images_per_second": {name: n_images / min(clock for clock, _ in times) for name, times in rounds.items()},
        "speed_up": float(np.median(ratios[:, 0])),
        "speed_up_by_processor_time": float(np.median(ratios[:, 1])),
        "speed_up_per_round": ratios[:, 0].tolist(),
        "mean_difference_in_levels": mean_difference(folder, decoded.pixels),
        "cache": {"open_seconds": opened, "sum_from_map_seconds": from_map, "sum_from_file_seconds": from_file},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=5000)
    parser.add_argument("--processes", type=int, default=count_workers())
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--out", type=Path, default=REPOSITORY / "results" / "decode.json")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        figures = measure(arguments.images, arguments.processes, arguments.repeats, Path(scratch))
    report = {
        "what": "image files to pixels: dpssl's decoding into its cache beside a plain Pillow loop",
        "machine": f"{platform.machine()}, {os.cpu_count()} cores",
        "load_average": os.getloadavg()[0],
        "versions": {"pillow": PIL.__version__, "numpy": np.__version__, "python": platform.python_version()},
        "commit": commit(),
        **figures,
    }
    write_results(arguments.out, report)
    print(
        f"speed-up {figures['speed_up']:.2f}, by processor time {figures['speed_up_by_processor_time']:.2f}; "
        f"{arguments.out}"
    )


if __name__ == "__main__":
    main()
