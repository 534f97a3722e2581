import dataclasses
import math
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from dpssl.config import (
    Config,
    Option,
    alone,
    combined_config,
    from_toml,
    load_config_file,
    load_preset,
    options,
    preset_names,
    second_config,
    settings_that_matter,
    to_toml,
    with_values,
)
from dpssl.errors import InputError

OPTIONS = list(options())


def value_of(config: Config, entry: Option) -> Any:
    return getattr(getattr(config, entry.section), entry.name)


# Round trip


def allowed_values(entry: Option) -> st.SearchStrategy[Any]:
    """Any value that the field's own limits let through."""
    (field,) = (item for item in dataclasses.fields(getattr(Config(), entry.section)) if item.name == entry.name)
    least, most, choices = (field.metadata[key] for key in ("least", "most", "choices"))
    if choices:
        single = st.sampled_from(choices)
    elif isinstance(entry.default, bool):
        single = st.booleans()
    elif entry.type in (str, tuple[str, ...]):
        single = st.sampled_from(["digits", "a b", '"\\\n'])  # any string at all: test_strings_survive_toml
    elif isinstance(entry.default, float):
        single = st.floats(least, most, allow_nan=False)
    else:
        single = st.integers(1 if least is None else int(least), None if most is None else int(most))
    return st.lists(single, min_size=1, max_size=5).map(tuple) if isinstance(entry.default, tuple) else single


@settings(max_examples=30)
@given(st.fixed_dictionaries({entry.name: allowed_values(entry) for entry in OPTIONS}))
def test_every_field_survives_toml(values: dict[str, Any]) -> None:
    values |= {  # limits that lie between fields, or between two values
        "backbone": "timm:any", "pseudo_labels": "consensus", "adaptive_threshold": True, "sharpness_range": 2.0,
        "curriculum_threshold": False, "least_threshold": min(values["least_threshold"], values["most_threshold"]),
    }  # fmt: skip
    config = with_values(Config(), values)
    for entry in OPTIONS:
        assert value_of(config, entry) == values[entry.name]
    assert from_toml(to_toml(config)) == config


def test_settings_that_go_together_may_come_in_any_order() -> None:
    together = {"surest_first": 0.1, "adaptive_threshold": True, "pseudo_labels": "consensus"}
    assert with_values(Config(), together) == with_values(Config(), dict(reversed(together.items())))


def test_a_switch_that_is_gone_is_passed_over_where_it_was_off() -> None:
    """A config.toml of an earlier version goes on training what it trained."""
    off = "[labeling]\nabstain_claim = 0\nfairness_weight = 0.0\npropagation_veto = false\nsteps = 7\n"
    assert from_toml(off) == with_values(Config(), {"steps": 7})
    for on in ("abstain_claim = 0.5", "fairness_weight = 0.1", "propagation_veto = true"):
        with pytest.raises(InputError, match=rf"old.toml: there is no {on.split()[0]} any more, .*leave it out"):
            from_toml(f"[labeling]\n{on}\n", source="old.toml")
    with pytest.raises(InputError, match="unknown setting"):
        with_values(Config(), {"propagation_veto": False})


@given(st.text())
@example('a "quoted" name.npz')
@example("two\nlines\r\n")
@example("C:\\data\\new")
@example("tab\tand # hash = [x]")
@example("Größe 数字 😀")
@example("\x00\x7f\x85\u2028")
@example("private \U000f0000 plane")
def test_strings_survive_toml(text: str) -> None:
    config = with_values(Config(), {"data": text})
    assert from_toml(to_toml(config)).data.data == text


def test_toml_has_a_table_a_section_and_helps_the_reader() -> None:
    text = to_toml(Config())
    document = tomllib.loads(text)
    assert list(document) == [field.name for field in dataclasses.fields(Config)]
    assert document["labeling"]["n_lfs"] == 50
    for entry in OPTIONS:
        assert f"# {entry.help}" in text


# Options


