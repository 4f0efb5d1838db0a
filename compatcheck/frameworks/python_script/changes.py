"""Where a training script may change its model, Trainer, arguments or optimizer in a way that is not read.

One rule: what is given to a call that nobody here knows may be changed by it in all that such an object decides. A function or
class of the script itself is read where it stands; `leaves_alone.txt` names the packages that change nothing of what they are
given; a name that is plainly about logs, data or files (`compatcheck.core.setting_names`) is taken at its word. What happens
behind the last ``train()`` changes nothing any more.
"""

from __future__ import annotations

import ast
import math
import re
import sys
from typing import TYPE_CHECKING

from compatcheck.core.named_tuple import NamedTuple
from compatcheck.core.setting_names import is_about_memory, is_elsewhere, split_name, words_about_memory
from compatcheck.frameworks.python_script.adapters import find_configs
from compatcheck.frameworks.python_script.nodes import assigned_by, dotted_name, words_of
from compatcheck.frameworks.python_script.objects import (
    ASKS,
    MODEL_ASKS,
    VERBS_OF_CHANGE,
    Kind,
    given_to,
    is_well_known,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from compatcheck.frameworks.python_script.calls import Assignment, Scope
    from compatcheck.frameworks.python_script.objects import Objects

ADAPTERS = frozenset({
    "training.peft", "training.lora_rank", "training.lora_dropout", "training.lora_target_modules",
    "training.lora_exclude_modules", "training.lora_target_parameters", "training.lora_modules_to_save",
    "model.trainable_parameters",
})  # fmt: skip
NOTHING = frozenset[str]()
TRAINABLE = frozenset({"training.peft", "model.trainable_parameters"})
CHECKPOINTING = frozenset({
    "training.gradient_checkpointing", "training.use_reentrant", "training.activation_offloading",
})  # fmt: skip
LOSS = frozenset({"training.loss_implementation", "training.loss_type"})
KERNELS = LOSS | {"training.use_liger_kernel"}
DTYPES = frozenset({"model.load_dtype", "training.param_dtype"})
SHARDING = frozenset({
    "training.sharding", "training.zero_stage", "training.fsdp_version", "training.fsdp_sharding_strategy",
    "training.fsdp_offload_params", "training.offload_optimizer", "training.offload_param",
})  # fmt: skip
OF_OPTIMIZER = frozenset({
    "training.optimizer", "training.optimizer_implementation", "training.optimizer_in_backward", "training.master_dtype",
})  # fmt: skip
OF_STEP = frozenset({"run.no_grad_forward_between"})
ASKED_BY_FORWARD = frozenset({"use_cache", "output_attentions", "output_hidden_states", "output_router_logits"})
"""Fields of a model's configuration that decide in every forward: what it is told after loading counts."""
OF_MODEL = ADAPTERS | CHECKPOINTING | KERNELS | DTYPES | SHARDING | {
    "model.attn_implementation", "model.quantization", "model.output_router_logits", "model.use_cache",
    "training.compile",
}  # fmt: skip
"""Facts that each kind of object decides, and parts of them."""
OF_SCRIPT = (OF_MODEL | OF_OPTIMIZER | OF_STEP | {"program.makes_logits"}) - SHARDING
"""What a script decides of its run; how states are sharded is told by launchers and by the arguments of the Trainer."""

_METHODS: Mapping[str, frozenset[str]] = {
    "requires_grad_": TRAINABLE,
    **dict.fromkeys(("half", "float", "double", "bfloat16"), DTYPES),
    **dict.fromkeys(
        ("add_adapter", "load_adapter", "delete_adapter", "set_adapter", "enable_adapters", "disable_adapters",
         "merge_and_unload", "merge_adapter", "unload"), ADAPTERS,
    ),
    "gradient_checkpointing_disable": CHECKPOINTING,
}  # fmt: skip
"""Methods of a model that change a part of it."""
_OVERRIDDEN: Mapping[str, frozenset[str]] = {
    **dict.fromkeys(
        ("optimizer", "create_optimizer", "create_optimizer_and_scheduler", "get_optimizer_cls_and_kwargs"), OF_OPTIMIZER
    ),
    **dict.fromkeys(("compute_loss", "training_step"), KERNELS | OF_STEP),
    **dict.fromkeys(
        ("_compute_loss", "_forward", "_generate_and_score_completions", "_get_per_token_logps",
         "_get_per_token_logps_and_entropies", "_prepare_inputs", "concatenated_forward", "get_batch_loss_metrics"),
        KERNELS | OF_STEP,
    ),
    "compute_loss_func": KERNELS,
    **dict.fromkeys(("model", "model_wrapped", "_inner_training_loop"), OF_MODEL | OF_OPTIMIZER),
    **dict.fromkeys(
        ("is_model_parallel", "is_fsdp_enabled", "is_deepspeed_enabled", "accelerator", "_wrap_model",
         "create_accelerator_and_postprocess"), SHARDING,
    ),
}  # fmt: skip
"""Attributes and methods of a Trainer that decide something where they are set or defined anew.

Source: transformers 4.51.3 trainer.py; trl 0.17.0 and 0.24.0 grpo_trainer.py, dpo_trainer.py.
"""
_NESTED = 3
"""Lists of callbacks in one another."""
_TRAINER_ASKS = (
    *ASKS, "train", "eval", "predict", "save", "log", "push", "add_callback", "pop_callback", "remove_callback", "create_",
    "num_", "floating", "hyperparameter_search", "init_hf_repo", "store_flos", "_save", "_load", "accelerator",
    "processing_class", "tokenizer", "data_collator",
)  # fmt: skip
_LOOKS = re.compile(
    r"^_?(?:is_|has_|num_|print|show|count|log|save|report|check|test|plot|describe|dump|evaluate|predict|summary|summarize|visual"
    r"|set_verbosity|(?:debug|info|warning|error|exception|critical)$)"
)
"""How functions begin that look at what they are given."""
_MAKES = ("get_", "load_", "build_", "make_", "create_", "init")
"""How functions begin that make something by the arguments they are given."""
_PATCHES = (*VERBS_OF_CHANGE, "apply", "enable", "inject", "hijack", "monkey", "convert", "optimi", "install")
_PATCHED = ("transformers", "trl", "peft", "accelerate", "torch.nn", "torch.utils.checkpoint", "torch.optim")
ANY = "may set any argument"
_SETTERS = frozenset({"setattr", "__setattr__", "replace", "update"})


class Change(NamedTuple):
    """A place that may set what is stated elsewhere, or left out."""

    line: int
    why: str
    facts: frozenset[str] | None
    """What it may set; None for all that arguments can say."""
    since: float
    """Line before which it may replace what is stated; 0 where it replaces nothing."""
    body: range = range(0)
    """Lines of the function it stands in: there what comes behind it stands, wherever the function is called."""
    surely: bool = False
    """Whether it sets arguments of which nobody can tell the names, and is no function that may do so or not."""

    def may_replace(self, line: int) -> bool:
        """Tell whether it may set anew what is stated in a line."""
        return line < (self.line if line in self.body else self.since)


class Changes:
    """What may be changed of the objects of a script."""

    def __init__(self, objects: Objects) -> None:
        """Look at a script by its objects."""
        self.objects = objects

    def _change(
        self,
        node: ast.expr | ast.stmt,
        scope: Scope,
        facts: frozenset[str] | None,
        why: str,
        since: float | None = None,
    ) -> Iterator[Change]:
        """Yield a change, unless it comes after training."""
        if node.lineno <= self.objects.trained.get(scope, sys.maxsize):
            yield self.place(node.lineno, scope, facts, f"{why}: {words_of(node)}", since=since)

    def place(
        self, line: int, scope: Scope, facts: frozenset[str] | None, why: str, *, since: float | None = None
    ) -> Change:
        """Return a change, with what it comes behind where nobody says it."""
        if since is not None:
            return Change(line, why, facts, since)
        body, last = self.objects.bodies.get(scope, (range(0), line))
        return Change(line, why, facts, max(line, last), body)

    def find(self) -> Iterator[Change]:
        """Yield them."""
        for node, scope, _ in self.objects.script.visited:
            match node:
                case ast.Call():
                    yield from self._of_call(node, scope)
                    yield from self._of_variables(node, scope)
                case ast.Expr(value=ast.Call() as call):
                    yield from self._of_effect(call, scope)
                case ast.Assign(targets=targets, value=value):
                    yield from self._of_items(node, targets, scope)
                    yield from self._of_making(targets, value, scope)
                    yield from self._of_variables(node, scope)
        for one in self.objects.script.assignments():
            yield from self._of_attribute(one)
        yield from self._of_own_trainers()

    def _of_call(self, call: ast.Call, scope: Scope) -> Iterator[Change]:
        name, func = self.objects.last_name(call), call.func
        if self.objects.kind(func, scope) in {Kind.MODEL, Kind.PART} and not isinstance(func, ast.Attribute):
            return  # a forward
        owner = self.objects.kind(func.value, scope) if isinstance(func, ast.Attribute) else None
        if owner == Kind.TRAINER and self.objects.kind(func, scope) is not None:
            return  # as above, of the Trainer's model
        if owner is not None and isinstance(func, ast.Attribute):
            yield from self._of_method(call, func, owner, scope)
            return
        if name == "exec" and (
            Kind.OPTIONS in self.objects.kinds.values() or Kind.ARGUMENTS in self.objects.kinds.values()
        ):
            yield from self._change(call, scope, None, ANY)
            return
        given = {self.objects.kind(one, scope) for one in given_to(call) if not self._is_asked(one, scope)}
        given -= {None, Kind.CONFIG, Kind.OPTIMIZER}
        if not given or (any(assigned_by(call)) and all(word.arg for word in call.keywords)):
            return  # what is set by its name is an assignment
        arguments = given & {Kind.ARGUMENTS, Kind.OPTIONS}
        leaves_alone = self.objects.leaves_alone(func, scope)
        takes_in = name == "update" and leaves_alone  # what it is called on changes, and not what it is given
        makes = given == arguments and (given == {Kind.OPTIONS} or name.startswith(_MAKES))
        if arguments and not takes_in and any(verb in name.lower() for verb in VERBS_OF_CHANGE):
            sets = name in _SETTERS and Kind.ARGUMENTS in given
            yield from (one._replace(surely=sets) for one in self._change(call, scope, None, ANY))
        elif name in {"setattr", "__setattr__"}:
            yield from self._change(call, scope, OF_MODEL, "may change the model")
        elif self._is_read(name) or leaves_alone or _is_look(name) or makes:
            return
        elif given & {Kind.ARGUMENTS, Kind.TRAINER}:
            since = 0 if name.endswith("Trainer") else None  # takes the arguments that it is given
            yield from self._change(call, scope, None, ANY, since=since)
        else:
            yield from self._change(call, scope, OF_MODEL, "may change the model")

    def _is_read(self, name: str) -> bool:
        """Tell whether calls of a name are read elsewhere, or what they run is the script's own."""
        objects = self.objects
        return any(name in known for known in (objects.known, objects.trainers, objects.functions, objects.classes))

    def _is_asked(self, node: ast.expr, scope: Scope) -> bool:
        """Tell whether an expression is what a model answers: its parameters, its state."""
        return isinstance(node, ast.Call) and self.objects.kind(node, scope) == Kind.PART

    def _of_method(self, call: ast.Call, func: ast.Attribute, owner: Kind, scope: Scope) -> Iterator[Change]:
        name = func.attr
        match owner:
            case Kind.ARGUMENTS | Kind.OPTIONS if not name.startswith(ASKS):
                sets = name in _SETTERS and owner == Kind.ARGUMENTS
                yield from (one._replace(surely=sets) for one in self._change(call, scope, None, ANY))
            case Kind.TRAINER if name == "add_callback":
                yield from self.of_callbacks(call.args, scope)
            case Kind.TRAINER if not name.startswith(_TRAINER_ASKS) and dotted_name(func.value) != "self":
                yield from self._change(call, scope, None, ANY)
            case Kind.MODEL | Kind.PART:
                yield from self._of_model_method(call, name, owner, scope)

    def _of_model_method(self, call: ast.Call, name: str, owner: Kind, scope: Scope) -> Iterator[Change]:
        facts = _METHODS.get(name)
        if name == "to":
            words = [*map(dotted_name, call.args), *(str(word.arg) for word in call.keywords)]
            facts = DTYPES if any(_is_dtype(word) for word in words) else None
        if (facts is DTYPES and owner == Kind.PART) or (
            name == "add_adapter" and any(find_configs(one, scope, self.objects) for one in given_to(call))
        ):
            return
        if facts is not None:
            yield from self._change(call, scope, facts, "may change the model")
        elif owner == Kind.PART and not is_about_memory(name) and not _is_attribute(call.func):
            return  # of a tensor or a name as well as of a module
        elif hasattr(str, name):
            return  # of a model's name
        elif not (name in self.objects.known or name.startswith(MODEL_ASKS) or is_elsewhere(name)) and not (
            name == "apply" and all(dotted_name(one) in self.objects.functions for one in call.args)
        ):
            yield from self._change(call, scope, OF_MODEL, "may change the model")

    def _of_config(self, node: ast.expr | ast.stmt, name: str, scope: Scope) -> Iterator[Change]:
        """Yield what an attribute of the model's configuration decides, by the words of its name."""
        about = words_about_memory(name) - {"dtype"}  # a loaded model keeps its own
        facts = frozenset(fact for fact in OF_MODEL if about & split_name(fact))
        if facts:
            yield from self._change(node, scope, facts, "may change the model")

    def of_callbacks(self, values: Iterable[ast.expr], scope: Scope, depth: int = 0) -> Iterator[Change]:
        """Yield what callbacks may change that are not read: they are given the model and the optimizer."""
        for value in values:
            one: ast.expr | None = value
            if (
                isinstance(value, ast.Name)
                and scope.owner(value.id) is not None
                and value.id not in self.objects.classes
            ):
                one = scope.find(value.id)
            if isinstance(one, ast.List | ast.Tuple):
                yield from self.of_callbacks(one.elts if depth < _NESTED else (), scope, depth + 1)
                continue
            made = one.func if isinstance(one, ast.Call) else one
            name = "" if made is None else dotted_name(made).rpartition(".")[2]
            rest = "_".join(
                re.findall(r"[A-Z]?[a-z0-9]+|[A-Z]+", name.replace("Callbacks", "").replace("Callback", ""))
            )
            if (
                isinstance(one, ast.Constant)
                or name in self.objects.classes
                or name in self.objects.functions
                or is_elsewhere(rest)
            ):
                continue
            if made is None or not self.objects.leaves_alone(made, scope):
                why = "a callback that is not read may change the model"
                yield from self._change(value, scope, OF_MODEL | OF_OPTIMIZER, why, since=math.inf)

    def _of_effect(self, call: ast.Call, scope: Scope) -> Iterator[Change]:
        """Yield a call of an unknown module for nothing but its effect: it patches something."""
        path = self.objects.path(call.func)
        name = self.objects.last_name(call)
        if path is None or is_well_known(path) or _is_look(name) or name in self.objects.known:
            return
        if any(self.objects.kind(one, scope) is not None for one in given_to(call)):
            return  # told with the object it is given
        plain = all(isinstance(one, ast.Constant) for one in given_to(call))
        if plain or any(verb in path.lower() for verb in _PATCHES):
            facts = KERNELS if path.startswith("liger_kernel") else OF_MODEL | OF_OPTIMIZER
            yield from self._change(call, scope, facts, "may patch what trains", since=0)

    def _of_variables(self, node: ast.Call | ast.Assign, scope: Scope) -> Iterator[Change]:
        """Yield what variables decide that accelerate reads, as its launcher sets them."""
        match node:
            case ast.Assign(targets=[ast.Subscript(value=owner, slice=ast.Constant(value=str(name)))]):
                names = [name]
            case ast.Call(func=ast.Attribute(value=owner), args=given, keywords=words):
                inside = [key for one in given if isinstance(one, ast.Dict) for key in one.keys]
                names = [str(one.value) for one in (*given, *inside) if isinstance(one, ast.Constant)]
                names += [str(word.arg) for word in words]
            case _:
                return
        if dotted_name(owner) in {"os", "os.environ", "environ"}:
            facts = frozenset(fact for name in names for fact in _of_variable(name))
            if facts:
                yield from self._change(node, scope, facts, "sets what accelerate reads", since=0)

    def _of_items(self, node: ast.Assign, targets: Iterable[ast.expr], scope: Scope) -> Iterator[Change]:
        for target in targets:
            is_about = isinstance(target, ast.Subscript) and self.objects.kind(target.value, scope) in {
                Kind.ARGUMENTS,
                Kind.OPTIONS,
            }
            if is_about and not any(assigned_by(node)):
                yield from self._change(node, scope, None, ANY)

    def _of_making(self, targets: Iterable[ast.expr], value: ast.expr, scope: Scope) -> Iterator[Change]:
        """Yield where the model that is trained comes out of a call that is not read."""
        first = next((one.elts[0] if isinstance(one, ast.Tuple) and one.elts else one for one in targets), None)
        if first is None or not isinstance(value, ast.Call) or self.objects.kind(first, scope) != Kind.MODEL:
            return
        name = self.objects.last_name(value)
        is_known = Kind.MODEL in {self.objects.kind(one, scope) for one in (*given_to(value), value)}
        if not (self._is_read(name) or is_known or self.objects.leaves_alone(value.func, scope)):
            yield from self._change(value, scope, OF_MODEL, "makes the model in a way that is not read")

    def _of_attribute(self, one: Assignment) -> Iterator[Change]:
        owner, name = self.objects.kind(one.owner, one.scope), one.name
        if owner == Kind.TRAINER and name in _OVERRIDDEN and not self._is_same(one):
            yield from self._change(
                one.node, one.scope, _OVERRIDDEN[name], f"sets {name} of the Trainer", since=math.inf
            )
        elif owner == Kind.TRAINER and name == "args" and not self._is_same(one):
            yield from self._change(one.node, one.scope, None, ANY)
        elif owner == Kind.CONFIG and name not in ASKED_BY_FORWARD:
            yield from self._of_config(one.node, name, one.scope)
        elif owner in {Kind.MODEL, Kind.PART} and name == "requires_grad":
            yield from self._change(one.node, one.scope, TRAINABLE, "trains a part of the model or none of it")
        elif owner in {Kind.MODEL, Kind.PART} and name in {"is_parallelizable", "model_parallel"}:
            yield from self._change(one.node, one.scope, SHARDING, "may spread the model over devices")
        elif owner in {Kind.MODEL, Kind.PART} and not _is_apart(name):
            yield from self._change(one.node, one.scope, OF_MODEL, "may change the model")
        elif owner is None and not isinstance(one.value, ast.Constant) and not is_elsewhere(name):
            path = self.objects.path(one.owner)
            if path is not None and path.startswith(_PATCHED):
                yield from self._change(one.node, one.scope, OF_MODEL | OF_OPTIMIZER, "patches what trains", since=0)

    def _is_same(self, one: Assignment) -> bool:
        """Tell whether an attribute gets the very object that is known for it: ``self.model = model``."""
        kind = self.objects.kind(one.value, one.scope)
        return kind in ({Kind.ARGUMENTS, Kind.OPTIONS} if one.name == "args" else {Kind.MODEL})

    def _of_own_trainers(self) -> Iterator[Change]:
        lines = {
            self.objects.last_name(node): node.lineno
            for node, _, _ in self.objects.script.visited
            if isinstance(node, ast.Call)
        }
        for name in self.objects.elsewhere.keys() & lines.keys():
            bodies = (one for node in self.objects.elsewhere[name] for one in node.body)
            for own in dict.fromkeys(one.name for one in bodies if isinstance(one, ast.FunctionDef)):
                if own in _OVERRIDDEN:
                    yield Change(lines[name], f"{name} has a {own} of its own", _OVERRIDDEN[own], math.inf)
        made = {
            *lines,
            *(dotted_name(base) for name, node in self.objects.classes.items() if name in lines for base in node.bases),
        }
        for name in self.objects.trainers.keys() & self.objects.classes.keys() & made:
            for method in self.objects.classes[name].body:
                if isinstance(method, ast.FunctionDef) and method.name in _OVERRIDDEN:
                    why = f"{name} has a {method.name} of its own"
                    yield Change(method.lineno, why, _OVERRIDDEN[method.name], math.inf)


def _is_dtype(word: str) -> bool:
    """Tell whether a word names a dtype, or an argument that is one."""
    return "dtype" in word or re.search(r"^torch\.(?:b?float|half)", word) is not None


def _of_variable(name: str) -> frozenset[str]:
    """Return what a variable of the environment decides (accelerate 1.6.0 state.py, accelerator.py, utils/dataclasses.py)."""
    if name == "ACCELERATE_MIXED_PRECISION":
        return frozenset({"training.mixed_precision"})
    if name.startswith("ACCELERATE_DYNAMO"):
        return frozenset({"training.compile"})
    return (
        SHARDING if name.startswith(("ACCELERATE_USE_", "ACCELERATE_DEEPSPEED_", "FSDP_", "PARALLELISM_")) else NOTHING
    )


def _is_apart(name: str) -> bool:
    """Tell whether an attribute of a model is one of those that scripts set for other ends."""
    return is_elsewhere(name) or name.startswith("_ddp") or name in {"config", "generation_config", "state_dict"}


def _is_attribute(func: ast.expr) -> bool:
    """Tell whether a method is one of an attribute: ``model.vision_tower.freeze``."""
    return isinstance(func, ast.Attribute) and isinstance(func.value, ast.Attribute)


def _is_look(name: str) -> bool:
    return _LOOKS.match(name) is not None or is_elsewhere("_".join(re.findall(r"[A-Z]?[a-z0-9]+|[A-Z]+", name)))
