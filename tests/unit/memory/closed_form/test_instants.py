"""What lives at which instant of a step."""

from compatcheck.memory.closed_form.estimate import training_phases

SEVEN = 6738415616


def phase_of(run, name):
    (found,) = (phase for phase in training_phases(run) if phase.name == name)
    return {part.name: part.size.expected for part in found.components}


def test_gradients_that_are_cleared_late_are_beside_the_forward_pass_and_not_the_backward_one(make_run):
    soon, late = make_run(), make_run(program__clears_gradients_late=True)
    assert "gradients" not in phase_of(soon, "forward")
    assert phase_of(late, "forward")["gradients"] == 2 * SEVEN
    assert phase_of(late, "backward") == phase_of(soon, "backward")
    zero = {"training__zero_stage": 1, "hardware__world_size": 8, "program__clears_gradients_late": True}
    assert "gradients" not in phase_of(make_run(**zero), "forward"), "DeepSpeed's engine lets go of them in its step"


def test_a_cache_of_keys_is_counted_where_blocks_keep_none_for_backward(make_run):
    wrapped = {"model__use_cache": True, "training__fsdp_activation_checkpointing": True}
    name, size = "cache of keys and values", 2 * 2 * 2048 * 4096 * 32
    assert phase_of(make_run(**wrapped, run__outputs_kept=False), "forward")[name] == size
    assert name not in phase_of(make_run(**wrapped, run__outputs_kept=False), "backward")
    assert phase_of(make_run(**wrapped, run__outputs_kept=True), "backward")[name] == size
    assert name not in phase_of(make_run(model__use_cache=True), "forward"), "what backward needs is there anyway"
    by_transformers = {"model__use_cache": True, "training__gradient_checkpointing": True}
    assert name not in phase_of(make_run(**by_transformers), "forward"), "which turns it off"
