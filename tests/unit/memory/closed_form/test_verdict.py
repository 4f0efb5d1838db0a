import pytest

from compatcheck.core.estimate import Component, Phase, Size
from compatcheck.memory.closed_form.verdict import judge


def phase(name, *parts):
    return Phase(name, "train", tuple(Component(part, kind, Size(*size), "", "") for part, kind, size in parts))


NEED = ("weights", "parameters", (60, 65, 75))


@pytest.mark.parametrize(
    ("limit", "outcome"),
    [(100, "fits"), (82, "fits"), (81, "marginal"), (66, "marginal"), (60, "marginal"), (59, "does_not_fit")],
)
def test_the_range_is_held_against_the_limit(limit, outcome):
    phases = (phase("backward", NEED, ("cache", "reserve", (0, 5, 20))),)
    verdict = judge(phases, limit)
    assert verdict.outcome == outcome
    assert verdict.margin_bytes == limit - 65


def test_without_a_device_there_is_a_cause_but_no_verdict():
    verdict = judge((phase("step", NEED),), None)
    assert (verdict.outcome, verdict.primary) == ("unknown", "weights")


def test_the_largest_part_that_a_setting_moves_decides_and_small_ones_are_ruled_out():
    verdict = judge(
        (
            phase(
                "backward",
                ("CUDA context", "context", (90, 90, 90)),
                ("logits", "logits", (50, 50, 50)),
                ("weights", "parameters", (40, 40, 40)),
                ("mask", "masks", (0, 0, 1)),
            ),
        ),
        100,
    )
    assert verdict.primary == "logits"
    assert verdict.contributing == ("weights",)
    assert verdict.ruled_out == ("mask",)


def test_of_several_models_on_a_device_each_component_is_named_with_its_own():
    found = phase("forward", ("parameters", "parameters", (50, 50, 50)), ("parameters", "parameters", (40, 40, 40)))
    own, other = found.components
    verdict = judge((found._replace(components=(own, other._replace(role="reward"))),), 80)
    assert (verdict.primary, verdict.contributing) == ("parameters", ("reward's parameters",))


def test_a_marginal_run_names_a_command_that_would_settle_it():
    assert judge((phase("step", NEED),), 70, "a command").verify == "a command"
    assert judge((phase("step", NEED),), 1000, "a command").verify is None


def test_an_engine_takes_its_share_of_what_cuda_reports():
    share = ("rollout.gpu_memory_utilization", "hardware.memory_bytes")
    weights = Component("engine weights", "parameters", Size(35, 35, 35), "", "", "rollout")
    pool = Component("KV pool", "kv_cache", Size(55, 55, 55), "", "", "rollout", share)
    trained = Component("weights", "parameters", Size(9, 9, 9), "", "")
    for cache, outcome in (
        (pool, "fits"),
        (pool._replace(facts=()), "marginal"),
    ):  # 99 of 100; of 98 the engine takes 88
        assert judge((Phase("rollout", "train", (weights, cache, trained)),), 100).outcome == outcome
