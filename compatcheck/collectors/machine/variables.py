"""Environment variables that matter to memory: what the allocator's own asks for, and which driver an image needs.

Recorded are the variables of `NAMES` and those that start with one of `PREFIXES`; nothing else of an environment is
looked at or shown. Values that look like credentials are hidden.
"""

from collections.abc import Mapping

from compatcheck.core.data_file import read_words
from compatcheck.core.environment import Environment
from compatcheck.core.errors import InputError
from compatcheck.core.files import LOCAL, Files
from compatcheck.core.named_tuple import NamedTuple
from compatcheck.core.redaction import redact_variable
from compatcheck.core.source import Skipped, Source
from compatcheck.core.textfile import read_utf8
from compatcheck.core.units import parse_count

ALLOCATOR_VARIABLES = ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_HIP_ALLOC_CONF")
"""The allocator's variable under its names, the one with precedence first (c10/core/AllocatorConfig.h)."""

_WORDS = read_words(__file__, "variables")
NAMES = frozenset({*ALLOCATOR_VARIABLES, *(word for word in _WORDS if not word.endswith("*"))})
PREFIXES = tuple(word[:-1] for word in _WORDS if word.endswith("*"))

COMPAT_PACKAGE = "NV_CUDA_COMPAT_PACKAGE"
DRIVER_VARIABLES = ("NVIDIA_REQUIRE_", COMPAT_PACKAGE)
"""Beginnings of what NVIDIA's images set about the driver: what they start on, and the libraries for older ones they bring."""

_BOOLEANS = {"True": True, "False": False}
_OPTIONS = {
    "expandable_segments": "bool",
    "max_split_size_mb": "split",
    "garbage_collection_threshold": "fraction",
    "roundup_power2_divisions": "divisions",
    "max_non_split_rounding_mb": "split",
    "backend": "backend",
    "release_lock_on_cudamalloc": "bool",
    "release_lock_on_hipmalloc": "bool",
    "pinned_use_cuda_host_register": "bool",
    "pinned_use_hip_host_register": "bool",
    "pinned_num_register_threads": "power",
    "pinned_use_background_threads": "bool",
    "pinned_reserve_segment_size_mb": "size",
    "pinned_max_round_threshold_mb": "size",
    "pinned_max_cached_size_mb": "size",
    "graph_capture_record_stream_reuse": "bool",
    "per_process_memory_fraction": "portion",
    "throw_on_cudamalloc_oom": "bool",
}
"""Option of the allocator → shape of its value, as c10/core/AllocatorConfig.cpp and c10/cuda/CUDAAllocatorConfig.cpp
check it."""
_WANTED = {
    "bool": "True or False, in this spelling",
    "split": "a whole number of MiB, 20 or more",
    "fraction": "a number between 0 and 1",
    "portion": "a number above 0 and up to 1",
    "power": "a power of two",
    "size": "a whole number of MiB",
    "backend": "native or cudaMallocAsync",
    "divisions": "a power of two, or [256:1,512:2,1024:4,>:8]",
}
_MOST_REFUSED = 100
"""Options of one text that are said one by one; torch knows a dozen and stops at the first that it does not."""
_MIN_SPLIT_MB = 20
_FACTS = (
    "expandable_segments",
    "max_split_size_mb",
    "garbage_collection_threshold",
    "pinned_max_round_threshold_mb",
    "pinned_max_cached_size_mb",
)

Option = bool | int | float | str | tuple[tuple[str, int], ...]
"""Value of an allocator option; divisions are pairs of interval and number."""


class Variables(NamedTuple):
    """The variables that matter, and what they ask for."""

    values: Mapping[str, str]
    """By name, credentials hidden."""
    facts: Mapping[str, tuple[object, Source]]
    """``allocator.*``, and what an image says about the driver."""
    skipped: tuple[Skipped, ...]
    source: Source


def collect_variables(environ: Mapping[str, str], source: Source) -> Variables:
    """Pick the variables that matter and parse the allocator's.

    Args:
        environ: variables of this process, or declared ones.
        source: what they are variables of: ``environment of this process``, an ``--env-file``.
    """
    values = {}
    for name, value in environ.items():
        if name in NAMES or name.startswith(PREFIXES):
            values[name] = redact_variable(name, value)
    facts: dict[str, tuple[object, Source]] = {}
    skipped: list[Skipped] = []
    for name in ALLOCATOR_VARIABLES:
        if name not in environ:
            continue
        options, bad = parse_allocator(environ[name], Source(source.path, key=name))
        skipped += bad
        for option in _FACTS:
            if option in options:
                facts.setdefault(f"allocator.{option}", (options[option], Source(source.path, key=name)))
    asked = [Source(source.path, key=name) for name in ALLOCATOR_VARIABLES if name in environ]
    if (
        asked and not skipped
    ):  # what is left out is off, also where a program would turn it on if there were no variable
        facts.setdefault("allocator.expandable_segments", (False, asked[0]))
    facts.update(_read_driver_variables(environ, source.path))
    return Variables(values, facts, tuple(skipped), source)


def _read_driver_variables(environ: Mapping[str, str], path: str) -> dict[str, tuple[object, Source]]:
    """Read what NVIDIA's images say about the driver they need."""
    if not any(name.startswith(DRIVER_VARIABLES) for name in environ):
        return {}
    from compatcheck.collectors.machine.driver_requirement import (  # noqa: PLC0415 (only in images)
        read_compat_package,
        read_requirements,
    )

    found: dict[str, tuple[object, Source]] = {}
    required, compat = read_requirements(environ), read_compat_package(environ.get(COMPAT_PACKAGE, ""))
    if required is not None:
        found["runtime.driver_required"] = (required[0], Source(path, key=required[1][0]))
    if compat is not None:
        found["runtime.cuda_compat"] = (compat, Source(path, key=COMPAT_PACKAGE))
    return found


