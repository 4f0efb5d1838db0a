"""Megatron-LM's command lines (``pretrain_gpt.py`` and programs that parse its arguments).

Names as in ``megatron/training/arguments.py``; the model is described by options, so that its sizes are facts too.
"""

from __future__ import annotations

import ast
import math
from typing import TYPE_CHECKING

from compatcheck.core.document import Statement
from compatcheck.core.source import Skipped
from compatcheck.frameworks.keys import SILENT, KeyTable, Names, Table
from compatcheck.frameworks.launch.arguments import FurtherContent, OptionMeanings, make_command_document
from compatcheck.frameworks.launch.flags import parse_flags

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from compatcheck.core.document import Document
    from compatcheck.frameworks.launch.program import Launch
    from compatcheck.frameworks.launch.values import Argument

READER = "megatron"
TABLE = KeyTable(__file__)
"""Option → meaning."""
NAMES = Names(__file__)


def recognise(launch: Launch) -> str | None:
    """Tell whether a launch parses Megatron's arguments."""
    options = parse_flags(launch.arguments).options
    marks = {"tensor_model_parallel_size", "num_layers", "micro_batch_size", "seq_length", "train_iters", "hidden_size"}
    return READER if len(marks & options.keys()) >= _ENOUGH else None


_ENOUGH = 4
SWITCHES = frozenset((
    "bf16", "fp16", "log_params_norm", "optimizer_cpu_offload", "sequence_parallel", "swiglu",
    "untie_embeddings_and_output_weights", "use_distributed_optimizer",
))  # fmt: skip
"""Options of the table that take no value: what stands behind one is not its own (``--bf16 $EXTRA_ARGS``)."""


def read(launch: Launch, _: str) -> tuple[Document, ...]:
    """Translate a launch."""
    flags = parse_flags(launch.arguments, switches=SWITCHES)
    meanings = OptionMeanings(READER, _table_for(flags.options), NAMES.__contains__)
    skipped = tuple(find_skipped(flags.options, launch))
    further = FurtherContent(tuple(state_known(flags.options)), skipped=skipped, unknown=flags.unknown)
    return (make_command_document(meanings, launch.command.source, flags.options, further),)


def _table_for(options: Mapping[str, Argument]) -> Table:
    """Return what options mean beside one another.

    Of a language model that is given images ``--seq-length`` counts their embeddings (examples/multimodal/model.py, core_v0.19.0:
    ``language_max_sequence_length=args.decoder_seq_length``).
    """
    if "vision_model_type" not in options and "language_model_type" not in options:
        return dict(TABLE)
    return {**TABLE, "seq_length": SILENT, "decoder_seq_length": TABLE["seq_length"]}


def find_skipped(options: Mapping[str, Argument], launch: Launch) -> Iterator[Skipped]:
    """Say what Megatron-LM refuses, and what it does in a part only."""
    yield from _refused(options, launch)
    yield from _recomputed_in_part(options, launch)


def _refused(options: Mapping[str, Argument], launch: Launch) -> Iterator[Skipped]:
    """Say that ``--bf16`` and ``--fp16`` exclude each other (validate_args: ``assert not args.fp16``, core_r0.11.0)."""
    if all(name in options and options[name].value is True for name in ("bf16", "fp16")):
        source = launch.command.source._replace(key="--fp16", line=options["fp16"].line)
        yield Skipped(
            source, "Megatron-LM refuses --bf16 together with --fp16; the run does not start", "keep one of them"
        )


_NARROW = (("grad_reduce_in_bf16", True), ("main_grads_dtype", "bf16"))
"""Options, with their values, that leave gradients in 16 bits under ``--bf16``."""


def _recomputed_in_part(options: Mapping[str, Argument], launch: Launch) -> Iterator[Skipped]:
    """Say that ``--recompute-method block`` recomputes as many blocks of a stage as it is told, and keeps the others whole."""
    method = options.get("recompute_method")
    if method is not None and method.value == "block":
        source = launch.command.source._replace(key="--recompute-method", line=method.line)
        yield Skipped(source, "recomputes a part of the blocks; all of them are taken to be recomputed", passes=True)


