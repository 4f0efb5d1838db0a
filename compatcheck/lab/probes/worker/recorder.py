"""What a probe is given: phases to measure, results to state, and where it runs."""

from __future__ import annotations

import contextlib
import gc
import importlib.util
import os
import sys
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence


_THREADS_SECONDS = 0.02
_MOST_WAITS = 100


class UnsupportedError(Exception):
    """The probe cannot be run here: a package, an option or a model type is missing in this release."""


class _ReadAtOnce(ThreadPoolExecutor):
    """Runs what it is given at once and in its order.

    transformers 5 reads weights in several threads. Which of them is read last, and how far reading is ahead of what is made of
    the weights, is chance, and with it the peak: here all are read first.
    """

    def submit(self, fn: Callable[..., Any], /, *arguments: Any, **options: Any) -> Future[Any]:
        """Return what is done already."""
        done: Future[Any] = Future()
        try:
            done.set_result(fn(*arguments, **options))
        except BaseException as error:  # as the pool does
            done.set_exception(error)
        return done


class Recorder:
    """Measures the phases of one probe and passes each on as soon as it has ended."""

    def __init__(
        self,
        *,
        backend: str,
        accounting: Any,
        write: Callable[[dict[str, Any]], None],
        rank: int,
        world_size: int,
        folder: str = "",
        shares: Sequence[str] = (),
    ) -> None:
        """Keep where to write.

        Args:
            backend: ``fake``, ``cpu`` or ``cuda``.
            accounting: one of `accounting`'s classes, entered.
            write: takes one event.
            rank: this process's.
            world_size: number of processes.
            folder: where the probe's file lies.
            shares: names of the files that this run gets by `load`.
        """
        self.backend = backend
        """``fake``, ``cpu`` or ``cuda``."""
        self.device = "cuda" if backend == "cuda" else "cpu"
        """Where a probe makes its tensors: fake tensors say ``cpu``."""
        self.rank = rank
        self.world_size = world_size
        self._accounting = accounting
        self._write = write
        self._folder = folder
        self._shares = shares

    @contextlib.contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Measure what runs inside: its peak, and what is live at its end. The last phase of a name counts.

        Peaks are whole: bytes live before the phase are in them. A phase that fails is recorded up to its failure.
        """
        self._settle()
        self._accounting.reset()
        try:
            yield
        finally:
            event = {
                "name": name,
                "peak_allocated_bytes": self._accounting.peak(),
                "peak_operator": self._accounting.operator(),
            }
            self._settle()
            event["live_bytes"] = self._accounting.live()
            event.update(self._accounting.device_numbers())
            self._write({"event": "phase", "phase": event})

    def live_bytes(self) -> int:
        """Return the tensor bytes live now, after a garbage collection."""
        self._settle()
        return int(self._accounting.live())

    def measure(self, action: Callable[[], Any]) -> tuple[Any, int, int]:
        """Run something outside of any phase and return its value, its peak above what was live before, and what it left.

        The value is alive when the second number is taken, so what it holds is in it.
        """
        before = self.live_bytes()
        self._accounting.reset()
        value = action()
        peak = int(self._accounting.peak()) - before
        return value, peak, self.live_bytes() - before

    def _settle(self) -> None:
        """Collect garbage and let the threads of collective operations drop the tensors of what they have finished."""
        gc.collect()
        if "transformers.core_model_loading" in sys.modules:
            sys.modules["transformers.core_model_loading"].__dict__["ThreadPoolExecutor"] = _ReadAtOnce
        # One rank has a group too, under DeepSpeed.
        if self.world_size > 1 or getattr(sys.modules.get("torch.distributed"), "is_initialized", bool)():
            _await_threads()

    def result(self, name: str, value: float) -> None:
        """State a quantity: bytes as an int, or a ratio, slope or counter."""
        self._write({"event": "result", "name": name, "value": value})

    def note(self, text: str) -> None:
        """State what a reader must know about these numbers."""
        self._write({"event": "note", "text": text})

    def load(self, name: str) -> Any:
        """Load ``_NAME.py`` or another probe from the probe's folder, once per process.

        Raises:
            LookupError: it is none of the files that this run gets (``SHARES``, ``shares``), whose code is all that it measures.
        """
        if name not in self._shares:
            message = f"a run with these parameters does not get {name}: it is measured as {', '.join(self._shares)}"
            raise LookupError(message)
        key = f"probe_shared_{name}"
        if key not in sys.modules:
            path = os.path.join(self._folder, f"_{name}.py")
            if not os.path.exists(path):
                path = os.path.join(self._folder, f"{name}.py")
            spec = importlib.util.spec_from_file_location(key, path)
            assert spec is not None
            assert spec.loader is not None
            module = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(module)
            sys.modules[key] = module
        return sys.modules[key]

    def decisions(self, *, mask: list[list[int]] | None = None, routing: str | None = None) -> Any:
        """Declare what decisions are taken from, which fake tensors do not hold; see `fake_decisions.Decisions`.

        Args:
            mask: rows of the attention mask, where one is given.
            routing: of tokens to experts, imposed on real tensors too.
        """
        from .fake_decisions import Decisions

        return Decisions(fake=self.backend == "fake", mask=mask, routing=routing)

    def deepspeed(self) -> Any:
        """Import DeepSpeed so that it works on this machine, and join the process group."""
        from .deepspeed_cpu import prepare

        return prepare(self.device)

    @staticmethod
    def unsupported(reason: str) -> NoReturn:
        """End the probe: what it is about does not exist here."""
        raise UnsupportedError(reason)


def _await_threads() -> None:
    """Sleep until no other thread of this process runs: gloo's hold the tensors of a finished operation until they are scheduled.

    On a busy machine that may take longer than any fixed time; where threads cannot be looked at, a fixed time has to do.
    """
    own = str(threading.get_native_id())
    for _ in range(_MOST_WAITS):
        time.sleep(_THREADS_SECONDS)
        states = []
        with contextlib.suppress(OSError):
            for thread in os.listdir("/proc/self/task"):
                with contextlib.suppress(OSError), open(f"/proc/self/task/{thread}/stat", encoding="utf-8") as file:
                    states.append(file.read().rpartition(")")[2].split()[0] if thread != own else "S")
        if "R" not in states:
            return
