"""Every rule's first matching example, written into the own files of every program where it can speak: what `check` and `fix`
advise there is carried out in those files, and read again.

python -m tests.rules.written_programs [RULE|PROGRAM …]    # print every cell where that goes wrong, and how many were tried
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import yaml

from compatcheck.checking import Request
from compatcheck.checking.checks import Checks, Criteria
from compatcheck.checking.fix import find_fix
from compatcheck.checking.gathering import gather_all
from compatcheck.checking.inspection import as_inspection
from compatcheck.checking.verdict import Variants
from compatcheck.core.builds import OF_PYTORCH
from compatcheck.core.errors import CompatcheckError
from compatcheck.core.fail_on import parse_threshold
from compatcheck.core.fix import SETTING, VERSION, write_value
from compatcheck.core.versions import compile_specifier, contains
from compatcheck.fixing.edits.text import apply_edits, read_exact
from compatcheck.fixing.files import EditableFiles
from compatcheck.fixing.levers import Blame
from compatcheck.fixing.plan import find_ways
from compatcheck.fixing.remedies import try_remedies
from compatcheck.fixing.settings import find_setting
from compatcheck.matching.remedies import condition_of, write_remedy
from compatcheck.resolution.scope import FactScope
from compatcheck.rules.load import load_rules
from compatcheck.rules.locate import open_rules
from tests import ROOT
from tests.rules.program_matrix import PROGRAMS, Program, read_matrix, read_programs

if TYPE_CHECKING:
    from compatcheck.core.facts import Value
    from compatcheck.core.fix import Change
    from compatcheck.core.report import Finding, FindingRemedy
    from compatcheck.resolution.subject import Subject
    from compatcheck.rules.rule import Rule

RULES = open_rules()
CRITERIA = Criteria(RULES, Checks(), parse_threshold("medium"))
FORBIDDEN = frozenset(
    {
        "remedy does not clear",
        "remedy brings in what fails",
        "remedy writes what is not read",
        "plan does not clear",
        "plan brings in what fails",
        "plan writes what is not read",
        "plan changes more",
    }
)
"""What is never right; the rest of what is said of a cell is for a person to judge."""
SCRIPTS = PROGRAMS / "scripts"
"""Scripts of the programs that are libraries, whose columns are facts files."""
_OF_FILES = (
    "training.",
    "rollout.",
    "model.attn_implementation",
    "model.load_dtype",
    "model.quantization",
    "model.use_cache",
)
_MODELS = ("Qwen/Qwen2.5-7B-Instruct", "Qwen/Qwen2.5-7B", "Qwen/Qwen2.5-1.5B", "facebook/opt-1.3b")
"""Models that the fixtures name."""
_STATED = frozenset({"configuration", "script", "set", "declared"})


class Run(NamedTuple):
    """What a person asks of a directory."""

    request: Request
    unwritten: Mapping[str, Any]
    """Facts of the example that no file could be made to state."""


class Wrong(NamedTuple):
    rule: str
    program: str
    what: str
    said: str


@cache
def _file_of(program: str) -> Path | None:
    index = yaml.safe_load((PROGRAMS / "programs.yaml").read_text(encoding="utf-8"))
    named = PROGRAMS / index[program]["file"]
    if named.suffix == ".yaml" and named.read_text(encoding="utf-8").startswith("compatcheck"):
        named = SCRIPTS / f"{program}.py"
    return named if named.exists() else None


def read(request: Request) -> Subject:
    """Read a directory as `check` does."""
    subjects = gather_all(as_inspection(request), RULES, {}).subjects
    if len(subjects) != 1:
        raise CompatcheckError(f"{len(subjects)} subjects")
    return subjects[0]


def write(program: Program, example: Mapping[str, Any]) -> Run | None:
    """Write a run of the program that has an example into the working directory."""
    original = _file_of(program.name)
    if original is None:
        return None
    given = program.can_have(example)
    name = original.name if original.suffix != ".py" else "train.py"
    text = original.read_text(encoding="utf-8")
    model = given.get("model")
    fields = dict(model) if isinstance(model, Mapping) else {}
    base = fields.pop("from", None) if fields else model
    if base is not None:
        for one in _MODELS:
            text = text.replace(one, str(base))
    sections = {
        key: one for key, one in given.items() if isinstance(one, Mapping) and key not in {"packages", "env", "model"}
    }
    text = _shard(program.name, text, dict(sections.get("training", {})))
    Path(name).write_text(text, encoding="utf-8")
    packages = {key: one for key, one in given["packages"].items() if one is not None}
    Path("requirements.txt").write_text("".join(f"{key}=={one}\n" for key, one in packages.items()), encoding="utf-8")
    variables = given.get("env", {})
    Path("job.env").write_text("".join(f"{key}={one}\n" for key, one in variables.items()), encoding="utf-8")
    facts = [(f"{key}.{fact}", value) for key, one in sections.items() for fact, value in one.items()]
    facts += [(f"model.{fact}", value) for fact, value in fields.items()]
    settings = tuple(f"{fact}={write_value(value)}" for fact, value in facts if not fact.startswith(_OF_FILES))
    request = Request(paths=(".",), settings=settings, here=False, env_file="job.env" if variables else None)
    unwritten: dict[str, Any] = {}
    subject = read(request)
    for fact, given_value in facts:
        if not fact.startswith(_OF_FILES):
            continue
        value = tuple(given_value) if isinstance(given_value, list) else given_value
        own = subject.roles[_role(program, subject)]
        if fact in own and own[fact].value == value:
            continue
        change = place(subject, _role(program, subject), {fact: value})
        if change is None or not change.edits:
            unwritten[fact] = value
            continue
        apply(change)
        subject = read(request)
    return Run(request, unwritten)


_ACCELERATE = """\
compute_environment: LOCAL_MACHINE
distributed_type: {kind}
{section}
machine_rank: 0
num_machines: 1
num_processes: 8
"""


def _shard(program: str, text: str, training: Mapping[str, Any]) -> str:
    """Write how a run shards, which takes more than one key in most programs."""
    sharding = training.get("sharding")
    if sharding is None and any(name.startswith("zero_") for name in training):
        sharding = "zero"
    if sharding is None and any(name.startswith("fsdp_") for name in training):
        sharding = "fsdp"
    version = training.get("fsdp_version", 1)
    script = text.startswith(("from ", "import ")) and program not in {"pytorch", "xtuner"}
    if (program in {"accelerate", "open-instruct"} and sharding == "zero") or (
        (script or program == "open-instruct") and sharding == "fsdp"
    ):
        section = "deepspeed_config:\n  deepspeed_config_file: ds.json\n  zero3_init_flag: false"
        if sharding == "fsdp":
            section = f"fsdp_config:\n  fsdp_version: {version}"
        kind = "DEEPSPEED" if sharding == "zero" else "FSDP"
        Path("acc.yaml").write_text(_ACCELERATE.format(kind=kind, section=section), encoding="utf-8")
        if script:
            Path("run.sh").write_text("accelerate launch --config_file acc.yaml train.py\n", encoding="utf-8")
        else:
            text = text.replace("--num_processes 8", "--config_file acc.yaml")
    elif sharding == "zero":
        if 'output_dir="out"' in text:
            text = text.replace('output_dir="out"', 'output_dir="out", deepspeed="ds.json"')
        elif program in {"llamafactory", "axolotl"}:
            text += "deepspeed: ds.json\n"
        elif program == "ms-swift":
            text = text.rstrip() + " --deepspeed ds.json\n"
        else:
            return text
    elif sharding == "fsdp":
        if program == "llamafactory":
            text += f"fsdp: full_shard auto_wrap\nfsdp_config:\n  version: {version}\n"
        elif program == "axolotl":
            text += f"fsdp_version: {version}\nfsdp_config:\n  offload_params: false\n"
    if sharding == "zero":
        stage = training.get("zero_stage", 2)
        config = {"train_micro_batch_size_per_gpu": "auto", "zero_optimization": {"stage": stage}}
        Path("ds.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
    return text


def place(subject: Subject, role: str, facts: Mapping[str, Value]) -> Change | None:
    return find_setting(subject, role, facts, "safe", None, RULES, EditableFiles([subject]))


def apply(change: Change) -> None:
    write_edits([*change.edits, *change.listings])


def write_edits(edits: Sequence[Any]) -> None:
    texts = {edit.path: read_exact(edit.path) for edit in edits}
    for path, text in apply_edits(texts, list(edits)).items():
        Path(path).write_text(text, encoding="utf-8", newline="")


def _role(program: Program, subject: Subject) -> str:
    return program.role if program.role in subject.roles else next(iter(subject.roles))


def keep() -> dict[str, str]:
    return {str(path): read_exact(str(path)) for path in Path().iterdir() if path.is_file()}


def restore(texts: Mapping[str, str]) -> None:
    for path, text in texts.items():
        Path(path).write_text(text, encoding="utf-8", newline="")


def key_of(finding: Finding) -> tuple[str, str]:
    return finding.rule_id, finding.role


def state(request: Request, facts: Iterable[tuple[str, Value]]) -> Request:
    """State facts by options, in the place of what options state of them."""
    stated = dict(one.split("=", 1) for one in request.settings) | {name: write_value(value) for name, value in facts}
    return request._replace(settings=tuple(f"{name}={value}" for name, value in stated.items()))


def carry_out(remedy: FindingRemedy, subject: Subject, role: str, request: Request) -> tuple[Request, str | None]:
    """Do what a remedy says, in the files; what no file can state is stated by an option."""
    if remedy.settings:
        change = place(subject, role, dict(remedy.settings))
        if change is None:
            return request, "no key of the program is found for it again"
        if change.edits:
            apply(change)
        elif change.written:
            return request, "by hand"
        else:
            request = state(request, remedy.settings)
    lines = Path("requirements.txt").read_text(encoding="utf-8").splitlines()
    for name, release in remedy.releases:
        lines = [line for line in lines if line.partition("==")[0] != name] + [f"{name}=={release}"]
    Path("requirements.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return request, None


def _read_anew(request: Request) -> tuple[Subject | None, str | None]:
    try:
        return read(request), None
    except CompatcheckError as error:
        return None, f"cannot be read: {error}"


def _differ(before: Subject, after: Subject, named: set[str]) -> list[str]:
    """Name the stated facts that changed beside those that are meant to."""
    found = []
    for role, facts in before.roles.items():
        other = after.roles.get(role, {})
        for name, fact in facts.items():
            if name in named or fact.origin not in _STATED or name.startswith("program."):
                continue
            if name not in other or (other[name].origin in _STATED and other[name].value != fact.value):
                found.append(f"{role}:{name} {fact.value}->{other[name].value if name in other else 'gone'}")
    return found


def _lost(before: Subject, after: Subject) -> list[str]:
    keys = {(one.source.path, one.source.key) for one in before.skipped}
    unread = {(doc.source.path, key) for doc in before.documents for key, _ in doc.unread}
    new = [f"{one.source.key}: {one.reason}" for one in after.skipped if (one.source.path, one.source.key) not in keys]
    new += [f"{key} unread" for doc in after.documents for key, _ in doc.unread if (doc.source.path, key) not in unread]
    return new


def try_cell(rule: Rule, program: Program, *, plans: bool = True) -> tuple[str, list[Wrong]]:
    """Write a cell, and carry out what is advised.

    Returns:
        What became of it, and what is wrong.
    """
    wrong: list[Wrong] = []

    def note(what: str, said: str) -> None:
        wrong.append(Wrong(rule.id, program.name, what, said))

    try:
        run = write(program, rule.examples.match[0])
    except CompatcheckError as error:
        return f"not read: {error}"[:120], wrong
    if run is None:
        return "no file", wrong
    try:
        subject = read(run.request)
    except CompatcheckError as error:
        return f"not read: {error}"[:120], wrong
    judge, became = Variants(CRITERIA), "tried"
    before = judge(subject).findings
    own = [one for one in before if one.rule_id == rule.id]
    if run.unwritten and not any(one.status == "affected" for one in own):
        said = run._replace(request=state(run.request, run.unwritten.items()))
        try:
            subject = read(said.request)
        except CompatcheckError as error:
            return f"not read: {error}"[:120], wrong
        judge = Variants(CRITERIA)
        before = judge(subject).findings
        own = [one for one in before if one.rule_id == rule.id]
        if any(one.status == "affected" for one in own):
            became, run = f"stated {' '.join(run.unwritten)}", said
    if not any(one.status == "affected" for one in own):
        silent = "possible" if own else "silent"
        return f"{silent}{' without ' + ' '.join(run.unwritten) if run.unwritten else ' though all is written'}", wrong
    found = [one for one in try_remedies(subject, before, RULES, judge.remedied) if one.rule_id == rule.id]
    fails = {key_of(one) for one in before if one.fails}
    texts = keep()
    for finding in found:
        for remedy in finding.remedies if finding.status == "affected" else ():
            if not (remedy.settings or remedy.releases):
                continue
            restore(texts)
            request, problem = carry_out(remedy, subject, finding.role, run.request)
            if problem is not None:
                note(f"remedy: {problem}", remedy.text)
                continue
            after, problem = _read_anew(request)
            if after is None:
                note(f"remedy: {problem}", remedy.text)
                continue
            judged = Variants(CRITERIA)(after).findings
            left = {key_of(one): one.status for one in judged}
            if (left.get(key_of(finding)) == "affected") is not ("; leaves " in remedy.text):
                note("remedy does not clear", f"{remedy.text} {left.get(key_of(finding))}")
            new = {key_of(one) for one in judged if one.fails} - fails
            if new:
                note("remedy brings in what fails", f"{remedy.text}: {sorted(new)}")
            if "is unread" not in remedy.text and "; then " not in remedy.text and (lost := _lost(subject, after)):
                note("remedy writes what is not read", f"{remedy.text}: {lost}")
            if "; then " not in remedy.text and (
                changed := _differ(subject, after, {name for name, _ in remedy.settings})
            ):
                note("remedy changes more", f"{remedy.text}: {changed}")
    restore(texts)
    for finding in found:
        for what in _dropped(rule, finding, subject):
            note("remedy dropped", what)
    if plans:
        for one in _try_plan(run, subject, before):
            note(*one)
    return became, wrong


def _dropped(rule: Rule, finding: Finding, subject: Subject) -> Iterator[str]:
    """Name the settings of the rule's remedies that are not printed."""
    compiled = RULES.find(rule.id)
    assert compiled is not None
    scope = FactScope(subject.roles[finding.role], subject.environment, RULES)
    printed = {remedy.settings for remedy in finding.remedies}
    for remedy in RULES.texts(compiled).remedies:
        target = remedy["target"]
        if remedy["verb"] != "set" or tuple(target.items()) in printed or not condition_of(remedy, scope):
            continue
        if all(name in scope.facts and scope.facts[name].value == value for name, value in target.items()):
            continue
        written = write_remedy(compiled, remedy, scope, documents=subject.documents, role=finding.role)
        change = place(subject, finding.role, target)
        if written is None:
            yield f"no word: {dict(target)} ({len(finding.remedies)} others)"
        elif change is None:
            yield f"not placed: {dict(target)} {written.text} ({len(finding.remedies)} others)"
        else:
            yield f"tried in vain: {dict(target)} {written.text} ({len(finding.remedies)} others)"


