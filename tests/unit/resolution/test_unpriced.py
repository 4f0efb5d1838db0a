"""Settings that no formula has become a fact with their places."""

import pytest

from compatcheck.core.document import TAKEN_AS_IDLE, Document, Gap, Statement
from compatcheck.core.facts import Fact
from compatcheck.core.source import Source
from compatcheck.resolution.unpriced import describe_unpriced
from compatcheck.rules.locate import open_rules


def describe(*statements):
    facts = {}
    document = Document("megatron", Source("run.sh"), tuple(Statement(None, key, value) for key, value in statements))
    describe_unpriced((document,), "train", open_rules(), facts)
    return facts.get("training.unpriced")


def test_what_is_turned_on_is_stated_with_its_place():
    fact = describe(("multi_latent_attention", True), ("mtp_num_layers", 1))
    assert fact.value == ("latent_attention", "token_prediction")
    assert [source.key for source in fact.sources] == ["multi_latent_attention", "mtp_num_layers"]


@pytest.mark.parametrize("value", [False, None, 0, "none"])
def test_what_is_off_is_not(value):
    assert describe(("mtp_num_layers", value)) is None


def test_a_program_has_the_settings_of_what_it_is_built_on():
    facts = {}
    document = Document("slime", Source("run.sh"), (Statement(None, "(layers without experts)", value=True),))
    describe_unpriced((document,), "train", open_rules(), facts)
    assert facts["training.unpriced"].value == ("dense_layers",)


@pytest.mark.parametrize(
    ("reader", "key", "word"),
    [
        ("areal", "actor.megatron.use_deterministic_algorithms", "deterministic_kernels"),
        ("slime", "deterministic_mode", "deterministic_kernels"),
        ("torchtitan", "training.deterministic", "deterministic_kernels"),
        ("axolotl", "nvfp4_merge_aware", "simulated_quantisation"),
        ("axolotl", "peft_layers_to_transform", "changing_adapters"),
        ("llamafactory", "upcast_layernorm", "float32_norms"),
        ("llamafactory", "ref_model_quantization_bit", "stored_otherwise"),
        ("trl", "cast_lm_head_to_fp32", "float32_logits"),
        ("trl", "reward_model_path", "reward_model"),
    ],
)
def test_switches_of_programs(reader, key, word):
    facts = {}
    document = Document(reader, Source("f"), (Statement(None, key, value=True),))
    describe_unpriced((document,), "train", open_rules(), facts)
    assert facts["training.unpriced"].value == (word,)


def test_layers_without_experts_are_counted_in_a_model_that_is_known():
    document = Document("slime", Source("run.sh"), (Statement(None, "(layers without experts)", value=True),))
    known = Fact("model.parameters", 30_532_122_624, "model")
    for facts, said in (({}, True), ({"model.parameters": known}, False), ({"model.expert_parameters": known}, False)):
        describe_unpriced((document,), "train", open_rules(), facts)
        assert ("training.unpriced" in facts) is said


@pytest.mark.parametrize(
    ("key", "word"), [("mixture_of_depths", "mixture_of_depths"), ("upcast_lmhead_output", "float32_logits")]
)
def test_what_may_change_anything_is_a_feature_by_its_own_name_where_no_row_names_it(key, word):
    stated = (Statement(None, key, "convert"), Statement(None, "plot_loss", value=True))
    gap = Gap(Source("f", key=key), f"may change what the run needs; {TAKEN_AS_IDLE}", assumed=True)
    facts = {}
    describe_unpriced((Document("llamafactory", Source("f"), stated, gaps=(gap,)),), "train", open_rules(), facts)
    assert facts["training.unpriced"].value == (word,)
