"""Do what the product advises, for real: draw trainings, take each change it proposes, and run both on a CPU.

    python -m benchmarks.remedies --draw 40 --seed 1 --output FILE.jsonl

A training is drawn by chance: a trainer, adapters, dtypes, options, and a release of TRL beside the packages of its day; with
``--trainer deepspeed`` a loop over DeepSpeed's engine and a file of its settings, on one rank over gloo: on two, only the
first has the probe's model.
It is written as a script with pinned requirements, and the product is asked: `fix`'s plan, the remedies of every finding and what
`estimate --suggest` tries. Each is written into the files, as `fix --apply` would, and what the script then says is run by
the probe ``configured_run`` in the pinned releases, on a tiny model. A change that stops a run which started without it is wrong;
so is one after which the run holds more at its peak although it was to hold less. What a CPU cannot run (Triton and
FlashAttention kernels, quantised optimizers) is counted apart.
"""

from __future__ import annotations

import argparse
import ast
import json
import random
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from compatcheck.checking import Request, find_fix, open_rules
from compatcheck.checking.checks import Checks, open_criteria
from compatcheck.checking.gathering import gather_all
from compatcheck.checking.inspection import as_inspection
from compatcheck.checking.verdict import Variants
from compatcheck.core.errors import CompatcheckError
from compatcheck.core.fix import VERSION
from compatcheck.fixing.edits.text import apply_edits, read_exact
from compatcheck.fixing.files import EditableFiles
from compatcheck.fixing.plan import Ways
from compatcheck.fixing.settings import find_setting
from compatcheck.fixing.suggestions import suggest
from compatcheck.lab.probes.probe import find_probe
from compatcheck.lab.probes.runner import make_task
from compatcheck.lab.releases import choose_releases
from compatcheck.lab.settings import Settings, open_laboratory

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from compatcheck.core.fix import Change
    from compatcheck.lab.measurement import Measurement

LARGE, SMALL = "meta-llama/Llama-3.1-8B", "meta-llama/Llama-3.2-1B"
"""Models with adapters and without, so that a device of 24 GiB is nearly enough."""
RELEASES = (
    "0.12.0",
    "0.15.0",
    "0.17.0",
    "0.18.0",
    "0.19.0",
    "0.21.0",
    "0.23.0",
    "0.25.0",
    "0.27.0",
    "0.29.0",
    "1.0.0",
    "1.2.0",
)
NEWER = ("1.4.0", "1.6.0", "1.8.0", "1.10.0", "1.12.0", "1.14.0", "1.15.0")
"""From 1.14 on most losses are a kernel's, which a CPU has not."""
TRAINERS = ("sft", "sft", "dpo", "grpo", "kto", "reward", "hf", "hf")
OPTIONS: Mapping[str, tuple[Mapping[str, Any], ...]] = {
    "": (
        {},
        {},
        {"gradient_checkpointing": True},
        {"gradient_checkpointing": False},
        {"gradient_accumulation_steps": 4},
        {"optim": "adafactor"},
        {"optim": "adamw_torch"},
        {"bf16": True},
        {"gradient_checkpointing": True, "gradient_checkpointing_kwargs": {"use_reentrant": True}},
    ),
    "sft": (
        {},
        {"activation_offloading": True},
        {"loss_type": "dft"},
        {"completion_only_loss": True},
        {"label_smoothing_factor": 0.1},
    ),
    "dpo": ({}, {"precompute_ref_log_probs": True}, {"loss_type": "ipo"}, {"label_smoothing": 0.1}),
    "grpo": ({}, {"beta": 0.04}, {"num_iterations": 2}),
    "hf": ({}, {"label_smoothing_factor": 0.1}, {"torch_empty_cache_steps": 1}),
    "kto": ({}, {"loss_type": "apo_zero_unpaired"}),
    "reward": ({},),
}
DEEPSPEED = ("0.16.3", "0.17.2", "0.18.3", "0.19.3", "0.19.5")
ZERO: tuple[Mapping[str, Any], ...] = (
    {"stage": 1},
    {"stage": 2},
    {"stage": 2, "overlap_comm": True},
    {"stage": 2, "offload_optimizer": {"device": "cpu"}},
    {"stage": 3},
    {"stage": 3, "stage3_max_reuse_distance": 1000000000},
    {"stage": 3, "offload_optimizer": {"device": "cpu"}, "offload_param": {"device": "cpu"}},
)
SETTINGS: tuple[Mapping[str, Any], ...] = (
    {},
    {"gradient_accumulation_steps": 2},
    {"data_types": {"grad_accum_dtype": "fp32"}},
    {"gradient_clipping": 1.0},
)
"""Of DeepSpeed's own file, beside the stage."""
ADAPTERS = ("none", "none", "lora", "lora+use_dora:true")
MOST_ALIKE = 2
"""How often changes of the same arguments are played for a trainer."""
_ELSEWHERE = ("use_liger_kernel", "use_liger_loss", "padding_free", "packing", "use_vllm", "torch_compile")
"""Options whose kernels a CPU has not."""


