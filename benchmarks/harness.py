"""Short runs that are watched with the truth: is the harness right, and what do labeling functions learn from?

    python benchmarks/harness.py fixmatch-250 --seeds 1 2          # FixMatch beside its published curve
    python benchmarks/harness.py traps-40 --backbone-weights warm.safetensors    # one thing changed at a time
    python benchmarks/harness.py gap-40 --backbone-weights warm.safetensors --seeds 12   # from FixMatch to step 1
    python benchmarks/harness.py svhn-16 --data svhn16.npz --device cpu --seeds 1 2      # small enough for a CPU
    python benchmarks/harness.py svhn-250 --data svhn --seeds 2     # what should a class's threshold follow?
    python benchmarks/harness.py digits-teacher --data digits --device cpu --seeds 1 2   # what holds Mean Teacher back?
    python benchmarks/harness.py svhn-16-teacher --data svhn16.npz --device cpu     # the same on SVHN
    python benchmarks/harness.py svhn-16-40 --data svhn16.npz --device cpu --backbone-weights start.safetensors
    python benchmarks/harness.py my_runs.json --data cifar10.npz   # [["name", "dp-ssl", {"steps": 5000}], ...]

Every run trains by the package's own code on the package's own split. After each window the averaged weights predict
5,000 training images whose truth is known here: how many are right, which class is most often taken for which. That is
written down and used for nothing else. -> results/harness_*.
"""

import argparse
import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from results_file import REPOSITORY, commit, write_results
from torch import Tensor, nn

from dpssl.baselines.trainer import train_baseline
from dpssl.checks import check_settled
from dpssl.config import DP_SSL, Config, settings_that_matter, with_values
from dpssl.data.batches import ImageBank, unlabeled_pool
from dpssl.data.readers import load_dataset
from dpssl.data.split import make_split
from dpssl.end_model.predict import predict_probabilities
from dpssl.label_model import covered, effective_lfs
from dpssl.labeling.losses import consensus
from dpssl.labeling.train import train_lfs
from dpssl.labeling.vote import cast_votes, feature_diagnostics
from dpssl.metrics import accuracy, majority_vote_accuracy, specialist_summary, vote_scores
from dpssl.nets.lf_heads import LFNetwork
from dpssl.training.precision import pick_device
from dpssl.training.watch import Watch
from dpssl.warm_start import train_warm_start

