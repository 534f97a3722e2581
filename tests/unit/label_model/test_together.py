"""What several sources say together, and which of it is surest."""

import numpy as np
import pytest

from dpssl.label_model.together import FLOOR, common_labels, left_to_some, lost_pairs, surest, without_say


def test_the_geometric_mean_of_what_they_say() -> None:
    found = common_labels(np.array([[[0.6, 0.4]], [[0.3, 0.7]]]), np.ones((2, 1)))
    means = np.sqrt(np.array([0.6 * 0.3, 0.4 * 0.7]))
    assert found == pytest.approx(means[None] / means.sum())


def test_sources_that_say_the_same_are_no_surer_together() -> None:
    soft_labels = np.tile(np.array([[0.7, 0.2, 0.1]]), (3, 1, 1))
    assert common_labels(soft_labels, np.ones((3, 1))) == pytest.approx(soft_labels[0])


def test_two_sure_ones_that_disagree_leave_it_open() -> None:
    found = common_labels(np.array([[[0.99, 0.005, 0.005]], [[0.005, 0.99, 0.005]]]), np.ones((2, 1)))
    assert found[0, 0] == pytest.approx(found[0, 1])
    assert found[0, 0] < 0.5


def test_a_source_without_a_vote_leaves_the_others_word() -> None:
    prior, word = [0.9, 0.1], [0.2, 0.8]
    found = common_labels(np.array([[word, prior], [prior, prior]]), np.array([[True, False], [False, False]]))
    assert found[0] == pytest.approx(word)
    assert found[1] == pytest.approx(prior), "and where nobody speaks the class shares stay"


def test_a_source_that_is_certain_can_be_outvoted() -> None:
    certain, doubting = [1.0, 0.0], [1e-9, 1 - 1e-9]
    found = common_labels(np.array([[certain], [doubting], [doubting]]), np.ones((3, 1)))
    assert np.isfinite(found).all()
    assert found.argmax() == 1


def test_a_weight_counts_a_source_several_times() -> None:
    rng = np.random.default_rng(2)
    first, second = rng.dirichlet(np.ones(4), (2, 5))
    three = common_labels(np.stack([first, first, second]), np.ones((3, 5)))
    weight = np.repeat([[2], [1]], 5, axis=1)
    assert common_labels(np.stack([first, second]), weight) == pytest.approx(three)


def test_a_source_without_say_still_says_that_it_is_one_of_the_two() -> None:
    found = without_say(np.array([[0.1, 0.7, 0.2], [0.5, 0.2, 0.3]]), [(1, 2)])
    assert found == pytest.approx(np.array([[0.1, 0.45, 0.45], [0.5, 0.25, 0.25]]))
    together = common_labels(np.stack([found, np.array([[0.2, 0.1, 0.7], [0.2, 0.6, 0.2]])]), np.ones((2, 2)))
    assert together[:, 2] / together[:, 1] == pytest.approx(np.sqrt([7, 1 / 3])), "the other one decides"


def test_pairs_that_share_a_class_are_taken_together() -> None:
    soft_labels = np.array([[0.4, 0.1, 0.2, 0.3]])
    for pairs in ([(0, 1), (1, 3)], [(1, 3), (0, 1)], [(0, 3), (0, 1), (1, 3)]):
        assert without_say(soft_labels, pairs) == pytest.approx(np.array([[0.8 / 3, 0.8 / 3, 0.2, 0.8 / 3]]))
    assert without_say(soft_labels, []) == pytest.approx(soft_labels)


def test_the_surest_by_the_odds_of_the_first_class_over_the_second() -> None:
    proba = np.array([[0.5, 0.49, 0.01], [0.4, 0.3, 0.3], [0.9, 0.05, 0.05], [0.35, 0.33, 0.32]])
    assert surest(proba, np.ones(len(proba)), 2).tolist() == [1, 2]
    assert surest(proba, np.ones(len(proba)), 4).tolist() == [0, 1, 2, 3]
    assert surest(proba, np.ones(len(proba)), 0).tolist() == []


def test_a_class_that_is_never_sure_keeps_its_share() -> None:
    rng = np.random.default_rng(0)
    sure = 0.9 + 0.09 * rng.random(60)
    unsure = 0.5 + 0.1 * rng.random(40)
    proba = np.concatenate([np.stack([sure, 1 - sure], 1), np.stack([1 - unsure, unsure], 1)])
    chosen = surest(proba, np.ones(len(proba)), 50)
    assert len(chosen) == 50
    hard = chosen[chosen >= 60]
    assert len(hard) == FLOOR * 0.5 * 40, "half of what an even share would be"
    assert proba[hard, 1].min() >= np.sort(unsure)[-len(hard)], "and the surest of them"


def test_as_many_as_wanted_whatever_the_classes() -> None:
    rng = np.random.default_rng(1)
    soft_labels = rng.dirichlet(np.ones(7), 201)
    for n_wanted in (1, 10, 100, 201):
        assert len(surest(soft_labels, np.ones(len(soft_labels)), n_wanted)) == n_wanted


def test_certainty_is_an_odds_like_any_other() -> None:
    soft_labels = np.array([[1.0, 0.0], [0.6, 0.4], [0.0, 1.0]])
    assert surest(soft_labels, np.ones(len(soft_labels)), 2).tolist() == [0, 2]


