"""Figures: nothing leaves the picture, texts stay texts, what is drawn adds up, and steps are named where they are."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compatcheck.core.errors import UsageError
from compatcheck.core.estimate import KINDS, Component, Phase, Size, exactly
from compatcheck.core.units import GIB
from compatcheck.reporters.figure import (
    COLOURS,
    Figure,
    check_picture,
    choose_ticks,
    draw_bars,
    draw_steps,
    make_bar,
    make_picture,
)

SVG = "{http://www.w3.org/2000/svg}"

sizes = st.tuples(*[st.integers(0, 2**46)] * 3).map(sorted).map(lambda three: Size(*three))
components = st.builds(
    Component, st.just("part"), st.sampled_from(KINDS), sizes, st.just(""), st.just(""), st.sampled_from(["train", "rollout"])
)  # fmt: skip
phases = st.builds(
    Phase, st.text("ab<&\"' ", max_size=80), st.just("train"), st.lists(components, max_size=8).map(tuple)
)


def parse(figure: Figure) -> ET.Element:
    return ET.fromstring(figure.svg)  # noqa: S314 (our own)


def share(text: str | None) -> float:
    return float((text or "0").rstrip("%"))


def words(picture: ET.Element) -> list[str]:
    return [text.text or "" for text in picture.iter(f"{SVG}text")]


def test_every_kind_has_a_colour() -> None:
    assert set(COLOURS) == {*KINDS, "whole"}


@given(st.lists(phases, min_size=1, max_size=6), st.none() | st.integers(1, 2**47))
def test_all_of_a_figure_is_inside_of_it(drawn: list[Phase], limit: int | None) -> None:
    bars = [make_bar(phase.name, phase) for phase in drawn]
    figure = draw_bars("f", "Memory <&>", bars, limit)
    picture = parse(figure)
    for part in picture.iter(f"{SVG}rect"):
        assert share(part.get("x")) + (share(part.get("width")) if "%" in part.get("width", "") else 0) <= 100.01
        assert float(part.get("y", "0")) < figure.height
    for line in picture.iter(f"{SVG}line"):
        assert 0 <= share(line.get("x1")) <= 100.01
        assert 0 <= share(line.get("x2")) <= 100.01
    for bar, phase in zip(bars, drawn, strict=True):
        assert sum(part.size for part in bar.parts) == phase.size.expected
        assert bar.size == phase.needed


def test_what_a_regression_takes_crosses_the_limit_last() -> None:
    parts = [("regression", 50), ("context", 1), ("parameters", 40), ("reserve", 9)]
    phase = Phase("step", "train", tuple(Component(kind, kind, exactly(size * GIB), "", "") for kind, size in parts))
    bar = make_bar("step", phase)
    assert [part.kind for part in bar.parts] == ["parameters", "context", "regression", "reserve"]
    picture = parse(draw_bars("f", "Memory", [bar], 80 * GIB))
    said = words(picture)
    assert {"91.0 GiB", "device 80.0 GiB", "known regression", "allocator cache"} <= set(said)
    fills = [part.get("fill") for part in picture.iter(f"{SVG}rect")]
    assert "url(#f-regression)" in fills
    assert picture.find(f"{SVG}desc").text == "Needed on one device of 80.0 GiB: step: 91.0 GiB."  # type: ignore[union-attr]


def test_roles_are_named_from_the_left() -> None:
    phase = Phase(
        "rollout",
        "train",
        tuple(Component("w", "parameters", exactly(GIB), "", "", role) for role in ("train", "rollout", "actor")),
    )
    assert "actor | rollout | train" in words(parse(draw_bars("f", "Memory", [make_bar("rollout", phase)], None)))


@given(st.integers(1, 2**50))
def test_marks_are_few_round_and_begin_at_nothing(widest: int) -> None:
    ticks = choose_ticks(widest)
    assert ticks[0] == 0
    assert len(ticks) <= 6
    assert all(tick <= widest * 1.02 for tick in ticks)


def test_steps_are_named_where_the_bytes_change() -> None:
    points = [("1.0", 4), ("1.1", 4), ("1.2", 2**23), ("1.3", 2**23), ("1.4", 4), ("1.5", 4)]
    figure = draw_steps("f", "kept bytes", points)
    picture = parse(figure)
    assert words(picture) == ["1.0: 4 B", "1.2: 8.00 MiB", "1.4: 4 B", "1.0", "1.5"]
    assert "1.3 8.00 MiB; 1.4 4 B" in (picture.find(f"{SVG}desc").text or "")  # type: ignore[union-attr]


@given(st.lists(st.tuples(st.text("1.<&", min_size=1), st.floats(0, 1e13)), min_size=1, max_size=50))
def test_any_series_can_be_drawn(points: list[tuple[str, float]]) -> None:
    picture = parse(draw_steps("f", "title", points))
    assert all(0 <= share(line.get("x2")) <= 100.01 for line in picture.iter(f"{SVG}line"))


def test_a_picture_alone_has_its_titles_colours_and_nothing_to_load() -> None:
    figure = draw_steps("f", "<script>", [("1.0", 1), ("1.1", 2)])
    text = make_picture([figure, figure])
    root = ET.fromstring(text)  # noqa: S314 (our own)
    assert [one for one in words(root) if one == "<script>"] == ["<script>"] * 2
    assert float(root.get("height", "0")) >= 2 * figure.height
    assert "prefers-color-scheme: dark" in text
    assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)|<script|@import", text)


@pytest.mark.parametrize(
    ("name", "message"), [("a.png", "writes .svg, not 'a.png'"), ("no/a.svg", "cannot write into")]
)
def test_a_picture_that_cannot_be_written_is_refused_before(tmp_path: Path, name: str, message: str) -> None:
    with pytest.raises(UsageError, match=re.escape(message)):
        check_picture(str(tmp_path / name))


def test_a_label_that_would_cross_a_step_stands_below_or_nowhere() -> None:
    values = [24, 20, *[16] * 32, 20.25, 12.25, 16, *[14] * 5, 0]
    points = [(f"1.{index}.0", value) for index, value in enumerate(values)]
    labels = {
        one.text: float(one.get("y"))
        for one in parse(draw_steps("f", "t", points, str)).iter()
        if one.text and ": " in one.text and one.get("y")
    }
    height = {f"{release}: {value}": 120 - 90 * value / 24 for release, value in points}
    assert {text: base - height[text] for text, base in labels.items()} == {
        "1.0.0: 24": -6,
        "1.1.0: 20": -6,
        "1.2.0: 16": -6,
        "1.34.0: 20.25": -6,
        "1.35.0: 12.25": 15,
        "1.42.0: 0": -6,
    }
