"""What the calls of a Python training script mean: classes and functions that decide about memory, by their names."""

from __future__ import annotations

import ast
import math
import re
from functools import cached_property
from typing import TYPE_CHECKING, Any

from compatcheck.architectures.adapters import ALL_ATTENTION, ALL_MLP, OF_TOWER
from compatcheck.core.document import Document, Gap, Statement, Unresolved
from compatcheck.core.python_tree import nodes_of
from compatcheck.core.setting_names import is_elsewhere
from compatcheck.core.units import DTYPE_BYTES
from compatcheck.frameworks.conversions import ByWords
from compatcheck.frameworks.keys import MODEL_FIELDS, Expression, Key, Table
from compatcheck.frameworks.python_script.adapters import CONFIGS, OF_OPTIONS, PREPARES, find_configs, find_options
from compatcheck.frameworks.python_script.calls import Call, Given
from compatcheck.frameworks.python_script.changes import (
    ADAPTERS,
    KERNELS,
    LOSS,
    OF_MODEL,
    OF_OPTIMIZER,
    SHARDING,
    Change,
    Changes,
)
from compatcheck.frameworks.python_script.handed_over import Family, find_made, find_used
from compatcheck.frameworks.python_script.lightning import Lightning, find_package
from compatcheck.frameworks.python_script.made import OPTIMIZERS, Made
from compatcheck.frameworks.python_script.nodes import dotted_name, words_of
from compatcheck.frameworks.python_script.objects import ADAPTER_CONFIGS, Kind, is_whole_model

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from compatcheck.core.source import Skipped, Source
    from compatcheck.frameworks.python_script.calls import Assignment, Scope
    from compatcheck.frameworks.python_script.objects import Objects

_TRL = {
    "SFT": "sft", "DPO": "dpo", "GRPO": "grpo", "KTO": "kto", "ORPO": "orpo", "CPO": "cpo", "RLOO": "rloo", "PPO": "ppo",
    "PPOv2": "ppo", "RLOOv2": "rloo", "Reward": "reward", "PRM": "prm", "GKD": "gkd", "OnlineDPO": "online_dpo", "XPO": "xpo",
    "NashMD": "nash_md", "BCO": "bco", "Distillation": "distillation", "SDPO": "sdpo", "SDFT": "sdft",
}  # fmt: skip
TRL_CONFIGS = {f"{name}Config": trainer for name, trainer in _TRL.items()}
TRL_TRAINERS = {f"{name}Trainer": trainer for name, trainer in _TRL.items()}
ARGUMENTS = {"TrainingArguments", "Seq2SeqTrainingArguments", *TRL_CONFIGS}
"""Classes whose keywords are the arguments of a Trainer."""
TRAINERS = {"Trainer", "Seq2SeqTrainer", *TRL_TRAINERS}
_LORA = {
    "r": "lora_r", "lora_dropout": "lora_dropout", "target_modules": "lora_target_modules",
    "target_parameters": "lora_target_parameters", "exclude_modules": "lora_exclude_modules", "use_dora": "use_dora",
    "modules_to_save": "lora_modules_to_save", "lora_alpha": "lora_alpha", "use_rslora": "use_rslora",
}  # fmt: skip
"""Keywords of LoraConfig and the names they have as script arguments."""
_OF_PEFT = {"r": 8, "lora_dropout": 0.0, "use_dora": False}
"""What ``LoraConfig`` takes where nobody says otherwise (peft 0.3.0, 0.21.2): TRL's own options have other defaults."""
_FIELDS = MODEL_FIELDS.keys() - {"router_aux_loss_coef"}
"""Fields of a model's configuration that a script sets; the weight has the name of an argument of TRL's."""
_LOADING = {"torch_dtype", "dtype", "trust_remote_code", "load_in_4bit", "load_in_8bit", *_FIELDS}


def of_loading(found: Findings) -> Table:
    """Return what the arguments about 4 bits mean where transformers loads the model: fp4 where none says which kind."""
    half = found.values.get("fp16")
    dtype = "float16" if half is not None and half.value is True else "bfloat16"
    asked = f'BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_compute_dtype="{dtype}")'
    kinds: dict[str, object] = {Expression(asked, "transformers"): "nf4"}
    return {
        "load_in_4bit": (Key("model.quantization", ByWords({"true": "fp4"}, "leave")),),
        "quantization_config": (Key("model.quantization", ByWords(kinds, "leave")),),
    }


_OF_TRAINER = {
    "max_seq_length",
    "packing",
    "dataset_text_field",
    "max_length",
    "max_prompt_length",
    "beta",
    "loss_type",
}
"""Keywords that trainers of older TRL releases took themselves."""
_FSDP_PLUGIN = {
    "fsdp_version", "reshard_after_forward", "sharding_strategy", "cpu_offload", "use_orig_params", "activation_checkpointing",
    "cpu_ram_efficient_loading", "sync_module_states", "state_dict_type",
}  # fmt: skip
_DEEPSPEED_PLUGIN = {
    "zero_stage": "zero_stage", "offload_optimizer_device": "offload_optimizer_device", "zero3_init_flag": "zero3_init_flag",
    "offload_param_device": "offload_param_device", "gradient_accumulation_steps": "gradient_accumulation_steps",
    "zero3_save_16bit_model": "zero3_save_16bit_model",
}  # fmt: skip


_SPREADING = ("auto", "balanced", "balanced_low_0", "sequential")
"""Device maps that put a model on more than one device where it is given several.

The Trainer then is model-parallel and runs in one process (transformers 4.51.3 trainer.py, ``is_model_parallel``).
"""
_OF_UNSLOTH = {
    "r": 16, "lora_dropout": 0,
    "target_modules": ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"],
}  # fmt: skip
"""What ``FastLanguageModel.get_peft_model`` takes where nobody says otherwise (unsloth 2025.2.5 models/llama.py)."""
_WITH_TOWERS = frozenset({"FastVisionModel", "FastModel", "FastTextModel"})
"""Classes of Unsloth that adapt towers, too, and whose linears are peft's (unsloth 2025.3.19, 2026.10.9 models/vision.py)."""
_TARGETS, _CONFIGURED = "target_modules", "LoraConfig"
_PARTS = {"finetune_language_layers": "", "finetune_vision_layers": OF_TOWER}
_LAYERS = {"finetune_attention_modules": ALL_ATTENTION, "finetune_mlp_modules": ALL_MLP}
"""Which parts, and which of their layers, those classes adapt unless they are told not to."""
_OF_KERNELS = {"lora_dropout": 0, "bias": "none"}
"""With which adapters Unsloth puts kernels of its own in place of the linears, and what it takes where nobody says otherwise."""