def state_known(options: Mapping[str, Argument]) -> Iterator[Statement]:
    """Say what follows from options beside the meaning of each, and of a model from those that are left out."""
    yield Statement("training.sharding", "(program)", "megatron")
    yield from _state(options)
    yield from _experts(options)
    heads = options.get("num_attention_heads")
    if "group_query_attention" not in options and heads is not None and isinstance(heads.value, int):
        yield Statement("model.num_key_value_heads", "group_query_attention (left out)", heads.value)
    if "swiglu" not in options:
        yield Statement("model.gated_mlp", "swiglu (left out)", value=False)
    if "untie_embeddings_and_output_weights" not in options:
        yield Statement("model.tie_word_embeddings", "untie_embeddings_and_output_weights (left out)", value=True)
    hidden = options.get("hidden_size")
    if (
        "swiglu" in options
        and "ffn_hidden_size" not in options
        and hidden is not None
        and isinstance(hidden.value, int)
    ):
        width = int((4 * hidden.value * 2 / 3) / 64) * 64  # arguments.py validate_args
        yield Statement("model.intermediate_size", "ffn_hidden_size (left out)", width)


def _experts(options: Mapping[str, Argument]) -> Iterator[Statement]:
    """Say how many parameters the experts have, and whether there are blocks without."""
    if "num_experts" not in options:
        yield Statement("model.expert_parameters", "num_experts (left out)", 0)
        return
    width = "moe_ffn_hidden_size" if "moe_ffn_hidden_size" in options else "ffn_hidden_size"
    names = ("num_experts", "hidden_size", width)
    sizes = [size for name in names if name in options and isinstance(size := options[name].value, int)]
    layers, spread = options.get("num_layers"), _count_spread(options)
    if layers is None or spread is None or spread != layers.value:
        yield Statement(None, DENSE_LAYERS, value=True)
    if len(sizes) == len(names) and spread is not None:
        each = math.prod(sizes) * (3 if "swiglu" in options else 2)
        yield Statement("model.expert_parameters", "num_experts", each * spread)


DENSE_LAYERS = "(layers without experts)"


def _count_spread(options: Mapping[str, Argument]) -> int | None:
    """Count the blocks that have experts: one in so many, or those that a list tells (arguments.py moe_freq_type)."""
    layers, chosen = options.get("num_layers"), options.get("moe_layer_freq")
    if layers is None or not isinstance(layers.value, int):
        return None
    pattern = 1 if chosen is None else read_pattern(chosen.value)
    if isinstance(pattern, int):
        return -(-layers.value // pattern) if pattern > 0 else None
    return None if pattern is None or len(pattern) != layers.value else sum(pattern)


_MAX_LAYERS = 10_000


def read_pattern(text: object) -> int | tuple[int, ...] | None:
    """Read a frequency, or a list of numbers that Megatron-LM evaluates: ``([1]*3+[0]*1)*3``; None where it is neither."""
    if isinstance(text, int) or (isinstance(text, str) and text.isdigit()):
        return int(text)
    try:
        return _evaluate(ast.parse(text.strip(), mode="eval").body) if isinstance(text, str) else None
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _evaluate(node: ast.expr) -> tuple[int, ...]:
    match node:
        case ast.List(elts=elements) if all(
            isinstance(one, ast.Constant) and type(one.value) is int for one in elements
        ):
            return tuple(one.value for one in elements)  # type: ignore[attr-defined]  # as tested
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            found = (*_evaluate(left), *_evaluate(right))
        case ast.BinOp(left=left, op=ast.Mult(), right=ast.Constant(value=int(times))) if times <= _MAX_LAYERS:
            found = _evaluate(left) * times
        case _:
            raise ValueError
    if len(found) > _MAX_LAYERS:
        raise ValueError
    return found


def _state(options: Mapping[str, Argument]) -> Iterator[Statement]:
    """Say in which dtypes the program keeps its state.

    ``--bf16`` and ``--fp16`` are dtypes of the parameters themselves, and bf16 accumulates gradients in float32 unless
    ``--grad-reduce-in-bf16`` is given (``megatron/training/arguments.py``, validate_args, core_r0.11.0 and core_v0.19.0).
    """
    chosen = [name for name in ("bf16", "fp16") if name in options and options[name].value is True]
    if len(chosen) == 1:
        dtype = {"bf16": "bfloat16", "fp16": "float16"}[chosen[0]]
        yield Statement("training.param_dtype", chosen[0], dtype)
        in_16_bits = chosen == ["fp16"] and "accumulate_allreduce_grads_in_fp32" not in options
        narrow = next((name for name, value in _NARROW if name in options and options[name].value == value), None)
        if in_16_bits or narrow is not None:
            yield Statement("training.grad_accum_dtype", narrow or "grad_reduce_in_bf16", dtype)
        else:
            key, otherwise = "accumulate_allreduce_grads_in_fp32", ("grad_reduce_in_bf16",)
            yield Statement("training.grad_accum_dtype", key, "float32", None, otherwise)
