"""Resolve the answers of many annotators, of whom each saw only some of the items.

    python examples/crowd_votes.py                # simulated annotators, from careful to guessing
    python examples/crowd_votes.py answers.csv    # yours: the columns task, worker and label, one answer a line

A table with a row per item and a column per annotator is read as well, and an .npz with an array `votes` (-1 where
unseen). If such a file carries the true labels (`y`), they only score the result.
"""

import argparse

import numpy as np

from dpssl import LabelModel
from dpssl.label_model import VoteTable, read_votes

ABSTAIN = -1


def simulate(n_items=1000, n_annotators=25, n_classes=4, answers_per_item=5, seed=0):
    """Answers (n, K) and the truth (n,). A fifth of the annotators guess, and some confuse class 0 with class 1."""
    rng = np.random.default_rng(seed)
    truth = rng.integers(0, n_classes, n_items)
    skill = np.where(np.arange(n_annotators) % 5 == 0, 0.0, rng.uniform(0.5, 0.9, n_annotators))
    confused = np.arange(n_annotators) % 5 == 1
    votes = np.full((n_items, n_annotators), ABSTAIN)
    for item in range(n_items):
        for annotator in rng.choice(n_annotators, answers_per_item, replace=False):
            knows = rng.random() < skill[annotator]
            votes[item, annotator] = truth[item] if knows else rng.integers(n_classes)
            if knows and confused[annotator] and truth[item] == 0:
                votes[item, annotator] = 1
    return votes, truth


def main(arguments=None):
    parser = argparse.ArgumentParser(description="Resolve the answers of many annotators.")
    parser.add_argument("answers", nargs="?", help="an .npz, .npy, .csv or .parquet file; simulated without one")
    path = parser.parse_args(arguments).answers
    if path:
        table = read_votes(path)
    else:
        answers, truth = simulate()
        table = VoteTable(answers, y=truth)
    votes, truth = table.votes, table.y

    model = LabelModel().fit(table)
    majority = LabelModel(variant="majority").fit(table)
    per_item = (votes != ABSTAIN).sum(1)
    print(
        f"{len(votes):,} items, {votes.shape[1]} annotators, {len(model.classes_)} classes, "
        f"{per_item.mean():.1f} answers an item"
    )

    print("\nannotator  answers  estimated accuracy")
    summary = model.lf_summary()
    for annotator in np.argsort(-np.nan_to_num(summary.estimated_accuracy), kind="stable"):
        accuracy, error = summary.estimated_accuracy[annotator], summary.standard_error[annotator]
        name = summary.lf_names[annotator] if summary.lf_names else annotator
        print(f"{name:>9}  {summary.n_votes[annotator]:>7.0f}  {accuracy:>9.1%} ± {error:.1%}")

    differs = majority.predict(votes, tie_break="lowest") != model.predict(votes, tie_break="lowest")
    print(f"\n{differs.sum():,} items get another label than the majority's")
    if truth is not None:
        print("accuracy (m tied classes count 1/m each):")
        print(f"  majority vote  {majority.score(votes, truth):.1%}")
        print(f"  LabelModel     {model.score(votes, truth):.1%}")


if __name__ == "__main__":
    main()
