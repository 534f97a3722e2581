"""Names made from ids and class names, which others chose: for files, columns and choices, safe and all distinct.

A file name is one path component. `../x`, `a/b`, control characters, names of devices and names that differ only by
case or by Unicode's spelling: none leaves its folder, and no two meet.
"""

import hashlib
import unicodedata
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import PurePosixPath

LONGEST = 120  # bytes in UTF-8; file systems take 255
FORBIDDEN = frozenset('<>:"/\\|?*')  # separators, and what Windows refuses
DEVICES = frozenset(
    ["CON", "PRN", "AUX", "NUL", *(f"{kind}{number}" for kind in ("COM", "LPT") for number in range(10))]
)


def safe_names(texts: Iterable[str]) -> list[str]:
    """A file name for each of `texts`, which differ. Where two would meet, both get a part of their checksum.

    Somebody may have chosen a text to be just that name; then all get their whole checksum, which cannot meet.
    """
    originals = list(texts)
    plain = [safe_name(text) for text in originals]
    counts = Counter(map(_as_compared, plain))
    names = [
        name if counts[_as_compared(name)] == 1 else _marked(name, text, 8)
        for name, text in zip(plain, originals, strict=True)
    ]
    if len(set(map(_as_compared, names))) == len(names):
        return names
    return [_marked(name, text, 64) for name, text in zip(plain, originals, strict=True)]


def printable_names(class_names: Sequence[str]) -> list[str]:
    """The names as XML and column names can hold them: what cannot be printed is replaced, what then meets numbered."""
    shown = ["".join(letter if letter.isprintable() else "\ufffd" for letter in name).strip() for name in class_names]
    numbered = [f"{name} (class {c})" for c, name in enumerate(shown)]
    counts = Counter(shown)
    names = [name if name and counts[name] == 1 else numbered[c] for c, name in enumerate(shown)]
    return names if len(set(names)) == len(names) else numbered


def safe_name(text: str) -> str:
    """One path component that resembles `text`."""
    letters = (
        letter if letter.isprintable() and letter not in FORBIDDEN else "_"
        for letter in unicodedata.normalize("NFC", text)
    )
    name = "".join(letters).strip(" ").rstrip(" .") or "_"
    if name.startswith(".") or name.split(".")[0].upper().rstrip() in DEVICES:
        name = f"_{name}"
    return _cut(name, LONGEST).rstrip(" .")


def _marked(name: str, text: str, n_digits: int) -> str:
    mark = "~" + hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:n_digits]
    stem, suffix = _parts(name)
    return _cut(stem, LONGEST - len(mark) - len(suffix.encode())) + mark + suffix


def _cut(name: str, longest: int) -> str:
    """`name` in at most `longest` bytes, its ending kept."""
    if len(name.encode()) <= longest:
        return name
    stem, suffix = _parts(name)
    return stem.encode()[: longest - len(suffix.encode())].decode("utf-8", "ignore") + suffix


def _parts(name: str) -> tuple[str, str]:
    suffix = PurePosixPath(name).suffix
    return (name.removesuffix(suffix), suffix) if len(suffix.encode()) <= 16 else (name, "")


def _as_compared(name: str) -> str:
    """What a file system that ignores case and Unicode's spelling sees."""
    return unicodedata.normalize("NFKC", name).casefold()
