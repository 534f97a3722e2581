"""`dpssl data fetch`: a published set from its publisher, or from a mirror, into a data folder where `--data` finds it.

An archive is unpacked to the folder that the set is published in, its listed files alone, and then removed, unless it
was there before.
"""

import os
from collections.abc import Callable
from pathlib import Path

from dpssl.data.published.catalog import PUBLISHED, Download
from dpssl.data.published.download import download, md5_of
from dpssl.data.published.files import unpack
from dpssl.data.published.read import cache_folder
from dpssl.errors import InputError


def default_folder() -> Path:
    """The folder DPSSL_DATA names, else the cache: both are looked into by `--data`."""
    return Path(os.environ["DPSSL_DATA"]).expanduser() if os.environ.get("DPSSL_DATA") else cache_folder()


def fetch_published(name: str, to: Path, mirror: str = "", say: Callable[[str], None] = print) -> Path:
    """Get what of the set is not there yet; returns the folder with its files."""
    if name not in PUBLISHED:
        raise InputError(f"{name!r} is no published set; choose one of {', '.join(PUBLISHED)}")
    published = PUBLISHED[name]
    layout = published.layouts[0]
    folder = to / layout.folders[0]
    if not layout.archive:
        for file in published.downloads:
            _get(file, folder / file.file, mirror, say)
        return folder
    if all((folder / file).is_file() for file in layout.files):
        say(f"{folder}: is there")
        return folder
    archive = to / layout.archive
    (file,) = published.downloads
    downloaded = _get(file, archive, mirror, say)
    unpack(archive, layout.folders[0], layout.files, folder, f"dpssl data fetch {name}")
    if downloaded:
        archive.unlink(missing_ok=True)
    say(f"{folder}: unpacked")
    return folder


def _get(file: Download, target: Path, mirror: str, say: Callable[[str], None]) -> bool:
    """Whether it had to be downloaded."""
    if target.is_file() and md5_of(target) == file.md5:
        say(f"{target}: is there, checksum right")
        return False
    url = f"{mirror.rstrip('/')}/{file.file}" if mirror else file.url
    say(f"{target}: from {url}")
    download(url, target, file.md5)
    say(f"{target}: checksum right")
    return True
