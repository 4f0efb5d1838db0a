"""Python training scripts: literals given to the classes that decide about memory, by ``ast`` alone.

A keyword that is no literal is listed as not known, never taken for its default; nor is what code that is not read may set
(`changes`). Where a call may be given further keywords (``**arguments``), or the script gets its arguments from a command line,
no default of a left-out keyword applies.
"""

from __future__ import annotations

import ast
import re
import sys
from functools import lru_cache
from typing import TYPE_CHECKING

from compatcheck.core.document import TAKEN_AS_EMPTY, Document, Gap, Statement, Unresolved
from compatcheck.core.errors import InputError
from compatcheck.core.files import LOCAL, Files
from compatcheck.core.python_tree import nodes_of
from compatcheck.core.source import Skipped, Source
from compatcheck.core.textfile import read_bytes
from compatcheck.frameworks.accelerate import configuration as accelerate
from compatcheck.frameworks.deepspeed import configuration as deepspeed
from compatcheck.frameworks.hf_trainer import configuration as hf_trainer
from compatcheck.frameworks.hf_trainer.arguments import TRAINER_TABLE
from compatcheck.frameworks.keys import SILENT
from compatcheck.frameworks.launch.values import Argument
from compatcheck.frameworks.python_script.adapters import MODEL_OPTIONS, PREPARES, find_own_adapter, names_none
from compatcheck.frameworks.python_script.autograd import applies_autograd_function
from compatcheck.frameworks.python_script.by_hand import tell_by_hand
from compatcheck.frameworks.python_script.calls import KEPT, Call, Given, Script, parse_script, too_deep
from compatcheck.frameworks.python_script.casts import find_float32_cast
from compatcheck.frameworks.python_script.changes import (
    ADAPTERS,
    ASKED_BY_FORWARD,
    CHECKPOINTING,
    DTYPES,
    KERNELS,
    LOSS,
    OF_STEP,
    TRAINABLE,
    Change,
    Changes,
)
from compatcheck.frameworks.python_script.constants import with_constants
from compatcheck.frameworks.python_script.forwards import take_forwards
from compatcheck.frameworks.python_script.handed_on import HandedOn, find_handed_on, parse_started
from compatcheck.frameworks.python_script.loops import (
    has_loop,
    loops_over_loaded,
    take_made,
    tell_loop,
    tell_of_accelerator,
)
from compatcheck.frameworks.python_script.meanings import (
    ARGUMENTS,
    TAKERS,
    TRAINERS,
    TRL_CONFIGS,
    Findings,
    leave_to_loading,
    of_loading,
    take_call,
    take_change,
)
from compatcheck.frameworks.python_script.nodes import PARSERS, defaults_of, dotted_name, parses
from compatcheck.frameworks.python_script.notebook import read_source
from compatcheck.frameworks.python_script.objects import ADAPTER_CONFIGS, Kind, Objects, import_lines
from compatcheck.frameworks.python_script.own_options import find_own_options
from compatcheck.frameworks.python_script.parsed_classes import (
    ParsedClass,
    find_imported,
    find_parsed_classes,
    find_trainer_classes,
)
from compatcheck.frameworks.python_script.repeated import builds_again, keeps_model
from compatcheck.frameworks.sglang import command as sglang
from compatcheck.frameworks.translation import translate
from compatcheck.frameworks.trl import configuration as trl
from compatcheck.frameworks.vllm import command as vllm

if TYPE_CHECKING:
    from collections.abc import Container, Iterator, Mapping

    from compatcheck.frameworks.keys import Key


_DECIDES = {
    "fsdp": ("training.sharding", "training.fsdp_offload_params"),
    "gradient_checkpointing_kwargs": ("training.use_reentrant",),
    "peft_config": ("training.peft",),
}
"""Arguments that have no meaning of their own, and the facts that they decide."""
_OPTIONS = frozenset(key.partition(".")[0] for key in hf_trainer.TABLE) | _DECIDES.keys() | {"deepspeed"}
"""Arguments that have a meaning, or an entry that has one."""


_UNREAD_OF_UNSLOTH = frozenset({
    "model.attn_implementation", "training.use_liger_kernel", "training.use_reentrant", "training.packing",
    "training.padding_free",
})  # fmt: skip
"""What Unsloth decides whatever TRL's arguments say, in ways nobody put down: it removes padding by itself from 2025.12 on."""


