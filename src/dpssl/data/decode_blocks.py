"""Many image files -> rows of one file of pixels, a block of images at a time, in several processes.

Each process reads, decodes and writes its blocks by itself; what comes back of a block is a short report. Writing goes
through the file, not through a memory map: on a full disk that is an error, and not the end of the process.
"""

import hashlib
import multiprocessing
import os
import signal
import threading
import zlib
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dpssl.data.decode import DamagedImage, decode_image
from dpssl.data.image_files import ImageFile, read_image
from dpssl.errors import InputError

BLOCK = 256  # images
DIGEST_BYTES = 16  # of a file's content, to find exact duplicates


@dataclass(frozen=True)
class DecodeJob:
    """What all blocks have in common."""

    root: Path  # folder or archive
    target: Path  # file of pixels, image after image
    side: int
    channels: int

    @property
    def image_bytes(self) -> int:
        return self.side * self.side * self.channels


@dataclass(frozen=True)
class BlockReport:
    """What became of one block's images; rows count from the block's first."""

    block: int
    checksum: int  # CRC-32 of the pixels
    damaged: dict[str, str]  # row -> reason
    kinds: dict[str, int]  # "640x480 RGB JPEG" -> images
    digests: str  # of all its files, in hexadecimal

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def decode_block(job: DecodeJob, block: int, files: Sequence[ImageFile]) -> BlockReport:
    """Decode and write one block. A damaged image's pixels are zeros. `ColourMet` passes through."""
    pixels = np.zeros((len(files), job.side, job.side, job.channels), dtype=np.uint8)
    damaged: dict[str, str] = {}
    kinds: Counter[str] = Counter()
    digests = []
    for row, file in enumerate(files):
        content = b""
        try:
            content = read_image(job.root, file)
            pixels[row], header = decode_image(content, job.side, job.channels)
            kinds[f"{header.width}x{header.height} {header.mode} {header.format}"] += 1
        except DamagedImage as problem:
            damaged[str(row)] = str(problem)
        digests.append(hashlib.sha256(content).digest()[:DIGEST_BYTES].hex())
    with job.target.open("r+b") as target:
        target.seek(block * BLOCK * job.image_bytes)
        target.write(pixels.data)
    return BlockReport(block, zlib.crc32(pixels.data), damaged, dict(kinds), "".join(digests))


def decode_blocks(
    job: DecodeJob, files: Sequence[ImageFile], blocks: Sequence[int], n_workers: int
) -> Iterator[BlockReport]:
    """The reports of `blocks`, in the order in which they are done."""

    def part(block: int) -> Sequence[ImageFile]:
        return files[block * BLOCK : (block + 1) * BLOCK]

    n_workers = min(n_workers, len(blocks))
    if n_workers <= 1:
        for block in blocks:
            yield decode_block(job, block, part(block))
        return
    # Forking would copy the threads' locks of whatever this process has loaded; a new interpreter starts clean.
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(n_workers, mp_context=context, initializer=_start_worker)
    try:
        for report in as_completed([pool.submit(decode_block, job, block, part(block)) for block in blocks]):
            yield report.result()
    except BrokenProcessPool as error:
        raise InputError(
            f"--data {job.root}: a decoding process was killed, perhaps for want of memory; the next run goes on from "
            "what is decoded, with --threads 1 in this process alone"
        ) from error
    finally:
        pool.shutdown(cancel_futures=True)


def count_workers(asked: int = 0) -> int:
    """`asked`, or as many as there are cores for this process."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return asked or cores


def _start_worker() -> None:
    """Ctrl-C is the parent's to handle, and a worker must not outlive a parent that was killed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