Job = tuple[str, str, dict[str, Any]]  # name, method, settings
COMMON = {"bn_momentum": 0.01, "compile": True, "window": 500}
FEW = {"n_labels": 40, "steps": 5000, "mcl_max_steps": 200, "window": 1000}
CONSENSUS = {**FEW, "pseudo_labels": "consensus"}
ADAPTIVE = {**CONSENSUS, "adaptive_threshold": True}
OWN = {**FEW, "curriculum_threshold": True}
LONGER = {**FEW, "steps": 10000}
FIXED = {**LONGER, "pseudo_labels": "consensus"}
AVERAGED = {**FIXED, "feature_transform": False}
RESNET_18 = {"depth": 21, "width": 4, "strides": [1, 2, 2, 2], "window": 2000}  # its norms before the convolutions
ZOOMED = {**FIXED, **RESNET_18, "adaptive_threshold": True, "zoom": 1.6, "window": 1000}
PROPAGATED = {**ZOOMED, "steps": 6000, "propagation_steps": 3000, "mcl_gradient": 0.0}
KEPT = {**PROPAGATED, "rescale_start": True, "heads_first": 200}
EVEN = {**KEPT, "class_prior": "labels"}
SPARED = {**EVEN, "weak_gradient": False}
# SVHN at half its side, for a CPU: twenty minutes a run on one busy thread.
HALVED = {
    **{"n_labels": 250, "steps": 8000, "batch_size": 32, "unlabeled_ratio": 6, "window": 1000, "compile": False},
    **{"depth": 10, "width": 1, "strides": [1, 2, 2], "learning_rate": 0.06, "ema_decay": 0.998},
    **{"flip": False, "interpolation": "bilinear"},
}
HALVED_LFS = {**HALVED, "n_lfs": 30, "mcl_max_steps": 200, "pseudo_labels": "consensus"}
LIMITED = {"adaptive_threshold": True, "least_threshold": 0.9, "most_threshold": 0.95}
LIMITS = ("least_threshold=0.9", "most_threshold=0.95")
CERTAIN = {"adaptive_threshold": True, "thresholds_follow": "confidence"}
DIGITS_250 = {"n_labels": 250, "steps": 8000, "flip": False, "pseudo_labels": "consensus", "window": 1000}
# With 40 labels, from a start that SimCLR made: 3,000 steps of benchmarks/warm_start.py, docs/reproduce.md.
BRIEF = {"n_labels": 40, "steps": 2500, "window": 500}
STARTED = {**HALVED, **BRIEF, "rescale_start": True}
STARTED_LFS = {**HALVED_LFS, **STARTED, **LIMITED, "mcl_gradient": 0.0, "heads_first": 200, "center_rate": 0.1}
SPREAD_LFS = {**STARTED_LFS, "propagation_steps": 1000, "propagation_thresholds": True}
# For a CPU: digits at 8 pixels (the preset `digits`), and pictures as --max-minutes 5 plans for a few thousand.
TINY_FIT = {
    **{"n_labels": 40, "batch_size": 32, "unlabeled_ratio": 6, "steps": 1200, "window": 300},
    **{"depth": 10, "width": 1, "strides": [1, 2, 1], "learning_rate": 0.06, "ema_decay": 0.995},
    **{"flip": False, "interpolation": "bilinear", "compile": False, "threads": 1},
}
TINY = {**TINY_FIT, "mcl_max_steps": 300, "n_lfs": 30, "pseudo_labels": "consensus"}
PICTURES = {
    **{"n_labels": 40, "mcl_max_steps": 200, "batch_size": 16, "unlabeled_ratio": 3, "steps": 3000, "window": 500},
    **{"depth": 10, "width": 1, "strides": [2, 2, 1], "learning_rate": 0.06, "n_lfs": 20},
    **{"compile": False, "threads": 1, "pseudo_labels": "consensus"},
}
TEACHERS: list[Job] = [
    ("Mean Teacher", "mean-teacher", {}),
    ("Mean Teacher, its teacher an average over a tenth of the steps", "mean-teacher", {"ema_decay": 0.95}),
    ("Mean Teacher, the student as teacher", "mean-teacher", {"ema_decay": 0.0}),
    ("Mean Teacher, a tenth of the weight", "mean-teacher", {"method_settings": ["unlabeled_weight=5"]}),
    ("Supervised", "supervised", {}),
]
PLANS: dict[str, list[Job]] = {
    "fixmatch-250": [("FixMatch", "fixmatch", {"n_labels": 250, "steps": 16000})],
    "traps-40": [
        ("FreeMatch", "freematch", FEW),
        ("FlexMatch", "flexmatch", FEW),
        ("consensus, adaptive threshold", DP_SSL, ADAPTIVE),
        ("the same, 2,000 steps of MCL", DP_SSL, {**ADAPTIVE, "mcl_max_steps": 2000}),
        ("the same, aligned", DP_SSL, {**ADAPTIVE, "alignment": True}),
        ("the same, weak views apart", DP_SSL, {**ADAPTIVE, "joint_forward": False}),
        ("the same, no feature transform (Exp2)", DP_SSL, {**ADAPTIVE, "feature_transform": False}),
        ("the same, no specialists (Exp1)", DP_SSL, {**ADAPTIVE, "mcl": False}),
        ("the same, sharp and free transform", DP_SSL, {**ADAPTIVE, "assignment_entropy": 0.5, "sharpness_range": 0}),
        ("the same, gradient summed over LFs", DP_SSL, {**ADAPTIVE, "backbone_gradient": "sum"}),
        ("consensus, curriculum threshold", DP_SSL, {**CONSENSUS, "curriculum_threshold": True}),
        ("own pseudo-labels, curriculum threshold", DP_SSL, OWN),
        ("own pseudo-labels, curriculum threshold, aligned", DP_SSL, {**OWN, "alignment": True}),
        ("own pseudo-labels, abstain on weak views", DP_SSL, {**OWN, "abstain_view": "weak"}),
    ],
    # Label seed 12, where step 1 takes 900 horses for birds and FixMatch does not: what of the way between makes it?
    "gap-40": [
        ("FixMatch", "fixmatch", LONGER),
        ("specialists, average pooling (Exp2)", DP_SSL, AVERAGED),
        ("specialists", DP_SSL, FIXED),
        ("FixMatch, zoomed", "fixmatch", {**LONGER, "zoom": 1.6}),
        ("specialists, average pooling, zoomed", DP_SSL, {**AVERAGED, "zoom": 1.6}),
        ("specialists, average pooling, adaptive threshold", DP_SSL, {**AVERAGED, "adaptive_threshold": True}),
        ("specialists, average pooling, heads first", DP_SSL, {**AVERAGED, "heads_first": 500}),
        ("50 LFs of all classes (Exp1)", DP_SSL, {**FIXED, "mcl": False}),
        ("50 LFs of all classes, average pooling", DP_SSL, {**AVERAGED, "mcl": False}),
        ("specialists, gradient divided by K", DP_SSL, {**FIXED, "backbone_gradient": "mean"}),
        ("specialists, adaptive threshold", DP_SSL, {**FIXED, "adaptive_threshold": True}),
        ("FreeMatch", "freematch", LONGER),
    ],
    # The same label seed on a larger network, with a start of its own.
    "wide-40": [
        ("FixMatch", "fixmatch", {**LONGER, **RESNET_18}),
        ("specialists, average pooling", DP_SSL, {**AVERAGED, **RESNET_18}),
        ("specialists, adaptive threshold", DP_SSL, {**FIXED, "adaptive_threshold": True, **RESNET_18}),
        ("FreeMatch", "freematch", {**LONGER, **RESNET_18}),
        (
            "specialists, adaptive threshold, gradient divided by K",
            DP_SSL,
            {**FIXED, "adaptive_threshold": True, "backbone_gradient": "mean", **RESNET_18},
        ),
        (
            "specialists, average pooling, gradient divided by K",
            DP_SSL,
            {**AVERAGED, "backbone_gradient": "mean", **RESNET_18},
        ),
    ],
    # From a start by BYOL: labels that spread among its neighbours, and what keeps the first steps from undoing it.
    "propagation-40": [
        ("no propagation", DP_SSL, {**ZOOMED, "steps": 6000}),
        ("no propagation, start kept in the first phase", DP_SSL, {**PROPAGATED, "propagation_steps": 0}),
        ("propagation", DP_SSL, PROPAGATED),
        ("propagation, rescaled", DP_SSL, {**PROPAGATED, "rescale_start": True}),
        ("propagation, rescaled, heads first", DP_SSL, KEPT),
        ("propagation, rescaled, heads first, even classes", DP_SSL, EVEN),
        ("the same, weak views left out", DP_SSL, SPARED),
        ("the same, thresholds that begin with the labels", DP_SSL, {**SPARED, "propagation_thresholds": True}),
        ("the same, slow centres", DP_SSL, {**SPARED, "propagation_thresholds": True, "center_rate": 0.1}),
        ("no propagation, rescaled, heads first", DP_SSL, {**KEPT, "propagation_steps": 0}),
        ("FixMatch, rescaled", "fixmatch", {**LONGER, **RESNET_18, "zoom": 1.6, "rescale_start": True}),
    ],
    # Do thresholds that follow the classes cost anything on SVHN? docs/reproduce.md
    "svhn-16": [
        ("DP-SSL, fixed threshold", DP_SSL, HALVED_LFS),
        ("DP-SSL, adaptive threshold within .9 and .95", DP_SSL, {**HALVED_LFS, **LIMITED}),
        ("FixMatch", "fixmatch", HALVED),
        ("FreeMatch within .9 and .95", "freematch", {**HALVED, "method_settings": LIMITS}),
        ("Mean Teacher", "mean-teacher", HALVED),
        ("Supervised", "supervised", HALVED),
        ("UDA", "uda", HALVED),
        ("FlexMatch", "flexmatch", HALVED),
    ],
    # The same on the paper's network at full size, on a GPU: here those that follow the shares cost five points.
    "svhn-250": [
        ("thresholds that follow the shares", DP_SSL, {**DIGITS_250, **LIMITED}),
        ("thresholds that follow the confidence", DP_SSL, {**DIGITS_250, **LIMITED, **CERTAIN}),
        ("fixed threshold", DP_SSL, DIGITS_250),
    ],
    "thresholds-digits": [
        ("thresholds that follow the shares", DP_SSL, {**TINY, "adaptive_threshold": True}),
        ("thresholds that follow the confidence", DP_SSL, {**TINY, **CERTAIN}),
        ("fixed threshold", DP_SSL, TINY),
    ],
    "thresholds-pictures": [
        ("thresholds that follow the shares", DP_SSL, {**PICTURES, "adaptive_threshold": True}),
        ("thresholds that follow the confidence", DP_SSL, {**PICTURES, **CERTAIN}),
        ("fixed threshold", DP_SSL, PICTURES),
    ],
    # Why is Mean Teacher behind the labels alone in short runs: its teacher, its weight, or the time it gets?
    "svhn-16-teacher": [
        ("Mean Teacher, a tenth of the weight", "mean-teacher", {**HALVED, "method_settings": ["unlabeled_weight=5"]}),
        ("Mean Teacher, the student as teacher", "mean-teacher", {**HALVED, "ema_decay": 0.0}),
        ("Mean Teacher, its teacher an average over fewer steps", "mean-teacher", {**HALVED, "ema_decay": 0.98}),
        ("Π-Model", "pi-model", HALVED),
        ("Mean Teacher, three times the steps", "mean-teacher", {**HALVED, "steps": 24000, "window": 3000}),
        ("Supervised, three times the steps", "supervised", {**HALVED, "steps": 24000, "window": 3000}),
    ],
    "digits-teacher": [
        (f"{name}, {n_labels} labels", method, {**TINY_FIT, "n_labels": n_labels, **changed})
        for n_labels in (40, 250)
        for name, method, changed in TEACHERS
    ],
    "svhn-16-40": [
        ("DP-SSL, labels that spread", DP_SSL, SPREAD_LFS),
        ("the same, zoomed", DP_SSL, {**SPREAD_LFS, "zoom": 1.6}),
        ("the same, thresholds without limits", DP_SSL, {**SPREAD_LFS, "least_threshold": 0.0, "most_threshold": 1.0}),
        ("the same, thresholds that follow the confidence", DP_SSL, {**SPREAD_LFS, **CERTAIN}),
        ("the same, fixed threshold", DP_SSL, {**SPREAD_LFS, "adaptive_threshold": False}),
        ("DP-SSL", DP_SSL, STARTED_LFS),
        ("FixMatch", "fixmatch", STARTED),
        ("FreeMatch", "freematch", STARTED),
        ("FlexMatch", "flexmatch", STARTED),
        ("UDA", "uda", STARTED),
        ("DP-SSL from drawn weights", DP_SSL, {**HALVED_LFS, **LIMITED, **BRIEF, "backbone_weights": ""}),
    ],
}
N_WATCHED = 5000
N_CONFUSIONS = 8  # pairs of classes a line
TRUSTED = 0.95  # FixMatch's threshold