def attach(environment: Environment, variables: Variables, *, complete: bool) -> Environment:
    """Return the environment with its variables, all there are where they are ``complete``."""
    return environment._replace(
        variables=variables.values,
        variables_complete=complete,
        variables_source=variables.source,
        facts={**environment.facts, **variables.facts},
        skipped=(*environment.skipped, *variables.skipped),
    )


def parse_allocator(text: str, source: Source) -> tuple[dict[str, Option], list[Skipped]]:
    """Parse ``expandable_segments:True,max_split_size_mb:128,roundup_power2_divisions:[256:1,>:4]``.

    An option that torch would refuse is left out and reported; torch itself stops at the first one, when CUDA is
    initialised.

    Returns:
        The options that are well formed, and what is wrong with the others.
    """
    options: dict[str, Option] = {}
    skipped: list[Skipped] = []
    parts = _split_options("".join(text.split()))
    for at, part in enumerate(parts):
        if len(skipped) >= _MOST_REFUSED:
            rest = f"torch refuses {_MOST_REFUSED} options of it; the {len(parts) - at:,} behind them were not read"
            skipped.append(Skipped(source, rest, "options are " + ", ".join(sorted(_OPTIONS))))
            break
        name, colon, value = part.partition(":")
        shape = _OPTIONS.get(name)
        place = source._replace(key=f"{source.key}: {name}" if name else source.key)
        if shape is None:
            from compatcheck.rules.vocabulary import nearest  # noqa: PLC0415 (only on the way to a complaint)

            near = nearest(name, list(_OPTIONS))
            reason = f"torch has no allocator option {name!r}" if name else f"empty option in {text!r}"
            hint = f"did you mean {near!r}?" if near else "options are " + ", ".join(sorted(_OPTIONS))
            skipped.append(Skipped(place, reason, hint))
            continue
        parsed = _parse_option(shape, value) if colon else None
        if parsed is None:
            skipped.append(Skipped(place, f"{name} cannot be {value!r}", f"expected {_WANTED[shape]}"))
            continue
        options[name] = parsed
    return options, skipped


def _split_options(text: str) -> list[str]:
    """Split at the commas outside of brackets; a comma at the end is allowed, as in torch."""
    parts: list[str] = []
    depth = begin = 0
    for at, character in enumerate(text):
        depth += (character == "[") - (character == "]")
        if character == "," and depth == 0:
            parts.append(text[begin:at])
            begin = at + 1
    parts.append(text[begin:])
    return parts[:-1] if not parts[-1] else parts


def _parse_option(shape: str, text: str) -> Option | None:
    if shape == "bool":
        return _BOOLEANS.get(text)
    if shape == "backend":
        return text if text in {"native", "cudaMallocAsync", "hipMallocAsync"} else None
    if shape == "divisions":
        return _parse_divisions(text)
    if shape in {"fraction", "portion"}:
        number = _parse_float(text)
        return None if number is None or not (0 < number < 1 or (shape == "portion" and number == 1)) else number
    size = parse_count(text)
    if size is None:
        return None
    if shape == "split":
        return size if size >= _MIN_SPLIT_MB else None
    return size if size > 0 and (shape == "size" or _is_power(size)) else None


def _parse_divisions(text: str) -> Option | None:
    if (number := parse_count(text)) is not None:
        return number if _is_power(number) else None
    if not (text.startswith("[") and text.endswith("]")):
        return None
    pairs = []
    for part in text[1:-1].split(","):
        interval, _, divisions = part.partition(":")
        sound = interval == ">" or _is_power(parse_count(interval) or 0)
        parts = parse_count(divisions)
        if not sound or parts is None or not (parts == 0 or _is_power(parts)):
            return None
        pairs.append((interval, parts))
    return tuple(pairs)


def _parse_float(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _is_power(number: int) -> bool:
    return number > 0 and number & (number - 1) == 0


def read_env_file(path: str, files: Files = LOCAL) -> dict[str, str]:
    """Read ``NAME=VALUE`` lines, as ``docker --env-file``, dotenv and ``export`` statements write them.

    Comments, blank lines, ``export`` and one pair of quotes are understood; nothing is expanded.

    Raises:
        InputError: the file cannot be read, or a line has another form.
    """
    text = read_utf8(path, files)
    variables = {}
    for number, line in enumerate(text.removeprefix("\ufeff").splitlines(), start=1):
        content = line.strip()
        if not content or content.startswith("#"):
            continue
        if content.startswith(("export ", "export\t")):
            content = content[6:].lstrip()
        name, equals, value = content.partition("=")
        name = name.rstrip()
        if not equals or not name.replace(".", "_").isidentifier() or not name.isascii():
            hint = "write NAME=VALUE, or # in front of a comment"
            raise InputError("not an assignment", source=Source(path, line=number), hint=hint)
        variables[name] = _unquote(value.strip(), Source(path, key=name, line=number))
    return variables


def _unquote(value: str, source: Source) -> str:
    """Remove one pair of quotes, or the comment behind a value without quotes."""
    if value[:1] in {"'", '"'}:
        quote = value[0]
        end = value.find(quote, 1)
        rest = value[end + 1 :].strip()
        if end < 0:
            raise InputError("the quotation mark is not closed", source=source, hint=f"end the value with {quote}")
        if rest and not rest.startswith("#"):
            raise InputError("text behind the closing quotation mark", source=source, hint="quote the whole value")
        return value[1:end]
    for mark in (" #", "\t#"):
        value = value.partition(mark)[0]
    return value.rstrip()
