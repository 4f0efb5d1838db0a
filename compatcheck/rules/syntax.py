"""Parse the condition and size language of rules: a bounded subset of Python syntax, checked against a whitelist.

Runs when rules are compiled and linted; matching evaluates the code it produces (`compatcheck.rules.expression`).
"""

from __future__ import annotations

import ast
from functools import lru_cache
from typing import TYPE_CHECKING

from compatcheck.core.errors import RuleError
from compatcheck.core.python_code import parse_python
from compatcheck.core.versions import InvalidSpecifierError, compile_specifier

if TYPE_CHECKING:
    from compatcheck.rules.expression import Code

MAX_LENGTH = 2000
MAX_NODES = 250
MAX_INTEGER = 10**18

_SYMBOLS: dict[type[ast.AST], str] = {
    ast.Eq: "==",
    ast.NotEq: "!=",
    ast.Lt: "<",
    ast.LtE: "<=",
    ast.Gt: ">",
    ast.GtE: ">=",
    ast.Is: "is",
    ast.IsNot: "is not",
    ast.In: "in",
    ast.NotIn: "not in",
    ast.Add: "+",
    ast.Sub: "-",
    ast.Mult: "*",
    ast.Div: "/",
    ast.FloorDiv: "//",
    ast.Mod: "%",
    ast.Pow: "**",
}
_FUNCTIONS = {
    "declared": 1,
    "installed": 2,
    "metadata_refutes": 3,
    "version_in": 2,
    "env": 1,
    "table": None,
    "dtype_bytes": 1,
    "moments": 1,
    "min": None,
    "max": None,
    "ceil": 1,
    "pow2_ceil": 1,
    "recomputed": 0,
    "not_kept": 0,
    "no_backward": 0,
    "compiled": 0,
    "smooths_labels": 0,
    "sequences": 0,
    "sequence_ranks": 0,
    "head_ranks": 0,
    "stages": 0,
    "attention_layers": 0,
    "own_layers": 0,
    "saved_modules": 0,
    "float32_outputs": 0,
    "moment_bytes": 0,
    "reached_parameters": 0,
    "trained_parameters": 0,
    "shard_ranks": 0,
    "fused_experts": 0,
    "turns_expert_names": 0,
    "generated_together": 0,
    "adapts_experts": 0,
}
"""Name → number of arguments; None takes any positive number."""
WRITTEN_OUT = {
    "recomputed": (
        "training.gradient_checkpointing or (training.fsdp_activation_checkpointing"
        ' if declared("training.fsdp_activation_checkpointing") else False)'
    ),
    "not_kept": (
        'recomputed() or (training.activation_offloading if declared("training.activation_offloading") else False)'
        " or no_backward()"
    ),
    "no_backward": 'not program.keeps_graph if declared("program.keeps_graph") else False',
    "compiled": 'training.compile if declared("training.compile") else False',
    "smooths_labels": 'training.label_smoothing > 0 if declared("training.label_smoothing") else False',
    "sequences": (
        'training.micro_batch_size * (program.sequences_per_sample if declared("program.sequences_per_sample") else 1)'
    ),
    "sequence_ranks": 'training.context_parallel if declared("training.context_parallel") else 1',
    "head_ranks": 'training.tensor_parallel if declared("training.tensor_parallel") else 1',
    "stages": (
        '(training.pipeline_parallel if declared("training.pipeline_parallel") else 1)'
        ' * (hardware.devices_per_rank if declared("hardware.devices_per_rank") else 1)'
    ),
    "saved_modules": (
        '(model.embedding_parameters if "embed_tokens" in training.lora_modules_to_save else 0)'
        ' + (model.vocab_size * model.hidden_size if "lm_head" in training.lora_modules_to_save else 0)'
        ' if declared("training.lora_modules_to_save") else 0'
    ),
    "float32_outputs": (
        '(training.mixed_precision == "no" and model.load_dtype == "float32") or (training.mixed_precision in {"bf16", "fp16"}'
        ' and (training.sharding in {"none", "ddp"} or (training.sharding == "fsdp" and training.fsdp_version == 1)))'
    ),
    "own_layers": 'program.own_layers if declared("program.own_layers") else False',
    "moment_bytes": 'moments(training.optimizer) if declared("training.optimizer") else moments("adamw")',
    "reached_parameters": (
        'model.trainable_parameters if (training.peft in (None, "freeze") if declared("training.peft") else False)'
        " else model.parameters"
    ),
    "trained_parameters": (
        'model.trainable_parameters if declared("model.trainable_parameters") else model.parameters'
        ' if (training.peft in (None, "freeze") if declared("training.peft") else True) else saved_modules()'
    ),
    "shard_ranks": (
        '1 if training.fsdp_version == 1 and training.fsdp_sharding_strategy == "no_shard"'
        ' else training.hsdp_shard_size * head_ranks() * stages() if declared("training.hsdp_shard_size")'
        " else hardware.gpus_per_node if training.fsdp_version == 1"
        ' and training.fsdp_sharding_strategy in ("hybrid_shard", "hybrid_shard_zero2") else hardware.world_size'
    ),
    "fused_experts": (
        'model.expert_parameters > 0 and installed("transformers", table("expert-parameters", "experts", model.model_type))'
    ),
    "turns_expert_names": (
        '(model.num_experts > 1 if declared("model.num_experts") else False)'
        ' and declared("training.lora_target_modules") and installed("peft", ">=0.19.0")'
        ' and installed("transformers", table("expert-parameters", "turned", model.model_type))'
        ' and ("all-linear" in training.lora_target_modules and installed("peft", ">=0.20.0")'
        ' and not (program.lists_linears if declared("program.lists_linears") else False)'
        ' or (("w1" in training.lora_target_modules and "w3" in training.lora_target_modules)'
        ' or "w2" in training.lora_target_modules'
        ' if model.model_type in {"minimax", "minimax_m2", "mixtral"} else'
        ' ("gate_proj" in training.lora_target_modules and "up_proj" in training.lora_target_modules)'
        ' or "down_proj" in training.lora_target_modules))'
    ),
    "generated_together": (
        "(rollout.global_batch_size // hardware.world_size if program.generates_at_once == 'share'"
        " else training.micro_batch_size * training.gradient_accumulation_steps if program.generates_at_once == 'step'"
        " else min(64, training.micro_batch_size * training.gradient_accumulation_steps)"
        " if program.generates_at_once == 'step_by_64'"
        " else 2 * training.micro_batch_size if program.generates_at_once == 'pairs' else training.micro_batch_size)"
        ' if declared("training.framework") else training.micro_batch_size'
    ),
    "adapts_experts": 'declared("training.lora_target_parameters") or turns_expert_names()',
    "attention_layers": ('model.attention_layers if declared("model.attention_layers") else model.num_hidden_layers'),
}
"""Functions that stand for an expression, so that rules which ask the same forget the same settings as seldom as one:

- ``recomputed``: layers are computed again in backward, by the model's checkpointing or FSDP's own
- ``not_kept``: what backward needs of a layer is not on the device until then: computed again, moved to the host, or no
  backward follows
- ``no_backward``: the role only scores
- ``compiled``: torch.compile fuses what eager code would make and keep piece by piece
- ``smooths_labels``: the label smoother of transformers' Trainer takes the labels out of the batch, where a loss is the Trainer's
- ``sequences``: sequences of one forward on one rank
- ``sequence_ranks``: ranks that one sequence is cut up for; ``head_ranks``: ranks that heads are shared out to
- ``stages``: devices that the blocks of a model are shared out to
- ``attention_layers``: blocks with attention scores
- ``moment_bytes``: what an optimizer keeps of each float32 parameter besides, Adam's where nobody names one
- ``reached_parameters``: parameters from the first trained one on; beside adapters that is all of them
- ``trained_parameters``: parameters that are trained; where nobody counts them, those that adapters leave frozen are none
- ``shard_ranks``: ranks that hold one copy of the model under FSDP, split matrices and stages counted
- ``saved_modules``: parameters of embedding and head that are trained in full beside adapters
- ``float32_outputs``: what a model returns is float32, by weights or by accelerate, which casts it outside DeepSpeed and FSDP2
- ``fused_experts``: the experts of a layer are parameters of several dimensions, and no linear layers
- ``turns_expert_names``: peft turns names of adapted layers into the parameters that an expert's layers are fused into
- ``generated_together``: sequences that one call of generate takes
- ``adapts_experts``: adapters lie on the fused weights of experts, named as parameters or by names that peft turns
- ``own_layers``: layers of the program run in place of those of transformers
"""

