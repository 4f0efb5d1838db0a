"""Every row of ``rules/_programs`` agrees with what the classes of real releases said, and leaves nothing of it out."""

from __future__ import annotations

import datetime as dt
import json
import os
import shutil
import subprocess
import sys
import types
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml
from packaging.specifiers import SpecifierSet
from packaging.version import Version

from compatcheck.rules.expression import fact_names
from compatcheck.rules.programs import find_program
from compatcheck.rules.values import allowed_values
from compatcheck.rules.vocabulary import vocabulary
from tests import ROOT

DUMPS = sorted((ROOT / "fixtures/measurements/defaults").glob("*-[0-9]*.json"))
DUMPS = [path for path in DUMPS if not path.stem.startswith("transformers-auto")]
FILES = sorted((ROOT / "rules/_programs").glob("*.yaml"))
COLUMNS = {
    "fact",
    "key",
    "absent",
    "present",
    "affected",
    "when",
    "value",
    "value_expression",
    "follows",
    "raw",
    "role",
    "forced",
    "source",
    "note",
}
TRAINERS = {
    "SFTConfig": "sft",
    "DPOConfig": "dpo",
    "GRPOConfig": "grpo",
    "RLOOConfig": "rloo",
    "PPOConfig": "ppo",
    "KTOConfig": "kto",
    "ORPOConfig": "orpo",
    "CPOConfig": "cpo",
    "RewardConfig": "reward",
    "PRMConfig": "prm",
    "GKDConfig": "gkd",
    "OnlineDPOConfig": "online_dpo",
    "XPOConfig": "xpo",
    "NashMDConfig": "nash_md",
    "BCOConfig": "bco",
}
OF_MODEL_CONFIG = {"lora_r", "lora_dropout", "use_bnb_nested_quant"}
"""Options of TRL's scripts, in a class that no dump holds."""
UNASKED = {"lmbda", "local_rollout_forward_batch_size", "seq_kd"}
"""Fields that the dumps did not ask for."""
UNMAPPED = {
    "hf_trainer": {
        "accelerator_config",
        "deepspeed",
        "fp16",
        "fsdp",
        "gradient_checkpointing_kwargs",
        "max_grad_norm",
        "use_cpu",
    },
    "trl": {
        "disable_dropout",
        "sync_ref_model",
        "reference_free",
        "eval_packing",
        "fp16",
        "generation_batch_size",
        "steps_per_generation",
        "gradient_checkpointing_kwargs",
        "use_liger_loss",
    },
}
"""Dumped fields that are no fact of their own: they are read together with another key, or cost no memory."""
IGNORED = {
    # the coefficient is not a KL penalty there
    ("ORPOConfig", "beta"),
    ("CPOConfig", "beta"),
    ("GKDConfig", "beta"),
}


class Stated(NamedTuple):
    """The default of one key in one release, as its class has it."""

    reader: str
    key: str
    value: Any
    versions: Mapping[str, str]
    facts: Mapping[str, Any]
    """Facts the row's condition may ask for."""
    origin: str


@cache
def load(path: Path) -> dict[str, Any]:
    """Read one file of defaults."""
    return yaml.load(path.read_text(encoding="utf-8"), Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))  # noqa: S506


@cache
def rows_of(reader: str) -> list[dict[str, Any]]:
    """Return the rows of a reader that are plain defaults."""
    return [row for row in tables()[reader] if not row.get("forced")]


@cache
def tables() -> dict[str, list[dict[str, Any]]]:
    """Return the rows of every program and of every part of one."""
    records = {path.stem: load(path) for path in FILES}
    parts = {part["name"]: part["rows"] for record in records.values() for part in record.get("parts", ())}
    return {name: record.get("rows", []) for name, record in records.items()} | parts


def fits(row: Mapping[str, Any], versions: Mapping[str, str], facts: Mapping[str, Any]) -> bool:
    """Say whether a row speaks about these releases and facts."""
    for package, specifier in row["affected"].items():
        if package not in versions:
            return False
        public = Version(versions[package]).public
        if not any(SpecifierSet(part).contains(public, prereleases=True) for part in specifier.split("||")):
            return False
    return "when" not in row or bool(evaluate(row["when"], facts))