class Observer(Watch):
    """Writes down after each window how good the averaged weights are."""

    def __init__(self, bank: ImageBank, truth: np.ndarray, class_names: Sequence[str]) -> None:
        super().__init__(progress=False)
        self.bank, self.truth, self.class_names = bank, truth, class_names
        self.curve = list[dict[str, Any]]()

    def after_window(self, stage: str, step: int, metrics: Any, state: Any, notes: Any) -> None:
        if stage in ("mcl", "warm"):
            return
        network, optimizer = state.modules["network"], state.optimizer
        optimizer.use_average()
        probabilities = predicted(network.eval(), self.bank)
        network.train()
        optimizer.use_weights()
        sure = probabilities.max(1) >= TRUSTED
        right = probabilities.argmax(1) == self.truth
        line = {"step": step, "minutes": round(self.minutes(), 2), "accuracy": right.mean(), "sure": sure.mean()}
        noted = ("labeled_loss", "unlabeled_loss", "pseudo_label_rate")
        line |= {name: metrics[name] for name in noted if name in metrics}
        rounded: dict[str, Any] = {name: round(float(value), 4) for name, value in line.items()}
        rounded["accuracy_of_sure"] = round(float(right[sure].mean()), 4) if sure.any() else None
        confusions = largest_confusions(self.truth, probabilities.argmax(1), self.class_names)
        self.curve.append({**rounded, "confusions": confusions})


