"""Counts parameters from the headers of safetensors files, which say what a checkpoint really holds.

A header is JSON behind an 8-byte little-endian length; no tensor is read. Format:
https://github.com/huggingface/safetensors#format
"""

from __future__ import annotations

import math
import os
import re
from typing import TYPE_CHECKING

from compatcheck.architectures.count import count_keys, read_keys
from compatcheck.architectures.dimensions import dimensions
from compatcheck.architectures.keys import ClassDefaults, Keys
from compatcheck.architectures.parts import ParameterCounts
from compatcheck.core.errors import InputError
from compatcheck.core.files import LOCAL, Files
from compatcheck.core.json_file import parse_json, read_json
from compatcheck.core.named_tuple import NamedTuple
from compatcheck.core.source import Source
from compatcheck.core.textfile import decode_text

if TYPE_CHECKING:
    from collections.abc import Mapping

INDEX = "model.safetensors.index.json"
SINGLE = "model.safetensors"
_LENGTH_BYTES = 8
_LARGEST_HEADER = 100_000_000
"""The format's own limit, in bytes."""
_DTYPE_BYTES = {
    "BOOL": 1, "U8": 1, "I8": 1, "F8_E4M3": 1, "F8_E5M2": 1, "F8_E8M0": 1, "I16": 2, "U16": 2, "F16": 2, "BF16": 2,
    "I32": 4, "U32": 4, "F32": 4, "I64": 8, "U64": 8, "F64": 8, "C64": 8,
}  # fmt: skip
_WHOLE = frozenset({"F16", "BF16", "F32", "F64"})
"""Dtypes of unquantised weights."""


class Tensor(NamedTuple):
    """One tensor of a checkpoint."""

    numel: int
    """Number of elements."""
    dtype: str
    """As the header spells it: ``BF16``."""


class TensorCounts(NamedTuple):
    """What the headers of a directory say."""

    total: int | None
    """Parameters; None when the checkpoint is quantised, because packed elements are not parameters."""
    tensors: Mapping[str, int]
    """Elements by tensor name, as stored."""
    reason: str | None
    """Why there is no total."""


def read_header(path: str, files: Files = LOCAL) -> Mapping[str, Tensor]:
    """Read the header of one safetensors file.

    Raises:
        InputError: the file cannot be read, is cut short, or its header is not what the format says.
    """

    def broken(what: str) -> InputError:
        hint = "download the file again; only the first bytes were read"
        return InputError(f"not a complete safetensors file: {what}", source=Source(path), hint=hint)

    try:
        size = files.size_bytes(path)
        start = files.read_bytes(path, _LENGTH_BYTES)
        length = int.from_bytes(start, "little")
        if len(start) < _LENGTH_BYTES or length > min(_LARGEST_HEADER, size - _LENGTH_BYTES):
            raise broken("its header is longer than the file")
        data = files.read_bytes(path, _LENGTH_BYTES + length)[_LENGTH_BYTES:]
    except OSError as error:
        what = f"could not be read: {error.strerror}"
        raise InputError(what, source=Source(path), hint="check the path and its permissions") from error
    try:
        header = parse_json(decode_text(data, path), path)
    except InputError as error:
        raise broken(f"its header {error.message}") from None
    if not isinstance(header, dict):
        raise broken("its header is not a mapping")
    tensors: dict[str, Tensor] = {}
    end = 0
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        row = _read_row(entry)
        if row is None:
            raise broken(f"the header's entry for {name[:80]} is malformed")
        tensors[name] = row[0]
        end = max(end, row[1])
    if _LENGTH_BYTES + length + end > size:
        raise broken(f"its tensors need {_LENGTH_BYTES + length + end} bytes and the file has {size}")
    return tensors


def _read_row(row: object) -> tuple[Tensor, int] | None:
    """Return a tensor and the offset its data ends at, or None when the row is malformed."""
    if not isinstance(row, dict):
        return None
    dtype, shape, offsets = row.get("dtype"), _read_numbers(row.get("shape")), _read_numbers(row.get("data_offsets"))
    if not isinstance(dtype, str) or shape is None or offsets is None:
        return None
    if len(offsets) != 2 or offsets[0] > offsets[1]:
        return None
    numel = math.prod(shape)
    if dtype in _DTYPE_BYTES and numel * _DTYPE_BYTES[dtype] != offsets[1] - offsets[0]:
        return None
    return Tensor(numel, dtype), offsets[1]


