"""Every row of ``rules/_defaults`` agrees with what the classes of real releases said, and leaves nothing of it out."""

from __future__ import annotations

import json
import types
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml
from packaging.specifiers import SpecifierSet
from packaging.version import Version

from compatcheck.rules.vocabulary import vocabulary

ROOT = Path(__file__).resolve().parents[2]
DUMPS = sorted((ROOT / "fixtures/measurements/defaults").glob("*.json"))
FILES = sorted((ROOT / "rules/_defaults").glob("*.yaml"))
COLUMNS = {"fact", "key", "absent", "present", "affected", "when", "value", "value_expression", "raw", "role", "forced", "source"}
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
UNMAPPED = {
    "hf_trainer": {"accelerator_config", "deepspeed", "fp16", "fsdp", "gradient_checkpointing_kwargs", "use_cpu"},
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
    return yaml.load(path.read_text(encoding="utf-8"), Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))


@cache
def rows_of(reader: str) -> list[dict[str, Any]]:
    """Return the rows of a reader that are plain defaults."""
    return [row for row in load(ROOT / f"rules/_defaults/{reader}.yaml")["rows"] if not row.get("forced")]


def fits(row: Mapping[str, Any], versions: Mapping[str, str], facts: Mapping[str, Any]) -> bool:
    """Say whether a row speaks about these releases and facts."""
    for package, specifier in row["affected"].items():
        if package not in versions:
            return False
        if not SpecifierSet(specifier).contains(Version(versions[package]).public, prereleases=True):
            return False
    return "when" not in row or bool(evaluate(row["when"], facts))


def evaluate(expression: str, facts: Mapping[str, Any]) -> Any:
    """Evaluate a row's own expression over plain facts; the rows are files of this repository."""
    spaces: dict[str, types.SimpleNamespace] = {}
    for name, value in facts.items():
        space, _, leaf = name.partition(".")
        setattr(spaces.setdefault(space, types.SimpleNamespace()), leaf, value)
    return eval(compile(expression, "<row>", "eval"), {"__builtins__": {}}, dict(spaces))


def flatten(fields: Mapping[str, Any], built: Mapping[str, Any]) -> dict[str, Any]:
    """Merge declared and built defaults; built wins, except where building on one rank changes the value."""
    return {name: value if name == "average_tokens_across_devices" else built.get(name, value) for name, value in fields.items()}


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
            yield Stated("hf_trainer", "gradient_checkpointing_kwargs.use_reentrant", passed.get("use_reentrant", True), versions, {}, name)
        case "trl":
            for cls, entry in classes.items():
                if entry.get("not_imported"):
                    continue
                values = flatten(entry["fields"], entry.get("built", {}))
                facts = {"training.trainer": TRAINERS[cls], "training.use_liger_kernel": values.get("use_liger_kernel", False)}
                for key, value in values.items():
                    if key not in UNMAPPED["trl"] and (cls, key) not in IGNORED:
                        plain = value[0] if isinstance(value, list) and len(value) == 1 else value
                        yield Stated("trl", key, plain, versions, facts, f"{name} {cls}")
                if entry.get("reentrant"):
                    old = {**versions, "transformers": "4.57.6"}
                    yield Stated("trl", "gradient_checkpointing_kwargs.use_reentrant", False, old, facts, f"{name} {cls}")
        case "deepspeed":
            yield from _deepspeed_statements(classes, versions, name)
        case "accelerate":
            yield from _accelerate_statements(classes, versions, name)


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
        facts = {"training.zero_stage": entry["fields"].get("stage", entry["fields"].get("zero_stage", 3)), "training.mixed_precision": "no"}
        for field, value in entry["fields"].items():
            if entry_name.startswith("zero_optimization("):
                if field == "stage" and value != 0:
                    continue
                key = f"zero_optimization.{'stage3_' if field in STAGE3 else ''}{field}"
            elif entry_name.startswith("config("):
                precision = entry_name[7:11]
                facts["training.mixed_precision"] = precision if precision in ("bf16", "fp16") else "no"
                if field == "zero_stage" or (field in ("bf16.enabled", "fp16.enabled") and (precision != "fp32" or field[0] == "f")):
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
PLUGIN_KEYS = {"zero3_save_16bit_model", "zero3_init_flag", "zero_stage", "offload_optimizer_device", "offload_param_device"}


