from compatcheck.memory.closed_form.experts import routed_width


def test_a_token_goes_through_its_experts_only(make_run):
    sparse = {"model__num_experts": 8, "model__num_experts_per_token": 2, "model__moe_intermediate_size": 14336}
    assert routed_width(make_run(**sparse)) == 2 * 14336
    assert routed_width(make_run()) == 11008
