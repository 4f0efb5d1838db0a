"""What the classes of a text encoder put behind its last block: a masked-language head, a pooler, a classifier or nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from compatcheck.architectures.parts import linear

if TYPE_CHECKING:
    from collections.abc import Mapping

    from compatcheck.architectures.keys import Keys

MASKED = "ForMaskedLM"
DISCRIMINATOR = "ForPreTraining"
"""ELECTRA's, which tells of each token whether it was replaced."""
_LABELLED = ("ForSequenceClassification", "ForTokenClassification", "ForQuestionAnswering")
OTHERS = ("Model", *_LABELLED)
"""How the classes without outputs over the vocabulary end."""
STEMS: Mapping[str, str] = {
    "bert": "Bert",
    "deberta-v2": "DebertaV2",
    "distilbert": "DistilBert",
    "electra": "Electra",
    "modernbert": "ModernBert",
    "mpnet": "MPNet",
    "nomic_bert": "NomicBert",
    "roberta": "Roberta",
    "xlm-roberta": "XLMRoberta",
}
"""Model type → how the names of its classes begin."""


def find_head(keys: Keys) -> str | None:
    """Return how the name of the class ends that the file names, the masked-language one where it names none."""
    names, stem = keys.names("architectures"), STEMS[keys.model_type]
    if not names:
        return MASKED
    ends = (MASKED, *OTHERS, *([DISCRIMINATOR] if keys.model_type == "electra" else ()))
    return next((end for name in names for end in ends if name == stem + end), None)


def count_labels(keys: Keys) -> int:
    """Return the outputs of a classifier: two unless the file says otherwise, as in transformers."""
    labels = keys.config.get("id2label")
    return len(labels) if isinstance(labels, dict) and labels else keys.amount("num_labels", 2)


def count_classifier(keys: Keys, head: str, hidden: int, *, pooled: bool) -> int:
    """Count what a class without outputs over the vocabulary has behind the last block.

    Args:
        keys: the model's keys.
        head: how the name of the class ends.
        hidden: width of the residual stream.
        pooled: whether the bare model has a pooler.
    """
    square = linear(hidden, hidden, bias=True)
    if head == "Model":
        return square if pooled else 0
    return linear(hidden, count_labels(keys), bias=True) + (square if head == "ForSequenceClassification" else 0)


def has_vocabulary(model_type: str, architecture: str) -> bool:
    """Tell whether a class has outputs over the vocabulary; classes that are no text encoder's are taken to."""
    stem = STEMS.get(model_type)
    return stem is None or architecture not in {stem + end for end in (*OTHERS, DISCRIMINATOR)}
