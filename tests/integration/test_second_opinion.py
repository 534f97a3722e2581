"""`dpssl run --second-method`: two runs and the one that learns from both, by one command."""

import shutil
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dpssl.config import with_values
from dpssl.config_file import read_config
from dpssl.run_folder import RunFolder

ASKED = ("--second-method", "fixmatch", "--combined-steps", 4, "--combined-end-steps", 2, "--warm-steps", 5)


@pytest.fixture(scope="module")
def flags(tiny: list[str]) -> list[object]:
    return [*tiny, *ASKED]


@pytest.fixture(scope="module")
def heard_both(warm_cli: Any, flags: list[object], tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("second") / "run"
    done = warm_cli("run", *flags, "--out", folder, "--report", "true")
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("images alone: 5/5") == 1, "all begin with the same start"
    return folder


def test_one_command_does_what_three_do(
    warm_cli: Any,
    tiny: list[str],
    tiny_fit: list[str],
    heard_both: Path,
    tmp_path: Path,
    fingerprint: Any,
    differing: Any,
) -> None:
    warm = ("--warm-steps", 5)
    for arguments in (
        ("run", *tiny, *warm, "--out", "first"),
        ("fit", "--method", "fixmatch", *tiny_fit, *warm, "--out", "second"),
        ("combine", "first", "second", "--steps", 4, "--end-steps", 2, "--out", "both"),
    ):
        done = warm_cli(*arguments, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
    assert "Warm start" not in done.stderr, "a run of fewer steps takes over the longer start"
    for alone, inside in (("first", "start/first"), ("both", ".")):
        assert differing(fingerprint(heard_both / inside), fingerprint(tmp_path / alone)) == []
    for name in ("soft_labels.npz", "end_model.safetensors", "backbone.safetensors"):
        assert (heard_both / "start/second" / name).read_bytes() == (tmp_path / "second" / name).read_bytes()


def test_what_it_leaves(heard_both: Path) -> None:
    folder, first, second = RunFolder(heard_both), heard_both / "start/first", heard_both / "start/second"
    noted = folder.read_json("start/combined.json")
    assert noted["combined_from"] == ["start/first", "start/second"], "a folder that is moved still knows them"
    summaries = [RunFolder(run).read_json("summary.json") for run in (first, second, heard_both)]
    assert [summary["method"] for summary in summaries] == ["dp-ssl", "fixmatch", "dp-ssl"]
    minutes = [sum(summary["minutes_per_step"].values()) for summary in summaries]
    assert summaries[2]["minutes_per_step"]["runs"] == pytest.approx(minutes[0] + minutes[1], abs=1e-3)
    assert noted["summaries"][1]["test_accuracy"] == summaries[1]["test_accuracy"]
    configs = [read_config(RunFolder(run))[0] for run in (first, second, heard_both)]
    assert [config.labeling.steps for config in configs] == [6, 6, 4]
    assert [config.end_model.end_steps for config in configs] == [4, 4, 2]
    assert [config.run.repeat for config in configs] == [0, 0, 1]
    assert {config.second_run.second_method for config in configs} == {"none"}, "each is one run by now"
    assert noted["methods"] == ["dp-ssl", "fixmatch"]
    page = (heard_both / "report.html").read_text(encoding="utf-8")
    assert "The runs it learnt from" in page
    assert "start/second (fixmatch)" in page


@pytest.mark.parametrize(
    "die_at",
    [
        ("os.rename", "config.toml", 2),  # as the first run inside it begins
        ("os.rename", "lfs-00000004", 1),  # in its training
        ("os.rename", "start/second/config.toml", 1),
        ("os.rename", "fit-00000004", 1),
        ("os.rename", "split.json", 4),  # as both are combined: before the trusted labels are noted,
        ("os.rename", "common.npz", 1),
        ("os.rename", "combined.json", 1),
        ("os.rename", "config.toml", 4),  # and before the settings are those of the run that learns from both
        ("os.rename", "votes.npz", 2),
    ],
)
def test_a_killed_one_goes_on_as_if_nothing_had_happened(
    warm_cli: Any,
    flags: list[object],
    heard_both: Path,
    tmp_path: Path,
    fingerprint: Any,
    differing: Any,
    die_at: tuple[str, str, int],
) -> None:
    folder = tmp_path / "killed"
    killed = warm_cli("run", *flags, "--out", folder, "--checkpoint-minutes", 0, die_at=die_at)
    assert killed.returncode < 0, killed.stderr
    done = warm_cli("resume", folder)
    assert done.returncode == 0, done.stderr
    assert differing(fingerprint(folder), fingerprint(heard_both)) == []
    assert read_config(RunFolder(folder))[0].labeling.steps == 4


def test_a_limit_of_minutes_holds_for_all_of_it(
    warm_cli: Any, flags: list[object], heard_both: Path, tmp_path: Path, fingerprint: Any, differing: Any
) -> None:
    folder = tmp_path / "limited"
    stopped = warm_cli("run", *flags, "--out", folder, "--max-minutes", 1e-6)
    assert stopped.returncode == 0, stopped.stderr
    assert f"dpssl resume {folder}" in stopped.stderr
    assert not (folder / "start/first/votes.npz").exists()
    again = warm_cli("resume", folder)  # by its own limit, which counts anew
    assert again.returncode == 0
    assert not (folder / "start/second").exists()
    done = warm_cli("resume", folder, "--max-minutes", 0)
    assert done.returncode == 0, done.stderr
    assert differing(fingerprint(folder), fingerprint(heard_both)) == []


@pytest.mark.parametrize("seen", ["First of 2", "Training fixmatch"])
def test_one_that_was_asked_to_stop_goes_on_elsewhere(
    warm_cli: Any,
    flags: list[object],
    heard_both: Path,
    tmp_path: Path,
    fingerprint: Any,
    differing: Any,
    wait_until: Any,
    seen: str,
) -> None:
    running = warm_cli.start("run", *flags, "--out", tmp_path / "here", "--checkpoint-minutes", 0)
    wait_until(lambda: seen in running.stderr, running)
    stopped = running.send(signal.SIGTERM)
    assert stopped.returncode == 128 + signal.SIGTERM, stopped.stderr
    assert not (tmp_path / "here/end_model.safetensors").exists()
    folder = (tmp_path / "here").rename(tmp_path / "there")
    done = warm_cli("resume", folder)
    assert done.returncode == 0, done.stderr
    assert differing(fingerprint(folder), fingerprint(heard_both)) == []


def test_a_page_of_a_run_that_is_not_done_is_made_again(
    warm_cli: Any, flags: list[object], heard_both: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "run"
    killed = warm_cli(
        "run", *flags, "--out", folder, "--checkpoint-minutes", 0, die_at=("os.rename", "fit-00000004", 1)
    )
    assert killed.returncode < 0
    assert warm_cli("report", folder / "start/second").returncode == 0
    assert warm_cli("resume", folder).returncode == 0
    noted, expected = (RunFolder(run).read_json("start/combined.json") for run in (folder, heard_both))
    assert noted == expected
    assert noted["summaries"][1]["test_accuracy"] is not None


def test_its_settings_train_it_again(
    warm_cli: Any, heard_both: Path, tmp_path: Path, fingerprint: Any, differing: Any
) -> None:
    done = warm_cli("run", "--config", heard_both / "start/config.toml", "--out", tmp_path / "again")
    assert done.returncode == 0, done.stderr
    assert differing(fingerprint(tmp_path / "again"), fingerprint(heard_both)) == []


def test_the_command_that_started_it_resumes_it(warm_cli: Any, flags: list[object], heard_both: Path) -> None:
    again = warm_cli("resume", heard_both, *flags)
    assert again.returncode == 0, again.stderr
    for other in (("--combined-steps", 5), ("--steps", 5)):
        refused = warm_cli("resume", heard_both, *other)
        assert refused.returncode == 2
        assert f"{other[0]} 5: this run was started with" in refused.stderr


def test_steps_of_a_run_that_will_not_be(warm_cli: Any, tiny: list[str], tmp_path: Path) -> None:
    for name in ("--combined-steps", "--combined-end-steps"):
        refused = warm_cli("run", *tiny, name, 4, "--out", tmp_path / "run")
        assert refused.returncode == 2
        assert f"{name} 4: only with --second-method" in refused.stderr
    assert not (tmp_path / "run").exists()


def test_a_step_waits_until_both_are_heard(
    warm_cli: Any, flags: list[object], heard_both: Path, tmp_path: Path, fingerprint: Any, differing: Any
) -> None:
    half, whole = tmp_path / "half", shutil.copytree(heard_both, tmp_path / "whole")
    warm_cli("run", *flags, "--out", half, "--max-minutes", 1e-6)
    for command in ("label", "train"):
        refused = warm_cli(command, half)
        assert refused.returncode == 2
        assert f"dpssl resume {half}" in refused.stderr
        done = warm_cli(command, whole, "--redo")
        assert done.returncode == 0, done.stderr
    assert differing(fingerprint(whole), fingerprint(heard_both)) == []


def test_nobody_changes_a_run_inside_before_it_is_heard(
    warm_cli: Any, flags: list[object], tmp_path: Path, wait_until: Any
) -> None:
    from dpssl.errors import RunFolderError
    from dpssl.runs import open_run

    running = warm_cli.start("run", *flags, "--out", tmp_path / "run")
    wait_until(lambda: "Training fixmatch" in running.stderr, running)
    with pytest.raises(RunFolderError, match="another dpssl"):
        open_run(tmp_path / "run/start/first", progress=False)
    assert running.wait().returncode == 0
    open_run(tmp_path / "run/start/first", progress=False)


def test_settings_of_the_second_method(warm_cli: Any, tiny: list[str], tmp_path: Path) -> None:
    folder = tmp_path / "run"
    asked = ("--second-method", "fixmatch", "--method-settings", "threshold=0.9")
    done = warm_cli("run", *tiny, *asked, "--out", folder)
    assert done.returncode == 0, done.stderr
    configs = [read_config(RunFolder(folder / run))[0] for run in ("start/first", "start/second", ".")]
    assert configs[0].baseline.method_settings == configs[2].baseline.method_settings == ()
    assert "threshold=0.9" in configs[1].baseline.method_settings
    refused = warm_cli("run", *tiny, *asked[:3], "treshold=0.9", "--out", tmp_path / "refused")
    assert refused.returncode == 2
    assert "did you mean threshold" in refused.stderr


def test_what_the_second_method_cannot_do_is_said_before_the_first_is_trained(
    warm_cli: Any, tiny: list[str], own_images: Any, tmp_path: Path
) -> None:
    rng = np.random.default_rng(0)
    oblong = own_images(images=rng.integers(0, 255, (40, 8, 6), dtype=np.uint8))
    asked = ("run", "--data", oblong, *tiny, "--second-method", "remixmatch")
    refused = warm_cli(*asked, "--out", tmp_path / "refused")
    assert refused.returncode == 2
    assert "--method-settings rotation_weight=0" in refused.stderr
    assert not (tmp_path / "refused").exists()
    done = warm_cli(*asked, "--method-settings", "rotation_weight=0", "--out", tmp_path / "run")
    assert done.returncode == 0, done.stderr


def test_dp_ssl_may_be_asked_twice(warm_cli: Any, tiny: list[str], tmp_path: Path) -> None:
    folder = tmp_path / "run"
    done = warm_cli("run", *tiny, "--second-method", "dp-ssl", "--out", folder)
    assert done.returncode == 0, done.stderr
    configs = [read_config(RunFolder(folder / run))[0] for run in ("start/first", "start/second", ".")]
    assert [config.run.repeat for config in configs] == [0, 1, 2]
    assert [config.labeling.steps for config in configs] == [6, 6, 3], "half of the steps where none are given"
    assert [config.end_model.end_steps for config in configs] == [4, 4, 4]
    votes = [(folder / run / "votes.npz").read_bytes() for run in ("start/first", "start/second")]
    assert votes[0] != votes[1]


def test_it_is_refined_as_one_run(warm_cli: Any, heard_both: Path, tmp_path: Path) -> None:
    from dpssl.review.corrections import CorrectionLog

    run = shutil.copytree(heard_both, tmp_path / "run")
    file = RunFolder(run).read_soft_labels()
    log = CorrectionLog(RunFolder(run), file.ids.tolist(), file.class_names, file.soft_labels.argmax(1), "Ada")
    log.decide([(100, 3)])
    log.close()
    done = warm_cli("refine", run, "--out", tmp_path / "refined")
    assert done.returncode == 0, done.stderr
    assert not (tmp_path / "refined/start/first").exists()
    assert read_config(RunFolder(tmp_path / "refined"))[0].has_second_run is False


def test_commands_of_one_run_leave_it_out(warm_cli: Any, tiny_fit: list[str], tmp_path: Path) -> None:
    settings = tmp_path / "both.toml"
    settings.write_text('[second_run]\nsecond_method = "fixmatch"\n')
    for number, arguments in enumerate((("lfs",), ("fit", "--method", "flexmatch"), ("run", "--method", "flexmatch"))):
        folder = tmp_path / str(number)
        done = warm_cli(*arguments, *tiny_fit, "--config", settings, "--out", folder)
        assert done.returncode == 0, done.stderr
        assert read_config(RunFolder(folder))[0].second_run.second_method == "none"
    for arguments in (("lfs",), ("fit", "--method", "flexmatch"), ("run", "--method", "flexmatch")):
        refused = warm_cli(*arguments, *tiny_fit, "--second-method", "fixmatch", "--out", tmp_path / "refused")
        assert refused.returncode == 2
        assert "dpssl run" in refused.stderr
        assert not (tmp_path / "refused").exists()


@pytest.mark.parametrize("method", ["fully-supervised", "nobody"])
def test_a_system_that_it_cannot_ask(warm_cli: Any, tiny: list[str], tmp_path: Path, method: str) -> None:
    refused = warm_cli("run", *tiny, "--second-method", method, "--out", tmp_path / "refused")
    assert refused.returncode == 2
    assert "fixmatch" in refused.stderr, "names those it can"
    assert not (tmp_path / "refused").exists()


def test_one_process_trains_it(monkeypatch: pytest.MonkeyPatch) -> None:
    from dpssl import checks
    from dpssl.config import Config
    from dpssl.data.share import Share
    from dpssl.errors import InputError

    config = with_values(Config(), {"second_method": "fixmatch"})
    checks.check_settled(config)
    monkeypatch.setattr(checks, "share", lambda: Share(0, 2))
    with pytest.raises(InputError, match="one process"):
        checks.check_settled(config)
    checks.check_settled(with_values(config, {"second_method": "none"}))