def test_names_are_unique_and_every_field_has_one_line_of_help() -> None:
    names = [entry.name for entry in OPTIONS]
    assert len(names) == len(set(names))
    for entry in OPTIONS:
        assert entry.help.strip(), entry.name
        assert "\n" not in entry.help
        assert type(value_of(Config(), entry)) is type(entry.default)
        assert value_of(Config(), entry) == entry.default


def test_the_flags_that_scripts_lean_on_are_there() -> None:
    names = {entry.name for entry in OPTIONS}
    assert {"seed", "steps", "max_minutes", "device", "data", "labels", "n_labels"} <= names


def test_defaults_are_the_paper_s() -> None:
    config = Config()
    assert (config.labeling.n_lfs, config.labeling.specialist_ratio) == (50, 0.2)
    assert config.labeling.confidence_threshold == 0.95
    assert (config.labeling.batch_size, config.labeling.batch_size * config.labeling.unlabeled_ratio) == (64, 448)
    assert (config.backbone.depth, config.backbone.width) == (28, 2)


def test_a_configuration_cannot_be_changed_in_place() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        Config().labeling.n_lfs = 3


# Values


@pytest.mark.parametrize(
    ("name", "given_value", "expected"),
    [
        ("n_lfs", "20", 20),
        ("n_lfs", 20.0, 20),
        ("learning_rate", "3e-2", 0.03),
        ("learning_rate", 1, 1.0),
        ("mcl", "false", False),
        ("mcl", "True", True),
        ("strides", "1,2,1", (1, 2, 1)),
        ("strides", "1 2 1", (1, 2, 1)),
        ("strides", [1, 2, 1], (1, 2, 1)),
        ("strong_ops", "rotate, shear_x", ("rotate", "shear_x")),
        ("data", "true", "true"),
    ],
)
def test_values_of_flags_and_toml_become_the_field_s_type(name: str, given_value: Any, expected: Any) -> None:
    config = with_values(Config(), {name: given_value})
    (entry,) = (entry for entry in OPTIONS if entry.name == name)
    assert value_of(config, entry) == expected
    assert type(value_of(config, entry)) is type(expected)


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("n_lfs", "many"),
        ("n_lfs", 2.5),
        ("n_lfs", "2.5"),
        ("n_lfs", True),
        ("n_lfs", [3]),
        ("n_lfs", math.inf),
        ("n_lfs", math.nan),
        ("learning_rate", "fast"),
        ("learning_rate", False),
        ("mcl", "maybe"),
        ("mcl", 1),
        ("strides", "a,b"),
        ("strides", [1, 2.5]),
        ("strides", 2),
        ("strides", True),
        ("data", ["digits"]),
        ("data", True),
    ],
)
def test_a_wrong_type_names_the_flag(name: str, wrong: object) -> None:
    with pytest.raises(InputError, match=rf"--{name.replace('_', '-')}\b"):
        with_values(Config(), {name: wrong})


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("seed", -1),
        ("n_lfs", 0),
        ("steps", 0),
        ("batch_size", 0),
        ("window", 0),
        ("specialist_ratio", "nan"),
        ("specialist_ratio", "inf"),
        ("confidence_threshold", 1.5),
        ("ema_decay", -0.1),
        ("final_lr_fraction", 2),
        ("learning_rate", -1),
        ("learning_rate", "nan"),
        ("abstain_view", "sideways"),
        ("backbone_gradient", "median"),
        ("end_view", "none"),
        ("end_start", "middle"),
        ("end_uncovered", "guess"),
        ("device", "tpu"),
        ("precision", "half"),
        ("interpolation", "cubic"),
        ("strong_ops", ["rotate", "melt"]),
        ("strong_ops", []),
        ("strides", [1, 0]),
        ("strides", []),
        ("max_level", 1),
        ("shift", 1.0),
    ],
)
def test_a_value_out_of_range_names_the_flag(name: str, wrong: object) -> None:
    with pytest.raises(InputError, match=rf"--{name.replace('_', '-')}\b"):
        with_values(Config(), {name: wrong})


