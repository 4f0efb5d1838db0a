"""Turn an environment, documents, hardware and settings into a subject with facts."""

from __future__ import annotations

from compatcheck.core.document import LEFT_OUT, NOT_UNDERSTOOD, ROLES, SPREADING, Document
from compatcheck.core.environment import UNEQUAL, UNLIKE
from compatcheck.core.facts import Fact, Facts, Value
from compatcheck.core.named_tuple import NamedTuple
from compatcheck.core.source import Skipped, Source
from compatcheck.resolution.binaries import KIND as MISFIT
from compatcheck.resolution.binaries import find_misfits
from compatcheck.resolution.derive import (
    SHARDING,
    SPLIT_SEQUENCES,
    derive,
    derive_from_code,
    derive_unsharded,
)
from compatcheck.resolution.imported import FRAMEWORK, with_unlisted
from compatcheck.resolution.merge import (
    CODE,
    DECLARED,
    INSTALLED,
    LOOKED_UP,
    MEASURED,
    REPORTED,
    SCRIPT,
    SETTING,
    Claim,
    claims_of,
    drop_stand_ins,
    is_left_out,
    merge,
    withdraw,
)
from compatcheck.resolution.merge import (
    FRAMEWORK as CONFIGURED,
)
from compatcheck.resolution.pins import KIND as BY_PINS
from compatcheck.resolution.pins import find_refused
from compatcheck.resolution.scope import FactScope, version_need
from compatcheck.resolution.subject import Conflict, Subject
from compatcheck.rules.programs import find_program

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from compatcheck.core.document import Gap
    from compatcheck.core.environment import Damage, Environment
    from compatcheck.core.hardware import Hardware
    from compatcheck.resolution.defaults import Defaults
    from compatcheck.resolution.gaps import Opened
    from compatcheck.rules.database import RuleSet

TRAIN = "train"
"""The only role outside reinforcement learning."""

_ROUNDS = 5
"""Derived facts open defaults and defaults open derived facts; longer chains than this do not exist."""


def resolve(
    subject_id: str,
    *,
    rules: RuleSet,
    environment: Environment | None = None,
    documents: Sequence[Document] = (),
    hardware: Sequence[tuple[Hardware, bool]] = (),
    settings: Mapping[str, tuple[Value, Source]] | None = None,
) -> Subject:
    """Resolve one subject.

    Args:
        subject_id: short name of the subject in reports.
        rules: default rows, releases and tables.
        environment: what is installed, locked or required.
        documents: configuration files as their readers understood them.
        hardware: devices, each with whether it was declared (``--gpu``) and not measured.
        settings: ``--set`` values by fact.
    """
    environment = with_unlisted(environment, documents, settings or {})
    documents = as_read = tuple(drop_stand_ins(documents))
    given = Inputs(rules, environment, documents, hardware, settings or {})
    inputs, resolved = _resolve_roles(given)
    documents, gaps = tuple(inputs.documents), inputs.gaps
    usual = _resolve_unless_set(given, resolved) if any(gap.why == NOT_UNDERSTOOD for gap in gaps) else {}
    if documents:
        from compatcheck.resolution.unpriced import describe_unpriced  # noqa: PLC0415 (only with configurations)

        for role, part in resolved.items():
            describe_unpriced(documents, role, rules, part.facts)
    conflicts: dict[Conflict, None] = {}
    unresolved: dict[tuple[str, Source, str], None] = {}
    skipped: dict[Skipped, None] = {}
    for part in resolved.values():
        conflicts.update(dict.fromkeys(part.conflicts))
        unresolved.update(dict.fromkeys(part.unresolved))
        skipped.update(dict.fromkeys(part.skipped))
    return Subject(
        id=subject_id,
        environment=environment,
        roles={role: Facts(part.facts) for role, part in resolved.items()},
        documents=documents,
        as_read=as_read,
        conflicts=(*conflicts, *_contradictions(environment)),
        unresolved=tuple(unresolved),
        unread=tuple((document.place(key), near) for document in documents for key, near in document.unread),
        gaps=_worth_a_word(gaps),
        skipped=(
            *skipped,
            *_leave_out_declared(environment.skipped if environment is not None else (), hardware, settings or {}),
            *(skipped for document in documents for skipped in document.skipped),
            *(
                skipped._replace(passes=True)
                for device, _ in hardware
                for skipped in _leave_out_declared(device.skipped, hardware, settings or {})
            ),
        ),
        hardware=tuple(hardware),
        settings=settings or {},
        usual={role: {**usual.get(role, {}), **part.by_release} for role, part in resolved.items()},
    )


