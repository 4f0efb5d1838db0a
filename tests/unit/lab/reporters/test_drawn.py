"""Pictures of a bisection and of a sweep: what was measured, in the order of its releases; what did not change is left out."""

from __future__ import annotations

from compatcheck.lab.bisection import Bisection, Outcome
from compatcheck.lab.release_series import Series, SeriesChange
from compatcheck.lab.reporters.bisection import draw_history
from compatcheck.lab.reporters.sweep import draw_series


def test_a_bisection_is_drawn_over_the_releases_that_could_be_tested() -> None:
    tested = (
        Outcome(version="0.15.4", verdict="good", value=4),
        Outcome(version="0.15.5", verdict="skipped", reason="no wheel"),
        Outcome(version="0.16.0", verdict="bad", value=2**23),
    )
    found = Bisection(
        probe="zero3_release", package="deepspeed", metric="kept_bytes", predicted=4, tolerance=0, tested=tested,
        intervals=(), transitions=(), untested=(),
    )  # fmt: skip
    (figure,) = draw_history(found)
    assert figure.title == "zero3_release over deepspeed: kept bytes"
    assert "0.15.4 4 B; 0.16.0 8.00 MiB." in figure.svg
    assert "0.15.5" not in figure.svg


def test_each_series_that_changes_is_drawn_once() -> None:
    kept, other = (
        Series(
            probe="logits", parameters={"loss": loss}, backend="cpu", metric="bytes_per_logit", predicted=None,
            values={"4.45.2": 5.9375, "4.46.0": 8.0, "4.47.0": 12.0},
        )
        for loss in ("plain", "chunked")
    )  # fmt: skip
    changes = [SeriesChange(series=kept, before="4.45.2", after="4.46.0")]
    groups = [[*changes, SeriesChange(series=other, before="4.45.2", after="4.46.0")], changes]
    figures = draw_series("transformers", groups)
    assert [figure.title for figure in figures] == [
        "logits loss=plain over transformers: bytes per logit",
        "logits loss=chunked over transformers: bytes per logit",
    ]
    assert "4.45.2: 5.938" in figures[0].svg
