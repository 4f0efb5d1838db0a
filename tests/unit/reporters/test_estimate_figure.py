from __future__ import annotations

from compatcheck.core.suggestions import Wall
from compatcheck.reporters.estimate_figure import draw_estimates
from tests.unit.reporters.test_estimate_report import ESTIMATE, GIB, PHASES, REPORT, make_component


def test_phases_walls_and_time_are_drawn() -> None:
    timeline = tuple((event, event * GIB // 100, event * GIB // 50) for event in range(1000))
    phases, wall, time = draw_estimates([REPORT._replace(timeline=timeline)])
    assert phases.title == "llama-3-8b on 8 × H100-80GB: does not fit"
    assert {"backward", "76.5 GiB", "device 79.0 GiB", "allocator cache"} <= set(
        phases.svg.replace("<", ">").split(">")
    )
    assert "1,024: 20.0 GiB" in wall.svg
    assert "995: 9.99 GiB" in time.svg  # the highest of its stretch
    assert time.svg.count("<title>") == 200


def test_known_regressions_are_drawn_and_a_wall_without_points_is_not() -> None:
    known = PHASES[1]._replace(components=(*PHASES[1].components, make_component("d/kept", "regression", 58)))
    walls = (Wall("hardware.nodes", 512, 512, 511, 1, 1, ((1, GIB),)), Wall("hardware.nodes", 1, None, 64, 1, 1, ()))
    drawn = draw_estimates([REPORT._replace(estimate=ESTIMATE._replace(phases=(PHASES[0], known)), walls=walls)])
    assert len(drawn) == 2
    assert "known regression" in drawn[0].svg
    assert "134.5 GiB" in drawn[0].svg


def test_every_subject_with_an_estimate_is_drawn_apart() -> None:
    without = REPORT._replace(estimate=ESTIMATE._replace(phases=()))
    drawn = draw_estimates([REPORT, without, REPORT])
    assert len({figure.svg for figure in drawn}) == len(drawn) == 4
