"""Merge what the inputs state: one value per fact by precedence, the others kept as alternatives, clashes kept as conflicts."""

from collections.abc import Iterable, Mapping, Sequence

from compatcheck.core.document import AUTO, MISSING, Document, Statement, Unresolved, enclosing_keys
from compatcheck.core.facts import Fact, Value
from compatcheck.core.named_tuple import NamedTuple
from compatcheck.core.redaction import redact
from compatcheck.core.source import Source
from compatcheck.resolution.subject import Conflict
from compatcheck.rules.programs import find_program

SETTING, DECLARED, CODE, SCRIPT, FRAMEWORK, FIELD, LIBRARY, MODEL, INSTALLED, REPORTED, MEASURED, LOOKED_UP = range(12)
"""Ranks of precedence, strongest first: ``--set``, an option such as ``--gpu``, what the code of a
training script sets, which runs behind any parser of options, a launch script, the framework's configuration, what the fields
of a script's own classes hold where neither says anything, a DeepSpeed or accelerate file, the model's own files, package
metadata, a pasted report, a device query, the catalogue's row of the device that was found."""

ORIGIN_BY_RANK = (
    "set",
    "declared",
    "configuration",
    "script",
    "configuration",
    "configuration",
    "configuration",
    "model",
    "installed",
    "reported",
    "measured",
    "derived",
)

_RANK_BY_KIND = {"script": SCRIPT, "library": LIBRARY, "model": MODEL}
"""Records that are not of a framework's own configuration, by their kind."""

DECIDED_BY_DEEPSPEED = {"training.optimizer"}
"""An ``optimizer`` section replaces what the trainer's own arguments ask for, without a comparison
(``transformers/integrations/deepspeed.py``, ``deepspeed_optim_sched``)."""

TAKEN_FROM_DEEPSPEED = {"training.gradient_accumulation_steps"}
"""What ``Accelerator()`` of a loop of one's own takes from DeepSpeed's configuration in place of its argument, without a stop
(``ACCELERATE_GRADIENT_ACCUMULATION_STEPS`` in ``accelerate/accelerator.py``, 0.27.2 to 1.15.0). What its file states stays:
``_prepare_deepspeed()`` of 1.6.0 fills in ``auto`` alone (``must_match=False``), and DeepSpeed's engine takes its steps by it."""

_OF_OWN_LOOPS = frozenset({"accelerate", "deepspeed", "script", "set"})
"""Readers of what a run states that has no Trainer."""

LEFT_TO_ACCELERATE = {"training.mixed_precision": "no"}
"""What the HF Trainer's arguments say where they leave a fact to the file of ``accelerate launch``: ``bf16: false`` does not take
``ACCELERATE_MIXED_PRECISION`` back (``transformers/training_args.py``, ``mixed_precision_dtype``)."""


class Claim(NamedTuple):
    """One statement with its rank."""

    rank: int
    reader: str
    value: object
    """A vocabulary value, or ``AUTO``."""
    source: Source
    becomes_deepspeeds: bool = False
    """Its program makes DeepSpeed's configuration of it."""

    @property
    def of_deepspeed(self) -> bool:
        """Whether it is part of DeepSpeed's configuration."""
        return self.becomes_deepspeeds or self.reader == "deepspeed"


class Merged(NamedTuple):
    """The outcome of merging."""

    facts: dict[str, Fact]
    automatic: dict[str, Source]
    """Facts whose only statement is ``auto``."""
    conflicts: tuple[Conflict, ...]


