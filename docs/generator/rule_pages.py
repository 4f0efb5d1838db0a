"""One page a rule, and the list of them by package."""

from __future__ import annotations

from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from compatcheck.core.catalogue import read_entries
from compatcheck.core.facts import TRAITS
from compatcheck.core.language import LANGUAGES
from compatcheck.core.summary import value_text
from compatcheck.core.units import format_bytes
from compatcheck.lab.boundaries import count_coverage
from compatcheck.matching.decision import size
from compatcheck.matching.examples import example_scope
from compatcheck.rules.expression import fact_names, write
from compatcheck.rules.load import load_rules
from compatcheck.rules.locate import CHECKOUT
from compatcheck.rules.named_rule import list_rules
from compatcheck.rules.syntax import functions
from compatcheck.rules.vocabulary import meaning_of
from compatcheck.rules.words import find_functions, list_conditions, list_exceptions, say
from docs.generator.page import escape_prose, fold, link, make_page, write_code, write_table
from docs.generator.steps import write_measured
from docs.generator.timelines import clause_text, list_ranges, write_releases

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from compatcheck.lab.boundaries import Coverage
    from compatcheck.rules.database import CompiledRule, RuleSet, Texts
    from compatcheck.rules.expression import Code
    from compatcheck.rules.rule import Rule
    from docs.generator.page import Page

INDEX = "rules/index.md"
FACTS = "reference/facts.md"
KNOWN = {
    "measured": "**Measured**: both sides were run here, and the measurements are in the repository.",
    "fixed-upstream": "**Fixed upstream**: the change that mends it says what was wrong.",
    "explained": "**Explained**: the cause was read in the code of the releases.",
    "reported": "**Reported**: people met it; the cause was not found in the code.",
}
FOLKLORE = "folklore"
ID = '<code class="id">{}</code>'
"""Id of a rule in the heading of its page, at its start: whoever searches for it finds the page before all that name it."""
STACK = "the stack as a whole"


class _Known(NamedTuple):
    """One rule, as compiled, in words and as its file has it."""

    rule: CompiledRule
    texts: Texts
    file: Rule


def rule_path(rule_id: str) -> str:
    """Return the page of a rule."""
    return f"rules/{rule_id.lstrip('_')}.md"


def package_of(rule_id: str) -> str:
    """Return the package whose folder a rule is in, in words."""
    folder = rule_id.partition("/")[0]
    return STACK if folder == "_stack" else folder


def make_rule_pages(rules: RuleSet) -> Iterator[Page]:
    """Make the page of each active rule, and their index."""
    files = {rule.id: rule for rule in load_rules(Path(CHECKOUT))}
    known = [_Known(rule, rules.texts(rule), files[rule.id]) for rule in list_rules(rules, (), inactive=False)]
    yield make_page(INDEX, _list_rules(known, count_coverage(files.values(), rules, Path(CHECKOUT).parent)))
    for one in known:
        yield make_page(rule_path(one.rule.id), _write_rule(one, rules))


def _list_rules(known: Sequence[_Known], coverage: Coverage) -> Iterator[str]:
    yield "# Rules"
    packages: dict[str, list[_Known]] = {}
    for one in known:
        packages.setdefault(package_of(one.rule.id), []).append(one)
    yield (
        f"{len(known)} rules about {len(packages) - 1} packages and {STACK}. Each is one file of `rules/`, whose"
        " examples are its tests; the search above finds them by name, symptom, setting or release. `compatcheck rules"
        " list` prints them, `compatcheck explain RULE .` says whether one is true of a project, and why."
    )
    yield (
        f"{coverage.regressions} are regressions of releases. {coverage.whole} of them were measured on both sides of each"
        f" release at which they begin or end, {coverage.part} of some of these; {coverage.gpu} others show on a GPU alone."
    )
    for package, members in packages.items():
        yield f"## {package}"
        head = ("problem", "releases", "kind", "known by")
        yield write_table(
            head, [(_cell(one), list_ranges(one.texts), one.rule.kind, one.rule.confidence) for one in members]
        )


def _cell(one: _Known) -> str:
    return link(escape_prose(one.rule.title), INDEX, rule_path(one.rule.id))


