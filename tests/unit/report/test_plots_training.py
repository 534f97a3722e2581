"""Training curves: what every system logs is drawn where it says something."""

from typing import Any

import pytest

from dpssl.report.plots_training import training_plots

FALLING = (2.0, 0.5, 0.1)


def log(unlabeled_loss: tuple[float, ...], pseudo_label_rate: tuple[float, ...]) -> list[dict[str, Any]]:
    rows = zip(FALLING, unlabeled_loss, pseudo_label_rate, strict=True)
    return [
        {
            "stage": "fit",
            "step": 10 * at,
            "minutes": 0.1,
            "loss": loss,
            "unlabeled_loss": other,
            "pseudo_label_rate": rate,
        }
        for at, (loss, other, rate) in enumerate(rows, 1)
    ]


@pytest.mark.parametrize(
    ("unlabeled_loss", "pseudo_label_rate", "plots", "is_log", "is_told"),
    [
        ((1.0, 0.8, 0.4), (0.1, 0.5, 0.9), {"fit-loss", "fit-shares"}, True, True),
        ((1.0, 0.8, 0.4), (1.0, 1.0, 1.0), {"fit-loss"}, True, True),  # no threshold
        ((0.0, 0.0, 0.0), (0.0, 0.0, 0.0), {"fit-loss"}, True, False),  # nothing is learnt from unlabelled images
        ((0.0, 0.0, 0.3), (0.0, 0.0, 0.2), {"fit-loss", "fit-shares"}, False, True),  # a threshold that is met late
    ],
)
def test_fields_that_a_system_only_logs_as_all_do_are_left_out(
    unlabeled_loss: tuple[float, ...],
    pseudo_label_rate: tuple[float, ...],
    plots: set[str],
    is_log: bool,
    is_told: bool,
) -> None:
    drawn = {plot.key: plot for plot in training_plots(log(unlabeled_loss, pseudo_label_rate))}
    assert drawn.keys() == plots
    assert ("loss, log scale" in drawn["fit-loss"].svg) == is_log
    assert ("on unlabelled images" in drawn["fit-loss"].description) == is_told
