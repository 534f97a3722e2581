"""Each table and figure of the paper as a list of entries: which cells it needs, which of their numbers it shows, and
what the paper prints there.

The paper has no numbers for the sets of the other scales, so none stands beside ours there.
"""

import dataclasses
from collections.abc import Callable, Sequence

from dpssl.config import DP_SSL, load_preset
from dpssl.errors import InputError
from dpssl.paper.cells import ORACLE
from dpssl.paper.entries import COUNT, ERROR, PERCENT, Entry, Table
from dpssl.paper.method_rows import (
    ADDED_NOTES,
    METHODS,
    PRINTED_DP_SSL,
    PRINTED_NOTE,
    errors,
    of_the_paper,
    set_column,
)
from dpssl.paper.numbers import printed, printed_accuracy, printed_error, printed_specialists
from dpssl.paper.plans import SET_TITLES, Plan, make_plan

N_FOLDS = 10  # of STL-10
LFS, RATIOS = (10, 20, 30, 40, 50, 60), (0.1, 0.2, 0.3, 0.4, 0.5, 1.0)  # K and rho of Table 5


def table1(plan: Plan) -> Table:
    title, entries = "Table 1: test error (%) of each method", errors(plan, "table1", plan.scale.labels)
    added = ADDED_NOTES if plan.scale.name == "paper" else ()
    return Table("table1", title, tuple(entries), (), plan, row_notes=(*added, PRINTED_NOTE))


def annotation(plan: Plan) -> Table:
    """Not in the paper: Table 1's runs by the labels they give to the unlabelled images."""
    entries = (
        dataclasses.replace(entry, figure="annotation_accuracy", paper="")
        for entry in errors(plan, "table1", plan.scale.labels)
        if entry.row != METHODS["fully-supervised"]  # which has seen those labels
    )
    title = "Annotation error (%) of each method on the unlabelled images"
    notes = ("Not in the paper; from the runs of Table 1.",)
    return Table("annotation", title, tuple(entries), notes, plan, row_notes=(PRINTED_NOTE,))


def table2(plan: Plan) -> Table:
    if "stl10" not in plan.scale.presets:
        raise InputError(f"--scale {plan.scale.name}: table2 is STL-10, which has no stand-in; choose --scale paper")
    for seed in plan.seeds:
        if not 1 <= seed <= N_FOLDS:
            raise InputError(f"--seeds {seed}: STL-10 has folds 1 to {N_FOLDS}, and a seed of table2 is one of them")
    note = 'The paper prints "fully supervised 1.48" here, which is SVHN\'s figure; it is left out.'
    entries = errors(plan, "table2", {"stl10": (40, 250, 1000)})
    title = "Table 2: test error (%) on STL-10"
    return Table("table2", title, tuple(entries), (note,), plan, row_notes=(PRINTED_NOTE,))


# Row, figure, and the paper's name of it. `label_models` are other models on the votes of the same run.
ANNOTATION_ROWS = (
    ("Majority vote: F1", "label_models.majority.annotation_macro_f1", "majority-f1"),
    ("FlyingSquid: F1", "label_models.triplet.annotation_macro_f1", "flyingsquid-f1"),
    ("The paper's label model: F1", "label_models.paper.annotation_macro_f1", ""),
    ("DP-SSL: precision", "annotation_macro_precision", "precision"),
    ("DP-SSL: recall", "annotation_macro_recall", "recall"),
    ("DP-SSL: F1", "annotation_macro_f1", "f1"),
    ("DP-SSL: coverage", "coverage", "coverage"),
    ("DP-SSL: accuracy of the 500 surest a class", "top_500_per_class", "surest"),
)


