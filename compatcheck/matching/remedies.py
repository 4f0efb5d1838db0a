"""Remedies as a person can paste them: the nearest good release, the setting, the variable."""

from __future__ import annotations

from functools import reduce
from operator import or_

from compatcheck.core.builds import label_beside, with_label, write_install
from compatcheck.core.report import FindingRemedy
from compatcheck.core.versions import compile_specifier, contains
from compatcheck.resolution.binaries import with_same_build
from compatcheck.resolution.imported import FRAMEWORK
from compatcheck.resolution.scope import COMPONENT_FACTS, STATED, FactScope
from compatcheck.rules.expression import Unknown, evaluate, ranges
from compatcheck.rules.programs import ANY, find_program, lineage

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from typing import Any

    from compatcheck.core.document import Document
    from compatcheck.core.versions import Bounds
    from compatcheck.rules.database import CompiledRule, Texts
    from compatcheck.rules.expression import Code
    from compatcheck.rules.program import Program
    from compatcheck.rules.release_bits import ReleaseBits


def write_remedies(
    rule: CompiledRule, texts: Texts, scope: FactScope, documents: Sequence[Document] = (), role: str = "train"
) -> tuple[FindingRemedy, ...]:
    """Write a rule's remedies for this environment and these files; one that `write_remedy` has no words for is left out."""
    written = (write_remedy(rule, remedy, scope, documents=documents, role=role) for remedy in texts.remedies)
    return tuple(one for one in written if one is not None)


def write_remedy(
    rule: CompiledRule,
    remedy: Mapping[str, Any],
    scope: FactScope,
    releases: Mapping[str, str] | None = None,
    *,
    documents: Sequence[Document] = (),
    role: str = "train",
) -> FindingRemedy | None:
    """Write one remedy.

    Args:
        rule: whose it is.
        remedy: as the rule file states it.
        scope: facts and packages.
        releases: package → release to name; None for the nearest ones that the rule does not hold.
        documents: files and commands of the run, whose keys a setting is named by.
        role: the model it is about.

    Returns:
        None where its condition is false, it is in force already, it leads nowhere new or no key of the run states it.
    """
    target: Mapping[str, Any] = remedy["target"]
    condition = condition_of(remedy, scope)
    if not isinstance(condition, Unknown) and not condition:
        return None
    match remedy["verb"]:
        case "upgrade" | "downgrade" as verb:
            entry = _change_release(rule, verb, target, scope, releases or {})
        case "set":
            entry = _set(target, scope, documents, role)
        case "env":
            pairs = " ".join(f"{name}={value}" for name, value in target.items())
            entry = (f"set {pairs} in the environment", f"export {pairs}")
        case _:
            entry = (remedy["note"], None)
    if entry is None:
        return None
    text, command = entry
    note = None if remedy["verb"] == "note" else remedy["note"]
    if note is not None and isinstance(condition, Unknown):  # whoever leaves notes out must not lose the condition
        text, note = f"{text} ({note})", None
    return FindingRemedy(text, command, remedy["safety"], note)


_OF_ALLOCATOR = "allocator."
"""Facts that options of an environment variable state, and no key of a program."""


def condition_of(remedy: Mapping[str, Any], scope: FactScope) -> object:
    """Return what the condition of a remedy comes to here: a truth value, or Unknown."""
    return True if remedy["when"] is None else evaluate(remedy["when"], scope)


def _set(
    target: Mapping[str, Any], scope: FactScope, documents: Sequence[Document], role: str
) -> tuple[str, str | None] | None:
    words = [_spell(*fact, scope, documents, role) for fact in _open(target, scope)]
    return (f"set {', '.join(filter(None, words))}", None) if words and None not in words else None


def _open(target: Mapping[str, Any], scope: FactScope) -> Iterator[tuple[str, Any]]:
    """Yield what a remedy sets and what is not in force already."""
    return (
        (name, value) for name, value in target.items() if name not in scope.facts or scope.facts[name].value != value
    )


