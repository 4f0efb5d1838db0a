"""What one transformer block keeps for backward, by the architecture's recipe.

A recipe lists the operations of a block that save a tensor for autograd. It was read from transformers' modeling files and
checked against the tensors that a real forward of each type keeps (release 4.57.6 and 5.23.0, torch 2.13.0 on a CPU; see
docs/memory-model.md for bytes measured and predicted).
"""

from __future__ import annotations

from compatcheck.core.named_tuple import NamedTuple


class Recipe(NamedTuple):
    """Which operations one block of an architecture has."""

    norms: int = 2
    """Norms as wide as the residual stream."""
    norm: str = "rms"
    """``rms``: computed in float32, multiplied by the weight in the dtype of the stream (llama). ``rms_float``: in float32 too
    (gemma, olmo2). ``layer``: torch's LayerNorm. ``layer_float``: the same on a float32 copy (olmo). ``centred``: cohere's,
    with three float32 tensors."""
    norm_inputs: int = 0
    """Distinct inputs of the norms, where it is not one for each: gpt_neox feeds two from one."""
    head_norm: str = ""
    """Norm over queries and keys, in the same words; empty when there is none."""
    mlp: int = 4
    """Tensors as wide as the MLP: gate, activated gate, up and their product; 2 for a plain MLP, 5 where tanh-GELU is composed of
    single operations (``gelu_new``), 1 for ReLU."""
    gated: bool = True
    projection: str = "separate"
    """``separate`` query, key and value projections; ``fused``: all three are slices of one tensor, which stays alive with the
    values; ``fused_rotated``: the same, and queries and keys are copied by a rotary embedding of their own."""
    partial_rotary: bool = False
    """Queries and keys are concatenated from a rotated and a plain part; the attention output is copied once more then."""
    wide_softmax: bool = True
    """Eager attention takes the softmax in float32 and keeps a 16-bit copy beside it."""
    softcap: bool = False
    """Logits, and eager attention's scores, are capped with tanh, whose result is kept."""


DECODER = Recipe()
_PARALLEL = Recipe(norms=1, norm="centred")
RECIPES = {
    **dict.fromkeys(
        (
            "llama",
            "mistral",
            "ministral",
            "qwen",
            "qwen2",
            "mixtral",
            "qwen2_moe",
            "granite",
            "granitemoe",
            "smollm3",
            "seed_oss",
        ),
        DECODER,
    ),
    **dict.fromkeys(("qwen3", "qwen3_moe", "hunyuan_v1_dense", "exaone4", "olmoe"), Recipe(head_norm="rms")),
    "gemma": Recipe(norm="rms_float"),
    "gemma2": Recipe(norms=4, norm="rms_float", softcap=True),
    **dict.fromkeys(("gemma3", "gemma3_text"), Recipe(norms=4, norm="rms_float", head_norm="rms_float")),
    **dict.fromkeys(("olmo2", "olmo3"), Recipe(norm="rms_float", head_norm="rms_float")),
    "olmo": Recipe(norm="layer_float"),
    "phi3": Recipe(projection="fused_rotated"),
    "phimoe": Recipe(norm="layer"),
    "glm": Recipe(partial_rotary=True),
    "glm4": Recipe(norms=4, partial_rotary=True),
    "arcee": Recipe(mlp=2, gated=False),
    "cohere": _PARALLEL,
    "cohere2": _PARALLEL,
    "phi": Recipe(norms=1, norm="layer", mlp=5, gated=False, partial_rotary=True),
    "stablelm": Recipe(norm="layer", partial_rotary=True),
    "starcoder2": Recipe(norm="layer", mlp=2, gated=False),
    "gpt_neox": Recipe(norm="layer", norm_inputs=1, mlp=2, gated=False, projection="fused_rotated"),
    "falcon": Recipe(norms=1, norm="layer", mlp=2, gated=False, projection="fused_rotated", wide_softmax=False),
    "gpt2": Recipe(norm="layer", mlp=5, gated=False, projection="fused", wide_softmax=False),
    "gpt_bigcode": Recipe(norm="layer", mlp=2, gated=False, projection="fused"),
    "opt": Recipe(norm="layer", mlp=1, gated=False),
    **dict.fromkeys(
        ("bert", "camembert", "distilbert", "electra", "roberta", "xlm-roberta"),
        Recipe(norm="layer", mlp=2, gated=False, wide_softmax=False),
    ),
}
"""Recipes by model type. ``qwen`` is remote code that no release of transformers has: taken as qwen2's, not measured."""