def _read_numbers(values: object) -> list[int] | None:
    return values if isinstance(values, list) and all(type(n) is int and n >= 0 for n in values) else None


def list_shards(directory: str, files: Files = LOCAL) -> tuple[str, ...]:
    """Return the safetensors files that make up the model in a directory.

    The index names them where there is one; else ``model.safetensors``; else every safetensors file.

    Raises:
        InputError: the index is malformed, a file that it names is missing, or there is no such file.
    """
    index, single = os.path.join(directory, INDEX), os.path.join(directory, SINGLE)
    if files.is_file(index):
        names = _read_index(index, files)
        missing = [name for name in names if not files.is_file(os.path.join(directory, name))]
        if missing:
            more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
            what = f"{missing[0]}{more}, named in {INDEX}, is missing"
            raise InputError(
                what, source=Source(os.path.join(directory, missing[0])), hint="download the missing shards"
            )
        return tuple(os.path.join(directory, name) for name in names)
    if files.is_file(single):
        return (single,)
    names = sorted(files.list_names(directory)) if files.is_directory(directory) else []
    shards = tuple(os.path.join(directory, name) for name in names if name.endswith(".safetensors"))
    if not shards:
        raise InputError("holds no safetensors file", source=Source(directory), hint="name a model directory")
    return shards


