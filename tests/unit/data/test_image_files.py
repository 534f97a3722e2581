"""Which files below a folder are images: depth, suffixes, links, loops, names."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from dpssl.data.decode import DamagedImage
from dpssl.data.image_files import BACKSLASH, LEADS_OUT, NOT_UTF8, find_images, printable, read_image
from dpssl.errors import InputError

Photos = Callable[..., Path]


def ids(folder: Path, **options: bool) -> list[str]:
    return [file.id for file in find_images(folder, **options).files]


def test_images_at_any_depth_in_order_and_nothing_else(photos: Photos) -> None:
    root = photos("b/deep/down/2.PNG", "1.jpg", "a/3.tiff", ".hidden/4.png", ".5.png", "__MACOSX/6.png")
    (root / "notes.txt").write_text("not an image")
    (root / "folder.png").mkdir()
    assert ids(root) == ["1.jpg", "a/3.tiff", "b/deep/down/2.PNG"]


def test_names_that_differ_by_case_are_two_images(photos: Photos) -> None:
    root = photos("a.png", "A.png")
    if len(list(root.iterdir())) == 1:
        pytest.skip("this disk does not tell them apart")
    assert ids(root) == ["A.png", "a.png"]


def test_links_that_lead_out_are_skipped_unless_followed(photos: Photos) -> None:
    outside = photos("secret.png", "more/x.png", folder="outside")
    root = photos("1.png")
    (root / "out.png").symlink_to(outside / "secret.png")
    (root / "folder").symlink_to(outside / "more")
    (root / "inside.png").symlink_to(root / "1.png")
    found = find_images(root)
    assert [file.id for file in found.files] == ["1.png", "inside.png"]
    assert found.skipped == [("out.png", LEADS_OUT)]
    assert ids(root, follow_links=True) == ["1.png", "folder/x.png", "inside.png", "out.png"]


@pytest.mark.parametrize("follow_links", [False, True])
def test_loops_of_links_end(photos: Photos, follow_links: bool, tmp_path: Path) -> None:
    root = photos("a/1.png")
    (root / "a" / "up").symlink_to(root)
    (root / "self").symlink_to(root / "self")
    (root / "self.png").symlink_to(root / "self.png")
    away = photos("2.png", folder="away")
    (away / "back").symlink_to(root)
    (away / "again").symlink_to(away)
    (root / "away").symlink_to(away)
    found = find_images(root, follow_links)
    assert [file.id for file in found.files] == (["a/1.png", "away/2.png"] if follow_links else ["a/1.png"])
    assert [name for name, _ in found.skipped] == ["self.png"]


@pytest.mark.parametrize("depth", ["..", "../.."])
def test_a_link_to_a_folder_above_finds_each_image_once(photos: Photos, depth: str) -> None:
    photos("beside.png", folder="set")
    root = photos("1.png", "deep/2.png", folder="set/photos")
    (root / "up").symlink_to(depth)
    above = "up/" if depth == ".." else "up/set/"
    assert ids(root, follow_links=True) == ["1.png", "deep/2.png", f"{above}beside.png"]
    assert ids(root) == ["1.png", "deep/2.png"]


def test_two_links_to_one_folder_and_to_the_one_around_it(photos: Photos) -> None:
    outside = photos("inner/1.png", "2.png", folder="outside")
    root = photos("3.png")
    (root / "a").symlink_to(outside / "inner")
    (root / "b").symlink_to(outside)
    assert ids(root, follow_links=True) == ["3.png", "a/1.png", "b/2.png"]


def test_links_to_nothing_are_skipped(photos: Photos) -> None:
    root = photos("1.png")
    (root / "gone.png").symlink_to(root / "nowhere.png")
    ((name, reason),) = find_images(root).skipped
    assert (name, "cannot be read" in reason) == ("gone.png", True)


def test_names_that_are_not_utf8_are_skipped(photos: Photos) -> None:
    root = photos("1.png")
    try:
        Path(os.fsdecode(os.fsencode(root) + b"/caf\xe9.png")).write_bytes(b"")
    except OSError:
        pytest.skip("this disk takes UTF-8 only")
    assert find_images(root).skipped == [("caf\\xe9.png", NOT_UTF8)]


def test_names_with_a_backslash_are_skipped(photos: Photos) -> None:
    if os.sep == "\\":
        pytest.skip("there it parts folders")
    assert find_images(photos("1.png", "a\\b.png")).skipped == [("a\\b.png", BACKSLASH)]


def test_names_others_chose_cannot_steer_a_terminal() -> None:
    assert printable("a\x1b[31m\n\u202eb é.png") == "a\\x1b[31m\\n\\u202eb é.png"


def test_a_folder_that_cannot_be_listed_is_named(photos: Photos, monkeypatch: pytest.MonkeyPatch) -> None:
    root = photos("closed/1.png")
    listing = os.scandir

    def refuse(path: Path) -> object:
        if str(path).rstrip("/").endswith("closed"):
            raise PermissionError(13, "Permission denied")
        return listing(path)

    monkeypatch.setattr(os, "scandir", refuse)
    with pytest.raises(InputError, match=r"closed/? cannot be listed \(Permission denied\)"):
        find_images(root)


def test_a_file_that_is_gone_or_enormous_is_damaged(photos: Photos) -> None:
    root = photos("1.png")
    (file,) = find_images(root).files
    with pytest.raises(DamagedImage, match="at most"):
        read_image(root, file._replace(size=1 << 40))
    (root / "1.png").unlink()
    with pytest.raises(DamagedImage, match="cannot be read"):
        read_image(root, file)
