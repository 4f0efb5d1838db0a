"""The person's own module: what the function that they name returns, and where an error of their code lies.

The function returns ``module``, ``(module, inputs)``, ``(module, inputs, step)`` or ``(module, inputs, step, optimizer)``.
``inputs`` is one micro batch of one device: a tensor or a tuple (positional arguments of the module) or a dict (its keywords); a
model that takes ``labels`` as those of transformers do gets tokens where there are none. ``step(module, inputs)`` returns the
loss, a scalar that needs gradients, alone or beside other outputs; without it the module is called. ``optimizer(module)`` returns
a ``torch.optim.Optimizer``; without it the configuration's is made.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import inspect
import os
import sys
import sysconfig
import traceback
from typing import TYPE_CHECKING, Any

import torch
from probe_worker.recorder import UnsupportedError
from torch.overrides import TorchFunctionMode

from .step_module import StepModule, describe_value

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

_CONTRACT = (
    "it returns a torch.nn.Module or (module, inputs, step, optimizer), of which all but the module may be left out"
)


def load(source: Mapping[str, Any]) -> Callable[..., Any]:
    """Import the module that a person named and return its function.

    Args:
        source: ``file`` or ``module``, ``function``, and ``folder``, from where it would be run.

    Raises:
        UnsupportedError: there is none of this name.
    """
    sys.dont_write_bytecode = True
    os.chdir(source["folder"])
    file, name = source["file"], source["module"]
    sys.path[:0] = dict.fromkeys([*([] if file is None else [os.path.dirname(file)]), source["folder"]])
    if file is None:
        module = importlib.import_module(name)
    else:
        name = os.path.splitext(os.path.basename(file))[0]
        spec = importlib.util.spec_from_file_location(name, file)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        spec.loader.exec_module(module)
    function = getattr(module, source["function"], None)
    if callable(function):
        return function
    others = [key for key, value in vars(module).items() if inspect.isfunction(value) and value.__module__ == name]
    message = f"{module.__file__} has no function {source['function']}; it has {', '.join(others) or 'none'}"
    raise UnsupportedError(message)


def build_own(function: Callable[..., Any], source: Mapping[str, Any], dtype: str | None) -> StepModule:
    """Call the person's function and return what it made.

    Args:
        function: of `load`.
        source: ``facts``, whose values are given to parameters of their names.
        dtype: what weights are made in unless the function says otherwise; None is torch's default.

    Raises:
        UnsupportedError: what it needs or returns is not what it may be.
    """
    given = {}
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind in {parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD}:
            continue
        if parameter.name in source["facts"]:
            given[parameter.name] = source["facts"][parameter.name]
        elif parameter.default is parameter.empty:
            message = (
                f"{source['function']} takes {parameter.name}, which nothing states: --set training.{parameter.name}=… where "
                "that is a setting, else give it a default"
            )
            raise UnsupportedError(message)
    before = torch.get_default_dtype()
    if dtype is not None:
        torch.set_default_dtype(getattr(torch, dtype))
    try:
        made = function(**given)
    finally:
        torch.set_default_dtype(before)
    parts: tuple[Any, ...] = tuple(made) if isinstance(made, (tuple, list)) else (made,)
    if not 1 <= len(parts) <= 4 or not isinstance(parts[0], torch.nn.Module):
        message = f"{source['function']} returned {', '.join(map(describe_value, parts))}: {_CONTRACT}"
        raise UnsupportedError(message)
    module, inputs, step, optimizer = (*parts, None, None, None)[:4]
    for what, value in (("step", step), ("optimizer", optimizer)):
        if value is not None and not callable(value):
            message = f"{what} is {describe_value(value)}, and must be a function: {_CONTRACT}"
            raise UnsupportedError(message)
    if inputs is None and step is None and not takes_labels(module):
        message = f"{source['function']} returned no inputs: one micro batch, as {type(module).__name__} takes it ({_CONTRACT})"
        raise UnsupportedError(message)
    if any(weight.device.type == "meta" for weight in module.parameters()):
        message = f"weights of {type(module).__name__} are on the meta device: build them without it, they take no memory here"
        raise UnsupportedError(message)
    if not any(weight.requires_grad for weight in module.parameters()):
        message = f"no parameter of {type(module).__name__} is trained"
        raise UnsupportedError(message)
    return StepModule(module, inputs, step, optimizer)


def takes_labels(module: Any) -> bool:
    """Tell whether a module is called as models of transformers are: with tokens and labels."""
    return getattr(module, "config", None) is not None and "labels" in inspect.signature(module.forward).parameters


def takes_checkpointing(function: Callable[..., Any] | None) -> bool:
    """Tell whether the person's function is told about checkpointing, and so does it itself."""
    return function is not None and "gradient_checkpointing" in inspect.signature(function).parameters