def test_two_that_agree_go_before_one_alone() -> None:
    soft_labels = np.array([[0.99, 0.01], [0.995, 0.005], [0.6, 0.4]])
    assert surest(soft_labels, np.array([2, 1, 2]), 1).tolist() == [0]


def test_rows_that_are_equally_sure_come_from_all_classes() -> None:
    label = np.repeat(np.arange(4), 50)  # sorted by class, as a folder a class is
    soft_labels = np.eye(4)[label]
    chosen = surest(soft_labels, np.full(200, 2), 80)
    assert np.bincount(label[chosen]).tolist() == [20, 20, 20, 20]


def test_a_tie_is_not_trusted() -> None:
    soft_labels = without_say(np.array([[0.3, 0.6, 0.1], [0.1, 0.1, 0.8], [0.2, 0.6, 0.2]]), [(0, 1)])
    assert surest(soft_labels, np.ones(3), 3).tolist() == [1]


@pytest.mark.parametrize(
    ("pairs", "no_say"),
    [
        ([[], [(1, 3)]], [[], [(1, 3)]]),
        ([[(1, 3)], [(1, 3)]], [[], []]),  # of all: all are heard
        ([[(0, 1), (2, 3)], [(0, 1)]], [[(2, 3)], []]),
        ([[(0, 1)], [(2, 3)]], [[(0, 1)], [(2, 3)]]),
        ([[(0, 1), (1, 2), (0, 2)], [(0, 2)]], [[], []]),  # 0 and 2 would be left to none, by way of 1
        ([[(0, 1), (1, 2)], [(0, 2)]], [[], []]),
        ([[(0, 1), (1, 2)], [(0, 2)], []], [[(0, 1), (1, 2)], [(0, 2)], []]),
    ],
)
def test_every_pair_of_classes_is_left_to_someone(
    pairs: list[list[tuple[int, int]]], no_say: list[list[tuple[int, int]]]
) -> None:
    assert left_to_some(pairs, 5) == no_say


def test_a_class_that_a_source_has_lost_is_told_with_those_it_has_taken_it_for() -> None:
    first = np.repeat([0, 1, 2, 3], 100)
    second = first.copy()
    second[100:180] = 3  # of the other's 1s it calls 80 so, 15 a 2, and 5 what they are
    second[180:195] = 2
    second[0] = -1  # says nothing of it
    assert lost_pairs(np.stack([first, second]), np.full(4, 0.25)) == [[], [(1, 2), (1, 3)]]
    second[180:195] = 1  # 20 of 100 are still lost
    assert lost_pairs(np.stack([first, second]), np.full(4, 0.25)) == [[], [(1, 3)]]
    assert lost_pairs(np.stack([first, second]), np.array([0.27, 0.06, 0.27, 0.4])) == [[], []], "a rare class"


def test_who_says_nothing_of_most_images_has_lost_no_class() -> None:
    first = np.tile(np.arange(4), 50)
    second = np.where(np.arange(200) < 40, first, -1)
    assert lost_pairs(np.stack([first, second]), np.full(4, 0.25)) == [[], []]


def test_an_accuser_that_is_wrong_itself_takes_no_say_where_nothing_was_taken_in() -> None:
    truth = np.repeat(np.arange(5), 100)
    lossy, overfull = truth.copy(), truth.copy()
    lossy[300:360] = 4  # of the 3s 60 are 4s to it,
    overfull[:300:2] = 3  # and to the other half of all 0s, 1s and 2s are 3s
    shares = np.full(5, 0.2)
    assert lost_pairs(np.stack([lossy, overfull]), shares)[0] == [(3, 4)]
    all_one = np.full(500, 3)
    assert lost_pairs(np.stack([lossy, truth, all_one]), shares)[:2] == [[(3, 4)], []]
    assert lost_pairs(np.stack([lossy, truth, all_one]), shares)[2] == [(0, 3), (1, 3), (2, 3), (3, 4)]


def test_half_of_a_class_is_not_lost() -> None:
    first = np.repeat([0, 1], 100)
    second = np.where(np.arange(200) < 150, 0, 1)
    assert lost_pairs(np.stack([first, second]), np.full(2, 0.5)) == [[], []]
    second[150] = 0
    assert lost_pairs(np.stack([first, second]), np.full(2, 0.5)) == [[], [(0, 1)]]


def test_a_class_that_nobody_finds_is_nobody_s_loss() -> None:
    labels = np.zeros((2, 10), np.int64)
    assert lost_pairs(labels, np.full(3, 1 / 3)) == [[], []]


def test_a_source_that_has_lost_a_class_leaves_it_to_the_others() -> None:
    rng = np.random.default_rng(3)
    truth = np.repeat([0, 1, 2], 200)
    good = np.eye(3)[truth] * 0.9 + 0.05 + 0.01 * rng.random((600, 3))
    lossy = good.copy()
    lossy[200:400] = np.array([0.001, 0.004, 0.995])  # sure of all 1s: they are 2s
    soft_labels = np.stack([good, lossy]) / np.stack([good, lossy]).sum(2, keepdims=True)
    weight = np.ones((2, 600))
    assert (common_labels(soft_labels, weight).argmax(1) == truth).mean() < 0.7
    no_say = left_to_some(lost_pairs(soft_labels.argmax(2), np.full(3, 1 / 3)), 3)
    assert no_say == [[], [(1, 2)]]
    heard = np.stack([without_say(of_source, pairs) for of_source, pairs in zip(soft_labels, no_say, strict=True)])
    assert (common_labels(heard, weight).argmax(1) == truth).all()
