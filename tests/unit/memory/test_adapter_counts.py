"""Adapters have as many parameters as peft makes of the class, by its release and that of transformers."""

import json
from pathlib import Path

import pytest

from compatcheck.architectures.count import count_parameters
from compatcheck.core.environment import Environment, Package
from compatcheck.core.facts import Fact
from compatcheck.core.source import Source
from compatcheck.frameworks.model.configuration import read
from compatcheck.memory.adapter_counts import list_layouts
from compatcheck.memory.closed_form.unpriced import name_unpriced
from compatcheck.memory.read_run import read_run
from compatcheck.resolution.derive import derive
from compatcheck.rules.locate import open_rules

MEASURED = json.loads((Path(__file__).parents[3] / "fixtures/adapters/peft_counts.json").read_text())
MODELS = {row[0] for row in MEASURED["rows"]}


def read_facts(model, targets, layers=None):
    config = dict(open_rules().section("models")[model]["config"])
    if layers:
        config["num_hidden_layers"] = layers
    facts = {one.fact: one.value for one in read(config, "config.json").documents[0].statements if one.fact}
    facts |= {"training.peft": "lora", "training.lora_rank": 16}
    facts |= {} if targets is None else {"training.lora_target_modules": tuple(targets)}
    return {name: Fact(name, value, "set") for name, value in facts.items()}


def read_adapters(model, targets, layers=None, releases=(), **changes):
    facts = {name: fact.value for name, fact in read_facts(model, targets, layers).items()}
    facts |= {"training.sequence_length": 512, "program.adapts_towers": True, "model.load_dtype": "bfloat16"}
    facts |= {name.replace("__", "."): value for name, value in changes.items()}
    found = {name: Package(name, version, Source("test")) for name, version in dict(releases).items()}
    reading = read_run(facts, Environment("test", found, complete=False))
    assert reading.run is not None, reading.needs
    return reading.run


@pytest.mark.parametrize("model", sorted(MODELS))
def test_adapters_are_those_that_peft_makes(model):
    wrong = []
    for name, layers, transformers, peft, targets, parameters in MEASURED["rows"]:
        if name == model:
            releases = {"transformers": transformers, "peft": peft}
            run = read_adapters(name, MEASURED["targets"][targets], layers, releases)
            if run.adapters != parameters or run.adapters_range != (parameters, parameters):
                wrong.append((releases, targets, run.adapters, parameters))
    assert not wrong


@pytest.mark.parametrize(
    "model", ["granite-4.0-h-micro", "falcon-h1-0.5b", "falcon-h1-1.5b", "jamba-reasoning-3b", "nemotron-nano-9b-v2"]
)
def test_those_of_hybrids_without_experts_are_derived(model):
    rows = [row for row in MEASURED["rows"] if row[0] == model and row[1] is None]
    assert rows
    for _, _, _, _, targets, parameters in rows:
        facts = read_facts(model, MEASURED["targets"][targets])
        derive(facts)
        assert facts["model.trainable_parameters"].value == parameters


def test_those_of_experts_hang_on_releases_and_are_not_derived():
    facts = read_facts("qwen3-30b-a3b", ["q_proj", "v_proj"])
    derive(facts)
    assert "model.trainable_parameters" not in facts


def test_default_targets_of_nemotron_h_are_all_of_attention():
    assert read_adapters("nemotron-nano-9b-v2", None).adapters == 1_933_312  # peft 0.21.2


def test_all_mlp_reaches_no_mixer():
    (attention, mlp), every = (
        ("all-attention", "all-mlp"),
        read_adapters("granite-4.0-h-micro", ["all-linear"]).adapters,
    )
    assert read_adapters("granite-4.0-h-micro", [attention, mlp]).adapters < every


@pytest.mark.parametrize("model", ["falcon-h1-7b", "nemotron-h-56b", "qwen3.5-4b", "qwen3-30b-a3b", "jamba-v0.1"])
def test_linear_layers_of_blocks_are_nearly_all_that_lies_in_them(model):
    counts = count_parameters(open_rules().section("models")[model]["config"])
    assert 0.98 < sum(one.blocks * one.inputs * one.outputs for one in counts.linears) / counts.in_blocks <= 1


def test_experts_behind_a_narrow_stream_are_not_listed():
    counts = count_parameters(open_rules().section("models")["nemotron-3-super-120b-a12b"]["config"])
    assert counts.linears == ()


def test_a_release_that_nobody_names_leaves_a_range():
    seven = MEASURED["targets"]["seven"]
    run = read_adapters("qwen3-30b-a3b", seven)
    assert run.adapters == 994_836_480
    assert run.adapters_range == (13_369_344, 994_836_480)
    assert (
        read_adapters("qwen3-30b-a3b", seven, releases={"transformers": "4.57.6"}).adapters_range == (843_841_536,) * 2
    )
    assert read_adapters("qwen3-30b-a3b", ["q_proj", "v_proj"]).adapters_range == (6_684_672,) * 2
    named = {one.name: one.reason for one in name_unpriced(run)}
    assert "13,369,344 to 994,836,480" in named["number of adapters"]
    assert "the releases of peft and transformers" in named["number of adapters"]


def test_a_tower_that_nobody_read_of_is_in_the_range():
    run = read_adapters("qwen3.5-4b", ["all-linear"], program__adapts_towers=None)
    assert run.adapters_range[1] == 38_993_920 > run.adapters == run.adapters_range[0]
    assert read_adapters("qwen3.5-4b", ["all-linear"], program__adapts_towers=False).adapters == run.adapters


def test_a_program_that_lists_linear_layers_names_no_fused_experts():
    releases = {"transformers": "5.24.0", "peft": "0.21.2"}
    facts = {"program__lists_linears": True}
    assert read_adapters("qwen3-30b-a3b", ["all-linear"], releases=releases, **facts).adapters == 13_369_344
    # its dense block has layers of the same names
    assert read_adapters("deepseek-v2-lite", ["all-linear"], releases=releases, **facts).adapters > 354_992_128


def test_experts_are_modules_before_transformers_5_and_adalora_turns_no_names():
    (before,) = list_layouts("mixtral", {"transformers": (4, 57, 6), "peft": (0, 21, 2)})
    assert not before.fused
    assert not before.turned
    (after,) = list_layouts("mixtral", {"transformers": (5, 24, 0), "peft": (0, 21, 2)}, lora=False)
    assert after.fused
    assert not after.turned
