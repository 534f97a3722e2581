"""Which settings the systems beside DP-SSL (`--method`) have no use for."""

from dpssl.config.files import options

# What they take of the sections that are otherwise DP-SSL's own.
SHARED = (
    *("steps", "batch_size", "unlabeled_ratio", "labeled_in_unlabeled", "window"),
    *("joint_forward", "weak_gradient", "class_prior"),
)


def of_dp_ssl_alone() -> frozenset[str]:
    """Names of the settings that only DP-SSL's own three steps use."""
    sections = ("labeling", "label_model", "end_model")
    return frozenset(entry.name for entry in options() if entry.section in sections and entry.name not in SHARED)