def largest_confusions(truth: np.ndarray, labels: np.ndarray, class_names: Sequence[str]) -> dict[str, int]:
    """How many images of a class are taken for another, the most frequent pairs first."""
    wrong = truth != labels
    pairs, counts = np.unique(np.stack([truth[wrong], labels[wrong]], 1), axis=0, return_counts=True)
    first = np.argsort(-counts, kind="stable")[:N_CONFUSIONS]
    return {
        f"{class_names[a]} as {class_names[b]}": int(n) for (a, b), n in zip(pairs[first], counts[first], strict=True)
    }


@torch.no_grad()
def predicted(network: nn.Module, bank: ImageBank) -> np.ndarray:
    """Class probabilities (n, C): a classifier's, or the consensus of labeling functions."""
    if not isinstance(network, LFNetwork):
        return predict_probabilities(network, bank).numpy()

    class Together(nn.Module):
        def forward(self, inputs: Tensor) -> Tensor:
            joint = consensus(torch.softmax(network.abstain_logits(network(inputs)), -1), network.specialties)
            return joint.clamp_min(1e-12).log()  # the softmax of which it is

    return predict_probabilities(Together(), bank).numpy()


def run(job: Job, seed: int, data: str, device: torch.device) -> dict[str, Any]:
    name, method, settings = job
    values = {**COMMON, "method": method, **settings, "seed": seed, "data": data, "device": device.type}
    config = with_values(Config(), values)
    check_settled(config)
    dataset, split = make_split(load_dataset(data), config.data.n_labels, seed, config.data.test_fraction)
    bank = ImageBank.from_numpy(dataset.images, device)
    rows = split.unlabeled[:N_WATCHED]
    watch = Observer(bank.with_images(dataset.images[rows]), dataset.truth[rows], dataset.class_names)
    labels, n_classes, started = torch.from_numpy(split.given_labels), dataset.n_classes, time.perf_counter()
    warm = None
    if config.n_warm_steps:
        warm = train_warm_start(bank, unlabeled_pool(labels, with_labeled=True), config, watch)
    network: nn.Module
    if method == DP_SSL:
        network = train_lfs(bank, labels, n_classes, config, watch, backbone_start=warm)
    else:
        network = train_baseline(bank, labels, n_classes, config, watch, backbone_start=warm).network
    minutes = (time.perf_counter() - started) / 60
    rows = split.unlabeled
    figures = {
        "annotation_accuracy": accuracy(predicted(network, bank)[rows].argmax(1), dataset.truth[rows]),
        "test_accuracy": accuracy(
            predicted(network, bank.with_images(dataset.test_images)).argmax(1), dataset.test_truth
        ),
    }
    if isinstance(network, LFNetwork):
        figures |= lf_figures(network, bank, dataset.truth, rows)
    figures["minutes"] = round(minutes, 2)
    return {
        "name": name,
        "seed": seed,
        **figures,
        "commit": commit(),
        "config": _with_names(settings_that_matter(config)),
        "curve": watch.curve,
    }


