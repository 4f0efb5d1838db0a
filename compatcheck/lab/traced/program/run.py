"""Run load, forward, backward and step of one request, and say what was live at the peak of each."""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
import platform
import time
import traceback
from typing import TYPE_CHECKING, Any

import torch
from probe_worker.accounting import StorageAccounting
from probe_worker.fake_decisions import Decisions
from probe_worker.recorder import UnsupportedError
from torch.utils._pytree import tree_leaves

from . import kernels
from .breakdown import describe_peak
from .contents import Contents
from .cuda_choices import CudaChoices, make_inside
from .model import adapt, build, checkpoint, make_inputs, make_rows, moves_in_place, vocabulary
from .optimizer import make_optimizer
from .own_module import OnCpu, build_own, causal_masks, describe_error, load, takes_checkpointing, takes_length
from .sharding import THREADS_SECONDS, Sharding
from .step_module import StepModule, checkpoint_blocks
from .tracker import Tracker

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_CANNOT = ("DataDependentOutputException", "DynamicOutputShapeException", "UnsupportedOperatorException")


def run(request: dict[str, Any]) -> dict[str, Any]:
    """Trace a request and return what was found, as JSON data; see `trace.Request` for its keys.

    Returns:
        ``status``: ``ok``, ``unsupported`` or ``failed``, with ``reason``; and, when it is ok, what `_Run.result` says.
    """
    torch.manual_seed(0)
    torch.set_num_threads(1)
    found: dict[str, Any] = {"status": "ok", "reason": None}
    try:
        found.update(_Run(request).result())
    except UnsupportedError as error:
        found.update(status="unsupported", reason=str(error))
    except (Exception, SystemExit) as error:
        name = type(error).__name__
        if request.get("module") is not None:
            found.update(status="failed", reason=describe_error(error, request["module"]))
        elif isinstance(error, ModuleNotFoundError):
            found.update(status="unsupported", reason=f"needs {error.name}, which is not installed")
        elif name in _CANNOT:
            reason = f"fake tensors cannot run {getattr(error, 'func', error)} ({name})"
            found.update(status="unsupported", reason=reason)
        else:
            found.update(status="failed", reason=_describe(error))
    found["versions"] = _versions(("torch", "transformers", "peft"))
    return found


def _describe(error: BaseException) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    place = f" ({os.path.basename(frames[-1].filename)}:{frames[-1].lineno})" if frames else ""
    return f"{type(error).__name__}: {' '.join(str(error).split())[:400]}{place}"


def _versions(packages: tuple[str, ...]) -> dict[str, str]:
    from importlib.metadata import PackageNotFoundError, version

    found = {"python": platform.python_version()}
    for name in packages:
        with contextlib.suppress(PackageNotFoundError):
            found[name] = version(name)
    return found


def _release(version: str) -> tuple[int, int]:
    major, minor = version.split(".")[:2]
    return int(major), int(minor)


def _enabled() -> tuple[str, ...]:
    """Return the attention kernels that nothing has turned off."""
    found = [kernels.MATH] if torch.backends.cuda.math_sdp_enabled() else []
    for kernel, name in ((kernels.FLASH, "flash"), (kernels.EFFICIENT, "mem_efficient"), (kernels.CUDNN, "cudnn")):
        asked = getattr(torch.backends.cuda, f"{name}_sdp_enabled", None)
        if asked is not None and asked():
            found.append(kernel)
    return tuple(found)


