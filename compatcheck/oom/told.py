"""A failure of memory that a text tells of without the program's own message: in words, or by a traceback that is cut off.

A thread is often cut before the line that says how much was asked for. Then its words tell that memory ran out, and the frames
that are left tell where; nothing else is taken from them.
"""

from __future__ import annotations

import re

from compatcheck.core.out_of_memory import CUT, NO_MESSAGE, TOLD, Frame, Message
from compatcheck.core.pasted_text import fold_case
from compatcheck.oom.frames import find_place
from compatcheck.oom.needles import find_speech
from compatcheck.oom.text import find_frames, split_streams

_FRAME_NEEDLES = ('.py", line ', ".py in ", ".py:")
_HITS = 400
"""Frames that are looked at, the last of the log; a traceback through a compiler has a hundred."""
_ENDED = re.compile(
    r"(?<![\w(])(?!\w*OutOfMemory)(?:[a-z_]\w*\.)*(?:[A-Z]\w*)?(?:Error|Exception|Interrupt|Exit)\b:?(?: |$)"
)
"""How the line behind a traceback begins that was not cut off before it."""
_OF_HOST = re.compile(
    r"(?<![a-z])(?:host|ram|ray|system|killed)(?![a-z])|exit ?code:? ?-9|kill|(?<!显)内存", re.IGNORECASE
)
_OF_DEVICE = re.compile(r"(?<![a-z])(?:cuda|gpus?|vram|npu|hip)(?![a-z])|显存|OutOfMemoryError", re.IGNORECASE)
_CALL = re.compile(r"(\w+)\((?:[^()]|\([^()]*\))*\)?$")
"""What the last source line that is left calls."""
_CUT_FRAME = re.compile(r"\s+(?:\[?\w+\]?:?\s*)?File\b.{0,9}$|\s+\[\w+\]:?$")
"""Beginning of a next frame that was cut off."""
_NAMED = {
    "optimizer.step()": ("torch/optim/", "optimizer.step"),
    "loss.backward()": ("torch/_tensor.py", "backward"),
    "prepare_model_for_kbit_training": ("peft/", "prepare_model_for_kbit_training"),
    "trainer.train()": ("transformers/trainer.py", "training_step"),
    "caching_allocator_warmup": ("modeling_utils.py", "caching_allocator_warmup"),
}
"""Functions that people name as what failed, and where they stand."""
_LINE_LENGTH = 2500


def tell(log: str) -> Message | None:
    """Return what a text tells of a failure for which it holds no message; None where it tells of none."""
    frames, stream, begin = _last_frames(log)
    said = find_words(log)
    if said is not None:
        line, words = said
        frames = frames if find_place(frames) is not None else _named_in(log) or frames
        host = not frames and _OF_HOST.search(words) is not None and _OF_DEVICE.search(words) is None
        return Message(
            TOLD, "host memory" if host else "in words", "host" if host else "device", None, line, "", frames=frames,
            details=(("words", words),),
        )  # fmt: skip
    return Message(CUT, "a traceback", "device", None, begin, stream, frames=frames) if frames else None


def _with_call(frames: tuple[Frame, ...]) -> tuple[Frame, ...]:
    """Add the frame that the last source line enters, where its name alone tells a place."""
    last = frames[-1]
    called = _CALL.search(_CUT_FRAME.sub("", last.code))
    if called is None:
        return frames
    entered = last._replace(function=called.group(1), code="")
    place = find_place((entered,))
    tells = place is not None and (place.part not in {"forward", "rollout"} or entered.function == "compute_loss")
    return (*frames, entered) if tells else frames


def _named_in(log: str) -> tuple[Frame, ...]:
    """Return a frame for the one function that the lines which speak of memory name as code."""
    named = set()
    for word, (file, function) in _NAMED.items():
        end = 0
        while (found := log.find(word, end)) >= 0:
            end = log.find("\n", found)
            end = len(log) if end < 0 else end
            if find_speech(fold_case(log[log.rfind("\n", 0, found) + 1 : end])) is not None:
                named.add((file, function, word))
                break
    return tuple(Frame(file, 0, function, word) for file, function, word in named) if len(named) == 1 else ()


def say_nothing() -> Message:
    """Return what stands for the message of a text that holds none and tells of no failure."""
    return Message(NO_MESSAGE, "the text", "device", None, 1, "")


def find_words(log: str) -> tuple[int, str] | None:
    """Return the first line of a log that speaks of exhausted memory, in whatever form, with its number."""
    said = find_speech(fold_case(log))
    if said is None:
        return None
    before = log[: said + 1].splitlines()
    begin = said + 1 - len(before[-1])
    return len(before), " ".join(log[begin : begin + _LINE_LENGTH].splitlines()[0].split())


def attach_frames(messages: tuple[Message, ...], log: str) -> tuple[Message, ...]:
    """Give the frames that a thread quotes apart from its one message, as behind a title, to that message."""
    if len(messages) != 1 or messages[0].frames or messages[0].memory != "device":
        return messages
    frames, _, _ = _last_frames(log)
    return (messages[0]._replace(frames=frames),)


def _last_frames(log: str) -> tuple[tuple[Frame, ...], str, int]:
    """Return the frames of a traceback whose end is missing, the stream and line it begins in; of several the most telling."""
    folded = fold_case(log)
    found = ([match.start() for match in re.finditer(re.escape(needle), folded)] for needle in _FRAME_NEEDLES)
    hits = next((positions for positions in found if positions), [])
    best: tuple[tuple[Frame, ...], str, int] = ((), "", 0)
    for stream in split_streams(log, hits[-_HITS:]) if hits else ():
        frames = find_frames(stream.text)
        if not frames or _ENDED.search(stream.text, stream.text.rfind(frames[-1].file)) is not None:
            continue
        frames = _with_call(frames)
        if not best[0] or (find_place(best[0]) is None and find_place(frames) is not None):
            best = frames, stream.name, stream.lines[0]
    return best
