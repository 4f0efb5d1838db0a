"""Rule files as their writers want them: well formed, and with examples and evidence that hold."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from compatcheck.core.errors import CompatcheckError, RuleError, UsageError
from compatcheck.core.named_tuple import NamedTuple
from compatcheck.core.progress import follow
from compatcheck.core.source import Source
from compatcheck.core.textfile import read_bytes
from compatcheck.matching.examples import check_rule
from compatcheck.rules.load import load_rule, rule_files
from compatcheck.rules.locate import CHECKOUT, is_checkout, open_rules
from compatcheck.rules.skeleton import find_placeholders

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from compatcheck.rules.database import RuleSet
    from compatcheck.rules.lint import CheckEvidence


class Linted(NamedTuple):
    """What is wrong with rule files."""

    files: int
    problems: tuple[str, ...]
    """Each with its place."""
    readable: bool = True
    """Whether the rules together could be read; else the one problem says why not, and no file was looked at."""
    proven: bool = True
    """Whether probes and evidence were looked at."""


def lint(
    paths: Sequence[str], directories: Sequence[str], find_evidence_check: Callable[[RuleSet], CheckEvidence | None]
) -> Linted:
    """Check rule files: shape, vocabulary, types, ranges, evidence, and that the examples hold and cover every boundary.

    Args:
        paths: rule files or directories of them; none are the rules of a checkout.
        directories: further directories of rules; they are checked with the built-in tables and defaults.
        find_evidence_check: returns what looks at probes and measurements, None where nothing can.

    Raises:
        UsageError: a path does not exist, or there are no rule files.
    """
    named = [Path(name) for name in directories]
    files: list[tuple[Path, Path]] = []
    for name in paths or ([CHECKOUT] if is_checkout() else []):
        path = Path(os.path.abspath(name))
        if path.is_dir():
            root = find_root(path)
            files += [(file, root) for file in rule_files(path)]
        elif path.exists():
            root = find_root(path.parent)
            files.append((path, root))
        else:
            raise UsageError(f"{name} does not exist")
        if root.resolve() != Path(CHECKOUT).resolve() and root not in named:
            named.append(root)
    if not files:
        raise UsageError("no rule files", hint="name files or directories of rules")
    try:
        rules = open_rules(tuple(str(path) for path in named), replacing=True)
    except RuleError as error:
        return Linted(len(files), (f"{error}" + (f" ({error.hint})" if error.hint else ""),), readable=False)
    check_evidence = find_evidence_check(rules)
    problems: list[str] = []
    for file, root in follow(files, "checking rules"):
        try:
            text = read_bytes(str(file)).decode("utf-8", "replace")
            problems += [
                f"{Source(str(file), key, line)}: the skeleton's placeholder stands here: {words or 'give your own'}"
                for line, key, words in find_placeholders(text)
            ]
            found = check_rule(load_rule(file, root), rules, root.parent, check_evidence)
        except CompatcheckError as error:
            problems.append(str(error))
        else:
            problems += [f"{problem.source}: {problem.message}" for problem in found]
    return Linted(len(files), tuple(problems), proven=check_evidence is not None)


def find_root(path: Path) -> Path:
    """Return the directory rule ids are relative to: the nearest ``rules`` at or above a directory, else itself."""
    return next((candidate for candidate in (path, *path.parents) if candidate.name == "rules"), path)