def evaluate(expression: str, facts: Mapping[str, Any]) -> Any:
    """Evaluate a row's own expression over plain facts; the rows are files of this repository."""
    spaces: dict[str, types.SimpleNamespace] = {}
    for name, value in facts.items():
        space, _, leaf = name.partition(".")
        setattr(spaces.setdefault(space, types.SimpleNamespace()), leaf, value)
    return eval(compile(expression, "<row>", "eval"), {"__builtins__": {}, "declared": lambda _: True}, dict(spaces))  # noqa: S307


def flatten(fields: Mapping[str, Any], built: Mapping[str, Any]) -> dict[str, Any]:
    """Merge declared and built defaults; built wins, except where building on one rank changes the value."""
    return {
        name: value if name == "average_tokens_across_devices" else built.get(name, value)
        for name, value in fields.items()
    }


def statements(dump: Mapping[str, Any], name: str) -> Iterator[Stated]:
    """Yield what one dump says, key by key, under the names the configuration uses."""
    versions, classes = dump["versions"], dump["classes"]
    match dump["package"]:
        case "transformers":
            entry = classes["TrainingArguments"]
            for key, value in flatten(entry["fields"], entry.get("built", {})).items():
                if key not in UNMAPPED["hf_trainer"]:
                    yield Stated("hf_trainer", key, value, versions, {}, name)
            passed = classes["gradient_checkpointing_enable"]["keywords"]
            yield Stated(
                "hf_trainer",
                "gradient_checkpointing_kwargs.use_reentrant",
                passed.get("use_reentrant", True),
                versions,
                {},
                name,
            )
            yield from _fsdp_statements(classes["TrainingArguments(fsdp)"], versions, name)
        case "trl":
            for cls, entry in classes.items():
                if entry.get("not_imported"):
                    continue
                values = flatten(entry["fields"], entry.get("built", {}))
                facts = {
                    "training.trainer": TRAINERS[cls],
                    "training.use_liger_kernel": values.get("use_liger_kernel", False),
                }
                for key, value in values.items():
                    if key not in UNMAPPED["trl"] and (cls, key) not in IGNORED:
                        plain = value[0] if isinstance(value, list) and len(value) == 1 else value
                        yield Stated("trl", key, plain, versions, facts, f"{name} {cls}")
                if entry.get("reentrant"):
                    old = {**versions, "transformers": "4.57.6"}
                    yield Stated(
                        "trl", "gradient_checkpointing_kwargs.use_reentrant", False, old, facts, f"{name} {cls}"
                    )
        case "deepspeed":
            yield from _deepspeed_statements(classes, versions, name)
        case "accelerate":
            yield from _accelerate_statements(classes, versions, name)


def _fsdp_statements(entry: Mapping[str, Any], versions: Mapping[str, str], name: str) -> Iterator[Stated]:
    """Read what TrainingArguments hands to FSDP: variables until 4.57, keyword arguments from 5.0."""
    wanted = (
        "cpu_ram_efficient_loading",
        "sync_module_states",
        "use_orig_params",
        "state_dict_type",
        "reshard_after_forward",
    )
    plugin = entry.get("plugin", {})
    facts = {"training.fsdp_version": plugin.get("fsdp_version", 1)}
    if "fsdp_version" in plugin:
        yield Stated("hf_trainer_fsdp", "fsdp_config.version", plugin["fsdp_version"], versions, facts, name)
    for key in wanted:
        value = plugin.get(key, entry.get("environment", {}).get(f"FSDP_{key.upper()}"))
        if value is not None and not (key == "reshard_after_forward" and facts["training.fsdp_version"] == 1):
            word = str(value).lower() if isinstance(value, bool) and key != "reshard_after_forward" else value
            yield Stated("hf_trainer_fsdp", f"fsdp_config.{key}", word, versions, facts, f"{name} fsdp")