class _Run:
    """One traced run."""

    def __init__(self, request: dict[str, Any]) -> None:
        self.request = request
        self.fake = request["backend"] == "fake"
        self.tracker: Any = None
        self.marks: list[tuple[int, str]] = []
        self.phases: dict[str, dict[str, Any]] = {}
        self.groups: dict[str, set[int]] = {}
        """Kind of component → allocations that belong to it."""
        self.highest = 0
        self.later: Any = None
        """Inputs of all micro batches but the first, where that one is longer."""

    def result(self) -> dict[str, Any]:
        """Run it.

        Returns:
            ``phases`` (name, peak and live bytes, operator and, of a tracked run, what was live at the peak), ``highest_bytes``
            of the whole run, ``events``, ``marks`` (index and name of every phase that began) and ``notes``.
        """
        request = self.request
        own = load(request["module"]) if request.get("module") is not None else None
        for name in () if own is not None else ("transformers", *(("peft",) if request["lora"] is not None else ())):
            importlib.import_module(name)  # tensors that a module makes for itself are none of the model's
        with contextlib.ExitStack() as stack:
            sharding = stack.enter_context(Sharding(request["fsdp"])) if request["fsdp"] is not None else None
            if self.fake:
                from torch._subclasses.fake_tensor import FakeTensorMode

                stack.enter_context(FakeTensorMode(allow_non_fake_inputs=own is not None))
                if own is not None:
                    stack.enter_context(Contents())
                stack.enter_context(moves_in_place())
            choices, inside = None, None
            if request["device"] is not None:
                device = kernels.Device(
                    capability=tuple(request["device"]["capability"]),
                    cudnn=request["device"]["cudnn"],
                    torch=_release(torch.__version__),
                    enabled=_enabled(),
                )
                choices, inside = CudaChoices(device), make_inside(lambda: self.tracker, device.capability)
            if own is not None and request.get("shorter") is not None and takes_length(own):
                facts = {**request["module"]["facts"], "sequence_length": request["shorter"]}
                with OnCpu():
                    self.later = build_own(own, {**request["module"], "facts": facts}, request["dtype"]).inputs
            # The other accounting is the probes' own, of tensors that are real: that both agree is the test of this one.
            counts = StorageAccounting() if request["accounting"] == "storages" else Tracker(inside)
            self.tracker = stack.enter_context(counts)
            if choices is not None:
                stack.enter_context(choices)
            if own is not None:
                stack.enter_context(OnCpu())
            notes = self._train(stack, sharding, own)
        if choices is not None:
            notes["attention_kernels"] = choices.taken
        found: dict[str, Any] = {"phases": list(self.phases.values()), "highest_bytes": self.highest, "notes": notes}
        if isinstance(self.tracker, Tracker):
            for phase in found["phases"]:
                phase.update(describe_peak(self.tracker, phase.pop("at"), self.groups, notes["shape"]))
            found.update(events=self.tracker.events, marks=self.marks)
        return found

    def _train(self, stack: contextlib.ExitStack, sharding: Any, function: Any) -> dict[str, Any]:
        """Build the model and take its steps; return what a reader must know."""
        request = self.request
        rows = None
        with self._phase("load"):
            if function is not None:
                step = build_own(function, request["module"], request["dtype"])
            else:
                step = StepModule(build(request) if request["lora"] is None else adapt(build(request), request["lora"]))
        model = step.module
        if request["gradient_checkpointing"] and not takes_checkpointing(function):
            if hasattr(model, "gradient_checkpointing_enable"):
                checkpoint(model, reentrant=request["use_reentrant"], adapters=request["lora"] is not None)
            else:
                checkpoint_blocks(model, reentrant=request["use_reentrant"])
        counts = _count(model)
        base = getattr(model, "get_base_model", lambda: model)()
        vocabulary_size = vocabulary(base)
        if sharding is not None:
            model = sharding.shard(model, self.tracker)
            step = step._replace(module=model)
        gc.freeze()  # what the imports made would take a tenth of a second of every collection
        if step.optimizer is not None:
            optimizer = step.optimizer(model)
        else:
            weights = [weight for weight in model.parameters() if weight.requires_grad]
            optimizer = make_optimizer(weights, request["optimizer"], request["optimizer_implementation"])
        self._note("parameters", (*model.parameters(), *model.buffers()))
        if step.inputs is None and step.step is None:
            rows = make_rows(request)
            step = step._replace(inputs=make_inputs(base, request, rows))
            if request.get("shorter") is not None:
                shorter = {**request, "length": request["shorter"]}
                self.later = make_inputs(base, shorter, make_rows(shorter))
        self._note("inputs", tree_leaves(step.inputs))
        if isinstance(self.tracker, Tracker):
            stack.enter_context(self.tracker.watch(model))
        mask = None if request["mask"] == "none" else rows
        decisions = Decisions(fake=self.fake, mask=mask, routing=request["routing"])
        masks = stack.enter_context(causal_masks()) if self.fake else []
        with decisions.apply(model):
            for _ in range(request["steps"]):
                self._step(step, optimizer)
                if self.later is not None:
                    step = step._replace(inputs=self.later)
        return {
            **counts,
            "class": type(base).__name__,
            "attn_implementation": str(getattr(getattr(base, "config", None), "_attn_implementation", None) or "eager"),
            "decided": ", ".join(filter(None, (decisions.describe(), *masks))),
            "shape": {"vocab": vocabulary_size, "length": request["length"] or 0},
        }

    def _step(self, step: StepModule, optimizer: Any) -> None:
        """Take one step, in as many micro batches as the request says."""
        request, model = self.request, step.module
        output = None
        for number in range(request["micro_batches"]):
            last = number == request["micro_batches"] - 1
            waits = not last and (request["fsdp"] or {}).get("no_sync", False)
            context: Any = contextlib.nullcontext
            if hasattr(model, "set_is_last_backward"):
                model.set_is_last_backward(last)
                model.set_requires_gradient_sync(not waits)
            elif waits:
                context = model.no_sync
            with self._phase("forward"):
                cast: Any = contextlib.nullcontext()
                if request["autocast"] is not None:
                    cast = torch.autocast("cpu", dtype=getattr(torch, request["autocast"]))
                with cast, context():
                    output = step.run()
                if request["outputs_to_float32"]:
                    output = _widen(output)
                loss = step.find_loss(output)
                if not request["outputs_kept"]:
                    output = None
            if number == 0 and request.get("clears_late"):
                optimizer.zero_grad()
            with self._phase("backward"), context():
                _run_backward(loss)
                loss = None
            if self.later is not None:
                step = step._replace(inputs=self.later)
            self._note("gradients", (weight.grad for weight in model.parameters() if weight.grad is not None))
        output = None
        with self._phase("step"):
            optimizer.step()
        self._note("optimizer_states", (value for state in optimizer.state.values() for value in state.values()))
        if not request.get("clears_late"):
            optimizer.zero_grad()

    @contextlib.contextmanager
    def _phase(self, name: str) -> Iterator[None]:
        """Measure a phase; of a name counts the last, or the highest where micro batches are not as long as each other."""
        gc.collect()
        tracker = self.tracker
        tracker.reset()
        tracked = isinstance(tracker, Tracker)
        if tracked:
            tracker.phase = name
            self.marks.append((len(tracker.events), name))
        yield
        phase: dict[str, Any] = {"name": name, "peak_bytes": tracker.peak(), "operator": tracker.operator()}
        self.highest = max(self.highest, tracker.peak())
        if tracked:
            phase["at"] = tracker.peak_event
        gc.collect()
        if (self.request["fsdp"] or {}).get("real"):
            time.sleep(THREADS_SECONDS)
        phase["live_bytes"] = tracker.live()
        if tracked:
            self.marks.append((len(tracker.events), "between"))
        before = self.phases.get(name)
        if self.later is None or before is None or phase["peak_bytes"] >= before["peak_bytes"]:
            self.phases[name] = phase
        if tracked and name == "forward":
            self.groups.setdefault("activations", set()).update(tracker.live_identifiers())

    def _note(self, group: str, values: Iterable[Any]) -> None:
        """Remember to which component the storages of tensors belong."""
        if isinstance(self.tracker, Tracker):
            found = {self.tracker.identifier(value) for value in values if isinstance(value, torch.Tensor)}
            self.groups.setdefault(group, set()).update(identifier for identifier in found if identifier is not None)


def _count(model: Any) -> dict[str, int]:
    trained = [weight for weight in model.parameters() if weight.requires_grad]
    return {
        "parameters": sum(weight.numel() for weight in model.parameters()),
        "trainable_parameters": sum(weight.numel() for weight in trained),
        "trainable_bytes": sum(weight.numel() * weight.element_size() for weight in trained),
    }


def _run_backward(loss: Any) -> None:
    """Do what ``loss.backward()`` does, without leaving a mode of functions: checkpointed blocks are computed again in here."""
    gradient = torch.ones_like(loss, memory_format=torch.preserve_format)
    engine = torch.autograd.Variable._execution_engine
    engine.run_backward((loss,), (gradient,), False, False, (), allow_unreachable=True, accumulate_grad=True)


def _widen(value: Any) -> Any:
    """Return outputs in float32, as accelerate's ``convert_to_fp32`` gives them under mixed precision."""
    for name, tensor in list(value.items()):
        if isinstance(tensor, torch.Tensor) and tensor.dtype in {torch.float16, torch.bfloat16}:
            value[name] = tensor.float()
    return value
