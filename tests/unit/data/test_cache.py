"""The cache of decoded images: made once, found again, resumed, rebuilt; bad files left out."""

import errno
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from PIL import Image

from dpssl.data import cache, decode_blocks, sampled_files
from dpssl.data.cache import DecodedImages, decoded_images
from dpssl.data.decode import Header, decode_image
from dpssl.data.image_files import ImageFiles, find_images
from dpssl.data.sampled_files import choose_side
from dpssl.errors import InputError

Photos = Callable[..., Path]
N_IMAGES = 20


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("DPSSL_CACHE", str(tmp_path / "cache"))
    for module in (cache, decode_blocks):
        monkeypatch.setattr(module, "BLOCK", 4)


@pytest.fixture
def files(photos: Photos) -> ImageFiles:
    return find_images(photos(*(f"{number:02d}.png" for number in range(N_IMAGES))))


def entry() -> Path:
    (folder,) = (cache.cache_folder() / "images").iterdir()
    return folder


def pixels_by_hand(files: ImageFiles, side: int = 12, channels: int = 3) -> np.ndarray:
    return np.stack([decode_image(files.read(file), side, channels)[0] for file in files.files])


def decode(files: ImageFiles, **options: int) -> DecodedImages:
    return decoded_images(files, n_workers=1, **options)


def test_images_come_in_the_order_of_their_files_and_are_mapped(files: ImageFiles) -> None:
    found = decode(files)
    np.testing.assert_array_equal(found.pixels, pixels_by_hand(files))
    assert isinstance(found.pixels, np.memmap)
    assert found.kinds == {"12x12 RGB PNG": N_IMAGES}
    assert found.n_decoded == N_IMAGES
    assert len(np.unique(found.digests, axis=0)) == N_IMAGES