def takes_length(function: Callable[..., Any]) -> bool:
    """Tell whether the person's function makes sequences as long as it is told."""
    return "sequence_length" in inspect.signature(function).parameters


def describe_error(error: BaseException, source: Mapping[str, Any]) -> str:
    """Say what failed, in which line of the person's, and what to do about it."""
    kind, text = type(error).__name__, " ".join(str(error).split())[:300]
    cannot = "DataDependent" in kind or "DynamicOutputShape" in kind or "UnsupportedOperator" in kind
    remedy = ""
    if isinstance(error, SystemExit):
        what, remedy = "it ended the program", "; what a script does belongs under if __name__ == '__main__'"
    elif isinstance(error, ModuleNotFoundError):
        what, remedy = f"{text}", f"; name the interpreter that has it with --python ({sys.executable} was run)"
    elif cannot:
        operator = getattr(error, "func", None) or text
        what = f"fake tensors, which have no numbers, cannot run {operator} ({kind})"
        remedy = "; leave out what reads numbers from tensors (.item(), if tensor, boolean indices)"
    elif "no NVIDIA driver" in text or "not compiled with CUDA" in text:
        what, remedy = f"{kind}: {text}", "; build without a device: the trace has none"
    else:
        what = f"{kind}: {text}"
    frames = traceback.extract_tb(error.__traceback__)
    if isinstance(error, SyntaxError) and error.filename:
        return f"{what} ({error.filename}:{error.lineno})"
    place = _find_frame(frames, source)
    if place is None:
        return f"{what}{remedy}"
    last = frames[-1]
    raised = f", raised in {os.path.basename(last.filename)}:{last.lineno}" if last is not place else ""
    return f"{place.filename}:{place.lineno} in {place.name}: {what}{raised}{remedy}"


def _find_frame(frames: Any, source: Mapping[str, Any]) -> Any:
    """Return the innermost frame of what is no installed package, library or part of this program."""
    installed = {
        os.path.realpath(path) for path in (sysconfig.get_paths()[key] for key in ("stdlib", "purelib", "platlib"))
    }
    own = os.path.dirname(os.path.realpath(__file__))
    worker = os.path.dirname(os.path.realpath(sys.modules["probe_worker"].__file__ or ""))
    named = os.path.realpath(source["file"]) if source["file"] is not None else None
    for frame in reversed(frames):
        path = os.path.realpath(frame.filename)
        if path == named or not (
            frame.filename.startswith("<")
            or any(path.startswith(folder + os.sep) for folder in (*installed, own, worker))
        ):
            return frame
    return None


class OnCpu(TorchFunctionMode):
    """Puts what a person's code puts on a GPU where the trace is: on the CPU, whose tensors stand for the GPU's."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run a function of torch."""
        kwargs = kwargs or {}
        if getattr(func, "__name__", "") in {"cuda", "pin_memory"} and args and isinstance(args[0], torch.Tensor):
            return args[0]
        return func(*(_here(value) for value in args), **{key: _here(value) for key, value in kwargs.items()})

    def __enter__(self) -> Any:
        """Take autocast of a GPU for that of the CPU, too."""
        self._original = original = torch.autocast.__init__

        def begin(autocast: Any, device_type: str, dtype: Any = None, *args: Any, **kwargs: Any) -> None:
            if device_type == "cuda":
                device_type, dtype = "cpu", dtype or torch.float16
            original(autocast, device_type, dtype, *args, **kwargs)

        torch.autocast.__init__ = begin
        return super().__enter__()

    def __exit__(self, *arguments: object) -> None:
        """Put back what was changed."""
        torch.autocast.__init__ = self._original
        super().__exit__(*arguments)


@contextlib.contextmanager
def causal_masks() -> Iterator[list[str]]:
    """Take a square mask for a causal one where torch's own ``nn.Transformer`` looks into it; yields what was so declared."""
    module: Any = torch.nn.modules.transformer
    original = module._detect_is_causal_mask
    declared: list[str] = []

    def detect(mask: Any, is_causal: Any = None, size: int | None = None) -> bool:
        if is_causal is not None or mask is None:
            return is_causal is True
        declared[:] = ["the mask of torch's Transformer is causal"]
        return bool(mask.shape[-1] == mask.shape[-2] == (size or mask.shape[-2]))

    module._detect_is_causal_mask = detect
    try:
        yield declared
    finally:
        module._detect_is_causal_mask = original


def _here(value: Any) -> Any:
    if isinstance(value, torch.device) and value.type == "cuda":
        return torch.device("cpu")
    return "cpu" if isinstance(value, str) and (value == "cuda" or value.startswith("cuda:")) else value