def _resolve_roles(given: Inputs) -> tuple[Inputs, dict[str, Resolved]]:
    """Resolve every role; return with it what was left of the documents, and what of them was not read."""
    inputs = given
    if given.documents:
        from compatcheck.resolution.gaps import find_gaps, withhold  # noqa: PLC0415 (only with configurations)
        from compatcheck.resolution.known_keys import drop_unknown_keys  # noqa: PLC0415 (as above)

        known = drop_unknown_keys(given.documents, FactScope({}, given.environment, given.rules))
        withheld = tuple(withhold(known))
        documents = tuple(document for document, _ in withheld)
        taken = frozenset(one for _, about in withheld for one in about)
        inputs = given._replace(documents=documents, withheld=taken, gaps=tuple(dict.fromkeys(find_gaps(documents))))
    stated = {statement.role for document in inputs.documents for statement in document.statements}
    resolved: dict[str, Resolved] = {}
    for role in [name for name in ROLES if name in stated] or [TRAIN]:
        resolved[role] = _resolve_role(role, inputs, {name: part.facts for name, part in resolved.items()})
    _drop_reference(resolved)
    return inputs, resolved


def _resolve_unless_set(given: Inputs, resolved: Mapping[str, Resolved]) -> dict[str, dict[str, tuple[Value, str]]]:
    """Return by role what would hold if no key that nobody understood set anything: value, and whose it is in words."""
    documents = tuple(
        document._replace(unread=(), gaps=tuple(gap for gap in document.gaps if gap.why != NOT_UNDERSTOOD))
        for document in given.documents
    )
    _, other = _resolve_roles(given._replace(documents=documents))
    return {
        role: {
            name: (fact.value, _tell_origin(fact))
            for name, fact in part.facts.items()
            if name not in resolved[role].facts
        }
        for role, part in other.items()
        if role in resolved
    }


def _tell_origin(fact: Fact) -> str:
    """Say where a fact is from: how it follows from others, or whose it is."""
    places = () if fact.origin == "derived" and fact.note else map(str, fact.sources)
    return " ".join(filter(None, (", ".join(places), fact.note)))


def resolve_with(subject: Subject, stated: Mapping[str, Value], rules: RuleSet) -> Subject:
    """Resolve a subject anew with some facts stated as ``--set`` does."""
    return resolve(
        subject.id,
        rules=rules,
        environment=subject.environment,
        documents=subject.as_read,
        hardware=subject.hardware,
        settings={**subject.settings, **{name: (value, Source("--set", name)) for name, value in stated.items()}},
    )


def _drop_reference(resolved: dict[str, Resolved]) -> None:
    """Leave out the reference model where the trained model's facts say that there is none."""
    first = next(iter(resolved.values())).facts.get("training.reference_model")
    if "reference" in resolved and len(resolved) > 1 and first is not None and first.value is False:
        del resolved["reference"]


class Inputs(NamedTuple):
    """What a subject is resolved from."""

    rules: RuleSet
    environment: Environment | None
    documents: Sequence[Document]
    hardware: Sequence[tuple[Hardware, bool]]
    settings: Mapping[str, tuple[Value, Source]]
    withheld: frozenset[tuple[str, str | None]] = frozenset()
    """Facts and roles that a key would decide of which it is not known that it is left out."""
    gaps: tuple[Gap, ...] = ()
    """What was not read of the documents."""


class Resolved(NamedTuple):
    """The facts of one role, and what stands against them."""

    facts: dict[str, Fact]
    conflicts: tuple[Conflict, ...]
    unresolved: tuple[tuple[str, Source, str], ...]
    skipped: tuple[Skipped, ...]
    by_release: Mapping[str, tuple[Value, str]]
    """Facts whose default depends on a release that nobody knows: the newest one's, and whose it is in words."""