def _with_names(settings: dict[str, Any]) -> dict[str, Any]:
    """The settings with files by their names, wherever they lie."""
    return settings | {key: Path(settings[key]).name for key in ("data", "backbone_weights")}


def lf_figures(network: LFNetwork, bank: ImageBank, truth: np.ndarray, rows: np.ndarray) -> dict[str, Any]:
    """What step 1 has made: votes, specialities and features."""
    found = cast_votes(network, bank)
    votes, truth = found.votes[rows], truth[rows]
    return {
        "majority_vote_accuracy": majority_vote_accuracy(votes, truth, network.n_classes),
        "coverage": float(covered(votes).mean()),
        **vote_scores(votes, truth, found.specialties),
        "effective_lfs_per_class": [round(float(n), 2) for n in effective_lfs(votes, found.specialties)],
        **specialist_summary(found.specialties),
        **feature_diagnostics(network, bank),
    }


def shown(run: dict[str, Any]) -> str:
    percent = {"annotation": "annotation_accuracy", "test": "test_accuracy", "vote": "majority_vote_accuracy",
               "cover": "coverage", "recall": "recall_inside_specialties", "precision": "lf_precision"}  # fmt: skip
    told = "  ".join(f"{word} {100 * run[key]:5.2f}" for word, key in percent.items() if run.get(key) is not None)
    return f"{run['name']:<42} seed {run['seed']}  {told}  {run['minutes']:.1f} min"


