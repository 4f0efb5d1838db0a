"""trl's trainers around a tiny llama, in whatever release of trl is installed, and what their loss costs per logit.

Not a probe: the probes about trl load it with ``recorder.load("tiny_trainers")``. Nothing is downloaded: the tokenizer is made
here, and the data are random words.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from compatcheck.lab.probes.worker.recorder import Recorder

_WORDS = 50
_SPECIAL = ("<pad>", "<unk>", "<s>", "</s>")


def model(recorder: Recorder, vocab: int, positions: int, dtype: str) -> Any:
    """Return a llama of one layer and width 8: next to its logits nothing of it counts."""
    models = recorder.load("tiny_models")
    dimensions = {"layers": 1, "hidden": 8, "heads": 1, "kv_heads": 1, "intermediate": 8}
    weights = "float32" if dtype == "mixed" else dtype
    return models.build("llama", recorder, vocab=vocab, positions=positions, dtype=weights, **dimensions)


def adapt(recorder: Recorder, adapter: str) -> dict[str, Any]:
    """Return what a trainer takes to put an adapter on its model: nothing for ``none``."""
    if adapter == "none":
        return {}
    try:
        from peft import LoraConfig
    except ImportError:
        recorder.unsupported("adapters need peft")
    return {"peft_config": LoraConfig(r=2, target_modules=["q_proj"], task_type="CAUSAL_LM")}


def find(name: str, recorder: Recorder) -> Any:
    """Return a class of trl's, wherever this release has it: some trainers moved to ``trl.experimental``."""
    import importlib

    import trl

    folder = name.replace("Trainer", "").replace("Config", "").lower()
    for module in ("trl", f"trl.experimental.{folder}"):
        try:
            return getattr(importlib.import_module(module), name)
        except (ImportError, AttributeError):
            continue
    return recorder.unsupported(f"trl {trl.__version__} has no {name}")


def tokenizer() -> Any:
    """Return a tokenizer of a few dozen words that are separated by spaces."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    special = {"pad_token": "<pad>", "unk_token": "<unk>", "bos_token": "<s>", "eos_token": "</s>"}
    names = (*_SPECIAL, *(f"w{index}" for index in range(_WORDS)))
    inner = Tokenizer(models.WordLevel({name: index for index, name in enumerate(names)}, unk_token="<unk>"))  # noqa: S106
    inner.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(tokenizer_object=inner, **special)


def words(count: int) -> str:
    """Return a text of that many tokens."""
    return " ".join(f"w{index % _WORDS}" for index in range(count))


def dataset(data: Mapping[str, list[str]]) -> Any:
    """Return a dataset in memory that has a name of its own: computing one fails with some releases of pyarrow."""
    from datasets import Dataset
    from datasets.table import InMemoryTable

    return Dataset(InMemoryTable.from_pydict(data), fingerprint="0" * 16)


def configure(name: str, recorder: Recorder, folder: str, dtype: str = "bfloat16", **options: Any) -> Any:
    """Return a configuration of trl's, built with those options that this release has.

    Args:
        name: of its class: ``SFTConfig``.
        recorder: the probe's.
        folder: nothing is written there.
        dtype: of weights, and so of logits; ``mixed``: float32 weights under bfloat16 autocast, whose outputs accelerate casts.
        options: over what keeps a trainer quiet, on the device and out of checkpointing.
    """
    import dataclasses
    import os

    from accelerate.state import AcceleratorState

    # One process takes several measurements, and both of these remember the precision of the one before.
    AcceleratorState._reset_state(reset_partial_state=True)
    os.environ.pop("ACCELERATE_MIXED_PRECISION", None)
    class_ = find(name, recorder)
    known = {field.name for field in dataclasses.fields(class_)}
    wanted = {
        "output_dir": folder,
        "report_to": "none",
        "save_strategy": "no",
        "disable_tqdm": True,
        "use_cpu": recorder.backend != "cuda",
        "bf16": dtype == "mixed",
        "fp16": False,
        "gradient_checkpointing": False,
        "packing": False,
        "max_seq_length": 1 << 14,
        "max_length": 1 << 14,
        "max_prompt_length": 1 << 13,
        "max_completion_length": 1 << 13,
        **options,
    }
    return class_(**{key: value for key, value in wanted.items() if key in known})


def collate(trainer: Any, size: int) -> list[dict[str, Any]]:
    """Return the first ``size`` rows of a trainer's dataset as a batch, and the next ones as another."""
    rows = [
        {name: value for name, value in row.items() if isinstance(value, (list, bool))}
        for row in (trainer.train_dataset[index] for index in range(2 * size))
    ]
    return [dict(trainer.data_collator(part)) for part in (rows[:size], rows[size:])]


