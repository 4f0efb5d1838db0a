"""A training loop of a script's own: what it is made of, which program that is, and what its text shows of each step."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING

from compatcheck.core.document import Statement, Unresolved
from compatcheck.frameworks.python_script.adapters import PREPARES
from compatcheck.frameworks.python_script.calls import Given
from compatcheck.frameworks.python_script.forwards import find_forwards, tell_forwards
from compatcheck.frameworks.python_script.lightning import OF_ACCELERATE
from compatcheck.frameworks.python_script.made import OPTIMIZERS
from compatcheck.frameworks.python_script.nodes import dotted_name, targets_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from compatcheck.frameworks.python_script.calls import Call, Scope, Script
    from compatcheck.frameworks.python_script.meanings import Findings


_KERNELS = {("fused", True): "fused", ("foreach", True): "foreach", ("foreach", False): "for_loop"}
"""What a switch of an optimizer of torch makes it run (torch/optim/adamw.py 2.0 to 2.13: one of the two may be on)."""


def take_made(found: Findings) -> None:
    """Take the optimizer of a loop of one's own and the engine that it starts beside, where each is made once."""
    for call in found.made.optimizers:  # which may be made anew on the way
        found.state("training.optimizer", call.name, OPTIMIZERS[call.name], call)
        told = {
            name: given.value
            for name, given in call.keywords.items()
            if given.why is None and isinstance(given.value, bool)
        }
        kernels = next((_KERNELS[name, on] for name, on in told.items() if (name, on) in _KERNELS), None)
        if kernels is not None:
            found.state("training.optimizer_implementation", call.name, kernels, call)
    if len(found.made.loads) > 1:
        lines = ", ".join(map(str, found.made.loads))
        found.unresolved.append(
            Unresolved(
                "training.reference_model", "from_pretrained", f"is not told: models are loaded in lines {lines}"
            )
        )
    for reader, call in found.made.engines[:1]:
        found.state("rollout.engine", call.name, reader, call)
        found.unresolved.append(Unresolved("rollout.colocated", call.name, "is not told: its device is the script's"))
        for key, (fact, left_out) in _OF_ENGINE.items() if reader == "vllm" else ():
            given = call.keywords.get(key)
            if given is not None and given.why is not None:
                found.unresolved.append(Unresolved(fact, key, given.why))
            elif given is not None or (left_out is not None and not call.is_open):
                found.state(fact, key if given is not None else call.name, given.value if given else left_out, call)


_OF_ENGINE: dict[str, tuple[str, object]] = {
    "gpu_memory_utilization": ("rollout.gpu_memory_utilization", None),  # its default differs between releases
    "tensor_parallel_size": ("rollout.tensor_parallel", 1),
    "max_model_len": ("rollout.max_model_len", None),
    "enforce_eager": ("rollout.enforce_eager", False),
    "enable_sleep_mode": ("rollout.sleep_mode", False),
}
"""Arguments of vLLM's engine, with what they state, and what they are where they are left out (vllm 0.6.3 to 0.11.0 LLM)."""


def has_loop(script: Script) -> bool:
    """Tell whether a script computes gradients itself, or prepares its model for that: ``accelerator.backward(loss)``."""
    ends = (".backward", "accelerator.prepare")
    return any(isinstance(node, ast.Call) and dotted_name(node.func).endswith(ends) for node in script.nodes)


def loops_over_loaded(found: Findings, script: Script) -> bool:
    """Tell whether a loop of the script's own trains the one model that it loads."""
    return not _has_others(found) and len(found.models) == len(found.made.loads) == 1 and has_loop(script)


def _has_others(found: Findings) -> bool:
    """Tell whether a trainer, its arguments or a class of the project's own has a hand in what trains."""
    return bool(found.trainers or found.unread or found.foreign or found.own_model or found.has_arguments)


