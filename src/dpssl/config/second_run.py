"""The settings of the three runs that a run with a second opinion is made of, from its own."""

from dpssl.config.files import with_values
from dpssl.config.sections import DP_SSL, NO_METHOD, Config

# Trusted labels take the place of labels that spread, which are mostly wrong where the runs doubt: docs/combine.md.
ONCE_COMBINED = {"propagation_steps": 0}


def alone(config: Config) -> Config:
    """The same without a second opinion."""
    if not config.has_second_run:
        return with_values(config, {"second_method": NO_METHOD})
    return with_values(config, {"second_method": NO_METHOD, "method_settings": ()})  # which were the second method's


def second_config(config: Config) -> Config:
    """Of the second run. DP-SSL again has other weights and draws; another system errs in other places anyway."""
    method, repeat = config.second_run.second_method, config.run.repeat
    again = repeat + 1 if method == DP_SSL else repeat
    values = {"method": method, "method_settings": config.baseline.method_settings, "repeat": again}
    return with_values(alone(config), values)


def combined_config(config: Config) -> Config:
    """Of the run that learns from both."""
    asked = config.second_run
    return with_values(
        alone(config),
        {
            "repeat": second_config(config).run.repeat + 1,
            "steps": asked.combined_steps or max(1, config.labeling.steps // 2),
            "end_steps": asked.combined_end_steps or config.end_model.end_steps,
            **ONCE_COMBINED,
        },
    )