STAGE3 = {
    "prefetch_bucket_size",
    "param_persistence_threshold",
    "model_persistence_threshold",
    "max_live_parameters",
    "max_reuse_distance",
    "module_granularity_threshold",
    "gather_16bit_weights_on_model_save",
}


def _deepspeed_statements(classes: Mapping[str, Any], versions: Mapping[str, str], name: str) -> Iterator[Stated]:
    for entry_name, entry in classes.items():
        facts = {
            "training.offload_optimizer": "cpu",
            "training.offload_param": "cpu",
            "training.zero_stage": entry["fields"].get("stage", entry["fields"].get("zero_stage", 3)),
            "training.mixed_precision": "no",
        }
        for field, value in entry["fields"].items():
            if entry_name.startswith("zero_optimization("):
                if field == "stage" and value != 0:
                    continue
                key = f"zero_optimization.{'stage3_' if field in STAGE3 else ''}{field}"
            elif entry_name.startswith("config("):
                precision = entry_name[7:11]
                facts["training.mixed_precision"] = precision if precision in ("bf16", "fp16") else "no"
                if field == "zero_stage" or (
                    field in ("bf16.enabled", "fp16.enabled") and (precision != "fp32" or field[0] == "f")
                ):
                    continue
                key = field
            else:
                key = f"zero_optimization.{entry_name}.{field}"
            yield Stated("deepspeed", key, value, versions, dict(facts), f"{name} {entry_name}")


LAUNCH_UNMAPPED = {
    "fsdp_auto_wrap_policy",
    "fsdp_backward_prefetch",
    "fsdp_backward_prefetch_policy",
    "fsdp_forward_prefetch",
    "fsdp_min_num_params",
    "fsdp_transformer_layer_cls_to_wrap",
    "fsdp_activation_checkpointing_offload",
    "fsdp_ignored_modules",
}
SHARDED = {"training.sharding": "fsdp", "training.framework": "accelerate"}
PLUGIN_KEYS = {
    "zero3_save_16bit_model",
    "zero3_init_flag",
    "zero_stage",
    "offload_optimizer_device",
    "offload_param_device",
}


def _accelerate_statements(classes: Mapping[str, Any], versions: Mapping[str, str], name: str) -> Iterator[Stated]:
    launch = classes["launch"]["fields"]
    facts = {"training.fsdp_version": int(launch.get("fsdp_version", 1)), "training.zero_stage": 2, **SHARDED}
    for field, value in launch.items():
        if field.startswith("fsdp_") and field not in LAUNCH_UNMAPPED and value is not None:
            checked = {**facts, "training.fsdp_version": 2} if field == "fsdp_reshard_after_forward" else facts
            yield Stated("accelerate", f"fsdp_config.{field}", value, versions, checked, f"{name} launch")
    for field, value in classes["DeepSpeedPlugin"]["fields"].items():
        if field in PLUGIN_KEYS:
            yield Stated(
                "accelerate_deepspeed", f"deepspeed_config.{field}", value, versions, facts, f"{name} DeepSpeedPlugin"
            )


def all_statements() -> list[Stated]:
    """Return what every stored dump says."""
    found = []
    for path in DUMPS:
        dump = json.loads(path.read_text(encoding="utf-8"))
        found += list(statements(dump, path.stem))
    return found


def chosen(stated: Stated) -> list[dict[str, Any]]:
    """Return the rows that give the stated key its default, those of the reader before the inherited ones."""
    rows = [
        row for row in rows_of(stated.reader) if row["key"] == stated.key and fits(row, stated.versions, stated.facts)
    ]
    inherited = find_program(stated.reader).inherits
    if not rows and inherited:
        rows = [
            row for row in rows_of(inherited) if row["key"] == stated.key and fits(row, stated.versions, stated.facts)
        ]
    absent = [row for row in rows if stated.key.split(".")[0] not in row.get("present", []) and not row.get("present")]
    return absent or rows