class Training(NamedTuple):
    """What was drawn."""

    trainer: str
    adapter: str
    dtype: str
    options: Mapping[str, Any]
    release: str
    package: str = "trl"
    """Whose release it is."""
    settings: Mapping[str, Any] = {}
    """What DeepSpeed's own file says."""

    def files(self) -> dict[str, str]:
        """Return the training as files."""
        if not self.settings:
            return {"train.py": self.script()}
        loop = [
            "import deepspeed",
            "import torch",
            *(["from peft import LoraConfig, get_peft_model"] if self.adapter != "none" else []),
            "from transformers import AutoModelForCausalLM",
            "",
            f'model = AutoModelForCausalLM.from_pretrained("{LARGE}", torch_dtype=torch.{self.dtype})',
            *(
                [
                    'adapter = LoraConfig(r=16, target_modules=["q_proj", "v_proj", "up_proj"], task_type="CAUSAL_LM")',
                    "model = get_peft_model(model, adapter)",
                ]
                if self.adapter != "none"
                else []
            ),
            "optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)",
            'engine, *_ = deepspeed.initialize(model=model, optimizer=optimizer, config="ds.json")',
            "",
        ]
        run = "deepspeed --num_gpus 1 train.py\n"
        return {"train.py": "\n".join(loop), "ds.json": json.dumps(self.settings, indent=2), "run.sh": run}

    def script(self) -> str:
        """Return the training as a person writes it."""
        stem = {"sft": "SFT", "reward": "Reward", "hf": ""}.get(self.trainer, self.trainer.upper())
        config, trainer = (f"{stem}Config", f"{stem}Trainer") if stem else ("TrainingArguments", "Trainer")
        model = SMALL if self.adapter == "none" else LARGE
        said = "".join(f"    {name}={value!r},\n" for name, value in self.options.items())
        kind = "AutoModelForSequenceClassification" if self.trainer == "reward" else "AutoModelForCausalLM"
        lines = ["import torch", "from datasets import load_dataset"]
        lines += [
            f"from transformers import {kind}, AutoTokenizer" + (", Trainer, TrainingArguments" if not stem else "")
        ]
        lines += [f"from trl import {config}, {trainer}"] if stem else []
        name, _, told = self.adapter.partition("+")
        if name != "none":
            lines += ["from peft import LoraConfig, get_peft_model", ""]
            more = ", use_dora=True" if told else ""
            task = "SEQ_CLS" if self.trainer == "reward" else "CAUSAL_LM"
            lines += [
                f'adapter = LoraConfig(r=16, target_modules=["q_proj", "v_proj", "up_proj"], task_type="{task}"{more})'
            ]
        lines += ["", f'model = {kind}.from_pretrained("{model}", torch_dtype=torch.{self.dtype})']
        lines += [f'tokenizer = AutoTokenizer.from_pretrained("{model}")']
        lines += ['dataset = load_dataset("json", data_files="train.json", split="train")']
        lines += [f'args = {config}(\n    output_dir="out",\n    per_device_train_batch_size=4,\n{said})']
        given = "model=model, args=args, train_dataset=dataset"
        if stem:
            given += ", processing_class=tokenizer"
        if name != "none" and stem:
            given += ", peft_config=adapter"
        elif name != "none":
            lines += ["model = get_peft_model(model, adapter)"]
        if self.trainer == "grpo":
            given += ", reward_funcs=len"
        return "\n".join([*lines, f"trainer = {trainer}({given})", "trainer.train()", ""])