def _accelerate_statements(classes: Mapping[str, Any], versions: Mapping[str, str], name: str) -> Iterator[Stated]:
    launch = classes["launch"]["fields"]
    facts = {"training.fsdp_version": int(launch.get("fsdp_version", 1)), "training.zero_stage": 2}
    for field, value in launch.items():
        if field.startswith("fsdp_") and field not in LAUNCH_UNMAPPED and value is not None:
            checked = {**facts, "training.fsdp_version": 2} if field == "fsdp_reshard_after_forward" else facts
            yield Stated("accelerate", f"fsdp_config.{field}", value, versions, checked, f"{name} launch")
    for field, value in classes["DeepSpeedPlugin"]["fields"].items():
        if field in PLUGIN_KEYS:
            yield Stated("accelerate", f"deepspeed_config.{field}", value, versions, facts, f"{name} DeepSpeedPlugin")


def all_statements() -> list[Stated]:
    """Return what every stored dump says."""
    found = []
    for path in DUMPS:
        dump = json.loads(path.read_text(encoding="utf-8"))
        found += list(statements(dump, path.stem))
    return found


def chosen(stated: Stated) -> list[dict[str, Any]]:
    """Return the rows that give the stated key its default, those of the reader before the inherited ones."""
    path = ROOT / f"rules/_defaults/{stated.reader}.yaml"
    rows = [row for row in rows_of(stated.reader) if row["key"] == stated.key and fits(row, stated.versions, stated.facts)]
    inherited = load(path).get("inherits")
    if not rows and inherited:
        rows = [row for row in rows_of(inherited) if row["key"] == stated.key and fits(row, stated.versions, stated.facts)]
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
        expected = evaluate(row["value_expression"], stated.facts) if "value_expression" in row else row.get("raw", row.get("value"))
        if expected == "<none>":
            expected = None
        if expected != stated.value:
            return f"{stated.origin}: {stated.key} is {stated.value!r}, the row says {expected!r}"
    return None


@pytest.mark.parametrize("path", DUMPS, ids=lambda path: path.stem)
def test_rows_agree_with_every_stored_dump(path: Path) -> None:
    if path.stem.startswith("transformers-auto"):
        pytest.skip("what the Trainer makes of `auto` is read by tests/unit/resolution")
    dump = json.loads(path.read_text(encoding="utf-8"))
    problems = [problem for stated in statements(dump, path.stem) if (problem := disagreement(stated))]
    assert not problems, "\n".join(problems)


@pytest.mark.parametrize("path", [path for path in DUMPS if path.stem.startswith(("trl-", "transformers-4", "transformers-5"))], ids=lambda p: p.stem)
def test_rows_name_only_keys_that_the_release_has(path: Path) -> None:
    dump = json.loads(path.read_text(encoding="utf-8"))
    known: dict[tuple[str, str], set[str]] = {}
    for stated in statements(dump, path.stem):
        known.setdefault((stated.reader, json.dumps(stated.facts, sort_keys=True)), set()).add(stated.key)
    for (reader, facts), keys in known.items():
        for row in rows_of(reader):
            if "." in row["key"] or not fits(row, dump["versions"], json.loads(facts)):
                continue
            assert row["key"] in keys, f"{path.stem} {facts}: no key {row['key']}"


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_rows_are_well_formed(path: Path) -> None:
    document = load(path)
    terms = vocabulary()
    assert {"reader", "package", "rows"} <= set(document) <= {"reader", "package", "rows", "inherits"}
    for row in document["rows"]:
        assert set(row) <= COLUMNS, row
        assert {"fact", "key", "affected", "source"} <= set(row), row
        assert ("value" in row) != ("value_expression" in row), row
        term = terms[row["fact"]]
        for specifier in row["affected"].values():
            SpecifierSet(specifier)
        if "value" not in row:
            continue
        value = row["value"]
        if value is None:
            assert term.nullable, row
        elif term.allowed and term.type != "set":
            assert str(value) in term.allowed, row
        else:
            kinds = {"bool": bool, "int": int, "bytes": int, "float": (int, float), "str": str, "dtype": str, "set": list}
            assert isinstance(value, kinds[term.type]) and not (term.type == "int" and isinstance(value, bool)), row
