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

CONTEXT_BYTES = 3 * GIB // 2
"""Most that a CUDA context with NCCL and library workspaces takes of one process: facts of public messages, 0.3 to 1.5 GiB."""
SLACK = 1.001
"""What else may be allocated beside such copies: a thousandth."""
SHARE = 0.05
"""Share of the card from which unused memory of the allocator counts as fragmentation, and foreign memory as a cause."""


def weigh(message: Message) -> Budget | None:
    """Weigh the numbers of a message, or None when it prints none of the card."""
    asked, total, free = message.asked, message.total, message.free
    if message.memory != "device" or asked is None or total is None or free is None:
        return None
    if message.form not in {"torch", "cuda-malloc-async"}:
        return None
    card, request = _middle(total), asked.low_bytes
    if request > total.high_bytes:
        return Budget("larger_than_device", f"{asked.text} is more than the whole device has ({total.text})")
    out = ["larger than the device"]
    unused, held = _unused(message), _held(message)
    if held is not None and held - _middle(free) > 0 and held > total.high_bytes:
        reason = f"PyTorch holds {format_bytes(held)} of a device with {total.text}: memory of the host stands in, or cards were mixed up"
        return Budget("unclear", reason)
    if message.form != "torch":
        return Budget("unclear", "the message does not say what the driver's pool keeps reserved", ("larger than the device",))
    if message.allowed is not None and held is not None and held + request > message.allowed.high_bytes:
        reason = (
            f"PyTorch may use {message.allowed.text}; it holds {format_bytes(held)} and asked for {asked.text} more"
        )
        return Budget("memory_limit", reason, tuple(out))
    out.append("a memory limit of this process" if message.allowed is not None else "")
    foreign = None if held is None else max(0, card - _middle(free) - held)
    if free.low_bytes >= asked.high_bytes:
        reason = f"{free.text} was free and {asked.text} was refused: the driver, a limit of the machine (WSL, MIG) or a process that came between"
        return Budget("refused_with_free_memory", reason, _said(out), foreign)
    out.append("refused although free")
    others = _others(message, foreign)
    if others is not None and others >= SHARE * card and _middle(free) + others >= request:
        reason = f"{format_bytes(others)} of the device is held by others; with it, {asked.text} would have fitted"
        return Budget("other_processes", reason, _said(out), foreign)
    out.append("memory of others")
    if (
        unused is not None
        and unused.low_bytes + free.low_bytes >= asked.high_bytes
        and unused.low_bytes >= SHARE * card
    ):
        reason = f"{unused.text} is reserved and unused, {free.text} free: together enough for {asked.text}, in pieces that are too small"
        return Budget("fragmentation", reason, _said(out), foreign)
    if held is None:
        return Budget("unclear", "the message does not say what PyTorch holds", _said(out))
    out.append("fragmentation")
    short = request - _middle(free) - (_middle(unused) if unused is not None else 0)
    reason = f"free and unused memory together are {format_bytes(max(0, short))} short of {asked.text}"
    if short <= 0:
        reason = f"PyTorch has allocated {_allocated(message)} of {total.text}; little of what it keeps is unused"
    return Budget("need", reason, _said(out), foreign)


def _said(words: list[str]) -> tuple[str, ...]:
    return tuple(word for word in words if word)


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


def _others(message: Message, foreign: int | None) -> int | None:
    """Return what other processes hold: as listed, less what is this very process under another number, else by subtraction."""
    process, total, free = message.process, message.total, message.free
    if process is not None and total is not None and free is not None:
        held = _held(message) or 0
        if held <= process.high_bytes <= total.high_bytes:  # else the driver did not know: 0 bytes, or -1 as 2**64
            return max(0, _middle(total) - _middle(free) - _middle(process))
    return None if foreign is None else max(0, foreign - CONTEXT_BYTES)


def _allocated(message: Message) -> str:
    return "an unknown part" if message.allocated is None else message.allocated.text


def multiples(message: Message) -> Iterator[str]:
    """Yield what is remarkable about the memory already allocated: halves and wholes of the size asked for.

    A mixed-precision optimizer copies the flat parameters: before the n-th fp32 copy of 4 bytes an element is asked for,
    n - 1 of them and the 16-bit parameters (one half) are allocated.
    """
    asked, held = message.asked, message.allocated
    if message.form != "torch" or asked is None or held is None or asked.low_bytes < GIB // 2:
        return
    for halves in range(1, 13):
        if halves * asked.low_bytes <= 2 * held.high_bytes and halves * asked.high_bytes * SLACK >= 2 * held.low_bytes:
            yield f"the {held.text} already allocated are {halves / 2:g} times the size asked for"
