"""A whole run as its users configure it: any option of a trainer's configuration, adapters, quantised and frozen weights.

`whole_run` is what trainers do by default; here a run is told things. Four parameters are texts of one grammar, items joined by
``+``, each ``name:value`` with a value that is JSON or a word; a dot in a name goes one level down:

- ``options`` goes to the trainer's configuration class, to ``Accelerator`` (``fsdp.…`` to its FSDP plugin, ``deepspeed.…`` to
  its DeepSpeed plugin) or over DeepSpeed's configuration: ``packing:true+model_init_kwargs.dtype:bfloat16``;
- ``adapter`` is a type of peft's and what its configuration is told beside ``r``, ``target_modules`` and ``task_type``, which are
  set here: ``lora+use_dora:true``;
- ``quantization`` is a class of transformers and what it is told: ``BitsAndBytesConfig+load_in_4bit:true``;
- ``frozen`` is a part of the names of parameters that are not trained; ``optimized`` tells whether a loop's optimizer is made of
  those that are (``trained``) or of ``all``, as documents show either.

``model`` is handed over as an object whose dtype was told, as one loaded with nothing told (``plain``), or by its name. Options
that a release does not have make the run unsupported there. Rows are of equal length where several batches share them, so that no
order changes what is in one. What is read of a weights file is copied: a CPU would map it, uncounted, and a GPU has it in its own
memory. Phases and results are `whole_run`'s, without the second ``train()``.

Prediction. As there: a step which is over leaves nothing that the step before it had not left. Peaks are compared between
releases.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from compatcheck.lab.probes.worker.recorder import Recorder

PACKAGES = ("trl", "transformers", "peft", "accelerate", "deepspeed", "bitsandbytes")
SHARES = ("tiny_models", "tiny_trainers", "whole_run")
BACKENDS = ("cpu",)
ACCOUNTING = "allocator"
FORKS = True
DEFAULTS: Mapping[str, Any] = {
    "trainer": "sft",
    "options": "",
    "model": "object",
    "dtype": "float32",
    "precision": "default",
    "adapter": "none",
    "quantization": "none",
    "frozen": "none",
    "optimized": "trained",
    "attention": "default",
    "batch": 4,
    "data": "padded",
    "model_type": "llama",
    "steps": 3,
    "length": 256,
    "hidden": 64,
    "layers": 2,
    "vocab": 2048,
    "world_size": 1,
}
CHOICES: Mapping[str, tuple[Any, ...]] = {
    "trainer": ("sft", "dpo", "grpo", "rloo", "reward", "kto", "orpo", "cpo", "hf", "accelerate", "deepspeed"),
    "model": ("object", "plain", "name"),
    "dtype": ("float32", "bfloat16"),
    "precision": ("default", "no", "bf16"),
    "optimized": ("trained", "all"),
    "attention": ("default", "eager", "sdpa"),
    "data": ("padded",),
}
SIZES: tuple[Mapping[str, Any], ...] = ({}, {"batch": 1, "length": 128})
METRIC = "growth_bytes_per_step"
COMPARED: tuple[str, ...] = (
    *(f"{phase}.peak_allocated_bytes" for phase in ("load", "build", "forward", "backward", "optimizer", "evaluate")),
    *("forward.live_bytes", "trained_bytes", "growth_bytes_per_step", "left_bytes"),
)
_NOT_TRL = ("hf", "accelerate", "deepspeed")
_QUANTIZERS = {"BitsAndBytesConfig": "bitsandbytes"}


def predict(parameters: Mapping[str, Any]) -> dict[str, float]:
    """Return nothing: a further step leaves what the one before it left."""
    return {"growth_bytes_per_step": 0}


def tolerance(parameters: Mapping[str, Any]) -> float:
    """Return what a step may log."""
    return 256


def facts(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Describe the run in the vocabulary's names; what is left to the trainer is not stated."""
    trainer = parameters["trainer"]
    found = {
        "model.model_type": parameters["model_type"],
        "training.micro_batch_size": parameters["batch"],
        "training.sequence_length": parameters["length"],
        "hardware.world_size": parameters["world_size"],
    }
    if parameters["model"] == "object":
        found["model.load_dtype"] = parameters["dtype"]
    if trainer not in _NOT_TRL:
        found |= {"training.framework": "trl", "training.trainer": trainer}
    if parameters["precision"] != "default":
        found["training.mixed_precision"] = parameters["precision"]
    return found


