"""The methods of the paper's error tables as rows, and the errors of them all."""

from dpssl.config import DP_SSL
from dpssl.paper.cells import AS_PRINTED
from dpssl.paper.entries import Entry
from dpssl.paper.numbers import printed
from dpssl.paper.plans import SET_TITLES, Plan

METHODS = {
    "pi-model": "Π-Model",
    "pseudo-label": "Pseudo-Labeling",
    "mean-teacher": "Mean Teacher",
    "mixmatch": "MixMatch",
    "uda": "UDA",
    "remixmatch": "ReMixMatch",
    "usadtm": "USADTM",
    "fixmatch": "FixMatch (RA)",
    "fixmatch-cta": "FixMatch (CTA)",
    "flexmatch": "FlexMatch",
    "freematch": "FreeMatch",
    DP_SSL: "DP-SSL",
    "supervised": "Supervised on the labels",
    "fully-supervised": "Fully supervised",
}
PRINTED_DP_SSL = "DP-SSL, as printed"
# Row, and the note where it is shown.
ADDED_NOTES = tuple(
    (METHODS[method], "FlexMatch, FreeMatch and the supervised row are not in the paper's table.")
    for method in ("flexmatch", "freematch", "supervised")
)
PRINTED_NOTE = (
    PRINTED_DP_SSL,
    f'"{PRINTED_DP_SSL}" has what the paper prints wherever our default departs from it (docs/method.md), and the '
    "learning rate and batch statistics of all rows.",
)


def set_column(data: str, n_labels: int) -> str:
    return f"{SET_TITLES[data]}, {n_labels} labels"


def of_the_paper(plan: Plan, note: str) -> tuple[str, ...]:
    """A note about the paper's sets and numbers, where they are shown."""
    return (note,) if plan.scale.name == "paper" else ()


def errors(plan: Plan, table: str, sets: dict[str, tuple[int, ...]]) -> list[Entry]:
    """Test error of every method on every set and number of labels, DP-SSL's as printed beside its default."""

    def entry(method: str, data: str, n_labels: int, variant: str = "default") -> Entry:
        # The ceiling trains on every label, so that how many were revealed makes no difference to it.
        trained_with = sets[data][0] if method == "fully-supervised" else n_labels
        return Entry(
            PRINTED_DP_SSL if variant == AS_PRINTED else METHODS[method],
            set_column(data, n_labels),
            plan.cells(data, trained_with, method, variant),
            "test_accuracy",
            paper="" if variant == AS_PRINTED else printed(table, data, method, n_labels),
            x=n_labels,
            borrowed=trained_with != n_labels,
        )

    places = [(data, n_labels) for data in sets for n_labels in sets[data]]
    rows = [(method, "default") for method in METHODS]
    rows.insert(rows.index((DP_SSL, "default")) + 1, (DP_SSL, AS_PRINTED))
    return [entry(method, *place, variant) for method, variant in rows for place in places]
