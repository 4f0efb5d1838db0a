"""The three back ends: what each measures, and what it can and cannot claim."""

from __future__ import annotations

from compatcheck.core.named_tuple import NamedTuple


class Backend(NamedTuple):
    """A way of running a probe."""

    name: str
    measures: str
    claims: str
    cannot: str


BACKENDS = {
    "fake": Backend(
        "fake",
        "tensor storages of fake tensors: shapes and lifetimes without data, models of full size in megabytes",
        "what PyTorch code allocates and keeps, to the byte equal to the same run on CPU tensors",
        "decisions that need data (a mask that is all ones, the experts a token goes to) are declared, not taken; memory "
        "inside operators, other kernels of a GPU, reserved memory and libraries' own allocations are not seen",
    ),
    "cpu": Backend(
        "cpu",
        "storages of real tensors, or every block of the CPU allocator (temporaries inside operators included)",
        "what code allocates and keeps, exactly: parameters, gradients, states, activations, copies, buffers of collectives",
        "the kernels are a CPU's: workspaces, fused attention and optimizers of a GPU, fragmentation, NCCL and the CUDA "
        "context are not measured",
    ),
    "cuda": Backend(
        "cuda",
        "the caching allocator's own statistics, allocated and reserved, and what the driver counts as used",
        "what this GPU holds with this torch and driver",
        "other GPUs choose other kernels and workspaces; other processes count in the driver's number",
    ),
}
