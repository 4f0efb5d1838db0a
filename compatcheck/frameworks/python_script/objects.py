"""The objects a training script's run rests on, its model, Trainer, arguments and optimizer, followed through the script."""

from __future__ import annotations

import ast
import builtins
import re
import sys
from enum import Enum
from functools import cached_property
from typing import TYPE_CHECKING

from compatcheck.core.python_tree import nodes_of
from compatcheck.core.setting_names import is_elsewhere
from compatcheck.frameworks.keys import Names
from compatcheck.frameworks.python_script.nodes import dotted_name, parses, targets_of

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from compatcheck.frameworks.python_script.calls import Scope, Script


class Kind(Enum):
    """Kinds of objects."""

    MODEL = "the model"
    PART = "a part of it"
    CONFIG = "its configuration"
    TRAINER = "the Trainer"
    ARGUMENTS = "its arguments"
    OPTIONS = "what a parser fills beside them"
    OPTIMIZER = "the optimizer"


_OF_ARGUMENTS = frozenset({Kind.ARGUMENTS, Kind.OPTIONS})
_WHOLE_MODELS = ("ForCausalLM", "ForConditionalGeneration", "ForSequenceClassification", "ForTokenClassification", "LMHeadModel",
                 "ForSeq2SeqLM", "AutoModel", "ImageTextToText", "ForMaskedLM", "ValueHead", "FastLanguageModel", "FastModel",
                 "FastVisionModel")  # fmt: skip
"""Words in the names of classes whose ``from_pretrained`` loads a model."""
_NOT_CHANGING = Names(__file__, "leaves_alone.txt")
_ROUNDS = 4
"""Objects are followed through assignments and the script's own functions; longer chains than this are not made."""


ADAPTER_CONFIGS = {"LoraConfig": True, "AdaLoraConfig": "adalora", "BOFTConfig": "boft", "ShiraConfig": "shira"}
"""Classes of peft whose keywords are read, and what each says of ``use_peft``."""
OF_TRAINERS = ("transformers", "trl", "unsloth")
"""Packages whose classes of trainers and arguments are read by their names."""


def is_of_trainers(path: str) -> bool:
    """Tell whether the dotted path of a class is of one of those packages: not of ``trl_trainer``, which is a project's own."""
    return path.partition(".")[0] in OF_TRAINERS


_SAME = {"requires_grad_", "half", "float", "double", "bfloat16", "to", "cuda", "train", "merge_and_unload", "compile"}
"""Methods of a model that return it."""
ASKS = ("get", "to_", "is_", "has_", "main_process_first", "print", "keys", "values", "items", "copy", "__")
"""How methods of arguments begin that change nothing."""
MODEL_ASKS = (
    *ASKS, "num_", "named_", "parameters", "modules", "children", "buffers", "save", "push", "state_dict", "load_state_dict",
    "train", "eval", "generate", "forward", "to", "cuda", "cpu", "tie_weights", "resize_token_embeddings",
    "register_", "backward", "step", "no_sync",
    "enable_input_require_grads", "set_input_embeddings", "set_output_embeddings", "create_or_update_model_card",
    "add_model_tags", "can_generate", "prepare_inputs", "config", "warn", "size", "numel", "dim", "item", "element_size",
    "_zero3_consolidated",
    # of DeepSpeed's engine: what it answers, what a step does by itself, its end (0.19.8 runtime/engine.py)
    "destroy", "zero_", "gradient_accumulation_steps", "gradient_clipping", "bfloat16_enabled", "fp16_enabled", "loss_scale",
    "dynamic_loss_scale", "module_state_dict", "load_module_state_dict", "allreduce_", "set_gradient_accumulation_boundary",
    "was_step_applied", "wall_clock_breakdown", "dump_state", "collect_python_gc", "load_checkpoint", "empty_partition_cache",
)  # fmt: skip
VERBS_OF_CHANGE = ("setattr", "update", "merge", "replace", "patch", "override")
"""Words in names of functions that change an object they are given."""


def _hands_on(node: ast.ClassDef) -> bool:
    """Tell whether a class of a trainer is made by its base alone: ``super().__init__(…)``, and attributes of its own."""
    made = (one for one in node.body if isinstance(one, ast.FunctionDef) and one.name == "__init__")
    return all(_is_handing_on(statement) for one in made for statement in one.body)


def _is_handing_on(node: ast.stmt) -> bool:
    match node:
        case ast.Expr(value=ast.Constant()):
            return True
        case ast.Expr(
            value=ast.Call(func=ast.Attribute(value=ast.Call(func=ast.Name(id="super")), attr="__init__")) as made
        ):
            return not any(isinstance(inner, ast.Call) for one in given_to(made) for inner in ast.walk(one))
    targets, value = targets_of(node)
    owners = [dotted_name(target).rpartition(".") for target in targets]
    own = all(owner == "self" and name not in _OF_TRAINER for owner, _, name in owners)
    return own and value is not None and not any("model" in dotted_name(one) for one in ast.walk(value))


