"""Decoded images, kept from run to run: image files go in, a memory-mapped array of their pixels comes out.

A collection's folder in the cache is named after a checksum of its files' names, sizes and times, of what is in some of
them and of `--image-size`. It holds `pixels.bin` (image after image, as in memory), `digests.bin` and, written last,
`index.json`; while decoding, `plan.json` and `journal.txt`, a line a finished block, from which the next run goes on.
What is damaged or was written by another version is made anew. The cache may be deleted at any time.
"""

import json
import os
import shutil
import sys
import zlib
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpssl.data.decode import ColourMet, DamagedImage
from dpssl.data.decode_blocks import BLOCK, DIGEST_BYTES, BlockReport, DecodeJob, count_workers, decode_blocks
from dpssl.data.image_files import CANNOT_BE_READ, ImageFiles
from dpssl.data.sampled_files import chosen_shape, collection_key
from dpssl.data.table import Images
from dpssl.errors import InputError
from dpssl.progress import ProgressBar

VERSION = 2  # of the files in the cache and of what decoding makes of an image
MOST_CHECKED = 1 << 30  # bytes; of more, evenly spaced blocks are checked, so that opening stays a matter of seconds
PIXELS, DIGESTS, INDEX, PLAN, JOURNAL = "pixels.bin", "digests.bin", "index.json", "plan.json", "journal.txt"
UNFINISHED = "decoding.bin"
BROKEN = (OSError, ValueError, KeyError, TypeError, AttributeError)  # what reading a damaged index or plan raises


@dataclass(frozen=True)
class DecodedImages:
    """The images that could be decoded, in the order of their files."""

    pixels: Images  # (n, side, side, channels), memory-mapped
    digests: NDArray[np.uint8]  # (n, DIGEST_BYTES) of the files' bytes
    damaged: dict[str, str]  # id -> reason, of the others
    kinds: dict[str, int]  # "640x480 RGB JPEG" -> images
    n_decoded: int  # now, not earlier


def cache_folder() -> Path:
    """$DPSSL_CACHE, or ~/.cache/dpssl."""
    named = os.environ.get("DPSSL_CACHE")
    return Path(named).expanduser() if named else Path.home() / ".cache" / "dpssl"


def decoded_images(files: ImageFiles, image_size: int = 0, n_workers: int = 0, progress: bool = False) -> DecodedImages:
    """The pixels of `files`, from the cache or decoded into it now. `image_size` 0 chooses a side by the files."""
    folder = cache_folder() / "images" / collection_key(files, image_size)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with _locked(folder):
            entry = _Entry(folder, files)
            return entry.load() or entry.make(image_size, count_workers(n_workers), progress)
    except OSError as error:
        raise InputError(
            f"{folder}: cannot be written ({error.strerror or error}); free some space, or set DPSSL_CACHE to a folder "
            "with more; what is decoded so far is kept"
        ) from error