def test_an_unknown_name_is_refused() -> None:
    with pytest.raises(InputError, match="unknown setting 'n_lf'"):
        with_values(Config(), {"n_lf": 3})
    with pytest.raises(InputError, match="unknown setting 'typo'"):
        from_toml("[labeling]\ntypo = 1\n")


# Files


def test_a_file_changes_what_it_names_and_keeps_the_rest() -> None:
    base = with_values(Config(), {"seed": 7})
    config = from_toml("n_lfs = 12\n[end_model]\nend_steps = 5\n", base)
    assert (config.labeling.n_lfs, config.end_model.end_steps, config.run.seed) == (12, 5, 7)
    assert config == with_values(base, {"n_lfs": 12, "end_steps": 5})


def test_a_field_may_share_its_section_s_name() -> None:
    assert from_toml('label_model = "paper"').label_model.label_model == "paper"
    assert from_toml('[label_model]\nlabel_model = "paper"').label_model.label_model == "paper"


def test_what_the_run_folder_notes_about_the_machine_is_no_setting() -> None:
    assert from_toml(to_toml(Config()) + '\n[environment]\ntorch = "2.13.0"\n') == Config()


def test_bad_toml_names_its_file(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"mine\.toml is not valid TOML"):
        from_toml("n_lfs = = 3", source="mine.toml")
    with pytest.raises(InputError, match=r"mine\.toml: unknown section \[labelling\]"):
        from_toml("[labelling]\nn_lfs = 3", source="mine.toml")
    with pytest.raises(InputError, match=r"--config .*missing\.toml: cannot be read"):
        load_config_file(tmp_path / "missing.toml")
    (tmp_path / "latin.toml").write_bytes(b'data = "\xe9"')
    with pytest.raises(InputError, match=r"latin\.toml"):
        load_config_file(tmp_path / "latin.toml")


@pytest.mark.parametrize("text", ["n_lf = 3", 'n_lfs = "many"'])
def test_a_bad_value_in_a_file_names_the_file(tmp_path: Path, text: str) -> None:
    (tmp_path / "mine.toml").write_text(text)
    with pytest.raises(InputError, match=r"mine\.toml"):
        load_config_file(tmp_path / "mine.toml")


