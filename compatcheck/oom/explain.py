"""Explain a message: which tensor was asked for, where in the run, and what else the numbers say."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from compatcheck.core.out_of_memory import CUT, NO_MESSAGE, TOLD, Match, Message, MessageReading, Place, Printed
from compatcheck.oom.budget import count_halves, remark, weigh
from compatcheck.oom.candidates import BUDGETS, QUANTISED, WEIGHTS, activations, buffers, weights
from compatcheck.oom.dimensions import Dimensions
from compatcheck.oom.forms import FORMS
from compatcheck.oom.frames import find_model_types, find_place
from compatcheck.oom.shapes import read_shapes
from compatcheck.oom.sizes import UNINFORMATIVE, prints_as, request_range, segment_size, step
from compatcheck.oom.solve import Solution, as_match, by_roundness, solve, solve_scores

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from compatcheck.core.facts import Fact
    from compatcheck.oom.candidates import Tensor

CHANCE = 0.03
"""Largest share of sizes near this one that some candidate matches by accident, for a match to be called the tensor."""
CHANCE_IN_PLACE = 0.05
"""The same where the traceback leaves only candidates that can arise there."""
CHANCE_ROUND = 0.01
"""The same for a number of tokens that nobody states, only for being round."""
_HINTS = {
    "fused query, key and value": r"qkv_proj|query_key_value|W_pack|c_attn",
    "fused gate and up": r"gate_up_proj|gate_up|w13",
    "gate, up or down": r"gate_proj|up_proj|down_proj|\bw[123]\b|feed_forward|dense_h_to_4h|dense_4h_to_h",
    "query or attention output": r"q_proj|o_proj|\bw[qo]\b",
    "key or value": r"k_proj|v_proj|\bw[kv]\b",
    "embedding or output": r"lm_head|embed_tokens|embed_out|\bwte\b|ParallelLMHead|VocabParallelEmbedding",
    "of all experts": r"FusedMoE|experts",
}
"""Weights by the names that source lines call them."""
_HINT_FRAMES = 8
_SAYS_LOGITS = {"loss", "logits", "log_probabilities", "gathered_logits"}
_SAYS_FLOAT = re.compile(r"\.float\(\)|float32")
_CASTS_TO_FLOAT = (r"transformers/loss/loss_utils\.py", "ForCausalLMLoss")
"""A frame whose function casts the logits to float32 before anything else: transformers 4.46 and later, src/transformers/loss."""
_BUFFER_PARTS = {"optimizer_state", "flat_parameters", "optimizer", "gradients", "buckets", "warm_up"}
_TRAINS = re.compile(
    r"transformers/(?:models|trainer|loss|integrations)|torch/(?:autograd|optim|distributed/fsdp)|torch/_tensor\.py|(?:deepspeed|accelerate|trl|peft"
    r"|verl/workers|openrlhf|megatron|lightning|axolotl|llamafactory|swift|torchtune|unsloth)/"
)
"""Paths of what trains, or of modelling code that engines do not run."""
_SURE_OF_WEIGHTS = {"weights", "cast", "checkpoint"}
"""Parts of loading in which nothing but weights is asked for, so that small sizes are evidence too."""
_KEEPS_SCORES = re.compile(
    r"attn_weights|attention_scores|attention_probs|baddbmm|matmul\(quer|query_states.*key_states|\bscores\b"
)
"""Source lines of attention that keeps its scores; a fused kernel does not."""
_WIDE = {"training", "engine_start", "serving", "rollout", "wake_up"}
"""Parts of a run in which any tensor of it may be asked for."""
_SHARDS_LOGITS = re.compile(r"megatron|vocab_parallel")
"""Frames of programs that divide the vocabulary over tensor-parallel ranks."""
_REST = "the rest of the message, from 'of which … is free' to its end: it tells whether others hold the device"
_LEDGER = "the lines before it that say what weights, the profiled forward pass and CUDA graphs took"
_HOST = "dmesg, or the events of the container, and how much memory the host has: which process held how much"
_HELD = "what the trainer still holds when the engine wakes up: torch.cuda.memory_allocated() and memory_reserved() just before"
_QUESTIONS = {
    "told": "the message itself, from 'Tried to allocate' (or what the engine prints) to its end, with the traceback above it",
    "cut-traceback": "the lines behind it, with the message",
    "no-message": "the message itself, with the traceback above it; or, where nothing failed, `compatcheck check` and `estimate`",
    "vllm-no-blocks": _LEDGER, "vllm-kv-blocks": _LEDGER, "vllm-sampler": _LEDGER, "sglang-kv-cache": _LEDGER,
    "vllm-utilization": "nvidia-smi before the start: who holds the rest",
    "vllm-cumem": _HELD, "torch-memory-saver": _HELD,
    "killed": _HOST, "kernel-oom": _HOST, "oom-killed": _HOST, "errno-12": _HOST, "ray-workers-killed": _HOST,
    "ray-memory-monitor": _HOST, "ray-worker-died": _HOST,
    "cuda-error": "nvidia-smi just before: whether the device was full, and who held it",
    "nccl": "nvidia-smi just before: whether the device was full, and who held it",
    "cublas": "nvidia-smi just before: whether the device was full, and who held it",
}  # fmt: skip
"""What would decide, by form."""
_SAYS = {
    **{form.name: form.says for form in reversed(FORMS) if form.says},
    "bitsandbytes-managed": "managed memory of a paged optimizer could not be had: host and device share it, so it may fail with "
    "device memory free (limits of the host: ulimit, a container, WSL)",
    TOLD: "the text says so, without the program's own message: how much was asked for, and of what, cannot be told",
    CUT: "it ends before its message: whether memory ran out cannot be told",
    NO_MESSAGE: "nothing in it says that memory ran out",
}
"""What a form tells where the tensor cannot be, in words with its details."""


def explain(message: Message, facts: Mapping[str, Fact], *, accounted: bool = False) -> MessageReading:
    """Explain one message; where the log accounts for what its engine took, nobody is asked for that."""
    place = find_place(message.frames)
    if place is not None and not place.frame.line and message.form == TOLD:
        place = place._replace(why=f"the text names {place.frame.code}")
    budget = weigh(message)
    remarks = tuple(remark(message))
    question = _ask(message, place)
    question = question.removesuffix(_LEDGER).removesuffix("; ") if accounted else question
    base = MessageReading(message, place, "no_size", (), 0, None, "", (), budget, remarks, question)
    if message.memory == "none":
        return base._replace(reason=_SAYS[message.form].format(**dict(message.details)))
    if message.asked is None:
        managed = message.form == "bitsandbytes" and "pythonInterface" in dict(message.details).get("file", "")
        words = _SAYS.get(
            "bitsandbytes-managed" if managed else message.form, "the message does not say how much was asked for"
        )
        return base._replace(reason=words.format(**dict(message.details)) if "{" in words else words)
    if message.form == "nccl":
        words = f"{_SAYS['nccl']}; {message.asked.text} of its own, no tensor"
        return base._replace(outcome="not_derivable", reason=words)
    if message.form == "vllm-kv-cache":
        words = (
            f"the KV cache of one request of {dict(message.details)['max_seq_len']} tokens, as the message says itself"
        )
        return base._replace(reason=words)
    if message.form == "numpy":
        detail = dict(message.details)
        words = f"an array of the host with shape {detail['shape']} of {detail['dtype']}, as the message says itself"
        return base._replace(reason=words)
    wide = place is not None and place.part in _WIDE
    run = Dimensions(facts, serving=is_of_engine(message))
    return _find(base._replace(place=None) if wide else base, message.asked, run)._replace(place=place)


def _ask(message: Message, place: Place | None) -> str:
    """Return what would decide, where the message leaves it open."""
    if message.form == TOLD and message.memory == "host":
        return _HOST
    if message.form in {TOLD, CUT} and place is not None and place.phase == "rollout":
        return f"{_QUESTIONS[message.form]}; {_LEDGER}"
    if message.form == "torch" and message.allocated is None and message.reserved is None:
        return _REST
    if message.form == "torch" and place is None:
        return "the traceback above it: which phase asked"
    return _QUESTIONS.get(message.form, "")


def is_of_engine(message: Message) -> bool | None:
    """Tell from the traceback whether a serving engine asked; None where no frame is of an engine or of what trains."""
    if any(re.search(r"(?:vllm|sglang|lmdeploy)/", frame.file) for frame in message.frames):
        return True
    return False if any(_TRAINS.search(frame.file) for frame in message.frames) else None


def _find(base: MessageReading, asked: Printed, run: Dimensions) -> MessageReading:
    message, place = base.message, base.place
    low, high = request_range(asked, message.rounding)
    if message.rounding == "segment" and any(asked.low_bytes <= size <= asked.high_bytes for size in UNINFORMATIVE):
        span = "up to 1 MiB" if high <= 2**21 else "above 1 MiB and below 10 MiB, or just below 20 MiB"
        reason = (
            f"{asked.text} is the segment the allocator takes for every request {span}: the device was full already"
        )
        return base._replace(outcome="not_derivable", reason=reason)
    printed = tuple(read_shapes(message.frames, asked, message.rounding))[:1]
    if printed:
        reason = f"the traceback prints its shape, which comes to {asked.text}"
        return base._replace(outcome="named", matches=printed, reason=reason)
    if not run.known:
        model_type = next(iter(find_model_types(message.frames)), None)
        reason = "nothing is known about the model"
        if model_type is not None:
            reason += f" but its type: the traceback runs the code of {model_type}; name the model, or its config.json"
        return base._replace(outcome="not_derivable", reason=reason, needs=("--model",))
    stated, inferred = _enumerate(run, message, place)
    allowed = _hinted([match for match in stated if _allowed(match[0], place)], message, place)
    found = _matching(allowed, asked, message.rounding)
    chance = _chance([match for _, match in allowed], asked, message.rounding)
    tried = len(stated) + len(inferred)
    base = base._replace(tried=tried, chance=chance)
    if found:
        return _judge(base, found, chance, sure=_is_sure(run, place, found, allowed))
    reading = _infer(base, asked, run, [match for match in inferred if _allowed(match[0], place)])
    reading = reading or _find_scores(base, asked, run)
    if reading is not None:
        return reading
    elsewhere = tuple(
        match._replace(fits_place=False)
        for match in _fold(_matching(stated, asked, message.rounding))
        if place is not None
    )
    missing = _missing(run, place)
    if elsewhere:
        words = "tensors of this size exist, but none can arise where the traceback points"
    else:
        words = f"none of {tried} candidates prints as {asked.text}"
    if low > high:
        words += "; no request is rounded to it"
    return base._replace(outcome="not_derivable", matches=elsewhere, reason=words, needs=missing)


def _enumerate(
    run: Dimensions, message: Message, place: Place | None
) -> tuple[list[tuple[Tensor, Match]], list[tuple[Tensor, Match]]]:
    files = " ".join(frame.file for frame in message.frames)
    serving = run.text("rollout.engine") in {"vllm", "sglang"} if run.serving is None else run.serving
    deepspeed = "deepspeed/" in files or run.number("training.zero_stage") is not None
    solve_ranks = bool(count_halves(message)) if place is None else place.part in _BUFFER_PARTS
    tensors = [
        *weights(run, serving=serving),
        *buffers(run, deepspeed=deepspeed, solve_ranks=solve_ranks),
        *activations(run, serving=serving),
    ]
    pairs = [(tensor, match) for tensor in tensors for match in tensor.matches()]
    loading = place is not None and place.phase == "load"
    state = place is not None and (place.part in _BUFFER_PARTS or place.phase in {"setup", "step"})
    dtypes = run.weight_dtypes(loading=loading, state=state)
    pairs = [pair for pair in pairs if pair[0].parts not in (WEIGHTS, QUANTISED) or pair[1].dtype in dtypes]
    return [pair for pair in pairs if not pair[0].inferred], [pair for pair in pairs if pair[0].inferred]


def _allowed(tensor: Tensor, place: Place | None) -> bool:
    if place is None:
        return True
    if place.phase == "load" and not tensor.parts & {"weights", "cast", "checkpoint", "quantise", "warm_up"}:
        return False
    return bool(tensor.parts & {place.part, place.phase} if place.part == place.phase else place.part in tensor.parts)


def _hinted(pairs: list[tuple[Tensor, Match]], message: Message, place: Place | None) -> list[tuple[Tensor, Match]]:
    """Keep the weights that the last source lines call by name while a model is built or loaded."""
    if place is None or place.phase != "load":
        return pairs
    for frame in reversed(message.frames[-_HINT_FRAMES:]):
        named = [name for name, pattern in _HINTS.items() if re.search(pattern, frame.code)]
        kept = [pair for pair in pairs if any(name in pair[1].name for name in named)]
        if kept:
            return kept
    return pairs


def _matching(pairs: Sequence[tuple[Tensor, Match]], asked: Printed, rounding: str) -> list[Match]:
    found: dict[tuple[str, int], Match] = {}
    for _, match in pairs:
        if prints_as(match.size_bytes, asked, rounding):
            found.setdefault((match.name, match.size_bytes), match)
    return list(found.values())


def _chance(matches: Sequence[Match], asked: Printed, rounding: str) -> float:
    """Return the share of printed sizes between half and twice the one asked for that some candidate prints as."""
    middle = max(1, (asked.low_bytes + asked.high_bytes) // 2)
    cell = step(asked, rounding)
    sizes = {segment_size(match.size_bytes) if rounding == "segment" else match.size_bytes for match in matches}
    near = {size // cell for size in sizes if middle / 2 <= size <= 2 * middle}
    return min(1.0, len(near) * cell / (1.5 * middle))


def _is_sure(run: Dimensions, place: Place | None, found: list[Match], pairs: list[tuple[Tensor, Match]]) -> bool:
    """Tell whether a match needs no other evidence: nothing but weights is asked for there, and these are all the model has."""
    if place is None or place.phase != "load" or place.part not in _SURE_OF_WEIGHTS or run.model("vision_parameters"):
        return False
    plain = {"fp32", "16-bit"} if not run.quantised else {match.dtype for match in found}
    of_weights = {match for tensor, match in pairs if tensor.parts in (WEIGHTS, QUANTISED)}
    return any(match.dtype in plain for match in found) and all(match in of_weights for match in found)


def _find_scores(base: MessageReading, asked: Printed, run: Dimensions) -> MessageReading | None:
    """Solve for the length of attention scores where the traceback points into the attention; a tie at best."""
    place = base.place
    if place is None or place.part not in {"attention", "mask"}:
        return None
    matches = tuple(solve_scores(run, asked, base.message.rounding))
    if not matches:
        return None
    needs = _missing(run, place)
    keeps = place.frame.function == "eager_attention_forward" or _KEEPS_SCORES.search(place.frame.code) is not None
    if keeps and not run.model("vision_parameters"):
        reason = f"the traceback is in attention that keeps its scores; {asked.text} of them then tells the length"
        return base._replace(outcome="tied", matches=matches, chance=None, reason=reason, needs=needs)
    reason = "no stated tensor prints so; if these are attention scores, the size tells the length"
    return base._replace(outcome="not_derivable", matches=matches, chance=None, reason=reason, needs=needs)


def _judge(base: MessageReading, found: list[Match], chance: float, *, sure: bool = False) -> MessageReading:
    asked = base.message.asked
    text = "" if asked is None else asked.text
    limit = CHANCE if base.place is None else CHANCE_IN_PLACE
    if chance > limit and not sure:
        reason = f"{text} matches, but so would {chance:.0%} of all sizes near it"
        return base._replace(outcome="not_derivable", matches=tuple(found), reason=reason)
    float_only = _fold(_narrow(found, base.message, base.place))
    if len(float_only) == 1:
        reason = f"the only one of {base.tried} candidates that prints as {text}"
        return base._replace(outcome="named", matches=tuple(float_only), reason=reason)
    reason = f"{len(float_only)} of {base.tried} candidates print as {text}"
    return base._replace(outcome="tied", matches=tuple(float_only), reason=reason)


def _fold(found: list[Match]) -> list[Match]:
    """Make one of matches that are the same tensor, shifted by a token or of a batch stated twice."""
    folded: dict[tuple[str, tuple[str, ...]], Match] = {}
    for match in found:
        key = (match.name, match.inferred)
        first = folded.get(key)
        formula = match.formula if first is None else f"{first.formula} or {match.formula}"
        folded[key] = (first or match)._replace(formula=formula)
    return list(folded.values())


def _narrow(found: list[Match], message: Message, place: Place | None) -> list[Match]:
    """Keep the fp32 ones where the source line casts to float32."""
    if place is None or place.part not in _SAYS_LOGITS or not _says_float(message, place):
        return found
    return [match for match in found if match.dtype == "fp32"] or found


def _says_float(message: Message, place: Place) -> bool:
    """Tell whether the traceback says that the logits are in float32 where it points."""
    file, function = _CASTS_TO_FLOAT
    cast = any(re.search(file, frame.file) and frame.function == function for frame in message.frames)
    return cast or _SAYS_FLOAT.search(place.frame.code) is not None


def _infer(
    base: MessageReading, asked: Printed, run: Dimensions, inferred: list[tuple[Tensor, Match]]
) -> MessageReading | None:
    """Name what holds only with a number that nobody stated, or None."""
    message, place = base.message, base.place
    found = _matching(inferred, asked, message.rounding)
    if found:
        chance = _chance([match for _, match in inferred], asked, message.rounding)
        if any(halves % 2 for halves in count_halves(message)):  # the 16-bit parameters are the odd half
            found = [match for match in found if match.dtype == "fp32"] or found
        if chance <= CHANCE:
            return _judge(base._replace(chance=chance), found, chance)
    parts = None if place is None else {place.part}
    solutions = list(solve(run, asked, message.rounding, serving=bool(run.serving), parts=parts))
    if not solutions:
        return None
    base = base._replace(tried=base.tried + len(solutions))
    if place is not None and place.part in _SAYS_LOGITS and message.rounding != "exact":
        return _from_place(base, asked, run, solutions, place)
    chosen, chance = by_roundness(solutions, CHANCE_ROUND)
    if not chosen:
        return None
    matches = tuple(as_match(solution, run, from_place=False) for solution in chosen)
    base = base._replace(chance=chance, matches=matches)
    if len(chosen) == 1:
        reason = f"nobody states the tokens; solved for them, {asked.text} gives a round number"
        return base._replace(outcome="named", reason=reason)
    return base._replace(outcome="tied", reason=f"nobody states the tokens; {len(chosen)} tensors give round numbers")


def _from_place(
    base: MessageReading, asked: Printed, run: Dimensions, solutions: list[Solution], place: Place
) -> MessageReading | None:
    """Name the logits that the traceback says it was about, with the tokens the size tells."""
    logits = [solution for solution in solutions if solution.kind.name == "logits"]
    if _says_float(base.message, place):
        logits = [solution for solution in logits if solution.dtype == "fp32"]
    if not logits:
        return None
    matches = tuple(as_match(solution, run, from_place=True) for solution in logits)
    base = base._replace(matches=matches, chance=None)
    reason = f"the traceback says logits; {asked.text} then tells the tokens"
    frames = base.message.frames
    if run.number("training.tensor_parallel") is None and any(
        _SHARDS_LOGITS.search(f"{frame.file} {frame.function} {frame.code}") for frame in frames
    ):
        reason += ", times the tensor-parallel ranks, which nobody states"
        return base._replace(outcome="tied", reason=reason, needs=("training.tensor_parallel",))
    if len(matches) == 1:
        return base._replace(outcome="named", reason=reason)
    return base._replace(outcome="tied", reason=f"{reason}, but not which of {len(matches)}")


def _missing(run: Dimensions, place: Place | None) -> tuple[str, ...]:
    """Name the facts that would let more candidates be tried."""
    wanted = [
        "training.micro_batch_size",
        "training.sequence_length",
        "hardware.world_size",
        "training.tensor_parallel",
    ]
    if any(run.number(name) is not None for name in BUDGETS):  # sequences are packed, however many and long they are
        wanted = wanted[2:]
    if place is not None and place.phase == "load":
        wanted = ["model.load_dtype", "hardware.world_size", "training.tensor_parallel"]
    if place is not None and place.phase == "rollout":
        wanted = ["rollout.max_num_batched_tokens", "rollout.max_num_seqs", "rollout.tensor_parallel"]
    model = [f"model.{name}" for name in ("hidden_size", "vocab_size", "parameters") if run.model(name) is None]
    lacking = [name for name in wanted if run.number(name) is None and run.text(name) is None]
    if run.number("hardware.memory_bytes") is None:  # who knows neither the devices nor how many names both at once
        lacking = ["--gpu" if name == "hardware.world_size" else name for name in lacking]
    return (*model, *lacking)