_LENGTHS = frozenset({"training.max_prompt_length", "training.max_response_length", "training.sequence_length"})
_OF_TRAINER = ADAPTERS | DTYPES | KERNELS | OF_STEP | _LENGTHS | {"model.use_cache", "training.reference_model"}
"""What a trainer decides beside what the Trainer that it is built upon does with its arguments."""
STANDBY = "UNSLOTH_VLLM_STANDBY"
_CONFIGURATIONS = frozenset({"config", "text_config", "model_config"})
"""What a script calls the configuration of its model."""
_STARTS = re.compile(
    rb"^(?:if[ \t]+__name__\b|(?!class\b|def\b|from\b|import\b|async\b|[@#\s\"'])[^#\n]*"
    rb"(?:Trainer\(|Fabric\(|\.train\(|Accelerator\(|initialize\(|\bmain\())",
    re.MULTILINE,
)
"""What stands at the left edge of a script that starts something: a module of a library has none of it."""
_TRAINS = re.compile(
    rf"(?:Trainer|Fabric|Accelerator|deepspeed\.initialize|FSDP|FullyShardedDataParallel|{'|'.join(sorted(ARGUMENTS))})\("
    r"|^class[^\n]*Trainer\b".encode(),
    re.MULTILINE,
)
_CONVERTS = re.compile(
    rb"^(?!def\b|[#\s])[^\n#]*(?:convert_zero_checkpoint_to_fp32_state_dict|fp32_state_dict_from_zero_checkpoint)\(",
    re.MULTILINE,
)
"""What merges the checkpoints of ranks at the left edge, which is a run as well."""
_LOOPS = re.compile(rb"\.backward\(")
"""What a loop of its own has beside."""
_LOOP_AT_EDGE = re.compile(rb"^(?:for|while)\b", re.MULTILINE)
_MAKES_TRAINER = re.compile(
    r"^[ \t]*from[ \t]+(?!trl\b|transformers\b|unsloth\b)[\w.]+[ \t]+import\b[^\n]*(?:\w+Trainer\b|\(|\b[A-Z][A-Z_]+\b)",
    re.MULTILINE,
)
"""What a script has that may take a trainer or a constant from a module of its project."""


_SPEAKS = re.compile(
    rb"(?i)(?<!pre)(?<!pre[-_])train(?:er|ing|\w*\()|tun(?:e|ing)|Accelerator|\.backward\(|deepspeed\.init|fsdp|\bLLM\("
)
"""What stands somewhere in every script that trains, or starts vLLM's engine: one that only loads a model converts or asks it,
and data has parts that are called `train`, too."""


def may_train(path: str, files: Files = LOCAL) -> bool:
    """Tell whether a script of Python speaks of training at all, or of an engine.

    Raises:
        InputError: it cannot be read.
    """
    return _SPEAKS.search(read_bytes(path, files)) is not None


def starts_training(path: str, files: Files = LOCAL, *, told: bool) -> bool:
    """Tell by some words whether a file of Python is a script that trains, where nobody named it.

    Args:
        path: the file.
        files: the tree it lies in.
        told: whether its name says that it trains: then it may do so in a loop of its own.

    Raises:
        InputError: it cannot be read.
    """
    content = read_bytes(path, files).replace(b"\r", b"\n")  # Python takes either for the end of a line
    if _CONVERTS.search(content):
        return True
    trains = _TRAINS.search(content) or (told and _LOOPS.search(content))
    return bool(trains) and (_STARTS.search(content) or (told and _LOOP_AT_EDGE.search(content))) is not None


def starts_something(path: str, files: Files = LOCAL) -> bool:
    """Tell whether a script calls anything: one that does, and of whose run nothing is read, hands it on.

    Raises:
        InputError: not readable, or no Python.
    """
    return bool(_parse(path, files)[0].calls())


def read(
    path: str,
    files: Files = LOCAL,
    *,
    named: bool = True,
    launched: bool = False,
    passed: Mapping[str, object] | None = None,
) -> tuple[Document, ...]:
    """Read a training script.

    Args:
        path: the script.
        files: the tree it lies in.
        named: whether the person named it; any other may say nothing.
        launched: whether a command that was read starts it.
        passed: options that this command gives it, None where it may give any.

    Raises:
        InputError: not readable, no Python, or (when named) a script that trains nothing this release knows.
    """
    try:
        return _read(path, files, named=named, launched=launched, passed=passed)
    except RecursionError:  # the parser goes somewhat deeper than those that look at what it made
        raise too_deep(path) from None


def find_parsed(path: str, files: Files = LOCAL) -> str | None:
    """Return the reader of the arguments that a script has parsed from its command line; None for a parser of its own.

    Raises:
        InputError: not readable, or no Python.
    """
    try:
        plain = _find_parsed_plainly(path, files)
        if plain is not None:
            return plain
        script, objects = _parse(path, files)
        if PARSERS & script.names:
            return _find_parsed(script, objects) or _find_parsed_elsewhere(script, path, files)
        handed = find_handed_on(script, objects, path, files)
        started = (_find_parsed(*_parse_handed(one, files)) for one in handed)
        return next(filter(None, started), None)
    except RecursionError:
        raise too_deep(path) from None


def _find_parsed_plainly(path: str, files: Files) -> str | None:
    """Return the reader of arguments whose classes alone tell it, without following what the script does."""
    text = read_source(path, files)
    if not any(name in text for name in PARSERS):
        return None
    tree = parse_script(text, path)
    bases = {base for one in find_parsed_classes(tree, path, files) for base in one.roots}
    if bases & TRL_CONFIGS.keys():
        return trl.READER
    of_trl = any(path.partition(".")[0] == trl.READER for _, path in import_lines(tree))
    return hf_trainer.READER if bases & ARGUMENTS and not of_trl else None


def _find_parsed(script: Script, objects: Objects) -> str | None:
    for call in script.calls():
        if call.name in PARSERS:
            classes = set(objects.classes_in(call.node.args, call.scope, ARGUMENTS | objects.unread))
            if classes:
                return trl.READER if classes & (TRL_CONFIGS.keys() | objects.unread) else hf_trainer.READER
    return None


def _find_parsed_elsewhere(script: Script, path: str, files: Files) -> str | None:
    """Return the reader of arguments whose classes stand in other modules of the project."""
    bases = {base for one in find_parsed_classes(script.tree, path, files) if one.nodes for base in one.roots}
    return trl.READER if bases & TRL_CONFIGS.keys() else hf_trainer.READER if bases & ARGUMENTS else None


