"""The values that stand for "no class" at borders of the package (Snorkel's and scikit-learn's convention)."""

ABSTAIN = -1  # a labeling function that says nothing
UNLABELED = -1  # an image without a given label
LEFT_OUT = -2  # among the labels that training sees: an image of none of the classes, which it must not draw
