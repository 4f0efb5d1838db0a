"""Which files of a directory can be checked: by name, and by a look at the first bytes where the name is not enough."""

from __future__ import annotations

import os
import re

from compatcheck.collectors import signatures as sniffs
from compatcheck.core.data_file import read_words
from compatcheck.core.files import LOCAL, MOST_LEVELS, Files
from compatcheck.core.named_tuple import NamedTuple
from compatcheck.core.pattern import lazy_compile
from compatcheck.core.textfile import MAX_BYTES, POLICY_FILE, SCRIPTS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

SNIFFED_BYTES = 64 * 1024
"""Most bytes read of a file to recognise it."""

SKIPPED_DIRECTORIES = frozenset(read_words(__file__, "skipped_directories"))
"""Directories that are never entered: version control, caches, and packages someone else wrote."""

_REQUIREMENT = lazy_compile(
    rb"\s*(?:[A-Za-z0-9][\w.-]*\s*(?:\[[^\]]*\]\s*)?(?:$|[<>=!~;@(#]|--)|-[rceif]\s*\S|--[a-z]|[a-z+]+://|\.{0,2}/)"
)


_FROM = lazy_compile(rb"^[ \t]*FROM[ \t]+\S", re.MULTILINE | re.IGNORECASE)


def starts_from_an_image(head: bytes) -> bool:
    """Tell whether a file by the name of a Dockerfile is one."""
    return _FROM.search(head) is not None


class Recogniser(NamedTuple):
    """How one kind of file is recognised."""

    kind: str
    pattern: re.Pattern[str]
    """Matched against the last three parts of the path, lower case: ``requirements/gpu/base.txt``."""
    sniff: Callable[[bytes], bool] | None = None
    """Looks at the first bytes when the name alone does not decide."""


def looks_like_requirements(head: bytes) -> bool:
    """Tell whether most lines are requirements or options of pip."""
    if b"\0" in head and not head.startswith((b"\xff\xfe", b"\xfe\xff")):
        return False
    head = sniffs.plain_head(head)
    lines = [line for line in head.splitlines() if line.strip() and not line.lstrip().startswith(b"#")]
    fitting = sum(_REQUIREMENT.match(line) is not None for line in lines)
    return not lines or 2 * fitting > len(lines)


_STATES_RANGE = lazy_compile(rb"[=<>~!]=|[<>]\s*\d|^[ \t]*-[rce]\s", re.MULTILINE)
"""What one line at least says in requirements whose file name says nothing; a single word is anything."""


def states_releases(head: bytes) -> bool:
    """Tell whether most lines are requirements, and one at least is nothing else."""
    return looks_like_requirements(head) and _STATES_RANGE.search(head) is not None


_PIP_LIST = lazy_compile(
    rb"^[ \t]*Package[ \t]+Version\b[^\n]*\n[ \t]*-{2,}[ \t]+-{2,}", re.MULTILINE, needs=(b"Package",)
)
_LEGACY_LIST = lazy_compile(rb"[A-Za-z0-9][\w.-]* \(\d[^\s()]*(?:, [^()]+)?\)", needs=(b" (",))
_JSON_LIST = lazy_compile(
    rb"\s*\[\s*\{\s*\"(?:name|version)\"\s*:\s*\"[^\"]*\"\s*,\s*\"(?:name|version)\"\s*:",
    needs=(b'"name"', b'"version"'),
)
_SCRIPT_BLOCK = lazy_compile(rb"^# /// script\r?$", re.MULTILINE, needs=(b"# /// script",))
_PIPFILE_META = lazy_compile(rb'\s*\{\s*"_meta"\s*:', needs=(b'"_meta"',))


def looks_like_pip_list(head: bytes) -> bool:
    """Tell whether this is what ``pip list`` or ``uv pip list`` prints: columns, ``name (version)``, or JSON."""
    head = sniffs.plain_head(head)
    if _PIP_LIST.search(head) or _JSON_LIST.match(head):
        return True
    lines = [line.strip() for line in head.splitlines() if line.strip()]
    return bool(lines) and 2 * sum(_LEGACY_LIST.fullmatch(line) is not None for line in lines) > len(lines)