def _parse(
    path: str, files: Files, passed: Mapping[str, object] | None = None, *, launched: bool = False
) -> tuple[Script, Objects]:
    text = read_source(path, files)
    if passed or len(text) > KEPT or (launched and passed is not None) or _MAKES_TRAINER.search(text):
        tree = with_constants(parse_script(text, path), path, files)
        classes, trainers = find_parsed_classes(tree, path, files), find_trainer_classes(tree, path, files)
        return _read_tree(tree, passed, launched=launched, classes=classes, trainers=trainers)
    return _parse_text(text, path, told=passed is not None)


@lru_cache(maxsize=8)  # many launch scripts start the same few programs
def _parse_text(text: str, path: str, *, told: bool) -> tuple[Script, Objects]:
    return _read_tree(parse_script(text, path), {} if told else None)


def _parse_handed(
    handed: HandedOn, files: Files, passed: Mapping[str, object] | None = None, *, launched: bool = False
) -> tuple[Script, Objects]:
    tree = parse_started(read_source(handed.path, files), handed.path, handed.calls)
    classes, trainers = (find(tree, handed.path, files) for find in (find_parsed_classes, find_trainer_classes))
    return _read_tree(tree, passed, launched=launched, classes=classes, trainers=trainers)


def _read_tree(
    tree: ast.Module,
    passed: Mapping[str, object] | None,
    *,
    launched: bool = False,
    classes: tuple[ParsedClass, ...] = (),
    trainers: tuple[ParsedClass, ...] = (),
) -> tuple[Script, Objects]:
    filled = {one.name: [node for _, node in one.nodes] for one in classes}
    script = Script(tree, find_own_options(nodes_of(tree), passed, launched=launched, classes=filled))
    elsewhere = [(one.name, one.roots, [node for _, node in one.nodes]) for one in trainers]
    known = TAKERS.keys()
    return script, Objects(script, trainers=TRAINERS, arguments=ARGUMENTS, known=known, elsewhere=elsewhere)


def _read(
    path: str, files: Files, *, named: bool, launched: bool, passed: Mapping[str, object] | None
) -> tuple[Document, ...]:
    passed = passed if launched else {}
    script, objects = _parse(path, files, passed, launched=launched)
    found = _find(path, script, objects, launched=launched)
    if found.is_empty:
        for handed in find_handed_on(script, objects, path, files):
            other = _parse_handed(handed, files, passed, launched=launched)
            beyond = _find(handed.path, *other, launched=launched)
            if not beyond.is_empty:
                beyond.gaps += [one for one in found.gaps if one.source.line not in handed.lines]
                path, found, (script, objects) = handed.path, beyond, other
                break
    known = launched and (found.foreign or _find_parsed_elsewhere(script, path, files) is not None)
    if found.is_empty and not known:
        if found.made.engines:
            return (_serve(found),)
        if named:
            msg = "starts no training this release can see"
            hint = "it looks for a Trainer, its arguments, FSDP, DeepSpeed, accelerate, vLLM's LLM and SGLang's Engine"
            raise InputError(msg, source=Source(path), hint=hint)
        return ()
    documents = tuple(_documents(found, script, launched=launched))
    if not launched and not PARSERS.isdisjoint(script.names):
        return documents  # nobody knows what the command says
    own = _own_defaults(script, objects, path, files)
    return (*documents, *(map(_without_lengths, own) if found.foreign and not found.trainers else own))


def _serve(found: Findings) -> Document:
    """Read a script that trains nothing and starts an inference engine, whose class takes the keys of its server."""
    (reader, call), *others = found.made.engines
    given = {**dict(zip(("model",), call.positional, strict=False)), **call.keywords}
    options = {
        key: Argument(one.value, one.line, one.why)
        for key, one in given.items()
        if one.why is not None or one.value is not None
    }
    source = found.source._replace(line=call.line)
    open_ones = (
        (call.is_open, f"gives {call.name} arguments that are no literals (`**`)"),
        (others, "starts further engines"),
    )
    gaps = tuple(Gap(source, why) for is_open, why in open_ones if is_open)
    if call.condition is not None:
        gaps += (Gap(source, f"starts the engine only if {call.condition}"),)
    return _SERVERS[reader](found.source, options, gaps)


_SERVERS = {"sglang": sglang.read_call, "vllm": vllm.read_call}