def disagreement(stated: Stated) -> str | None:
    """Say what is wrong between the rows and a dump, None when nothing is."""
    rows = chosen(stated)
    if not rows:
        return None if stated.value is None else f"{stated.origin}: {stated.key} = {stated.value!r} has no row"
    facts = {row["fact"] for row in rows}
    if len(facts) != len(rows):
        return f"{stated.origin}: {stated.key} has several rows: {rows}"
    for row in rows:
        expected = row["raw"] if "raw" in row else row.get("value")
        if "raw" not in row and "value_expression" in row:
            expected = evaluate(row["value_expression"], stated.facts)
        if expected == "<none>":
            expected = None
        if expected != stated.value:
            return f"{stated.origin}: {stated.key} is {stated.value!r}, the row says {expected!r}"
    return None


@pytest.mark.parametrize("path", DUMPS, ids=lambda path: path.stem)
def test_rows_agree_with_every_stored_dump(path: Path) -> None:
    dump = json.loads(path.read_text(encoding="utf-8"))
    problems = [problem for stated in statements(dump, path.stem) if (problem := disagreement(stated))]
    assert not problems, "\n".join(problems)


@pytest.mark.parametrize(
    "path",
    [path for path in DUMPS if path.stem.startswith(("trl-", "transformers-4", "transformers-5"))],
    ids=lambda p: p.stem,
)
def test_rows_name_only_keys_that_the_release_has(path: Path) -> None:
    dump = json.loads(path.read_text(encoding="utf-8"))
    known: dict[tuple[str, str], set[str]] = {}
    for stated in statements(dump, path.stem):
        known.setdefault((stated.reader, json.dumps(stated.facts, sort_keys=True)), set()).add(stated.key)
    for (reader, facts), keys in known.items():
        for row in rows_of(reader):
            if row["key"] is None or "." in row["key"] or row["key"] in OF_MODEL_CONFIG | UNASKED:
                continue
            if not fits(row, dump["versions"], json.loads(facts)):
                continue
            assert row["key"] in keys | UNMAPPED.get(reader, set()), f"{path.stem} {facts}: no key {row['key']}"


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_rows_are_well_formed(path: Path) -> None:
    document = load(path)
    terms = vocabulary()
    for ranges in document.get("keys", {}).values():
        for specifier in ranges.values():
            for part in specifier.split("||"):
                SpecifierSet(part)
    rows = [*document.get("rows", ()), *(row for part in document.get("parts", ()) for row in part["rows"])]
    for row in (*rows, *document.get("traits", ())):
        assert set(row) <= COLUMNS, row
        assert {"fact", "source"} | ({"key", "affected"} if row in rows else set()) <= set(row), row
        assert len({"value", "value_expression", "follows"} & row.keys()) == 1, row
        for expression in filter(None, (row.get("when"), row.get("value_expression"))):
            assert fact_names(expression) <= set(terms), row
        term = terms[row["fact"]]
        for specifier in row.get("affected", {}).values():
            for part in specifier.split("||"):
                SpecifierSet(part)
        if "value" not in row:
            continue
        value = row["value"]
        if value is None:
            assert term.nullable, row
        elif allowed_values(term) and term.type != "set":
            assert str(value) in allowed_values(term), row
        else:
            kinds = {
                "bool": bool,
                "int": int,
                "bytes": int,
                "float": (int, float),
                "str": str,
                "dtype": str,
                "set": list,
            }
            assert isinstance(value, kinds[term.type]), row
            assert not (term.type == "int" and isinstance(value, bool)), row


AUTO = sorted((ROOT / "fixtures/measurements/defaults").glob("transformers-auto-*.json"))
AUTO_WIDTHS = {
    "stage3-hidden_sizes": 2048,
    "stage3-text_config.hidden_size": 3584,
    "stage3-text_config.hidden_sizes": 768,
}
"""Hidden size that each recorded case uses, 4096 where it is not listed."""
NEVER_FILLED = {
    "zero_optimization.allgather_bucket_size",
    "zero_optimization.contiguous_gradients",
    "zero_optimization.offload_optimizer.device",
    "zero_optimization.offload_param.device",
    "zero_optimization.overlap_comm",
    "zero_optimization.stage3_gather_16bit_weights_on_model_save",
    "zero_optimization.stage3_max_live_parameters",
    "zero_optimization.stage3_max_reuse_distance",
    "zero_optimization.sub_group_size",
}
"""Keys the Trainer leaves at ``auto`` in every release read; DeepSpeed then drops them and keeps its own default."""