def looks_like_pip_inspect(head: bytes) -> bool:
    """Tell whether this is the report of ``pip inspect``; pip writes its own version before the packages."""
    head = sniffs.plain_head(head)
    return head.lstrip()[:1] == b"{" and b'"pip_version"' in head and b'"installed"' in head


def looks_like_pipfile_lock(head: bytes) -> bool:
    """Tell whether this is a ``Pipfile.lock``, which begins with its ``_meta``."""
    head = sniffs.plain_head(head)
    return _PIPFILE_META.match(head) is not None and b'"pipfile-spec"' in head


def has_script_block(head: bytes) -> bool:
    """Tell whether a Python file states its requirements itself (PEP 723)."""
    return _SCRIPT_BLOCK.search(head) is not None


def states_requirements(head: bytes) -> bool:
    """Tell whether a ``setup.py`` says itself what it requires; many only start the build; a broken one may have said it."""
    stated = _may_say_more(head) or b"install_requires" in head or b"extras_require" in head
    return stated or (b"setup(" in head and _is_broken(head))


def states_options(head: bytes) -> bool:
    """Tell whether a ``setup.cfg`` says what is required: most only configure tools."""
    stated = re.search(rb"install[-_]requires", head) is not None or b"[options.extras_require]" in head
    return stated or (bool(head) and _may_say_more(head))


def _may_say_more(head: bytes) -> bool:
    """Tell whether the beginning of a file leaves open what it says: nothing, no text, or not all of it."""
    return not head or b"\0" in head or len(head) >= SNIFFED_BYTES


def _is_broken(head: bytes) -> bool:
    """Tell whether a file that was read to its end is no Python; its reader says what is wrong."""
    if len(head) >= SNIFFED_BYTES:
        return False
    from compatcheck.core.python_code import parse_python  # noqa: PLC0415 (only for a setup.py without requirements)

    try:
        parse_python(head)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return True
    return False


_CONDA_TEXTS = r"(?:requirements?|conda|spec[-_]|explicit|environment|env|packages?)[^/]*\.(?:txt|lock|lst|list)"
_LISTS = "pip|packages|freeze|requirement|environment|installed"
"""What a file that holds a list of packages is called."""

