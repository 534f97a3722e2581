"""Exports appear whole or not at all, and replace nothing that is not theirs."""

from pathlib import Path

import pytest

from dpssl.errors import RunFolderError
from dpssl.export.place import NOTE, new_file, new_folder


def contents(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*")}


def test_a_file_is_there_only_when_it_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "new" / "labels.csv"
    with pytest.raises(ZeroDivisionError), new_file(path) as draft:
        raise ZeroDivisionError(draft.write_text("half"))
    assert contents(tmp_path) == {"new"}
    with new_file(path) as draft:
        draft.write_text("whole")
        assert not path.exists()
    assert path.read_text() == "whole"


def test_a_file_is_replaced_only_on_request(tmp_path: Path) -> None:
    path = tmp_path / "labels.csv"
    path.write_text("old")
    with pytest.raises(RunFolderError, match="never overwritten; choose another --out, or --redo"), new_file(path):
        pytest.fail("refused before the work")
    with pytest.raises(ZeroDivisionError), new_file(path, redo=True):
        raise ZeroDivisionError
    assert path.read_text() == "old"
    with new_file(path, redo=True) as draft:
        draft.write_text("new")
    assert contents(tmp_path) == {"labels.csv"}


def test_a_folder_is_replaced_only_on_request_and_only_if_dpssl_made_it(tmp_path: Path) -> None:
    path = tmp_path / "tree"
    with new_folder(path, False, {"to": "x"}) as draft:
        (draft / "one").write_text("1")
    assert contents(path) == {"one", NOTE}
    with pytest.raises(RunFolderError, match="--redo"), new_folder(path, False, {}):
        pytest.fail("refused before the work")
    with pytest.raises(ZeroDivisionError), new_folder(path, True, {}):
        raise ZeroDivisionError
    assert contents(path) == {"one", NOTE}
    with new_folder(path, True, {}) as draft:
        (draft / "two").write_text("2")
    assert contents(tmp_path) == {"tree", "tree/two", f"tree/{NOTE}"}

    photos = tmp_path / "photos"
    photos.mkdir()
    (photos / "holiday.jpg").write_text("dear")
    with pytest.raises(RunFolderError, match="no export of dpssl"), new_folder(photos, True, {}):
        pytest.fail("refused before the work")
    assert contents(photos) == {"holiday.jpg"}


def test_links_files_and_folders_are_not_taken_for_each_other(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    for name in ("file", "link"):
        with pytest.raises(RunFolderError), new_folder(tmp_path / name, True, {}):
            pytest.fail("refused before the work")
    with pytest.raises(RunFolderError), new_file(tmp_path, redo=True):
        pytest.fail("refused before the work")


def test_an_empty_folder_may_be_filled_and_what_a_kill_left_goes(tmp_path: Path) -> None:
    path = tmp_path / "tree"
    path.mkdir()
    (tmp_path / ".tree.unfinished").mkdir()
    for name in ("stale", NOTE):
        (tmp_path / ".tree.unfinished" / name).write_text("x")
    with new_folder(path, False, {}) as draft:
        assert contents(draft) == {NOTE}
    assert contents(tmp_path) == {"tree", f"tree/{NOTE}"}


def test_a_stranger_in_the_place_of_the_draft_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / ".tree.unfinished").mkdir()
    (tmp_path / ".tree.unfinished" / "mine").write_text("x")
    with pytest.raises(RunFolderError, match="cannot be written"), new_folder(tmp_path / "tree", False, {}):
        pytest.fail("refused before the work")
    assert contents(tmp_path) == {".tree.unfinished", ".tree.unfinished/mine"}


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(RunFolderError, match="cannot be written"), new_file(tmp_path / "file" / "labels.csv"):
        pytest.fail("there is no such folder")
