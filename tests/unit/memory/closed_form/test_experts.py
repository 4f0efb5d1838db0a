import pytest

from compatcheck.memory.closed_form.experts import routed_width


def test_a_token_goes_through_its_experts_only(make_run):
    sparse = {"model__num_experts": 8, "model__num_experts_per_token": 2, "model__moe_intermediate_size": 14336}
    assert routed_width(make_run(**sparse)) == 2 * 14336
    assert routed_width(make_run()) == 11008


def test_shared_experts_are_found_in_parameters_that_nothing_else_explains(make_run):
    hidden, shared, layers, experts, width = 4096, 5632, 32, 60, 1408
    attention, router, norms = 4 * hidden * hidden, hidden * experts, 2 * hidden
    routed = layers * experts * 3 * hidden * width
    facts = {
        "model__num_experts": experts,
        "model__num_experts_per_token": 4,
        "model__moe_intermediate_size": width,
        "model__expert_parameters": routed,
        "model__parameters": 10**11,
    }
    with_shared = layers * (attention + router + norms + 3 * hidden * shared) + routed
    assert routed_width(make_run(**facts, model__parameters_in_blocks=with_shared)) == pytest.approx(
        4 * width + shared, rel=0.001
    )
    without = layers * (attention + router + norms) + routed
    assert routed_width(make_run(**facts, model__parameters_in_blocks=without)) == 4 * width
