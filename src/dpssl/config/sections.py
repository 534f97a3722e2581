"""The settings, one section a subject. Names are unique across the sections, so flags need no prefix."""

import dataclasses
from dataclasses import dataclass, field

from dpssl.config.labeling import LabelingConfig
from dpssl.config.section import Section, option
from dpssl.errors import InputError

ALL_OPS = (
    "autocontrast",
    "brightness",
    "color",
    "contrast",
    "equalize",
    "identity",
    "posterize",
    "rotate",
    "sharpness",
    "shear_x",
    "shear_y",
    "solarize",
    "translate_x",
    "translate_y",
)

WIDE_RESNET, TIMM_PREFIX = "wide-resnet", "timm:"  # what --backbone may be
FROM_CACHE = "cache"  # a value of --backbone-weights
SIMCLR, BYOL = "simclr", "byol"  # what --warm-method may be
WARM_RATES = {SIMCLR: 0.4, BYOL: 0.2}  # learning rates for 512 images a step; docs/gpu.md

DP_SSL, FULLY_SUPERVISED = "dp-ssl", "fully-supervised"
METHODS = (
    DP_SSL,
    "pi-model",
    "pseudo-label",
    "mean-teacher",
    "mixmatch",
    "uda",
    "remixmatch",
    "fixmatch",
    "fixmatch-cta",
    "usadtm",
    "flexmatch",
    "freematch",
    "supervised",
    FULLY_SUPERVISED,
)
NO_METHOD = "none"  # a value of --second-method
SECOND_METHODS = (NO_METHOD, *(name for name in METHODS if name != FULLY_SUPERVISED))


@dataclass(frozen=True)
class RunConfig(Section):
    seed: int = option(1, "seed of the split, the weights and every draw", least=0, most=2**31)
    repeat: int = option(
        0, "another number trains again on the same labels and test images, with other weights and draws", least=0
    )
    device: str = option("auto", "cpu, cuda, or auto: cuda where there is one", choices=("auto", "cpu", "cuda"))
    max_minutes: float = option(
        0.0, "have a run done in this many minutes, or stopped cleanly, for `dpssl resume`; 0 = no limit", least=0
    )
    plan: bool = option(True, "with --max-minutes: choose network and steps that fit, where not given; off = only stop")
    checkpoint_minutes: float = option(2.0, "write a checkpoint at least this often", least=0)
    image_memory: str = option(
        "auto",
        "images on the device, streamed from the host, or auto: streamed where they take over half of its free memory",
        choices=("auto", "device", "stream"),
    )
    threads: int = option(
        0, "CPU threads; 0 = all cores. On one kind of CPU the same seed and thread count give the same bytes", least=0
    )
    report: bool = option(True, "write report.html, a page that shows the run, when a command is done with it")
    track: bool = option(False, "write the training curves for TensorBoard too (extra `track`)")


@dataclass(frozen=True)
class DataConfig(Section):
    data: str = option("digits", "digits, the name of a published set, a folder or TAR of images, an .npz or .npy file")
    labels: str = option("", ".csv or .parquet with the labels you have: a column of paths and one of classes")
    n_labels: int = option(40, "labels to reveal of a benchmark set, balanced over the classes", least=1)
    labels_per_class: int = option(
        0, "labels to reveal of each class, in place of --n-labels; 0 = as --n-labels", least=0
    )
    labeled_ids: str = option("", "file with the ids to label, one a line, in place of a seeded choice")
    fold: int = option(0, "choose the labels from this published fold (stl10: 1 to 10); 0 = from all images", least=0)
    test_fraction: float = option(0.2, "share of the images held out for testing, where the data has no test set")
    image_size: int = option(0, "side in pixels that image files are brought to; 0 = by the images", least=0, most=4096)
    max_damaged: float = option(0.05, "stop where a larger share of the image files is damaged", least=0, most=1)
    follow_links: bool = option(False, "read image files by links that lead out of the folder")


