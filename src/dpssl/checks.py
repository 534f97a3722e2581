"""Settings that would fail only after minutes of training are refused before it begins, alone and beside the data."""

import torch

from dpssl.baselines.registry import SYSTEMS, method_settings
from dpssl.baselines.trainer import task_of
from dpssl.class_prior import check_class_prior, class_prior
from dpssl.config import DP_SSL, NO_METHOD, WIDE_RESNET, Config, flag
from dpssl.data.split import Split, every_known_label
from dpssl.data.table import Dataset
from dpssl.end_model.train import build_classifier
from dpssl.errors import InputError, require_utf8
from dpssl.label_model import VARIANTS
from dpssl.labeling.losses import count_specialists
from dpssl.labeling.train import build_network
from dpssl.training.distributed import share
from dpssl.training.run_log import require_tensorboard


def check(config: Config) -> None:
    """What would otherwise fail only after minutes of training."""
    for name in ("data", "labels", "labeled_ids"):
        require_utf8(flag(name), getattr(config.data, name))
    require_utf8("--backbone-weights", config.backbone.backbone_weights)
    if config.run.track:
        require_tensorboard()
    if config.labeling.mcl:
        count_specialists(config.labeling.n_lfs, config.labeling.specialist_ratio)
    if not config.labeling.weak_gradient:
        _check_left_out(config)
    with torch.device("meta"):  # the shapes alone
        build_network(config, n_classes=2, n_channels=1)
        _check_end_model(config)
    method_settings(config.method_with_settings, config.baseline.method_settings)
    check_class_prior(config.label_model.class_prior)
    n_lfs, label_model = config.labeling.n_lfs, config.label_model.label_model
    if label_model not in VARIANTS:
        raise InputError(f"--label-model {label_model!r}: choose one of {', '.join(VARIANTS)}")
    if label_model in ("paper", "triplet") and n_lfs < 3:
        raise InputError(
            f"--n-lfs {n_lfs}: --label-model {label_model} solves triplets, which need 3 LFs or more; "
            "raise --n-lfs or choose --label-model majority"
        )


def _check_left_out(config: Config) -> None:
    """That weak views can be left out of the backward pass."""
    if config.backbone.backbone != WIDE_RESNET and config.labeling.joint_forward:
        raise InputError(
            f"--weak-gradient false: only with --backbone {WIDE_RESNET}, whose backward pass can leave images out"
        )
    if config.labeling.abstain_view == "weak" and config.baseline.method == DP_SSL:
        raise InputError(
            "--weak-gradient false: with --abstain-view weak the weak views are learnt from; leave out one of them"
        )


def check_settled(config: Config) -> None:
    """What goes together only once every setting has its value: the size of the images may name a preset."""
    if config.has_second_run and share().size > 1:
        raise InputError(
            f"torchrun: --second-method {config.second_run.second_method} trains in one process; start it alone, or "
            f"add --second-method {NO_METHOD}"
        )
    n_steps = config.labeling.propagation_steps
    if config.baseline.method != DP_SSL or not n_steps:
        return
    if config.labeling.pseudo_labels != "consensus":
        raise InputError(f"--propagation-steps {n_steps}: only with --pseudo-labels consensus")
    if not config.n_warm_steps and not config.backbone.backbone_weights:
        raise InputError(
            f"--propagation-steps {n_steps}: labels spread in features of a backbone that has learnt something; ask "
            "for --warm-steps, give --backbone-weights, or set it to 0"
        )


def _check_end_model(config: Config) -> None:
    """A network of its own has to be one, and cannot begin with the weights of another."""
    settings = config.end_model
    if config.baseline.method != DP_SSL or not settings.has_own_network:
        return
    if settings.end_start == "lfs":
        raise InputError(
            "--end-start lfs: the end model has a network of its own (--end-depth, --end-width, --end-strides), which "
            "cannot begin with the weights of step 1; add --end-start scratch"
        )
    try:
        build_classifier(config, n_classes=2, n_channels=1)
    except InputError as problem:
        raise InputError(f"the end model (--end-depth, --end-width, --end-strides): {problem}") from None


def check_on_data(config: Config, dataset: Dataset, split: Split) -> None:
    """What can be checked once the data are read."""
    class_prior(config.label_model.class_prior, split.given_labels, dataset.n_classes)
    method = config.method_with_settings
    if method == DP_SSL:
        return
    if SYSTEMS[method].uses_all_labels:
        every_known_label(dataset, split)
    settings = method_settings(method, config.baseline.method_settings)
    labels = split.given_labels[split.labeled]
    size = (dataset.images.shape[1], dataset.images.shape[2])
    SYSTEMS[method](settings, task_of(config, dataset.n_classes, len(dataset.images), labels, size, n_features=1))