def test_a_config_file_is_read(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text("[run]\nseed = 5\n")
    assert load_config_file(tmp_path / "mine.toml").run.seed == 5
    assert load_config_file(str(tmp_path / "mine.toml")).run.seed == 5


# Presets


@pytest.mark.parametrize("name", preset_names())
def test_presets_load(name: str) -> None:
    config = load_preset(name)
    assert config != Config()
    assert from_toml(to_toml(config)) == config


def test_the_paper_s_preset_is_the_paper_s() -> None:
    config = load_preset("paper")
    assert config.labeling.min_specialists == 0
    assert config.labeling.abstain_view == "weak"  # as Eq. 6 is printed
    assert (config.labeling.n_lfs, config.labeling.specialist_ratio) == (50, 0.2)
    assert config.labeling.steps == 2**20
    assert config.optim.final_lr_fraction == pytest.approx(math.cos(7 * math.pi / 16), abs=1e-4)
    assert config.label_model.label_model == "paper"


@pytest.mark.parametrize(
    ("name", "named", "network", "weight_decay"),
    [
        ("cifar10-wrn-28-2", ("cifar10", 40), (28, 2, (1, 2, 2)), 5e-4),
        ("svhn-40", ("svhn", 40), (28, 2, (1, 2, 2)), 5e-4),
        ("svhn-wrn-28-2", ("svhn", 40), (28, 2, (1, 2, 2)), 5e-4),
        ("cifar100-400", ("cifar100", 400), (28, 8, (1, 2, 2)), 1e-3),
        ("stl10-40", ("stl10", 40), (37, 2, (1, 2, 2, 2)), 5e-4),
    ],
)
def test_the_presets_of_the_paper_s_sets_have_its_networks(
    name: str, named: tuple[str, int], network: tuple[object, ...], weight_decay: float
) -> None:
    """Sec. 4.2; K, rho and epsilon are the same for all sets (Sec. 4.1), the weight decay is FixMatch's."""
    config = load_preset(name)
    assert (config.backbone.depth, config.backbone.width, config.backbone.strides) == network
    assert config.optim.weight_decay == weight_decay
    assert (config.labeling.n_lfs, config.labeling.specialist_ratio) == (50, 0.2)
    assert config.labeling.confidence_threshold == 0.95
    assert (config.data.data, config.data.n_labels) == named
    assert config.augment.flip == (config.data.data != "svhn")


def test_cifar10_40_differs_from_the_paper_s_network_in_what_docs_reproduce_says() -> None:
    ours, wrn = (settings_that_matter(load_preset(name)) for name in ("cifar10-40", "cifar10-wrn-28-2"))
    differs = {name for name in ours if ours[name] != wrn[name]}
    of_network, of_steps = {"depth", "width", "strides", "zoom", "center_rate"}, {"steps", "warm_steps", "end_steps"}
    of_start = {"warm_method", "rescale_start", "mcl_gradient", "heads_first"}
    of_first_labels = {"propagation_steps", "propagation_thresholds", "class_prior"}
    of_second_run = {"second_method", "combined_steps", "combined_end_steps"}
    assert differs == of_network | of_steps | of_start | of_first_labels | of_second_run


def test_the_three_runs_of_a_second_opinion() -> None:
    preset = with_values(load_preset("cifar10-40"), {"seed": 5})
    first, second, both = alone(preset), second_config(preset), combined_config(preset)
    assert not first.has_second_run
    assert settings_that_matter(first) | {"second_method": "fixmatch"} == settings_that_matter(preset)
    assert settings_that_matter(second) | {"method": "dp-ssl"} == settings_that_matter(first)
    assert {config.run.seed for config in (first, second, both)} == {5}, "the same labels"
    assert (both.labeling.steps, both.end_model.end_steps, both.labeling.propagation_steps) == (20000, 15000, 0)
    assert not both.has_second_run
    again = with_values(preset, {"second_method": "dp-ssl", "combined_steps": 0, "combined_end_steps": 0})
    assert [config.run.repeat for config in (again, second_config(again), combined_config(again))] == [0, 1, 2]
    assert combined_config(again).labeling.steps == preset.labeling.steps // 2
    assert combined_config(again).end_model.end_steps == preset.end_model.end_steps


def test_another_system_alone_has_no_second_opinion() -> None:
    assert not with_values(load_preset("cifar10-40"), {"method": "fixmatch"}).has_second_run


def test_digits_are_not_mirrored() -> None:
    assert load_preset("digits").augment.flip is False


def test_a_preset_keeps_what_it_does_not_name() -> None:
    assert load_preset("digits", with_values(Config(), {"seed": 9})).run.seed == 9


@pytest.mark.parametrize("name", ["nope", "", "../config"])
def test_an_unknown_preset_lists_those_there_are(name: str) -> None:
    with pytest.raises(InputError, match=r"--preset .* is unknown; choose one of .*digits.*paper"):
        load_preset(name)


def test_reading_the_configuration_imports_nothing_heavy(repo_root: Path) -> None:
    code = "import sys, dpssl.config; sys.exit(bool({'torch', 'numpy', 'sklearn', 'scipy'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], cwd=repo_root, check=False).returncode == 0


def test_steps_of_a_warm_start() -> None:
    photos = load_preset("photos")
    assert Config().n_warm_steps == 0
    assert photos.n_warm_steps == photos.warm_start.warm_steps > 0
    assert with_values(photos, {"steps": 100}).n_warm_steps == 100, "a short run has a short warm start"
    assert with_values(photos, {"backbone_weights": "weights.safetensors"}).n_warm_steps == 0