_OF_TRAINER = {"model", "model_wrapped", "args", "optimizer", "accelerator"}
"""Attributes of a Trainer that decide what trains, and how."""


def is_whole_model(owner: str) -> bool:
    """Tell whether a class is one that loads a whole model."""
    return any(mark in owner for mark in _WHOLE_MODELS)


class Objects:
    """The objects of one script."""

    def __init__(
        self,
        script: Script,
        *,
        trainers: Collection[str],
        arguments: Collection[str],
        known: Collection[str],
        elsewhere: Iterable[tuple[str, Collection[str], Sequence[ast.ClassDef]]] = (),
    ) -> None:
        """Follow them through assignments and calls of the script's own functions.

        Args:
            script: the script.
            trainers: names of classes of trainers.
            arguments: names of classes of their arguments.
            known: names of functions and classes whose calls are read elsewhere.
            elsewhere: classes of trainers that stand in other modules of the project: name, classes of libraries that they are
                built on, and the nodes of it and of its bases.
        """
        self.script = script
        nodes = script.nodes
        self.functions = {one.name: one for one in nodes if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef)}
        self.classes = {one.name: one for one in nodes if isinstance(one, ast.ClassDef)}
        self.imports = dict(_imports(nodes))
        self.unread = frozenset(_unread_of_trl(self.imports, trainers))
        """Classes of trainers and of their arguments that the script takes from TRL and that are not known by name."""
        trainers = frozenset(trainers) | {name for name in self.unread if name.endswith(_TRAINER)}
        arguments = frozenset(arguments) | {name for name in self.unread if not name.endswith(_TRAINER)}
        self._bases: dict[int, tuple[Collection[str], dict[tuple[str, int], str | None]]] = {}
        """What `base_of` found, by the classes that were wanted."""
        others = self.classes.keys() | {
            path.rpartition(".")[2] for path in self.imports.values() if not is_of_trainers(path)
        }
        self.arguments = frozenset(arguments) - others
        """Classes of arguments that are a library's, and no class of the same name."""
        self.trainers = {name: name for name in trainers if name not in others}
        """Classes of trainers, the script's own among them, each with the one of a library that it is built on."""
        for name in self.classes:
            base = self.base_of(name, trainers)
            if base is not None:
                self.trainers[name] = base
        self.elsewhere: dict[str, Sequence[ast.ClassDef]] = {}
        """Those of them that stand in other modules, which do no more with what they are given than hand it on."""
        for name, roots, bodies in elsewhere:
            libraries = [root for root in roots if root in trainers]
            if len(libraries) == 1 and all(map(_hands_on, bodies)):
                self.trainers[name] = libraries[0]
                self.elsewhere[name] = bodies
        self.known = frozenset(known) - (others & ({*trainers, *arguments} - self.trainers.keys()))
        self.kinds: dict[tuple[Scope | None, str], Kind] = {}
        self._of_calls: dict[tuple[ast.Call, Scope], Kind | None] = {}
        """What calls return, as far as `kinds` tells by now: calls stand in one another."""
        self._name_own_methods()
        for _ in range(_ROUNDS):
            before = len(self.kinds)
            self._follow()
            if len(self.kinds) == before:
                break

    def base_of(self, name: str, wanted: Collection[str], depth: int = 0) -> str | None:
        """Return which of some classes a class of the script derives from."""
        _, known = self._bases.setdefault(id(wanted), (wanted, {}))
        if (name, depth) not in known:
            known[name, depth] = self._find_base(name, wanted, depth)
        return known[name, depth]

    def _find_base(self, name: str, wanted: Collection[str], depth: int) -> str | None:
        node = self.classes.get(name)
        for base in node.bases if node is not None and depth < _ROUNDS else ():
            written = dotted_name(base)
            last = written.rpartition(".")[2]
            if written not in self.classes and not is_of_trainers(self.imports.get(written, OF_TRAINERS[0])):
                continue  # of another library, whatever it is called there: `from lib import PPOTrainer as Base`
            last = self.script.aliases.get(last, last)
            found = last if last in wanted else self.base_of(last, wanted, depth + 1)
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
            targets, value = targets_of(node)
            for target in targets:
                if value is not None:
                    self._assign(target, value, scope)
            match node:
                case ast.For(target=ast.Name() as one, iter=ast.Tuple(elts=items) | ast.List(elts=items)) if (
                    kinds := _OF_ARGUMENTS.intersection(self.kind(item, scope) for item in items)
                ):
                    self._note(one, Kind.ARGUMENTS if Kind.ARGUMENTS in kinds else Kind.OPTIONS, scope)
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
                self._set(place, kind)

    def _set(self, place: tuple[Scope | None, str], kind: Kind) -> None:
        if self.kinds.get(place) != kind:
            self.kinds[place] = kind
            self._of_calls.clear()

    def _pass_on(self, call: ast.Call, scope: Scope) -> None:
        """Note what a call tells of the objects it is given: a Trainer's arguments, a parameter of an own function."""
        name = self.last_name(call)
        if name in self.trainers and not self.is_of_another(call):
            named = self.script.keywords(call, scope)
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
                if kind is not None and (inner, parameter) not in self.kinds:
                    self._set((inner, parameter), kind)
        if name == "apply" and self.kind(getattr(call.func, "value", call), scope) in {Kind.MODEL, Kind.PART}:
            for function in call.args:
                own = self.functions.get(dotted_name(function))
                if own is not None and own in self.script.scopes and own.args.args:
                    place = self.script.scopes[own], own.args.args[0].arg
                    if place not in self.kinds:
                        self._set(place, Kind.PART)

    def last_name(self, call: ast.Call) -> str:
        """Return the last part of what is called, aliases of imports undone."""
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
                if (node, scope) not in self._of_calls:
                    self._of_calls[node, scope] = self._kind_of_call(node, scope)
                return self._of_calls[node, scope]
            case ast.IfExp(body=one, orelse=other):
                return self.kind(one, scope) or self.kind(other, scope)
        return None

    def _kind_of_call(self, call: ast.Call, scope: Scope) -> Kind | None:
        name, func = self.last_name(call), call.func
        if name in self.trainers and not self.is_of_another(call):
            return Kind.TRAINER
        if name in self.arguments and not self.is_of_another(call):
            return Kind.ARGUMENTS
        if name in {"from_pretrained", "from_config"} and is_whole_model(dotted_name(func)):
            return Kind.MODEL
        if isinstance(func, ast.Attribute) and self.kind(func.value, scope) in {Kind.MODEL, Kind.PART}:
            is_same = self.kind(func.value, scope) == Kind.MODEL and name in _SAME
            return Kind.MODEL if is_same else Kind.PART
        given = [self.kind(one, scope) for one in given_to(call)]
        if name in self.known and Kind.MODEL in given:  # what makes another one of it
            return Kind.MODEL
        return Kind.ARGUMENTS if Kind.ARGUMENTS in given and any(verb in name for verb in VERBS_OF_CHANGE) else None

    @cached_property
    def trained(self) -> Mapping[Scope, int]:
        """Line of the last ``train()`` of a Trainer in each scope."""
        found: dict[Scope, int] = {}
        for node, scope, _ in self.script.visited:
            match node:
                case ast.Call(func=ast.Attribute(value=owner, attr="train")) if self.kind(owner, scope) == Kind.TRAINER:
                    found[scope] = max(node.lineno, found.get(scope, 0))
        return found

    @cached_property
    def bodies(self) -> Mapping[Scope, tuple[range, int]]:
        """Lines of each of the script's own functions and the line of its last call, by its scope."""
        found: dict[Scope, tuple[range, int]] = {}
        for node, _, _ in self.script.visited:
            own = self.functions.get(self.last_name(node)) if isinstance(node, ast.Call) else None
            if own is not None and own in self.script.scopes:
                inner = self.script.scopes[own]
                last = max(node.lineno, found[inner][1] if inner in found else 0)
                found[inner] = range(own.lineno, (own.end_lineno or own.lineno) + 1), last
        return found

    def classes_in(self, nodes: Iterable[ast.AST], scope: Scope, wanted: Collection[str]) -> Iterator[str]:
        """Yield which of some classes expressions name, themselves or by a class of the script that derives from one."""
        for node in (inner for one in nodes for inner in ast.walk(one) if isinstance(inner, ast.Name | ast.Attribute)):
            last = dotted_name(node).rpartition(".")[2]
            name = self.script.aliases.get(last, last)
            found = name if name in wanted else self.base_of(name, wanted)
            assigned = scope.find(last) if isinstance(node, ast.Name) else None
            if found is not None:
                yield found
            elif isinstance(assigned, ast.Tuple | ast.List):
                yield from self.classes_in(assigned.elts, scope, wanted)

    def path(self, node: ast.AST) -> str | None:
        """Return the dotted path of what an import names; None for anything else."""
        root, _, rest = dotted_name(node).partition(".")
        path = self.imports.get(root)
        return path if path is None or not rest else f"{path}.{rest}"

    def is_of_project(self, node: ast.AST) -> bool:
        """Tell whether a class is of the script or of a module that is no library's known here, an ``Auto…`` of any aside."""
        name = dotted_name(node)
        path = self.path(node)
        if name.rpartition(".")[2].startswith("Auto") or (path is not None and is_of_trainers(path)):
            return False
        if path is None:
            stars = (one for star, one in self.imports.items() if star == "*")
            return name in self.classes or any(not is_of_trainers(one) for one in stars)
        return not is_well_known(path)

    def is_of_another(self, call: ast.Call) -> bool:
        """Tell whether what is called is a class of a module of another package, whatever it is called there: ``L.Trainer``."""
        path = self.path(call.func) if isinstance(call.func, ast.Attribute) else None
        return path is not None and not is_of_trainers(path) and self.last_name(call) not in self.elsewhere

    def stand_for(self, name: str, scope: Scope) -> tuple[str, ...]:
        """Return the classes that a name is given: ``cls = Own if args.use_vllm else Other``; none where it is a class itself."""
        value = scope.find(name)
        chosen = (value.body, value.orelse) if isinstance(value, ast.IfExp) else (value,)
        names = [dotted_name(one) for one in chosen if isinstance(one, ast.Name | ast.Attribute)]
        return tuple(dict.fromkeys(one.rpartition(".")[2] for one in names)) if len(names) == len(chosen) else ()

    def is_unread_trainer(self, name: str, func: ast.expr | None = None) -> bool:
        """Tell whether a name is that of a trainer from no package that is known by name, which does more than its base.

        Args:
            name: of the class.
            func: what is called, where that is written out: ``own_trainers.OwnTrainer``.
        """
        path = self.imports.get(name) or (self.path(func) if isinstance(func, ast.Attribute) else None)
        path = path if name.endswith(_TRAINER) and name not in self.trainers else None
        return path is not None and not is_of_trainers(path) and not is_well_known(path)

    def leaves_alone(self, func: ast.AST, scope: Scope, depth: int = 0) -> bool:
        """Tell whether what is called is of a package that changes nothing of what it is given."""
        root = dotted_name(func).partition(".")[0]
        path = self.path(func)
        if isinstance(func, ast.Attribute) and func.attr == "__get__":
            return True  # a method for one object: what it is assigned to is read by itself
        if path is not None:
            if is_well_known(path) and path.rpartition(".")[2].startswith(MODEL_ASKS):
                return True
            return is_well_known(path) and not any(f"-{one}" in _NOT_CHANGING for one in _outer_paths(path))
        assigned = scope.find(root) if root else None
        if isinstance(assigned, ast.Call) and depth < _ROUNDS:  # a method of an object of theirs
            return self.leaves_alone(assigned.func, scope, depth + 1) or self.last_name(assigned) in self.known
        if dotted_name(func).split(".")[-2:-1] in (["accelerator"], ["fabric"]) or (
            isinstance(func, ast.Attribute) and is_elsewhere(root)
        ):
            return True
        return scope.owner(root) is None and hasattr(builtins, root)


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


