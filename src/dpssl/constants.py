"""The two values that stand for "no class" at every border of the package (Snorkel's and scikit-learn's convention)."""

ABSTAIN = -1  # a labeling function that says nothing
UNLABELED = -1  # an image without a given label
