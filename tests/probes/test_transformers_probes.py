"""Predictions of the probes about transformers, and that they hold to the byte where nothing is wrong."""

import shutil

import pytest
from packaging.version import Version

from compatcheck.lab.probes.catalog import _tiny_models
from compatcheck.lab.probes.probe import find_probe
from compatcheck.lab.probes.runner import make_task, run_tasks
from compatcheck.rules.vocabulary import vocabulary

PROBES = (
    "attention_default",
    "attention_scores",
    "checkpointing_effectiveness",
    "dtype_default",
    "kv_cache",
    "loading_peak",
    "logits_and_loss",
    "masks",
    "moe_experts",
    "returned_attentions",
)
HEALTHY_SINCE = {"returned_attentions": "4.53.0"}
"""Probes that every earlier release fails."""


def predicted(name, **parameters):
    probe = find_probe(name)
    return probe.module.predict(probe.complete(parameters))[probe.module.METRIC]


def test_there_are_tiny_models_of_many_types():
    types = [*_tiny_models.CAUSAL, *_tiny_models.MASKED, *_tiny_models.SEQ2SEQ, *_tiny_models.VISION]
    assert len(types) == len(set(types)) >= 45


def test_a_checkpointed_layer_keeps_its_input():
    assert predicted("checkpointing_effectiveness", batch=3, length=10, hidden=64) == 2 * 3 * 10 * 64


def test_an_encoder_decoder_has_a_layer_on_either_side():
    assert predicted("checkpointing_effectiveness", model_type="bart") == 2 * predicted("checkpointing_effectiveness")


def test_capped_logits_cost_two_bytes_more():
    assert [predicted("logits_and_loss", of=of) for of in ("forward", "step", "inference")] == [10, 12, 2]
    assert [predicted("logits_and_loss", of=of, model_type="gemma2") for of in ("forward", "step")] == [12, 14]


def test_eager_keeps_six_bytes_per_score():
    assert (
        predicted("attention_scores", implementation="eager", layers=3, heads=2, batch=5, length=7)
        == 6 * 3 * 2 * 5 * 49
    )
    assert predicted("attention_scores", implementation="sdpa") == 0


def test_only_padding_needs_a_mask():
    assert [predicted("masks", mask=mask, batch=2, length=37) for mask in ("none", "ones", "padding")] == [0, 0, 5476]


def test_types_without_grouped_queries_cache_every_head():
    assert predicted("kv_cache", model_type="gpt2") == 2 * predicted("kv_cache", model_type="llama")
    assert predicted("kv_cache", training=True) == 0


def test_the_hash_covers_what_probes_share(tmp_path):
    probe = find_probe("masks")
    before = probe.hash_for({})
    for name in ("masks.py", "_tiny_models.py"):
        shutil.copy(probe.path.replace("masks.py", name), tmp_path)
    copy = type(probe)("masks", probe.module, str(tmp_path / "masks.py"))
    assert copy.hash_for({}) == before
    (tmp_path / "_tiny_models.py").write_text("# another text\n")
    assert type(probe)("masks", probe.module, str(tmp_path / "masks.py")).hash_for({}) != before


@pytest.mark.versions
@pytest.mark.parametrize("release", ["5.14.1", "5.24.0"])
@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("whole_run", {"trainer": "fsdp1"}),
        ("whole_run", {"trainer": "fsdp2"}),
        ("configured_run", {"trainer": "accelerate", "options": "fsdp.fsdp_version:2"}),
    ],
)
def test_every_rank_loads_a_model_inside_the_group(overlays, release, name, settings):
    """From 5.15 on only the first rank of a group writes what it saves."""
    interpreter = overlays.open([f"transformers=={release}", "accelerate==1.15.0"])
    kept = []
    task = make_task(find_probe(name), {**settings, "world_size": 2}, "cpu")
    run_tasks([task], interpreter, keep=lambda _, one: kept.append(one))
    assert task.probe.judge(kept[0])[0] == "good", kept[0].reason


@pytest.mark.parametrize("name", PROBES)
def test_facts_are_names_of_the_vocabulary(name):
    probe = find_probe(name)
    for size in ({}, *probe.module.SIZES):
        assert set(probe.module.facts(probe.complete(size))) <= set(vocabulary())


@pytest.mark.versions
@pytest.mark.parametrize("release", ["4.49.0", "5.23.0"])
def test_measured_as_predicted(overlays, release):
    interpreter = overlays.open([f"transformers=={release}"])
    healthy = [name for name in PROBES if Version(HEALTHY_SINCE.get(name, "0")) <= Version(release)]
    tasks = [make_task(find_probe(name), size, "cpu") for name in healthy for size in find_probe(name).module.SIZES]
    kept = []
    run_tasks(tasks, interpreter, keep=lambda task, measurement: kept.append((task, measurement)))
    for task, measurement in kept:
        verdict, value, wanted = task.probe.judge(measurement)
        assert verdict == "good", (task.probe.name, task.parameters, measurement.reason, value, wanted)
        if task.probe.name != "loading_peak":
            assert value == wanted, (task.probe.name, task.parameters)
    assert len(kept) == len(tasks)


@pytest.mark.versions
def test_attentions_were_returned_by_eager_code_before_4_53(overlays):
    probe, kept = find_probe("returned_attentions"), []
    task = make_task(probe, {}, "cpu")
    run_tasks([task], overlays.open(["transformers==4.52.4"]), keep=lambda _, one: kept.append(one))
    assert probe.judge(kept[0])[0] == "bad"
    matrices = 2 * 4 * 4 * 128**2  # batch, layers, heads
    assert kept[0].metric("kept_bytes") == pytest.approx(6 * matrices, rel=0.05)