def needs(parameters: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the packages that such a run uses."""
    used = ["transformers"]
    if parameters["trainer"] != "deepspeed":
        used.append("accelerate")
    if parameters["trainer"] not in _NOT_TRL:
        used.append("trl")
    if parameters["trainer"] == "deepspeed" or "deepspeed." in parameters["options"]:
        used.append("deepspeed")
    if parameters["adapter"] != "none":
        used.append("peft")
    if parameters["quantization"] != "none":
        used.append(_QUANTIZERS[parameters["quantization"].partition("+")[0]])
    return tuple(used)


def prepare(parameters: Mapping[str, Any]) -> None:
    """Import what the runs share before processes are forked off for each."""
    import gc
    import importlib
    import importlib.util
    import os

    os.environ["DS_ACCELERATOR"] = "cpu"
    _copy_what_is_read()
    trainers = ("sft", "dpo", "grpo", "rloo", "reward", "kto")
    names = (
        "transformers.trainer",
        "datasets",
        "peft",
        *(f"trl.trainer.{name}_trainer" for name in trainers),
        "deepspeed",
    )
    for name in names:
        try:
            if importlib.util.find_spec(name.partition(".")[0]) is not None:
                importlib.import_module(name)
        except Exception:  # noqa: S112 (the run that needs it says so)
            continue
    gc.collect()
    gc.freeze()


def _copy_what_is_read() -> None:
    """Have tensors of a weights file copied, each when it is read, before anything imports what reads them."""
    import safetensors
    import safetensors.torch

    class Slice:
        def __init__(self, inner: Any) -> None:
            self.inner = inner

        def __getitem__(self, key: Any) -> Any:
            return self.inner[key].clone()

        def __getattr__(self, name: str) -> Any:
            return getattr(self.inner, name)

    class File(Slice):
        def __init__(self, *arguments: Any, **options: Any) -> None:
            super().__init__(opened(*arguments, **options))

        def __enter__(self) -> File:  # noqa: PYI034 (Self is younger than the Python of some releases)
            self.inner.__enter__()
            return self

        def __exit__(self, *arguments: object) -> None:
            self.inner.__exit__(*arguments)

        def get_tensor(self, name: str) -> Any:
            return self.inner.get_tensor(name).clone()

        def get_slice(self, name: str) -> Slice:
            return Slice(self.inner.get_slice(name))

    opened = safetensors.safe_open
    safetensors.safe_open = safetensors.torch.safe_open = File


def run(parameters: Mapping[str, Any], recorder: Recorder) -> None:
    """Train, evaluate, save and delete."""
    import gc
    import tempfile

    if parameters["world_size"] > 1:  # each rank is a process of its own, that nothing was prepared in
        _copy_what_is_read()
    import torch

    runs = recorder.load("whole_run")
    # oneDNN keeps what it reordered of 16-bit operands for good; no GPU has that.
    torch.backends.mkldnn.enabled = False
    steps = runs._Steps(recorder)
    start = recorder.live_bytes()
    begin = {"accelerate": _accelerate, "deepspeed": _deepspeed}.get(parameters["trainer"], _train)
    with tempfile.TemporaryDirectory() as folder:
        if parameters["world_size"] > 1:
            # Inside a group only its first rank writes what it saves (transformers 5.15), and each has a folder of its own.
            _save_model(parameters, recorder, folder)
        actions = begin(parameters, recorder, steps, folder)
        train, evaluate, save = next(actions)
        steps.on = True
        train()
        steps.turn(None)
        steps.on = False
        lives = steps.lives
        if len(lives) < parameters["steps"]:
            message = f"{len(lives)} steps were seen of {parameters['steps']}"
            raise RuntimeError(message)
        recorder.result("growth_bytes_per_step", (lives[-1] - lives[1]) / (len(lives) - 2))
        recorder.result("trained_bytes", recorder.live_bytes())
        for name, action in (("evaluate", evaluate), ("save", save)):
            with recorder.phase(name):
                action()
        del train, evaluate, save, action
        with recorder.phase("delete"):
            next(actions, None)
            gc.collect()
        recorder.result("left_bytes", recorder.live_bytes() - start)


def _read(text: str) -> dict[str, Any]:
    """Read ``name:value+name.name:value``; an item without a value is true."""
    import json

    found: dict[str, Any] = {}
    for item in filter(None, text.split("+")):
        name, separator, value = item.partition(":")
        *path, last = name.split(".")
        inner = found
        for part in path:
            inner = inner.setdefault(part, {})
        try:
            inner[last] = json.loads(value) if separator else True
        except ValueError:
            inner[last] = value
    return found


def _read_typed(text: str) -> tuple[str, dict[str, Any]]:
    """Read a type and what it is told."""
    name, _, told = text.partition("+")
    return name, _read(told)


def _dtypes(told: dict[str, Any]) -> dict[str, Any]:
    """Return options with names of dtypes as dtypes."""
    import torch

    return {
        name: getattr(torch, value) if name.endswith("dtype") and value in ("float32", "bfloat16") else value
        for name, value in told.items()
    }


def _save_model(parameters: Mapping[str, Any], recorder: Recorder, folder: str) -> str:
    import gc
    import os

    models = recorder.load("tiny_models")
    sizes = {"layers": parameters["layers"], "hidden": parameters["hidden"], "vocab": parameters["vocab"]}
    sizes |= {"intermediate": 3 * parameters["hidden"], "positions": 2 * parameters["length"]}
    made = models.build(parameters["model_type"], recorder, dtype=parameters["dtype"], **sizes)
    path = os.path.join(folder, "model")
    models.save(made, path)
    del made
    gc.collect()
    return path


def _loading(parameters: Mapping[str, Any], recorder: Recorder) -> dict[str, Any]:
    """Return what ``from_pretrained`` is told."""
    import torch
    import transformers

    models = recorder.load("tiny_models")
    told: dict[str, Any] = {}
    if parameters["model"] == "object":
        name = "dtype" if models.release() >= models.parse("4.56.0") else "torch_dtype"
        told[name] = getattr(torch, parameters["dtype"])
    if parameters["attention"] != "default":
        told["attn_implementation"] = parameters["attention"]
    if parameters["quantization"] != "none":
        name, options = _read_typed(parameters["quantization"])
        told["quantization_config"] = getattr(transformers, name)(**_dtypes(options))
    return told


def _model(parameters: Mapping[str, Any], recorder: Recorder, path: str, *, scores: bool = False) -> Any:
    """Load the model, with what is frozen."""
    import transformers

    class_ = transformers.AutoModelForSequenceClassification if scores else transformers.AutoModelForCausalLM
    with recorder.phase("load"):
        model = class_.from_pretrained(path, **_loading(parameters, recorder), **({"num_labels": 1} if scores else {}))
    for name, parameter in model.named_parameters():
        if parameters["frozen"] in name:
            parameter.requires_grad_(requires_grad=False)
    return model.train()


def _peft(parameters: Mapping[str, Any], recorder: Recorder, *, scores: bool = False) -> Any:
    """Return the configuration of the adapter; None for none."""
    import peft

    if parameters["adapter"] == "none":
        return None
    name, told = _read_typed(parameters["adapter"])
    # The keys are members of a str enumeration, plain texts before peft 0.15.
    class_ = peft.mapping.PEFT_TYPE_TO_CONFIG_MAPPING.get(name.upper())
    if class_ is None:
        recorder.unsupported(f"peft {peft.__version__} has no {name}")
    fields = getattr(class_, "__dataclass_fields__", {})
    if unknown := [key for key in told if key not in fields]:
        recorder.unsupported(f"{class_.__name__} of peft {peft.__version__} has no {unknown[0]}")
    usual = {
        "target_modules": ["q_proj", "v_proj", "up_proj"],
        "r": 4,
        "task_type": "SEQ_CLS" if scores else "CAUSAL_LM",
    }
    return class_(**{key: value for key, value in usual.items() if key in fields}, **told)


def _optimized(parameters: Mapping[str, Any], model: Any) -> list[Any]:
    """Return the parameters that a loop's optimizer is made of."""
    return [one for one in model.parameters() if one.requires_grad or parameters["optimized"] == "all"]


def _adapt(parameters: Mapping[str, Any], recorder: Recorder, model: Any) -> Any:
    """Put the adapter on a model, as one's own loop does."""
    configuration = _peft(parameters, recorder) if parameters["adapter"] != "none" else None
    if configuration is None:
        return model
    import peft

    if parameters["quantization"] != "none":
        model = peft.prepare_model_for_kbit_training(model, use_gradient_checkpointing=False)
    return peft.get_peft_model(model, configuration)


def _count(parameters: Mapping[str, Any], told: Mapping[str, Any]) -> int:
    """Return the rows of the dataset: as many batches as are taken before the first step."""
    return int(parameters["batch"]) * int(
        max(told.get(name, 1) for name in ("gradient_accumulation_steps", "steps_per_generation"))
    )


def _train(parameters: Mapping[str, Any], recorder: Recorder, steps: Any, folder: str) -> Iterator[Any]:
    """Yield what trains, evaluates and saves with a trainer."""
    import dataclasses
    from functools import partial

    import transformers

    runs, trainers = recorder.load("whole_run"), recorder.load("tiny_trainers")
    name, batch = parameters["trainer"], parameters["batch"]
    if name == "hf":
        classes = (transformers.Trainer, transformers.TrainingArguments)
    else:
        stem = {"sft": "SFT", "reward": "Reward"}.get(name, name.upper())
        classes = tuple(trainers.find(stem + kind, recorder) for kind in ("Trainer", "Config"))
    known = {field.name for field in dataclasses.fields(classes[1]) if field.init}
    told = _read(parameters["options"])
    if unknown := [key for key in told if key not in known]:
        recorder.unsupported(f"{classes[1].__name__} has no {unknown[0]}")
    usual = runs._options({**parameters, "checkpointing": "default", "liger": False}, folder, batch, recorder)
    path = _save_model(parameters, recorder, folder)
    tokenizer = trainers.tokenizer()
    tokenizer.model_input_names = ["input_ids", "attention_mask"]  # models of a decoder take no more
    if parameters["model"] == "name":
        tokenizer.save_pretrained(path)
        given: dict[str, Any] = {"model": path}
        loading = {**_loading(parameters, recorder), **told.pop("model_init_kwargs", {})}
        if loading:
            told["model_init_kwargs"] = loading
    else:
        given = {"model": _model(parameters, recorder, path, scores=name == "reward")}
    given |= {"callbacks": [steps.callback()]}
    given["args"] = classes[1](**{**{key: value for key, value in usual.items() if key in known}, **told})
    rows = _count(parameters, told)
    if name == "hf":
        given["model"] = _adapt(parameters, recorder, given["model"])
        data = [{"input_ids": [8 + index % 40 for index in range(length)]} for length in _lengths(parameters, rows)]
        given |= {"train_dataset": data, "eval_dataset": data[:batch]}
        given["data_collator"] = transformers.DataCollatorForLanguageModeling(tokenizer, mlm=False)
    else:
        dataset = trainers.dataset(_columns(parameters, rows, runs._rows, trainers.words))
        given |= {"train_dataset": dataset, "eval_dataset": dataset.select(range(batch)), "processing_class": tokenizer}
        if parameters["adapter"] != "none":
            given["peft_config"] = _peft(parameters, recorder, scores=name == "reward")
        if name in ("grpo", "rloo"):
            given["reward_funcs"] = runs._reward
    steps.follow_accelerate()
    with recorder.phase("build"):
        trainer = classes[0](**given)
    if name in ("grpo", "rloo"):
        trainer.model.generate = partial(trainer.model.generate, suppress_tokens=[tokenizer.eos_token_id, 2])
    yield trainer.train, trainer.evaluate, partial(trainer.save_model, folder)
    given.clear()
    del trainer


def _lengths(parameters: Mapping[str, Any], rows: int) -> list[int]:
    """Return the tokens of each row: equal ones where several batches share them."""
    whole = parameters["length"]
    return [whole] * rows if rows > parameters["batch"] else [whole - index % 4 * (whole // 4) for index in range(rows)]


def _columns(
    parameters: Mapping[str, Any], rows: int, make: Callable[..., dict[str, Any]], words: Any
) -> dict[str, Any]:
    """Return the dataset of a trainer, a column a name."""
    alike = {**parameters, "trainer": {"orpo": "dpo", "cpo": "dpo"}.get(parameters["trainer"], parameters["trainer"])}
    if rows == parameters["batch"]:
        return make(alike, rows, words)
    columns = {name: values * rows for name, values in make(alike, 1, words).items()}
    return columns | ({"label": [index % 2 == 0 for index in range(rows)]} if "label" in columns else {})


def _loop(
    parameters: Mapping[str, Any], steps: Any, *, forward: Any, backward: Any, step: Any, rounds: int, inside: Any
) -> tuple[Callable[[], None], Callable[[], None]]:
    """Return what trains, a step a round of micro-batches, each ``inside`` of something, and what evaluates."""
    import torch

    def train() -> None:
        for _ in range(parameters["steps"]):
            for _ in range(rounds):
                with inside():
                    steps.turn("forward")
                    loss = forward()
                    steps.turn("backward")
                    backward(loss)
                    del loss
                    steps.turn("optimizer")
                    step()
            steps.end()

    def evaluate() -> None:
        with torch.no_grad():
            forward()

    return train, evaluate


def _accelerate(parameters: Mapping[str, Any], recorder: Recorder, steps: Any, folder: str) -> Iterator[Any]:
    """Yield what trains, evaluates and saves in a loop over accelerate."""
    import accelerate
    import torch

    runs: Any = recorder.load("whole_run")
    told = _read(parameters["options"])
    rounds = told.get("gradient_accumulation_steps", 1)
    plugins = {"fsdp": "FullyShardedDataParallelPlugin", "deepspeed": "DeepSpeedPlugin"}
    if used := [name for name in plugins if name in told]:
        _join_group()
        if used == ["deepspeed"]:
            recorder.deepspeed()
        options = told.pop(used[0])
        if used == ["fsdp"]:  # on a CPU accelerate would take DDP in its place
            accelerate.PartialState(cpu=True)._shared_state["distributed_type"] = accelerate.DistributedType.MULTI_GPU
        told[f"{used[0]}_plugin"] = getattr(accelerate.utils, plugins[used[0]])(**options)
    if parameters["precision"] != "default":
        told["mixed_precision"] = parameters["precision"]
    model = _adapt(parameters, recorder, _model(parameters, recorder, _save_model(parameters, recorder, folder)))

    with recorder.phase("build"):
        accelerator = accelerate.Accelerator(cpu="deepspeed_plugin" not in told, **told)
        optimizer = torch.optim.AdamW(_optimized(parameters, model), lr=1e-4)
        loader = torch.utils.data.DataLoader(runs._batches(parameters, recorder), batch_size=parameters["batch"])
        model, optimizer, loader = accelerator.prepare(model, optimizer, loader)

    def forward() -> Any:
        return model(**next(iter(loader))).loss

    def step() -> None:
        optimizer.step()
        optimizer.zero_grad()

    def inside() -> Any:
        return accelerator.accumulate(model)

    train, evaluate = _loop(
        parameters, steps, forward=forward, backward=accelerator.backward, step=step, rounds=rounds, inside=inside
    )
    yield train, evaluate, lambda: accelerator.save_state(folder)
    accelerator.free_memory()


def _join_group() -> None:
    """Make a process group of gloo, of one rank where nothing says otherwise."""
    import os
    import socket

    if "RANK" not in os.environ:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        os.environ |= dict.fromkeys(("RANK", "LOCAL_RANK"), "0") | dict.fromkeys(
            ("WORLD_SIZE", "LOCAL_WORLD_SIZE"), "1"
        )
        os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}


def _deepspeed(parameters: Mapping[str, Any], recorder: Recorder, steps: Any, folder: str) -> Iterator[Any]:
    """Yield what trains, evaluates and saves in a loop over DeepSpeed's engine."""
    import contextlib

    import torch

    runs = recorder.load("whole_run")
    deepspeed = recorder.deepspeed()
    told = _read(parameters["options"])
    rounds = told.get("gradient_accumulation_steps", 1)
    # The defaults of half a billion elements would hide all else.
    zero = {"stage": 0, "reduce_bucket_size": 1 << 17, "stage3_prefetch_bucket_size": 1 << 14}
    configuration = {
        "train_micro_batch_size_per_gpu": parameters["batch"],
        "zero_allow_untested_optimizer": True,
        "zero_force_ds_cpu_optimizer": False,
        "bf16": {"enabled": parameters["dtype"] == "bfloat16"},
        **told,
        "zero_optimization": {**zero, **told.get("zero_optimization", {})},
    }
    model = _adapt(parameters, recorder, _model(parameters, recorder, _save_model(parameters, recorder, folder)))
    rows = runs._batches(parameters, recorder)

    with recorder.phase("build"):
        optimizer = torch.optim.AdamW(_optimized(parameters, model), lr=1e-4)
        engine, *_ = deepspeed.initialize(model=model, optimizer=optimizer, config=configuration)
    del model, optimizer

    def forward() -> Any:
        return engine(**runs._stack(rows, recorder)).loss

    train, evaluate = _loop(
        parameters,
        steps,
        forward=forward,
        backward=engine.backward,
        step=engine.step,
        rounds=rounds,
        inside=contextlib.nullcontext,
    )
    yield train, evaluate, lambda: engine.save_checkpoint(folder)
    engine.destroy()
