"""A whole run: a trainer's own ``train()`` as it is by default, evaluation, saving, a second ``train()``, and deletion.

A tiny model is made of a configuration, a tokenizer of a few words here; nothing is downloaded. ``trainer`` is one of Hugging
Face's (``hf``), of trl's (``sft``, ``dpo``, ``grpo``, ``rloo``, ``reward``, ``kto``), or a loop over accelerate, over DeepSpeed's
engine (``zero0`` to ``zero3``, ``zero2_offload``, ``zero3_offload``) or over FSDP (``fsdp1``, ``fsdp2``). What a parameter calls
``default`` is left to the trainer. A batch is the whole dataset, so that no order of rows changes what is in one; completions are
generated to their full length whatever is drawn.

Phases: load, build (the trainer), forward, backward and optimizer of the last step, evaluate, save, again (a second ``train()``)
and delete; of each the peak, and what is live at its end. Passing from one to the next is seen from accelerate's ``backward`` and
``step``, which all of these trainers call. Results: bytes and tensors that a further step leaves, those that a second ``train()``
leaves, and those that are left when trainer and model are gone.

Prediction. Peaks are how a release computes, and are compared between releases alone. What can be derived is that a step which
is over leaves nothing that the step before it had not left: the optimizer's state is made in the first step, gradients are freed
or kept in place, so from the second step on `growth_bytes_per_step` is 0. What trainers log is less than the tolerance, 256
bytes a step.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from compatcheck.lab.probes.worker.recorder import Recorder

PACKAGES = ("trl", "transformers", "peft", "accelerate", "deepspeed", "liger-kernel")
SHARES = ("tiny_models", "tiny_trainers", "fsdp")
BACKENDS = ("cpu", "cuda")
ACCOUNTING = "allocator"
FORKS = True
DEFAULTS: Mapping[str, Any] = {
    "trainer": "hf",
    "dtype": "float32",
    "precision": "default",
    "batch": 4,
    "data": "padded",
    "adapter": "none",
    "checkpointing": "default",
    "liger": False,
    "model_type": "llama",
    "steps": 3,
    "length": 256,
    "hidden": 32,
    "layers": 2,
    "vocab": 1024,
    "world_size": 1,
}
CHOICES: Mapping[str, tuple[Any, ...]] = {
    "trainer": (
        *("hf", "sft", "dpo", "grpo", "rloo", "reward", "kto", "accelerate"),
        *("zero0", "zero1", "zero2", "zero3", "zero2_offload", "zero3_offload", "fsdp1", "fsdp2"),
    ),
    "dtype": ("float32", "bfloat16"),
    "precision": ("default", "no", "bf16"),
    "batch": (4, 1),
    "data": ("padded", "packed"),
    "adapter": ("none", "lora"),
    "checkpointing": ("default", "on", "off"),
}
SIZES: tuple[Mapping[str, Any], ...] = ({}, {"batch": 1, "length": 128})
METRIC = "growth_bytes_per_step"
COMPARED: tuple[str, ...] = (
    *(
        f"{phase}.peak_allocated_bytes"
        for phase in ("load", "build", "forward", "backward", "optimizer", "evaluate", "again")
    ),
    *("forward.live_bytes", "trained_bytes", "growth_bytes_per_step", "growth_bytes_of_second_train", "left_bytes"),
)
_TRL = ("sft", "dpo", "grpo", "rloo", "reward", "kto")
_FSDP = ("fsdp1", "fsdp2")
_LEAST = {"grpo": 2, "rloo": 2, "kto": 2}
"""Sequences that a batch has at least: a group, or a pair of unlike ones."""


def predict(parameters: Mapping[str, Any]) -> dict[str, float]:
    """Return nothing: a further step leaves what the one before it left."""
    return {"growth_bytes_per_step": 0}


def tolerance(parameters: Mapping[str, Any]) -> float:
    """Return what a step may log."""
    return 256


def facts(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Describe the run in the vocabulary's names; what is left to the trainer is not stated."""
    trainer = parameters["trainer"]
    sharding = {"zero": "zero", "fsdp": "fsdp"}.get(trainer[:4], "none")
    found = {
        "model.model_type": parameters["model_type"],
        "model.load_dtype": parameters["dtype"],
        "training.sharding": sharding,
        "training.peft": None if parameters["adapter"] == "none" else parameters["adapter"],
        "training.micro_batch_size": max(parameters["batch"], _LEAST.get(trainer, 1)),
        "training.sequence_length": parameters["length"],
        "training.use_liger_kernel": parameters["liger"],
        "hardware.world_size": parameters["world_size"],
    }
    if trainer in _TRL:
        found |= {"training.framework": "trl", "training.trainer": trainer}
    if parameters["precision"] != "default":
        found["training.mixed_precision"] = parameters["precision"]
    if parameters["checkpointing"] != "default":
        found["training.gradient_checkpointing"] = parameters["checkpointing"] == "on"
    return found