HEADS = ("ForSequenceClassification", "ForTokenClassification", "ForQuestionAnswering", "ForMultipleChoice",
         "ForImageClassification", "ForAudioClassification")  # fmt: skip
"""Ends of names of classes that end in a few labels and not in the vocabulary."""


class Findings:
    """What the calls of one script say, gathered by key."""

    def __init__(self, source: Source, objects: Objects) -> None:
        self.source = source
        self.objects = objects
        self.changes: list[Change] = []
        """Where what is stated or left out may be set by what is not read."""
        self.makes_optimizer = False
        """Whether a Trainer is given an optimizer whose family is told: then its arguments name none."""
        self.of_arguments: set[str] = set()
        """Keys that the arguments of a Trainer state."""
        self.of_code: set[str] = set()
        """Keys whose value nobody can tell and that the script computes itself: no command line says what they hold."""
        self.of_loading: set[str] = set()
        """Keys that transformers takes where it loads the model."""
        self.values: dict[str, Given] = {}
        self.accelerate: dict[str, Given] = {}
        self.lightning = Lightning()
        self.statements: dict[str, tuple[Statement, int]] = {}
        self.unresolved: list[Unresolved] = []
        self.lines: dict[str, int] = {}
        self.documents: list[Document] = []
        self.skipped: list[Skipped] = []
        self.deepspeed: Given | None = None
        self.deepspeed_open: list[tuple[str, Given]] = []
        """Keys of a configuration that is written out in the script, where their values are no literals."""
        self.made = Made()
        self.asked: set[str] = set()
        """Options of the script's own that are among what is read."""
        self.models: dict[str, Given] = {}
        self.causal: Given | None = None
        """The model that is loaded with a head for causal language modelling."""
        self.own_model: tuple[str, int] | None = None
        """The class of the project that loads the model, with its line."""
        self.heads: dict[bool, int] = {}
        """Line of the first model that is loaded with a head of a few labels, and of the first with another one."""
        self.is_plain = False
        """Whether the HF Trainer itself is made, and not a class that may compute another loss."""
        self.by_trainer = False
        """Whether a trainer of TRL is given the name of a model, and loads it."""
        self.trainers: dict[str, int] = {}
        self.unread: dict[str, int] = {}
        """Trainers of TRL that are not known by name."""
        self.foreign: dict[str, int] = {}
        """Trainers of other modules, which may compute any loss of any batch."""
        self.gaps: list[Gap] = []
        """Where arguments are given or set that are no literals."""
        self.calls: dict[str, int] = {}
        """Line of the call that takes each argument, or under an empty name all others."""
        self.has_arguments = False
        self.given: Given | None = None
        """What a Trainer is given as its arguments."""

    @cached_property
    def used(self) -> tuple[tuple[Family, Mapping[ast.Call, int] | None], ...]:
        """Each sort of configurations, with the calls that make those which something is given, and in which line it is.

        None where any may be.
        """
        objects = self.objects
        arguments = Family(objects.arguments, ("args",), dict.fromkeys(objects.trainers, 1), of_trainers=True)
        return tuple((one, find_used(one, objects)) for one in (CONFIGS, _QUANTIZATIONS, arguments))

    @property
    def adapters(self) -> Mapping[ast.Call, int] | None:
        """Those of adapters."""
        return self.used[0][1]

    def is_unused(self, node: ast.expr, scope: Scope) -> bool:
        """Tell whether an expression is a configuration that the script makes and that nothing is given."""
        for family, used in self.used:
            made = () if used is None else find_made(node, scope, self.objects, family) or ()
            if made and used is not None and used.keys().isdisjoint(made):
                return any(self.objects.last_name(one) in family.makers for one in made)
        return False

    @property
    def is_empty(self) -> bool:
        """Whether nothing here is about training."""
        return not (
            self.values
            or self.accelerate
            or self.statements
            or self.trainers
            or self.deepspeed
            or self.models
            or self.lightning.made
        )

    @property
    def is_of_trl(self) -> bool:
        """Whether a trainer of TRL is made, or one that may be: the plain Trainer has an empty name."""
        return bool(self.unread) or any(self.trainers)

    def take(self, key: str, given: Given, call: Call | None = None, into: dict[str, Given] | None = None) -> None:
        """Take one keyword; a second call that says otherwise, or a branch nobody can decide, makes it unknown."""
        values = self.values if into is None else into
        self.asked |= given.options
        if call is not None and call.condition is not None and given.why is None:
            given = given._replace(why=f"is set only if {call.condition}")
        known = values.get(key)
        if known is not None and (known.why, known.value) != (given.why, given.value):
            why = f"is set in lines {known.line} and {given.line}, each time to something else"
            given = given._replace(why=why, names=frozenset())
            self.of_code.add(key)
        values[key] = given
        self.lines.setdefault(key, given.line)

    def take_field(self, one: Assignment) -> None:
        """Take a field of the model's configuration that is set: it replaces what the model was loaded with.

        Where several lines set it the first one counts: what comes later is for generation.
        """
        loaded, given = self.values.get(one.name), one.given
        if loaded is None or (given.why is None and (loaded.why is not None or one.name not in self.made.fields)):
            self.values[one.name] = given
            self.lines[one.name] = given.line
        elif one.name not in self.made.fields:
            self.take(one.name, given)
        self.made.fields.add(one.name)

    def set(self, key: str, given: Given, value: ast.expr, where: Call | Assignment) -> None:
        """Take what the arguments of a Trainer are given by name, where they are made or later; a mapping by its entries."""
        script, scope = self.objects.script, where.scope
        self.of_arguments.add(key)
        entries = script.entries(value, scope) if given.why is not None and where.condition is None else None
        if entries and "." not in key and key != "deepspeed":
            self.lines.setdefault(key, given.line)
            for name, one in entries.items():
                self.set(f"{key}.{name}", script.read(one, scope), one, where)
            return
        if given.why is not None and not script.passes_on(value, key.rpartition(".")[2], scope):
            self.of_code.add(key)
        if key != "deepspeed":
            self.take(key, given)
        elif given.why is not None or given.value is not None:
            self.deepspeed = given
            self.lines.setdefault("deepspeed", given.line)

    def state(self, fact: str, key: str, value: Any, call: Call) -> None:  # noqa: ANN401 (a vocabulary value)
        """State what a call means by being there; a second call that means otherwise makes it unknown."""
        known = self.statements.get(fact)
        self.lines.setdefault(key, call.line)
        if call.condition is not None:
            self.unresolved.append(Unresolved(fact, key, f"happens only if {call.condition}"))
        elif known is not None and known[0].value != value:
            del self.statements[fact]
            self.unresolved.append(Unresolved(fact, key, f"is told differently in lines {known[1]} and {call.line}"))
        else:
            self.statements[fact] = (Statement(fact, key, value), call.line)

    def open(self, call: Call, facts: frozenset[str], why: str, *, since: float | None = None) -> None:
        """Leave open what a call decides in a way that is not read."""
        self.changes.append(Changes(self.objects).place(call.line, call.scope, facts, why, since=since))


