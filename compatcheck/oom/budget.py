"""What the other numbers of a message say: foreign memory, limits, fragmentation, or plain need.

Fragmentation is claimed too easily, so it comes last: first that the card is too small, that a limit was set, that the driver
refused although memory was free, and that others hold the memory; then whether what the allocator keeps unused would have
been enough, and is a share of the card worth the name.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from compatcheck.core.out_of_memory import Budget, Printed
from compatcheck.core.units import GIB, format_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from compatcheck.core.out_of_memory import Message

_CONTEXT_AT_LEAST = GIB // 5
"""Less than this no context of CUDA takes."""
CONTEXT_BYTES = 3 * GIB // 2
"""Most that the CUDA context and libraries (NCCL, cuBLAS) of one process take beside its allocator: in the messages of
fixtures/oom/cases.yaml from devices that one process has for itself it is 0.3 to 1.4 GiB."""
SLACK = 1.001
"""What else may be allocated beside such copies: a thousandth."""
MARGIN = 0.02
"""Share of the card that must be free beyond the request before the driver is blamed: it cannot hand out the last of it."""
_HALVES = 12
SHARE = 0.05
"""Share of the card from which foreign memory counts as a cause."""
FRAGMENTED = 0.10
"""Share of the card from which unused memory of the allocator counts as fragmentation; less is left over in any run."""

LEFTOVER = 0.01
"""Share of the card below which what the allocator keeps unused would carry no run any further."""


def weigh(message: Message) -> Budget | None:
    """Weigh the numbers of a message, or None when it prints none of the card."""
    asked, total, free = message.asked, message.total, message.free
    if message.form not in {"torch", "cuda-malloc-async"} or asked is None or total is None or free is None:
        return None
    held = _held(message)
    if asked.low_bytes > total.high_bytes:
        return Budget("larger_than_device", f"{asked.text} is more than the whole device has ({total.text})")
    if held is not None and held > total.high_bytes:
        place = "memory of the host stands in, or two devices were taken for one"
        return Budget("unclear", f"PyTorch holds {format_bytes(held)} of a device with {total.text}: {place}")
    if message.form != "torch":
        reason = "the message does not say what the driver's pool keeps reserved"
        return Budget("unclear", reason, ("larger than the device",))
    if message.allowed is not None and message.allowed.high_bytes >= total.low_bytes:
        message = message._replace(allowed=None)  # the whole device is no limit
    return _outside(message, asked, total, free, held) or _inside(message, asked, total, free, held)


def _outside(message: Message, asked: Printed, total: Printed, free: Printed, held: int | None) -> Budget | None:
    """Look for a cause outside this process's allocator: a limit, the driver, other processes."""
    out: tuple[str, ...] = ("larger than the device",)
    foreign = _foreign(total, free, held)
    if message.allowed is not None:
        if held is not None and held + asked.low_bytes > message.allowed.high_bytes:
            reason = f"PyTorch may use {message.allowed.text}, holds {format_bytes(held)} and asked for {asked.text}"
            return Budget("memory_limit", reason, out)
        out = (*out, "a memory limit of this process")
    if free.low_bytes >= asked.high_bytes + MARGIN * _middle(total):
        blame = "the driver, a limit of the machine (WSL, MIG) or a process that came between"
        return Budget(
            "refused_with_free_memory", f"{free.text} was free and {asked.text} refused: {blame}", out, foreign
        )
    out = (*out, "refused although free")
    contexts, fits = _contexts(message, held), free.low_bytes >= asked.high_bytes
    for cause, count, holder in _holders(message, total, free, held):
        worth = count >= SHARE * _middle(total) or (cause == "other_processes" and contexts)
        if fits and count < SHARE * _middle(total):
            continue
        if worth and _middle(free) + count >= asked.low_bytes:
            holder = f"{holder}: {contexts}" if cause == "other_processes" and contexts else holder  # noqa: PLW2901 (the same, with its sign)
            at_least = "at least " if cause == "foreign_memory" else ""
            then = (
                f"the {free.text} still free are the last of it" if fits else f"with it, {asked.text} would have fitted"
            )
            reason = f"{at_least}{format_bytes(count)} of the device is held by {holder}; {then}"
            return Budget(cause, reason, out, foreign)
    return None


def _holders(message: Message, total: Printed, free: Printed, held: int | None) -> Iterator[tuple[str, int, str]]:
    """Yield who holds memory outside this process's allocator: (cause, bytes, in words)."""
    if held is None:
        return
    own = _own(message, held)
    if own is None:  # an allowance for the context of this process is left to it
        count = _middle(total) - _middle(free) - held - CONTEXT_BYTES
        yield "foreign_memory", count, "other processes, or by other libraries of this one"
        return
    yield "other_processes", _middle(total) - _middle(free) - _middle(own), "other processes"
    libraries = "this process outside PyTorch's allocator (NCCL, CUDA graphs, other libraries)"
    yield "outside_allocator", _middle(own) - held - CONTEXT_BYTES, libraries


def _contexts(message: Message, held: int | None) -> str | None:
    """Tell in words that other processes hold about as much as one context each, as ranks do that began on the wrong device."""
    own = None if held is None else _own(message, held)
    sizes = [size for _, size in message.others if size is not own]
    if len(sizes) < 2 or not all(_CONTEXT_AT_LEAST <= _middle(size) <= CONTEXT_BYTES for size in sizes):
        return None
    each = " to ".join(dict.fromkeys(size.text for size in (min(sizes, key=_middle), max(sizes, key=_middle))))
    return (
        f"{len(sizes)} processes of {each} each, a CUDA context and little more: small programs, or other ranks of the run "
        "that touch this device before they choose their own (torch.cuda.set_device or CUDA_VISIBLE_DEVICES first)"
    )