def _find(path: str, script: Script, objects: Objects, *, launched: bool) -> Findings:
    """Gather what the calls and assignments of a script say."""
    source = Source(path)
    found = Findings(source, objects)
    for call in script.calls():
        take_call(call, found)
    leave_to_loading(found)
    if _find_parsed(script, objects) is not None:
        found.calls.pop("", None)
    parsed = script.parsed()
    for one in script.assignments():
        if one.given.line > objects.trained.get(one.scope, sys.maxsize):
            continue  # training is over
        owner, kind, given = dotted_name(one.owner), objects.kind(one.owner, one.scope), one.given
        if one.name in ASKED_BY_FORWARD and (kind is Kind.CONFIG or owner.rpartition(".")[2] in _CONFIGURATIONS):
            found.take_field(one)
        elif kind is Kind.OPTIONS or (kind is Kind.ARGUMENTS and owner in parsed):  # those may be of any class
            if one.name in _OPTIONS:
                found.set(one.name, given, one.value, one)
        elif kind is Kind.ARGUMENTS and not found.is_unused(one.owner, one.scope):
            found.set(one.name, given, one.value, one)
        else:
            take_change(one, found)
    take_forwards(found)
    converts = next((one for one in script.calls() if one.name in _CONVERTS_ZERO), None)
    if converts is not None:
        stated = Statement("run.converts_zero_checkpoint", converts.name, value=True)
        found.statements[converts.name] = (stated, converts.line)
    if found.makes_optimizer:
        found.values.pop("optim", None)
    if not (found.trainers or found.foreign or found.has_arguments or found.is_empty) and has_loop(script):
        take_made(found)
    found.changes += [*Changes(objects).find(), *_of_unsloth(found)]
    _take_standby(found)
    adapters = found.values.get("use_peft")
    if (
        adapters is not None and adapters.why is None
    ):  # these freeze all else (peft 0.15.2 _mark_only_adapters_as_trainable)
        found.changes = [one for one in found.changes if one.facts is not TRAINABLE or one.may_replace(adapters.line)]
    found.gaps += [
        Gap(source._replace(line=one.line), one.why, facts=one.facts, anew=one.surely)
        for one in dict.fromkeys(sorted(found.changes, key=lambda change: change.line))
    ]
    if script.options is not None and script.asked and not launched:
        why = f"parses options of its own; {TAKEN_AS_EMPTY}"
        found.gaps.append(Gap(source._replace(line=script.options.line), why, assumed=True))
    return found


def _imports_unsloth(found: Findings) -> int | None:
    """Return the line in which a script imports Unsloth, which writes TRL's trainers anew; None where it does not."""
    lines = import_lines(found.objects.script.tree)
    return next((line for line, path in lines if path.partition(".")[0] == "unsloth"), None)


def _take_standby(found: Findings) -> None:
    """Take whether the engine that Unsloth starts sleeps between rollouts: the variable is read where it is imported."""
    for node, _, condition in found.objects.script.visited:
        match node:
            case ast.Assign(
                targets=[ast.Subscript(value=owner, slice=ast.Constant(value=name))], value=ast.Constant(value="1")
            ) if name == STANDBY and dotted_name(owner) == "os.environ" and condition is None:
                found.statements[STANDBY] = (Statement(None, STANDBY, "1"), node.lineno)
                found.lines[STANDBY] = node.lineno


def _of_unsloth(found: Findings) -> Iterator[Change]:
    """Yield what Unsloth changes, where a script imports it, that neither its record nor a formula says."""
    line = _imports_unsloth(found)
    if line is not None:
        facts = _UNREAD_OF_UNSLOTH if found.is_of_trl else _UNREAD_OF_UNSLOTH | CHECKPOINTING | DTYPES
        why = "trains with unsloth, whose kernels for attention, blocks and losses other than SFT's are not modelled"
        yield Change(line, why, facts if found.trainers.keys() == {"sft"} else facts | LOSS, 0)


def _own_defaults(script: Script, objects: Objects, path: str, files: Files) -> Iterator[Document]:
    """Yield what the project's own classes of arguments set where a command says nothing: ``bf16: bool = True``.

    Where a parser says which classes it fills, those alone, with what they are built on, wherever they stand.
    """
    parsed = find_parsed_classes(script.tree, path, files)
    known = [one for one in parsed if one.nodes or one.roots & ARGUMENTS]
    of_model = frozenset({MODEL_OPTIONS}) if any(one.roots & TRL_CONFIGS.keys() for one in known) else frozenset[str]()
    unused = _Unused(path, files)
    if not any(one.roots & ARGUMENTS for one in known):
        for name, node in objects.classes.items():
            if (base := objects.base_of(name, ARGUMENTS)) is not None:
                yield from _defaults_in(node, base, script, Source(path), unused)
    for one in known:
        for base in sorted(one.roots & (ARGUMENTS | of_model))[:1]:
            replaced: set[str] = set()
            for file, node in reversed(one.nodes):  # a field of a class wins over those that it is built on
                of = script if file == path else _parse(file, files)[0]
                yield from _defaults_in(node, base, of, Source(file), unused, replaced)
                replaced.update(name for name, _ in defaults_of(node))


def _without_lengths(document: Document) -> Document:
    """Take lengths for no more than a guess: a trainer of the project's own, which was not read, may cut nothing by them."""
    lengths = tuple(one for one in document.statements if one.fact in _LENGTHS)
    kept = tuple(one for one in document.statements if one not in lengths)
    return document._replace(statements=kept, doubtful=(*document.doubtful, *lengths))


class _Unused:
    """Which fields of a project's own classes nothing in it asks for: what they hold decides nothing."""

    def __init__(self, path: str, files: Files) -> None:
        self._left = find_imported(path, files)
        self._asked: list[frozenset[str]] = []

    def __contains__(self, name: str) -> bool:
        asks = {name, *_ASK_ALL}
        return all(map(asks.isdisjoint, self._asked)) and not any(not asks.isdisjoint(one) for one in self._more())

    def _more(self) -> Iterator[frozenset[str]]:
        """Yield what further modules ask for: attributes, and texts that may be names of some."""
        for tree in self._left:
            nodes = nodes_of(tree)
            names = {node.attr for node in nodes if isinstance(node, ast.Attribute)}
            texts = {node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)}
            calls = {node.func.id for node in nodes if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)}
            self._asked.append(frozenset(names | texts | (calls & _ASK_ALL)))
            yield self._asked[-1]