COMPARED = (
    "training.micro_batch_size",
    "training.gradient_accumulation_steps",
    "training.mixed_precision",
    "training.global_batch_size",
    "training.gradient_clipping",
)
"""What a trainer compares with its DeepSpeed file, whether its own arguments state it or not."""


def _resolve_role(role: str, inputs: Inputs, others: Mapping[str, Mapping[str, Fact]]) -> Resolved:
    rules, environment, documents = inputs.rules, inputs.environment, inputs.documents
    claims = claims_of(documents, role)
    if inputs.settings:
        _claim_settings(role, inputs.settings, claims)
    for device, declared in inputs.hardware:
        reported = environment is not None and device is environment.hardware
        _claim_hardware(device, DECLARED if declared else REPORTED if reported else MEASURED, claims)
    if environment is not None:
        _claim_environment(environment, claims)
    withdraw(claims, documents, role)
    merged = merge(claims)
    facts = merged.facts
    readers = _readers(documents, facts)
    conflicts = (*merged.conflicts, *_contradicted(claims, facts))
    _describe_gaps(inputs.gaps, facts)
    unknown_device, scope = (
        _describe_gpu(facts, rules),
        FactScope(facts, environment, rules, others=others, growing=True),
    )
    if environment is not None:
        _describe_damage(_find_damage(environment, scope), facts)
    unresolved: dict[str, str] = {}
    by_release: dict[str, tuple[Value, str]] = {}
    entries = [
        (entry.fact, document.place(entry.key), entry.why)
        for document in documents
        for entry in document.unresolved
        if entry.role in (None, role)
    ] + [*_open_adapters(facts, documents)]
    opened, open_facts = _find_opened((fact for fact, _, _ in entries), inputs, role, facts)
    scope.opened = _open(open_facts, inputs.gaps)
    undecided = open_facts | {name for name in (*SPLIT_SEQUENCES, SHARDING, PEFT) if _may_be_set(name, inputs.gaps)}
    replicates = _start_replicas(documents, readers, environment)
    stated = {name: fact for name, fact in facts.items() if fact.origin in {"script", "configuration"}}
    defaults: Defaults | None = None
    for _ in range(_ROUNDS):
        before = len(facts)
        if merged.automatic:
            from compatcheck.resolution.auto import fill_in  # noqa: PLC0415 (only with configurations)

            filled, unresolved = fill_in(merged.automatic, facts, set(readers))
            for name, fact in filled.items():
                facts.setdefault(name, fact)
        waiting = derive(facts, undecided, opened)
        if readers or "model.model_type" in facts:
            from compatcheck.resolution.auto import drop_unowned  # noqa: PLC0415 (as above)

            defaults = defaults or _open_defaults(readers, scope, facts, role)
            hidden, found = defaults.apply(drop_unowned(documents, facts), open_facts, waiting)
            undecided |= hidden
            by_release |= found
        if len(facts) == before and not derive_unsharded(facts, undecided, opened, replicates=replicates):
            break
    conflicts += _compare_with_trainer(claims, readers, documents, scope, role, open_facts)
    _describe_conflicts(conflicts, facts, documents)
    if FRAMEWORK in facts or any(find_program(document.reader).kind == "engine" for document in documents):
        from compatcheck.resolution.defaults import apply_traits  # noqa: PLC0415 (only where a program is known)

        apply_traits(
            FactScope(facts, environment, rules, scope.opened, others),
            facts,
            readers,
            opened.union(*(gap.facts or () for gap in inputs.gaps)),
        )
    derive_from_code(facts, undecided)
    derive(facts, undecided, opened)
    entries[:0] = [(name, merged.automatic[name], why) for name, why in unresolved.items()]
    if RANK in facts and facts[RANK].value and PEFT not in {*facts, *undecided}:
        facts[PEFT] = Fact(PEFT, "lora", "derived", facts[RANK].sources, "a rank of LoRA is stated")
    return Resolved(
        facts,
        conflicts,
        tuple(_find_pending(entries, stated, facts)),
        unknown_device,
        {k: v for k, v in by_release.items() if k not in facts},
    )


