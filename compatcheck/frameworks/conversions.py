"""Conversions of configuration values that many programs' keys share; a key file names them, with an argument behind a colon.

A conversion turns a file's value into one `parse_value` accepts, `LEAVE` where it states nothing about the fact, or raises
ValueError with a hint.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from compatcheck.core.pattern import lazy_compile

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

Convert = Callable[["Any"], "Any"]

LEAVE = object()
"""What a conversion returns when the value states nothing about the fact."""


OPEN = object()
"""What a conversion returns when the value decides the fact in a way that no reader follows."""


def is_on(value: object) -> bool:
    """Tell whether a switch is on, as a boolean or as a word."""
    return value is True or str(value).lower() == "true"


def is_off(value: object) -> bool:
    """Tell whether a switch is off, as a boolean or as a word."""
    return value is False or str(value).lower() == "false"


def state_nothing(_: object) -> object:
    """Leave the fact out, whatever the value."""
    return LEAVE


def stated(value: Any) -> Any:  # noqa: ANN401 (configuration)
    """Read a key that states nothing when it is null."""
    return LEAVE if value is None else value


def positive(value: Any) -> Any:  # noqa: ANN401 (configuration)
    """Read a number that states nothing unless it is whole and above 0."""
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else LEAVE


def multiplied(by: object) -> Convert:
    """Make the conversion that multiplies a positive number with that of another key, where there is one."""
    ranks = positive(by)
    return lambda value: LEAVE if positive(value) is LEAVE else value * (1 if ranks is LEAVE else ranks)


def none_when_zero(value: Any) -> Any:  # noqa: ANN401 (configuration)
    """Read 0, false and empty text as "none"."""
    return None if value in (0, False, "", "none", "None") else value


def none_when_empty(value: Any) -> Any:  # noqa: ANN401 (configuration)
    """Read empty text as "none"."""
    return None if value == "" else value


def non_empty(value: Any) -> Any:  # noqa: ANN401 (configuration)
    """Read a key that states nothing when it is null, 0 or empty."""
    return value or LEAVE


def opens(value: Any) -> Any:  # noqa: ANN401 (configuration)
    """Read a key that leaves its fact open wherever it says anything."""
    return OPEN if value and not is_off(value) else LEAVE


def unless_auto(value: Any) -> Any:  # noqa: ANN401 (configuration)
    """Read a key that states nothing when it is null or ``auto``."""
    return LEAVE if value in (None, "auto") else value


def lower_case(value: Any) -> Any:  # noqa: ANN401 (configuration)
    """Read a word whose case does not matter."""
    return str(value).lower()


def switch(value: Any) -> Any:  # noqa: ANN401 (configuration)
    """Read a key that states nothing unless it is true or false."""
    return value if is_on(value) or is_off(value) else LEAVE


def text(value: Any) -> Any:  # noqa: ANN401 (configuration)
    """Read a key that states nothing unless it is text."""
    return value if isinstance(value, str) else LEAVE


def sole_text(value: Any) -> Any:  # noqa: ANN401 (configuration)
    """Read text, or a list of one text; several together state nothing."""
    return text(value[0] if isinstance(value, list) and len(value) == 1 else value)


def names(value: Any) -> Any:  # noqa: ANN401 (configuration)
    """Read a list of names, of which one may stand alone."""
    return [value] if isinstance(value, str) else value


def kernel(value: Any) -> Any:  # noqa: ANN401 (configuration)
    """Read an attention implementation; a kernel of the hub counts as what it implements."""
    if value is None:
        return LEAVE
    found = _HUB_KERNEL.fullmatch(str(value))
    return str(value) if found is None else f"flash_attention_{found[1] or 2}"


_HUB_KERNEL = lazy_compile(r"kernels-community/(?:vllm-)?flash-attn([234]?)(?:[@:].*)?")
"""Flash attention of the hub, perhaps with a revision and a function (transformers 5.14.1 integrations/hub_kernels.py)."""


def lora_of_rank(rank: Any) -> Any:  # noqa: ANN401 (configuration)
    """Tell from the rank of an adapter whether there is one."""
    return LEAVE if not isinstance(rank, int) else "lora" if rank > 0 else None


def largest(value: Any) -> Any:  # noqa: ANN401 (configuration)
    """Read a list of numbers by the largest; one may stand alone, and what is none states nothing."""
    numbers = value if isinstance(value, list) else [value]
    return max((one for one in numbers if type(one) is int), default=LEAVE)


def graphs(mode: Any) -> Any:  # noqa: ANN401 (configuration)
    """Read vLLM's ``cudagraph_mode``: ``NONE``, or which graphs there are where ``enforce_eager`` leaves any.

    Source: vllm-project/vllm vllm/config/vllm.py __post_init__(): "Enforce eager set, disabling torch.compile and CUDAGraphs".
    """
    return False if str(mode).upper() in {"NONE", "0"} and mode is not None else LEAVE


def segments(value: Any) -> Any:  # noqa: ANN401 (configuration)
    """Read whether a value of ``PYTORCH_CUDA_ALLOC_CONF`` asks for expandable segments."""
    words = dict(one.partition(":")[::2] for one in str(value).replace(" ", "").split(","))
    return is_on(words.get("expandable_segments", ""))


def share(parts: object) -> Convert:
    """Make the conversion that divides a limit in tokens among the ranks of a sequence; what is no limit states nothing."""
    ranks = parts if type(parts) is int and parts > 0 else 1

    def divide(limit: Any) -> Any:  # noqa: ANN401 (configuration)
        return max(1, limit // ranks) if type(limit) is int and limit > 0 else LEAVE

    return divide


COMMON: Mapping[str, Convert] = {
    function.__name__: function
    for function in (
        graphs,
        kernel,
        largest,
        lora_of_rank,
        lower_case,
        names,
        non_empty,
        none_when_empty,
        none_when_zero,
        opens,
        positive,
        segments,
        sole_text,
        state_nothing,
        stated,
        switch,
        text,
        unless_auto,
    )
}


def constant(value: object) -> Convert:
    """Make the conversion that gives this value, whatever the key's own."""
    return lambda _: value