def _write_rule(one: _Known, rules: RuleSet) -> Iterator[str]:
    rule, texts = one.rule, one.texts
    page = rule_path(rule.id)
    prose = partial(_link_rules, page=page, rules=rules)
    yield f"# {ID.format(rule.id)} {escape_prose(rule.title)}"
    yield f"{link(package_of(rule.id), page, INDEX)} · {rule.kind} · {rule.confidence}"
    chinese = _chinese().get((rule.id, " ".join(rule.title.split())))
    if chinese is not None:  # a search in Chinese finds it, too
        yield f'<span lang="zh-CN">{escape_prose(chinese)}</span>'
    if rule.kind == FOLKLORE:
        told = [f"`{rule_id}`" for rule_id in rule.debunks]
        yield "**It is said, and it is not so.**" + (f" What is true: {prose(', '.join(told))}." if told else "")
    yield "## What happens"
    yield prose(texts.what)
    if texts.remedies:
        yield "## What to do"
        yield "\n".join(f"- {prose(line)}" for line in map(_remedy_text, texts.remedies))
    yield "## Releases affected"
    yield from write_releases(texts, rules)
    yield from _write_conditions(one, page)
    if rule.kind != FOLKLORE:
        yield "## What it costs"
        yield from _write_cost(one, rules, page)
    yield from write_measured(texts.measured, one.file.comparisons)
    yield "## Why"
    yield prose(texts.why)
    yield "## How it is known"
    yield from _write_proof(one, prose)


@cache
def _chinese() -> Mapping[tuple[str, str], str]:
    """Return the Chinese text of each text of a rule, by the rule and the text."""
    return {(one.context, one.message): one.translation for one in read_entries(LANGUAGES["zh"], "rules")}


@cache
def _ids(rules: RuleSet) -> Mapping[str, str]:
    return {f"`{rule.id}`": rule.id for rule in rules.all_rules() if rule.status == "active"}


def _link_rules(text: str, page: str, rules: RuleSet) -> str:
    written = escape_prose(text)
    for code, rule_id in _ids(rules).items():
        if code in written and rule_path(rule_id) != page:
            written = written.replace(code, link(code, page, rule_path(rule_id)))
    return written


def _write_conditions(one: _Known, page: str) -> Iterator[str]:
    rule, texts = one.rule, one.texts
    codes = [clause.when for clause in rule.clauses if clause.when is not None]
    if rule.when is None and not codes and rule.unless is None:
        return
    yield "## When"
    if codes:
        yield "\n".join(
            f"- for {clause_text(packages)}: {_and(code)}"
            for (packages, when), code in zip(texts.affected, [clause.when for clause in rule.clauses], strict=True)
            if when and code
        )
    if rule.when is not None:
        conditions = list_conditions(rule.when)
        yield "All of these hold:" if len(conditions) > 1 else "This holds:"
        yield "\n".join(f"- {text}" for text in conditions)
        codes.append(rule.when)
    if rule.unless is not None:
        yield "Not where"
        yield "\n".join(f"- {text}" for text in list_exceptions(rule.unless))
        codes.append(rule.unless)
    written = _fence(f"{'unless' if code is rule.unless else 'when'}: {write(code)}" for code in codes)
    yield fold("As the rule writes it, and what the names mean", written, _explain_names(codes, page))


def _fence(lines: Iterable[str]) -> str:
    """Write expressions, whose lines are long, as code that is folded."""
    return "\n".join(["```{ .python .formula }", *lines, "```"])


def _and(code: Code) -> str:
    return " and ".join(list_conditions(code))


def _explain_names(codes: Sequence[Code], page: str) -> str:
    names = sorted(set().union(*map(fact_names, codes)))
    return write_table(("name", "what it is"), [(_name_fact(name, page), _meaning(name)) for name in names])


def _name_fact(name: str, page: str) -> str:
    """Write the name of a fact with a link to its group on the page of facts."""
    return link(f"`{name}`", page, f"{FACTS}#{name.partition('.')[0]}")


def _meaning(name: str) -> str:
    told = escape_prose(meaning_of(name))
    return f"{told} (known from the program's code)" if name.startswith(TRAITS) else told