def _open_defaults(readers: Sequence[str], scope: FactScope, facts: dict[str, Fact], role: str) -> Defaults:
    from compatcheck.resolution.defaults import Defaults  # noqa: PLC0415 (only where a program is known)

    return Defaults(readers, scope, facts, role)


def _find_pending(
    entries: Iterable[tuple[str | None, Source, str]], stated: Mapping[str, Fact], facts: Mapping[str, Fact]
) -> Iterator[tuple[str, Source, str]]:
    """Yield what stays open: what is set to something nobody knows, and what was stated and may be replaced."""
    told = set()
    for name, place, why in entries:
        if name is not None and name not in facts:
            told.add(name)
            yield name, place, why
    for name, fact in stated.items():
        if name not in facts and name not in told and fact.sources:
            yield name, fact.sources[0], _REPLACED


def _claim_settings(role: str, settings: Mapping[str, tuple[Value, Source]], claims: dict[str, list[Claim]]) -> None:
    from compatcheck.resolution.settings import settings_of  # noqa: PLC0415 (only with --set)

    for name, (value, source) in settings_of(role, settings).items():
        claims.setdefault(name, []).append(Claim(SETTING, "set", value, source))


def _that_follow(documents: Sequence[Document]) -> frozenset[str]:
    """Return the facts that are left open to what they follow from, and not by a key: one that is left out is none."""
    return frozenset(
        one.fact
        for document in documents
        for one in document.unresolved
        if one.fact is not None and (one.follows or one.key.endswith(LEFT_OUT))
    )


def _find_opened(
    unresolved: Iterable[str | None], inputs: Inputs, role: str, facts: Mapping[str, Fact]
) -> tuple[set[str], frozenset[str]]:
    """Return the facts that a key decides in a way nobody knows, and with them those that something not read may state."""
    documents = inputs.documents
    opened = {fact for fact in unresolved if fact is not None}
    opened.update(one.fact for document in documents for one in document.skipped if one.fact is not None)
    withheld = (fact for fact, of in inputs.withheld if of in (None, role) or role == TRAIN)
    open_facts = frozenset(opened.union(withheld, _find_open_facts(documents, role, facts)))
    return opened - facts.keys() - _that_follow(documents), open_facts - facts.keys()


def _open(names: frozenset[str], gaps: Sequence[Gap]) -> Opened | None:
    if not (names or gaps):
        return None
    from compatcheck.resolution.gaps import Gaps, Opened  # noqa: PLC0415 (only where something was not read)

    return Opened(names, Gaps(gaps))


def _worth_a_word(gaps: tuple[Gap, ...]) -> tuple[Gap, ...]:
    if not gaps:
        return ()
    from compatcheck.resolution.gaps import is_worth_a_word  # noqa: PLC0415 (only where something was not read)

    return tuple(filter(is_worth_a_word, gaps))


def _may_be_set(name: str, gaps: Sequence[Gap]) -> bool:
    if not gaps:
        return False
    from compatcheck.resolution.gaps import may_set  # noqa: PLC0415 (only where something was not read)

    return any(may_set(gap, "", name) for gap in gaps)


def _start_replicas(documents: Sequence[Document], readers: Sequence[str], environment: Environment | None) -> bool:
    """Tell whether ranks are started for transformers' Trainer by a launcher that has no settings of its own.

    It wraps the model in DDP where neither its arguments nor variables of accelerate name anything else (transformers 4.36.0 to
    5.24.0 trainer.py); ``accelerate launch`` may have a file of its own.
    """
    if not any(document.reader == "launcher" and document.statements for document in documents):
        return False
    if not {"accelerate", "deepspeed"}.isdisjoint(document.reader for document in documents):
        return False
    variables = () if environment is None else environment.variables or ()
    from compatcheck.rules.programs import lineage  # noqa: PLC0415 (only with a launcher)

    return not any(name.startswith("ACCELERATE_USE_") for name in variables) and any(
        program.name == "hf_trainer" for reader in readers for program in lineage(reader)
    )


