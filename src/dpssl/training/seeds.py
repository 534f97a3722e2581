"""Seeds of the random streams of a run: one for each purpose, independent of each other and of those of other runs."""

import hashlib

from dpssl.config import RunConfig


def stream_seed(run: RunConfig, purpose: str) -> int:
    """The seed of the stream that `purpose` names, by `--seed` and `--repeat`; below 2^63, as torch wants it."""
    again = f" {run.repeat}" if run.repeat else ""
    digest = hashlib.sha256(f"{run.seed} {purpose}{again}".encode()).digest()
    return int.from_bytes(digest[:8], "little") >> 1
