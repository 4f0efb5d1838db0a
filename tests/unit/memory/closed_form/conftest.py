"""A run to vary, for the tests of components."""

import pytest

from compatcheck.core.environment import Environment, Package
from compatcheck.core.source import Source
from compatcheck.memory.read_run import read_run
from tests.unit.memory.traits import with_traits

BASE = {
    "model.model_type": "llama",
    "model.hidden_size": 4096,
    "model.intermediate_size": 11008,
    "model.num_hidden_layers": 32,
    "model.num_attention_heads": 32,
    "model.num_key_value_heads": 32,
    "model.vocab_size": 32000,
    "model.tie_word_embeddings": False,
    "model.attn_implementation": "flash_attention_2",
    "training.param_dtype": "bfloat16",
    "training.peft": None,
    "training.micro_batch_size": 2,
    "training.sequence_length": 1024,
}


@pytest.fixture
def make_run():
    """Make a run of Llama-2-7B's shape; ``training__x`` stands for ``training.x``, ``packages`` for releases."""

    def make(packages=(), *, trains=True, **changes):
        found = {name: Package(name, version, Source("test")) for name, version in dict(packages).items()}
        facts = {**BASE, **{name.replace("__", "."): value for name, value in changes.items()}}
        reading = read_run(with_traits(facts, found), Environment("test", found, complete=False), trains=trains)
        assert reading.run is not None, reading.needs
        return reading.run

    return make