_REPLACED = "is stated, and the program may replace it: something that decides whether it does is not known"
RANK, PEFT = "training.lora_rank", "training.peft"


def _open_adapters(
    facts: Mapping[str, Fact], documents: Sequence[Document]
) -> Iterator[tuple[str | None, Source, str]]:
    """Leave open whether there are adapters where a key about them was not understood: ``lora_enable``, ``use_peft``."""
    if PEFT in facts:
        return
    rank = facts.get(RANK)
    ranked = rank is not None and bool(rank.value)
    words = ("lora", "peft", "adapter") if ranked else ("lora", "peft")
    for document in documents:
        for key, _ in document.unread:
            if any(word in key.lower() for word in words):
                stated = f"{rank.sources[0].key or RANK} is stated, and " if rank is not None and ranked else ""
                yield PEFT, document.place(key), f"{stated}{key} was not understood"
                return


def _count_own_devices(claims: Mapping[str, list[Claim]], facts: dict[str, Fact]) -> None:
    """Count the ranks of a run whose own file says how many devices of a node it takes: ``--gpu`` says what the node has."""
    name, world, nodes = "hardware.gpus_per_node", "hardware.world_size", facts.get("hardware.nodes")
    if world in facts or nodes is None or name not in facts or facts[name].origin != "declared":
        return
    own = min(
        (one for one in claims[name] if one.rank in {CODE, SCRIPT, CONFIGURED}), key=lambda one: one.rank, default=None
    )
    if own is None or own.value == facts[name].value:
        return
    if isinstance(own.value, int) and isinstance(nodes.value, int):
        words = f"the run's own file takes {own.value} of a node's devices"
        facts[world] = Fact(world, own.value * nodes.value, "configuration", (own.source,), words)


def _contradicted(claims: Mapping[str, list[Claim]], facts: dict[str, Fact]) -> tuple[Conflict, ...]:
    """Return the conflict of a launcher, or a run's own file, with more processes than the declared nodes have devices.

    The launcher's number stands then: ``--gpu`` says what a node is, not how many there are.
    """
    _count_own_devices(claims, facts)
    names = ("hardware.world_size", "hardware.gpus_per_node", "hardware.nodes")
    if not all(name in facts for name in names) or facts[names[1]].origin != "declared":
        return ()
    world, gpus, nodes = (facts[name].value for name in names)
    if not (isinstance(world, int) and isinstance(gpus, int) and isinstance(nodes, int)) or world <= gpus * nodes:
        return ()
    return (Conflict(names[0], ((world, facts[names[0]].sources[0]), (gpus * nodes, facts[names[1]].sources[0]))),)


def _find_open_facts(documents: Sequence[Document], role: str, facts: Mapping[str, Fact]) -> frozenset[str]:
    if not documents:
        return frozenset()
    from compatcheck.resolution.gaps import open_facts  # noqa: PLC0415 (only with configurations)

    return frozenset(open_facts(documents, role, facts))


def _compare_with_trainer(
    claims: Mapping[str, list[Claim]],
    readers: Sequence[str],
    documents: Sequence[Document],
    scope: FactScope,
    role: str,
    open_facts: frozenset[str],
) -> tuple[Conflict, ...]:
    """Return what a DeepSpeed file alone states and the defaults of its trainer contradict."""
    alone = [name for name in COMPARED if name in scope.facts and name in claims]
    alone = [name for name in alone if all(claim.of_deepspeed for claim in claims[name])]
    if not alone:
        return ()
    from compatcheck.resolution.defaults import contradict_defaults  # noqa: PLC0415 (only with DeepSpeed)

    found = contradict_defaults(alone, readers, documents, scope, role, open_facts)
    made = {name for name in alone if any(claim.becomes_deepspeeds for claim in claims[name])}
    return tuple(one for one in found if one.fact not in made or is_left_out(one.fact, one.values[1][0]))