def keyword_of(function: str, key: str) -> str:
    """Return how a call of a function spells a key that is read of it."""
    names = {known: keyword for keyword, known in _LORA.items()} if function.endswith("LoraConfig") else {}
    return names.get(key, key)


def take_call(call: Call, found: Findings) -> None:
    """Take what one call says; most calls say nothing. One of an own class of a trainer says what its base would."""
    if find_package(call, found.objects) is not None:
        found.lightning.take(call)
        return
    classes = found.objects.stand_for(call.name, call.scope) if isinstance(call.node.func, ast.Name) else ()
    unread = [name for name in classes if found.objects.is_unread_trainer(name)]
    for name in unread or classes or (call.name,):
        _take_named(call._replace(name=name), found)


def _take_named(call: Call, found: Findings) -> None:
    base = found.objects.trainers.get(call.name, call.name)
    unread = "Trainer" if base.endswith("Trainer") else "TrainingArguments"
    take = TAKERS.get(unread if base in found.objects.unread else base)
    if base in TRAINERS | ARGUMENTS and found.objects.is_of_another(call.node):
        return
    if take is not None and found.is_unused(call.node, call.scope):
        return
    if take is not None and (base in found.objects.known or base in found.objects.trainers):
        found.calls.update(dict.fromkeys(_TAKEN.get(base, ()), call.line))
        found.asked.update(*(one.options for one in (*call.positional, *call.keywords.values())))
        take(call._replace(name=base), found)
    elif found.objects.is_unread_trainer(call.name, call.node.func):
        found.foreign.setdefault(call.name, call.line)
        _take_foreign_arguments(call, found)


def _take_foreign_arguments(call: Call, found: Findings) -> None:
    """Leave open what a trainer of the project's own is given by arguments of a class that was not read either."""
    given = next((word.value for word in call.node.keywords if word.arg == "args"), None)
    made = None if given is None else _find(given, call)
    if given is not None and isinstance(made, ast.Call) and found.objects.kind(given, call.scope) is None:
        why = f"gives {call.name} arguments of {dotted_name(made.func) or 'a class'}, which was not read"
        found.gaps.append(Gap(found.source._replace(line=call.line), why))


def _take_arguments(call: Call, found: Findings) -> None:
    found.has_arguments = True
    if call.is_open:
        found.gaps.append(
            Gap(found.source._replace(line=call.line), f"gives {call.name} arguments that are no literals (`**`)")
        )
    for key, given in call.keywords.items():
        conditional = call.condition is not None and given.why is None
        only = given._replace(why=f"is set only if {call.condition}") if conditional else given
        found.set(key, only, call.written[key], call)
    if call.name in TRL_CONFIGS:
        found.trainers[TRL_CONFIGS[call.name]] = call.line


def _leave_open(call: Call, keys: Iterable[str], found: Findings, into: dict[str, Given] | None = None) -> None:
    """Leave open what a call may be given among arguments that are no literals."""
    why = f"may be among the arguments of {call.name} that are no literals"
    for key in keys if call.is_open else ():
        if key not in call.keywords:
            found.take(key, Given(None, call.line, why), into=into)


def take_change(one: Assignment, found: Findings) -> None:
    """Take what a configuration is told after it was made: ``peft_config.r = 64``, ``bnb_config.load_in_4bit = False``."""
    made = find_configs if one.name in _LORA else _find_quantization if one.name.startswith(_OF_BITSANDBYTES) else None
    if made is None or not made(one.owner, one.scope, found.objects) or found.is_unused(one.owner, one.scope):
        return
    if one.name in _LORA:
        found.take(_LORA[one.name], one.given)
    else:
        place = Changes(found.objects).place
        found.changes.append(
            place(one.node.lineno, one.scope, _OF_QUANTIZATION, f"sets {one.name} of the quantization")
        )


def _find_quantization(node: ast.expr, scope: Scope, objects: Objects) -> tuple[ast.Call, ...] | None:
    return find_made(node, scope, objects, _QUANTIZATIONS)


_OF_BITSANDBYTES, _OF_QUANTIZATION = ("load_in_", "bnb_4bit_"), frozenset({"model.quantization"})
_QUANTIZATIONS = Family(
    frozenset({"BitsAndBytesConfig", "TorchAoConfig"}),
    ("quantization_config",),
    {},
    frozenset({"from_pretrained", "from_config"}),
)
"""Configurations of a quantization, which a model is loaded with."""


def _take_options(call: Call, found: Findings) -> None:
    """Take adapters that TRL makes of a ``ModelConfig``, where the script makes that: it has the names of its own options."""
    made = find_options(call.node, call.scope, found.objects)
    if made is None:
        return
    script, name = found.objects.script, next(iter(call.node.args), call.node)
    words = script.keywords(made, call.scope)
    is_open = any(word.arg is None for word in made.keywords) and len(words) < len(made.keywords)
    changed = {key for owner, key in script.attributes if owner and owner == dotted_name(name)}
    for key in ("use_peft", *dict.fromkeys(_LORA.values())):
        if is_open or made.args or key in changed or "" in changed:
            why = f"may be set in the {dotted_name(made.func)} that {OF_OPTIONS} is given"
            found.take(key, Given(None, call.line, why), call)
        elif key in words or key == "use_peft":
            value = script.read(words[key], call.scope) if key in words else Given(False, call.line)
            found.take(key, value, call)
    if "lora_target_modules" not in found.values:
        found.statements[_CONFIGURED] = (Statement(None, f"({_CONFIGURED})", value=True), call.line)


def _take_adapter(call: Call, found: Findings) -> None:
    found.take("use_peft", Given(ADAPTER_CONFIGS[call.name], call.line), call)
    _leave_open(call, (_LORA[key] for key in _LORA if key not in call.keywords), found)
    for key, usual in _OF_PEFT.items() if call.name == "LoraConfig" and not call.is_open else ():
        if key not in call.keywords and not call.positional:
            found.take(_LORA[key], Given(usual, call.line), call)
    named = call.keywords.get(_TARGETS, Given(None, call.line))
    if call.name == _CONFIGURED and not (call.is_open or call.positional or named.why or named.value):
        found.statements[_CONFIGURED] = (Statement(None, f"({_CONFIGURED})", value=True), call.line)
    rank = "init_r" if call.name == "AdaLoraConfig" else "r"  # peft 0.19.0 to 0.21.2 adalora/config.py: `r` is not used
    for key, given in call.keywords.items():
        if key == rank or (key in _LORA and key != "r"):
            found.take(_LORA["r" if key == rank else key], given, call)