def test_the_second_time_nothing_is_decoded(files: ImageFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    first = decode(files)
    monkeypatch.setattr(decode_blocks, "decode_image", None)
    second = decode(find_images(files.root))
    assert second.n_decoded == 0
    np.testing.assert_array_equal(second.pixels, first.pixels)
    np.testing.assert_array_equal(second.digests, first.digests)


def test_several_processes_decode_the_same(files: ImageFiles) -> None:
    """Their blocks have the module's own size: what a monkeypatch changes here stays here."""
    with pytest.MonkeyPatch.context() as patch:
        for module in (cache, decode_blocks):
            patch.setattr(module, "BLOCK", 256)
        many = ImageFiles(files.root, files.files * 26, [])
        found = decoded_images(many, n_workers=2)
    np.testing.assert_array_equal(found.pixels, np.tile(pixels_by_hand(files), (26, 1, 1, 1)))


def test_another_size_or_a_changed_file_is_another_entry(files: ImageFiles) -> None:
    decode(files)
    assert decode(files, image_size=8).pixels.shape == (N_IMAGES, 8, 8, 3)
    Image.new("RGB", (12, 12), (1, 2, 3)).save(files.root / "00.png")
    os.utime(files.root / "00.png", ns=(1, 1))
    changed = decode(find_images(files.root))
    assert changed.n_decoded == N_IMAGES
    assert changed.pixels[0, 0, 0].tolist() == [1, 2, 3]


def test_other_pictures_of_the_same_names_sizes_and_times_are_another_entry(tmp_path: Path) -> None:
    means = []
    for name, grey in (("dark", 10), ("light", 240)):
        for number in range(6):
            path = tmp_path / name / f"{number}.bmp"
            path.parent.mkdir(exist_ok=True)
            Image.new("RGB", (12, 12), (grey, grey, grey + number)).save(path)
            os.utime(path, ns=(1, 1))
        means.append(decode(find_images(tmp_path / name)).pixels.mean())
    assert means[0] < 20
    assert means[1] > 230


def test_the_same_pictures_in_another_folder_are_the_same_entry(files: ImageFiles, tmp_path: Path) -> None:
    decode(files)
    copy = shutil.copytree(files.root, tmp_path / "copy")  # with the files' times
    assert decode(find_images(copy)).n_decoded == 0


def test_writing_into_the_array_does_not_reach_the_file(files: ImageFiles) -> None:
    found = decode(files)
    found.pixels[:] = 0
    np.testing.assert_array_equal(decode(files).pixels, pixels_by_hand(files))


# Damaged images


def test_damaged_files_are_left_out_and_said_why(files: ImageFiles) -> None:
    (files.root / "03.png").write_bytes(b"")
    (files.root / "04.png").write_bytes(b"nothing of the kind")
    content = (files.root / "19.png").read_bytes()
    (files.root / "19.png").write_bytes(content[: len(content) // 2])
    found = decode(find_images(files.root))
    assert list(found.damaged) == ["03.png", "04.png", "19.png"]
    assert found.damaged["03.png"] == "is empty"
    kept = [file for file in files.files if file.id not in found.damaged]
    np.testing.assert_array_equal(found.pixels, pixels_by_hand(ImageFiles(files.root, kept, [])))
    assert len(found.digests) == len(kept)
    again = decode(find_images(files.root))
    assert (again.n_decoded, again.damaged) == (0, found.damaged)


def test_files_that_cannot_be_read_are_tried_again(files: ImageFiles) -> None:
    content = (files.root / "03.png").read_bytes()
    (files.root / "03.png").unlink()
    assert list(decode(files).damaged) == ["03.png"]
    (files.root / "03.png").write_bytes(content)
    assert decode(files).damaged == {}


def test_nothing_but_damage(photos: Photos) -> None:
    root = photos()
    (root / "1.png").write_bytes(b"")
    assert len(decode(find_images(root)).pixels) == 0


# Size and colour


def test_the_side_follows_the_images() -> None:
    def side(*sizes: tuple[int, int]) -> int:
        return choose_side([Header(*size, "RGB", "PNG") for size in sizes])

    assert side((32, 32)) == 32
    assert side((28, 30)) == 28
    assert side((500, 375), (640, 480), (20, 20)) == 64
    assert side((47, 60)) == 44
    assert side((3, 3)) == 8
    assert side() == 64


def test_grey_images_stay_grey(photos: Photos) -> None:
    root = photos()
    for number in range(6):
        Image.new("L", (12, 12), number).save(root / f"{number}.png")
    assert decode(find_images(root)).pixels.shape == (6, 12, 12, 1)


def test_one_colour_image_beyond_the_sample_makes_all_colour(photos: Photos, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sampled_files, "N_SAMPLED", 2)
    root = photos()
    for number in range(12):
        Image.new("L" if number != 7 else "RGB", (12, 12)).save(root / f"{number:02d}.png")
    assert decode(find_images(root)).pixels.shape == (12, 12, 12, 3)
    assert decode(find_images(root)).n_decoded == 0


# Interruptions and damage of the cache itself


def interrupt_after(n_images: int, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = 0

    def stop(*arguments: object) -> object:
        nonlocal seen
        seen += 1
        if seen > n_images:
            raise KeyboardInterrupt
        return decode_image(*arguments)

    monkeypatch.setattr(decode_blocks, "decode_image", stop)


def test_interrupted_decoding_goes_on_where_it_stopped(files: ImageFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    interrupt_after(10, monkeypatch)
    with pytest.raises(KeyboardInterrupt):
        decode(files)
    monkeypatch.setattr(decode_blocks, "decode_image", decode_image)
    found = decode(files)
    assert found.n_decoded == N_IMAGES - 8, "two blocks of four were done"
    np.testing.assert_array_equal(found.pixels, pixels_by_hand(files))


@pytest.mark.parametrize("damage", ["pixels", "journal", "digit", "plan", "version"])
def test_a_damaged_half_is_not_trusted(damage: str, files: ImageFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    interrupt_after(10, monkeypatch)
    with pytest.raises(KeyboardInterrupt):
        decode(files)
    monkeypatch.setattr(decode_blocks, "decode_image", decode_image)
    if damage == "pixels":
        with (entry() / "decoding.bin").open("r+b") as pixels:
            pixels.write(b"\xff")
    elif damage == "journal":
        text = (entry() / "journal.txt").read_text()
        (entry() / "journal.txt").write_text(text[: -len(text) // 3])
    elif damage == "digit":
        text = (entry() / "journal.txt").read_text()
        (entry() / "journal.txt").write_text(text.replace('"digests": "', '"digests": "x', 1))
    elif damage == "plan":
        (entry() / "plan.json").write_text("{")
    else:
        (entry() / "plan.json").write_text('{"version": 0, "side": 12, "channels": 3}')
    found = decode(files)
    assert found.n_decoded == (N_IMAGES - 4 if damage in ("pixels", "journal", "digit") else N_IMAGES)
    np.testing.assert_array_equal(found.pixels, pixels_by_hand(files))


@pytest.mark.parametrize("name", ["pixels.bin", "digests.bin", "index.json"])
@pytest.mark.parametrize("damage", ["missing", "empty", "cut", "flipped"])
def test_a_damaged_cache_is_made_again(name: str, damage: str, files: ImageFiles) -> None:
    decode(files)
    path = entry() / name
    content = bytearray(path.read_bytes())
    if damage == "missing":
        path.unlink()
    elif damage == "flipped":
        content[len(content) // 3] ^= 0x10
        path.write_bytes(content)
    else:
        path.write_bytes(content[: len(content) // 2 if damage == "cut" else 0])
    found = decode(files)
    np.testing.assert_array_equal(found.pixels, pixels_by_hand(files))
    assert found.n_decoded == N_IMAGES


def test_a_cache_of_another_version_is_made_again(files: ImageFiles) -> None:
    decode(files)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cache, "VERSION", cache.VERSION + 1)
        assert decode(files).n_decoded == N_IMAGES
        assert decode(files).n_decoded == 0
    assert decode(files).n_decoded == N_IMAGES


# The disk


def test_a_disk_that_fills_up_is_named_and_nothing_is_lost(files: ImageFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    real = decode_blocks.decode_block

    def fill_up(job: decode_blocks.DecodeJob, block: int, part: object) -> object:
        if block == 2:
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(job, block, part)

    monkeypatch.setattr(decode_blocks, "decode_block", fill_up)
    with pytest.raises(
        InputError, match=r"cannot be written \(No space left on device\); free some space, or set DPSSL_CACHE"
    ):
        decode(files)
    monkeypatch.setattr(decode_blocks, "decode_block", real)
    assert decode(files).n_decoded == N_IMAGES - 8


def test_too_small_a_disk_is_told_before_decoding(files: ImageFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache.shutil, "disk_usage", lambda _: SimpleNamespace(free=1000))
    with pytest.raises(InputError, match=r"takes 0\.0 GB, but 0\.0 GB are free; set DPSSL_CACHE"):
        decode(files)


def test_a_cache_that_cannot_be_made(files: ImageFiles, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    monkeypatch.setenv("DPSSL_CACHE", str(tmp_path / "file"))
    with pytest.raises(InputError, match=r"cannot be written .*set DPSSL_CACHE"):
        decode(files)