def _spell(name: str, value: object, scope: FactScope, documents: Sequence[Document], role: str) -> str | None:
    """Return the words by which a person states a fact in this run; None where its programs have none."""
    files = [document for document in documents if document.reader != "native"]
    if files:
        from compatcheck.resolution.spelling import find_spellings, is_own_code  # noqa: PLC0415 (only with configurations)

    spelled = next(find_spellings(files, name, value, role, scope), None) if files else None
    if spelled is not None:
        return f"{' to '.join(spelled.written)} ({name})"
    stated = scope.facts[name].sources if name in scope.facts else ()
    if name.startswith(_OF_ALLOCATOR) and stated and stated[0].key:
        return f"{name.removeprefix(_OF_ALLOCATOR)}:{value} in {stated[0].key} ({name})"
    if files and not is_own_code(files):
        return None
    key = key_of(name, scope)
    if key is not None and isinstance(value, str):
        return f"{name} to {value} (key {key})"  # the program may have a word of its own for the value
    if key is not None:
        return f"{key} to {_word(value)} ({name})"
    if "training.framework" not in scope.facts:
        return f"{name} to {_word(value)}"
    from compatcheck.rules.vocabulary import vocabulary  # noqa: PLC0415 (parsed only for these words)

    return f"{name} ({vocabulary()[name].meaning}) to {_word(value)}"


DESCRIBED = ("run.", "hardware.", "environment.")
"""Facts that say how things are: a file that states them describes the run, and another value would only describe it wrongly."""


def say_unspelled(rule: CompiledRule, scope: FactScope, documents: Sequence[Document], role: str) -> str | None:
    """Say that the run's program has no setting for what the remedies of a rule set; None where that is not what is missing."""
    framework = scope.facts.get(FRAMEWORK)
    settings = (one for one in scope.rules.texts(rule).remedies if one["verb"] == "set" and condition_of(one, scope))
    facts = (fact for one in settings for fact in _open(one["target"], scope) if not fact[0].startswith(DESCRIBED))
    missing = dict.fromkeys(
        f"{name} {_word(value)}" for name, value in facts if _spell(name, value, scope, documents, role) is None
    )
    if framework is None or not missing:
        return None
    return f"{find_program(str(framework.value)).label} has no known setting for {' or '.join(missing)}"


def key_of(name: str, scope: FactScope) -> str | None:
    """Return how the program of this run spells a fact; None when it has no key for it or that is not known."""
    framework = scope.facts.get("training.framework")
    line = () if framework is None else lineage(str(framework.value))
    readers = [program.name for program in line]
    if "training.zero_stage" in scope.facts and not (line and line[0].writes_deepspeed_file):
        readers.append("deepspeed")
    for reader in readers:
        rows = [row for row in scope.rules.section(f"defaults/{reader}") or () if row["fact"] == name]
        here = [row for row in rows if _verdicts(row, scope) <= {"yes"}]
        keys = _keys(here) or _keys(row for row in rows if "no" not in _verdicts(row, scope))
        if len(keys) > 1 and not _keys(here):
            return None  # releases that may be installed spell it differently
        own = not line or reader in {line[0].name, "deepspeed"}
        for key in keys:
            if own or _accepts(line[0], key):
                return key
        if any(_is_fixed(row) for row in here):
            return None
    return None


def _verdicts(row: Mapping[str, Any], scope: FactScope) -> set[str]:
    return {scope.in_range(package, bounds) for package, bounds in row["ranges"].items()}


