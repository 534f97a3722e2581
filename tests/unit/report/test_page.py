"""The page as text: every section from a whole run, sentences for missing parts, hostile names, size, one file."""

import re
from typing import Any

import pytest

HOSTILE = (
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "$x^{2$ \\frac$",
    "\u202eright to left",
    "a" * 300,
)
ALL_PLOTS = {
    "confidence-histogram", "coverage-curve", "reliability", "expected-wrong", "balance", "confusion", "doubt",
    "specialties", "specialists", "speech", "lf-accuracy", "agreement", "lfs-loss", "lfs-shares", "end-loss",
}  # fmt: skip


def plots_of(page: str) -> set[str]:
    return set(re.findall(r'<figure class="card" id="([\w-]+)"', page))


LF_PLOTS = {"specialties", "specialists", "speech", "agreement"}
TRAINING_PLOTS = {"lfs-loss", "lfs-shares", "end-loss"}


@pytest.fixture(scope="module")
def whole(make_run: Any) -> Any:
    """A run with all its parts; its page is made once."""
    run = make_run()
    run.page()
    return run


@pytest.fixture
def page(whole: Any) -> str:
    return whole.folder.read_text("report.html")


def test_a_whole_run_has_every_section(page: str) -> None:
    assert plots_of(page) == ALL_PLOTS
    for words in ("91.0 %", "88.0 %", "Surest", "Most typical", "Least sure", "cpu, 1 thread", "--n-lfs", "1.50"):
        assert words in page
    assert "Left out" not in page


def test_the_page_is_one_file_without_script(page: str) -> None:
    assert "default-src 'none'" in page
    assert "<script" not in page
    assert "javascript:" not in page
    addresses = re.findall(r'(?:src|href)="([^"]*)"', page)
    assert addresses
    assert [found for found in addresses if not found.startswith(("data:image/", "#"))] == []
    assert "url(http" not in page
    assert "@import" not in page


def test_a_flag_and_its_value_are_one_piece() -> None:
    from dpssl.report.page import _with_flags

    found = _with_flags("Use --trust 0.4 or --n-lfs 39. <b> --repeat, then.")
    code = "Use <code>--trust 0.4</code> or <code>--n-lfs 39</code>. &lt;b&gt; <code>--repeat</code>, then."
    assert str(found) == code


def test_equal_runs_give_equal_pages(whole: Any, page: str) -> None:
    assert whole.page() == page


def test_ids_are_unique_and_every_reference_has_its_target(page: str) -> None:
    ids = re.findall(r'\bid="([^"]+)"', page)
    assert sorted(ids) == sorted(set(ids))
    references = {*re.findall(r'href="#([^"]+)"', page), *re.findall(r"url\(#([^)]+)\)", page)}
    labels = {name for found in re.findall(r'aria-labelledby="([^"]+)"', page) for name in found.split()}
    assert references | labels <= set(ids)


def test_every_plot_has_a_title_and_a_description(page: str) -> None:
    assert len(re.findall(r'<svg [^>]*role="img"', page)) == len(ALL_PLOTS)
    for key in ALL_PLOTS:
        assert re.search(rf'<title id="{key}-title">[^<]+</title>', page)
        assert re.search(rf'<desc id="{key}-description">[^<]+</desc>', page)


@pytest.mark.parametrize(
    ("files", "shown"),
    [
        ((), set()),
        (("votes", "log"), LF_PLOTS | TRAINING_PLOTS),
        (("labels", "summary"), ALL_PLOTS - LF_PLOTS - TRAINING_PLOTS - {"lf-accuracy"}),
    ],
    ids=["nothing", "votes alone", "labels alone, as of another system"],
)
def test_what_a_run_lacks_is_left_out_with_a_sentence(make_run: Any, files: Any, shown: set[str]) -> None:
    page = make_run(files=files).page()
    assert plots_of(page) == shown
    assert "eft out" in page


def test_without_truth_the_given_labels_stand_in(make_run: Any) -> None:
    run = make_run(known_truth=False, files=("votes", "labels"))
    page = run.page()
    assert plots_of(page) >= {"confusion", "expected-wrong"}
    assert "reliability" not in plots_of(page)
    assert "Given label against label" in page
    assert "uses the truth</span>" not in page
    assert '<th scope="col">precision' not in page


def test_hostile_names_stay_text(make_run: Any) -> None:
    ids = [f"<b>{row}</b>.png" for row in range(120)]
    page = make_run(class_names=HOSTILE, ids=ids).page()
    assert "<script" not in page
    assert "<img src=x" not in page
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page
    assert "<b>" not in page
    assert "\u202e" not in page, "a name must not turn around the text beside it"
    assert "$x^{2$" in page, "written as it is, not as mathematics"


def test_many_classes_and_lfs_fit(make_run: Any) -> None:
    page = make_run(n=1500, n_lfs=60, class_names=[f"class number {label}" for label in range(150)]).page()
    assert "The 50 classes of the least mean confidence, of 150" in page
    assert len(page) < 8e6


@pytest.mark.slow
def test_fifty_thousand_images_and_fifty_lfs_stay_under_8_mb(make_run: Any) -> None:
    run = make_run(n=50_000, n_lfs=50, class_names=[f"class {label}" for label in range(10)], size=32)
    assert len(run.page().encode()) < 8e6
