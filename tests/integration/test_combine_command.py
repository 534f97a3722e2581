"""`dpssl combine`: what several runs agree on are labels to train on, in a run of its own, and never given ones."""

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dpssl.combine import _same_warm_start
from dpssl.config import Config, with_values
from dpssl.config_file import read_config
from dpssl.end_model.kinds import kinds_of
from dpssl.run_folder import RunFolder


def split_of(run: Path) -> Any:
    return json.loads((run / "split.json").read_text())


@pytest.fixture(scope="module")
def again(warm_cli: Any, tiny: list[str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny run once more, on the same labels and test images."""
    folder = tmp_path_factory.mktemp("again") / "run"
    done = warm_cli("run", *tiny, "--repeat", 1, "--out", folder)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture(scope="module")
def combined(warm_cli: Any, tiny_run: Path, again: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("combined") / "run"
    done = warm_cli("combine", tiny_run, again, "--out", folder, "--trust", 0.5, "--report", "true")
    assert done.returncode == 0, done.stderr
    return folder


def test_a_repeat_has_the_labels_and_other_weights(tiny_run: Path, again: Path) -> None:
    assert split_of(again) == split_of(tiny_run)
    votes = [RunFolder(run).read_votes() for run in (tiny_run, again)]
    assert (votes[0].confidence != votes[1].confidence).mean() > 0.5


def test_the_surest_common_labels_are_trusted(tiny_run: Path, again: Path, combined: Path) -> None:
    split, before = split_of(combined), split_of(tiny_run)
    assert {name: split[name] for name in before} == before, "nothing became a given label"
    assert set(split["trusted"]) <= set(split["unlabeled"])
    first, second = (RunFolder(run).read_soft_labels() for run in (tiny_run, again))
    open_to_trust = np.isin(first.ids, before["unlabeled"]) & (first.covered | second.covered)
    assert len(split["trusted"]) == round(0.5 * open_to_trust.sum())
    alike = first.covered & second.covered & (first.soft_labels.argmax(1) == second.soft_labels.argmax(1))
    noted, trusted = RunFolder(combined).read_json("start/combined.json"), np.isin(first.ids, list(split["trusted"]))
    assert noted["n_trusted_alone"] == (trusted & (first.covered != second.covered)).sum()
    assert noted["agreement"] == pytest.approx(alike[np.isin(first.ids, before["unlabeled"])].mean())
    product = first.soft_labels.astype(float) * second.soft_labels.astype(float)
    likeliest = dict(zip(first.ids.tolist(), product.argmax(1).tolist(), strict=True))
    same = [likeliest[name] == label for name, label in split["trusted"].items()]
    assert np.mean(same) > 0.9, "but for the class shares"


def test_the_run_before_it_stays_and_its_minutes_count(tiny_run: Path, again: Path, combined: Path) -> None:
    noted = RunFolder(combined).read_json("start/combined.json")
    assert noted["combined_from"] == [str(tiny_run.resolve()), str(again.resolve())]
    assert noted["n_trusted"] == len(split_of(combined)["trusted"])
    assert 0 <= noted["agreement"] <= 1
    summaries = [RunFolder(run).read_json("summary.json") for run in (tiny_run, again, combined)]
    spent = [sum(summary["minutes_per_step"].values()) for summary in summaries]
    assert summaries[2]["minutes_per_step"]["runs"] == pytest.approx(spent[0] + spent[1], abs=1e-3)
    assert spent[2] > spent[0] + spent[1]
    assert summaries[2]["n_evaluated"] == summaries[0]["n_evaluated"], "trusted labels are scored like the others"


def test_its_label_model_has_the_casting_vote(combined: Path) -> None:
    from dpssl.label_model import LabelModel

    folder = RunFolder(combined)
    model, votes, found = (
        LabelModel.load(combined / "label_model.safetensors"),
        folder.read_votes(),
        folder.read_soft_labels(),
    )
    before = folder.read_arrays("start/common.npz", "soft_labels", "n_runs")
    own = model.predict_proba(votes.votes, votes.confidence)
    n_runs, speaks = before["n_runs"], (votes.votes >= 0).any(1)
    mean = (np.maximum(own, 1e-12) * np.maximum(before["soft_labels"], 1e-12) ** n_runs[:, None]) ** (
        1 / (n_runs[:, None] + 1)
    )
    mean /= mean.sum(1, keepdims=True)
    assert speaks.sum() > 1000
    assert found.soft_labels[speaks] == pytest.approx(mean[speaks], abs=1e-5)
    silent = (n_runs > 0) & ~speaks
    assert found.soft_labels[silent] == pytest.approx(before["soft_labels"][silent], abs=1e-5)
    assert (found.covered == ((n_runs > 0) | speaks)).all()


def test_a_run_has_no_say_between_classes_that_it_tells_apart_by_size(
    tiny_run: Path, again: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import dpssl.audit
    import dpssl.combine
    from dpssl.runs import open_run

    parents = [open_run(run, progress=False, writes=False) for run in (tiny_run, again)]
    pair = {"near": 3, "far": 8, "enlarged": 0.2, "smaller": 0.2}

    def combined_where(*found: list[dict[str, Any]]) -> RunFolder:
        of_run = dict(zip((id(parent) for parent in parents), found, strict=True))
        monkeypatch.setattr(dpssl.audit, "pairs_told_apart_by_size", lambda run, *where: of_run[id(run)])
        out = tmp_path / str(len(list(tmp_path.iterdir())))
        return dpssl.combine.start_combined(parents, parents[0].config, str(out)).folder

    def odds(folder: RunFolder) -> np.ndarray:
        common = folder.read_arrays("start/common.npz", "soft_labels")["soft_labels"].astype(float)
        return np.log(common[:, 3]) - np.log(common[:, 8])

    first, second = (RunFolder(run).read_soft_labels() for run in (tiny_run, again))
    both = first.covered & second.covered
    of_first = np.log(np.maximum(first.soft_labels[:, [3, 8]].astype(float), 1e-12)) @ [1, -1]
    plain, one_silent, all_silent = combined_where([], []), combined_where([], [pair]), combined_where([pair], [pair])
    assert odds(one_silent)[both] == pytest.approx(of_first[both] / 2, abs=1e-3)
    assert np.abs(odds(plain)[both] - of_first[both] / 2).max() > 0.1
    assert one_silent.read_json("start/combined.json")["no_say"] == [[], [[3, 8]]]
    assert odds(all_silent) == pytest.approx(odds(plain)), "where it is true of all, all are heard"


def test_a_run_has_no_say_about_kinds_that_their_class_does_not_explain(
    warm_cli: Any, tiny: list[str], tiny_run: Path, tmp_path: Path
) -> None:
    warm, out = tmp_path / "warm", tmp_path / "out"
    done = warm_cli("run", *tiny, "--repeat", 2, "--warm-steps", 20, "--out", warm)
    assert done.returncode == 0, done.stderr
    done = warm_cli("combine", tiny_run, warm, "--out", out, "--unexplained", 0.3, "--warm-steps", 0)
    assert done.returncode == 0, done.stderr
    noted, n_runs = (
        RunFolder(out).read_json("start/combined.json"),
        RunFolder(out).read_arrays("start/common.npz", "n_runs"),
    )
    covered = [RunFolder(run).read_soft_labels().covered for run in (tiny_run, warm)]
    unlabeled = np.isin(RunFolder(warm).read_soft_labels().ids, split_of(warm)["unlabeled"])
    assert noted["n_unexplained"][0] == 0, "it has no warm start whose features could tell"
    assert 0 < noted["n_unexplained"][1] <= 0.3 * (covered[1] & unlabeled).sum()
    silent = (sum(covered) - n_runs["n_runs"]).astype(bool)
    assert silent.sum() == noted["n_unexplained"][1]
    assert not silent[~unlabeled].any()
    judged = np.flatnonzero(covered[1] & unlabeled)
    embeddings = RunFolder(warm).read_arrays("embeddings.npz", "embeddings")["embeddings"][judged]
    kinds = kinds_of(embeddings, RunFolder(warm).read_soft_labels().soft_labels[judged].argmax(1))
    shares = np.bincount(kinds, weights=silent[judged]) / np.bincount(kinds)
    assert ((shares < 0.1) | (shares > 0.9)).mean() > 0.8, "whole kinds, but for those that half precision moves"
    left = RunFolder(out).read_arrays("start/common.npz", "soft_labels")["soft_labels"][n_runs["n_runs"] == 0]
    assert len(np.unique(left.round(4), axis=0)) <= 2, "of whom nobody speaks there is only the class shares"
    assert f"{warm} has no say about {silent.sum():,} images" in done.stderr


def test_the_features_of_the_start_are_those_of_its_weights(
    warm_cli: Any, tiny: list[str], tiny_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch

    from dpssl import audit
    from dpssl.audit import knows_its_kinds, start_features
    from dpssl.config import with_values
    from dpssl.runs import open_run

    warm = tmp_path / "warm"
    done = warm_cli("run", *tiny, "--warm-steps", 20, "--out", warm)
    assert done.returncode == 0, done.stderr
    learnt, drawn = (open_run(run, progress=False, writes=False) for run in (warm, tiny_run))
    assert knows_its_kinds(learnt)
    assert not knows_its_kinds(drawn)
    named = RunFolder(warm).read_json("summary.json")["unexplained_kinds"]
    assert RunFolder(tiny_run).read_json("summary.json")["unexplained_kinds"] is None
    assert isinstance(named, list)
    given, gone = (
        replace(drawn, config=with_values(drawn.config, {"backbone_weights": str(warm / name)}))
        for name in ("backbone.safetensors", "moved.safetensors")
    )
    assert knows_its_kinds(given)
    assert not knows_its_kinds(gone)
    of_learnt, of_given = (start_features(run, torch.device("cpu"), "auto") for run in (learnt, given))
    assert (of_learnt == of_given).all()
    monkeypatch.setattr(audit, "hardly_explained", lambda found: [3, 0])
    (first, second) = audit.unexplained_kinds(learnt, torch.device("cpu"), "auto")
    file = learnt.folder.read_soft_labels()
    for kind in (first, second):
        called = file.soft_labels[np.isin(file.ids, kind["ids"])].argmax(1)
        assert set(called) == {kind["label"]}
        assert 0 < kind["share"] <= 1
    assert first["ids"] != second["ids"]
    assert of_learnt.std(0).min() > 0


def test_a_run_has_no_say_between_a_class_that_it_has_lost_and_what_has_taken_it_in(
    tiny_run: Path, tmp_path: Path
) -> None:
    from dpssl.combine import pairs_without_say
    from dpssl.runs import open_run

    label = np.arange(1437) % 10
    sure, one_lost = np.eye(10)[label], np.eye(10)[np.where(label == 3, 8, label)]
    runs = []
    for name, soft_labels, has_votes in (
        ("whole", sure, np.ones(1437, bool)),
        ("lossy", one_lost, np.ones(1437, bool)),
        ("silent", np.where(np.arange(1437)[:, None] < 400, sure, np.eye(10)[0]), np.arange(1437) < 400),
    ):
        folder = RunFolder(shutil.copytree(tiny_run, tmp_path / name))
        (folder.folder / "end_model.safetensors").unlink()  # nothing is said of sizes
        file = folder.read_soft_labels()
        folder.write_soft_labels(file.ids, file.class_names, soft_labels, has_votes)
        runs.append(open_run(folder.folder, progress=False, writes=False))
    files = [run.folder.read_soft_labels(runs[0].dataset.ids) for run in runs]
    known = with_values(runs[0].config, {"class_prior": "uniform"})
    assert pairs_without_say(runs, files, known) == [[], [(3, 8)], []]
    unknown = with_values(runs[0].config, {"class_prior": "estimated"})
    assert pairs_without_say(runs, files, unknown) == [[], [], []]


def test_both_trainings_see_the_trusted_labels(combined: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from dpssl import pipeline
    from dpssl.runs import open_run

    run = open_run(shutil.copytree(combined, tmp_path / "run"), progress=False)
    n_labels = len(run.split.labeled) + len(run.split.trusted)
    seen: list[int] = []

    def note(bank: Any, labels: Any, *rest: Any, **more: Any) -> None:
        seen.append(int((labels >= 0).sum()))
        raise InterruptedError

    for step, training, name in (
        ("train", "train_end_model", "train_classifier"),
        ("lfs", "train_lfs", "train_labeling_functions"),
    ):
        for result in pipeline.RESULTS[step]:
            (run.folder.folder / result).unlink()
        monkeypatch.setattr(pipeline, training, note)
        with pytest.raises(InterruptedError):
            getattr(pipeline, name)(run)
    assert seen == [n_labels, n_labels]


def test_training_learns_from_the_trusted_labels(warm_cli: Any, tiny_run: Path, again: Path, tmp_path: Path) -> None:
    runs = {}
    for trust in (0.2, 0.9):
        runs[trust] = tmp_path / str(trust)
        done = warm_cli("combine", tiny_run, again, "--out", runs[trust], "--trust", trust)
        assert done.returncode == 0, done.stderr
    votes = [RunFolder(run).read_votes().confidence for run in runs.values()]
    assert (votes[0] != votes[1]).any()


def test_labels_spread_in_it_only_if_asked_for(warm_cli: Any, tiny: list[str], again: Path, tmp_path: Path) -> None:
    first = tmp_path / "first"
    spread = ("--warm-steps", 2, "--pseudo-labels", "consensus", "--propagation-steps", 2)
    done = warm_cli("run", *tiny, *spread, "--out", first)
    assert done.returncode == 0, done.stderr
    assert "spread among neighbours" in done.stderr
    for asked, n_steps in (((), 0), (("--propagation-steps", 1), 1)):
        folder = tmp_path / str(n_steps)
        done = warm_cli("combine", first, again, "--out", folder, *asked)
        assert done.returncode == 0, done.stderr
        assert read_config(RunFolder(folder))[0].labeling.propagation_steps == n_steps
        assert ("spread among neighbours" in done.stderr) == bool(n_steps)


def test_a_stopped_one_goes_on_as_if_nothing_had_happened(
    warm_cli: Any, tiny_run: Path, again: Path, combined: Path, tmp_path: Path, fingerprint: Any, differing: Any
) -> None:
    folder = tmp_path / "stopped"
    killed = warm_cli("combine", tiny_run, again, "--out", folder, "--trust", 0.5, die_at=("open", "lf_model", 1))
    assert killed.returncode != 0
    done = warm_cli("resume", folder)
    assert done.returncode == 0, done.stderr
    assert differing(fingerprint(folder), fingerprint(combined)) == []


def test_the_report_names_the_runs(combined: Path, tiny_run: Path) -> None:
    page = (combined / "report.html").read_text(encoding="utf-8")
    assert "The runs it learnt from" in page
    assert str(tiny_run.resolve()) in page
    assert f"The {len(split_of(combined)['trusted']):,} labels" in page


def test_another_method_may_be_among_them(warm_cli: Any, tiny_fit: list[str], tiny_run: Path, tmp_path: Path) -> None:
    fitted = tmp_path / "fixmatch"
    done = warm_cli("fit", "--method", "fixmatch", *tiny_fit, "--out", fitted)
    assert done.returncode == 0, done.stderr
    done = warm_cli("combine", tiny_run, fitted, "--out", tmp_path / "both")
    assert done.returncode == 0, done.stderr
    assert RunFolder(tmp_path / "both").read_votes().votes.shape[1] == 6, "trained by the three steps"
    refused = warm_cli("combine", fitted, tiny_run, "--out", tmp_path / "refused")
    assert refused.returncode == 2
    assert "fixmatch" in refused.stderr
    assert not (tmp_path / "refused").exists()


def test_corrections_go_before_what_was_trusted(warm_cli: Any, combined: Path, tmp_path: Path) -> None:
    from dpssl.review.corrections import CorrectionLog

    run = shutil.copytree(combined, tmp_path / "run")
    file, trusted = RunFolder(run).read_soft_labels(), split_of(run)["trusted"]
    name = next(iter(trusted))
    other = (trusted[name] + 1) % 10
    log = CorrectionLog(RunFolder(run), file.ids.tolist(), file.class_names, file.soft_labels.argmax(1), "Ada")
    log.decide([(file.ids.tolist().index(name), other)])
    log.close()
    done = warm_cli("refine", run, "--out", tmp_path / "refined")
    assert done.returncode == 0, done.stderr
    split = split_of(tmp_path / "refined")
    assert split["labeled"][name] == other
    assert split["trusted"] == {key: label for key, label in trusted.items() if key != name}
    before, after = (
        RunFolder(folder).read_arrays("start/common.npz", "n_runs")["n_runs"] for folder in (run, tmp_path / "refined")
    )
    decided = file.ids == name
    assert after[decided] == 0
    assert (after[~decided] == before[~decided]).all(), "the word of the runs before stays"


def test_nobody_learns_from_a_run_that_knows_the_truth(
    warm_cli: Any, tiny_fit: list[str], tiny_run: Path, again: Path, tmp_path: Path
) -> None:
    ceiling, oracle = tmp_path / "ceiling", shutil.copytree(again, tmp_path / "oracle")
    assert warm_cli("fit", "--method", "fully-supervised", *tiny_fit, "--out", ceiling).returncode == 0
    (oracle / "oracle.json").write_text("{}")
    for other in (ceiling, oracle):
        refused = warm_cli("combine", tiny_run, other, "--out", tmp_path / "out")
        assert refused.returncode == 2
        assert "truth" in refused.stderr
        assert str(other) in refused.stderr
        assert not (tmp_path / "out").exists()


def test_runs_that_do_not_belong_together_are_named(
    warm_cli: Any, tiny: list[str], tiny_run: Path, again: Path, combined: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"

    def refused(*arguments: object) -> str:
        done = warm_cli("combine", *arguments, "--out", out)
        assert done.returncode == 2, done.stderr
        assert not out.exists()
        return str(done.stderr)

    assert "at least two" in refused(tiny_run)
    assert "each of them once" in refused(tiny_run, again, tiny_run)
    assert "--trust 0" in refused(tiny_run, again, "--trust", 0)
    assert "leaves none" in refused(tiny_run, again, "--trust", 0.0001)
    assert "--trust 1.5" in refused(tiny_run, again, "--trust", 1.5)
    assert "--unexplained 1" in refused(tiny_run, again, "--unexplained", 1)
    assert "warm start" in refused(tiny_run, again, "--unexplained", 0.1)
    assert "no such" in refused(tiny_run, tmp_path / "nowhere")
    assert "made from" in refused(tiny_run, combined)
    for flags, message in (
        (("--seed", 2), "another --seed holds other images back for testing"),  # digits
        (("--n-labels", 20), "--repeat"),
    ):
        other = tmp_path / flags[0].strip("-")
        assert warm_cli("run", *tiny, *flags, "--out", other).returncode == 0
        said = refused(tiny_run, other)
        assert message in said
        assert str(other) in said
    unfinished = tmp_path / "unfinished"
    assert warm_cli("lfs", *tiny, "--repeat", 3, "--out", unfinished).returncode == 0
    assert "soft_labels.npz" in refused(tiny_run, unfinished)


@pytest.mark.parametrize(
    ("changed", "same"),
    [({}, True), ({"steps": 70}, True), ({"steps": 5}, True), ({"width": 4}, False), ({"warm_steps": 5}, False)],
)
def test_a_warm_start_is_taken_over_where_it_would_be_the_same(changed: dict[str, int], same: bool) -> None:
    config = with_values(Config(), {"warm_steps": 10, "steps": 50})
    assert _same_warm_start(with_values(config, changed), config) == same


def test_a_warm_start_that_was_cut_short_is_not_taken_over() -> None:
    short = with_values(Config(), {"warm_steps": 100, "steps": 6})
    assert not _same_warm_start(with_values(short, {"steps": 20}), short)