def _keys(rows: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return the keys of these rows, each once, in their order."""
    return list(dict.fromkeys(row["key"] for row in rows if row["key"] is not None))


def _is_fixed(row: Mapping[str, Any]) -> bool:
    """Tell whether a default says what the program does by itself, whatever its files say."""
    return row["key"] is None and row["when"] is None and not row["present"]


def _accepts(program: Program, key: str) -> bool:
    """Tell whether a program takes a key of the program it is built on; some pass on only names of their own."""
    if not program.own_keys_only:
        return True
    from importlib import import_module  # noqa: PLC0415 (only for remedies of such a program)

    return key.partition(".")[0] in import_module(f"compatcheck.frameworks.{program.name}.configuration").NAMES


def _word(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) or value is None else str(value)


def _change_release(
    rule: CompiledRule, verb: str, target: Mapping[str, Any], scope: FactScope, releases: Mapping[str, str]
) -> tuple[str, str | None] | None:
    words, allowed, pins = [], [], {}
    torch = scope.package("torch")
    for name, specifier in target.items():
        package = scope.package(name)
        current = package.version if package is not None else None
        nearest = releases.get(name) or next(good_releases(rule, name, target, verb, scope), None)
        if nearest is None and (
            _leads_back(str(specifier), verb, current, scope.rules.known(name))
            or next(_free_releases(rule, name, target, verb, scope), None) is not None
        ):
            return None
        if nearest is None:
            words.append(f"{name} to {specifier}")
            allowed.append(f"'{name}{specifier}'")
        else:
            words.append(f"{name} to {nearest} (nearest good release)")
            label = label_beside(name, current, None if torch is None else torch.version)
            pins[name] = nearest if "+" in nearest else with_label(nearest, label)
    if any(name in COMPONENT_FACTS for name in target):
        return f"{verb} {' and '.join(words)}", None
    pins = {**releases, **pins}
    installers = {package.details.get("installer") for package in map(scope.package, target) if package is not None}
    tool = "uv pip install" if installers == {"uv"} else "pip install"
    return f"{verb} {' and '.join(words)}", write_install(pins, allowed, tool)


def _leads_back(specifier: str, verb: str, current: str | None, known: ReleaseBits) -> bool:
    """Tell whether the known releases that a remedy allows all lie on the other side of the installed one, or are it."""
    if current is None:
        return False
    try:
        allowed = compile_specifier(specifier)
    except ValueError:
        return False
    ahead, behind = (
        any(known.beyond(current, above=above, avoided=(), allowed=allowed))
        for above in (verb == "upgrade", verb != "upgrade")
    )
    return not ahead and (behind or contains(allowed, current) == "yes")


def good_releases(
    rule: CompiledRule, name: str, target: Mapping[str, Any], verb: str, scope: FactScope, *, sure: bool = True
) -> Iterator[str]:
    """List the releases that a rule does not hold and its remedy allows, from the nearest to the installed one on.

    A clause that asks for another release of a package that stays as it is holds none, nor does one that is false here.
    One that is decided by a default which comes with the release is open: it holds those of which this is to be ``sure``, and
    none where each is tried. Of a package that no clause gives a range, a condition tells what it holds: then the remedy alone
    says which are good. What a narrower remedy of the rule allows as well is that one's to name, with its own words.
    """
    known = scope.rules.known(name)
    held = reduce(or_, (known.split(bounds)[0] for bounds in _narrower(rule, name, target, verb, scope)), 0)
    return _free_releases(rule, name, target, verb, scope, sure=sure, left_out=held)


def _is_open(name: str, bounds: str | Bounds, scope: FactScope) -> bool:
    """Tell whether a package is required as a range of which a clause holds a part: its floor may rise."""
    package = scope.package(name)
    return package is not None and package.version is None and scope.in_range(name, bounds) not in {"yes", "no"}


def _free_releases(  # noqa: PLR0913 (what `good_releases` takes, and what it leaves out)
    rule: CompiledRule,
    name: str,
    target: Mapping[str, Any],
    verb: str,
    scope: FactScope,
    *,
    sure: bool = True,
    left_out: int = 0,
) -> Iterator[str]:
    package = scope.package(name)
    current = package.version if package is not None else None
    ranged = [
        (clause, bounds)
        for clause in rule.clauses
        for key, bounds in clause.packages.items()
        if key == name and not isinstance(bounds, str)
    ]
    bad = [
        bounds
        for clause, bounds in ranged
        if not any(scope.in_range(*other) == "no" for other in clause.packages.items() if other[0] not in target)
        and not any(_leaves(other, bounds, target, scope) for other, bounds in clause.packages.items() if other != name)
        and not _is_refuted(clause.when, target, scope, sure=sure)
        and (
            sure
            or not any(
                _is_open(other, bounds, scope) for other, bounds in clause.packages.items() if other not in target
            )
        )
    ]
    if current is None or (ranged and not bad):
        return
    try:
        allowed = compile_specifier(str(target[name]))
    except ValueError:
        return
    built = with_same_build(name, current, scope.rules.releases(name), scope.rules)
    found = scope.rules.known(name).beyond(
        current, above=verb == "upgrade", avoided=bad, allowed=allowed, left_out=left_out
    )
    yield from (release for release in found if release in built)


def _leaves(name: str, bounds: Bounds | str, target: Mapping[str, Any], scope: FactScope) -> bool:
    """Tell whether every known release that a remedy gives a package lies outside of what a clause asks for."""
    if name not in target or isinstance(bounds, str):
        return False
    try:
        given = _allowed(str(target[name]), name, scope)
    except ValueError:
        return False
    return bool(given) and not given & ~scope.rules.known(name).split(bounds)[1]


def _is_refuted(condition: Code | None, target: Mapping[str, Any], scope: FactScope, *, sure: bool) -> bool:
    """Tell whether the condition of a clause is false here, whichever release the target is changed to, or may then be."""
    if condition is None or any(package in target for package, _ in ranges(condition)):
        return False
    value = evaluate(condition, other := _OtherReleases(target, scope))
    if isinstance(value, Unknown):
        return not sure and not value.needs.isdisjoint(other.open)
    return not value


class _OtherReleases(FactScope):
    """A scope in which nobody knows a default that comes with the release of a package which is changed."""

    def __init__(self, target: Mapping[str, Any], scope: FactScope) -> None:
        super().__init__(scope.facts, scope.environment, scope.rules, scope.opened, scope.others)
        self._target = target
        self.open: set[str] = set()

    def value(self, name: str) -> object:
        """Take no default that another release of the changed packages may have otherwise for known."""
        fact = self.facts.get(name)
        if (fact is None or fact.origin not in STATED) and any(
            fact is None or row["expression"] is not None or row.get("follows") or row["value"] != fact.value
            for row in self._by_release(name)
        ):
            self.open.add(name)
            return Unknown(frozenset((name,)))
        return super().value(name)

    def _by_release(self, name: str) -> Iterator[Mapping[str, Any]]:
        """Yield the rows of this run's programs that state a fact by the release of a package that is changed."""
        named = (self.facts.get(one) for one in (FRAMEWORK, "rollout.engine"))
        readers = dict.fromkeys(one.name for fact in named if fact is not None for one in lineage(str(fact.value)))
        for reader in (*readers, ANY):
            for kind in ("defaults", "traits"):
                for row in self.rules.rows_about(f"{kind}/{reader}", name):
                    if not self._target.keys().isdisjoint(row["ranges"]):
                        yield row


def _narrower(rule: CompiledRule, name: str, target: Mapping[str, Any], verb: str, scope: FactScope) -> list[Bounds]:
    """Return what those remedies of the rule allow that change the same packages within a part of this one's releases."""
    others = [
        other
        for other in scope.rules.texts(rule).remedies
        if other["verb"] == verb and other["target"].keys() == target.keys() and other["target"] != target
    ]
    try:
        here = _allowed(str(target[name]), name, scope) if others else 0
        return [
            compile_specifier(str(other["target"][name]))
            for other in others
            if (theirs := _allowed(str(other["target"][name]), name, scope)) != here
            and not theirs & ~here
            and (isinstance(condition := condition_of(other, scope), Unknown) or condition)
        ]
    except ValueError:
        return []


def _allowed(specifier: str, name: str, scope: FactScope) -> int:
    """Return the known releases of a package that a specifier allows, as bits.

    Raises:
        ValueError: it is none.
    """
    return scope.rules.held(compile_specifier(specifier), name)