def table3(plan: Plan) -> Table:
    entries = [
        Entry(
            row,
            set_column(data, n_labels),
            plan.cells(data, n_labels, end_model=False),
            figure,
            PERCENT,
            printed("table3", data, name, n_labels) if name else "",
        )
        for row, figure, name in ANNOTATION_ROWS
        for data, labels in plan.scale.labels.items()
        for n_labels in labels
    ]
    data, n_labels = plan.scale.main_set, 40
    entries += [
        Entry(
            f"{METHODS[method]}: proxy-label accuracy",
            set_column(data, n_labels),
            plan.cells(data, n_labels, method),
            "proxy_label_accuracy",
            PERCENT,
            printed("table3", data, method, n_labels),
        )
        for method in ("fixmatch", "usadtm")
    ]
    notes = (
        "Macro scores over the unlabelled images; a row without a vote counts 1/C.",
        "DP-SSL's label model is the default one, not the paper's, which has a row of its own. FlyingSquid is our "
        "one-versus-all implementation of its closed form; all models see the votes of the same runs.",
        "Proxy labels are those a method would train on, so the sure ones alone.",
        *of_the_paper(plan, "The paper's recall of 93.82 with 40 labels is also its accuracy in Table 4."),
    )
    return Table("table3", "Table 3: annotation (%)", tuple(entries), notes, plan, y_label="score (%)")


# Row, variant, figure, and the paper's name of it.
ABLATIONS = (
    ("Exp1: without MCL", "exp1", "annotation_accuracy", "exp1"),
    ("Exp2: MCL without FT", "exp2", "annotation_accuracy", "exp2"),
    ("Exp3: MCL with FT", "default", "annotation_accuracy", "exp3"),
    ("Exp4: without regularizer", "default", "label_models.paper-without-regularizer.annotation_accuracy", "exp4"),
    ("Exp5: regularizer", "default", "label_models.paper.annotation_accuracy", "exp5"),
)


def table4(plan: Plan) -> Table:
    data, entries = plan.scale.main_set, []
    for n_labels in (40, 250):
        for row, variant, figure, name in ABLATIONS:
            cells = plan.cells(data, n_labels, variant=variant, end_model=False)
            paper = printed("table4", data, name, n_labels)
            entries.append(Entry(row, f"{n_labels} labels: accuracy (%)", cells, figure, PERCENT, paper))
        for row, variant, _, _ in ABLATIONS[:3]:
            cells = plan.cells(data, n_labels, variant=variant, end_model=False)
            for kind in ("empty", "duplicate"):
                column = f"{n_labels} labels: {kind} sets"
                entries.append(Entry(row, column, cells, f"n_{kind}_sets", COUNT))
    notes = (
        "Exp1 to Exp3 resolve the votes with the default label model; Exp4 and Exp5 with the paper's, on Exp3's votes.",
        "Empty and duplicate sets: LFs without a class, and LFs whose set of classes an earlier one has.",
    )
    title = f"Table 4: ablations on {SET_TITLES[data]}"
    return Table("table4", title, tuple(entries), notes, plan, y_label="accuracy (%)")


def table5(plan: Plan) -> Table:
    data = plan.scale.main_set
    entries = tuple(
        Entry(
            f"K = {n_lfs}",
            f"ρ = {ratio:g}",
            plan.grid_cells(n_lfs, ratio),
            "annotation_accuracy",
            PERCENT,
            printed_accuracy(data, n_lfs, place),
        )
        for n_lfs in LFS
        for place, ratio in enumerate(RATIOS)
    )
    title = f"Table 5: annotation accuracy (%) on {SET_TITLES[data]} with 40 labels"
    return Table("table5", title, entries, ("ρ = 1 is Exp1 of Table 4.",), plan, "grid")


def fig1(plan: Plan) -> Table:
    data = plan.scale.main_set
    entries = [
        entry
        for entry in errors(plan, "table1", {data: plan.scale.labels[data]})
        if entry.row not in (METHODS["supervised"], METHODS["fully-supervised"], PRINTED_DP_SSL)
    ]
    title = f"Figure 1: test error (%) against labels on {SET_TITLES[data]}"
    return Table("fig1", title, tuple(entries), (), plan, "lines", "labels", emphasis=METHODS[DP_SSL])


