"""What is said of labeling functions, against counts made one vote at a time."""

import numpy as np

from dpssl.report.lf_statistics import describe_lfs
from dpssl.step_files import VoteFile


def vote_file(votes: np.ndarray, n_classes: int = 3) -> VoteFile:
    n, n_lfs = votes.shape
    names = tuple(map(str, range(n_classes)))
    everything = np.ones((n_lfs, n_classes), dtype=bool)
    return VoteFile(votes, np.ones(votes.shape), everything, np.array([f"{row}" for row in range(n)]), names)


def test_shares_match_a_slow_count() -> None:
    votes = np.random.default_rng(1).integers(-1, 3, (50, 5))
    found = describe_lfs(vote_file(votes))
    for lf in range(5):
        rows = [row for row in votes if row[lf] != -1]
        others = [[vote for at, vote in enumerate(row) if at != lf and vote != -1] for row in rows]
        assert found.coverage[lf] == len(rows) / 50
        assert found.overlaps[lf] == sum(bool(other) for other in others) / 50
        differing = sum(any(vote != row[lf] for vote in other) for row, other in zip(rows, others, strict=True))
        assert found.conflicts[lf] == differing / 50
        for label in range(3):
            assert found.vote_shares[lf, label] == (votes[:, lf] == label).sum() / 50
        for other in range(5):
            both = [(a, b) for a, b in votes[:, [lf, other]] if a != -1 and b != -1]
            np.testing.assert_allclose(found.agreement[lf, other], sum(a == b for a, b in both) / len(both), rtol=1e-6)


def test_dead_and_copied_lfs_are_named() -> None:
    votes = np.random.default_rng(2).integers(-1, 3, (200, 5))
    votes[:, 1] = -1
    votes[:, 4] = votes[:, 2]
    votes[0, 4] = (votes[0, 2] + 1) % 3
    found = describe_lfs(vote_file(votes))
    assert found.dead == [1]
    assert found.copies == [[2, 4]]
    assert np.isnan(found.agreement[1]).all(), "two dead ones are no copies of each other"


def test_lfs_that_never_meet_have_no_agreement() -> None:
    found = describe_lfs(vote_file(np.array([[0, -1], [-1, 1]])))
    assert np.isnan(found.agreement[0, 1])
    assert found.mean_agreement == 0
    assert found.copies == []