def tell_loop(found: Findings, script: Script) -> Iterator[Statement]:
    """Say which program a loop of the script's own is, and what its text shows of the code path of a step."""
    frozen = set(map(_takes_frozen, found.made.optimized))
    if len(frozen) == 1 and None not in frozen:
        found.lines[_OPTIMIZED] = found.made.optimized[0][0].lineno
        yield Statement("program.optimizes_frozen", _OPTIMIZED, value=frozen.pop())
    if _has_others(found):
        return
    if found.lightning.made:
        pass
    elif "Accelerator" in found.accelerate:
        if _trains_by_accelerate(found, script):
            yield Statement("training.framework", "Accelerator", "accelerate")
    elif has_loop(script) and found.models and not _names(script, _ACCELERATES):
        yield from _tell_plain(found, script)
    if loops_over_loaded(found, script):
        yield from _tell_data(found, script)
        yield from tell_forwards(found)
        if _CHECKPOINTS.isdisjoint(script.names):
            yield _at(
                _model_line(found), Statement("training.gradient_checkpointing", "(no checkpoints)", False), found
            )


def _tell_data(found: Findings, script: Script) -> Iterator[Statement]:
    """Say how many sequences a loop takes at once, and where its rows are cut, as far as literals or options tell."""
    loader = _find_loader(script)
    if loader is not None and not loader.is_open and "batch_sampler" not in loader.written:
        given = loader.keywords.get("batch_size") or (loader.positional[1:2] or [Given(1, loader.line)])[0]
        yield from _tell_given("training.micro_batch_size", "DataLoader.batch_size", given, found)
    cut = [call.keywords["max_length"] for call in script.calls() if _cuts(call)]
    if cut and len({(one.why, one.value if one.why is None else one.line) for one in cut}) == 1:
        yield from _tell_given("training.sequence_length", "tokenizer.max_length", cut[0], found)


def _tell_given(fact: str, key: str, given: Given, found: Findings) -> Iterator[Statement]:
    found.asked |= given.options
    if given.why is not None:
        found.unresolved.append(Unresolved(fact, key, given.why))
    elif type(given.value) is int and given.value > 0:
        yield _at(given.line, Statement(fact, key, given.value), found)


def _find_loader(script: Script) -> Call | None:
    """Return the call that makes the loader which the loop around a backward goes through; None where that is not plain."""
    made = [call for call in script.calls() if call.name == "DataLoader"]
    if len(made) == 1 or "DataParallel" in script.names:
        return None if "DataParallel" in script.names else made[0]
    around = [node for node in script.nodes if isinstance(node, ast.For) and any(map(_is_backward, ast.walk(node)))]
    gone_through = {one.id for node in around for one in ast.walk(node.iter) if isinstance(one, ast.Name)}
    holders: dict[int, set[str]] = {}
    for node, _, _ in script.visited:
        targets, value = targets_of(node)
        holders.setdefault(id(value), set()).update(map(dotted_name, targets))
    fitting = [call for call in made if not gone_through.isdisjoint(holders.get(id(call.node), ()))]
    return fitting[0] if len(fitting) == 1 else None