def _write_cost(one: _Known, rules: RuleSet, page: str) -> Iterator[str]:
    rule, expected = one.rule, rules.texts(one.rule).sizes.expected
    if rule.effect != "memory":
        yield f"It {_EFFECTS.get(rule.effect, rule.effect.replace('_', ' '))}" + (
            ", and takes memory as well." if expected is not None else "."
        )
    where = {"device": "of the device", "host": "of the host", "shm": "of `/dev/shm`"}[rule.memory]
    if expected is None:
        if rule.effect == "memory":
            yield f"Memory {where}, per {rule.scope}; no formula is known for how much."
        return
    yield f"Memory {where}, per {rule.scope}, in the phase *{rule.phase}*, in bytes:"
    yield _fence([write(expected)])
    worked = _work_out(one, rules)
    facts = worked[1] if worked else {}
    rows = [(_name_fact(name, page), _meaning(name), facts.get(name, "")) for name in sorted(fact_names(expected))]
    rows += [(f"`{name}()`", functions()[name].meaning, "") for name in sorted(find_functions(expected))]
    if rows:
        yield write_table(("name", "what it is", "in the example"), rows)
    if worked:
        model, _, total = worked
        yield f"For {model}: {total:,} bytes, **{format_bytes(total)}** per {rule.scope}."


_EFFECTS = {
    "fails_to_start": "does not start, or stops at once",
    "falls_back": "falls back to another way of computing",
    "wrong_result": "gives a wrong result",
    "slower": "is slower",
}


def _work_out(one: _Known, rules: RuleSet) -> tuple[str, Mapping[str, str], int] | None:
    """Return model, facts and bytes of the first of the rule's examples with a size; one with a known model before others."""
    expected = rules.texts(one.rule).sizes.expected
    assert expected is not None  # noqa: S101 (asked by the caller)
    for example in sorted(one.file.examples.match, key=lambda one: not isinstance(one.get("model"), str)):
        scope = example_scope(example, rules, one.rule.id)
        total, _ = size(expected, scope)
        if total:
            facts = {name: scope.facts[name].value for name in fact_names(expected) if name in scope.facts}
            model = example.get("model")
            packages = ", ".join(f"{name} {version}" for name, version in (example.get("packages") or {}).items())
            named = f"`{model}`" if isinstance(model, str) else "the example in the table"
            return (
                named + (f" with {packages}" if packages else ""),
                {name: _figure(value) for name, value in facts.items()},
                total,
            )
    return None


def _figure(value: Any) -> str:  # noqa: ANN401 (what a fact is)
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else escape_prose(value_text(value))


def _remedy_text(remedy: Mapping[str, Any]) -> str:
    verb, target, note = remedy["verb"], remedy["target"], remedy["note"]
    words = ""
    if verb in {"upgrade", "downgrade"}:
        words = f"{verb} " + ", ".join(f"`{name}{specifier}`" for name, specifier in target.items())
    elif verb != "note":
        words = "set " + ", ".join(
            f"`{name}{'=' if verb == 'env' else ' = '}{value_text(value)}`" for name, value in target.items()
        )
    side = "" if remedy["safety"] == "safe" or not words else " (it may change behaviour or speed)"
    told = words + side + (f"{': ' if words else ''}{note}" if note else "")
    return told if remedy["when"] is None else f"{told.rstrip('.')}; where {say(remedy['when'])}"


def _write_proof(one: _Known, prose: partial[str]) -> Iterator[str]:
    rule, texts = one.rule, one.texts
    yield KNOWN[rule.confidence]
    if texts.known_problems:
        yield prose(texts.known_problems)
    commands = [f"compatcheck explain {rule.id} ."]
    if texts.probe is not None or one.file.comparisons:
        commands.append(f"compatcheck confirm {rule.id}")
    yield "Whether it is true of your project, from its directory" + (
        ", and the measurement again:" if len(commands) > 1 else ":"
    )
    yield "\n".join(["```sh", *commands, "```"])
    yield "\n".join(
        f"- {str(reference['type']).lower()}: <{reference['url']}>"
        + (f" ({reference['date']})" if reference["date"] else "")
        for reference in texts.references
    )
    if texts.evidence:
        yield "Measurements: " + ", ".join(write_code(name) for name in texts.evidence) + "."
    yield f"The rule: `rules/{rule.id}.yaml`."