def _own(message: Message, held: int) -> Printed | None:
    """Return what this process holds on the device, context and libraries included.

    In a container the driver lists it under its number outside; then it is the one that holds at least what the allocator
    does. A driver that does not know prints 0 bytes, or -1 as 2**64.
    """
    sizes = [size for size in (message.process, *(size for _, size in message.others)) if size is not None]
    limit = None if message.total is None else message.total.high_bytes
    fitting = [size for size in sizes if size.high_bytes >= held and (limit is None or size.low_bytes <= limit)]
    return min(fitting, key=lambda size: size.low_bytes, default=None)


def _inside(message: Message, asked: Printed, total: Printed, free: Printed, held: int | None) -> Budget:
    """Tell fragmentation from need."""
    out = ["larger than the device", "refused although free"]
    if message.allowed is not None:
        out.append("a memory limit of this process")
    if all(_middle(free) + count < asked.low_bytes for _, count, _ in _holders(message, total, free, held)):
        out.append("memory of others")
    foreign, unused = _foreign(total, free, held), _unused(message)
    if held is None:
        return Budget("unclear", "the message does not say what PyTorch holds", tuple(out))
    if unused is None:
        reason = f"{free.text} is free; how much PyTorch keeps unused is not said"
        return Budget("need", reason, tuple(out), foreign)
    if unused.high_bytes + free.high_bytes < asked.low_bytes:
        short = asked.low_bytes - _middle(unused) - _middle(free)
        reason = f"free and unused memory together are {format_bytes(short)} short of {asked.text}"
        return Budget("need", reason, (*out, "fragmentation"), foreign)
    joined = f"{unused.text} is reserved and unused, {free.text} free: together {asked.text} and more, but in pieces"
    if unused.low_bytes >= FRAGMENTED * _middle(total) and unused.low_bytes + free.low_bytes >= asked.high_bytes:
        return Budget("fragmentation", joined, tuple(out), foreign)
    if free.low_bytes >= asked.high_bytes:
        reason = f"{free.text} was free and {asked.text} refused: the driver cannot hand out the last of a device"
        out.remove("refused although free")
    elif _is_left_over(unused, total):
        reason = f"{joined}, and next to nothing of the device"
    else:
        reason = f"{joined}; joined they would do, so that expandable_segments may carry it once"
    return Budget("nearly_full", reason, tuple(out), foreign)


def is_worth_joining(message: Message) -> bool:
    """Tell whether what the allocator keeps unused would have been enough, and be of use, in one piece."""
    asked, total, free, unused = message.asked, message.total, message.free, _unused(message)
    if asked is None or total is None or free is None or unused is None:
        return False
    return free.low_bytes < asked.high_bytes and not _is_left_over(unused, total)


def _is_left_over(unused: Printed, total: Printed) -> bool:
    return unused.high_bytes < LEFTOVER * _middle(total)


def _foreign(total: Printed, free: Printed, held: int | None) -> int | None:
    """Return what is neither free nor held by this process's allocator."""
    return None if held is None else max(0, _middle(total) - _middle(free) - held)


def _middle(size: Printed) -> int:
    return (size.low_bytes + size.high_bytes) // 2


def _unused(message: Message) -> Printed | None:
    """Return what is reserved and not allocated, as printed or as the difference of two printed numbers."""
    if message.unallocated is not None:
        return message.unallocated
    if message.reserved is None or message.allocated is None:
        return None
    low = max(0, message.reserved.low_bytes - message.allocated.high_bytes)
    high = max(0, message.reserved.high_bytes - message.allocated.low_bytes)
    return Printed(format_bytes((low + high) // 2), low, high)


def _held(message: Message) -> int | None:
    """Return what the allocator of this process has reserved."""
    if message.reserved is not None:
        return _middle(message.reserved)
    if message.allocated is not None and message.unallocated is not None:
        return _middle(message.allocated) + _middle(message.unallocated)
    return None if message.allocated is None else _middle(message.allocated)


def count_halves(message: Message) -> tuple[int, ...]:
    """Return how many halves of the size asked for are already allocated, where that is a whole number.

    A mixed-precision optimizer copies the flat parameters: before the n-th fp32 copy of 4 bytes an element is asked for,
    n - 1 of them and the 16-bit parameters (one half) are allocated; so an odd number speaks for an fp32 copy.
    """
    asked, held = message.asked, message.allocated
    if message.form != "torch" or asked is None or held is None or asked.low_bytes < GIB // 2:
        return ()
    return tuple(
        halves
        for halves in range(1, _HALVES + 1)
        if halves * asked.low_bytes <= 2 * held.high_bytes and halves * asked.high_bytes * SLACK >= 2 * held.low_bytes
    )


def remark(message: Message) -> Iterator[str]:
    """Yield what else is remarkable about the numbers of a message."""
    if message.allocated is not None:
        for halves in count_halves(message):
            yield f"the {message.allocated.text} already allocated are {halves / 2:g} times the size asked for"
    pools, total = message.private_pools, message.total
    if pools is not None and total is not None and pools.low_bytes >= SHARE * _middle(total):
        yield f"{pools.text} lie in private pools (CUDA graphs), which nothing else can use"
    details = dict(message.details)
    if message.form == "vllm-utilization":
        held = float(details["total_gib"]) - float(details["free_gib"])
        yield f"{held:.2f} GiB of the device were held before vLLM started, its own context included"