def fig3(plan: Plan) -> Table:
    data = plan.scale.main_set
    default = load_preset(plan.scale.presets[data]).labeling
    over_lfs = [(n_lfs, RATIOS.index(default.specialist_ratio)) for n_lfs in LFS]
    over_ratio = [(default.n_lfs, place) for place in range(len(RATIOS))]

    def entry(n_lfs: int, place: int, row: str, column: str, x: float) -> Entry:
        cells, paper = plan.grid_cells(n_lfs, RATIOS[place]), printed_error(data, n_lfs, place)
        return Entry(row, column, cells, "annotation_accuracy", ERROR, paper, x=x)

    entries = (
        *(entry(n_lfs, place, f"K = {n_lfs}", "over K", n_lfs) for n_lfs, place in over_lfs),
        *(entry(n_lfs, place, f"ρ = {RATIOS[place]:g}", "over ρ", RATIOS[place]) for n_lfs, place in over_ratio),
    )
    notes = (
        f"The dashed line is the default, K = {default.n_lfs} and ρ = {default.specialist_ratio:g}.",
        *of_the_paper(plan, "The paper's errors are 100 minus Table 5."),
    )
    title = f"Figure 3: annotation error (%) on {SET_TITLES[data]} with 40 labels"
    return Table("fig3", title, entries, notes, plan, "panels")


def fig_specialists(plan: Plan) -> Table:
    data = plan.scale.main_set
    cells = plan.cells(data, 40, end_model=False)
    entries = tuple(
        Entry(name, "LFs", cells, f"specialists_per_class.{row}", COUNT, printed_specialists(data, name))
        for row, name in enumerate(plan.scale.class_names)
    )
    notes = of_the_paper(plan, "The paper's text names three of its bars, of one run.")
    title = f"Specialised LFs of each class on {SET_TITLES[data]} with 40 labels"
    return Table("fig-specialists", title, entries, notes, plan, "bars", "class", "specialised LFs")


def barely(plan: Plan) -> Table:
    data = plan.scale.main_set
    entries = tuple(
        Entry(
            METHODS[method],
            f"{n_labels} labels",
            plan.cells(data, n_labels, method),
            "test_accuracy",
            PERCENT,
            printed("barely", data, method, n_labels),
            "range" if n_labels == 10 else "mean",
        )
        for method in ("fixmatch", DP_SSL)
        for n_labels in plan.scale.few_labels
    )
    title = f"Barely supervised: test accuracy (%) on {SET_TITLES[data]}"
    notes = ("With 10 labels: the least, the median and the greatest over the seeds.",)
    return Table("barely", title, entries, notes, plan, y_label="accuracy (%)")


def oracle_regularizer(plan: Plan) -> Table:
    data, n_labels = plan.scale.oracle
    rows = {
        "default": "DP-SSL, default label model",
        "paper-label-model": "DP-SSL, the paper's label model",
        ORACLE: "The same with class-wise R and true accuracies (oracle)",
    }
    entries = tuple(
        Entry(
            title,
            set_column(data, n_labels),
            plan.cells(data, n_labels, variant=variant),
            "test_accuracy",
            paper=printed("oracle-regularizer", data, variant, n_labels),
        )
        for variant, title in rows.items()
    )
    notes = ("The oracle uses the truth of the unlabelled images in its regulariser: a bound, not a method.",)
    return Table("oracle-regularizer", "Exact class-wise accuracies in R: test error (%)", entries, notes, plan)


TABLES: dict[str, Callable[[Plan], Table]] = {
    "table1": table1,
    "table2": table2,
    "table3": table3,
    "table4": table4,
    "table5": table5,
    "fig1": fig1,
    "fig3": fig3,
    "fig-specialists": fig_specialists,
    "barely": barely,
    "oracle-regularizer": oracle_regularizer,
    "annotation": annotation,
}


def table(name: str, scale: str = "paper", steps: int | None = None, seeds: Sequence[int] = ()) -> Table:
    """The table or figure of that name."""
    if name not in TABLES:
        raise InputError(f"{name!r}: no such table or figure; choose one of {', '.join(TABLES)}")
    return TABLES[name](make_plan(scale, steps, seeds))