def draw(chance: random.Random) -> Training:
    """Draw a training."""
    trainer = chance.choice(TRAINERS)
    release = chance.choice(RELEASES + (NEWER if trainer in {"hf", "reward"} else NEWER[:-2]))
    options = {**chance.choice(OPTIONS[""]), **chance.choice(OPTIONS[trainer])}
    adapter = chance.choice(ADAPTERS)
    dtype = "bfloat16" if options.get("bf16") is None and chance.random() < 0.6 else "float32"
    if trainer == "grpo":
        options["num_generations"] = 2
    return Training(trainer, adapter, dtype, options, release)


def draw_deepspeed(chance: random.Random) -> Training:
    """Draw a loop over DeepSpeed's engine."""
    dtype = chance.choice(("float32", "bfloat16", "bfloat16"))
    told = {"train_micro_batch_size_per_gpu": 4, "bf16": {"enabled": dtype == "bfloat16"}}
    told |= {"zero_optimization": chance.choice(ZERO), **chance.choice(SETTINGS)}
    adapter = chance.choice(("none", "none", "lora"))
    return Training("deepspeed", adapter, dtype, {}, chance.choice(DEEPSPEED), "deepspeed", told)


def read_script(text: str) -> dict[str, Any]:
    """Return what a script of `Training.script` tells: the options, with the model's and the adapter's where they changed."""
    found: dict[str, Any] = {}
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Call):
            name = ast.unparse(node.func)
            told = {word.arg: word.value for word in node.keywords}
            if (name.endswith("Config") and name != "LoraConfig") or name == "TrainingArguments":
                found["options"] = {key: ast.literal_eval(value) for key, value in told.items() if key != "output_dir"}
            elif name.endswith(".from_pretrained") and name.startswith("AutoModel"):
                found["loading"] = {key: ast.unparse(value) for key, value in told.items()}
            elif name == "LoraConfig":
                found["adapter"] = {key: ast.literal_eval(value) for key, value in told.items()}
    return found


def parameters_of(training: Training, files: Mapping[str, str]) -> dict[str, Any]:
    """Return the parameters of ``configured_run`` that run what files say.

    Raises:
        ValueError: a CPU cannot run it, or the probe has no word for it.
    """
    said = read_script(files["train.py"])
    if training.settings:
        told = json.loads(files["ds.json"])
        if files["ds.json"].count("offload") > json.dumps(training.settings).count("offload"):
            raise ValueError("what is moved to the host stays in the one memory of a CPU")
        return {
            "trainer": "deepspeed",
            "batch": told.pop("train_micro_batch_size_per_gpu"),
            "dtype": _dtype_of(said["loading"]),
            "adapter": training.adapter,
            "options": "+".join(_items("", told)),
        }
    options = dict(said["options"])
    if elsewhere := [name for name in _ELSEWHERE if options.get(name)]:
        raise ValueError(f"{elsewhere[0]} needs a GPU")
    if "8bit" in str(options.get("optim")) or "fused" in str(options.get("optim")):
        raise ValueError(f"optim {options['optim']} needs a GPU")
    batch = options.pop("per_device_train_batch_size", 8)
    loading = dict(said["loading"])
    dtype = _dtype_of(loading)
    found = {"trainer": training.trainer, "batch": batch, "dtype": dtype}
    attention = ast.literal_eval(loading.pop("attn_implementation", "'default'"))
    if attention not in {"default", "eager", "sdpa"}:
        raise ValueError(f"{attention} needs a GPU")
    if loading.pop("load_in_4bit", None) == "True":
        found["quantization"] = "BitsAndBytesConfig+load_in_4bit:true"
    if loading:
        raise ValueError(f"no word for {loading}")
    adapter = said.get("adapter")
    if adapter is not None:
        told = {key: value for key, value in adapter.items() if key not in {"r", "target_modules", "task_type"}}
        found["adapter"] = "+".join(["lora", *_items("", told)])
    options |= {"per_device_eval_batch_size": 4}  # what the probe evaluates is no part of the training
    found |= {"options": "+".join(_items("", options)), "attention": attention}
    return found