def _describe_conflicts(conflicts: Sequence[Conflict], facts: dict[str, Fact], documents: Sequence[Document]) -> None:
    """State which settings disagree, with their values and places in words."""
    name = "configuration.conflicts"
    _describe_refused(facts, documents)
    if conflicts:
        sources = tuple(source for conflict in conflicts for _, source in conflict.values)
        words = [
            f"{conflict.fact}: {', '.join(f'{value} in {source.path}' for value, source in conflict.values)}"
            for conflict in conflicts
        ]
        names = tuple(sorted(conflict.fact for conflict in conflicts))
        facts[name] = Fact(name, names, "derived", sources, "; ".join(words))
        refused = tuple(sorted(one.fact for one in conflicts if one.refused and not _may_differ(one.fact, facts)))
        if refused or REFUSED not in facts:
            facts[REFUSED] = Fact(REFUSED, refused, "derived", sources, "; ".join(words))
    elif documents:
        for fact in (name, REFUSED):
            facts.setdefault(fact, Fact(fact, (), "derived", (), "no two inputs differ"))


REFUSED = "configuration.refused"


def _describe_refused(facts: dict[str, Fact], documents: Sequence[Document]) -> None:
    """Say which keys of a file its program refuses beside another one; a command may state in its place what is in no section."""
    stated = facts.pop(REFUSED, None)
    if stated is None or not isinstance(stated.value, tuple) or stated.origin != "configuration":
        return
    named = [key for document in documents for kind, _, key in document.references if kind == "deepspeed"]
    if not named and all(document.reader != "native" for document in documents):
        return
    file = stated.sources[0].path
    given = {one.key for fact in facts.values() if fact.origin == "script" for one in fact.sources if one.path != file}
    keys = tuple(key for key in stated.value if key not in given or "." in str(key))
    if keys:
        words = f"accelerate takes no {', '.join(map(str, keys))} beside {', '.join(named) or 'a DeepSpeed file'}"
        facts[REFUSED] = stated._replace(value=keys, note=words)


def _may_differ(name: str, facts: Mapping[str, Fact]) -> bool:
    """Tell whether a trainer does not compare itself: a loop of its own, or a batch where it looks for one that fits.

    Source: transformers trainer.py propagate_args_to_deepspeed(), 4.37.0 to 5.23.0; trl trainers with a ``train()`` of their own,
    0.12.2 to 1.2.0 (RLOO to 0.20).
    """
    search, trainer = facts.get("training.auto_find_batch_size"), facts.get("training.trainer")
    if trainer is not None and trainer.value in {"ppo", "rloo", "ddpo", "alignprop"}:
        return True
    return (
        name in {"training.micro_batch_size", "training.global_batch_size"}
        and search is not None
        and search.value is True
    )


def _describe_gaps(gaps: Sequence[Gap], facts: dict[str, Fact]) -> None:
    """State what was not read of the configuration and may set any key."""
    name, whole = (
        "configuration.unread",
        [gap for gap in gaps if gap.key is None and gap.facts is None and not gap.assumed],
    )
    if whole:
        words = "; ".join(f"{gap.source} {gap.why}" for gap in whole)
        names = tuple(sorted({gap.source.key or gap.source.path for gap in whole}))
        facts[name] = Fact(name, names, "derived", tuple(gap.source for gap in whole), words)


def _trains_as(own: Sequence[Document], framework: str) -> bool:
    """Tell whether a program trains as another one, and brings its own defaults."""
    return bool(own) and find_program(own[0].reader).runs_as == framework


def _readers(documents: Sequence[Document], facts: dict[str, Fact]) -> list[str]:
    """List the programs and engines that read this run's configuration and state the framework they imply.

    A DeepSpeed or accelerate file does not tell which program reads it.
    """
    readers = list(dict.fromkeys(document.reader for document in documents))
    own = [document for document in documents if find_program(document.reader).kind == "program"]
    if own and "training.framework" not in facts:
        source = own[0].source
        facts["training.framework"] = Fact(
            "training.framework",
            find_program(own[0].reader).runs_as or own[0].reader,
            "derived",
            (source,),
            "the program this file is for",
        )
    framework = facts.get("training.framework")
    if (
        framework is not None
        and isinstance(framework.value, str)
        and framework.value not in readers
        and not (_trains_as(own, framework.value) and find_program(framework.value).kind == "program")
    ):
        readers.insert(0, framework.value)
    stage = facts.get("training.zero_stage")
    if stage is not None and stage.value and stage.origin != "set" and "deepspeed" not in readers:
        readers.append("deepspeed")
    return [reader for reader in readers if find_program(reader).reads_keys or find_program(reader).kind == "engine"]