def _when_on(value: object) -> Convert:
    return ByWords({"true": value}, "leave")


def _when_given(value: object) -> Convert:
    return lambda given: LEAVE if given is None else value


def _when_non_empty(value: object) -> Convert:
    return lambda given: value if given else LEAVE


WITH_ARGUMENT: Mapping[str, Callable[[object], Convert]] = {
    "given": _when_given,
    "non_empty": _when_non_empty,
    "on": _when_on,
}
"""``on:cpu`` states ``cpu`` when the switch is on, ``given:true`` states true when the key is not null."""


class ByWords:
    """The conversion that replaces words, in any case."""

    def __init__(self, words: Mapping[str, object], otherwise: str) -> None:
        """Make it.

        Args:
            words: lower-case word → value.
            otherwise: what another word is: ``leave`` (states nothing), ``open`` (nobody tells what), ``same`` (itself),
                ``lower`` (itself in lower case), ``error``, or a value; null states nothing with the middle three.
        """
        self.words = words
        self.otherwise = otherwise

    def __call__(self, value: Any) -> Any:  # noqa: ANN401 (configuration)
        """Convert a value of a file."""
        word = "null" if value is None else str(value).lower()
        if word in self.words:
            return self.words[word]
        if self.otherwise == "error":
            msg = f"known: {', '.join(known for known, found in self.words.items() if found not in (LEAVE, OPEN))}"
            raise ValueError(msg)
        if self.otherwise == "open":
            return opens(value)
        if self.otherwise in {"same", "lower"}:
            return stated(value if self.otherwise == "same" else word)
        return LEAVE if self.otherwise == "leave" else read_atom(self.otherwise)


def invert(convert: Convert | None, value: object) -> Iterator[object]:
    """Yield what a file can say so that a conversion gives this value; nothing where anything said would."""
    if isinstance(convert, ByWords):
        if convert.otherwise in {"same", "lower"} and isinstance(value, str) and _converts(convert, value, value):
            yield value  # the program's word is ours; null may be its default
        yield from (read_atom(word) for word, found in convert.words.items() if _is(found, value))
    elif convert is None:
        yield value
    for given in (value, not value) if isinstance(value, bool) else (value,):
        if convert is not None and _converts(convert, given, value) and not _converts(convert, "\0", value):
            yield given


def _converts(convert: Convert, given: object, value: object) -> bool:
    try:
        return _is(convert(given), value)
    except (ValueError, TypeError, AttributeError, LookupError):
        return False


def contradicts(convert: Convert, given: object, value: object) -> bool:
    """Tell whether what a file says surely means another value than this one."""
    try:
        found = convert(given)
    except (ValueError, TypeError, AttributeError, LookupError):
        return False
    return found is not LEAVE and found is not OPEN and not _is(found, value)


def _is(found: object, value: object) -> bool:
    return found == value and isinstance(found, bool) is isinstance(value, bool)


def read_atom(word: str) -> object:
    """Read a value of a key file: ``null``, ``true``, ``false``, ``leave``, ``open``, a whole number, or the word itself."""
    return _ATOMS[word] if word in _ATOMS else int(word) if word.isdigit() else word


_ATOMS: Mapping[str, object] = {"null": None, "true": True, "false": False, "leave": LEAVE, "open": OPEN}