def _dtype_of(loading: dict[str, Any]) -> str:
    return str(loading.pop("torch_dtype")).removeprefix("torch.")


def _items(prefix: str, told: Mapping[str, Any]) -> Iterator[str]:
    for name, value in told.items():
        if isinstance(value, dict):
            yield from _items(f"{prefix}{name}.", value)
        else:
            yield f"{prefix}{name}:{value if isinstance(value, str) else json.dumps(value)}"


class Bench:
    """Runs trainings in pinned releases."""

    def __init__(self, package: str) -> None:
        """Find the releases of a package with their days."""
        self.package = package
        self.axis = choose_releases(open_rules(), package, None, ask=True)
        self.known: dict[str, Measurement] = {}
        self.played: Counter[object] = Counter()

    def run(self, parameters: Mapping[str, Any], pins: Mapping[str, str | None]) -> Measurement:
        """Run a training; packages that are not pinned to a release are taken of the day of that one."""
        key = json.dumps([parameters, pins], sort_keys=True)
        if key not in self.known:
            beside = tuple(
                f"{name}=={release}" if release else name for name, release in pins.items() if name != self.package
            )
            settings = Settings(
                *(None, "2.13.0+cpu", beside, None, "release", "cpu", (), 300.0),
                no_store=False,
                fresh=False,
                quiet=True,
                jobs=1,
            )
            laboratory = open_laboratory(settings, self.package, self.axis, progress=lambda *_: None)
            probe = find_probe("configured_run")
            task = make_task(probe, probe.complete(parameters), "cpu")
            self.known[key] = laboratory.measure(str(pins[self.package]), [task])[0]
        return self.known[key]


def peak(measurement: Measurement) -> int:
    """Return the most a run holds while it trains."""
    trains = {"forward", "backward", "optimizer"}
    return max(phase.peak_allocated_bytes for phase in measurement.phases if phase.name in trains)


def _kind_of(before: Mapping[str, str], after: Mapping[str, str]) -> str:
    """Say which arguments files have that others have not, or otherwise."""
    old, new = (
        {**read_script(files["train.py"]), "file": json.loads(files.get("ds.json", "{}"))} for files in (before, after)
    )
    return " ".join(
        sorted(
            f"{part}.{key}" for part, told in new.items() for key, value in told.items() if old[part].get(key) != value
        )
    )


class Proposal(NamedTuple):
    """A change that the product proposes, as the files that it leads to."""

    source: str
    """``plan``, ``suggestion`` or the id of the rule whose remedy it is."""
    what: str
    files: Mapping[str, str]
    pins: Mapping[str, str | None]


def propose(folder: Path, pins: Mapping[str, str | None]) -> Iterator[Proposal]:
    """Ask the product about a project; yield each change that it proposes."""
    rules = open_rules()
    request = Request(paths=(str(folder),), gpu="A10-24GB", settings=("training.sequence_length=1024",), here=False)
    inspection = as_inspection(request)
    criteria = open_criteria(inspection, rules, Checks())
    (subject,) = gather_all(inspection, rules, {}).subjects
    before = {
        name: read_exact(str(folder / name)) for name in ("train.py", "ds.json", "run.sh") if (folder / name).exists()
    }

    def change(source: str, what: str, changes: Iterable[Change]) -> Iterator[Proposal]:
        changes = tuple(changes)
        moved = {one.name: one.release for one in changes if one.kind == VERSION}
        edits = [edit for one in changes for edit in one.edits if one.kind != VERSION]
        if changes and all(one.kind == VERSION or one.edits for one in changes):
            texts = apply_edits({str(folder / name): text for name, text in before.items()}, edits)
            yield Proposal(source, what, {Path(path).name: text for path, text in texts.items()}, {**pins, **moved})

    fix = find_fix(inspection, criteria, {}, Ways(None))
    for plan in fix.plans:
        yield from change("plan", "; ".join(one.instruction for one in plan.changes), plan.changes)
    files = EditableFiles((subject,))
    for finding in fix.report.findings:
        for remedy in finding.remedies:
            if remedy.settings:
                target = dict(remedy.settings)
                found = find_setting(subject, finding.role, target, remedy.safety, remedy.note, rules, files)
                yield from change(finding.rule_id, remedy.text, () if found is None else (found,))
            elif remedy.releases:
                yield Proposal(finding.rule_id, remedy.text, before, {**pins, **dict(remedy.releases)})
    for suggestion in suggest(subject, rules, Variants(criteria)):
        words = "; ".join(one.instruction for one in suggestion.changes)
        yield from change("suggestion", words, suggestion.changes)