def needs(parameters: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the packages that such a run uses."""
    trainer = parameters["trainer"]
    used = ["transformers"]
    if trainer in (*_TRL, "hf", "accelerate"):
        used.append("accelerate")
    if trainer in _TRL:
        used.append("trl")
    if trainer[:4] == "zero":
        used.append("deepspeed")
    if parameters["adapter"] != "none":
        used.append("peft")
    if parameters["liger"]:
        used.append("liger-kernel")
    return tuple(used)


def shares(parameters: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the files that such a run gets."""
    trainer = parameters["trainer"]
    return ("tiny_models", *(("tiny_trainers",) if trainer in (*_TRL, "hf") else ("fsdp",) if trainer in _FSDP else ()))


def is_sensible(parameters: Mapping[str, Any]) -> bool:
    """Tell whether there is such a run: only SFT packs, and precision and adapters are the trainers' to arrange."""
    trainer = parameters["trainer"]
    if parameters["data"] == "packed" and trainer != "sft":
        return False
    if parameters["world_size"] != (2 if trainer[:4] == "fsdp" else 1):
        return False
    if trainer[:4] in ("zero", "fsdp"):
        return parameters["precision"] == "default" and parameters["adapter"] == "none"
    return bool(parameters["batch"] >= _LEAST.get(trainer, 1))


def prepare(parameters: Mapping[str, Any]) -> None:
    """Import what the runs share before processes are forked off for each."""
    import gc
    import importlib
    import importlib.util

    for name in (
        "transformers.trainer",
        "datasets",
        "peft",
        "trl",
        "trl.trainer.sft_trainer",
        "trl.trainer.dpo_trainer",
    ):
        try:
            if importlib.util.find_spec(name.partition(".")[0]) is not None:
                importlib.import_module(name)
        except Exception:  # noqa: S112 (the run that needs it says so)
            continue
    gc.collect()
    gc.freeze()


class _Steps:
    """Turns a recorder's phases with the steps of a training loop."""

    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder
        self.on = False
        self.lives: list[int] = []
        self.tensors: list[int] = []
        self._open: Any = None

    def turn(self, name: str | None) -> None:
        """End the phase that is open and begin another."""
        if self._open is not None:
            self._open.__exit__(None, None, None)
            self._open = None
        if name is not None and self.on:
            self._open = self.recorder.phase(name)
            self._open.__enter__()

    def end(self) -> None:
        """End a step."""
        self.turn(None)
        if self.on:
            self.lives.append(self.recorder.live_bytes())
            self.tensors.append(_count_tensors())

    def follow_accelerate(self) -> None:
        """Pass to backward and to the optimizer where accelerate does."""
        from accelerate import Accelerator
        from accelerate.optimizer import AcceleratedOptimizer

        steps, backward, step = self, Accelerator.backward, AcceleratedOptimizer.step

        def backward_(accelerator: Any, loss: Any, **options: Any) -> Any:
            steps.turn("backward")
            return backward(accelerator, loss, **options)

        def step_(optimizer: Any, *arguments: Any, **options: Any) -> Any:
            steps.turn("optimizer")
            return step(optimizer, *arguments, **options)

        Accelerator.backward, AcceleratedOptimizer.step = backward_, step_

    def callback(self) -> Any:
        """Return what a trainer of transformers tells of its steps."""
        from transformers import TrainerCallback

        steps = self

        class Callback(TrainerCallback):
            def on_step_begin(self, *arguments: Any, **options: Any) -> None:
                steps.turn("forward")

            def on_step_end(self, *arguments: Any, **options: Any) -> None:
                steps.end()

        return Callback()


def _count_tensors() -> int:
    import gc

    import torch

    return sum(issubclass(type(one), torch.Tensor) for one in gc.get_objects())


def run(parameters: Mapping[str, Any], recorder: Recorder) -> None:
    """Train, evaluate, save, train again and delete."""
    import gc
    import tempfile

    import torch

    # oneDNN keeps what it reordered of 16-bit operands for good; no GPU has that.
    torch.backends.mkldnn.enabled = False
    steps = _Steps(recorder)
    # What the first use of a library makes for good is not the run's.
    start, tensors = recorder.live_bytes(), _count_tensors()
    with tempfile.TemporaryDirectory() as folder:
        actions = _actions(parameters, recorder, steps, folder)
        train, evaluate, save = next(actions)
        steps.on = True
        train()
        steps.turn(None)
        steps.on = False
        first, objects = recorder.live_bytes(), _count_tensors()
        lives, found = steps.lives, steps.tensors
        if len(lives) < parameters["steps"]:
            message = f"{len(lives)} steps were seen of {parameters['steps']}"
            raise RuntimeError(message)
        recorder.result("growth_bytes_per_step", (lives[-1] - lives[1]) / (len(lives) - 2))
        recorder.result("tensors_per_step", (found[-1] - found[1]) / (len(found) - 2))
        recorder.result("trained_bytes", first)
        for name, action in (("evaluate", evaluate), ("save", save), ("again", train)):
            with recorder.phase(name):
                action()
        recorder.result("growth_bytes_of_second_train", recorder.live_bytes() - first)
        recorder.result("tensors_of_second_train", _count_tensors() - objects)
        del train, evaluate, save, action
        with recorder.phase("delete"):
            next(actions, None)
            gc.collect()
        recorder.result("left_bytes", recorder.live_bytes() - start)
        recorder.result("left_tensors", _count_tensors() - tensors)


def _actions(parameters: Mapping[str, Any], recorder: Recorder, steps: _Steps, folder: str) -> Iterator[Any]:
    """Yield what trains, evaluates and saves; forget all of it when asked again."""
    trainer = parameters["trainer"]
    if trainer in (*_TRL, "hf"):
        return _trainer(parameters, recorder, steps, folder)
    return _loop(parameters, recorder, steps, folder)


def _model(parameters: Mapping[str, Any], recorder: Recorder, folder: str, *, scores: bool = False) -> Any:
    """Make a model and load it from a folder: trl's trainers load their reference model from where the model came from."""
    import gc
    import os

    import torch
    import transformers

    models = recorder.load("tiny_models")
    sizes = {"layers": parameters["layers"], "hidden": parameters["hidden"], "vocab": parameters["vocab"]}
    sizes |= {"intermediate": 3 * parameters["hidden"], "positions": 2 * parameters["length"]}
    made = models.build(parameters["model_type"], recorder, dtype=parameters["dtype"], **sizes)
    folder = os.path.join(folder, "model")
    models.save(made, folder)
    del made
    gc.collect()
    if parameters["trainer"] in _FSDP:
        # Saved outside of the group and loaded inside of it; _fsdp.py says why.
        recorder.load("fsdp").join(recorder)
    class_ = transformers.AutoModelForSequenceClassification if scores else transformers.AutoModelForCausalLM
    told = {
        "dtype" if models.release() >= models.parse("4.56.0") else "torch_dtype": getattr(torch, parameters["dtype"])
    }
    with recorder.phase("load"):
        model = class_.from_pretrained(folder, **told, **({"num_labels": 1} if scores else {}))
    return model.to(recorder.device).train()


def _lengths(parameters: Mapping[str, Any], count: int) -> list[int]:
    """Return the tokens of each row: a quarter less for every further one, over and over."""
    whole = parameters["length"]
    return [whole - (index % 4) * (whole // 4) // (1 if count > 1 else 4) for index in range(count)]


def _rows(parameters: Mapping[str, Any], count: int, words: Any) -> dict[str, Any]:
    """Return the dataset of a trainer, a column a name."""
    trainer = parameters["trainer"]
    lengths = _lengths(parameters, count)
    prompts = [words(8)] * count
    answers = [words(length - 16) for length in lengths]
    if trainer == "sft":
        texts = [words(parameters["length"] // 2 - 2)] * (2 * count)
        return {"text": texts if parameters["data"] == "packed" else [words(length - 2) for length in lengths]}
    if trainer == "dpo":
        return {"prompt": prompts, "chosen": answers, "rejected": answers}
    if trainer == "reward":
        return {"chosen": answers, "rejected": answers}
    if trainer == "kto":
        return {"prompt": prompts, "completion": answers, "label": [index % 2 == 0 for index in range(count)]}
    return {"prompt": prompts}


def _options(parameters: Mapping[str, Any], folder: str, batch: int, recorder: Recorder) -> dict[str, Any]:
    """Return what a trainer is told; everything else is its default."""
    told = {
        "output_dir": folder,
        "report_to": "none",
        "disable_tqdm": True,
        "use_cpu": recorder.backend != "cuda",
        "max_steps": parameters["steps"],
        "per_device_train_batch_size": batch,
        "per_device_eval_batch_size": batch,
    }
    if parameters["precision"] != "default":
        told["bf16"] = parameters["precision"] == "bf16"
    if parameters["checkpointing"] != "default":
        told["gradient_checkpointing"] = parameters["checkpointing"] == "on"
    if parameters["liger"]:
        told["use_liger_kernel"] = True
    if parameters["trainer"] in ("grpo", "rloo"):
        told |= {"num_generations": batch, "max_completion_length": parameters["length"] // 8}
        told["max_prompt_length"] = parameters["length"] // 4
        told["num_generations_eval"] = batch
    if parameters["trainer"] == "rloo":
        told["rloo_k"] = batch
    if parameters["data"] == "packed":
        told |= {"packing": True, "max_length": parameters["length"], "max_seq_length": parameters["length"]}
        # Flattened batches need FlashAttention, which a CPU has not.
        told["packing_strategy"] = "wrapped"
    return told


def _trainer(parameters: Mapping[str, Any], recorder: Recorder, steps: _Steps, folder: str) -> Iterator[Any]:
    import dataclasses
    from functools import partial

    trainers = recorder.load("tiny_trainers")
    name, batch = parameters["trainer"], parameters["batch"]
    tokenizer = trainers.tokenizer()
    tokenizer.model_input_names = ["input_ids", "attention_mask"]  # models of a decoder take no more
    model = _model(parameters, recorder, folder, scores=name == "reward")
    if name in ("grpo", "rloo"):
        model.generate = partial(model.generate, suppress_tokens=[tokenizer.eos_token_id, 2])
    if name == "hf":
        import transformers

        classes = (transformers.Trainer, transformers.TrainingArguments)
    else:
        classes = tuple(
            trainers.find({"sft": "SFT", "reward": "Reward"}.get(name, name.upper()) + kind, recorder)
            for kind in ("Trainer", "Config")
        )
    known = {field.name for field in dataclasses.fields(classes[1]) if field.init}
    told = {key: value for key, value in _options(parameters, folder, batch, recorder).items() if key in known}
    if name == "rloo" and "num_generations" not in known:
        recorder.unsupported("rloo before trl 0.22 is another trainer, which takes tokens")
    arguments = classes[1](**told)
    given: dict[str, Any] = {"model": model, "args": arguments, "callbacks": [steps.callback()]}
    if name == "hf":
        given |= _hf(parameters, tokenizer, model)
    else:
        rows = trainers.dataset(_rows(parameters, batch, trainers.words))
        given |= {"train_dataset": rows, "eval_dataset": rows, "processing_class": tokenizer}
        given |= _adapter(parameters)
        if name in ("grpo", "rloo"):
            given["reward_funcs"] = _reward
    steps.follow_accelerate()
    with recorder.phase("build"):
        trainer = classes[0](**given)
    yield trainer.train, trainer.evaluate, partial(trainer.save_model, folder)
    given.clear()
    del trainer, model, given, arguments


def _reward(completions: Any, **_: Any) -> list[float]:
    return [float(index) for index in range(len(completions))]


def _adapter(parameters: Mapping[str, Any]) -> dict[str, Any]:
    if parameters["adapter"] == "none":
        return {}
    from peft import LoraConfig

    task = "SEQ_CLS" if parameters["trainer"] == "reward" else "CAUSAL_LM"
    return {"peft_config": LoraConfig(r=4, target_modules=["q_proj", "v_proj", "up_proj"], task_type=task)}


def _hf(parameters: Mapping[str, Any], tokenizer: Any, model: Any) -> dict[str, Any]:
    """Return data for Hugging Face's own trainer, and the model with its adapter."""
    from transformers import DataCollatorForLanguageModeling

    lengths = _lengths(parameters, parameters["batch"])
    data = [{"input_ids": [8 + index % 40 for index in range(length)]} for length in lengths]
    given = {
        "train_dataset": data,
        "eval_dataset": data,
        "data_collator": DataCollatorForLanguageModeling(tokenizer, mlm=False),
    }
    if parameters["adapter"] != "none":
        from peft import get_peft_model

        if parameters["checkpointing"] == "on":
            model.enable_input_require_grads()
        given["model"] = get_peft_model(model, _adapter(parameters)["peft_config"])
    return given


def _batches(parameters: Mapping[str, Any], recorder: Recorder) -> list[dict[str, Any]]:
    """Return the rows of a dataset, padded at their ends."""
    import torch

    rows = []
    for length in _lengths(parameters, parameters["batch"]):
        tokens = torch.zeros(parameters["length"], dtype=torch.long)
        tokens[:length] = torch.arange(length) % 40 + 8
        mask = (tokens != 0).long()
        rows.append({"input_ids": tokens, "attention_mask": mask, "labels": torch.where(mask == 1, tokens, -100)})
    return rows


def _loop(parameters: Mapping[str, Any], recorder: Recorder, steps: _Steps, folder: str) -> Iterator[Any]:
    """Yield the three actions of a loop of one's own."""
    import torch

    trainer = parameters["trainer"]
    rows = _batches(parameters, recorder)
    prepare = {"accelerate": _accelerate, "zero": _deepspeed, "fsdp": _fsdp}[
        trainer if trainer == "accelerate" else trainer[:4]
    ]
    engine = prepare(parameters, recorder, folder, rows)

    def train() -> None:
        for _ in range(parameters["steps"]):
            steps.turn("forward")
            loss = engine.forward()
            steps.turn("backward")
            engine.backward(loss)
            del loss
            steps.turn("optimizer")
            engine.step()
            steps.end()

    def evaluate() -> None:
        with torch.no_grad():
            engine.forward()

    def save() -> None:
        engine.save(folder)

    yield train, evaluate, save
    engine.close()


class _Engine:
    """A model, its optimizer and the library between the two."""

    def __init__(self, model: Any, optimizer: Any, inputs: Any, library: Any = None) -> None:
        self.model, self.optimizer, self.inputs, self.library = model, optimizer, inputs, library

    def forward(self) -> Any:
        return self.model(**self.inputs()).loss

    def backward(self, loss: Any) -> None:
        loss.backward()

    def step(self) -> None:
        self.optimizer.step()
        self.optimizer.zero_grad()

    def save(self, folder: str) -> None:
        self.model.state_dict()

    def close(self) -> None:
        self.model = self.optimizer = self.inputs = self.library = None


def _ready(parameters: Mapping[str, Any], recorder: Recorder, folder: str) -> Any:
    model = _model(parameters, recorder, folder)
    if parameters["checkpointing"] == "on":
        model.gradient_checkpointing_enable()
    return model


def _stack(rows: list[dict[str, Any]], recorder: Recorder) -> dict[str, Any]:
    import torch

    return {name: torch.stack([row[name] for row in rows]).to(recorder.device) for name in rows[0]}


def _accelerate(parameters: Mapping[str, Any], recorder: Recorder, folder: str, rows: Any) -> Any:
    import torch
    from accelerate import Accelerator

    class Engine(_Engine):
        def backward(self, loss: Any) -> None:
            self.library.backward(loss)

        def save(self, folder: str) -> None:
            self.library.save_state(folder)

        def close(self) -> None:
            self.library.free_memory()
            super().close()

    model = _ready(parameters, recorder, folder)
    if parameters["adapter"] != "none":
        from peft import get_peft_model

        if parameters["checkpointing"] == "on":
            model.enable_input_require_grads()
        model = get_peft_model(model, _adapter(parameters)["peft_config"])
    told = {} if parameters["precision"] == "default" else {"mixed_precision": parameters["precision"]}
    with recorder.phase("build"):
        accelerator = Accelerator(cpu=recorder.backend != "cuda", **told)
        optimizer = torch.optim.AdamW([one for one in model.parameters() if one.requires_grad], lr=1e-4)
        loader = torch.utils.data.DataLoader(rows, batch_size=parameters["batch"])
        model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    return Engine(model, optimizer, lambda: next(iter(loader)), accelerator)


def _deepspeed(parameters: Mapping[str, Any], recorder: Recorder, folder: str, rows: Any) -> Any:
    import torch

    class Engine(_Engine):
        def backward(self, loss: Any) -> None:
            self.model.backward(loss)

        def step(self) -> None:
            self.model.step()

        def save(self, folder: str) -> None:
            self.model.save_checkpoint(folder)

        def close(self) -> None:
            self.model.destroy()
            super().close()

    deepspeed = recorder.deepspeed()
    stage, _, offload = parameters["trainer"][4:].partition("_")
    model = _ready(parameters, recorder, folder)
    configuration: dict[str, Any] = {
        "train_micro_batch_size_per_gpu": parameters["batch"],
        "bf16": {"enabled": parameters["dtype"] == "bfloat16"},
        "zero_allow_untested_optimizer": True,
        "zero_force_ds_cpu_optimizer": False,
        # The default of half a billion elements would hide all else.
        "zero_optimization": {
            "stage": int(stage),
            "reduce_bucket_size": 1 << 17,
            "stage3_prefetch_bucket_size": 1 << 14,
        },
    }
    if offload:
        configuration["zero_optimization"]["offload_optimizer"] = {"device": "cpu"}
        if stage == "3":
            configuration["zero_optimization"]["offload_param"] = {"device": "cpu"}
    with recorder.phase("build"):
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
        engine, *_ = deepspeed.initialize(model=model, optimizer=optimizer, config=configuration)
    return Engine(engine, None, lambda: _stack(rows, recorder))


def _fsdp(parameters: Mapping[str, Any], recorder: Recorder, folder: str, rows: Any) -> Any:
    import torch

    fsdp = recorder.load("fsdp")
    fsdp.choose_device(recorder)
    model = _ready(parameters, recorder, folder)
    with recorder.phase("build"):
        model = fsdp.shard(model, parameters["trainer"], recorder)
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    return _Engine(model, optimizer, lambda: _stack(rows, recorder))