def _take_quantization(call: Call, found: Findings) -> None:
    if not any(key.startswith("load_in_") for key in call.keywords):
        _leave_open(call, ("load_in_4bit", "load_in_8bit"), found)
    found.of_arguments |= call.keywords.keys() & _LOADING  # its own, whichever release's from_pretrained has them too
    for key, given in call.keywords.items():
        if key == "load_in_4bit" and not call.is_open:
            _take_four_bits(call, given, found)
        elif key.startswith(_OF_BITSANDBYTES):
            found.take(key, given, call)


_QUANTISING = ("replace_parameter_4bit", "Linear4bit", "LinearFP4", "LinearNF4", "Linear8bitLt", "quantize_")
"""Functions and classes by which a script quantises layers itself: bitsandbytes ``nn`` and torchao ``quantization``."""


def _take_quantised_layers(call: Call, found: Findings) -> None:
    """Leave open how weights are kept where a script quantises some, whatever its configuration says."""
    if not (found.objects.path(call.node.func) or "").startswith(("transformers", "peft")):
        found.lines.setdefault(call.name, call.line)
        found.unresolved.append(Unresolved("model.quantization", call.name, "is decided layer by layer"))


def _take_four_bits(call: Call, given: Given, found: Findings) -> None:
    """Take which 4 bits weights have: fp4 where nobody says nf4 (transformers 4.57.1 BitsAndBytesConfig.bnb_4bit_quant_type)."""
    kind = call.keywords.get("bnb_4bit_quant_type", Given("fp4", call.line))
    if given.why is None and given.value is True and kind.why is None and kind.value == "fp4":
        found.state("model.quantization", "load_in_4bit", "fp4", call)
    else:
        found.take("load_in_4bit", given, call)


def _take_checkpointing(call: Call, found: Findings) -> None:
    if call.name in PREPARES:
        given = call.keywords.get("use_gradient_checkpointing", Given(True, call.line))
    else:
        given = Given(True, call.line)
    found.take("gradient_checkpointing", given, call)
    _take_reentrant(call, "gradient_checkpointing_kwargs", found)


def _take_reentrant(call: Call, name: str, found: Findings) -> None:
    given = call.keywords.get(name)
    if given is None and call.name == "gradient_checkpointing_enable" and call.positional:
        given = call.positional[0]
    if given is not None and (given.why is not None or isinstance(given.value, dict)):
        found.take("gradient_checkpointing_kwargs", given, call)


def _take_trainer(call: Call, found: Findings) -> None:
    if call.name in TRL_TRAINERS:
        found.trainers[TRL_TRAINERS[call.name]] = call.line
        for key in _OF_TRAINER & call.keywords.keys():
            found.take(key, call.keywords[key], call)
        _leave_open(call, ("peft_config",), found)
    else:
        found.trainers.setdefault("", call.line)
        found.is_plain = found.objects.last_name(call.node) == "Trainer"
    if call.name in found.objects.unread:
        found.unread.setdefault(call.name, call.line)
    adapters = call.keywords.get("peft_config")
    if adapters is not None and adapters.why is not None:
        found.take("peft_config", adapters)
        given = call.written["peft_config"]
        if isinstance(_find(given, call), ast.IfExp) and find_configs(given, call.scope, found.objects) is None:
            found.open(
                call, ADAPTERS, f"gives the Trainer adapters or none: peft_config {adapters.why}", since=math.inf
            )
    arguments = call.keywords.get("args") or (call.positional[1] if len(call.positional) > 1 else None)
    if arguments is not None and arguments.why is not None:
        found.given = arguments
    _take_parts(call, found)
    _take_reference(call, found)
    _take_metrics(call, found)
    teacher = call.keywords.get("teacher_model")
    if teacher is not None and teacher.why is None and isinstance(teacher.value, str):
        found.made.teachers.setdefault(teacher.value, teacher)
    model = call.keywords.get("model") or (call.positional[0] if call.positional else None)
    if model is not None and model.why is None and isinstance(model.value, str):
        found.models.setdefault(model.value, model)
        found.by_trainer = call.name in TRL_TRAINERS


def _take_metrics(call: Call, found: Findings) -> None:
    """Take whether a Trainer computes metrics, and whether it keeps what a function of the script's makes of the logits.

    Source: transformers 4.36.2 and 5.24.0 trainer.py, trl 0.8.6 and 1.16.0 sft_trainer.py: seven arguments come before them.
    """
    metrics = call.keywords.get(_METRICS)
    if metrics is not None:
        found.state("training.compute_metrics", _METRICS, _is_there(metrics), call)
    elif call.condition is None and not (call.is_open or call.positional[_BEFORE_METRICS:] or _names(_METRICS, found)):
        found.state("training.compute_metrics", f"(no {_METRICS})", value=False, call=call)
    reduces = call.keywords.get("preprocess_logits_for_metrics")
    if reduces is not None and _is_there(reduces):
        found.state("program.collects_predictions", "preprocess_logits_for_metrics", value=False, call=call)


_METRICS, _BEFORE_METRICS = "compute_metrics", 7


def _is_there(given: Given) -> bool:
    """Tell whether an argument is given something: what is no literal counts as that."""
    return given.why is not None or given.value is not None


def _names(name: str, found: Findings) -> bool:
    """Tell whether a script names something anywhere, or has a trainer of another module that may."""
    return bool(found.objects.elsewhere) or name in found.objects.script.code


def _take_reference(call: Call, found: Findings) -> None:
    """Take a reference model that a Trainer is handed: it is there whatever the Trainer makes, as its own call loaded it."""
    given = call.keywords.get("ref_model")
    if given is None or (given.why is None and given.value is None):
        return
    made = _find(call.written.get("ref_model"), call)
    words = found.objects.script.keywords(made, call.scope) if isinstance(made, ast.Call) else {}
    asked = next((words[key] for key in ("dtype", "torch_dtype") if key in words), None)
    dtype = None if asked is None else found.objects.script.read(asked, call.scope)
    opened = set()
    if dtype is not None and dtype.why is None and dtype.value in DTYPE_BYTES:
        found.state("training.reference_load_dtype", "ref_model", dtype.value, call)
    else:
        opened.add("training.reference_load_dtype")
    if isinstance(made, ast.Call) and found.objects.last_name(made) in _MAKES_MODELS:
        found.state("training.reference_model", "ref_model", value=True, call=call)
    else:
        opened.add("training.reference_model")
    if opened:
        found.open(call, frozenset(opened), "hands the Trainer a reference model of its own")


