from compatcheck.memory.closed_form.offload import offload_buffers


def test_gradients_on_their_way_take_a_bucket_at_most(make_run):
    run = make_run(
        training__zero_stage=2,
        hardware__world_size=2,
        training__offload_optimizer="cpu",
        training__reduce_bucket_size=1000,
    )
    assert offload_buffers(run)[0].size == (0, 0, 2000)
    assert offload_buffers(make_run()) == ()