def claims_of(documents: Iterable[Document], role: str | None = None) -> dict[str, list[Claim]]:
    """Collect what documents state, by fact.

    Args:
        documents: of one subject.
        role: whose facts are wanted; what documents of a program say about this role alone replaces what they say about all.
    """
    claims: dict[str, list[Claim]] = {}
    documents = tuple(documents)
    own = {
        (document.reader, one.fact)
        for document in documents
        for one in _said_by(document)
        if role is not None and one.role == role
    }
    made_of = _find_deepspeed_keys(documents)
    has_model = any(document.reader in {"model", MISSING} and _is_about(document, role) for document in documents)
    for document in documents:
        if document.reader == "model" and has_model and not _is_about(document, role):
            continue
        rank = _rank(document)
        for statement in document.statements:
            wanted = statement.role == role or (statement.role is None and (document.reader, statement.fact) not in own)
            if statement.fact is not None and wanted:
                source = document.place(statement.key)
                value = redact(statement.value) if isinstance(statement.value, str) else statement.value
                becomes = document.of_code is None and _is_of(statement.key, made_of.get(document.reader, frozenset()))
                claims.setdefault(statement.fact, []).append(Claim(rank, document.reader, value, source, becomes))
    return claims


def _find_deepspeed_keys(documents: Sequence[Document]) -> Mapping[str, frozenset[str]]:
    """Return by reader the keys that a program makes DeepSpeed's configuration of in this run.

    It does not where it spreads the state in another way, or where DeepSpeed has a file of its own.
    """
    if any(document.reader == "deepspeed" for document in documents):
        return {}
    found: dict[str, frozenset[str]] = {}
    for reader in {document.reader for document in documents}:
        section, *others = find_program(reader).deepspeed_keys or ("",)
        stated = [one for document in documents if document.reader == reader for one in document.statements]
        asked = any(_is_of(one.key, frozenset((section,))) for one in stated)
        if asked and not any(one.fact == "training.sharding" for one in stated):
            found[reader] = frozenset((section, *others))
    return found


def _said_by(document: Document) -> tuple[Statement | Unresolved, ...]:
    return (*document.statements, *document.unresolved)


def _is_about(document: Document, role: str | None) -> bool:
    """Tell whether a document says something about one role alone."""
    return role is not None and any(statement.role == role for statement in document.statements)


def withdraw(claims: dict[str, list[Claim]], documents: Iterable[Document], role: str | None = None) -> None:
    """Take back weaker statements of facts that a document sets to something nobody can tell: that value would win.

    So they are of options that code sets anew, whatever these say together with others: ``bf16`` and ``fp16``. What a field
    holds by default says nothing where its option is given, whatever facts the two values are about.
    """
    documents = tuple(documents)
    if any(document.of_fields for document in documents):
        given = {one.key for document in documents if _rank(document) < FIELD for one in _said_by(document)}
        for fact, stated in tuple(claims.items()):
            if all(claim.rank == FIELD and claim.source.key in given for claim in stated):
                del claims[fact]
    for document in documents:
        anew = document.of_code or frozenset()
        for fact, stated in tuple(claims.items()) if anew else ():
            if all(claim.rank != CODE for claim in stated):
                _keep(
                    claims, fact, [one for one in stated if not (one.rank in _REACHED and _is_of(one.source.key, anew))]
                )
        entries: tuple[Statement | Unresolved, ...] = (*document.unresolved, *document.doubtful)
        for entry in entries:
            rank = _rank(document) if document.of_code is None or _is_of(entry.key, anew) else FRAMEWORK
            if entry.fact in claims and entry.role in (None, role):
                _keep(claims, entry.fact, [claim for claim in claims[entry.fact] if claim.rank <= rank])


_REACHED = {SCRIPT, FRAMEWORK, FIELD}
"""Ranks of what code that runs behind it may set anew."""


def _is_of(key: str | None, keys: frozenset[str]) -> bool:
    """Tell whether a key is one of some, or lies in one of them."""
    return key is not None and (key in keys or not keys.isdisjoint(enclosing_keys(key)))


def _keep(claims: dict[str, list[Claim]], fact: str, kept: list[Claim]) -> None:
    claims[fact] = kept
    if not kept:
        del claims[fact]


def drop_stand_ins(documents: Sequence[Document]) -> Sequence[Document]:
    """Leave out files that nobody named where one that is named is missing: what that would decide, they do not."""
    missing = {entry.fact for document in documents if document.reader == MISSING for entry in document.unresolved}
    return [
        document
        for document in documents
        if document.named or _rank(document) != LIBRARY or missing.isdisjoint(one.fact for one in document.statements)
    ]


