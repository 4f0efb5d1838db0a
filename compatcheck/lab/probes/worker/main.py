"""Run the probes of a request; each event is a line of JSON, so that what was measured is kept whatever happens next."""

from __future__ import annotations

import contextlib
import faulthandler
import gc
import importlib.util
import json
import os
import platform
import sys
import traceback
from typing import TYPE_CHECKING, Any

from .ranks import launch
from .recorder import Recorder, UnsupportedError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import ModuleType

_REASON_LENGTH = 600


def main(arguments: list[str]) -> int:
    """Run every task of a request file.

    Args:
        arguments: path of the request (JSON: ``tasks``, ``backend``, ``accounting``, ``world_size``, ``timeout_seconds``,
            ``memory_fraction``, ``installed``: the file that tells commits from releases) and of the file that events are
            appended to.

    Returns:
        0 when every task has its end event, whatever it says.
    """
    request_path, results_path = arguments
    _end_with_parent()
    with open(request_path, encoding="utf-8") as file:
        request = json.load(file)
    world_size = request["world_size"]
    if world_size > 1 and "RANK" not in os.environ:
        entry = os.path.join(os.path.dirname(os.path.abspath(__file__)), "__main__.py")
        return launch([entry, *arguments], world_size)
    rank = int(os.environ.get("RANK", "0"))
    with open(results_path if rank == 0 else os.devnull, "a", encoding="utf-8") as results:

        def write(event: dict[str, Any]) -> None:
            results.write(json.dumps(event) + "\n")
            results.flush()

        forks = request["forks"]
        if forks:
            _load(request["tasks"][0]["path"]).prepare(request["tasks"][0]["parameters"])
        for task in request["tasks"]:
            write({"event": "begin", "key": task["key"]})
            if forks and (child := os.fork()):
                if code := os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]):
                    return _end_like(code)
                continue
            if forks:
                _end_with_parent()
            # A hang ends with the stack it hangs in, which says more than "too slow".
            faulthandler.dump_traceback_later(request["timeout_seconds"], exit=True)
            _run_task(task, request, write, rank)
            faulthandler.cancel_dump_traceback_later()
            if forks:
                os._exit(0)
    return 0


def _end_like(code: int) -> int:
    """End as the process that was forked off did, by the same signal if it was one."""
    if code < 0:
        os.kill(os.getpid(), -code)
    return code


def _end_with_parent() -> None:
    """Ask Linux to kill this process when the one that started it is gone, however it went."""
    if sys.platform.startswith("linux"):
        import ctypes
        import signal

        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(1, signal.SIGKILL, 0, 0, 0)  # PR_SET_PDEATHSIG


def _run_task(
    task: dict[str, Any], request: dict[str, Any], write: Callable[[dict[str, Any]], None], rank: int
) -> None:
    status, reason = "ok", None
    probe = None
    try:
        import torch

        torch.manual_seed(0)
        # A model that failed to build may have left another one behind (transformers 4.36 to 4.48 do).
        torch.set_default_dtype(torch.float32)
        if request["backend"] != "cuda":
            torch.set_num_threads(1)
        probe = _load(task["path"])
        with contextlib.ExitStack() as stack:
            name = os.path.splitext(os.path.basename(task["path"]))[0]
            # A probe that runs on a CPU, too, derives what tensors hold; one of GPUs alone sees to workspaces itself.
            warm = "cpu" in probe.BACKENDS
            accounting = _enter_backend(stack, request, f"{name}-{task['key']}", warm=warm)
            recorder = Recorder(
                backend=request["backend"],
                accounting=accounting,
                write=write,
                rank=rank,
                world_size=request["world_size"],
                folder=os.path.dirname(task["path"]),
                shares=task["shares"],
            )
            probe.run(task["parameters"], recorder)
    except UnsupportedError as error:
        status, reason = "unsupported", str(error)
    except ModuleNotFoundError as error:
        status, reason = "unsupported", f"needs {error.name}, which is not installed" if error.name else str(error)
    except MemoryError as error:
        status, reason = "oom", _describe(error)
    except Exception as error:  # the reason goes to the report
        status, reason = _classify(error, request["backend"])
    versions = _versions((*getattr(probe, "PACKAGES", ()), *request["packages"]), request["installed"])
    write(
        {
            "event": "end",
            "key": task["key"],
            "status": status,
            "reason": reason,
            "versions": versions,
            "device": _device(request),
        }
    )
    gc.collect()