_DOCKERFILE = (
    r"(?:docker|container)file(?:[._-](?!dockerignore$)[^/]+|\d[^/~]*|(?!s(?![a-z]))[a-z][^/.~]*)?"
    r"|[^/]+\.(?:docker|container)file"
)
_CONSTRAINTS = (
    r"(?:(?![^/]*requirement)[^/]*constraints[^/]*|[^/]*[-_.]constraints|constraint(?:[-_.][^/]*)?|constraints?/[^/]+)"
    r"\.(?:txt|in|lock|pip)"
)
_REQUIREMENTS = (
    r"(?:[^/]*requirements?[^/]*|requirements?/(?:[^/]+/)?[^/]+|(?:[^/]+[-_.])?reqs?(?:[-_.][^/]+)?)\.(?:txt|in|lock|pip)"
    r"|[^/.]*requirements(?:[-_][^/.]+)?|(?:[^/]+\.)?reqs|[^/]*freeze[^/]*\.txt"
)
_DEPENDENCIES = r"(?:[^/]+[-_.])?(?:dep(?:endencie)?s|pip|install[-_]requires?)(?:[-_.][^/]+)?\.(?:txt|in|pip)"
"""Names that lists of other things have, too."""
_JSON, _TOML, _YAML, _LOCK = (".json",), (".toml",), (".yaml", ".yml"), (".lock",)
_OF_CONDA = ("requirement", "conda", "spec", "explicit", "env", "package")
_OF_CONSTRAINTS, _OF_REQUIREMENTS = ("constraint",), ("req", "freeze")
_OF_DOCKERFILES, _OF_LOCKS = ("dockerfile", "containerfile"), ("conda-lock", "condalock")
_NAMES: tuple[tuple[str, str, tuple[str, ...], Callable[[bytes], bool] | None], ...] = (
    ("pixi_lock", r"pixi\.lock", _LOCK, None),
    ("pixi", r"pixi\.toml", _TOML, None),
    ("pixi", r"pyproject\.toml", _TOML, sniffs.has_pixi_table),
    ("conda_lock", r"[^/]*conda-?lock[^/]*\.ya?ml", _OF_LOCKS, sniffs.is_conda_lock),
    ("conda_environment", r"[^/]*(?:env|conda)[^/]*\.ya?ml", _YAML, sniffs.is_conda_environment),
    ("conda_list", rf"[^/]*{_CONDA_TEXTS}|[^/]*conda[^/]*\.json", _OF_CONDA, sniffs.is_conda_list),
    ("cyclonedx_json", r"[^/]*(?:bom|cdx|cyclone|syft|trivy)[^/]*\.json", _JSON, sniffs.is_cyclonedx_json),
    ("cyclonedx_xml", r"[^/]*(?:bom|cdx|cyclone)[^/]*\.xml", (".xml",), sniffs.is_cyclonedx_xml),
    (
        "spdx",
        r"[^/]*\.spdx|[^/]*(?:spdx|bom|syft|trivy)[^/]*\.(?:json|ya?ml|tag)",
        ("spdx", "bom", "syft", "trivy"),
        sniffs.is_spdx,
    ),
    ("syft_json", r"[^/]*(?:syft|bom)[^/]*\.json", _JSON, sniffs.is_syft_json),
    ("pylock", r"pylock(?:\.[^./]+)?\.toml", _TOML, None),
    ("uv_lock", r"uv\.lock|[^/]+\.py\.lock", _LOCK, None),
    ("poetry_lock", r"poetry\.lock", _LOCK, None),
    ("pdm_lock", r"pdm(?:\.[^/]+)?\.lock", _LOCK, None),
    ("pipfile_lock", r"pipfile\.lock", _LOCK, None),
    ("pipfile", r"pipfile", ("pipfile",), None),
    ("pyproject", r"pyproject\.toml", _TOML, None),
    ("dockerfile", _DOCKERFILE, _OF_DOCKERFILES, starts_from_an_image),
    ("setup_py", r"setup\.py", (".py",), states_requirements),
    ("setup_cfg", r"setup\.cfg", (".cfg",), states_options),
    ("script", r"[^/]+\.py", (".py",), has_script_block),
    ("pip_inspect", r"[^/]+\.json", _JSON, looks_like_pip_inspect),
    (
        "pip_list",
        rf"[^/]+\.json|[^/]*(?:{_LISTS})[^/]*\.(?:txt|log|out)",
        (*_JSON, *_LISTS.split("|")),
        looks_like_pip_list,
    ),
    ("constraints", _CONSTRAINTS, _OF_CONSTRAINTS, looks_like_requirements),
    ("requirements", _REQUIREMENTS, _OF_REQUIREMENTS, looks_like_requirements),
    ("requirements", _DEPENDENCIES, ("dep", "pip", "install"), states_releases),
)


def _name_pattern(names: str, needs: tuple[str, ...]) -> re.Pattern[str]:
    return lazy_compile(rf"(?s:.*/)?(?:{names})", needs=needs)


RECOGNISERS = tuple(Recogniser(kind, _name_pattern(names, needs), sniff) for kind, names, needs, sniff in _NAMES)
"""In order of precedence; a later kind of file is one more row: what it needs is in each of its names."""

