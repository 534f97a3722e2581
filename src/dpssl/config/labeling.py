"""The settings of step 1, the longest section."""

from dataclasses import dataclass

from dpssl.config.section import Section, option
from dpssl.errors import InputError


@dataclass(frozen=True)
class LabelingConfig(Section):
    """Step 1: the labeling functions (LFs)."""

    n_lfs: int = option(50, "number of labeling functions, K", least=1)
    specialist_ratio: float = option(0.2, "share of the LFs that learn from one sample, rho", least=0, most=1)
    mcl: bool = option(True, "multiple-choice learning; off is the paper's Exp1: all LFs on all classes, none abstains")
    feature_transform: bool = option(True, "each LF pools around its own centre (Eq. 3); off is the paper's Exp2")
    assignment_entropy: float = option(
        0.92, "sharpness at the start: entropy of a position's assignment to the centres, in log K", least=0, most=1
    )
    sharpness_range: float = option(
        2.0, "factor of its start within which each LF's sharpness stays; 1 = fixed, 0 = free, as in Eq. 3", least=0
    )
    center_rate: float = option(
        1.0, "learning rate of the LFs' centres, as a share of the rest's; .1 keeps LFs alive that 1 may lose", least=0
    )
    lf_feature_norm: float = option(
        4.0, "norm of each LF's feature; its square scales the step that a learning rate is for the heads", least=1e-3
    )
    mcl_min_steps: int = option(100, "fewest steps of the first phase", least=1)
    mcl_max_steps: int = option(2000, "most steps of the first phase", least=1)
    mcl_window: int = option(
        50, "steps of the first phase whose mean loss the rule of its convergence looks at", least=1
    )
    mcl_tolerance: float = option(
        0.02, "the first phase has converged when two windows in a row gain less than this share of log C", least=0
    )
    specialist_share: float = option(
        0.5, "an LF specialises in a class of whose samples it wins at least this share", least=0, most=1
    )
    min_specialists: int = option(1, "a class with fewer gets the LFs that win it most often", least=0)
    confidence_threshold: float = option(0.95, "pseudo-labels below this are not trained on, epsilon", least=0, most=1)
    pseudo_labels: str = option(
        "own",
        "an unlabelled image's label for an LF: its own sure prediction (Eq. 6), or the LFs' consensus",
        choices=("own", "consensus"),
    )
    adaptive_threshold: bool = option(
        False, "with a consensus: FreeMatch's self-adaptive threshold in place of the fixed one"
    )
    least_threshold: float = option(
        0.0, "with an adaptive threshold: its lower limit, before it is scaled for each class", least=0, most=1
    )
    most_threshold: float = option(1.0, "with an adaptive threshold: its upper limit, likewise", least=0, most=1)
    thresholds_follow: str = option(
        "shares",
        "with an adaptive threshold: a class has a lower one if it is rarely predicted (shares, as in FreeMatch), or "
        "if its predictions are unsure (confidence)",
        choices=("shares", "confidence"),
    )
    curriculum_threshold: bool = option(
        False, "FlexMatch's thresholds in place of the fixed one: lower for what an LF is rarely sure of yet"
    )
    surest_first: float = option(
        0.0,
        "with a consensus: share of the second phase over which pseudo-labels grow from its surest twentieth to all",
        least=0,
        most=1,
    )
    abstain_view: str = option(
        "strong", "view the abstain pseudo-label is learnt on; Eq. 6 prints weak", choices=("strong", "weak")
    )
    abstain_weight: float = option(1.0, "weight of the abstain terms in Eq. 5 and 6; 1 in the paper", least=0)
    alignment: bool = option(
        False, "align predictions with their prior (an LF's own, or the classes') before thresholding"
    )
    alignment_decay: float = option(
        0.97, "decay of the running mean prediction that is aligned; .999 is usual for a million steps", least=0, most=1
    )
    backbone_gradient: str = option(
        "specialists",
        "gradient of the sum over LFs into the backbone: divided by K (mean), by rho K (specialists), or not (sum)",
        choices=("mean", "specialists", "sum"),
    )
    joint_forward: bool = option(
        True, "weak and strong views in one pass with common batch statistics, as in FixMatch; apart is faster"
    )
    weak_gradient: bool = option(
        True,
        "joint pass: backward through weak views too, as in FixMatch; false spares nearly half of the backward pass",
    )
    mcl_weight: float = option(1.0, "weight of Eq. 4 in the first phase", least=0)
    mcl_gradient: float = option(
        1.0, "share of the first phase's gradient that enters the backbone; none with --heads-first", least=0, most=1
    )
    labeled_weight: float = option(1.0, "weight of Eq. 5 in the second phase", least=0)
    unlabeled_weight: float = option(1.0, "weight of Eq. 6 in the second phase", least=0)
    heads_first: int = option(
        0,
        "first steps of the second phase, half at most, that train heads on labels; till then the backbone rests",
        least=0,
    )
    propagation_steps: int = option(
        0,
        "with a consensus and a start (--warm-steps, --backbone-weights): first steps of the second phase, half at "
        "most, in which it takes over from labels that have spread among neighbours in the start's features",
        least=0,
    )
    propagation_thresholds: bool = option(
        False, "with propagation: an adaptive threshold begins with what these labels are sure of, not with 1 / C"
    )
    unlabeled_warmup: int = option(
        0, "steps over which Eq. 6 rises to its weight; 0 = at once, as in the paper", least=0
    )
    steps: int = option(20000, "steps of the second phase", least=1)
    batch_size: int = option(64, "labelled images a step", least=1)
    unlabeled_ratio: int = option(7, "unlabelled images a step, per labelled one", least=1)
    labeled_in_unlabeled: bool = option(
        True, "draw labelled images as unlabelled ones too, as in FixMatch; also in step 3"
    )
    window: int = option(50, "steps of the second phase and of step 3 between two log lines", least=1)

    def __post_init__(self) -> None:
        super().__post_init__()
        if 0 < self.sharpness_range < 1:
            raise InputError(f"--sharpness-range {self.sharpness_range}: must be 0 or at least 1")
        if self.curriculum_threshold and self.adaptive_threshold:
            raise InputError("--curriculum-threshold true: not with --adaptive-threshold true; choose one of them")
        self.check_order("least_threshold", "most_threshold")
        if self.surest_first and self.pseudo_labels != "consensus":
            raise InputError(f"--surest-first {self.surest_first}: only with --pseudo-labels consensus")
