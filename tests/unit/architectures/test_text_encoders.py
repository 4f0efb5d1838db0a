"""Text encoders have the parameters of the class that their file names, as transformers 5.24.0 builds it on the meta device."""

from __future__ import annotations

import pytest

from compatcheck.architectures.count import count_parameters
from compatcheck.architectures.heads import has_vocabulary

SIZES = {
    "hidden_size": 96, "intermediate_size": 152, "num_hidden_layers": 3, "num_attention_heads": 4, "vocab_size": 997,
    "max_position_embeddings": 64, "tie_word_embeddings": True,
}  # fmt: skip
FURTHER = {
    "bert": {"type_vocab_size": 2},
    "deberta-v2": {
        "relative_attention": True, "position_buckets": 16, "norm_rel_ebd": "layer_norm", "share_att_key": True,
        "pos_att_type": ["p2c", "c2p"], "position_biased_input": False, "conv_kernel_size": 3,
    },
    "distilbert": {"hidden_dim": 152},
    "electra": {"embedding_size": 48},
    "roberta": {"type_vocab_size": 2},
    "xlm-roberta": {"type_vocab_size": 2},
}  # fmt: skip
HEADS = ("ForMaskedLM", "Model", "ForSequenceClassification", "ForTokenClassification")


def _count(model_type: str, name: str, **changed: object):
    config = {
        **SIZES,
        **FURTHER.get(model_type, {}),
        "num_labels": 3,
        "model_type": model_type,
        "architectures": [name],
    }
    return count_parameters({**config, **changed})


@pytest.mark.parametrize(
    ("model_type", "stem", "totals"),
    [
        ("bert", "Bert", (313_933, 312_744, 313_035, 303_723)),
        ("xlm-roberta", "XLMRoberta", (313_933, 312_744, 313_035, 303_723)),
        ("roberta", "Roberta", (313_933, 312_744, 313_035, 303_723)),
        ("distilbert", "DistilBert", (313_741, 303_240, 312_843, 303_531)),
        ("mpnet", "MPNet", (313_869, 312_680, 312_971, 303_659)),
        ("electra", "Electra", (262_765, 257_016, 266_619, 257_307)),
        ("deberta-v2", "DebertaV2", (338_797, 328_296, 337_899, 328_587)),
        ("modernbert", "ModernBert", (348_613, 338_304, 347_907, 347_907)),
    ],
)
def test_each_head_has_the_parameters_of_its_class(model_type, stem, totals) -> None:
    counts = [_count(model_type, stem + head) for head in HEADS]
    assert [None if one is None else one.total for one in counts] == list(totals)
    assert [one.lm_head for one in counts if one] == [SIZES["vocab_size"], 0, 0, 0]


def test_a_head_that_nobody_read_is_not_counted() -> None:
    assert _count("bert", "BertForNextSentencePrediction") is None
    assert _count("electra", "BertModel") is None
    assert _count("modernbert", "ModernBertForMaskedLM", mlp_bias=True) is None
    assert _count("deberta-v2", "DebertaV2Model", share_att_key=False) is None


def test_labels_are_counted_where_the_file_names_them() -> None:
    two, five = (_count("bert", "BertForSequenceClassification", id2label=dict.fromkeys(range(n))) for n in (2, 5))
    assert two is not None
    assert five is not None
    assert five.total - two.total == 3 * (SIZES["hidden_size"] + 1)


def test_outputs_over_the_vocabulary_are_a_masked_models_and_every_decoders() -> None:
    assert has_vocabulary("bert", "BertForMaskedLM")
    assert has_vocabulary("bert", "")
    assert has_vocabulary("chatglm", "ChatGLMModel")
    assert not has_vocabulary("xlm-roberta", "XLMRobertaForSequenceClassification")
    assert not has_vocabulary("electra", "ElectraForPreTraining")