def read_plan(name: str) -> list[Job]:
    if name in PLANS:
        return PLANS[name]
    if not name.endswith(".json"):
        raise SystemExit(f"{name}: choose {', '.join(PLANS)}, or name a .json file of runs")
    return [(title, method, settings) for title, method, settings in json.loads(Path(name).read_text())]


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("plan", help=f"{', '.join(PLANS)}, or a .json file of [name, method, settings]")
    parser.add_argument("--data", default="cifar10", help="as of dpssl run")
    parser.add_argument("--backbone-weights", default="", help="what every run starts from, as warm_start.py writes it")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1])
    parser.add_argument("--device", default="auto")
    parser.add_argument("--max-minutes", type=float, default=0.0, help="begin no run after so many; 0 = all of them")
    parser.add_argument("--resume", action="store_true", help="keep the runs that are in --out, and do the others")
    parser.add_argument("--out", type=Path, help="default: results/harness_PLAN.json")
    chosen = parser.parse_args(arguments)
    device, plan = pick_device(chosen.device), read_plan(chosen.plan)
    out = chosen.out or REPOSITORY / "results" / f"harness_{Path(chosen.plan).stem.replace('-', '_')}.json"
    where = torch.cuda.get_device_name() if device.type == "cuda" else "cpu"
    plan = [(name, method, {"backbone_weights": chosen.backbone_weights, **given}) for name, method, given in plan]
    runs = json.loads(out.read_text())["runs"] if chosen.resume and out.exists() else []
    done, started = {(line["name"], line["seed"]) for line in runs}, time.monotonic()
    for seed in chosen.seeds:
        for job in plan:
            if (job[0], seed) in done:
                continue
            if 0 < chosen.max_minutes <= (time.monotonic() - started) / 60:
                return print("out of minutes; --resume goes on", flush=True)
            runs.append(run(job, seed, chosen.data, device))
            print(shown(runs[-1]), flush=True)
            write_results(out, {"plan": chosen.plan, "commit": commit(), "device": where, "runs": runs})


if __name__ == "__main__":
    main()
