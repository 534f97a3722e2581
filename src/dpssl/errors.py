"""Errors a user can act on: each message names the flag, file or row, the value met, and what to do.

The command line prints the message alone and exits with status 2; anything else that is raised is a bug.
"""

import tokenize
import zipfile
import zlib

# What numpy and zipfile raise for bytes that are no archive of plain arrays, found by overwriting every byte of one.
UNREADABLE_NPZ = (
    OSError, ValueError, EOFError, KeyError, AttributeError, RuntimeError, zipfile.BadZipFile, zlib.error,
    tokenize.TokenError,
)  # fmt: skip


class DPSSLError(Exception):
    """Base of every error that is the input's fault, not the program's."""


class InputError(DPSSLError, ValueError):
    """A value the user gave is unusable."""


class RunFolderError(DPSSLError, OSError):
    """A run folder cannot be read, written or resumed."""


class ReportedElsewhere(DPSSLError):
    """Another process of the same run failed and says why; this one ends without a word."""


class TrainingError(DPSSLError, RuntimeError):
    """Training cannot go on: a diverging loss, no device memory, no such device."""


def require_utf8(flag: str, path: str) -> None:
    """An error where the path holds bytes that the files of a run, which are UTF-8, cannot."""
    try:
        path.encode()
    except UnicodeEncodeError:
        shown = path.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
        raise InputError(f"{flag} {shown}: its name is not UTF-8, which the files of a run are; rename it") from None