def _enter_backend(stack: contextlib.ExitStack, request: dict[str, Any], name: str, *, warm: bool) -> Any:
    """Enter what the back end needs and return its accounting."""
    from .accounting import AllocatorAccounting, CudaAccounting, StorageAccounting, take_workspaces

    if request["backend"] == "cuda":
        import torch

        if not torch.cuda.is_available():
            message = "torch sees no CUDA device"
            raise UnsupportedError(message)
        ranks, devices = request["world_size"], torch.cuda.device_count()
        if ranks > devices:  # NCCL refuses two ranks on one
            message = f"needs {ranks} GPUs, one for each rank, and torch sees {devices}"
            raise UnsupportedError(message)
        torch.cuda.set_per_process_memory_fraction(request["memory_fraction"])
        if request.get("snapshots"):
            stack.enter_context(_snapshot(request["snapshots"], name))
        if warm:
            take_workspaces("cuda")
        return stack.enter_context(CudaAccounting())
    if request["backend"] == "fake":
        from torch._subclasses.fake_tensor import FakeTensorMode

        stack.enter_context(FakeTensorMode())
        return stack.enter_context(StorageAccounting())
    if request["accounting"] == "allocator":
        return stack.enter_context(AllocatorAccounting())
    return stack.enter_context(StorageAccounting())


@contextlib.contextmanager
def _snapshot(folder: str, name: str) -> Iterator[None]:
    """Record what the caching allocator does, and write it in the format of torch's memory viewer."""
    import torch

    torch.cuda.memory._record_memory_history(max_entries=1_000_000)
    try:
        yield
    finally:
        os.makedirs(folder, exist_ok=True)
        torch.cuda.memory._dump_snapshot(os.path.join(folder, f"{name}.pickle"))
        torch.cuda.memory._record_memory_history(enabled=None)


def _load(path: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location("probe_under_test", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["probe_under_test"] = module
    spec.loader.exec_module(module)
    return module


def _classify(error: BaseException, backend: str) -> tuple[str, str]:
    """Tell running out of memory and what fake tensors cannot do from a failure."""
    name, text = type(error).__name__, str(error)
    if name == "OutOfMemoryError" or "can't allocate memory" in text or "out of memory" in text.lower():
        return "oom", _describe(error)
    if name in {"DataDependentOutputException", "DynamicOutputShapeException", "UnsupportedOperatorException"}:
        return "unsupported", f"fake tensors cannot run {getattr(error, 'func', text)} ({name})"
    if backend == "fake" and "TorchScript interpreter" in text:
        return "unsupported", f"fake tensors cannot run this inside of TorchScript: {_describe(error)}"
    return "failed", _describe(error)


def _describe(error: BaseException) -> str:
    """Say what failed and where, in one line."""
    frames = traceback.extract_tb(error.__traceback__)
    place = f" ({os.path.basename(frames[-1].filename)}:{frames[-1].lineno})" if frames else ""
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text[:_REASON_LENGTH]}{place}"


def _versions(packages: tuple[str, ...], installed: str) -> dict[str, str]:
    from importlib.metadata import PackageNotFoundError, distribution

    identify = _load(installed).identify
    found = {"python": platform.python_version()}
    for name in dict.fromkeys(("torch", *packages)):
        with contextlib.suppress(PackageNotFoundError):
            found[name] = identify(distribution(name))
    return found


def _device(request: dict[str, Any]) -> str:
    if request["backend"] == "cuda":
        with contextlib.suppress(Exception):
            import torch

            return str(torch.cuda.get_device_name())
    return f"{platform.machine()} CPU" + (", gloo" if request["world_size"] > 1 else "")