def launch_kernels(recorder: Recorder) -> None:
    """Have trl's loss launch its Triton kernels on a CPU, where a launch does nothing.

    The code around a kernel is a GPU's: what it is handed, what it is to fill and what backward keeps. Programs of trl's kernels
    hold what they need in registers, and no size depends on a value. Triton's own interpreter is no help: it leaves the storages
    of a launch's arguments to the garbage collector, and they count. A release without such kernels does as ever.
    """
    from types import SimpleNamespace

    try:
        from triton.runtime.jit import JITFunction  # type: ignore[import-not-found]
    except ImportError:
        recorder.unsupported("trl's kernels are written in triton")
    from trl.trainer import utils

    JITFunction.run = lambda *_, **__: None
    supports = getattr(utils, "_supports_trl_loss_kernel", None)
    if supports is None:
        return
    gpu = SimpleNamespace(type="cuda")

    def on_a_gpu(tensor: Any) -> Any:
        return (
            tensor
            if tensor is None
            else SimpleNamespace(
                device=gpu, dtype=tensor.dtype, ndim=tensor.ndim, shape=tensor.shape, stride=tensor.stride
            )
        )

    utils._supports_trl_loss_kernel = lambda *tensors: supports(*map(on_a_gpu, tensors))


def _needs_triton() -> bool:
    """Tell whether this is trl 1.15: its loss has no other path than a kernel that is None without Triton."""
    from trl.trainer import utils

    return hasattr(utils, "add_fused_lm_head") and getattr(utils, "_ChunkedLogProbFunction", utils) is None


def measure(
    recorder: Recorder,
    build: Callable[[int], tuple[Any, list[dict[str, Any]]]],
    vocab: int,
    tokens: int,
) -> Mapping[str, float]:
    """Return bytes per logit of a trainer's loss: the mixed difference of peaks over vocabulary and tokens.

    Args:
        recorder: the probe's.
        build: vocabulary → trainer and two batches, of which the second has ``tokens`` tokens more.
        vocab: the smaller vocabulary; the other has twice as many.
        tokens: what the batches differ by, over all sequences.

    Returns:
        ``forward``, the peak of ``compute_loss``, and ``step``, the one with backward besides.
    """
    if recorder.backend != "cuda" and _needs_triton():
        recorder.unsupported("this release of trl computes the loss in a Triton kernel: it needs a GPU")
    peaks: dict[str, list[int]] = {"forward": [], "step": []}
    for size in (vocab, 2 * vocab):
        trainer, batches = build(size)
        model = trainer.accelerator.prepare_model(
            trainer.model
        )  # autocast and the cast of outputs, as the training loop does
        model.train()
        trainer.current_gradient_accumulation_steps = 1  # the training loop would have set it
        for batch in batches:
            inputs = {
                name: value.to(recorder.device) if hasattr(value, "to") else value for name, value in batch.items()
            }

            def forward(trainer: Any = trainer, model: Any = model, inputs: Any = inputs) -> Any:
                return trainer.compute_loss(model, dict(inputs))

            def step(forward: Any = forward) -> None:
                forward().backward()

            with recorder.phase("forward"):
                loss, peak, _ = recorder.measure(forward)
            peaks["forward"].append(peak)
            del loss
            with recorder.phase("step"):
                peaks["step"].append(recorder.measure(step)[1])
            model.zero_grad(set_to_none=True)
        del trainer, model, forward, step
    logits = vocab * tokens
    return {name: (p[3] - p[2] - p[1] + p[0]) / logits for name, p in peaks.items()}