_TELLING = tuple(
    (kind, _name_pattern(names, needs))
    for kind, names, needs in (
        ("dockerfile", _DOCKERFILE, _OF_DOCKERFILES),
        ("constraints", _CONSTRAINTS, _OF_CONSTRAINTS),
        ("requirements", _REQUIREMENTS, _OF_REQUIREMENTS),
        (
            "conda_environment",
            r"(?:(?:conda[-_.]?)?environment(?:[-_.][^/]*)?|conda(?:[-_.]?env(?:[-_.][^/]*)?)?)\.ya?ml",
            ("environment", "conda"),
        ),
        ("conda_lock", r"[^/]*conda-?lock[^/]*\.ya?ml", _OF_LOCKS),
        ("conda_list", r"conda-[^/]+\.lock", _LOCK),
        ("pip_list", r"pip[-_.]?list(?:[-_.][^/]*)?\.(?:txt|log|out)", ("pip",)),
        ("cyclonedx_json", r"(?:[^/]*[-_.])?(?:s?bom|cdx)\.json", _JSON),
        ("cyclonedx_xml", r"(?:[^/]*[-_.])?(?:s?bom|cdx)\.xml", (".xml",)),
        ("spdx", r"(?:[^/]*\.)?spdx(?:\.(?:json|ya?ml|rdf|xml|tag))?", ("spdx",)),
    )
)
"""Names that say alone what a file is: where its content does not look like it, it is a broken one and not another thing."""

ONLY_NAMED = frozenset({"script"})
"""Kinds that count where a person names the file: a repository of examples has many scripts, each with ranges of its own."""


def recognise(path: str, files: Files = LOCAL, *, named: bool = True) -> str | None:
    """Tell what kind of file this is, or None when it is none that is known.

    Args:
        path: the file.
        files: the tree it lies in.
        named: whether a person named it, so that the kinds of `ONLY_NAMED` count.
    """
    name = _last_parts(path)
    head: bytes | None = None
    unreadable = None  # what a file may be of which nobody can tell what it holds: its reader says why
    for recogniser in RECOGNISERS:
        if recogniser.pattern.fullmatch(name) is None or (recogniser.kind in ONLY_NAMED and not named):
            continue
        if recogniser.sniff is None:
            return recogniser.kind
        if head is None:
            head = _read_head(path, files)
            unreadable = recogniser.kind if head is None else None
            head = head or b""
        if recogniser.sniff(head):
            return recogniser.kind
    return unreadable


def tell_by_name(path: str) -> str | None:
    """Tell what a file must be that nothing could be made of, or None where its name is one that other files have, too."""
    name = _last_parts(path)
    return next((kind for kind, pattern in _TELLING if pattern.fullmatch(name) is not None), None)


def _last_parts(path: str) -> str:
    return "/".join(os.path.abspath(path).replace(os.sep, "/").rsplit("/", 3)[-3:]).lower()


CONFIGURATION_SUFFIXES = (".json", ".yaml", ".yml", ".hjson", ".jsonc", *SCRIPTS, ".py")
"""Names of files that are configurations, launch or training scripts unless they say themselves that they are something else."""

REPORT_SUFFIXES = (".txt", ".log", ".md", ".out", ".err")
"""Names of files that may hold a report of an environment; only one that a person named is looked into."""


def recognise_named(path: str, files: Files = LOCAL) -> str | None:
    """Tell what kind of file a person named, as `recognise`; a text of any name is told by its content.

    A log or a copied issue that holds nothing else may hold a report of an environment.
    """
    kind = recognise(path, files)
    if kind is not None:
        return kind
    if path.lower().endswith(CONFIGURATION_SUFFIXES):
        # Files of conda, SBOMs and pipenv's lock say themselves what they are.
        head = _read_head(path, files) or b""
        return sniffs.identify_content(head) or ("pipfile_lock" if looks_like_pipfile_lock(head) else None)
    if path.endswith(REPORT_SUFFIXES) and not path.endswith(".txt"):
        return "report"
    content = _read_head(path, files, MAX_BYTES) or b""
    kind = recognise_content(content) if content.strip() else None
    if kind == "report" and tell_by_name(path) in {"requirements", "constraints"}:
        return "requirements"  # of a report what is no line of a list is prose, and would be passed over without a word
    if path.endswith((".txt", ".in")):
        return kind or "requirements"
    return None if kind == "requirements" and _STATES_RANGE.search(content) is None else kind