_NODES = (
    ast.Expression,
    ast.BoolOp,
    ast.And,
    ast.Or,
    ast.UnaryOp,
    ast.Not,
    ast.USub,
    ast.BinOp,
    ast.Compare,
    ast.IfExp,
    ast.Call,
    ast.Name,
    ast.Attribute,
    ast.Load,
    ast.Constant,
    ast.Set,
    ast.Tuple,
    *_SYMBOLS,
)


@lru_cache(maxsize=1024)
def parse_tree(text: str) -> ast.expr:
    """Parse an expression to a checked syntax tree; for static checks.

    Raises:
        RuleError: not an expression, a construct outside the language, or too large; a caret marks the place.
    """
    if len(text) > MAX_LENGTH:
        raise RuleError(f"expression longer than {MAX_LENGTH} characters")
    try:
        tree = parse_python(text.strip(), "eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        column = (getattr(error, "offset", None) or 1) - 1
        problem = getattr(error, "msg", error)
        raise RuleError(f"not an expression: {problem}\n{_caret(text.strip(), column)}") from None
    count = 0
    for node in ast.walk(tree):
        count += 1
        if not isinstance(node, _NODES):
            name = type(node).__name__
            raise RuleError(f"{name} is not part of the language\n{_caret(text.strip(), _column(node))}")
        problem = _check(node)
        if problem:
            raise RuleError(f"{problem}\n{_caret(text.strip(), _column(node))}")
    if count > MAX_NODES:
        raise RuleError(f"expression has {count} nodes, more than {MAX_NODES}")
    return tree.body


def parse(text: str) -> Code:
    """Parse an expression to code that `evaluate` runs.

    Raises:
        RuleError: see `parse_tree`.
    """
    return _encode(parse_tree(text))


def _encode(node: ast.expr) -> Code:  # noqa: PLR0911 (one return per node type)
    match node:
        case ast.Constant():
            return ["value", node.value]
        case ast.Attribute() | ast.Name():
            return ["fact", dotted_name(node) or ast.unparse(node)]
        case ast.BoolOp(op=op, values=values):
            return ["and" if isinstance(op, ast.And) else "or", *map(_encode, values)]
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            return ["not", _encode(operand)]
        case ast.UnaryOp(operand=operand):
            return ["negative", _encode(operand)]
        case ast.BinOp(left=left, op=op, right=right):
            return [_SYMBOLS[type(op)], _encode(left), _encode(right)]
        case ast.Compare(left=left, ops=ops, comparators=comparators):
            sides = [_encode(left), *map(_encode, comparators)]
            pairs: list[Code] = [[_SYMBOLS[type(op)], sides[index], sides[index + 1]] for index, op in enumerate(ops)]
            return pairs[0] if len(pairs) == 1 else ["and", *pairs]
        case ast.IfExp(test=test, body=body, orelse=orelse):
            return ["if", _encode(test), _encode(body), _encode(orelse)]
        case ast.Set(elts=elements) | ast.Tuple(elts=elements):
            return ["set", *map(_encode, elements)]
        case ast.Call(func=ast.Name(id=name), args=arguments):
            if name in WRITTEN_OUT:
                return parse(WRITTEN_OUT[name])
            if name in {"declared", "env"}:
                return ["call", name, _literal_text(arguments[0])]
            if name in {"installed", "version_in"}:
                first = _literal_text(arguments[0]) if name == "installed" else _encode(arguments[0])
                return ["call", name, first, _encode_range(arguments[1])]
            if name == "metadata_refutes":
                names = [_literal_text(argument) for argument in arguments[:2]]
                return ["call", name, *names, _encode_range(arguments[2])]
            return ["call", name, *map(_encode, arguments)]
        case _:
            raise RuleError(f"{type(node).__name__} is not part of the language")


def _encode_range(node: ast.expr) -> Code:
    """Compile a literal specifier once; one that comes from a table is compiled when it is known."""
    if not isinstance(node, ast.Constant) or not isinstance(node.value, str) or node.value in {"present", "absent"}:
        return _encode(node)
    try:
        return ["range", node.value, compile_specifier(node.value)]
    except InvalidSpecifierError as error:
        raise RuleError(str(error)) from None


def _literal_text(node: ast.expr) -> Code:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return ["value", node.value]
    name = dotted_name(node)
    if name is not None:
        return ["value", name]  # declared(training.zero_stage) reads as well as the quoted name
    raise RuleError(f"`{ast.unparse(node)}` must be a literal string")


def _check(node: ast.AST) -> str | None:
    match node:
        case ast.Constant(value=value):
            if isinstance(value, int | float) and abs(value) > MAX_INTEGER:
                return f"number larger than {MAX_INTEGER:.0e}"
            if not isinstance(value, int | float | str | bool | None):
                return f"{type(value).__name__} literals are not part of the language"
        case ast.Call(func=ast.Name(id=name), args=arguments, keywords=[]):
            if name not in _FUNCTIONS:
                return f"unknown function {name}(); known: {', '.join(sorted(_FUNCTIONS))}"
            wanted = _FUNCTIONS[name]
            if not arguments if wanted is None else len(arguments) != wanted:
                return (
                    f"{name}() takes {'one or more' if wanted is None else wanted} argument{'' if wanted == 1 else 's'}"
                )
        case ast.Call():
            return "only the functions of the language can be called, without keywords"
        case ast.Attribute(value=ast.Name() | ast.Attribute()) | ast.Name():
            return None
        case ast.Attribute():
            return "attributes are only part of fact names"
        case _:
            return None
    return None


def _column(node: ast.AST) -> int:
    return getattr(node, "col_offset", 0)


def _caret(text: str, column: int) -> str:
    line = text.replace("\n", " ")
    return f"    {line}\n    {' ' * max(0, min(column, len(line)))}^"


def dotted_name(node: ast.expr) -> str | None:
    """Return ``training.zero_stage`` for the node that writes it, None for any other node."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    if isinstance(node, ast.Name) and parts:
        return ".".join([node.id, *reversed(parts)])
    return None