_MAKES_MODELS = frozenset({"create_reference_model", "deepcopy", "from_config", "from_pretrained"})
"""Calls that return a model; another one may return none."""


def _name_of_spread(node: ast.expr) -> str:
    """Return the name of a mapping whose entries a call is given, all or some: ``{k: v for k, v in data.items() if …}``."""
    match node:
        case ast.DictComp(generators=[ast.comprehension(iter=ast.Call(func=ast.Attribute(value=owner, attr="items")))]):
            return dotted_name(owner)
    return dotted_name(node)


def _take_parts(call: Call, found: Findings) -> None:
    """Take what a Trainer is given in place of what it would make: optimizer, loss, callbacks."""
    if (
        any(word.arg is None and not is_elsewhere(_name_of_spread(word.value)) for word in call.node.keywords)
        and call.is_open
    ):
        found.open(
            call, OF_OPTIMIZER | LOSS, f"gives {call.name} arguments that are no literals (`**`)", since=math.inf
        )
    callbacks = [call.written[name] for name in ("callbacks",) if name in call.written]
    found.changes += Changes(found.objects).of_callbacks(callbacks, call.scope)
    for name, facts in (
        ("optimizers", OF_OPTIMIZER),
        ("optimizer_cls_and_kwargs", OF_OPTIMIZER),
        ("compute_loss_func", LOSS),
        ("model_init", OF_MODEL),
    ):
        value = _find(call.written.get(name), call)
        first = value.elts[0] if isinstance(value, ast.Tuple) and value.elts else value
        if first is None or (isinstance(first, ast.Constant) and first.value is None):
            continue
        made = _find(first, call)
        family = OPTIMIZERS.get(dotted_name(made.func).rpartition(".")[2]) if isinstance(made, ast.Call) else None
        words = words_of(made or first)
        known = {"training.optimizer"} if facts is OF_OPTIMIZER and family is not None else set[str]()
        found.open(call, facts - known, f"makes {name} of its own: {words}", since=math.inf)
        if known:
            found.makes_optimizer = True
            found.state("training.optimizer", name, family, call)


def _find(value: ast.expr | None, call: Call) -> ast.expr | None:
    """Return what a name is assigned, where a call is given one and that is told; else the expression itself."""
    return (call.scope.find(value.id) or value) if isinstance(value, ast.Name) else value


def _take_wrapped(call: Call, found: Findings) -> None:
    """Take a model with adapters; those of Unsloth stand in the call itself, and count for nothing where all weights train.

    Source: unsloth 2025.3.19 to 2026.10.9 models/llama.py, vision.py: "Full finetuning is enabled, so .get_peft_model has no
    effect".
    """
    if call.owner.startswith("Fast") and "full_finetuning" in found.statements:
        return
    if call.owner.startswith("Fast"):
        found.take("use_peft", Given(True, call.line), call)
        _leave_open(call, ("lora_r", "lora_dropout", "lora_target_modules", "gradient_checkpointing"), found)
        towers = call.owner in _WITH_TOWERS
        for key, name in _LORA.items():
            usual = _OF_UNSLOTH.get(key) if not call.is_open else None
            given = call.keywords.get(key) or (None if usual is None else Given(usual, call.line))
            if towers and key == _TARGETS:
                given = None if call.is_open else _targets_of(call)
            if given is not None:
                found.take(name, given, call)
        # its kernels dequantise the frozen weights themselves (unsloth 2024.8, 2025.2.5 models/llama.py patch_peft_model)
        wanted = [(call.keywords.get(key, Given(usual, call.line)), usual) for key, usual in _OF_KERNELS.items()]
        usual_ones = all(given.why is None and given.value == usual for given, usual in wanted)
        if not call.is_open and not towers and usual_ones:
            found.state("program.calls_4bit_linears", "lora_dropout", value=False, call=call)
        _take_fast_checkpointing(call, found)
        return
    _state_literal(call, found, "autocast_adapter_dtype", "training.autocast_adapter_dtype")
    values = (*call.node.args[1:], *(word.value for word in call.node.keywords))
    if not any(find_configs(one, call.scope, found.objects) for one in values):
        found.open(call, ADAPTERS, "gives the model adapters in a way that is not read")
    elif call.condition is not None:
        found.open(call, ADAPTERS, f"gives the model adapters only if {call.condition}", since=math.inf)


def _targets_of(call: Call) -> Given:
    """Return what the adapters of a class that knows towers lie in.

    Targets that are named are looked for in the parts that are adapted; all linear layers stand for attention and MLPs of
    each. Source: unsloth 2026.10.9 models/vision.py get_peft_model(), unsloth_zoo 2026.10.9 peft_utils.py get_peft_regex().
    """
    given = call.keywords.get(_TARGETS, Given(None, call.line))
    flags = {key: call.keywords.get(key, Given(True, call.line)) for key in (*_PARTS, *_LAYERS)}
    open_ones = [f"{key} {flag.why}" for key, flag in flags.items() if flag.why is not None]
    if given.why is not None or open_ones:
        return given._replace(value=None, why=given.why or open_ones[0])
    every = given.value is None or given.value == "all-linear"
    chosen = [name for key, name in _LAYERS.items() if flags[key].value or given.value is not None]
    names = chosen if every else given.value
    if not isinstance(names, list | tuple):
        return given
    parts = [part for key, part in _PARTS.items() if flags[key].value or given.value == "all-linear"]
    return given._replace(value=[f"{part}{name}" for part in parts for name in names])


def _take_model(call: Call, found: Findings) -> None:
    if "Peft" in call.owner:
        found.open(call, ADAPTERS, "loads adapters, whose configuration lies beside them")
    if call.owner.rpartition(".")[2] == "AutoConfig":
        for key in call.keywords.keys() & _FIELDS:
            found.take(key, call.keywords[key], call)
    if not is_whole_model(call.owner):
        return
    if _is_teacher(call, nodes_of(found.objects.script.tree)):
        name = call.positional[0] if call.positional else call.keywords.get("pretrained_model_name_or_path")
        if name is not None:
            found.made.teachers.setdefault(str(name.value) if name.why is None else "", name)
        return
    if "LigerKernel" in call.owner:
        found.open(call, KERNELS, "loads a model whose loss and layers are Liger's where it knows the type")
    name = call.positional[0] if call.positional else call.keywords.get("pretrained_model_name_or_path")
    name = name or call.keywords.get("model_name")
    if name is not None:
        owner = call.node.func.value if isinstance(call.node.func, ast.Attribute) else call.node.func
        if found.own_model is None and found.objects.is_of_project(owner):
            found.own_model = call.owner.rpartition(".")[2], call.line
        found.models.setdefault(str(name.value) if name.why is None else "", name)
        found.made.loads += [call.line] if call.condition is None else []
        found.causal = name if call.owner.endswith("ForCausalLM") else found.causal
        found.heads.setdefault(_has_few_labels(call), call.line)
    if len(found.models) > 1:
        return  # a second model: what it is loaded with says nothing about the first
    found.calls.update(dict.fromkeys((*sorted(_LOADING), "quantization_config"), call.line))
    if not call.owner.startswith("Fast"):
        found.of_loading |= _LOADING
    dtype = "dtype" if "dtype" in call.keywords else "torch_dtype"
    _leave_open(call, (dtype, "attn_implementation", "load_in_4bit", "output_router_logits", "use_cache"), found)
    _take_engine(call, found)
    _take_fast(call, found)
    _take_loading(call, found)
    if not call.is_open and call.condition is None and not call.owner.startswith("Fast"):
        _take_left_out(call, found)
    found.made.models.append(call)