def _describe_gpu(facts: dict[str, Fact], rules: RuleSet) -> tuple[Skipped, ...]:
    """Fill in what the catalogue knows of a device that a facts file names; say so where it knows none of this name.

    A measured or reported device is left alone: its collector has asked the catalogue, and where it gives no memory, as under
    MIG that could not be read, the whole device's memory is not what a job can use. The capability, which one of AMD has none of,
    and that a torch which uses such a one is one for ROCm, hold whoever names it.
    """
    gpu, capability, build = facts.get("hardware.gpu"), "hardware.compute_capability", "runtime.torch_build"
    described = gpu is None or gpu.origin in {"measured", "reported"} or "hardware.memory_bytes" in facts
    known = facts.get(capability)
    if gpu is None or (described and known is not None and (known.value is not None or build in facts)):
        return ()
    from compatcheck.collectors.machine.catalogue import build_catalogue, find_gpus, suggest  # noqa: PLC0415 (only with a named device)

    catalogue = build_catalogue(rules.section("gpus") or {})
    found = find_gpus(str(gpu.value), catalogue)
    if len({device.compute_capability for device in found}) == 1:
        value = found[0].compute_capability
        note = "a device of AMD has none" if value is None else f"{found[0].name} in the catalogue"
        facts.setdefault(capability, Fact(capability, value, "derived", gpu.sources, note))
        if value is None:
            facts.setdefault(build, Fact(build, "rocm", "derived", gpu.sources, "a device of AMD"))
    if described:
        return ()
    if len(found) != 1:
        near = [device.name for device in found] or suggest(str(gpu.value), catalogue)
        hint = (
            f"did you mean {', '.join(near)}?"
            if near
            else "state hardware.memory_bytes and compute_capability beside it"
        )
        reason = f"device {str(gpu.value)!r} {'comes in several sizes' if found else 'is not in the catalogue'}"
        return (Skipped(gpu.sources[0] if gpu.sources else Source(gpu.name), reason, hint, named=True),)
    for name in ("memory_bytes", "multiprocessors"):
        value = getattr(found[0], name)
        if value is not None:
            facts.setdefault(
                f"hardware.{name}",
                Fact(f"hardware.{name}", value, "derived", gpu.sources, f"{found[0].name} in the catalogue"),
            )
    return ()


def _leave_out_declared(
    skipped: tuple[Skipped, ...], hardware: Sequence[tuple[Hardware, bool]], settings: Mapping[str, object]
) -> Iterator[Skipped]:
    """Leave out what could not be read of the machine where the person has declared it."""
    for entry in skipped:
        _, of_hardware, field = (entry.fact or "").partition("hardware.")
        declared = of_hardware and any(getattr(device, field, None) is not None for device, said in hardware if said)
        if not declared and entry.fact not in settings:
            yield entry