def given_to(call: ast.Call) -> list[ast.expr]:
    """Return what a call is given, the items of lists among it."""
    values = [*call.args, *(word.value for word in call.keywords)]
    return [item for value in values for item in getattr(value, "elts", [value])]


def is_well_known(path: str) -> bool:
    """Tell whether a path is of the standard library, or of a package listed as one that changes nothing."""
    return path.partition(".")[0] in sys.stdlib_module_names or any(one in _NOT_CHANGING for one in _outer_paths(path))


def _outer_paths(path: str) -> Iterator[str]:
    """Yield a dotted path and those of what it lies in."""
    return (path[: one.start()] for one in re.finditer(r"\.|$", path))


def import_lines(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield the paths that a script imports, each with its line."""
    for node in nodes_of(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield from ((node.lineno, path) for _, path in _imports([node]))


_TRAINER, _CONFIG = "Trainer", "Config"


def _unread_of_trl(imports: Mapping[str, str], known: Collection[str]) -> Iterator[str]:
    """Yield the classes that a script takes from TRL in pairs, a trainer and its arguments, where they are not known by name."""
    of_trl = {path.rpartition(".")[2] for path in imports.values() if path.startswith("trl.")}
    for name in of_trl:
        arguments = f"{name.removesuffix(_TRAINER)}{_CONFIG}"
        if name.endswith(_TRAINER) and name not in known and arguments in of_trl:
            yield from (name, arguments)


def _imports(nodes: Iterable[ast.AST]) -> Iterator[tuple[str, str]]:
    """Yield the names that imports make, each with its path; a module of the project's own package begins with a dot."""
    for node in nodes:
        if isinstance(node, ast.Import):
            for item in node.names:
                yield (item.asname, item.name) if item.asname else (item.name.partition(".")[0],) * 2
        elif isinstance(node, ast.ImportFrom):
            module = "." * node.level + (node.module or "")
            yield from ((item.asname or item.name, f"{module}.{item.name}") for item in node.names)
