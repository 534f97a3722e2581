"""Settings with which a method was published on one set or number of labels, where they are not its defaults.

Sources: MixMatch's paper (Sec. 4.2) and scripts; ReMixMatch's scripts; USADTM's code, for how many images join a class;
FreeMatch's range of thresholds for SVHN. What the defaults are from stands in the head of each method's file.
"""

ALL = 0  # every number of labels that has no line of its own

PUBLISHED: dict[tuple[str, str], dict[int, tuple[str, ...]]] = {
    ("mixmatch", "cifar100"): {ALL: ("unlabeled_weight=150.0",)},
    ("mixmatch", "svhn"): {ALL: ("unlabeled_weight=250.0",)},
    ("mixmatch", "stl10"): {ALL: ("unlabeled_weight=50.0",)},
    ("remixmatch", "cifar10"): {40: ("n_strong=1", "rotation_weight=2.0", "ramp_steps=131072")},
    ("remixmatch", "svhn"): {40: ("n_strong=1", "rotation_weight=3.0")},
    ("remixmatch", "stl10"): {ALL: ("n_strong=4",)},
    ("usadtm", "cifar10"): {250: ("n_joining=50",), 4000: ("n_joining=800",)},
    ("usadtm", "cifar100"): {2500: ("n_joining=50",), 10000: ("n_joining=200",)},
    ("usadtm", "svhn"): {250: ("n_joining=50",), 1000: ("n_joining=200",)},
    ("usadtm", "stl10"): {250: ("n_joining=50",), 1000: ("n_joining=200",)},
    ("freematch", "svhn"): {ALL: ("least_threshold=0.9", "most_threshold=0.95")},
}


def published_settings(method: str, data: str, n_labels: int) -> tuple[str, ...]:
    """What `--method-settings` takes there, as name=value; nothing where the defaults hold."""
    of_set = PUBLISHED.get((method, data), {})
    return of_set.get(n_labels, of_set.get(ALL, ()))