_ASK_ALL = frozenset({"asdict", "vars", "__dict__"})
"""Functions that give every field of an object, and the attribute that holds them."""


def _defaults_in(
    node: ast.ClassDef, base: str, script: Script, source: Source, unused: _Unused, replaced: Container[str] = ()
) -> Iterator[Document]:
    is_trl = base in TRL_CONFIGS or base == MODEL_OPTIONS
    table = hf_trainer.TRL_TABLE if is_trl else TRAINER_TABLE
    fields = {"deepspeed", *_DECIDES, *(key.partition(".")[0] for key in table)}
    own = {
        key: script.read(value, script.module)
        for key, value in defaults_of(node)
        if key in _OPTIONS and key not in replaced and (key in fields or base == MODEL_OPTIONS or key not in unused)
    }
    reader, lines = trl if is_trl else hf_trainer, {key: given.line for key, given in own.items()}
    known = {key: given.value for key, given in own.items() if given.why is None}
    for document in reader.read(known, source.path).documents if known else ():
        yield document._replace(lines=lines, of_fields=True)
    unresolved = tuple(_not_literal(own, hf_trainer.TABLE))
    if unresolved:
        yield Document(reader.READER, source, (), lines=lines, unresolved=unresolved, of_fields=True)


def _documents(found: Findings, script: Script, *, launched: bool) -> Iterator[Document]:
    trainers = {name: line for name, line in found.trainers.items() if name}
    from_command = not PARSERS.isdisjoint(script.names)
    if found.given is not None and not found.has_arguments and not from_command:
        found.gaps.append(
            Gap(
                found.source._replace(line=found.given.line),
                f"what the Trainer is given as its arguments {found.given.why}",
            )
        )
    known = {key: given.value for key, given in found.values.items() if given.why is None}
    translated: tuple[Document, ...] = ()
    if known:
        try:
            translated = (trl if trl.is_marked(known) else hf_trainer).read(known, found.source.path).documents
        except InputError as error:
            found.skipped.append(Skipped(found.source, error.message, error.hint))
    main = translated[0] if translated else Document("hf_trainer", found.source, ())
    of_trl = found.is_of_trl
    reader = ("trl" if _imports_unsloth(found) is None else "unsloth") if of_trl else "hf_trainer"
    is_trainer = bool(found.trainers) or found.has_arguments
    if not is_trainer or (from_command and not (launched and of_trl)):
        reader = "script"
    by_lightning = found.lightning.tell(found.source, script.names)
    references = [(kind, name, key) for kind, name, key in main.references if kind != "deepspeed"]
    statements = [entry for entry in main.statements if not (of_trl and entry.fact == "training.trainer")]
    statements += _tell_trainer(found, trainers)
    statements += [statement for statement, _ in found.statements.values()]
    models = _model_reference(found)
    statements += [Statement(None, key, name) for _, name, key in models]
    references += (*models, *_teacher_reference(found))
    references += _deepspeed_reference(found)
    told = script.parsed() if launched else set()  # the options of the command say what these hold
    open_values = {
        key: given for key, given in found.values.items() if key in found.of_code or told.isdisjoint(given.names)
    }
    found.unresolved += _not_literal(open_values, hf_trainer.TABLE)
    if from_command and not launched:
        found.unresolved += _left_to_command(found)
    statements += (*_tell_of_run(found, script), *_tell_order(found, script))
    has_adapters = any(stated.fact == "training.peft" for stated in statements)
    statements += _tell_adapters(found, script, has_adapters=has_adapters)
    statements += tell_loop(found, script)
    asked = script.names if is_trainer or from_command else found.asked | script.decided
    yield main._replace(
        reader=reader,
        source=found.source,
        statements=tuple(one for one in statements if not _may_be_replaced(one, found)),
        doubtful=tuple(one for one in statements if _may_be_replaced(one, found)),
        unread=tuple((key, near) for key, near in main.unread if _is_worth_a_word(key, found)),
        skipped=(*main.skipped, *found.skipped),
        references=tuple(references),
        lines=found.lines,
        unresolved=(
            *main.unresolved,
            *(one for one in found.unresolved if one.key != "peft_config" or not has_adapters),
        ),
        gaps=(*main.gaps, *found.gaps),
        calls=found.calls,
        of_code=frozenset(known.keys() | found.of_code),
        of_others=frozenset(found.of_loading - found.of_arguments),
        table={
            **{key: meanings for key, meanings in main.table.items() if _is_taken(key, meanings, found)},
            **(of_loading(found) if found.of_loading else {}),
        },
        own_options=frozenset(script.options.values.keys() & asked if script.options and launched else ()),
        own_loop=launched and not (is_trainer or found.foreign or from_command) and has_loop(script),
    )
    for document in (*translated[1:], *found.documents):
        stands = tuple(one for one in document.statements if not _may_be_replaced(one, found))
        yield document._replace(lines=found.lines, statements=stands)
    accelerated = _accelerate(found, script)
    yield from (one for one in (accelerated, by_lightning) if one is not None)