@dataclass(frozen=True)
class _Entry:
    """One collection's folder in the cache."""

    folder: Path
    files: ImageFiles

    def load(self) -> DecodedImages | None:
        """What an earlier run made; None where it is missing, damaged or of another version."""
        try:
            sealed = json.loads((self.folder / INDEX).read_text(encoding="utf-8"))
            index = sealed["index"]
            if index["version"] != VERSION or sealed["checksum"] != _checksum(index):
                return None
            shape = (index["n_images"], index["side"], index["side"], index["channels"])
            pixels = _mapped(self.folder / PIXELS, shape)
            if not _is_sound(self.folder / PIXELS, BLOCK * int(np.prod(shape[1:])), index["checksums"]):
                return None
            digests = np.fromfile(self.folder / DIGESTS, dtype=np.uint8).reshape(len(pixels), DIGEST_BYTES)
            if zlib.crc32(digests.data) != index["digests"]:
                return None
            damaged = {str(name): str(reason) for name, reason in index["damaged"].items()}
            if len(pixels) + len(damaged) != len(self.files.files) or self._can_be_read_now(damaged):
                return None
            return DecodedImages(pixels, digests, damaged, dict(index["kinds"]), 0)
        except BROKEN:
            return None

    def _can_be_read_now(self, damaged: dict[str, str]) -> bool:
        """Whether a file that could not be read (permissions, a drive that was away) can be by now."""
        unread = {name for name, reason in damaged.items() if reason.startswith(CANNOT_BE_READ)}
        for file in self.files.files if unread else []:
            if file.id in unread:
                try:
                    self.files.read(file)
                    return True
                except DamagedImage:
                    continue
        return False

    def make(self, image_size: int, n_workers: int, progress: bool) -> DecodedImages:
        """Decode what no earlier run has, and leave it for the next."""
        (self.folder / INDEX).unlink(missing_ok=True)
        job, done = self._resume() or self._begin(*chosen_shape(self.files, image_size))
        try:
            n_decoded = self._decode(job, done, n_workers, progress)
        except ColourMet:  # beyond the sample, and too late for grey
            job, done = self._begin(job.side, 3)
            n_decoded = self._decode(job, done, n_workers, progress)
        self._finish(job, [done[block] for block in sorted(done)])
        made = self.load()
        if made is None:
            raise InputError(f"{self.folder}: what was just written there reads back damaged; check the disk")
        return DecodedImages(made.pixels, made.digests, made.damaged, made.kinds, n_decoded)

    def _begin(self, side: int, channels: int) -> tuple[DecodeJob, dict[int, BlockReport]]:
        for name in (INDEX, JOURNAL, PLAN, PIXELS, DIGESTS, UNFINISHED):
            (self.folder / name).unlink(missing_ok=True)
        job = DecodeJob(self.files.root.resolve(), self.folder / UNFINISHED, side, channels)
        n_bytes = len(self.files.files) * job.image_bytes
        free = shutil.disk_usage(self.folder).free
        if n_bytes > free:
            raise InputError(
                f"{self.folder}: decoding {len(self.files.files):,} images takes {n_bytes / 1e9:.1f} GB, but "
                f"{free / 1e9:.1f} GB are free; set DPSSL_CACHE to a folder with more, or lower --image-size"
            )
        job.target.touch()
        _write(self.folder / PLAN, json.dumps({"version": VERSION, "side": side, "channels": channels}))
        return job, {}

    def _resume(self) -> tuple[DecodeJob, dict[int, BlockReport]] | None:
        """What an interrupted run has decoded, each block checked against the journal."""
        try:
            plan = json.loads((self.folder / PLAN).read_text(encoding="utf-8"))
            if plan["version"] != VERSION:
                return None
            job = DecodeJob(
                self.files.root.resolve(), self.folder / UNFINISHED, int(plan["side"]), int(plan["channels"])
            )
            done: dict[int, BlockReport] = {}
            with job.target.open("rb") as pixels:
                for line in (self.folder / JOURNAL).read_text(encoding="utf-8").splitlines():
                    report = _as_report(line)
                    if report is not None:
                        pixels.seek(report.block * BLOCK * job.image_bytes)
                        n_images = min(BLOCK, len(self.files.files) - report.block * BLOCK)
                        if zlib.crc32(pixels.read(n_images * job.image_bytes)) == report.checksum:
                            done[report.block] = report
            return job, done
        except BROKEN:
            return None

    def _decode(self, job: DecodeJob, done: dict[int, BlockReport], n_workers: int, progress: bool) -> int:
        n_images = len(self.files.files)
        todo = [block for block in range(-(-n_images // BLOCK)) if block not in done]
        before = now = n_images - sum(min(BLOCK, n_images - block * BLOCK) for block in todo)
        bar = ProgressBar("Decoding", n_images, before, progress and bool(todo), unit="image")
        try:
            with (self.folder / JOURNAL).open("a", encoding="utf-8") as journal:
                for report in decode_blocks(job, self.files.files, todo, n_workers):
                    print(_as_line(report), file=journal, flush=True)
                    done[report.block] = report
                    now += min(BLOCK, n_images - report.block * BLOCK)
                    bar.update(now, {})
        finally:
            bar.close()
        return n_images - before

    def _finish(self, job: DecodeJob, reports: list[BlockReport]) -> None:
        """Take the damaged images' rows out, then write the index."""
        damaged_rows = {
            report.block * BLOCK + int(row): why for report in reports for row, why in report.damaged.items()
        }
        kinds: Counter[str] = Counter()
        for report in reports:
            kinds.update(report.kinds)
        content = bytes.fromhex("".join(report.digests for report in reports))
        digests = np.frombuffer(content, dtype=np.uint8).reshape(-1, DIGEST_BYTES)
        checksums = [report.checksum for report in reports]
        if damaged_rows:
            kept = np.delete(np.arange(len(self.files.files)), list(damaged_rows))
            digests = digests[kept]
            checksums = _copy_rows(job, kept, self.folder / PIXELS)
        else:
            os.replace(job.target, self.folder / PIXELS)
        digests.tofile(self.folder / DIGESTS)
        index = {
            "version": VERSION,
            "n_images": len(self.files.files) - len(damaged_rows),
            "side": job.side,
            "channels": job.channels,
            "checksums": checksums,
            "digests": zlib.crc32(digests.data),
            "damaged": {self.files.files[row].id: why for row, why in sorted(damaged_rows.items())},
            "kinds": dict(kinds),
        }
        _write(self.folder / INDEX, json.dumps({"checksum": _checksum(index), "index": index}))
        for name in (JOURNAL, PLAN, UNFINISHED):
            (self.folder / name).unlink(missing_ok=True)


def _mapped(path: Path, shape: tuple[int, ...]) -> Images:
    """Writable in memory alone, never in the file: what takes it (torch) may insist on a writable array."""
    if path.stat().st_size != np.prod(shape, dtype=np.int64):
        raise ValueError(f"{path} has another size than its index says")
    if shape[0] == 0:
        return np.empty(shape, dtype=np.uint8)
    return np.memmap(path, dtype=np.uint8, mode="c", shape=shape)


def _is_sound(path: Path, block_bytes: int, checksums: list[int]) -> bool:
    """Read through the file: what a memory map has touched would count as this process' memory."""
    with path.open("rb") as pixels:
        every = -(-path.stat().st_size // MOST_CHECKED) or 1
        for block in range(0, len(checksums), every):
            pixels.seek(block * block_bytes)
            if zlib.crc32(pixels.read(block_bytes)) != checksums[block]:
                return False
    return True


def _copy_rows(job: DecodeJob, kept: NDArray[np.int64], target: Path) -> list[int]:
    """Write the images at `kept` of the job's file into `target`; returns the checksums of its blocks."""
    checksums = []
    source = np.memmap(job.target, dtype=np.uint8, mode="r").reshape(-1, job.image_bytes)
    with target.open("wb") as file:
        for start in range(0, len(kept), BLOCK):
            rows = source[kept[start : start + BLOCK]]
            file.write(rows.data)
            checksums.append(zlib.crc32(rows.data))
    return checksums


def _checksum(index: dict[str, Any]) -> int:
    return zlib.crc32(json.dumps(index, sort_keys=True).encode())


def _as_line(report: BlockReport) -> str:
    text = json.dumps(report.as_json())
    return f"{zlib.crc32(text.encode()):08x} {text}"


def _as_report(line: str) -> BlockReport | None:
    """None for a line that was damaged, or cut short by a kill."""
    checksum, _, text = line.partition(" ")
    return BlockReport(**json.loads(text)) if checksum == f"{zlib.crc32(text.encode()):08x}" else None


def _write(path: Path, text: str) -> None:
    unfinished = path.with_name(f".{path.name}.unfinished")
    with unfinished.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    os.replace(unfinished, path)


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """One process at a time decodes a collection; the second waits, and finds it done. Windows has no such lock."""
    try:
        import fcntl
    except ModuleNotFoundError:
        yield
        return
    with (folder / ".lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print(f"another dpssl is decoding the same images into {folder}; waiting for it", file=sys.stderr)
            fcntl.flock(file, fcntl.LOCK_EX)
        yield