_PIECES = {"silu": 0, "swish": 0, "gelu": 0, "gelu_pytorch_tanh": 0, "gelu_new": 3, "relu": -1}
"""Tensors as wide as the MLP that an activation keeps beyond the one input of a single kernel: ``gelu_new`` is composed of single
operations (NewGELUActivation in activations.py), ReLU keeps its output, which the next layer keeps anyway."""


LITGPT = "litgpt"


def find_recipe(model_type: str, activation: str = "", code: str = "") -> Recipe:
    """Return the recipe of a model type, with the MLP of an activation where that is known, in the blocks of a program."""
    recipe = RECIPES.get(model_type, DECODER)
    if (
        code == LITGPT
    ):  # one attention and activations of one kernel for all types (litgpt/model.py at 8641822 and 0.5.13)
        return recipe._replace(projection="fused_copied", partial_rotary=False, mlp=4 if recipe.gated else 2)
    pieces = _PIECES.get(activation)
    return recipe if pieces is None else recipe._replace(mlp=(4 if recipe.gated else 2) + pieces)


class Saves(NamedTuple):
    """Bytes per token that one block keeps, by part."""

    norms: float
    inputs: float
    """Inputs of linear layers, for the gradient of their weights or adapters."""
    attention: float
    mlp: float
    scores: float
    """Per token and key: multiplied by the sequence length."""


class Setting(NamedTuple):
    """What decides which of a block's tensors are kept."""

    hidden: int
    query: int
    """Width of all query heads together."""
    key: int
    """Width of all key heads together."""
    heads: int
    intermediate: float
    """Width of the MLP; of all experts that one token goes through."""
    experts: int = 0
    """Experts one token goes through; 0 for a dense MLP."""
    compute: float = 2
    float16: bool = False
    """The 16 bits are float16's, whose softmax in float32 is one kernel on a GPU."""
    residual: float = 2
    norms_trained: bool = True
    linears_trained: bool = True
    attention: str = "flash"
    """``flash`` (memory-efficient and flash kernels), ``eager``, ``math``."""
    repeated: bool = False
    """Keys and values are repeated to as many heads as there are queries."""
    compiled: bool = False
    """torch.compile partitions each block: norms and activations of the MLP are computed again in backward."""


def saved(recipe: Recipe, at: Setting) -> Saves:
    """Return what one block keeps per token.

    Source: autograd's saved tensors of each operation (torch derivatives.yaml, 2.13): ``pow`` and ``mul`` keep float32 inputs
    of an RMS norm, ``mul`` by a trained weight its other factor, ``linear`` its input if its weight is trained, the attention
    kernels queries, keys, values, output and logsumexp, ``silu`` its input, ``mul`` of gate and up both factors. Compiled:
    what min_cut_rematerialization_partition keeps of a llama block (torch 2.13, backend aot_eager_decomp_partition): input of
    each norm, inputs of linear layers, gate and up.
    """
    c, r = at.compute, at.residual
    once = r == c
    norm = "compiled" if at.compiled else ""
    norms = (recipe.norm_inputs or recipe.norms) * _norm(norm or recipe.norm, at.hidden, r, trained=at.norms_trained)
    consumers = (1 if once else 1 if recipe.projection != "separate" else 3, 1 if once else 2 if recipe.gated else 1)
    inputs = 0.0
    if at.linears_trained:
        shared = recipe.norms == 1  # parallel blocks feed attention and MLP from one norm
        inputs = c * at.hidden * ((1 if shared else sum(consumers)) if once else sum(consumers))
        if at.experts:
            inputs += c * at.hidden * at.experts
    attention = _attention(recipe, at)
    if recipe.head_norm:
        for width in (at.query, at.key):
            attention += _norm(norm or recipe.head_norm, width, c, trained=at.norms_trained)
    tensors = min(recipe.mlp, 3 if recipe.gated else 2) if at.compiled else recipe.mlp
    kept = tensors if at.linears_trained else tensors - 1  # the product is kept only for the gradient of ``down``
    mlp = c * kept * at.intermediate
    if at.experts:
        mlp += c * at.hidden * at.experts  # outputs of the experts, for the gradient of the routing weights
    eager = _probabilities(recipe, c) + (c if recipe.softcap else 0)
    scores = {"eager": eager * at.heads, "math": 2 * c * at.heads}.get(at.attention, 0.0)
    return Saves(norms, inputs, attention, mlp, scores)


