"""EasyR1's configurations."""

from __future__ import annotations

from compatcheck.frameworks.easy_r1 import configuration as easy_r1
from tests.unit.frameworks.launch_script.written_commands import facts


def test_a_configuration_is_told_by_its_workers() -> None:
    data = {
        "worker": {"actor": {"offload": {"offload_params": True}}, "rollout": {}},
        "algorithm": {"adv_estimator": "grpo"},
    }
    assert easy_r1.recognise(data)
    assert facts(easy_r1.read(data, "c.yaml").documents[0], "actor")["training.offload_param"] == "cpu"
