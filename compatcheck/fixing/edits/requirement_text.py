"""Where a requirement stands in the text of a file: the stretch that holds its versions."""

from __future__ import annotations

import re
from bisect import bisect_right
from functools import lru_cache
from typing import TYPE_CHECKING

from compatcheck.core.fix import TextEdit
from compatcheck.core.markers import canonical_name
from compatcheck.core.named_tuple import NamedTuple
from compatcheck.core.pattern import lazy_compile
from compatcheck.core.versions import InvalidSpecifierError, compile_specifier

if TYPE_CHECKING:
    from collections.abc import Iterator

    from compatcheck.core.requirement import Requirement

_VERSION = r"[\w.*+!-]+"
_CLAUSES = rf"(?:~=|===?|!=|<=|>=|<|>)\s*{_VERSION}(?:\s*,\s*(?:~=|===?|!=|<=|>=|<|>)\s*{_VERSION})*"
_AFTER_NAME = lazy_compile(rf"(?P<extras>[ \t]*\[[^\]\n]*\])?(?P<gap>[ \t]*)(?P<open>\(?)(?P<spec>{_CLAUSES})?")
_CONDA = lazy_compile(rf"(?P<gap>[ \t]*)(?P<sign>==?)(?P<version>{_VERSION})(?P<build>=[\w.*]+)?(?=\s|['\"#]|$)")
_POETRY = lazy_compile(r"""\s*=\s*(?:\{[^}\n]*?\bversion\s*=\s*)?(["'])(?P<spec>[^"'\n]*)\1""")


class RequirementStatement(NamedTuple):
    """One requirement as a file writes it, at its place."""

    name: str
    path: str
    line: int
    start: int
    """First character of the versions; equal to ``end`` where none are written."""
    end: int
    specifier: str
    """As PEP 440."""
    form: str = "pep508"
    """``pep508``, ``conda`` (``name=1.2``) or ``poetry`` (``^1.2``)."""
    hashed: bool = False
    """Whether hashes stand behind it, which only the program that made the file can renew."""

    @property
    def place(self) -> str:
        """Return where it is, as ``path:line``."""
        return f"{self.path}:{self.line}"

    def edit(self, specifier: str, text: str) -> TextEdit:
        """Return the change of the text that requires other versions."""
        written = text[self.start : self.end]
        if self.form == "poetry":
            return TextEdit(self.path, self.start, self.end, _poetry(written, specifier))
        if self.form == "conda":
            return TextEdit(
                self.path,
                self.start,
                self.end,
                written[: len(written) - len(written.lstrip("="))] + specifier.lstrip("="),
            )
        return TextEdit(self.path, self.start, self.end, _spaced(written, specifier))


def _spaced(written: str, specifier: str) -> str:
    """Write clauses with the blanks the file has, in its order."""
    first = re.match(r"(?:~=|===?|!=|<=|>=|<|>)(\s*)", written)
    between = re.search(r"(\s*,\s*)", written)
    blank = first.group(1) if first else ""
    clauses = specifier.split(",")
    order = {sign: place for place, sign in enumerate(re.findall(r"~=|===?|!=|<=|>=|<|>", written))}
    clauses.sort(key=lambda clause: order.get(_sign(clause), len(order)))
    spaced = [_sign(clause) + blank + clause[len(_sign(clause)) :] for clause in clauses]
    return (between.group(1) if between else ",").join(spaced)


def _sign(clause: str) -> str:
    match = re.match(r"~=|===?|!=|<=|>=|<|>", clause)
    return match.group(0) if match else ""


def _poetry(written: str, specifier: str) -> str:
    """Keep ``^`` and ``~`` and a bare version; any other constraint is written as PEP 440."""
    lowest = re.search(r"(?:>=|==)\s*([^\s,]+)", specifier)
    if lowest is None:
        return specifier
    match = re.fullmatch(r"\s*([\^~])\s*v?[\d.]+\s*", written)
    if match:
        return match.group(1) + lowest.group(1)
    if re.fullmatch(r"\s*v?[\d.]+\s*", written):
        return lowest.group(1)
    return specifier


def find_statement(text: str, requirement: Requirement) -> RequirementStatement | None:
    """Find the versions of a requirement in the text of its file.

    Args:
        text: of the file, as `compatcheck.fixing.edits.text.read_exact` gives it.
        requirement: with its line; one that is continued with a backslash is searched to its end.

    Returns:
        None where it cannot be found, or stands for a URL or path.
    """
    return next(find_statements(text, requirement), None)


def find_statements(text: str, requirement: Requirement) -> Iterator[RequirementStatement]:
    """Find every place on its line where a requirement stands: one command of a Dockerfile may have it twice."""
    source = requirement.source
    if source.line is None or requirement.details.get("direct_url"):
        return
    start, end = _stretch(text, source.line)
    name = r"[-_.]+".join(map(re.escape, canonical_name(requirement.name).split("-")))
    for match in re.finditer(rf"(?<![\w.-]){name}(?![\w-]|\.\w)", text[start:end], re.IGNORECASE):
        found = _read(text, start + match.end(), end, requirement)
        if found is not None:
            hashed = "--hash" in text[start:end]
            line = bisect_right(_line_starts(text), start + match.start())
            yield found._replace(line=line, hashed=hashed)


@lru_cache(maxsize=4)
def _line_starts(text: str) -> tuple[int, ...]:
    """Return where every line of a text begins; of a file, each of its requirements asks for it."""
    return (0, *(match.end() for match in re.finditer("\n", text)))


def _stretch(text: str, line: int) -> tuple[int, int]:
    """Return where a line that may be continued begins and ends."""
    starts = _line_starts(text)
    if line > len(starts):
        return len(text), len(text)
    end = start = starts[line - 1]
    while True:
        stop = text.find("\n", end)
        if stop < 0:
            return start, len(text)
        if not text[end:stop].rstrip("\r").endswith("\\"):
            return start, stop
        end = stop + 1


def _read(text: str, at: int, end: int, requirement: Requirement) -> RequirementStatement | None:
    place = (requirement.name, requirement.source.path, requirement.source.line or 1)
    key = requirement.source.key or ""
    if key.startswith("tool.poetry"):
        poetry = _POETRY.match(text, at if text[at : at + 1] not in {'"', "'"} else at + 1, end)
        if poetry:
            return RequirementStatement(*place, *poetry.span("spec"), requirement.specifier, "poetry")
    match = _AFTER_NAME.match(text, at, end)
    if match is None:
        return None
    if match["spec"] is not None:
        if _same(match["spec"], requirement.specifier):
            return RequirementStatement(*place, *match.span("spec"), requirement.specifier)
        return None
    conda = _CONDA.match(text, at, end)
    if conda:
        return RequirementStatement(
            *place,
            conda.start("sign"),
            conda.end("build") if conda["build"] else conda.end("version"),
            f"=={conda['version']}",
            "conda",
        )
    after = text[match.end() : match.end() + 1]
    if requirement.specifier or after in {"@", "=", "(", "/"}:
        return None
    spot = match.end("extras") if match["extras"] else at
    return RequirementStatement(*place, spot, spot, "")


def _same(written: str, specifier: str) -> bool:
    try:
        return sorted(compile_specifier(written)[0]) == sorted(compile_specifier(specifier)[0])
    except InvalidSpecifierError:
        return False
