"""Seeds of the random streams of a run: one for each purpose, independent of each other and of those of other runs."""

import hashlib


def stream_seed(seed: int, purpose: str) -> int:
    """The seed of the stream that `purpose` names in the run of `seed`; below 2^63, as torch wants it."""
    digest = hashlib.sha256(f"{seed} {purpose}".encode()).digest()
    return int.from_bytes(digest[:8], "little") >> 1
