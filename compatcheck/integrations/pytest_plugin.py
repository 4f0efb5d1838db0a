"""`@pytest.mark.limit_gpu_memory("12 GiB")`: a test fails where it, with what is set up for it, holds more at its peak.

Counted are what PyTorch's caching allocator has allocated on the current device, or, without CUDA (or with ``on="cpu"``), the
storages of all tensors that operators of this thread make, byte for byte. With ``on="fake"`` the test runs on fake tensors: full
size, without the memory. A whole test module, or a class, is marked as usual with ``pytestmark``.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest

from compatcheck.core.named_tuple import NamedTuple

if TYPE_CHECKING:
    from collections.abc import Generator

MARKER = "limit_gpu_memory"
_PLACES = {"cuda": "on the device", "cpu": "in tensor storages", "fake": "in fake tensors"}


class _Limit(NamedTuple):
    """What a marker asks for."""

    bytes: int
    written: str
    on: str | None


_COUNTING = pytest.StashKey[tuple[_Limit, str, ExitStack, Any]]()


def pytest_configure(config: pytest.Config) -> None:
    """Make the marker known."""
    config.addinivalue_line(
        "markers",
        f"{MARKER}(size, on=None): fail where the peak of tensor memory is above a size such as '12 GiB'; "
        "on is 'cuda', 'cpu' or 'fake', by default CUDA where there is one",
    )


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Refuse markers that make no sense before anything runs."""
    for item in items:
        _read_limit(item)


def _read_limit(item: pytest.Item) -> _Limit | None:
    from compatcheck.core.units import parse_bytes  # noqa: PLC0415 (this module is imported in every run of pytest)

    mark = item.get_closest_marker(MARKER)
    if mark is None:
        return None
    written, on = (mark.args[0] if len(mark.args) == 1 else None), mark.kwargs.get("on")
    size = parse_bytes(written) if isinstance(written, str) else None
    if not isinstance(written, str) or size is None or set(mark.kwargs) - {"on"} or on not in {None, *_PLACES}:
        raise pytest.UsageError(
            f"{item.nodeid}: {MARKER} takes one size such as '12 GiB' or '800MiB', and on='cuda', 'cpu' or 'fake'"
        )
    return _Limit(size, written, on)


@pytest.hookimpl(wrapper=True, trylast=True)
def pytest_runtest_setup(item: pytest.Item) -> Generator[None, None, None]:
    """Count from before the fixtures on."""
    limit = _read_limit(item)
    if limit is not None:
        torch = pytest.importorskip("torch", reason=f"{MARKER} counts tensors of torch")
        on = limit.on or ("cuda" if torch.cuda.is_available() else "cpu")
        if on == "cuda" and not torch.cuda.is_available():
            pytest.skip("no CUDA device")
        from compatcheck.lab.probes.worker.accounting import CudaAccounting, StorageAccounting  # noqa: PLC0415 (torch)

        stack = ExitStack()
        if on == "fake":
            from torch._subclasses.fake_tensor import FakeTensorMode  # noqa: PLC0415 (see above)

            stack.enter_context(FakeTensorMode())
        accounting = stack.enter_context(CudaAccounting() if on == "cuda" else StorageAccounting())
        accounting.reset()
        item.stash[_COUNTING] = limit, on, stack, accounting
    return (yield)


@pytest.hookimpl(wrapper=True, trylast=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, None, None]:
    """Fail a test that passed and held more than its limit."""
    result = yield
    if _COUNTING in item.stash:
        from compatcheck.core.units import format_bytes  # noqa: PLC0415 (see above)

        limit, on, _, accounting = item.stash[_COUNTING]
        peak, operator = accounting.peak(), accounting.operator()
        item.user_properties.append(("peak_memory_bytes", peak))
        if peak > limit.bytes:
            after = f", after {operator}" if operator else ""
            pytest.fail(
                f"{format_bytes(peak)} {_PLACES[on]} at the peak{after}: {format_bytes(peak - limit.bytes)} above "
                f"{MARKER}({limit.written!r})",
                pytrace=False,
            )
    return result


@pytest.hookimpl(wrapper=True, trylast=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None, None, None]:
    """Stop counting when the fixtures are gone."""
    try:
        return (yield)
    finally:
        if _COUNTING in item.stash:
            item.stash[_COUNTING][2].close()
            del item.stash[_COUNTING]