@pytest.mark.parametrize("path", AUTO, ids=lambda path: path.stem)
def test_auto_is_filled_by_the_trainer_as_recorded(path: Path) -> None:
    dump = json.loads(path.read_text(encoding="utf-8"))
    old = Version(dump["versions"]["transformers"]) < Version("4.50")
    for case, entry in dump["classes"].items():
        if case == "stage3-none" or (old and "text_config" in case):
            assert "refused" in entry, case
            continue
        width = AUTO_WIDTHS.get(case, 4096)
        fields = entry["fields"]
        assert fields["zero_optimization.reduce_bucket_size"] == width * width
        wide = 10 * width if entry["arguments"]["stage"] == 3 else "auto"
        assert fields["zero_optimization.stage3_param_persistence_threshold"] == wide
        prefetch = fields["zero_optimization.stage3_prefetch_bucket_size"]
        assert prefetch == "auto" if wide == "auto" else int(prefetch) == int(0.9 * width * width)
        assert all(fields[key] == "auto" for key in NEVER_FILLED)
        assert fields["train_batch_size"] == 8
        assert fields["train_micro_batch_size_per_gpu"] == 4
        assert fields["gradient_accumulation_steps"] == 2
        assert fields["bf16.enabled"] == (case == "stage3-bf16")
        assert fields["fp16.enabled"] == (case == "stage3-fp16")


REIMPORTED = {
    "transformers": ("4.36.2", "4.44.2", "4.53.3", "4.54.1", "4.57.6", "5.0.0", "5.12.1", "5.23.0"),
    "trl": ("0.9.6", "0.14.0", "0.19.1", "0.22.2", "0.26.2", "0.29.1", "1.0.0", "1.7.1", "1.16.0"),
    "deepspeed": ("0.14.5", "0.15.4", "0.16.4", "0.17.6", "0.18.9", "0.19.4", "0.19.5", "0.19.8"),
    "accelerate": ("0.28.0", "0.34.2", "1.2.1", "1.6.0", "1.10.1", "1.15.0"),
}
"""Releases whose classes are imported again in an environment of their own."""
ON_EVERY_CHANGE = {("transformers", "4.57.6"), ("transformers", "5.23.0"), ("deepspeed", "0.19.8"), ("trl", "1.16.0")}
EXCLUDED = ("torch", "torchvision", "torchaudio", "triton", "typing-extensions")
DEEPSPEED_NEEDS = (
    "hjson",
    "einops",
    "msgpack",
    "ninja",
    "py-cpuinfo",
    "pydantic",
    "tqdm",
    "packaging",
    "psutil",
    "numpy",
    "setuptools<81",
)