def _is_backward(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and dotted_name(node.func).rpartition(".")[2] == "backward"


def _cuts(call: Call) -> bool:
    """Tell whether a call of a tokenizer cuts rows at a length."""
    asked = call.keywords.get("truncation")
    return "max_length" in call.keywords and asked is not None and (asked.why is None and asked.value is not False)


_OPTIMIZED = "(parameters of the optimizer)"
_CHECKPOINTS = {
    *PREPARES, "gradient_checkpointing", "gradient_checkpointing_enable", "activation_checkpointing", "checkpoint_wrapper",
    "apply_activation_checkpointing", "checkpoint", "checkpoint_sequential", "checkpointing",
}  # fmt: skip
"""Names of what makes layers be computed again, and of options that ask for it."""
_ACCELERATES = re.compile(r"accelerat", re.IGNORECASE)
_SPREADS = re.compile(
    r"^(?:DDP|FSDP|hvd|xmp|xm|DTensor|Fabric|tp_plan)$|parallel(?!ism$)|deepspeed|shard|replicate|redundancy|horovod|colossal"
    r"|megatron|(?:_|^)mesh|distribute_",
    re.IGNORECASE,
)
"""Names of what spreads a model or its states over ranks; ``TOKENIZERS_PARALLELISM`` is a variable."""
_CASTS = re.compile(r"autocast|GradScaler|MixedPrecision|deepspeed|^amp$|set_default_dtype", re.IGNORECASE)
"""Names of what may convert what is multiplied."""


def _names(script: Script, pattern: re.Pattern[str]) -> bool:
    return any(pattern.search(name) for name in script.names)


def _at(line: int, statement: Statement, found: Findings) -> Statement:
    found.lines[statement.key] = line
    return statement


def _model_line(found: Findings) -> int:
    return next(iter(found.models.values())).line


def _tell_plain(found: Findings, script: Script) -> Iterator[Statement]:
    """Say what a loop does that nothing but torch runs: nobody wraps, casts or spreads the model where its text does not."""
    backward = next(call for call in script.calls() if call.name == "backward")
    found.lines[_BACKWARD] = backward.line
    yield Statement("training.framework", _BACKWARD, "custom")
    yield from (Statement(fact, _BACKWARD, value=False) for fact in OF_ACCELERATE)
    if "no_sync" not in script.names:
        yield Statement("program.accumulates_without_sync", _BACKWARD, value=False)
    spread = any("training.sharding" in (change.facts or ()) and not change.since for change in found.changes)
    if not (spread or _names(script, _SPREADS)):
        yield _at(_model_line(found), Statement("training.sharding", "(nothing that spreads it)", "none"), found)
    if loops_over_loaded(found, script):
        yield from _tell_precision(found, script)


_BACKWARD = "backward"
_PRECISION = "(autocast)"


def _tell_precision(found: Findings, script: Script) -> Iterator[Statement]:
    """Say what autocast converts in the forward: it counts as far as its block is around the call."""
    forwards = find_forwards(found)
    told = {_precision_around(call, script) for call in forwards}
    if not forwards or told == {_OTHER} or ("" in told and _names(script, _CASTS)):
        return
    if len(told) == 1 and _OTHER not in told:
        value = told.pop() or "no"
        yield _at(forwards[0].line, Statement("training.mixed_precision", _PRECISION, value), found)


_OTHER = "other"
_HALVES = {"bfloat16": "bf16", "float16": "fp16"}
_HARMLESS = {"no_sync", "profile", "record_function", "accumulate", "set_detect_anomaly", "detect_anomaly", "Timer", "tqdm",
             "sdpa_kernel", "Progress", "open"}  # fmt: skip
"""Contexts that convert nothing."""


def _precision_around(call: Call, script: Script) -> str:
    """Return what autocast around a call makes of products; nothing where no block is, `_OTHER` where one is not read."""
    found = ""
    for node in script.nodes:
        if not isinstance(node, ast.With) or not any(one is call.node for one in ast.walk(node)):
            continue
        for item in node.items:
            asked = _choose(item.context_expr, call.scope)
            name = dotted_name(asked.func).rpartition(".")[2] if isinstance(asked, ast.Call) else None
            if name == "autocast" and isinstance(asked, ast.Call):
                found = _read_autocast(asked, script, call.scope)
            elif name not in _HARMLESS:
                return _OTHER
    return found


def _choose(node: ast.expr, scope: Scope) -> ast.expr:
    """Return the context that a GPU has where a choice has an empty one: ``nullcontext() if cpu else autocast(…)``."""
    if isinstance(node, ast.Name):
        node = scope.find(node.id) or node
    if isinstance(node, ast.IfExp):
        names = {
            dotted_name(one.func).rpartition(".")[2]: one
            for one in (node.body, node.orelse)
            if isinstance(one, ast.Call)
        }
        if names.keys() == {"nullcontext", "autocast"}:
            return names["autocast"]
    return node


def _read_autocast(node: ast.Call, script: Script, scope: Scope) -> str:
    """Return the precision that ``torch.autocast`` is asked for; on a GPU float16 is its default (2.9.0 amp/autocast_mode.py)."""
    words = script.keywords(node, scope)
    is_old = ".cuda." in f".{dotted_name(node.func)}."  # torch.cuda.amp.autocast(enabled, dtype) has no device
    asked = words.get("dtype") or (node.args[1] if len(node.args) > 1 else None)
    enabled = words.get("enabled") or (node.args[0] if is_old and node.args else None)
    on = None if enabled is None else script.read(enabled, scope)
    dtype = None if asked is None else script.read(asked, scope)
    if (on is not None and on.why is not None) or (dtype is not None and dtype.why is not None):
        return _OTHER
    if on is not None and not on.value:
        return "no"
    return "fp16" if dtype is None else _HALVES.get(str(dtype.value), _OTHER)


def _takes_frozen(given: tuple[ast.expr, Scope]) -> bool | None:
    """Tell whether an optimizer is given all parameters of a model, frozen ones too; None where that is not plain."""
    node, scope = given
    if isinstance(node, ast.Name):
        node = scope.find(node.id) or node
    if "requires_grad" in ast.unparse(node):
        return False
    return True if isinstance(node, ast.Call) and dotted_name(node.func).endswith(".parameters") else None


def _trains_by_accelerate(found: Findings, script: Script) -> bool:
    """Tell whether a loop of the script's own prepares its model with an Accelerator and has that compute gradients.

    Not where it makes a plugin of FSDP, whose defaults are not those of accelerate's launcher, which stand in its record.
    """
    return "FullyShardedDataParallelPlugin" not in script.names and "prepare" in _methods_of_accelerator(found, script)


def _methods_of_accelerator(found: Findings, script: Script) -> dict[str, ast.Call]:
    """Return the methods of an Accelerator that a loop calls, each with a call; none where none computes gradients."""
    if "Accelerator" not in found.accelerate:
        return {}
    made = [value for node, _, _ in script.visited for value in [targets_of(node)] if _makes(value[1], "Accelerator")]
    holders = {dotted_name(target) for targets, _ in made for target in targets}
    calls = ((node, *dotted_name(node.func).rpartition(".")) for node in script.nodes if isinstance(node, ast.Call))
    called = {method: call for call, holder, _, method in calls if holder in holders}
    return called if "backward" in called else {}


def _makes(node: ast.AST | None, made: str) -> bool:
    return isinstance(node, ast.Call) and dotted_name(node.func).rpartition(".")[2] == made


_OF_ACCELERATOR: Mapping[str, Mapping[str, bool]] = {
    "prepare": dict.fromkeys(OF_ACCELERATE, True),
    "accumulate": {"program.accumulates_without_sync": True, "program.heeds_sync_each_batch": True},
    "no_sync": {"program.accumulates_without_sync": True, "program.heeds_sync_each_batch": False},
}
"""Methods of an ``Accelerator`` and what a loop that calls them does (accelerate 0.28.0 and 1.15.0 accelerator.py)."""


def tell_of_accelerator(found: Findings, script: Script) -> Iterable[Statement]:
    """Say what a loop of one's own leaves to the Accelerator that it has made."""
    told: dict[str, Statement] = {}
    called = _methods_of_accelerator(found, script)
    for name, facts in _OF_ACCELERATOR.items():
        if name in called:
            found.lines.setdefault(key := f"accelerator.{name}", called[name].lineno)
            told.update({fact: Statement(fact, key, value) for fact, value in facts.items()})
    return told.values()
