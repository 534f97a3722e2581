"""The documents say what the code does: flags, commands, presets, files, fields, functions."""

import csv
import dataclasses
import importlib
import json
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dpssl import cli
from dpssl.config import Option, flag, options, preset_names

CODE_LINK = re.compile(r"\[`([\w.]+)`\]\(\.\./src/dpssl/([\w/]+)\.py\)")
BENCHMARK = re.compile(r"\bpython benchmarks/[^`\n]*")  # with flags of its own
EQUATION_ROW = re.compile(r"^\| (\d+) \|.*$", re.MULTILINE)


@pytest.fixture(scope="module")
def docs(repo_root: Path) -> dict[str, str]:
    return {path.name: path.read_text(encoding="utf-8") for path in (repo_root / "docs").glob("*.md")}


def settings_row(setting: Option) -> str:
    """The line of docs/cli.md about one setting."""
    value = setting.default
    if isinstance(value, tuple):
        shown = " ".join(map(str, value))
    elif isinstance(value, bool):
        shown = str(value).lower()
    else:
        shown = f"{value:g}" if isinstance(value, float) else str(value)
    return f"| `{flag(setting.name)}` | {shown} | {setting.help} |"


def resolve(module: str, name: str) -> Any:
    found: Any = importlib.import_module(module)
    for part in name.split("."):
        found = getattr(found, part)
    return found


# The command line


def test_every_setting_is_listed_with_its_default_and_help(docs: dict[str, str]) -> None:
    listed = re.findall(r"^\| `--.*$", docs["cli.md"].split("## Settings")[1], re.MULTILINE)
    expected = [settings_row(setting) for setting in options()]
    missing = "\n".join(row for row in expected if row not in listed)
    assert not missing, f"docs/cli.md needs these lines:\n{missing}"
    assert listed == expected, "docs/cli.md lists a setting that is gone, or in another order than dpssl.config"


def test_the_first_command_of_the_quickstart_comes_to_its_end(
    docs: dict[str, str], warm_cli: Any, tmp_path: Path
) -> None:
    (line,) = re.findall(r"^dpssl (run .*--out) /tmp/tiny$", docs["quickstart.md"], re.MULTILINE)
    done = warm_cli(*line.split(), tmp_path / "tiny")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "tiny/report.html").exists()


def test_every_section_command_and_preset_has_its_place(docs: dict[str, str]) -> None:
    lines = docs["cli.md"].splitlines()
    assert [name for name in cli.COMMANDS if f"| [`{name}`](#dpssl-{name}) |" not in docs["cli.md"]] == []
    assert [f"## `dpssl {name}`" for name in cli.COMMANDS if f"## `dpssl {name}`" not in lines] == []
    assert [name for name in {setting.section for setting in options()} if f"### {name}" not in lines] == []
    assert [name for name in preset_names() if f"presets/{name}.toml" not in docs["cli.md"]] == []


def test_no_document_names_a_flag_that_does_not_exist(
    docs: dict[str, str], repo_root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    known = {"--help", "--version", "--nproc-per-node", "--nnodes", "--rdzv-backend", "--rdzv-endpoint"}  # torchrun's
    known.add("--logdir")  # TensorBoard's
    actions = [[command.name, action.name] for command in cli.COMMANDS.values() for action in command.actions]
    for words in [*([name] for name in cli.COMMANDS), *actions]:
        with pytest.raises(SystemExit):
            cli.main([*words, "--help"])
        known |= set(re.findall(r"--[a-z][a-z-]*", capsys.readouterr().out))
    texts = {**docs, "README.md": (repo_root / "README.md").read_text(encoding="utf-8")}
    unknown = {
        f"{name}: {found}"
        for name, text in texts.items()
        for found in re.findall(r"(?<![\w-])--[a-z][a-z-]*", BENCHMARK.sub("", text))
        if found not in known
    }
    assert unknown == set()


# The method


def test_every_equation_has_a_row_with_its_test(docs: dict[str, str], repo_root: Path) -> None:
    table = docs["method.md"].split("## Equations")[1].split("\n## ")[0]
    rows = {int(found[1]): found[0] for found in EQUATION_ROW.finditer(table)}
    assert list(rows) == list(range(1, 23))
    for number, row in rows.items():
        assert CODE_LINK.search(row), f"Eq. {number} names no function"
        (test,) = (repo_root / "tests" / "paper").glob(f"test_eq{number:02d}_*.py")
        assert f"(../tests/paper/{test.name})" in row


def test_every_function_named_exists_in_the_file_linked(docs: dict[str, str]) -> None:
    links = CODE_LINK.findall(docs["method.md"])
    assert len(links) > 50
    for name, file in links:
        module = file.replace("/", ".")
        assert name.startswith(f"{module}."), f"`{name}` is not in {file}.py"
        resolve(f"dpssl.{module}", name.removeprefix(f"{module}."))


def test_every_deviation_marked_in_the_code_is_listed(docs: dict[str, str], repo_root: Path) -> None:
    source = repo_root / "src" / "dpssl"
    marked = [path for path in source.rglob("*.py") if re.search(r"\bDeviation\b", path.read_text(encoding="utf-8"))]
    assert marked
    listed = docs["method.md"].split("## Deviations")[1]
    assert [path.name for path in marked if f"(../src/dpssl/{path.relative_to(source).as_posix()})" not in listed] == []


def test_every_method_has_its_row_with_all_its_settings(docs: dict[str, str]) -> None:
    from dpssl.baselines.registry import SYSTEMS

    for method, system in SYSTEMS.items():
        (row,) = re.findall(rf"^\| `{method}` \|.*$", docs["baselines.md"], re.MULTILINE)
        assert re.findall(r"`(\w+)` ", row.split("|")[3]) == [item.name for item in dataclasses.fields(system.Settings)]


# The outputs


@pytest.mark.slow
def test_every_file_and_field_of_a_run_is_described(
    docs: dict[str, str], run_cli: Callable[..., subprocess.CompletedProcess[str]], tmp_path: Path
) -> None:
    done = run_cli("run", "--steps", 2, "--mcl-max-steps", 2, "--end-steps", 2, "--threads", 1, "--out", "run")
    assert done.returncode == 0, done.stderr
    run = tmp_path / "run"
    summary = json.loads((run / "summary.json").read_text(encoding="utf-8"))
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    names = {path.name for path in run.iterdir()} - {"checkpoint"}
    names |= {*summary, *summary["per_class"][0], *(key for line in lines for key in line)}
    for name in ("images.json", "split.json", "progress.json"):
        names |= json.loads((run / name).read_text(encoding="utf-8")).keys()
    for arrays in run.glob("*.npz"):
        with np.load(arrays, allow_pickle=False) as archive:
            names |= set(archive.files)
    with (run / "soft_labels.csv").open(newline="") as table:
        names |= set(next(csv.reader(table)))
    assert sorted(name for name in names if f"`{name}`" not in docs["outputs.md"]) == []
