"""Where in a run a traceback points: the phase and the part of the step, from the innermost frame that tells.

Frames inside torch tell where they are specific (an optimizer, the loss, FSDP's gathering) and nothing where they are not
(``Module.__call__``, ``F.linear``); then the next frame outwards is asked.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from compatcheck.core.data_file import read_text
from compatcheck.core.named_tuple import NamedTuple
from compatcheck.core.out_of_memory import Frame, Place

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


class Sign(NamedTuple):
    """A frame that tells a place."""

    file: str
    """Pattern of the path, searched."""
    function: str
    """Pattern of the function, matched in full; empty for every function."""
    phase: str
    part: str
    code: str = ""
    """Pattern of the source line, searched; empty for every line."""


_MODEL = (
    r"model(?:ing|s)?[_/]|/model\.py|modular_|unsloth/(?:models|kernels)|compiled_cache|flash_attn|/attention|/layers?/"
)


def _read_signs() -> Iterator[Sign]:
    for line in read_text(__file__, "frames").splitlines():
        if line and not line.startswith("#"):
            phase, part, *patterns = re.split(" {2,}", line)
            file, function, code = (
                "" if one == "-" else one.replace("<MODEL>", _MODEL) for one in (*patterns, "-")[:3]
            )
            yield Sign(file, function, phase, part, code)


SIGNS = tuple(_read_signs())
"""The first that fits a frame counts."""
_BACKWARD = (
    r"torch/autograd/(?:__init__|graph|function)\.py|torch/_tensor\.py",
    r"backward|_engine_run_backward|apply",
)
_GENERIC = re.compile(
    r"torch/nn/modules/(?!loss)|torch/_dynamo|torch/utils/_contextlib|torch/_ops|accelerate/hooks\.py|accelerate/utils/operations\.py"
    r"|torch/_functorch|torch/_inductor|torch/utils/checkpoint\.py|torch/_prims|torch/_refs|torch/utils/_device|torch/_compile|torch/_tensor\.py$"
    r"|torch/autograd/|peft/(?:peft_model|tuners/tuners_utils)\.py|torch/overrides|<frozen|<string>"
    r"|vllm/(?:utils|entrypoints|tracing|(?:v1/)?executor|(?:v1/)?engine)[/.]|worker_base\.py|multiproc_worker_utils"
)
_TRAINERS = re.compile(r"generate|rollout|generate_sequences")
_EVALUATION = re.compile(r"evaluate|evaluation_loop|prediction_step|prediction_loop|predict|validate|_validate")


def find_place(frames: Sequence[Frame]) -> Place | None:
    """Find where in a run a traceback points, or None when no frame tells."""
    backward = _last_backward(frames)
    for index in range(len(frames) - 1, -1, -1):
        frame = frames[index]
        sign = _sign(frame)
        if sign is not None and not (sign.part in {"forward", "rollout"} and _GENERIC.search(frame.file)):
            return _place(frames, index, sign, backward)
        if backward is not None and index <= backward:
            break
    if backward is not None:
        frame = frames[backward]
        return Place("backward", "backward", frame, f"innermost frame that tells: {describe(frame)}, the backward pass")
    return None


def _sign(frame: Frame) -> Sign | None:
    for sign in SIGNS:
        if sign.file and not re.search(sign.file, frame.file):
            continue
        if sign.function and not re.fullmatch(sign.function, frame.function):
            continue
        if sign.code and not re.search(sign.code, frame.code):
            continue
        if not sign.file and _GENERIC.search(frame.file):
            continue
        if sign.file == r"torch/nn/modules/module\.py" and not re.search(
            r"\.to\(|fn\(|\.cuda\(|_apply\(|module\._apply|convert|\.half\(", frame.code or "fn("
        ):
            continue
        return sign
    return None


def _place(frames: Sequence[Frame], index: int, sign: Sign, backward: int | None) -> Place:
    frame, phase, part = frames[index], sign.phase, sign.part
    why = f"innermost frame that tells: {describe(frame)}"
    outside = frames[:index]
    if phase in {"forward", "gather"} and backward is not None and backward < index:
        return Place("backward", part, frame, f"{why}, recomputed or hooked in the backward pass")
    if phase == "forward" and any(_TRAINERS.fullmatch(outer.function) for outer in outside):
        return Place("rollout", part, frame, f"{why}, inside generate")
    if phase == "forward" and any(_EVALUATION.fullmatch(outer.function) for outer in outside):
        return Place("evaluation", part, frame, f"{why}, inside the evaluation")
    if phase == "forward" and any("vllm/" in outer.file or "sglang/" in outer.file for outer in outside):
        return Place("rollout", part, frame, f"{why}, inside the serving engine")
    return Place(phase, part, frame, why)


def _last_backward(frames: Sequence[Frame]) -> int | None:
    file, function = _BACKWARD
    indices = [
        index
        for index, frame in enumerate(frames)
        if re.search(file, frame.file) and re.fullmatch(function, frame.function)
    ]
    return indices[-1] if indices else None


def find_model_types(frames: Sequence[Frame]) -> tuple[str, ...]:
    """Return the model types whose code of transformers a traceback runs through, the innermost first."""
    found = (re.search(r"/models/(\w+)/modeling_\w+\.py$", frame.file) for frame in reversed(frames))
    return tuple(match.group(1) for match in found if match is not None)


def describe(frame: Frame) -> str:
    """Write a frame short: the last two parts of its path, line and function."""
    short = "/".join(frame.file.split("/")[-2:])
    return f"{short}{f':{frame.line}' if frame.line else ''} in {frame.function or '<module>'}"