def _rank(document: Document) -> int:
    if document.of_code is not None:
        return CODE
    if document.is_command:
        return SCRIPT
    if document.reader == MISSING:
        return LIBRARY
    if document.of_fields:
        return FIELD
    return _RANK_BY_KIND.get(find_program(document.reader).kind, FRAMEWORK)


def merge(claims: Mapping[str, list[Claim]]) -> Merged:
    """Choose one value per fact."""
    facts: dict[str, Fact] = {}
    automatic: dict[str, Source] = {}
    conflicts = []
    for name, stated in claims.items():
        left = any(claim.reader == "accelerate" for claim in stated)
        readers = {claim.reader for claim in stated}
        taken = (left or "deepspeed" in readers) and name in TAKEN_FROM_DEEPSPEED and _OF_OWN_LOOPS.issuperset(readers)
        explicit = sorted(
            (claim for claim in stated if claim.value is not AUTO),
            key=lambda claim: _order(name, claim, left=left, taken=taken),
        )
        if not explicit:
            automatic[name] = stated[0].source
            continue
        best = explicit[0]
        agreeing = tuple(claim.source for claim in explicit if claim.value == best.value)
        others: tuple[tuple[Value, Source], ...] = tuple(
            (claim.value, claim.source)  # type: ignore[misc]  # explicit claims hold vocabulary values
            for claim in explicit
            if claim.value != best.value
        )
        note = best.source.path if best.rank == LOOKED_UP else None
        facts[name] = Fact(name, best.value, ORIGIN_BY_RANK[best.rank], agreeing, note, others)  # type: ignore[arg-type]
        differing = [claim for claim in explicit if claim.value != best.value and name not in DECIDED_BY_DEEPSPEED]
        made = [claim for claim in explicit if claim.becomes_deepspeeds]  # of which the strongest counts
        compared = [claim for claim in differing if claim not in made[1:] and _is_compared(name, best, claim)]
        taken &= best.of_deepspeed
        clash = [claim for claim in differing if taken or claim in compared or _must_agree(best, claim)]
        if clash:
            values = ((best.value, best.source), *((claim.value, claim.source) for claim in clash))
            conflicts.append(Conflict(name, values, refused=bool(compared)))  # type: ignore[arg-type]
    return Merged(facts, automatic, tuple(conflicts))


def _order(fact: str, claim: Claim, *, left: bool, taken: bool) -> tuple[int, int]:
    """Order claims strongest first; among equals the first one stays first. What is left to accelerate comes behind its file."""
    if taken and claim.of_deepspeed:
        return CODE, claim.rank - LOOKED_UP
    of_trainer = claim.reader != "accelerate" and claim.rank in {CODE, SCRIPT, FRAMEWORK, FIELD}
    if left and of_trainer and LEFT_TO_ACCELERATE.get(fact, AUTO) == claim.value:
        return LIBRARY, 2
    if fact in DECIDED_BY_DEEPSPEED and claim.reader == "deepspeed":
        return CODE, 0
    return claim.rank, 1


def _must_agree(best: Claim, other: Claim) -> bool:
    """Tell whether two differing claims of one rank are a mistake and not an override."""
    return best.rank == other.rank and best.rank in {CODE, FRAMEWORK, LIBRARY} and best.source.path != other.source.path


def is_left_out(fact: str, value: object) -> bool:
    """Tell whether a value of the Trainer's arguments leaves what accelerate has for DeepSpeed: its 16 bits replace any other."""
    return LEFT_TO_ACCELERATE.get(fact, value) == value


def _is_compared(fact: str, best: Claim, other: Claim) -> bool:
    """Tell whether one of two claims is of DeepSpeed's configuration and the other of a program that compares itself with it."""
    return any(
        claim.of_deepspeed
        and claim.reader != trainer.reader
        and find_program(trainer.reader).reconciles_deepspeed
        and (not claim.becomes_deepspeeds or is_left_out(fact, trainer.value))
        for claim, trainer in ((best, other), (other, best))
    )