_TABLES = (b"[[package]]",)
_LOCK_MARKS = (
    (
        "poetry_lock",
        lazy_compile(rb"\A# This file is (?:automatically )?@?generated by Poetry", needs=(b"generated by Poetry",)),
    ),
    (
        "poetry_lock",
        lazy_compile(rb"^\[\[package\]\]\r?\n(?:[\w-]+ = [^\n]*\n){2,4}optional = ", re.MULTILINE, needs=_TABLES),
    ),
    (
        "pdm_lock",
        lazy_compile(
            rb"\A# This file is @generated by PDM\b(?![^\0]{0,400}^lock-version)",
            re.MULTILINE,
            needs=(b"generated by PDM",),
        ),
    ),
    ("pdm_lock", lazy_compile(rb"^lock_version[ \t]*=", re.MULTILINE, needs=(b"lock_version",))),
    (
        "pdm_lock",
        lazy_compile(rb"^\[\[package\]\]\r?\n(?:[\w-]+ = [^\n]*\n){2,3}summary = ", re.MULTILINE, needs=_TABLES),
    ),
    ("pylock", lazy_compile(rb"^lock-version[ \t]*=", re.MULTILINE, needs=(b"lock-version",))),
    ("uv_lock", lazy_compile(rb"^\[\[package\]\]", re.MULTILINE, needs=_TABLES)),
    ("script", _SCRIPT_BLOCK),
    (
        "dockerfile",
        lazy_compile(
            rb"\A(?:[ \t]*(?:#.*|ARG[ \t].*)?\r?\n)*[ \t]*FROM[ \t]+[\w.${][^\s]*(?:[ \t]+[Aa][Ss][ \t]+\S+)?[ \t]*\r?$",
            re.MULTILINE,
            needs=(b"FROM",),
        ),
    ),
    (
        "pyproject",
        lazy_compile(rb"^\[(?:project|build-system|dependency-groups|tool\.[\w.-]+)\]", re.MULTILINE, needs=(b"[",)),
    ),
    ("pipfile", lazy_compile(rb"^\[(?:dev-)?packages\]", re.MULTILINE, needs=(b"packages]",))),
)
"""Lines that tell what a TOML file without a name is."""

_TABLE = lazy_compile(rb"^\[\[?[\w.\"'-]+\]?\][ \t]*(?:#[^\n]*)?\r?$", re.MULTILINE, needs=(b"[",))
"""A header of TOML: ``key = value`` lines below it look like requirements with one ``=``."""

_SNIFFS = (
    ("pipfile_lock", looks_like_pipfile_lock),
    ("pip_inspect", looks_like_pip_inspect),
    ("pip_list", looks_like_pip_list),
)


def recognise_content(content: bytes) -> str | None:
    """Tell what kind of file an input without a name is, or None when it is not one of packages."""
    head = sniffs.plain_head(content[:SNIFFED_BYTES])
    marked = sniffs.identify_content(head)
    if marked is not None:
        return marked
    for kind, mark in _LOCK_MARKS:
        if mark.search(head):
            return kind
    from compatcheck.core.pasted_text import looks_like_report  # noqa: PLC0415 (for what no lock file is)

    if looks_like_report(content):
        return "report"
    for kind, sniff in _SNIFFS:
        if sniff(head):
            return kind
    if looks_like_requirements(head) and _TABLE.search(head) is None:
        return "requirements"
    from compatcheck.collectors.reports.find import looks_like_list  # noqa: PLC0415 (20 ms; for what nothing else is)

    return "report" if looks_like_list(head) else None


