"""The person's model class from a configuration, in the installed release of transformers, with adapters as peft makes them."""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
from typing import TYPE_CHECKING, Any

import torch
from probe_worker.recorder import UnsupportedError
from torch.utils.weak import WeakIdKeyDictionary

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_CAUSAL = ("ForCausalLM", "LMHeadModel")
_LOSSES = (*_CAUSAL, "ForMaskedLM", "ForConditionalGeneration", "ForSequenceClassification", "ForPreTraining")


def read_config(values: dict[str, Any]) -> Any:
    """Return a ``config.json`` as the installed release reads it.

    Raises:
        UnsupportedError: this release does not know the model type, or the class comes with the model.
    """
    import transformers

    if values.get("auto_map"):
        message = "the model class comes from the model's repository (auto_map), which is not run"
        raise UnsupportedError(message)
    with tempfile.TemporaryDirectory() as folder:
        with open(os.path.join(folder, "config.json"), "w", encoding="utf-8") as file:
            json.dump(values, file)
        try:
            return transformers.AutoConfig.from_pretrained(folder)
        except (ValueError, KeyError) as error:
            message = f"transformers {transformers.__version__} cannot read this configuration: {_first_line(error)}"
            raise UnsupportedError(message) from error


def build(request: dict[str, Any]) -> Any:
    """Return the model in training mode.

    Args:
        request: ``config``, ``dtype``, ``attn_implementation``, ``experts_implementation``.

    Raises:
        UnsupportedError: naming what this release has not.
    """
    import transformers

    config = read_config(request["config"])
    release = _release()
    options: dict[str, Any] = {}
    if request["dtype"] is not None:
        options["dtype" if release >= (4, 56) else "torch_dtype"] = getattr(torch, request["dtype"])
    if request["attn_implementation"] is not None:
        options["attn_implementation"] = request["attn_implementation"]
    if request["experts_implementation"] is not None:
        if release < (5, 0):
            message = "experts_implementation needs transformers >= 5.0"
            raise UnsupportedError(message)
        options["experts_implementation"] = request["experts_implementation"]
    class_ = _model_class(transformers, config, request.get("architecture"))
    try:
        model = (class_.from_config if hasattr(class_, "from_config") else class_._from_config)(config, **options)
    except (ValueError, ImportError) as error:
        raise UnsupportedError(_first_line(error)) from error
    return model.train()


def _release() -> tuple[int, ...]:
    import transformers

    return tuple(int(part) for part in transformers.__version__.split(".")[:2])


def _model_class(transformers: Any, config: Any, architecture: str | None) -> Any:
    """Return the class that the configuration names, else the one for a language model of its type."""
    for name in (architecture, *(getattr(config, "architectures", None) or ())):
        class_ = getattr(transformers, name or "", None)
        if class_ is None:
            continue
        if any(name.endswith(ending) for ending in _LOSSES):
            return class_
        message = f"{name} computes no loss from labels"
        raise UnsupportedError(message)
    for auto in ("AutoModelForCausalLM", "AutoModelForMaskedLM", "AutoModelForSeq2SeqLM"):
        if type(config) in getattr(transformers, auto)._model_mapping:
            return getattr(transformers, auto)
    message = f"model type {config.model_type} has no class that predicts tokens"
    raise UnsupportedError(message)


def adapt(model: Any, options: dict[str, Any]) -> Any:
    """Add adapters as ``peft.get_peft_model`` does.

    Args:
        model: of `build`.
        options: names of ``LoraConfig``, and ``autocast_adapter_dtype``.
    """
    import inspect

    import peft

    given = dict(options)
    casting = given.pop("autocast_adapter_dtype", True)
    kind = "CAUSAL_LM" if any(type(model).__name__.endswith(ending) for ending in _CAUSAL) else None
    config = peft.LoraConfig(**given, task_type=kind)
    known = inspect.signature(peft.get_peft_model).parameters
    return peft.get_peft_model(
        model, config, **({"autocast_adapter_dtype": casting} if "autocast_adapter_dtype" in known else {})
    )