def _tell_adapters(found: Findings, script: Script, *, has_adapters: bool) -> Iterator[Statement]:
    """Say what becomes of adapters, or that there are none."""
    merge = (_find_merge if has_adapters else _find_merge_of_loaded)(found, script)
    if has_adapters:
        yield Statement("run.inputs_require_gradients", "(inputs require gradients)", _gives_gradients(script))
        if not found.is_of_trl:
            yield from _tell_preparation(found, script)
    yield from _tell_cast(found, script, has_adapters=has_adapters)
    if merge is not None:
        found.lines[merge.name] = merge.line
        yield Statement("run.merges_adapter", merge.name, value=True)
    elif not has_adapters and _trains_as_loaded(found, script):
        (model,) = found.models.values()
        found.lines[_NO_ADAPTERS] = model.line
        yield Statement("training.peft", _NO_ADAPTERS, None)


def _tell_cast(found: Findings, script: Script, *, has_adapters: bool) -> Iterator[Statement]:
    """Say that the script has all that it trains in float32: adapters where they are there before."""
    line = find_float32_cast(script, found.objects)
    wraps = [call.line for call in script.calls() if call.name in _GIVES_ADAPTERS]
    if line is None or (has_adapters and not (wraps and max(wraps) < line)):
        return
    found.lines[_CAST] = line
    yield Statement("program.trained_dtype", _CAST, "float32")
    if has_adapters:
        yield Statement("program.adapter_dtype", _CAST, "float32")
    else:
        yield Statement("training.param_dtype", _CAST, "float32")


_CAST = "(cast to float32)"
_GIVES_ADAPTERS = {"get_peft_model", "add_adapter"}


def _tell_of_run(found: Findings, script: Script) -> Iterator[Statement]:
    """Say what calls tell of the run: whether it builds engines again or merges a checkpoint, and who gives it adapters."""
    again = _builds_again(found, script)
    if again is not None:
        yield again
    repeats = again is not None and again.value is True
    keeps = keeps_model(script.tree, {_BUILDS_ENGINE}) if repeats and "initialize" in script.names else None
    if keeps is not None:
        yield Statement("run.model_outlives_engine", _BUILDS_ENGINE, value=keeps)
    yield from tell_by_hand(script, gives_back=repeats or bool(found.made.engines) or has_loop(script))
    if applies_autograd_function(found.objects.classes):
        yield Statement("run.uses_autograd_function", "autograd.Function", value=True)
    own_adapter = find_own_adapter(script, found.objects)
    if own_adapter is not None:
        found.lines[own_adapter.name] = own_adapter.line
        yield Statement("run.adapters_through_model", own_adapter.name, value=True)
    elif found.trainers and not (found.unread or found.foreign or found.own_model) and names_none(script):
        yield Statement("run.adapters_through_model", _NO_OWN_ADAPTERS, value=False)


def _builds_again(found: Findings, script: Script) -> Statement | None:
    """Say whether what trains is built again in the process: an engine, what an Accelerator prepares, a Trainer."""
    told: dict[str, bool | None] = {}
    if "initialize" in script.names:
        told[_BUILDS_ENGINE] = builds_again(script.tree, {_BUILDS_ENGINE})
    for key, made in (("Accelerator", {"Accelerator"}), ("Trainer", found.objects.trainers.keys())):
        calls = [one.node for one in script.calls() if one.name in made and not found.objects.is_of_another(one.node)]
        functions = {dotted_name(one.func) for one in calls}
        if calls and key == "Accelerator":
            told[key] = builds_again(script.tree, {*functions, "accelerator.prepare"}, lets_go=True, parts=True)
        elif calls:
            told[key] = builds_again(script.tree, functions, lets_go=True)
        if calls and told[key] is not None:
            found.lines.setdefault(key, calls[0].lineno)
    again = [name for name, is_again in told.items() if is_again]
    if found.foreign or not (again or set(told.values()) == {False}):
        return None
    return Statement("run.repeated_initialize", [*again, *told][0], value=bool(again))


_GIVES_GRADIENTS = {"enable_input_require_grads", "make_inputs_require_grad", "make_inputs_require_grads"}
"""transformers' own method, and the hooks that documents of peft name."""


def _gives_gradients(script: Script) -> bool:
    """Tell whether a script has what the embeddings give require a gradient, or peft do it as checkpoints are there before."""
    if not _GIVES_GRADIENTS.isdisjoint(script.names):
        return True
    lines: dict[str, int] = {}
    for call in script.calls():
        lines.setdefault(call.name, call.line)
    return not PREPARES.isdisjoint(lines) or (
        "gradient_checkpointing_enable" in lines
        and lines["gradient_checkpointing_enable"] < lines.get("get_peft_model", 0)
    )


def _tell_preparation(found: Findings, script: Script) -> Iterator[Statement]:
    """Say whether peft makes what is not quantised float32, where the script leaves that to no trainer."""
    prepares = next((call for call in script.calls() if call.name in PREPARES), None)
    if prepares is not None and prepares.condition is None:
        found.lines[prepares.name] = prepares.line
        yield Statement("program.upcasts_unquantised", prepares.name, value=True)
    elif (
        PREPARES.isdisjoint(script.names) and found.trainers and not (found.unread or found.foreign or found.own_model)
    ):
        yield Statement("program.upcasts_unquantised", _NO_PREPARATION, value=False)


_NO_PREPARATION = "(no prepare_model_for_kbit_training)"
_MERGES = {"merge_and_unload", "merge_adapter"}
_ELSEWHERE = re.compile(r"\bcpu\b|PeftModel")
"""What a script has that merges on the host, or into a base that it loads anew."""


