"""The objects a run rests on, its model, Trainer, arguments and optimizer, and where code that is not read may change them.

One rule: what is given to a call that nobody here knows may be changed by it in all that such an object decides. A function or
class of the script itself is read where it stands; `leaves_alone.txt` names the packages that change nothing of what they are
given; a name that is plainly about logs, data or files (`compatcheck.core.setting_names`) is taken at its word. What happens
behind the last ``train()`` changes nothing any more.
"""

from __future__ import annotations

import ast
import builtins
import math
import re
import sys
from enum import Enum
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

from compatcheck.core.setting_names import is_about_memory, is_elsewhere, split_name, words_about_memory
from compatcheck.frameworks.keys import Names
from compatcheck.frameworks.python_script.calls import dotted_name, parses, words_of

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping

    from compatcheck.frameworks.python_script.calls import Assignment, Scope, Script


class Kind(Enum):
    """Kinds of objects."""

    MODEL = "the model"
    PART = "a part of it"
    CONFIG = "its configuration"
    TRAINER = "the Trainer"
    ARGUMENTS = "its arguments"
    OPTIONS = "what a parser fills beside them"
    OPTIMIZER = "the optimizer"


ADAPTERS = frozenset({
    "training.peft", "training.lora_rank", "training.lora_dropout", "training.lora_target_modules",
    "training.lora_target_parameters", "training.lora_modules_to_save",
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
OF_MODEL = ADAPTERS | CHECKPOINTING | KERNELS | DTYPES | SHARDING | {
    "model.attn_implementation", "model.quantization", "model.use_cache", "training.compile",
}  # fmt: skip
"""Facts that each kind of object decides, and parts of them."""

_METHODS: Mapping[str, frozenset[str]] = {
    "requires_grad_": TRAINABLE,
    **dict.fromkeys(("half", "float", "double", "bfloat16"), DTYPES),
    **dict.fromkeys(
        ("add_adapter", "load_adapter", "delete_adapter", "set_adapter", "enable_adapters", "disable_adapters",
         "merge_and_unload", "merge_adapter", "unload"), ADAPTERS,
    ),
    "gradient_checkpointing_disable": CHECKPOINTING,
    "compile": frozenset({"training.compile"}),
}  # fmt: skip
"""Methods of a model that change a part of it."""
_OVERRIDDEN: Mapping[str, frozenset[str]] = {
    **dict.fromkeys(
        ("optimizer", "create_optimizer", "create_optimizer_and_scheduler", "get_optimizer_cls_and_kwargs"), OF_OPTIMIZER
    ),
    **dict.fromkeys(("compute_loss", "compute_loss_func", "training_step"), KERNELS),
    **dict.fromkeys(("model", "model_wrapped", "_inner_training_loop"), OF_MODEL | OF_OPTIMIZER),
    **dict.fromkeys(
        ("is_model_parallel", "is_fsdp_enabled", "is_deepspeed_enabled", "accelerator", "_wrap_model",
         "create_accelerator_and_postprocess"), SHARDING,
    ),
}  # fmt: skip
"""Attributes and methods of a Trainer that decide something where they are set or defined anew.

Source: transformers 4.51.3 trainer.py.
"""
_ASKS = ("get", "to_", "is_", "has_", "main_process_first", "print", "keys", "values", "items", "copy", "__")
"""How methods of arguments begin that change nothing."""
_MODEL_ASKS = (
    *_ASKS, "num_", "named_", "parameters", "modules", "children", "buffers", "save", "push", "state_dict", "load_state_dict",
    "train", "eval", "generate", "forward", "to", "cuda", "cpu", "tie_weights", "resize_token_embeddings", "zero_grad",
    "register_", "enable_input_require_grads", "set_input_embeddings", "set_output_embeddings", "create_or_update_model_card",
    "add_model_tags", "can_generate", "prepare_inputs", "config", "warn", "size", "numel", "dim", "item", "element_size",
)  # fmt: skip
_TRAINER_ASKS = (
    *_ASKS, "train", "eval", "predict", "save", "log", "push", "add_callback", "pop_callback", "remove_callback", "create_",
    "num_", "floating", "hyperparameter_search", "init_hf_repo", "store_flos", "_save", "_load", "accelerator",
)  # fmt: skip
_LOOKS = re.compile(
    r"^_?(?:is_|has_|num_|print|show|count|log|save|report|check|test|plot|describe|dump|evaluate|predict|summar|visual)"
)
"""How functions begin that look at what they are given."""
_MAKES = ("get_", "load_", "build_", "make_", "create_", "init")
"""How functions begin that make something by the arguments they are given."""
_CHANGES = ("setattr", "update", "merge", "replace", "patch", "override")
"""Words in names of functions that change an object they are given."""
_PATCHES = (*_CHANGES, "apply", "enable", "inject", "hijack", "monkey", "convert", "optimi", "install")
_PATCHED = ("transformers", "trl", "peft", "accelerate", "torch.nn", "torch.utils.checkpoint", "torch.optim")
_WHOLE_MODELS = ("ForCausalLM", "ForConditionalGeneration", "ForSequenceClassification", "ForTokenClassification", "LMHeadModel",
                 "ForSeq2SeqLM", "AutoModel", "ImageTextToText", "ForMaskedLM", "ValueHead", "FastLanguageModel", "FastModel",
                 "FastVisionModel")  # fmt: skip
"""Words in the names of classes whose ``from_pretrained`` loads a model."""
_NOT_CHANGING = Names(__file__, "leaves_alone.txt")
_ROUNDS = 4
"""Objects are followed through assignments and the script's own functions; longer chains than this are not made."""


class Change(NamedTuple):
    """A place that may set what is stated elsewhere, or left out."""

    line: int
    why: str
    facts: frozenset[str] | None
    """What it may set; None for all that arguments can say."""
    since: float
    """Line before which statements may be replaced by it; 0 where it replaces none."""


def is_whole_model(owner: str) -> bool:
    """Tell whether a class is one that loads a whole model."""
    return any(mark in owner for mark in _WHOLE_MODELS)


class Objects:
    """The objects of one script."""

    def __init__(
        self, script: Script, *, trainers: Collection[str], arguments: Collection[str], known: Collection[str]
    ) -> None:
        """Follow them through assignments and calls of the script's own functions.

        Args:
            script: the script.
            trainers: names of classes of trainers.
            arguments: names of classes of their arguments.
            known: names of functions and classes whose calls are read elsewhere.
        """
        self.script = script
        self.known = known
        self._arguments = arguments
        nodes = list(ast.walk(script.tree))
        self.functions = {one.name: one for one in nodes if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef)}
        self.classes = {one.name: one for one in nodes if isinstance(one, ast.ClassDef)}
        self.trainers = {name: name for name in trainers}
        """Classes of trainers, the script's own among them, each with the one of a library that it is built on."""
        for name in self.classes:
            base = self._base_of(name, trainers)
            if base is not None:
                self.trainers[name] = base
        self.imports = dict(_imports(nodes))
        self.kinds: dict[tuple[Scope | None, str], Kind] = {}
        self._made: list[tuple[str, ast.Call, Scope]] = []
        self._name_own_methods()
        for _ in range(_ROUNDS):
            before = len(self.kinds)
            self._follow()
            if len(self.kinds) == before:
                break

    def _base_of(self, name: str, wanted: Collection[str], depth: int = 0) -> str | None:
        """Return which of some classes a class of the script derives from."""
        node = self.classes.get(name)
        for base in node.bases if node is not None and depth < _ROUNDS else ():
            last = dotted_name(base).rpartition(".")[2]
            last = self.script.aliases.get(last, last)
            found = last if last in wanted else self._base_of(last, wanted, depth + 1)
            if found is not None:
                return found
        return None

    def _name_own_methods(self) -> None:
        """Name what methods of the script's own trainers and callbacks are given by their libraries."""
        for name, node in self.classes.items():
            is_callback = any("Callback" in dotted_name(base) for base in node.bases)
            for method in node.body:
                scope = self.script.scopes.get(method)
                if scope is None or not isinstance(method, ast.FunctionDef):
                    continue
                if name in self.trainers:
                    self.kinds[scope, "self"] = Kind.TRAINER
                for argument in (*method.args.args, *method.args.kwonlyargs) if is_callback else ():
                    kind = {"model": Kind.MODEL, "args": Kind.ARGUMENTS, "optimizer": Kind.OPTIMIZER}.get(argument.arg)
                    if kind is not None:
                        self.kinds[scope, argument.arg] = kind

    def _follow(self) -> None:
        for node, scope, _ in self.script.visited:
            match node:
                case ast.Assign(targets=targets, value=value):
                    for target in targets:
                        self._assign(target, value, scope)
                case ast.For(target=target, iter=iterated):
                    if any(self.kind(inner, scope) in {Kind.MODEL, Kind.PART} for inner in ast.walk(iterated)):
                        for inner in ast.walk(target):
                            self._note(inner, Kind.PART, scope)
                case ast.Call():
                    self._pass_on(node, scope)

    def _assign(self, target: ast.expr, value: ast.expr, scope: Scope) -> None:
        if isinstance(target, ast.Tuple | ast.List):
            parts = list(target.elts)
            if isinstance(value, ast.Tuple | ast.List) and len(value.elts) == len(parts):
                for part, one in zip(parts, value.elts, strict=True):
                    self._assign(part, one, scope)
            elif isinstance(value, ast.Call):
                if parses(value):
                    for part in parts:
                        self._note(part, Kind.OPTIONS, scope)
                elif self.kind(value, scope) == Kind.MODEL:
                    self._note(parts[0], Kind.MODEL, scope)
                for part, given in zip(parts, value.args, strict=False):
                    passed = self.kind(given, scope)
                    if passed is not None and passed != Kind.PART:
                        self._note(part, passed, scope)
            return
        kind = Kind.OPTIONS if parses(value) else self.kind(value, scope)
        if kind is not None:
            self._note(target, kind, scope)

    def _note(self, target: ast.AST, kind: Kind, scope: Scope) -> None:
        if isinstance(target, ast.Name | ast.Attribute):
            name = dotted_name(target)
            place = scope.owner(name.partition(".")[0]), name
            if self.kinds.get(place) in {None, Kind.OPTIONS}:  # what a Trainer is given is its arguments
                self.kinds[place] = kind

    def _pass_on(self, call: ast.Call, scope: Scope) -> None:
        """Note what a call tells of the objects it is given: a Trainer's arguments, a parameter of an own function."""
        name = self._last(call)
        if name in self.trainers:
            named = {word.arg: word.value for word in call.keywords}
            given = zip((Kind.MODEL, Kind.ARGUMENTS), (*call.args, None, None), strict=False)
            for wanted, one in (*given, (Kind.MODEL, named.get("model")), (Kind.ARGUMENTS, named.get("args"))):
                if one is not None:
                    self._note(one, wanted, scope)
        node: ast.AST | None = self.functions.get(name)
        if isinstance(call.func, ast.Attribute) and dotted_name(call.func.value) != "self":
            node = None
        if name in self.classes:
            methods = (item for item in self.classes[name].body if isinstance(item, ast.FunctionDef))
            node = next((item for item in methods if item.name == "__init__"), None)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node in self.script.scopes:
            inner = self.script.scopes[node]
            names = [item.arg for item in (*node.args.posonlyargs, *node.args.args)]
            names = names[1:] if names[:1] == ["self"] else names
            words = ((word.arg, word.value) for word in call.keywords if word.arg is not None)
            for parameter, value in (*zip(names, call.args, strict=False), *words):
                kind = self.kind(value, scope)
                if kind is not None:
                    self.kinds.setdefault((inner, parameter), kind)
        if name == "apply" and self.kind(getattr(call.func, "value", call), scope) in {Kind.MODEL, Kind.PART}:
            for function in call.args:
                own = self.functions.get(dotted_name(function))
                if own is not None and own in self.script.scopes and own.args.args:
                    self.kinds.setdefault((self.script.scopes[own], own.args.args[0].arg), Kind.PART)

    def _last(self, call: ast.Call) -> str:
        name = dotted_name(call.func).rpartition(".")[2]
        return self.script.aliases.get(name, name)

    def kind(self, node: ast.AST, scope: Scope) -> Kind | None:
        """Return which of the objects an expression is."""
        match node:
            case ast.Name(id=name):
                return self.kinds.get((scope.owner(name), name))
            case ast.Attribute(value=owner, attr="__dict__") | ast.Call(func=ast.Name(id="vars"), args=[owner]):
                return self.kind(owner, scope)
            case ast.Attribute(value=owner, attr=name):
                dotted = dotted_name(node)
                own = self.kinds.get((scope.owner(dotted.partition(".")[0]), dotted))
                return own or _attribute_kind(self.kind(owner, scope), name)
            case ast.Subscript(value=ast.Name(id="kwargs"), slice=ast.Constant(value="model")):
                return Kind.MODEL
            case ast.Subscript(value=owner):
                return Kind.PART if self.kind(owner, scope) in {Kind.MODEL, Kind.PART} else None
            case ast.Call():
                return self._kind_of_call(node, scope)
            case ast.IfExp(body=one, orelse=other):
                return self.kind(one, scope) or self.kind(other, scope)
        return None

    def _kind_of_call(self, call: ast.Call, scope: Scope) -> Kind | None:
        name, func = self._last(call), call.func
        if name in self.trainers:
            return Kind.TRAINER
        if name in self._arguments:
            return Kind.ARGUMENTS
        if name in {"from_pretrained", "from_config"} and is_whole_model(dotted_name(func)):
            return Kind.MODEL
        if isinstance(func, ast.Attribute) and self.kind(func.value, scope) in {Kind.MODEL, Kind.PART}:
            is_same = self.kind(func.value, scope) == Kind.MODEL and name in {*_METHODS, "to", "cuda", "train"}
            return Kind.MODEL if is_same else Kind.PART
        given = [self.kind(one, scope) for one in _given(call)]
        if name in self.known and Kind.MODEL in given:  # what makes another one of it
            return Kind.MODEL
        return Kind.ARGUMENTS if Kind.ARGUMENTS in given and any(verb in name for verb in _CHANGES) else None

    @cached_property
    def _trained(self) -> Mapping[Scope, int]:
        """Line of the last ``train()`` of a Trainer in each scope."""
        found: dict[Scope, int] = {}
        for node, scope, _ in self.script.visited:
            match node:
                case ast.Call(func=ast.Attribute(value=owner, attr="train")) if self.kind(owner, scope) == Kind.TRAINER:
                    found[scope] = max(node.lineno, found.get(scope, 0))
        return found

    @cached_property
    def _last_calls(self) -> Mapping[Scope, int]:
        """Line of the last call of each of the script's own functions, by its scope."""
        found: dict[Scope, int] = {}
        for node, _, _ in self.script.visited:
            own = self.functions.get(self._last(node)) if isinstance(node, ast.Call) else None
            if own is not None and own in self.script.scopes:
                inner = self.script.scopes[own]
                found[inner] = max(node.lineno, found.get(inner, 0))
        return found

    def _change(
        self, node: ast.expr | ast.stmt, scope: Scope, facts: frozenset[str] | None, why: str, **more: object
    ) -> Iterator[Change]:
        """Yield a change, unless it comes after training."""
        if node.lineno <= self._trained.get(scope, sys.maxsize):
            since = max(node.lineno, self._last_calls.get(scope, 0))
            yield Change(node.lineno, f"{why}: {words_of(node)}", facts, since)._replace(**more)  # type: ignore[arg-type]

    def changes(self) -> Iterator[Change]:
        """Yield where the objects may be changed by what is not read."""
        for node, scope, _ in self.script.visited:
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
        for one in self.script.assignments():
            yield from self._of_attribute(one)
        yield from self._of_own_trainers()
        if "unsloth" in {path.partition(".")[0] for path in self.imports.values()}:
            line = next(line for line, path in _import_lines(self.script.tree) if path.partition(".")[0] == "unsloth")
            why = "trains with unsloth, whose kernels for attention, loss and checkpointing are not modelled"
            yield Change(line, why, KERNELS | CHECKPOINTING | DTYPES | {"model.attn_implementation"}, 0)

    def _of_call(self, call: ast.Call, scope: Scope) -> Iterator[Change]:
        name, func = self._last(call), call.func
        if self.kind(func, scope) in {Kind.MODEL, Kind.PART} and not isinstance(func, ast.Attribute):
            return  # a forward
        owner = self.kind(func.value, scope) if isinstance(func, ast.Attribute) else None
        if owner == Kind.TRAINER and self.kind(func, scope) is not None:
            return  # as above, of the Trainer's model
        if owner is not None and isinstance(func, ast.Attribute):
            yield from self._of_method(call, func, owner, scope)
            return
        if name == "exec" and (Kind.OPTIONS in self.kinds.values() or Kind.ARGUMENTS in self.kinds.values()):
            yield from self._change(call, scope, None, ANY)
            return
        given = {self.kind(one, scope) for one in _given(call) if not self._is_asked(one, scope)}
        given -= {None, Kind.CONFIG, Kind.OPTIMIZER}
        is_setattr = name == "setattr" and len(call.args) > 1 and isinstance(call.args[1], ast.Constant)
        if not given or is_setattr:
            return
        if given & {Kind.ARGUMENTS, Kind.OPTIONS} and any(verb in name.lower() for verb in _CHANGES):
            yield from self._change(call, scope, None, ANY)
        elif name in self.known or name in self.trainers or name in self.functions or name in self.classes:
            return
        elif name in {"setattr", "__setattr__"}:
            yield from self._change(call, scope, OF_MODEL, "may change the model")
        elif (
            given == {Kind.OPTIONS}
            or self._leaves_alone(func, scope)
            or _is_look(name)
            or (given <= {Kind.ARGUMENTS, Kind.OPTIONS} and name.startswith(_MAKES))
        ):
            return
        elif given & {Kind.ARGUMENTS, Kind.TRAINER}:
            more = {"since": 0} if name.endswith("Trainer") else {}  # takes the arguments that it is given
            yield from self._change(call, scope, None, ANY, **more)
        else:
            yield from self._change(call, scope, OF_MODEL, "may change the model")

    def _is_asked(self, node: ast.expr, scope: Scope) -> bool:
        """Tell whether an expression is what a model answers: its parameters, its state."""
        return isinstance(node, ast.Call) and self.kind(node, scope) == Kind.PART

    def _of_method(self, call: ast.Call, func: ast.Attribute, owner: Kind, scope: Scope) -> Iterator[Change]:
        name = func.attr
        match owner:
            case Kind.ARGUMENTS | Kind.OPTIONS if not name.startswith(_ASKS):
                yield from self._change(call, scope, None, ANY)
            case Kind.TRAINER if name == "add_callback":
                yield from self.of_callbacks(call.args, scope)
            case Kind.TRAINER if not name.startswith(_TRAINER_ASKS) and dotted_name(func.value) != "self":
                yield from self._change(call, scope, None, ANY)
            case Kind.CONFIG if name == "update":
                for one in call.args:
                    for key in one.keys if isinstance(one, ast.Dict) else ():
                        if isinstance(key, ast.Constant):
                            yield from self._of_config(call, str(key.value), scope)
            case Kind.MODEL | Kind.PART:
                yield from self._of_model_method(call, name, owner, scope)

    def _of_model_method(self, call: ast.Call, name: str, owner: Kind, scope: Scope) -> Iterator[Change]:
        facts = _METHODS.get(name)
        if name == "to":
            words = [*map(dotted_name, call.args), *(str(word.arg) for word in call.keywords)]
            facts = DTYPES if any(is_dtype(word) for word in words) else None
        if (facts is DTYPES and owner == Kind.PART) or (name == "add_adapter" and self.is_lora(_given(call), scope)):
            return
        if facts is not None:
            yield from self._change(call, scope, facts, "may change the model")
        elif owner == Kind.PART and not is_about_memory(name) and not _is_attribute(call.func):
            return  # of a tensor or a name as well as of a module
        elif hasattr(str, name):
            return  # of a model's name
        elif not (name in self.known or name.startswith(_MODEL_ASKS) or is_elsewhere(name)) and not (
            name == "apply" and all(dotted_name(one) in self.functions for one in call.args)
        ):
            yield from self._change(call, scope, OF_MODEL, "may change the model")

    def _of_config(self, node: ast.expr | ast.stmt, name: str, scope: Scope) -> Iterator[Change]:
        """Yield what an attribute of the model's configuration decides, by the words of its name."""
        about = words_about_memory(name) - {"dtype"}  # a loaded model keeps its own
        facts = frozenset(fact for fact in OF_MODEL if about & split_name(fact))
        if facts:
            yield from self._change(node, scope, facts, "may change the model")

    def of_callbacks(self, values: Iterable[ast.expr], scope: Scope) -> Iterator[Change]:
        """Yield what callbacks may change that are not read: they are given the model and the optimizer."""
        for value in values:
            one: ast.expr | None = value
            if isinstance(value, ast.Name) and scope.owner(value.id) is not None and value.id not in self.classes:
                one = scope.find(value.id)
            if isinstance(one, ast.List | ast.Tuple):
                yield from self.of_callbacks(one.elts, scope)
                continue
            made = one.func if isinstance(one, ast.Call) else one
            name = "" if made is None else dotted_name(made).rpartition(".")[2]
            rest = "_".join(
                re.findall(r"[A-Z]?[a-z0-9]+|[A-Z]+", name.replace("Callbacks", "").replace("Callback", ""))
            )
            if isinstance(one, ast.Constant) or name in self.classes or name in self.functions or is_elsewhere(rest):
                continue
            if made is None or not self._leaves_alone(made, scope):
                why = "a callback that is not read may change the model"
                yield from self._change(value, scope, OF_MODEL | OF_OPTIMIZER, why, since=math.inf)

    def _of_effect(self, call: ast.Call, scope: Scope) -> Iterator[Change]:
        """Yield a call of an unknown module for nothing but its effect: it patches something."""
        path = self._path(call.func)
        name = self._last(call)
        if path is None or _is_well_known(path) or _is_look(name) or name in self.known:
            return
        if any(self.kind(one, scope) is not None for one in _given(call)):
            return  # told with the object it is given
        plain = all(isinstance(one, ast.Constant) for one in _given(call))
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
            if isinstance(target, ast.Subscript) and self.kind(target.value, scope) in {Kind.ARGUMENTS, Kind.OPTIONS}:
                yield from self._change(node, scope, None, ANY)

    def _of_making(self, targets: Iterable[ast.expr], value: ast.expr, scope: Scope) -> Iterator[Change]:
        """Yield where the model that is trained comes out of a call that is not read."""
        first = next((one.elts[0] if isinstance(one, ast.Tuple) and one.elts else one for one in targets), None)
        if first is None or not isinstance(value, ast.Call) or self.kind(first, scope) != Kind.MODEL:
            return
        name = self._last(value)
        own = name in self.known or name in self.functions or name in self.classes
        is_known = Kind.MODEL in {self.kind(one, scope) for one in (*_given(value), value)}
        if not (own or is_known or self._leaves_alone(value.func, scope)):
            yield from self._change(value, scope, OF_MODEL, "makes the model in a way that is not read")

    def _of_attribute(self, one: Assignment) -> Iterator[Change]:
        owner, name = self.kind(one.owner, one.scope), one.name
        if owner == Kind.TRAINER and name in _OVERRIDDEN and not self._is_same(one):
            yield from self._change(
                one.node, one.scope, _OVERRIDDEN[name], f"sets {name} of the Trainer", since=math.inf
            )
        elif owner == Kind.TRAINER and name == "args" and not self._is_same(one):
            yield from self._change(one.node, one.scope, None, ANY)
        elif owner == Kind.CONFIG and name != "use_cache":
            yield from self._of_config(one.node, name, one.scope)
        elif owner in {Kind.MODEL, Kind.PART} and name == "requires_grad":
            yield from self._change(one.node, one.scope, TRAINABLE, "trains a part of the model or none of it")
        elif owner in {Kind.MODEL, Kind.PART} and name in {"is_parallelizable", "model_parallel"}:
            yield from self._change(one.node, one.scope, SHARDING, "may spread the model over devices")
        elif (
            owner in {Kind.MODEL, Kind.PART}
            and not is_elsewhere(name)
            and name not in {"config", "generation_config", "state_dict"}
        ):
            yield from self._change(one.node, one.scope, OF_MODEL, "may change the model")
        elif owner is None and not isinstance(one.value, ast.Constant) and not is_elsewhere(name):
            path = self._path(one.owner)
            if path is not None and path.startswith(_PATCHED):
                yield from self._change(one.node, one.scope, OF_MODEL | OF_OPTIMIZER, "patches what trains", since=0)

    def _is_same(self, one: Assignment) -> bool:
        """Tell whether an attribute gets the very object that is known for it: ``self.model = model``."""
        kind = self.kind(one.value, one.scope)
        return kind in ({Kind.ARGUMENTS, Kind.OPTIONS} if one.name == "args" else {Kind.MODEL})

    def _of_own_trainers(self) -> Iterator[Change]:
        made = {self._last(node) for node, _, _ in self.script.visited if isinstance(node, ast.Call)}
        made |= {dotted_name(base) for name, node in self.classes.items() if name in made for base in node.bases}
        for name in self.trainers.keys() & self.classes.keys() & made:
            for method in self.classes[name].body:
                if isinstance(method, ast.FunctionDef) and method.name in _OVERRIDDEN:
                    why = f"{name} has a {method.name} of its own"
                    yield Change(method.lineno, why, _OVERRIDDEN[method.name], math.inf)

    def is_lora(self, values: Iterable[ast.expr], scope: Scope) -> bool:
        """Tell whether one of some expressions is a configuration of adapters that is read where it is made."""
        for value in values:
            one = scope.find(value.id) if isinstance(value, ast.Name) else value
            if isinstance(one, ast.Call) and self._last(one) in {"LoraConfig", "AdaLoraConfig"}:
                return True
        return False

    def _path(self, node: ast.AST) -> str | None:
        """Return the dotted path of what an import names; None for anything else."""
        root, _, rest = dotted_name(node).partition(".")
        path = self.imports.get(root)
        return path if path is None or not rest else f"{path}.{rest}"

    def _leaves_alone(self, func: ast.AST, scope: Scope, depth: int = 0) -> bool:
        """Tell whether what is called is of a package that changes nothing of what it is given."""
        root = dotted_name(func).partition(".")[0]
        path = self._path(func)
        if path is not None:
            if _is_well_known(path) and path.rpartition(".")[2].startswith(_MODEL_ASKS):
                return True
            outer = (path[: one.start()] for one in re.finditer(r"\.|$", path))
            return _is_well_known(path) and not any(f"-{one}" in _NOT_CHANGING for one in outer)
        assigned = scope.find(root) if root else None
        if isinstance(assigned, ast.Call) and depth < _ROUNDS:  # a method of an object of theirs
            return self._leaves_alone(assigned.func, scope, depth + 1) or self._last(assigned) in self.known
        if dotted_name(func).split(".")[-2:-1] == ["accelerator"] or (
            isinstance(func, ast.Attribute) and is_elsewhere(root)
        ):
            return True
        return scope.owner(root) is None and hasattr(builtins, root)


ANY = "may set any argument"


def is_dtype(word: str) -> bool:
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


_VALUES = {"generation_config", "device", "dtype", "weight", "bias", "data", "shape", "name_or_path"}
"""Attributes of a model that are no part of what is trained."""


def _attribute_kind(owner: Kind | None, name: str) -> Kind | None:
    if owner == Kind.TRAINER:
        return {
            "model": Kind.MODEL,
            "model_wrapped": Kind.MODEL,
            "args": Kind.ARGUMENTS,
            "optimizer": Kind.OPTIMIZER,
        }.get(name)
    if owner in {Kind.MODEL, Kind.PART}:
        return Kind.CONFIG if name == "config" else None if name in _VALUES else Kind.PART
    return None


def _is_apart(name: str) -> bool:
    """Tell whether an attribute of a model is one of those that scripts set for other ends."""
    return is_elsewhere(name) or name.startswith("_ddp") or name in {"config", "generation_config", "state_dict"}


def _is_attribute(func: ast.expr) -> bool:
    """Tell whether a method is one of an attribute: ``model.vision_tower.freeze``."""
    return isinstance(func, ast.Attribute) and isinstance(func.value, ast.Attribute)


def _given(call: ast.Call) -> list[ast.expr]:
    """Return what a call is given, the items of lists among it."""
    values = [*call.args, *(word.value for word in call.keywords)]
    return [item for value in values for item in getattr(value, "elts", [value])]


def _is_well_known(path: str) -> bool:
    package = path.partition(".")[0]
    return package in sys.stdlib_module_names or package in _NOT_CHANGING


def _is_look(name: str) -> bool:
    return _LOOKS.match(name) is not None or is_elsewhere("_".join(re.findall(r"[A-Z]?[a-z0-9]+|[A-Z]+", name)))


def _import_lines(tree: ast.AST) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield from ((node.lineno, path) for _, path in _imports([node]))


def _imports(nodes: Iterable[ast.AST]) -> Iterator[tuple[str, str]]:
    """Yield the names that imports make, each with its path; a module of the project's own package begins with a dot."""
    for node in nodes:
        if isinstance(node, ast.Import):
            for item in node.names:
                yield (item.asname, item.name) if item.asname else (item.name.partition(".")[0],) * 2
        elif isinstance(node, ast.ImportFrom):
            module = "." * node.level + (node.module or "")
            yield from ((item.asname or item.name, f"{module}.{item.name}") for item in node.names)