def _has_few_labels(call: Call) -> bool:
    """Tell whether a model ends in no projection on the vocabulary; ``AutoModel`` may be any class of a checkpoint's own code."""
    bare = (
        call.owner.rpartition(".")[2] == "AutoModel" and "trust_remote_code" not in call.keywords and not call.is_open
    )
    return bare or call.owner.endswith(HEADS)


def _is_teacher(call: Call, nodes: Iterable[ast.AST]) -> bool:
    """Tell whether a model is loaded into a name that is handed on as ``teacher_model`` alone: it is not the one that trains."""
    handed: dict[str, set[str | None]] = {}
    names = set()
    for node in nodes:
        if isinstance(node, ast.keyword) and isinstance(node.value, ast.Name):
            handed.setdefault(node.value.id, set()).add(node.arg)
        elif isinstance(node, ast.Assign) and node.value is call.node:
            names |= {target.id for target in node.targets if isinstance(target, ast.Name)}
    return bool(names) and all(handed.get(name) == {"teacher_model"} for name in names)


def _take_left_out(call: Call, found: Findings) -> None:
    """Take that a model is loaded by a call that is seen whole: what it leaves out is transformers' own choice."""
    found.statements[_LOADED] = (Statement(None, f"({_LOADED})", value=True), call.line)
    if "device_map" not in call.keywords and not _PLACES.search(found.objects.script.code):
        found.state("model.device_map", f"({_LOADED})", None, call)


_LOADED = "from_pretrained"
_PLACES = re.compile(r"set_default_device|torch\.device\(.*:$", re.MULTILINE)
"""What a script has that places a model where no device map does."""


def _take_loading(call: Call, found: Findings) -> None:
    """Take what a model is loaded with."""
    for key, given in call.keywords.items():
        if key.startswith("load_in_") and "quantization_config" in call.written:
            continue  # of that, where both are given
        if key == "load_in_4bit" and key in found.of_loading:
            _take_four_bits(call, given, found)
        elif key in _LOADING:
            found.take(key, given, call)
            if key == "output_attentions" and given.why is None:
                found.state("run.attentions_at_loading", key, given.value is True, call)
        elif key == "quantization_config" and not _is_told(call.written[key], given, call, found.objects):
            found.open(call, frozenset({"model.quantization"}), f"quantization_config {given.why}", since=math.inf)
        elif key == "device_map":
            if given.why is None and (given.value is None or isinstance(given.value, str)):
                found.state("model.device_map", key, given.value, call)
            if given.value in _SPREADING:
                why = f"device_map={given.value!r} spreads the layers over the devices of one process"
                found.open(call, SHARDING, why, since=0)
        elif key == "tp_plan" and (given.why is not None or given.value is not None):
            size = call.keywords.get("tp_size")
            if size is not None and size.why is None and isinstance(size.value, int):
                found.state("training.tensor_parallel", "tp_size", size.value, call)
                found.open(
                    call, SHARDING, f"tp_plan={given.value!r} splits the matrices of the model over ranks", since=0
                )
            else:
                why = f"tp_plan={given.value!r} splits the matrices of the model over all ranks"
                found.open(call, SHARDING | {"training.tensor_parallel"}, why, since=0)
        elif key == "use_flash_attention_2" and given.value is True:
            found.take("attn_implementation", given._replace(value="flash_attention_2"), call)


_HANDED_ON = {
    frozenset({"attn_implementation"}): re.compile(r"attn|flash_?att|\bconfig=", re.IGNORECASE),
    frozenset({"dtype", "torch_dtype"}): re.compile(r"\bconfig=|set_default_dtype"),
    frozenset({"load_in_4bit", "load_in_8bit"}): re.compile(r"\bconfig=|quantiz|[48]bit|bnb|kbit", re.IGNORECASE),
}
"""What a model is loaded with, and what a script has that tells it by other means than the keywords of the call."""


def leave_to_loading(found: Findings) -> None:
    """Leave to the code what no call that loads the model is given: whatever a command says of it, nobody hands it on."""
    loads, code = found.made.models, found.objects.script.code
    if loads and not any(call.is_open for call in loads):
        given = {key for call in loads for key in call.written}
        for keys, elsewhere in _HANDED_ON.items():
            if not given & keys and not elsewhere.search(code):
                found.of_code |= keys
                key = f"(no {min(keys)})"
                found.statements[key] = (Statement(None, key, value=True), loads[0].line)


def _take_fast(call: Call, found: Findings) -> None:
    """Take what Unsloth's loading decides: quantization, and the length that its Trainers take from the model."""
    if not call.owner.startswith("Fast") or call.is_open:
        return
    whole = call.keywords.get("full_finetuning", Given(False, call.line))
    if call.owner in _WITH_TOWERS:  # what is patched here, stays so (unsloth 2026.10.9 models/loader.py, vision.py)
        _take_offloading(call, found)
    if (
        whole.why is None and whole.value is True
    ):  # whatever it is told of 4 or 8 bits (unsloth 2025.9.1 models/loader.py)
        found.statements["full_finetuning"] = (Statement(None, "(full_finetuning)", value=True), call.line)
        found.take("load_in_4bit", Given(False, call.line), call)
        _take_fast_checkpointing(call, found)
    else:
        found.take("load_in_4bit", call.keywords.get("load_in_4bit", Given(True, call.line)), call)  # from 2024.1 on
    found.take("max_seq_length", call.keywords.get("max_seq_length", Given(2048, call.line)), call)


def _take_fast_checkpointing(call: Call, found: Findings) -> None:
    """Take whether Unsloth recomputes activations, and how where this call decides it."""
    if call.owner not in _WITH_TOWERS:
        _take_offloading(call, found)
    given = call.keywords.get("use_gradient_checkpointing")
    if given is not None or not call.is_open:
        given = given or Given(True, call.line)
        found.take("gradient_checkpointing", given if given.why else given._replace(value=bool(given.value)), call)