def _read_head(path: str, files: Files, size: int = SNIFFED_BYTES) -> bytes | None:
    """Return how a file begins, or None where it is no regular file, or cannot be read."""
    try:
        head = files.read_bytes(path, size) if files.is_file(path) else None
    except (OSError, ValueError):
        return None
    return None if head is None else sniffs.plain_head(head)


def walk(
    path: str, passed_over: Callable[[str, str, str], None] | None = None, files: Files = LOCAL
) -> Iterator[tuple[str, str | None]]:
    """List the files under a directory with their kinds, sorted by path; a file lists itself.

    Links to directories are not followed, so that a loop of links cannot be entered and no checkout leads into the rest of the
    machine; virtual environments, caches and installed packages are left out. What is no regular file, and an empty directory
    by the name of a lock or list, as a mount makes it, is listed as well: its reader says that it cannot be read.

    Args:
        path: the directory.
        passed_over: takes a directory that was not entered, the reason and the remedy: one that cannot be listed, a link
            that leads out of what is walked.
        files: the tree in which their beginnings are looked at.
    """
    if not os.path.isdir(path):
        yield path, recognise(path, files)
        return
    root = os.path.join(os.path.realpath(path), "")
    pending = [path]
    while pending:
        directory = pending.pop()
        try:
            with os.scandir(directory) as scan:
                entries = sorted(scan, key=lambda entry: entry.name)
        except OSError as error:
            if passed_over is not None:
                passed_over(
                    directory, f"directory could not be listed: {error.strerror}", "run as a user who may read it"
                )
            continue
        names = {entry.name for entry in entries}
        deepest = directory.count(os.sep) - path.count(os.sep) >= MOST_LEVELS
        if directory != path and "pyvenv.cfg" in names and names & _OF_ENVIRONMENTS:
            continue
        below = []
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                if entry.name not in SKIPPED_DIRECTORIES and not entry.name.endswith((".egg-info", ".dist-info")):
                    if not deepest:
                        below.append(entry.path)
                    elif passed_over is not None:
                        passed_over(entry.path, f"lies below {MOST_LEVELS} directories, and is not entered", "name it")
                if _is_of_a_file(entry.path) and (deepest or not _holds_files(entry.path)):
                    yield entry.path, recognise(entry.path, files, named=False)
            elif entry.is_symlink() and os.path.isdir(entry.path):
                if _is_of_a_file(entry.path):
                    yield entry.path, recognise(entry.path, files, named=False)
                elif passed_over is not None and not os.path.join(os.path.realpath(entry.path), "").startswith(root):
                    passed_over(entry.path, "is a link to a directory elsewhere, and not followed", "name it, too")
            else:
                yield entry.path, recognise(entry.path, files, named=False)
        pending.extend(reversed(below))


_OF_ENVIRONMENTS = {"bin", "lib", "lib64", "Scripts", "Lib"}
"""What a virtual environment holds beside its ``pyvenv.cfg``, which alone would hide a directory."""
_FILE_ENDS = (".txt", ".in", ".lock", ".pip", ".toml", ".yml", ".yaml", ".json", ".xml", ".spdx", ".cfg", ".py", "file")
_OF_ANYTHING = frozenset({"script", "pip_inspect", "pip_list"})
"""Kinds whose names are those of other things, too: programs write directories that end with ``.json``."""


def _holds_files(directory: str) -> bool:
    try:
        return bool(os.listdir(directory))
    except OSError:
        return False


def _is_of_a_file(path: str) -> bool:
    """Tell whether a name is one of an input and of no directory."""
    name = path.lower()
    if name.endswith(SCRIPTS) or os.path.basename(name) == POLICY_FILE:
        return True
    parts = _last_parts(path)
    return name.endswith(_FILE_ENDS) and any(
        one.kind not in _OF_ANYTHING and one.pattern.fullmatch(parts) is not None for one in RECOGNISERS
    )