@dataclass(frozen=True)
class AugmentConfig(Section):
    """Weak and strong views; the values are FixMatch-pytorch's, which does not zoom."""

    flip: bool = option(True, "mirror images at random; turn off where left and right differ (digits)")
    shift: float = option(0.125, "weak view: largest shift as a share of the side", least=0, most=0.99)
    strong_ops: tuple[str, ...] = option(ALL_OPS, "operations RandAugment draws from", choices=ALL_OPS)
    n_ops: int = option(2, "operations drawn per image; 0 = none", least=0)
    op_probability: float = option(0.5, "chance that a drawn operation is applied", least=0, most=1)
    max_level: int = option(10, "strength levels are drawn from 1 to this, exclusive", least=2, most=11)
    cutout: float = option(0.5, "side of the grey square as a share of the shorter side; 0 = off", least=0, most=1)
    interpolation: str = option("nearest", "of rotation and shear", choices=("nearest", "bilinear"))
    zoom: float = option(
        1.0,
        "strong view: with the chance --op-probability enlarged or made smaller, by up to this factor; 1 = never",
        least=1,
        most=4,
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.strong_ops:
            raise InputError("--strong-ops: name at least one; --n-ops 0 turns them off")


@dataclass(frozen=True)
class BackboneConfig(Section):
    backbone: str = option(WIDE_RESNET, "wide-resnet, or timm:NAME for a network of timm (extra `vision`)")
    backbone_weights: str = option(
        "", "file of weights the backbone starts from; of timm also `cache`: those of your cache"
    )
    rescale_start: bool = option(
        False, "give a Wide ResNet that begins with trained weights the norm of drawn ones; it computes the same"
    )
    depth: int = option(28, "depth of the Wide ResNet: 2 * blocks * stages + stages + 1", least=1)
    width: int = option(2, "width factor of the Wide ResNet", least=1)
    strides: tuple[int, ...] = option((1, 2, 2), "stride of each stage", least=1)
    bn_momentum: float = option(0.001, "weight of the newest batch in the running statistics", least=0, most=1)


@dataclass(frozen=True)
class OptimConfig(Section):
    learning_rate: float = option(0.03, "of SGD with Nesterov momentum, at the start", least=0)
    momentum: float = option(0.9, "Nesterov momentum", least=0, most=1)
    weight_decay: float = option(5e-4, "on convolution and dense weights only", least=0)
    ema_decay: float = option(0.999, "decay of the averaged weights that vote and predict", least=0, most=1)
    final_lr_fraction: float = option(
        0.0, "share of the learning rate left at the end; FixMatch's 7/16 cosine leaves .195", least=0, most=1
    )
    fresh_statistics: bool = option(
        True, "at the end, measure the batch statistics anew for the averaged weights; off: the running ones"
    )
    compile: bool = option(False, "compile augmentation and heads on a GPU: faster steps after half a minute's wait")
    precision: str = option(
        "auto", "of the backbone; auto is bfloat16 on a GPU", choices=("auto", "float32", "bfloat16")
    )


@dataclass(frozen=True)
class WarmStartConfig(Section):
    """Before step 1: a backbone that has learnt from the images alone. The paper has none."""

    warm_steps: int = option(
        0,
        "steps that the backbone learns from images alone, --steps at most; none where it begins with given weights",
        least=0,
    )
    warm_method: str = option(SIMCLR, "how it learns from them: simclr or byol", choices=(SIMCLR, BYOL))
    warm_batch_size: int = option(512, "images a step of the warm start, each seen in two views", least=2)
    warm_learning_rate: float = option(
        0.0, "as learning_rate, for the warm start; 0 = the method's own: .4 for simclr, .2 for byol", least=0
    )
    warm_temperature: float = option(0.5, "of SimCLR's loss; its own for CIFAR-10", least=1e-3)
    warm_target_decay: float = option(0.99, "of the moving average that BYOL learns from", least=0, most=1)
    warm_crop: float = option(0.2, "least share of an image that a view of the warm start shows", least=0.01, most=1)

    @property
    def learning_rate(self) -> float:
        return self.warm_learning_rate or WARM_RATES[self.warm_method]


@dataclass(frozen=True)
class LabelModelConfig(Section):
    """Step 2: from votes to soft labels."""

    label_model: str = option("adaptive", "the model that resolves the votes; `majority` and `paper` among them")
    use_confidence: bool = option(True, "let the label model see how sure each LF was, where it can")
    class_prior: str = option(
        "estimated", "class shares, for alignment too: estimated, uniform, labels (those given), or numbers: 0.7,0.3"
    )


@dataclass(frozen=True)
class EndModelConfig(Section):
    """Step 3: the classifier trained on labels and soft labels."""

    end_steps: int = option(10000, "steps", least=1)
    end_batch_size: int = option(64, "labelled images a step", least=1)
    end_unlabeled_ratio: int = option(7, "soft-labelled images a step, per labelled one", least=1)
    end_view: str = option("strong", "view of the soft-labelled images", choices=("strong", "weak"))
    end_start: str = option("scratch", "start from scratch, or from the backbone of step 1", choices=("scratch", "lfs"))
    end_uncovered: str = option("skip", "images without a vote: left out, or at the prior", choices=("skip", "prior"))
    end_learning_rate: float = option(0.03, "as learning_rate, for step 3", least=0)
    end_depth: int = option(0, "as depth, for an end model with a Wide ResNet of its own; 0 = as step 1's", least=0)
    end_width: int = option(0, "as width, likewise; 0 = as step 1's", least=0)
    end_strides: tuple[int, ...] = option((), "as strides, likewise; none = as step 1's", least=1)

    @property
    def has_own_network(self) -> bool:
        return bool(self.end_depth or self.end_width or self.end_strides)


@dataclass(frozen=True)
class BaselineConfig(Section):
    """Another system in the place of all three steps."""

    method: str = option(DP_SSL, f"the system to train: {', '.join(METHODS)}", choices=METHODS)
    method_settings: tuple[str, ...] = option(
        (), "settings of the method itself, or of the --second-method, each as name=value"
    )


@dataclass(frozen=True)
class SecondRunConfig(Section):
    """A second opinion: another run on the same labels, and then one that learns from both (dpssl.second_opinion)."""

    second_method: str = option(
        NO_METHOD,
        f"with `dpssl run`: also train this system, and learn from what both say: {', '.join(SECOND_METHODS)}",
        choices=SECOND_METHODS,
    )
    combined_steps: int = option(0, "as steps, for the run that learns from both; 0 = half of --steps", least=0)
    combined_end_steps: int = option(0, "as end_steps, likewise; 0 = as --end-steps", least=0)


@dataclass(frozen=True)
class Config:
    run: RunConfig = field(default_factory=RunConfig)
    data: DataConfig = field(default_factory=DataConfig)
    augment: AugmentConfig = field(default_factory=AugmentConfig)
    backbone: BackboneConfig = field(default_factory=BackboneConfig)
    optim: OptimConfig = field(default_factory=OptimConfig)
    warm_start: WarmStartConfig = field(default_factory=WarmStartConfig)
    labeling: LabelingConfig = field(default_factory=LabelingConfig)
    label_model: LabelModelConfig = field(default_factory=LabelModelConfig)
    end_model: EndModelConfig = field(default_factory=EndModelConfig)
    baseline: BaselineConfig = field(default_factory=BaselineConfig)
    second_run: SecondRunConfig = field(default_factory=SecondRunConfig)

    @property
    def has_second_run(self) -> bool:
        return self.baseline.method == DP_SSL and self.second_run.second_method != NO_METHOD

    @property
    def method_with_settings(self) -> str:
        """The system whose settings `method_settings` are: that of the second run, where there is one."""
        return self.second_run.second_method if self.has_second_run else self.baseline.method

    @property
    def n_warm_steps(self) -> int:
        """Steps of the warm start: no more than step 1 has, none where the backbone begins with given weights."""
        return 0 if self.backbone.backbone_weights else min(self.warm_start.warm_steps, self.labeling.steps)

    @property
    def end_backbone(self) -> BackboneConfig:
        """The network of step 3: that of step 1, or a Wide ResNet of its own, which begins with drawn weights."""
        own, shape = self.end_model, self.backbone
        if not own.has_own_network:
            return shape
        return dataclasses.replace(
            shape,
            backbone=WIDE_RESNET,
            backbone_weights="",
            depth=own.end_depth or shape.depth,
            width=own.end_width or shape.width,
            strides=own.end_strides or shape.strides,
        )