def _find_merge(found: Findings, script: Script) -> Call | None:
    """Return the call that surely merges the adapter into the model that was trained, where that lies."""
    merges = next((call for call in script.calls() if call.name in _MERGES and call.condition is None), None)
    if merges is None or not found.trainers or len(found.models) > 1 or _ELSEWHERE.search(script.code):
        return None
    return merges


_ON_DEVICE = re.compile(r"""\.cuda\(|\.to\(|device_map=(?!None\b)""")
"""What a script has that puts a model on a device."""


def _find_merge_of_loaded(found: Findings, script: Script) -> Call | None:
    """Return the call that surely merges adapters which the script loads into their base, on the device, and trains nothing."""
    merges = next((call for call in script.calls() if call.name in _MERGES and call.condition is None), None)
    loads = any(call.name == "from_pretrained" and "Peft" in call.owner for call in script.calls())
    is_other = found.trainers or found.foreign or len(found.models) > 1 or re.search(r"\bcpu\b", script.code)
    return merges if loads and not is_other and _ON_DEVICE.search(script.code) else None


_LOADED_BEHIND, _LOADED_IN_FRONT = "(loaded behind the arguments)", "(loaded in front of the arguments)"
_INITS = {"HfDeepSpeedConfig", "Accelerator", "DeepSpeedPlugin", "Init", "OnDevice"}


def _tell_order(found: Findings, script: Script) -> Iterator[Statement]:
    """Say whether the model is loaded behind or in front of what would have transformers build it inside of ``zero.Init``.

    Source: transformers 4.36.2 to 5.24.0 training_args.py ``__post_init__()``: the configuration of DeepSpeed that
    ``from_pretrained`` asks for is there from then on, as long as the arguments are.
    """
    decided = found.by_trainer or len(found.made.loads) != 1 or not _INITS.isdisjoint(script.names)
    if decided or found.unread or found.foreign or found.own_model:
        return
    calls = list(script.calls())
    load = next((one for one in calls if one.line == found.made.loads[0] and one.name == "from_pretrained"), None)
    if load is None:
        return
    makes = [one for one in calls if one.name in ARGUMENTS or parses(one.node)]
    behind = {load.line > one.line for one in makes if one.scope is load.scope}
    if makes and len(behind) == 1 and all(one.scope is load.scope for one in makes):
        key = _LOADED_BEHIND if behind.pop() else _LOADED_IN_FRONT
        found.lines[key] = load.line
        yield Statement(None, key, value=True)
    elif not makes and "initialize" in script.names and not found.trainers:
        found.lines[load.name] = load.line
        yield Statement("training.zero_init", load.name, value=False)


_BUILDS_ENGINE = "deepspeed.initialize"
_CONVERTS_ZERO = frozenset(
    {
        "convert_zero_checkpoint_to_fp32_state_dict",
        "get_fp32_state_dict_from_zero_checkpoint",
        "load_state_dict_from_zero_checkpoint",
    }
)
"""Functions of deepspeed.utils.zero_to_fp32 that merge the checkpoints of all ranks."""
_NO_ADAPTERS, _NO_OWN_ADAPTERS = "(no adapters)", "(no adapters of the model's own)"
_GIVE_ADAPTERS = {"get_peft_model", "get_peft_config", "PeftModel", "add_adapter", "load_adapter", *ADAPTER_CONFIGS}


def _trains_as_loaded(found: Findings, script: Script) -> bool:
    """Tell whether a model that is loaded here is trained, and nothing in the script gives it adapters or may."""
    trained = found.trainers or loops_over_loaded(found, script)
    if len(found.models) != 1 or not trained or found.unread or found.foreign or found.own_model:
        return False
    if found.values.keys() & {"use_peft", "peft_config"} or any(
        "training.peft" in (one.facts or ()) for one in found.changes
    ):
        return False
    unused = ADAPTER_CONFIGS.keys() if found.adapters == {} else ()
    return (_GIVE_ADAPTERS - set(unused)).isdisjoint(script.names)


def _is_taken(key: str, meanings: tuple[Key, ...], found: Findings) -> bool:
    """Tell whether a call of the script takes a key: the arguments' class, or another function that has it."""
    fields = hf_trainer.TRL_TABLE if found.is_of_trl else TRAINER_TABLE
    has_class = (
        found.trainers or found.has_arguments or found.foreign or not PARSERS.isdisjoint(found.objects.script.names)
    )
    called = (found.calls, found.values, found.accelerate)
    return (bool(has_class) and key in fields) or any(key in one for one in called) or meanings is SILENT


_OF_PROJECT = "is a class of another module, which was not read"