def _try_plan(run: Run, subject: Subject, before: Sequence[Finding]) -> Iterator[tuple[str, str]]:
    fix = find_fix(as_inspection(run.request._replace(manifests=True)), CRITERIA, {}, find_ways(offline=True))
    changes = [change for plan in fix.plans for change in plan.changes]
    if not changes:
        return
    words = " + ".join(change.instruction for change in changes)
    texts = keep()
    cleared = {key_of(one) for plan in fix.plans for one in plan.cleared}
    failed = {key_of(one) for one in before if one.fails}
    for plan in fix.plans:
        for one, why in plan.remaining:
            if "read again" in why:
                yield "plan: read again and still there", f"{words}: {one.rule_id}"
        for text in plan.notes:
            if "bring in" in text:
                yield "plan: brings in", f"{words}: {text}"

    def request_of(kept: Sequence[Change]) -> Request:
        by_hand = (one for one in kept if one.kind == SETTING and not one.edits)
        return state(run.request, [fact for one in by_hand for fact in one.facts])

    def left_after(kept: Sequence[Change]) -> tuple[Subject, list[Finding]]:
        restore(texts)
        write_edits([edit for change in kept for edit in (*change.edits, *change.listings)])
        after = read(request_of(kept))
        return after, list(Variants(CRITERIA)(after).findings)

    try:
        for file in fix.files:
            Path(file.path).write_text(file.after, encoding="utf-8", newline="")
        after = read(request_of(changes))
        judged = Variants(CRITERIA)(after).findings
        left = {key_of(one) for one in judged if one.fails}
        if any(one.command for one in changes):
            yield "plan: a command", words
        if failed and (back := cleared & left):
            yield "plan does not clear", f"{words}: {sorted(back)}"
        if failed and (new := left - failed):
            yield "plan brings in what fails", f"{words}: {sorted(new)}"
        if lost := _lost(subject, after):
            yield "plan writes what is not read", f"{words}: {lost}"
        named = {name for change in changes for name, _ in change.facts}
        if changed := _differ(subject, after, named):
            yield "plan changes more", f"{words}: {changed}"
        moves = [change for change in changes if change.kind == VERSION]
        goal = cleared if failed else {key_of(one) for one in before} - {key_of(one) for one in judged}
        advised = {
            name
            for one in before
            for compiled in [RULES.find(one.rule_id)]
            if compiled is not None
            for remedy in RULES.texts(compiled).remedies
            if remedy["verb"] in {"upgrade", "downgrade"}
            for name in remedy["target"]
        }
        blame = Blame(RULES, [subject])
        about_packages = (one for one in before if any(fact.name.startswith("environment.") for fact in one.facts))
        advised |= {*OF_PYTORCH}.union(*map(blame.packages, about_packages))
        if strangers := [
            one.instruction
            for one in moves
            if not (one.follows or one.name in advised or "would come in" in (one.note or ""))
            and not any(one.name in c.why for c in moves if c.follows)
        ]:
            yield "plan moves what no rule names", f"{words}: {strangers}"
        if len(changes) > 1:
            for dropped in changes:
                if dropped.follows:
                    continue
                _, findings = left_after([one for one in changes if one is not dropped and not one.follows])
                if (
                    not goal & {key_of(one) for one in findings}
                    and not {key_of(one) for one in findings if one.fails} - failed
                ):
                    yield "plan could do without", f"{words}: {dropped.instruction}"
        for change in moves:
            if change.follows or change.ranged or change.before is None:
                continue
            known = [one for one in RULES.releases(change.name) if "rc" not in one]
            here = change.before.partition("+")[0]
            if (
                here not in known
                or change.release not in known
                or abs(known.index(here) - known.index(change.release)) < 2
            ):
                continue
            step = 1 if known.index(here) > known.index(change.release) else -1
            nearer = known[known.index(change.release) + step]
            ranges = [
                compile_specifier(str(remedy["target"][change.name]))
                for one in before
                for compiled in [RULES.find(one.rule_id)]
                if compiled is not None and key_of(one) in goal
                for remedy in RULES.texts(compiled).remedies
                if remedy["verb"] in {"upgrade", "downgrade"} and change.name in remedy["target"]
            ]
            if ranges and not any(contains(bounds, nearer) == "yes" for bounds in ranges):
                continue
            others = [one for one in changes if one is not change and not one.follows]
            restore(texts)
            write_edits([edit for one in others for edit in one.edits])
            lines = Path("requirements.txt").read_text().splitlines()
            Path("requirements.txt").write_text(
                "".join(
                    f"{change.name}=={nearer}\n" if line.partition("==")[0] == change.name else f"{line}\n"
                    for line in lines
                )
            )
            findings = Variants(CRITERIA)(read(request_of(others))).findings
            if (
                not goal & {key_of(one) for one in findings}
                and not {key_of(one) for one in findings if one.fails} - failed
            ):
                yield "plan goes farther than needed", f"{words}: {change.name} {nearer} does"
        for change in changes:
            if change.kind == SETTING and change.safe:
                for one in before:
                    compiled = RULES.find(one.rule_id) if one.status == "affected" else None
                    remedies = RULES.texts(compiled).remedies if compiled is not None else ()
                    if any(
                        r["verb"] == "set" and dict(change.facts) == dict(r["target"]) and r["safety"] != "safe"
                        for r in remedies
                    ):
                        yield "plan calls an unsafe setting safe", f"{words}: {one.rule_id}"
    finally:
        restore(texts)


