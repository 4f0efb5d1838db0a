from compatcheck.core.units import MIB
from compatcheck.memory.closed_form.context import context, workspaces


def names(parts):
    return {part.name: part.size.expected for part in parts}


def test_one_rank_has_no_communicator(make_run):
    assert set(names(context(make_run()))) == {"CUDA context"}


def test_a_communicator_of_two_is_smaller_than_one_of_more(make_run):
    two, more = (names(context(make_run(hardware__world_size=ranks)))["NCCL"] for ranks in (2, 8))
    assert (two, more) == (544_000_000, 688_000_000)


def test_kernels_were_loaded_at_once_before_torch_1_13(make_run):
    old, new = (names(context(make_run({"torch": version})))["CUDA context"] for version in ("1.12.1", "2.4.0"))
    assert old > new


def test_each_thread_has_a_workspace_of_its_own_and_hopper_a_larger_one(make_run):
    assert workspaces(make_run())[0].size.expected == 2 * 8_519_680
    assert workspaces(make_run(trains=False))[0].size.expected == 8_519_680
    assert workspaces(make_run(hardware__compute_capability=9.0))[0].size.expected == 64 * MIB
