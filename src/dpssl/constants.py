"""The values that stand for "no class" at borders of the package (Snorkel's and scikit-learn's convention), how threads
wait, how much of what several runs agree on is trusted, and what helps against a rule by size.
"""

ABSTAIN = -1  # a labeling function that says nothing
UNLABELED = -1  # an image without a given label
LEFT_OUT = -2  # among the labels that training sees: an image of none of the classes, which it must not draw

# For the environment, before torch is imported. OpenMP's threads otherwise spin while they wait, and a step takes many
# times longer on a busy machine; threads that sleep at once are slow to wake. A thousand turns, some 30 µs, are enough:
# digits on two quiet cores 47 ms a step, with none 60, with 200,000 49; beside two busy processes 202 against 233.
THREADS_WAIT = {"OMP_WAIT_POLICY": "PASSIVE", "GOMP_SPINCOUNT": "1000"}

TRUSTED_SHARE = 0.7  # of the unlabelled images, in `dpssl combine`; 99.2 % of them are right in docs/combine.md
UNEXPLAINED_SHARE = 0.0  # of the images, there too: a run has no say about those that their class explains least

# Where classes are told apart by how much of the picture they fill (dpssl.end_model.sizes).
AGAINST_SIZE = "Without more labels: train again with --zoom 1.6."