class Overlays:
    """Environments for many releases: one interpreter with CPU torch, one directory per release in front of it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.python = root / "base/bin/python"
        self.excludes = root / "excludes.txt"

    def prepare(self) -> None:
        """Make the interpreter with a CPU build of torch, unless it is there."""
        if self.python.exists():
            return
        self.root.mkdir(parents=True, exist_ok=True)
        self.excludes.write_text("\n".join(EXCLUDED) + "\n", encoding="utf-8")
        self.uv("venv", "--quiet", "--python", sys.executable, str(self.root / "base"))
        local = [
            path.name.split("-")[1]
            for folder in os.environ.get("UV_FIND_LINKS", "").split(",")
            for path in (Path(folder).glob("torch-*+cpu-*.whl") if folder else ())
        ]
        torch = [f"torch=={local[0]}"] if local else ["--torch-backend", "cpu", "torch"]
        self.uv("pip", "install", "-q", "-p", str(self.python), *torch, "numpy", "psutil", "setuptools<81")

    def install(self, package: str, version: str) -> list[Path]:
        """Install one release, with the dependencies of its own time, and return the directories to put in front."""
        target = self.root / f"{package}-{version}"
        done = target / ".installed"
        dependencies = self.root / "deepspeed-dependencies"
        if package == "deepspeed":
            if not (dependencies / ".installed").exists():
                self.overlay(dependencies, *DEEPSPEED_NEEDS)
                (dependencies / ".installed").touch()
            if not done.exists():
                self.overlay(target, "--no-deps", "--no-build-isolation", f"deepspeed=={version}", path=[dependencies])
        elif not done.exists():
            released = load(ROOT / f"rules/_releases/{package}.yaml")["releases"][version]
            before = dt.date.fromisoformat(released) + dt.timedelta(days=4)
            others = ["accelerate"] if package == "transformers" else []
            self.overlay(target, "--exclude-newer", f"{before}T00:00:00Z", f"{package}=={version}", *others)
        done.touch()
        return [target, dependencies] if package == "deepspeed" else [target]

    def overlay(self, target: Path, *arguments: str, path: Sequence[Path] = ()) -> None:
        """Install into a directory, leaving out what the interpreter has."""
        self.uv(
            *(
                "pip",
                "install",
                "-q",
                "-p",
                str(self.python),
                "--excludes",
                str(self.excludes),
                "--target",
                str(target),
            ),
            *arguments,
            path=path,
        )

    def uv(self, *arguments: str, path: Sequence[Path] = ()) -> None:
        """Run uv, failing with what it said."""
        done = subprocess.run(
            ["uv", *arguments], capture_output=True, text=True, timeout=900, check=False, env=self.environment(path)
        )
        assert done.returncode == 0, done.stderr[-2000:]

    def environment(self, path: Sequence[Path]) -> dict[str, str]:
        """Return the variables a child gets: no GPU, no compilation, these directories first."""
        return {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(map(str, path)),
            "DS_BUILD_OPS": "0",
            "DS_ACCELERATOR": "cpu",
            "CUDA_VISIBLE_DEVICES": "",
            "HF_HUB_OFFLINE": "1",
        }

    def dump(self, package: str, version: str) -> dict[str, Any]:
        """Return what the classes of one release say now."""
        script = Path(__file__).with_name("dump_defaults.py")
        done = subprocess.run(
            [str(self.python), str(script), package],
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
            env=self.environment(self.install(package, version)),
        )
        assert done.returncode == 0, done.stderr[-2000:]
        return json.loads(done.stdout)


@pytest.fixture(scope="session")
def overlays(tmp_path_factory: pytest.TempPathFactory) -> Overlays:
    """Keep environments in COMPATCHECK_OVERLAYS when it is set, else for the session."""
    if shutil.which("uv") is None:
        pytest.skip("needs uv")
    kept = os.environ.get("COMPATCHECK_OVERLAYS")
    found = Overlays(Path(kept) if kept else tmp_path_factory.mktemp("overlays"))
    found.prepare()
    return found


@pytest.mark.versions
@pytest.mark.slow
@pytest.mark.parametrize(
    ("package", "version"),
    [
        pytest.param(
            package,
            version,
            id=f"{package}-{version}",
            marks=[pytest.mark.ci] if (package, version) in ON_EVERY_CHANGE else [],
        )
        for package, versions in REIMPORTED.items()
        for version in versions
    ],
)
def test_real_classes_say_what_is_stored(overlays: Overlays, package: str, version: str) -> None:
    dump = overlays.dump(package, version)
    stored = json.loads((ROOT / f"fixtures/measurements/defaults/{package}-{version}.json").read_text(encoding="utf-8"))
    assert dump["versions"][package] == version
    assert dump["classes"] == stored["classes"]
    assert not [problem for stated in statements(dump, f"{package}-{version}") if (problem := disagreement(stated))]