@contextlib.contextmanager
def moves_in_place() -> Iterator[None]:
    """Let ``Module.to`` and ``copy.deepcopy`` work on fake tensors.

    A converted weight takes the old one's place, which torch cannot swap; shared weights stay shared. A copy is
    of the same mode: torch copies that, too, so that every use of the copy would be a tensor of its own.
    """
    from torch._subclasses.fake_tensor import FakeTensor

    fake: Any = FakeTensor
    fake.__deepcopy__ = _copy
    original = torch.nn.Module._apply
    converted_to: Any = WeakIdKeyDictionary()

    def apply(self: Any, fn: Callable[[Any], Any], recurse: bool = True) -> Any:  # noqa: FBT001, FBT002 (torch's own signature)
        for child in self.children() if recurse else ():
            child._apply(fn)
        for name, weight in self._parameters.items():
            if weight is None:
                continue
            if weight not in converted_to:
                with torch.no_grad():
                    converted = fn(weight)
                if converted is weight:
                    continue
                converted_to[weight] = torch.nn.Parameter(converted, weight.requires_grad)
            self._parameters[name] = converted_to[weight]
        for name, buffer in self._buffers.items():
            if buffer is not None:
                self._buffers[name] = fn(buffer)
        return self

    torch.nn.Module._apply = apply
    try:
        yield
    finally:
        torch.nn.Module._apply = original
        del fake.__deepcopy__


def _copy(tensor: Any, memo: dict[int, Any]) -> Any:
    if id(tensor) not in memo:
        with torch.no_grad():
            made = tensor.detach().clone()
        is_weight = isinstance(tensor, torch.nn.Parameter)
        trained = tensor.requires_grad
        memo[id(tensor)] = torch.nn.Parameter(made, trained) if is_weight else made.requires_grad_(trained)
    return memo[id(tensor)]


def checkpoint(model: Any, *, reentrant: bool | None, adapters: bool) -> None:
    """Turn gradient checkpointing on; the release chooses the variant when it is not told.

    Inputs need gradients where all weights of the first block are frozen: trainers call ``enable_input_require_grads`` then.
    """
    if not getattr(model, "supports_gradient_checkpointing", True):
        message = f"{type(model).__name__} does not support gradient checkpointing"
        raise UnsupportedError(message)
    if reentrant is None:
        model.gradient_checkpointing_enable()
    else:
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": reentrant})
    if adapters:
        model.enable_input_require_grads()


def make_rows(request: dict[str, Any]) -> list[list[int]]:
    """Return the rows of the attention mask of a micro batch; of a padded one all but the first lack a quarter."""
    length = request["length"]
    if request["batch"] is None or length is None:
        message = "no inputs are returned, and training.micro_batch_size or training.sequence_length is not stated"
        raise UnsupportedError(message)
    padding = length // 4 if request["mask"] == "padding" else 0
    short = [1] * (length - padding) + [0] * padding
    return [[1] * length if row == 0 else short for row in range(request["batch"])]


def make_inputs(model: Any, request: dict[str, Any], rows: list[list[int]]) -> dict[str, Any]:
    """Return the tensors of one micro batch: tokens, labels and, unless it is ``none``, an attention mask.

    Args:
        model: of `build`.
        request: ``batch``, ``length``, ``mask``, ``use_cache`` (True, False, ``hf_trainer`` for what that one does, or None).
        rows: of the attention mask.
    """
    size, length = request["batch"], request["length"]
    special = 8  # the lowest tokens are special in most vocabularies
    tokens = torch.arange(size * length).view(size, length) % (vocabulary(model) - special) + special
    inputs: dict[str, Any] = {"input_ids": tokens, "labels": tokens.clone()}
    name = type(getattr(model, "get_base_model", lambda: model)()).__name__
    if name.endswith("ForSequenceClassification"):
        inputs["labels"] = torch.zeros(size, dtype=torch.long)
    if request["mask"] != "none":
        inputs["attention_mask"] = torch.tensor(rows)
    cached = request["use_cache"]
    if cached == "hf_trainer":
        # TrainingArguments.use_cache, False unless told, which transformers 5.0.0 brought
        cached = False if _release() >= (5, 0) else None
    if cached is not None and any(name.endswith(ending) for ending in _CAUSAL):
        inputs["use_cache"] = cached
    return inputs


def vocabulary(model: Any) -> int:
    """Return the number of tokens a model knows: the rows of its largest table, else what its configuration says, else 0."""
    tables = [module.num_embeddings for module in model.modules() if isinstance(module, torch.nn.Embedding)]
    config: Any = getattr(model, "config", None)
    text = config.get_text_config() if hasattr(config, "get_text_config") else config
    return max(tables, default=int(getattr(text, "vocab_size", 0)))


def _first_line(error: BaseException) -> str:
    return " ".join(str(error).split())[:300]