def _tell_trainer(found: Findings, trainers: Mapping[str, int]) -> list[Statement]:
    """Say what trains: a trainer of TRL, one that nobody read, or the Trainer itself."""
    told: list[Statement] = []
    if len(trainers) == 1:
        (trainer, line) = next(iter(trainers.items()))
        told.append(Statement("training.trainer", f"{trainer} trainer", trainer))
        found.lines[f"{trainer} trainer"] = line
    elif found.unread and not trainers:
        name, line = next(iter(found.unread.items()))
        found.unresolved.append(Unresolved("training.trainer", name, "is a trainer of TRL that nobody has read"))
        found.lines[name] = line
        found.of_code.add(name)
    elif found.foreign and not found.trainers:
        name, line = next(iter(found.foreign.items()))
        found.unresolved.append(Unresolved("training.trainer", name, _OF_PROJECT))
        found.gaps.append(Gap(found.source._replace(line=line, key=name), _OF_PROJECT, facts=_OF_TRAINER))
        told.append(Statement("program.unread_release", name, name))
        found.lines[name] = line
    elif found.own_model is not None:
        name, line = found.own_model
        found.gaps.append(Gap(found.source._replace(line=line, key=name), _OF_PROJECT, facts=KERNELS))
        told.append(Statement("program.unread_release", name, name))
        found.lines[name] = line
    elif found.is_plain and not trainers and found.causal is not None:
        told.append(Statement("training.trainer", "ForCausalLM", "causal_lm"))
        found.lines["ForCausalLM"] = found.causal.line
    if found.heads.keys() == {True} and trainers.keys() <= {"reward"}:
        told.append(Statement("program.makes_logits", "(a head of labels)", value=False))
        told.append(Statement("program.adds_head_of_labels", "(a head of labels)", value=True))
        found.lines["(a head of labels)"] = found.heads[True]
    return told


def _may_be_replaced(statement: Statement, found: Findings) -> bool:
    """Tell whether something that was not read comes behind a statement and may say otherwise."""
    key = statement.key.partition(".")[0]
    line = found.lines.get(key, 0)
    if statement.fact in ADAPTERS and found.adapters:  # they count from where something is given them
        line = max(line, *found.adapters.values())
    return any(
        change.may_replace(line)
        and (key in found.of_arguments if change.facts is None else statement.fact in change.facts)
        for change in found.changes
    )


def _is_worth_a_word(key: str, found: Findings) -> bool:
    """Tell whether an argument nobody knows is one that the script gives a Trainer."""
    return key.partition(".")[0] in found.values


def _model_reference(found: Findings) -> list[tuple[str, str, str]]:
    """Return the model that a script loads, where it is one and told."""
    key = "model" if found.by_trainer and len(found.models) == 1 else "from_pretrained"
    if len(found.models) > 1:
        lines = ", ".join(str(given.line) for given in found.models.values())
        why = f"several models are loaded (lines {lines})"
        found.unresolved.append(Unresolved("model.name", key, why))
    for name, given in found.models.items() if len(found.models) == 1 else ():
        found.lines[key] = given.line
        if given.why is None:
            return [("model", name, key)]
        found.unresolved.append(Unresolved("model.name", "from_pretrained", given.why))
    return []


def _teacher_reference(found: Findings) -> Iterator[tuple[str, str, str]]:
    """Yield the model that a trainer distils, where it is one and told."""
    for name, given in found.made.teachers.items() if len(found.made.teachers) == 1 else ():
        found.lines["teacher_model"] = given.line
        if given.why is None:
            yield "teacher", name, "teacher_model"


def _deepspeed_reference(found: Findings) -> Iterator[tuple[str, str, str]]:
    given = found.deepspeed
    if given is None:
        return
    if given.why is not None:
        found.unresolved.append(Unresolved("training.zero_stage", "deepspeed", given.why))
    elif isinstance(given.value, str):
        yield "deepspeed", given.value, "deepspeed"
    elif isinstance(given.value, dict):
        try:
            found.documents.append(deepspeed.read_section(given.value, found.source.path, "deepspeed."))
            for key, one in found.deepspeed_open:
                facts = (meaning.fact for meaning in deepspeed.TABLE.get(key, ()))
                found.unresolved += [Unresolved(fact, f"deepspeed.{key}", str(one.why)) for fact in facts]
        except InputError as error:
            found.skipped.append(Skipped(found.source._replace(key="deepspeed"), error.message, error.hint))


def _not_literal(values: Mapping[str, Given], table: Mapping[str, tuple[Key, ...]]) -> Iterator[Unresolved]:
    for key, given in values.items():
        if given.why is None:
            continue
        inside = (meanings for name, meanings in table.items() if name == key or name.startswith(f"{key}."))
        facts = [meaning.fact for meanings in inside for meaning in meanings]
        yield from (Unresolved(fact, key, given.why) for fact in dict.fromkeys((*facts, *_DECIDES.get(key, ()))))


def _left_to_command(found: Findings) -> list[Unresolved]:
    """List the arguments that decide about memory and come from a command line nobody named."""
    why = "comes from the command line; name the launch script"
    listed = ("per_device_train_batch_size", "gradient_accumulation_steps", "gradient_checkpointing")
    return [
        Unresolved(meaning.fact, key, why)
        for key in listed
        if key not in found.values
        for meaning in hf_trainer.TABLE[key]
    ]


def _accelerate(found: Findings, script: Script) -> Document | None:
    if not found.accelerate:
        return None
    by_loop = tell_of_accelerator(found, script)
    values = {key: given.value for key, given in found.accelerate.items() if given.why is None and key != "Accelerator"}
    translation = translate(iter(values.items()), accelerate.TABLE, irrelevant=lambda _: True, source=found.source)
    unresolved = tuple(_not_literal(found.accelerate, accelerate.TABLE))
    # launched by `accelerate launch`, its file or options decide what is left out here: no default of accelerate's own
    return Document(
        "script",
        found.source,
        (*translation.statements, *by_loop),
        skipped=translation.skipped,
        lines=found.lines,
        unresolved=unresolved,
    )