def _take_offloading(call: Call, found: Findings) -> None:
    """Take how Unsloth recomputes activations: ``"unsloth"`` keeps on the host what it starts from.

    Source: unsloth_zoo 2025.11.1 gradient_checkpointing.py.
    """
    given = call.keywords.get("use_gradient_checkpointing")
    if given is not None and given.why is None and given.value == "unsloth":
        found.state("training.activation_offloading", "use_gradient_checkpointing", value=True, call=call)
    elif given is not None and given.why is None:
        found.state("training.activation_offloading", "use_gradient_checkpointing", value=False, call=call)
    elif given is not None:
        found.unresolved.append(
            Unresolved("training.activation_offloading", "use_gradient_checkpointing", given.why or "")
        )


def _take_engine(call: Call, found: Findings) -> None:
    """Take the engine that Unsloth starts in the process, whose weights it trains.

    It takes a share of what is free before anything else is there. Source: unsloth 2025.11.1 models/loader.py, models/llama.py;
    unsloth_zoo 2025.11.1 vllm_utils.py load_vllm(), convert_vllm_to_huggingface().
    """
    given = call.keywords.get("fast_inference") if call.owner.startswith("Fast") else None
    if given is not None and given.why is not None:
        found.unresolved.append(Unresolved("rollout.engine", "fast_inference", given.why))
    if given is None or given.why is not None or given.value is not True:
        return
    found.state("rollout.engine", "fast_inference", "vllm", call)
    for fact in ("rollout.colocated", "rollout.adapters", "program.engine_shares_weights"):
        found.state(fact, "fast_inference", value=True, call=call)
    share = call.keywords.get(_SHARE) or (None if call.is_open else Given(_UNSLOTHS_SHARE, call.line))
    if share is not None and share.why is not None:
        found.unresolved.append(Unresolved("rollout.gpu_memory_utilization", _SHARE, share.why))
    elif share is not None and isinstance(share.value, int | float):
        found.state("rollout.gpu_memory_utilization", _SHARE, float(share.value), call)


_SHARE, _UNSLOTHS_SHARE = "gpu_memory_utilization", 0.5
"""The engine's share of the device, and what it is where it is left out."""


def _is_told(value: ast.expr, given: Given, call: Call, objects: Objects) -> bool:
    """Tell whether a configuration is read where it is made, is none, or is made of the options of a command."""
    if given.why is None and given.value is None:
        return True
    known = _find_quantization(value, call.scope, objects)
    if known is not None:
        return all(objects.last_name(one) in _QUANTIZATIONS.makers for one in known)
    made = _find(value, call)
    if isinstance(made, ast.IfExp):
        chosen = made.body, made.orelse
        quantised = {bool(_find_quantization(one, call.scope, objects)) for one in chosen}
        return len(quantised) == 1 and all(_is_told(one, given, call, objects) for one in chosen)
    if isinstance(made, ast.Call):
        return any(objects.kind(one, call.scope) is Kind.OPTIONS for one in made.args)
    return isinstance(made, ast.Constant)


def _take_deepspeed(given: Given, call: Call, found: Findings) -> None:
    if given.why is None and given.value is None:
        return
    if call.condition is not None and given.why is None:
        given = given._replace(why=f"is set only if {call.condition}")
    found.deepspeed = given
    found.lines.setdefault("deepspeed", given.line)


def _state_literal(call: Call, found: Findings, keyword: str, fact: str) -> None:
    given = call.keywords.get(keyword)
    if given is None:
        return
    if isinstance(given.value, bool):
        found.state(fact, keyword, given.value, call)
    elif given.why is not None:
        found.unresolved.append(Unresolved(fact, keyword, given.why))


def _take_fsdp(call: Call, found: Findings) -> None:
    found.state("training.sharding", call.name, "fsdp", call)
    found.state("training.fsdp_version", call.name, 2 if call.name == "fully_shard" else 1, call)
    _state_literal(call, found, "use_orig_params", "training.fsdp_use_orig_params")
    _state_literal(call, found, "limit_all_gathers", "training.fsdp_limit_all_gathers")
    _state_literal(call, found, "reshard_after_forward", "training.fsdp_reshard_after_forward")


def _take_ddp(call: Call, found: Findings) -> None:
    found.state("training.sharding", call.name, "ddp", call)
    _take_ddp_arguments(call, found)


def _take_ddp_arguments(call: Call, found: Findings) -> None:
    if not call.is_open and "gradient_as_bucket_view" not in call.keywords:
        found.state("training.gradient_as_bucket_view", call.name, value=False, call=call)  # torch's default
    _state_literal(call, found, "gradient_as_bucket_view", "training.gradient_as_bucket_view")


_COMPILED = frozenset({"training.compile"})
_MAKES_NO_CODE = frozenset({"eager", "aot_eager"})
"""Backends of torch.compile that run a model's operators as they are."""


def _take_compile(call: Call, found: Findings) -> None:
    """Take a model that is compiled: ``torch.compile(model)``, or ``compile()`` of a module or of DeepSpeed's engine.

    Source: torch 2.9.0 ``nn/modules/module.py`` ``Module.compile()``; DeepSpeed 0.19.8 ``runtime/engine.py`` ``compile()``.
    """
    func, disabled = call.node.func, call.keywords.get("disable")
    owner = found.objects.kind(func.value, call.scope) if isinstance(func, ast.Attribute) else None
    if (call.owner != "torch" and owner not in {Kind.MODEL, Kind.PART}) or (
        disabled is not None and disabled.value is True
    ):
        return
    backend = call.keywords.get("backend")
    if owner is Kind.PART or (call.owner == "torch" and not _is_of_model(call, found.objects)):
        found.open(call, _COMPILED, "compiles a part")
    elif disabled is not None or (backend is not None and (backend.why is not None or backend.value in _MAKES_NO_CODE)):
        found.open(call, _COMPILED, "may compile nothing")
    else:
        found.state("training.compile", f"{call.owner}.compile", True, call)


def _is_of_model(call: Call, objects: Objects) -> bool:
    """Tell whether what is compiled is a model: no function, and no part of one."""
    given = call.node.args[0] if call.node.args else call.written.get("model")
    if given is None or isinstance(given, ast.Lambda) or objects.kind(given, call.scope) is Kind.PART:
        return False  # without an argument it is a decorator
    return dotted_name(given) not in objects.functions and objects.path(given) is None


