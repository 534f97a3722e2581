"""File names from hostile text: one component, inside the folder, distinct on any file system."""

import unicodedata

from hypothesis import example, given
from hypothesis import strategies as st

from dpssl.export.names import DEVICES, LONGEST, printable_names, safe_name, safe_names


@given(st.lists(st.text(st.characters(), max_size=200), unique=True, max_size=20))
@example(["A", "a", "Ａ"])
@example(["a/b", "a_b", "a\\b", "a:b"])
@example(["x" * 500 + ".png", "x" * 501 + ".png"])
def test_names_are_safe_and_distinct(texts: list[str]) -> None:
    names = safe_names(texts)
    assert len({unicodedata.normalize("NFKC", name).casefold() for name in names}) == len(texts)
    for name in names:
        assert name.isprintable()
        assert not set(name) & set('/\\<>:"|?*\0')
        assert name not in ("", ".", "..")
        assert not name.startswith(".")
        assert not name.endswith((".", " "))
        assert 0 < len(name.encode()) <= LONGEST
        assert name.split(".")[0].upper() not in DEVICES


def test_plain_names_stay_as_they_are() -> None:
    plain = ["cat.png", "IMG 0001 (2).jpeg", "größe.webp", "archive.tar.gz", "猫.png"]
    assert safe_names(plain) == plain


def test_a_folder_in_an_id_becomes_part_of_the_name() -> None:
    assert safe_name("cats/grey/one.png") == "cats_grey_one.png"
    assert safe_name("../../x.png") == "_.._.._x.png"


def test_endings_survive_cutting_and_marking() -> None:
    first, second = safe_names(["x" * 300 + "1.jpeg", "x" * 300 + "2.jpeg"])
    assert first.endswith(".jpeg")
    assert second.endswith(".jpeg")
    one, other = safe_names(["a.png", "A.png"])
    assert one.startswith("a~")
    assert other.startswith("A~")
    assert one.endswith(".png")


def test_a_name_chosen_to_meet_another_does_not() -> None:
    marked = safe_names(["a", "A"])[0]
    fully = safe_names(["a", "A", marked])[0]
    texts = ["a", "A", marked, fully]
    assert len(set(map(str.casefold, safe_names(texts)))) == 4


def test_a_name_does_not_depend_on_the_order() -> None:
    texts = ["a/b", "a_b", "c", "C"]
    assert dict(zip(texts, safe_names(texts), strict=True)) == dict(
        zip(reversed(texts), safe_names(reversed(texts)), strict=True)
    )


def test_class_names_that_look_the_same_stay_apart() -> None:
    names = printable_names(("a\x01", "a\x02", "", "b", " b", "a\ufffd (class 0)"))
    assert len(set(names)) == 6
    assert all(name and name.isprintable() for name in names)
    assert printable_names(("cat", "Cat", "=1")) == ["cat", "Cat", "=1"]