def _probabilities(recipe: Recipe, compute: float) -> float:
    """Return bytes per score of what eager attention's softmax keeps: its result, and the 16-bit copy of a float32 one."""
    return (4 + _copy(recipe, compute)) if recipe.wide_softmax else compute


def _copy(recipe: Recipe, compute: float) -> float:
    """Return bytes per score of the copy in which probabilities are multiplied; float32 ones are multiplied as they are."""
    return compute if recipe.wide_softmax and compute < 4 else 0.0


def _norm(kind: str, width: int, dtype: float, *, trained: bool) -> float:
    """Return bytes per token of one norm without its output."""
    if kind in {"layer", "compiled"}:
        return dtype * width + 8
    if kind == "layer_float":
        return 4 * width + 8
    wide = {"rms": 4 + (dtype if trained else 0), "rms_float": 4 + (4 if trained else 0), "centred": 12}[kind]
    return wide * width + 4


def _attention(recipe: Recipe, at: Setting) -> float:
    c = at.compute
    keys = at.query if at.repeated else at.key
    fused = c * (at.query + 2 * at.key)
    own = at.attention == "eager" or recipe.projection == "fused_copied"
    copied = own and keys > at.key  # repeated values are copies: nothing of the fused tensor is kept
    if recipe.projection == "separate" or copied:
        before = c * (at.query + 2 * keys)
    elif recipe.projection == "fused":
        before = fused + 2 * c * (keys - at.key)
    else:
        before = fused + c * (at.query + keys)
    cloned = at.attention != "eager" and (recipe.partial_rotary or recipe.projection == "fused_rotated")
    return before + c * at.query * (2 if cloned else 1) + 4 * at.heads


def transient(recipe: Recipe, at: Setting, sequence: int) -> float:
    """Return bytes per token that the backward of one block needs beside what forward kept.

    The MLP's: the gradient of the product and the gradients of its two factors are alive together while the product itself
    is already given back. Eager attention's: the gradient of the probabilities, its product with them and the gradient of
    the scores, as wide as the softmax, when what MLP, norm and projection behind it kept and the 16-bit probabilities are
    given back (aten SoftMax.cu, softmax_backward_cuda_out; a CPU makes no such product, and a trace there lacks it).
    """
    mlp = at.compute * ((2 if recipe.gated else 1) * at.intermediate + 2 * at.hidden)
    if at.attention != "eager":
        return mlp
    width = 4 if recipe.wide_softmax else at.compute
    scores = 2 * width + (at.compute if at.float16 else width) - _copy(recipe, at.compute)
    parts = saved(recipe, at)
    behind = parts.mlp + at.compute * at.query + (parts.norms / 2 if recipe.norms > 1 else 0)
    return max(mlp, scores * at.heads * sequence - behind)


def forward_peak(recipe: Recipe, at: Setting, sequence: int) -> float:
    """Return bytes per token that one block needs in a forward that keeps nothing for backward.

    The MLP's gate, activated gate and up beside residual stream and norm; eager attention's scores, the same in float32,
    and their float32 probabilities (``softmax(dtype=float32)`` converts bfloat16 first, and on a GPU float16 within its
    kernel: aten SoftMax.cpp).
    """
    mlp = at.compute * ((3 if recipe.gated else 2) * at.intermediate + at.hidden) + at.residual * at.hidden
    norm = (8 + at.residual) * at.hidden
    attention = at.compute * (2 * at.query + 2 * at.key + at.hidden)
    if at.attention == "eager":
        converted = 4 if recipe.wide_softmax and at.compute < 4 and not at.float16 else 0
        attention += (at.compute + converted + (4 if recipe.wide_softmax else at.compute)) * at.heads * sequence
    return max(mlp, norm, attention)