def _take_initialize(call: Call, found: Findings) -> None:
    if call.owner.split(".")[0] != "deepspeed":
        return
    if found.deepspeed is not None and not {"optimizer", "model_parameters"} & call.keywords.keys():
        return  # a model that is only run forward
    if "model_parameters" in call.written and "optimizer" not in call.keywords:
        found.made.optimized.append((call.written["model_parameters"], call.scope))
    key = next((key for key in ("config", "config_params") if key in call.keywords), None)
    if key is None:
        config = _read_config_option(call, found)
        if config is None:
            found.unresolved.append(
                Unresolved("training.zero_stage", "deepspeed.initialize", "stands in its arguments")
            )
        else:
            _take_deepspeed(config, call, found)
        return
    config = call.keywords[key]
    held = _take_written(call.written[key], call, found) if config.why is not None else None
    _take_deepspeed(config if held is None else Given(held, config.line), call, found)


def _read_config_option(call: Call, found: Findings) -> Given | None:
    """Return the file that ``deepspeed.initialize(args=args)`` takes from an option; None where that is not told."""
    args = [*(word.value for word in call.node.keywords if word.arg == "args"), *call.node.args][:1]
    if not args:
        return None
    node = ast.copy_location(ast.Attribute(args[0], "deepspeed_config", ast.Load()), args[0])
    given = found.objects.script.read(node, call.scope)
    if given.why is not None or not given.options:
        return None
    found.asked |= {*given.options, "deepspeed"}
    return given


def _take_written(value: ast.expr, call: Call, found: Findings, outer: str = "") -> dict[str, object] | None:
    """Return what a mapping that is written out holds in literals, and note the rest; None where it may hold anything."""
    script = found.objects.script
    entries = script.entries(value, call.scope) if outer.count(".") < _SECTIONS else None
    if entries is None:
        return None
    held: dict[str, object] = {}
    for key, one in entries.items():
        given = script.read(one, call.scope)
        inner = None if given.why is None else _take_written(one, call, found, f"{outer}{key}.")
        if given.why is None or inner is not None:
            held[key] = given.value if inner is None else inner
        else:
            found.deepspeed_open.append((f"{outer}{key}", given))
    return held


_SECTIONS = 4
"""Sections in one another that a configuration of DeepSpeed has."""


def _take_started_engine(call: Call, found: Findings) -> None:
    """Take an inference engine that a script starts: ``LLM(model=…)``, ``sgl.Engine(model_path=…)``."""
    path = found.objects.path(call.node.func) or ""
    reader = path.partition(".")[0]
    if _CLASSES_OF_ENGINES.get(reader) == path.rpartition(".")[2]:
        found.made.engines.append((reader, call))


_CLASSES_OF_ENGINES = {"vllm": "LLM", "sglang": "Engine"}
"""Package → its class, whose arguments are the options of its server."""


def _take_optimizer(call: Call, found: Findings) -> None:
    """Take an optimizer that a loop makes itself."""
    if (found.objects.path(call.node.func) or "").startswith(("torch.optim", "bitsandbytes", "transformers")):
        found.made.optimizers.append(call)
        found.made.optimized += [(one, call.scope) for one in call.node.args[:1]]


def _take_accelerator(call: Call, found: Findings) -> None:
    for key in ("mixed_precision", "gradient_accumulation_steps"):
        if key in call.keywords:
            found.take(key, call.keywords[key], call, found.accelerate)
    _leave_open(call, ("mixed_precision", "gradient_accumulation_steps"), found, found.accelerate)
    found.accelerate.setdefault("Accelerator", Given(None, call.line))
    if "gradient_accumulation_plugin" not in call.keywords and not call.is_open:
        found.state("training.sync_each_batch", call.name, value=False, call=call)


def _take_accumulation_plugin(call: Call, found: Findings) -> None:
    if "num_steps" in call.keywords:
        found.take("gradient_accumulation_steps", call.keywords["num_steps"], call, found.accelerate)
    if "sync_each_batch" in call.keywords:
        _state_literal(call, found, "sync_each_batch", "training.sync_each_batch")
    elif not call.is_open:
        found.state("training.sync_each_batch", call.name, value=False, call=call)


def _take_deepspeed_plugin(call: Call, found: Findings) -> None:
    for key, given in call.keywords.items():
        if key == "hf_ds_config":
            _take_deepspeed(given, call, found)
        elif key in _DEEPSPEED_PLUGIN:
            found.take(f"deepspeed_config.{key}", given, call, found.accelerate)


def _take_fsdp_plugin(call: Call, found: Findings) -> None:
    found.state("training.sharding", call.name, "fsdp", call)
    # an argument of the plugin alone: the launcher's files have no such key
    _state_literal(call, found, "limit_all_gathers", "training.fsdp_limit_all_gathers")
    for key, given in call.keywords.items():
        if key in _FSDP_PLUGIN:
            name = {"fsdp_version": key, "cpu_offload": "fsdp_offload_params"}.get(key, f"fsdp_{key}")
            found.take(f"fsdp_config.{name}", given, call, found.accelerate)


TAKERS: dict[str, Callable[[Call, Findings], None]] = {
    **dict.fromkeys(ARGUMENTS, _take_arguments),
    **dict.fromkeys(TRAINERS, _take_trainer),
    **dict.fromkeys(ADAPTER_CONFIGS, _take_adapter),
    OF_OPTIONS: _take_options,
    "BitsAndBytesConfig": _take_quantization,
    "TorchAoConfig": lambda call, found: found.state("model.quantization", "quantization_config", "torchao", call),
    "from_pretrained": _take_model,
    "get_peft_model": _take_wrapped,
    "gradient_checkpointing_enable": _take_checkpointing,
    **dict.fromkeys(PREPARES, _take_checkpointing),
    **dict.fromkeys(("FullyShardedDataParallel", "FSDP", "fully_shard"), _take_fsdp),
    **dict.fromkeys(("DistributedDataParallel", "DDP"), _take_ddp),
    "DistributedDataParallelKwargs": _take_ddp_arguments,
    **dict.fromkeys(_QUANTISING, _take_quantised_layers),
    "compile": _take_compile,
    "initialize": _take_initialize,
    "Accelerator": _take_accelerator,
    "GradientAccumulationPlugin": _take_accumulation_plugin,
    **dict.fromkeys(_CLASSES_OF_ENGINES.values(), _take_started_engine),
    **dict.fromkeys(OPTIMIZERS, _take_optimizer),
    "DeepSpeedPlugin": _take_deepspeed_plugin,
    "FullyShardedDataParallelPlugin": _take_fsdp_plugin,
}
"""Names of classes and functions, and what a call of them says."""
_TAKEN: dict[str, Iterable[str]] = {
    **dict.fromkeys(ARGUMENTS, ("",)),
    **dict.fromkeys(ADAPTER_CONFIGS, tuple(_LORA.values())),
    "Accelerator": ("mixed_precision",),
}
"""Arguments that each of them takes; an empty name stands for those that no other takes."""