def _read_index(index: str, files: Files) -> list[str]:
    try:
        weight_map = read_json(index, files).data["weight_map"]
        names = sorted({_plain_name(name) for name in weight_map.values()})
    except (InputError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        hint = "download the index again"
        raise InputError("the index has no usable weight_map", source=Source(index), hint=hint) from error
    return names


def _plain_name(name: str) -> str:
    if not isinstance(name, str) or "/" in name or "\\" in name or not name.endswith(".safetensors"):
        raise ValueError(name)
    return name


def count_safetensors(directory: str, files: Files = LOCAL) -> TensorCounts:
    """Count the parameters of the checkpoint in a directory from the headers of its safetensors files.

    Raises:
        InputError: naming the file that is missing, cut short or malformed.
    """
    tensors: dict[str, Tensor] = {}
    for path in list_shards(directory, files):
        tensors |= read_header(path, files)
    counts = {name: tensor.numel for name, tensor in tensors.items()}
    reason = find_quantization({name: tensor.dtype for name, tensor in tensors.items()})
    return TensorCounts(None if reason else sum(counts.values()), counts, reason)


def count_directory(
    config: Mapping[str, object], directory: str, files: Files = LOCAL
) -> tuple[ParameterCounts | None, str | None]:
    """Count the model in a directory from the headers of its weights, per component.

    Returns:
        The counts, or None and why there are none.

    Raises:
        InputError: naming the file that is missing, cut short or malformed.
    """
    found = count_safetensors(directory, files)
    if found.total is None:
        return None, found.reason
    counts = counts_from_tensors(config, found.tensors, os.path.join(directory, "config.json"))
    return counts, None if counts else "no tensor name looks like a token embedding and a block"


def find_quantization(dtypes: Mapping[str, str]) -> str | None:
    """Say which tensor shows that a checkpoint is quantised, or return None.

    Integer buffers that unquantised checkpoints hold as well (position ids, counters of batch norms) do not count.
    """
    for name, dtype in dtypes.items():
        if dtype in _WHOLE:
            if re.search(r"\.(weight_scale(_inv)?|scales|weight_scale_2)$", name):
                return f"quantised checkpoint: {name} is a scale"
        elif not re.search(r"(position_ids|num_batches_tracked|masked_bias|attn\.bias|attention\.bias)$", name):
            return f"quantised checkpoint: {name} is {dtype}"
    return None


_EXPERT = re.compile(r"\.experts\.|block_sparse_moe\.(input|output)_linear\.")
_BLOCK = re.compile(r"(?:^|\.)(?:layers|h|blocks|block|layer)\.(\d+)\.")
_TOWER = re.compile(
    r"(^|\.)(vision_\w+|visual|audio_\w+|image_newline|multi_modal_projector|multimodal_projector|mm_projector|connector|"
    r"embed_vision|embed_audio|vqmodel)(\.|$)"
)
_EMBEDDING = re.compile(r"(^|\.)(embed_tokens|wte|word_embeddings|embed_in|embeddings|shared|tok_embeddings)\.weight$")
_HEAD = re.compile(
    r"^(.*\.)?((lm_head|embed_out|output_layer|output_projection|proj_out|output|predictions\.decoder)\.weight|"
    r"(lm_head|embed_out|predictions)\.bias)$"
)
_BUFFER = re.compile(
    r"(rotary_emb\.inv_freq|masked_bias|\.attn\.bias|\.attention\.bias|attn\.attention\.bias|position_ids|"
    r"num_batches_tracked|e_score_correction_bias|expert_bias|final_logits_bias|act_fn\.(beta|eps)|slope_rate|"
    r"(query|key|diagonal)_decay)$"
)
"""Tensors that checkpoints hold and models keep as buffers."""
_PARAMETER_BIAS = frozenset({"ernie4_5_moe"})
"""Model types in which ``e_score_correction_bias`` is a parameter."""


def counts_from_tensors(config: Mapping[str, object], tensors: Mapping[str, int], path: str) -> ParameterCounts | None:
    """Sort the tensors of an unquantised checkpoint into the components of a model.

    Tensors that transformers keeps as buffers or does not load (blocks behind the last one, for multi-token prediction)
    are left out, so that the total can be below the checkpoint's.

    Args:
        config: the parsed config.json, for the model type, the number of blocks and whether head and embedding are one.
        tensors: elements by tensor name.
        path: name of the configuration, for errors.

    Returns:
        The counts; None when no tensor looks like a token embedding or a block.

    Raises:
        InputError: a key of the configuration has the wrong type.
    """
    keys = read_keys(config, path) or Keys(config, ClassDefaults({}, {}, {}), path=path)
    model_type, layers = config.get("model_type"), _count_blocks(keys)
    known = count_keys(keys) if model_type else None
    tied = _is_tied(keys, known)
    sums = dict.fromkeys(("blocks", "embedding", "lm_head", "vision", "other"), 0)
    experts: dict[str, int] = {}
    for name, numel in tensors.items():
        if _BUFFER.search(name) and not (model_type in _PARAMETER_BIAS and "e_score" in name):
            continue
        block = _BLOCK.search(name)
        if _TOWER.search(name):
            sums["vision"] += numel
        elif block:
            if layers is not None and int(block.group(1)) >= layers:
                continue
            sums["blocks"] += numel
            if _EXPERT.search(name):
                layer = name[: block.end()]
                experts[layer] = experts.get(layer, 0) + numel
        elif _HEAD.search(name):
            # a tied head may be stored beside the embedding all the same
            sums["lm_head"] += 0 if tied and name.endswith("weight") else numel
        elif _EMBEDDING.search(name):
            sums["embedding"] += numel
        else:
            sums["other"] += numel
    if not sums["embedding"] or not sums["blocks"]:
        return None
    return ParameterCounts(
        total=sum(sums.values()),
        in_blocks=sums["blocks"],
        embedding=sums["embedding"],
        lm_head=sums["lm_head"],
        expert=sum(experts.values()),
        expert_per_layer=max(experts.values(), default=0),
        vision=sums["vision"],
        other=sums["other"],
        tower=() if known is None else known.tower,
        linears=() if known is None else known.linears,
    )


def _count_blocks(keys: Keys) -> int | None:
    """Return the number of blocks that are loaded, where block numbers in tensor names run from 0 to it."""
    if keys.flag("is_encoder_decoder"):
        return None
    found = dimensions(keys.config).get("model.num_hidden_layers")
    return found[0] if found is not None and isinstance(found[0], int) else None


def _is_tied(keys: Keys, counts: ParameterCounts | None) -> bool:
    if counts is not None:
        return 2 * counts.lm_head < counts.embedding
    found = dimensions(keys.config).get("model.tie_word_embeddings")
    return found is not None and found[0] is True