def play(training: Training, bench: Bench) -> dict[str, Any]:
    """Run a training as it is, and after each change that the product proposes for it."""
    before = training.files()
    told: dict[str, Any] = {"training": training._asdict(), "changes": []}
    packages = ["trl", "transformers", "accelerate", "datasets"]
    if training.package != "trl":
        packages = [training.package, "transformers", "accelerate"]
    packages += ["peft"] if training.adapter != "none" else []
    start = bench.run(parameters_of(training, before), {**dict.fromkeys(packages), training.package: training.release})
    told |= {"status": start.status, "reason": start.reason}
    pins = {name: start.versions[name] for name in packages if name in start.versions}
    told["pins"] = pins
    if not start.succeeded:
        return told
    told["peak"] = peak(start)
    with tempfile.TemporaryDirectory() as folder:
        for name, text in before.items():
            Path(folder, name).write_text(text, encoding="utf-8")
        lines = (f"{name}=={release}\n" for name, release in {**pins, "torch": "2.13.0"}.items())
        Path(folder, "requirements.txt").write_text("".join(lines), encoding="utf-8")
        proposals = list(propose(Path(folder), pins))
    for one in proposals:
        line: dict[str, Any] = {"source": one.source, "what": one.what}
        kind = (
            training.trainer,
            training.adapter,
            _kind_of(before, one.files),
            tuple(sorted(one.pins.items() - pins.items())),
        )
        bench.played[kind] += 1
        if bench.played[kind] > MOST_ALIKE:
            continue
        told["changes"].append(line)
        try:
            parameters = parameters_of(training, one.files)
            found = bench.run(
                parameters, {**one.pins, **({"bitsandbytes": None} if "quantization" in parameters else {})}
            )
        except (ValueError, CompatcheckError) as error:
            line |= {"status": "elsewhere", "reason": str(error)}
            continue
        if (found.reason or "").startswith("could not be installed"):
            line |= {"status": "elsewhere", "reason": "a pin is younger than the release's day"}
            continue
        if "object has no attribute 'apply'" in (found.reason or ""):
            line |= {"status": "elsewhere", "reason": "the fused head of TRL needs a GPU"}
            continue
        line |= {"status": found.status, "reason": found.reason}
        if found.succeeded:
            line["peak"] = peak(found)
    return told


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--draw", type=int, default=40, help="how many trainings chance draws")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--trainer", choices=("trl", "deepspeed"), default="trl", help="whose trainings")
    parser.add_argument("--output", type=Path, required=True)
    given = parser.parse_args()
    chance, bench = random.Random(given.seed), Bench(given.trainer)  # noqa: S311 (no secret)
    with given.output.open("a", encoding="utf-8") as file:
        for _ in range(given.draw):
            told = play(draw(chance) if given.trainer == "trl" else draw_deepspeed(chance), bench)
            file.write(json.dumps(told, default=str) + "\n")
            file.flush()
            bad = [one for one in told["changes"] if one["status"] not in {"ok", "elsewhere"}]
            run = f"{told['training']['trainer']} {told['training']['release']}: {told['status']}"
            sys.stderr.write(f"{run}, {len(told['changes'])} changes, {len(bad)} stop it\n")