def _claim_hardware(device: Hardware, rank: int, claims: dict[str, list[Claim]]) -> None:
    for name in (
        "gpu",
        "memory_bytes",
        "compute_capability",
        "multiprocessors",
        "gpus_per_node",
        "nodes",
        "driver",
        "host_memory_bytes",
        "nvlink",
    ):
        value = getattr(device, name)
        if value is not None:
            source = device.sources.get(name, device.source)
            standing = LOOKED_UP if name in device.catalogued else rank
            claims.setdefault(f"hardware.{name}", []).append(Claim(standing, "hardware", value, source))
    if rank != DECLARED or not device.gpus_per_node or not device.nodes:
        return
    ranks = device.gpus_per_node * device.nodes
    devices = next((claim.value for claim in claims.get("hardware.devices_per_rank", ())), 1)
    each = devices if isinstance(devices, int) else 1
    spreads = any(claim.value in SPREADING for claim in claims.get("model.device_map", ()))
    if spreads and [claim.value for claim in claims.get("hardware.world_size", ())] == [1]:
        return  # one process has all of them
    if "nodes" in device.catalogued:  # nobody said how many: a launcher's number of nodes or of more processes stands
        started = [claim.value for claim in claims.get("hardware.world_size", ()) if isinstance(claim.value, int)]
        nodes = [claim.value for claim in claims["hardware.nodes"] if claim.rank != LOOKED_UP]
        ranks = device.gpus_per_node * next((number for number in nodes if isinstance(number, int)), 1)
        if ranks > device.gpus_per_node == max(started, default=0) * each:  # those of all nodes were counted
            own = claims.pop("hardware.gpus_per_node")[:-1]
            claims.update({"hardware.gpus_per_node": own} if own else {})
            return
        if (not started and each == 1) or max(started, default=0) > ranks:
            return
        if started and [claim.value for claim in claims.get("rollout.colocated", ())] == [False]:
            return  # the engine has the others
    ranks = ranks // each if ranks % each == 0 else ranks
    claims.setdefault("hardware.world_size", []).append(Claim(rank, "hardware", ranks, device.source))


def _claim_environment(environment: Environment, claims: dict[str, list[Claim]]) -> None:
    def claim(name: str, value: Value, source: Source, rank: int = INSTALLED) -> None:
        claims.setdefault(name, []).append(Claim(rank, "environment", value, source))

    place = Source(environment.origin)
    for name, (value, source) in environment.facts.items():
        rank = REPORTED if name.startswith("hardware.") else INSTALLED
        claim(name, value, source, rank)  # type: ignore[arg-type]  # collectors state vocabulary values
    if environment.python is not None:
        claim("runtime.python", environment.python, place)
    for component in ("cudnn", "nccl", "cublas", "triton"):
        package = environment.components.get(component) or environment.packages.get(component)
        if package is not None and package.version is not None and not package.is_optional:
            claim(f"runtime.{component}", package.version, package.source)
    driver = environment.components.get("driver")
    if driver is not None and driver.version is not None:
        claim("hardware.driver", driver.version, driver.source)
    if environment.complete and "peft" not in environment.packages and "transformers" in environment.packages:
        claim("training.peft", None, Source(f"peft is not in {environment.origin}"))
    for kind in DAMAGE:
        known = environment.complete or kind in {"contradictory", MISFIT, BY_PINS, UNLIKE, UNEQUAL}
        if known and not any(damage.kind == kind for damage in environment.damage):
            claim(f"environment.{kind}", (), place)


DAMAGE = ("duplicated", "mismatched", "pip_over_conda", "contradictory", MISFIT, BY_PINS, UNLIKE, UNEQUAL)
"""Kinds of damage that are facts."""


def _contradictions(environment: Environment | None) -> Iterator[Conflict]:
    """List the requirements that exclude each other, each with its place."""
    for damage in environment.damage if environment is not None else ():
        if damage.kind == "contradictory":
            values = tuple(zip(damage.statements, damage.sources, strict=True))
            yield Conflict(version_need(damage.package), values)


def _find_damage(environment: Environment, scope: FactScope) -> tuple[Damage, ...]:
    """Return what is wrong with an environment: what its collector found, and releases that do not go together."""
    found = (*environment.damage, *find_misfits(scope))
    return (*found, *find_refused(environment, scope.rules, found))


def _describe_damage(found: Sequence[Damage], facts: dict[str, Fact]) -> None:
    """State what is damaged, with every place and the versions in words."""
    for kind in DAMAGE if found else ():
        damaged = [damage for damage in found if damage.kind == kind]
        stated = facts.get(f"environment.{kind}")
        if damaged and (stated is None or stated.origin not in {"set", "configuration"}):
            names = tuple(sorted({damage.package for damage in damaged}))
            sources = tuple(dict.fromkeys(source for damage in damaged for source in damage.sources))
            details = "; ".join(dict.fromkeys(damage.detail for damage in damaged))
            facts[f"environment.{kind}"] = Fact(f"environment.{kind}", names, "derived", sources, details)