def cells(wanted: Sequence[str] = (), letters: str = "Sm") -> Iterator[tuple[Rule, Program]]:
    programs, matrix = read_programs(), read_matrix()
    every = int(os.environ.get("SAMPLE", "99"))
    for rule in load_rules(ROOT / "rules"):
        if rule.status != "active" or not rule.examples.match or rule.kind == "folklore":
            continue  # folklore is told beside findings
        columns = [
            program
            for program, letter in zip(programs, matrix[rule.id], strict=True)
            if letter in letters and _file_of(program.name) is not None and program.name != "model"
        ]
        chosen = sorted(columns, key=lambda one: zlib.crc32(f"{rule.id} {one.name}".encode()))[:every]
        if every < 99 and rule.id.startswith("_stack/"):
            continue
        for program in chosen:
            if (
                not wanted
                or {rule.id, program.name} & set(wanted)
                or any(rule.id.startswith(w) for w in wanted if w.endswith("/"))
            ):
                yield rule, program


def main(wanted: Sequence[str]) -> None:
    share = os.environ.get("SHARE", "0/1").split("/")
    states: Counter[str] = Counter()
    start, home = tempfile.mkdtemp(), Path.cwd()
    for number, (rule, program) in enumerate(cells(wanted)):
        if number % int(share[1]) != int(share[0]):
            continue
        where = Path(start) / "run"
        shutil.rmtree(where, ignore_errors=True)
        where.mkdir()
        os.chdir(where)
        try:
            state, wrong = try_cell(rule, program)
        except Exception as error:  # noqa: BLE001
            import traceback

            state, wrong = (
                f"crash {type(error).__name__}",
                [Wrong(rule.id, program.name, "crash", traceback.format_exc(limit=-3).replace("\n", " | "))],
            )
        states[state.partition(" ")[0]] += 1
        print(f"CELL\t{rule.id}\t{program.name}\t{state}", flush=True)
        for one in wrong:
            print("\t".join(("WRONG", *one)), flush=True)
    os.chdir(home)
    print(states)


if __name__ == "__main__":
    main(sys.argv[1:])
