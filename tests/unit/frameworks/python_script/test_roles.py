"""What the code of a checkout builds of verl's roles."""

from __future__ import annotations

from pathlib import Path

import pytest

from compatcheck.checking import Request, gather
from compatcheck.rules.locate import open_rules

_MAIN = """
from verl.trainer.ppo.ray_trainer import RayPPOTrainer, ResourcePoolManager, Role

def main_task(config):
    role_worker_mapping = {{
        Role.ActorRollout: ray.remote({worker}),
        Role.Critic: ray.remote(CriticWorker),
        {reference}
    }}
{behind}
"""
_TRAINER = """
class RayPPOTrainer:
    def __init__(self, config, role_worker_mapping):
        self.use_reference_policy = Role.RefPolicy in role_worker_mapping{condition}
"""
_WORKER = "ActorRolloutRefWorker"
_THERE = "Role.RefPolicy: ray.remote(ActorRolloutRefWorker),"
_ASKED = """    if config.algorithm.use_kl_in_reward or config.actor_rollout_ref.actor.use_kl_loss:
        role_worker_mapping[Role.RefPolicy] = ray.remote(ActorRolloutRefWorker)"""
_GRPO = "python3 -m verl.trainer.main_ppo algorithm.adv_estimator=grpo actor_rollout_ref.actor.use_kl_loss={kl} "


def _facts(
    tmp_path: Path,
    *,
    worker: str = _WORKER,
    reference: str = _THERE,
    behind: str = "",
    condition: str = "",
    kl: bool = True,
    words: str = "",
) -> dict[str, object]:
    trainer = tmp_path / "verl" / "trainer"
    (trainer / "ppo").mkdir(parents=True)
    (trainer / "main_ppo.py").write_text(_MAIN.format(worker=worker, reference=reference, behind=behind))
    (trainer / "ppo" / "ray_trainer.py").write_text(_TRAINER.format(condition=condition))
    script = tmp_path / "run.sh"
    script.write_text(_GRPO.format(kl=kl) + words)
    (subject,) = gather(Request(paths=(str(script),), here=False), open_rules(), {}).subjects
    return {name: fact.value for name, fact in subject.roles["actor"].items()}


def test_a_reference_that_the_code_leaves_out_is_not_there(tmp_path: Path) -> None:
    assert _facts(tmp_path, reference="# " + _THERE)["training.reference_model"] is False


def test_a_reference_in_every_run_is_there_whatever_keys_say(tmp_path: Path) -> None:
    assert _facts(tmp_path, kl=False)["training.reference_model"] is True


@pytest.mark.parametrize("kl", [True, False])
def test_keys_decide_where_the_code_asks_them(tmp_path: Path, *, kl: bool) -> None:
    words = "algorithm.use_kl_in_reward=False"
    assert _facts(tmp_path, reference="", behind=_ASKED, kl=kl, words=words)["training.reference_model"] is kl


@pytest.mark.parametrize(("coefficient", "there"), [("0.001", True), ("0.00", False)])
def test_a_trainer_may_ask_more_of_it(tmp_path: Path, coefficient: str, *, there: bool) -> None:
    words = f"algorithm.kl_ctrl.kl_coef={coefficient}"
    found = _facts(tmp_path, condition=" and config.algorithm.kl_ctrl.kl_coef > 0", words=words)
    assert found["training.reference_model"] is there


def test_what_a_trainer_asks_of_a_key_that_nobody_set_is_open(tmp_path: Path) -> None:
    found = _facts(tmp_path, condition=" and config.algorithm.kl_ctrl.kl_coef > 0")
    assert "training.reference_model" not in found


def test_sequences_of_a_worker_for_another_kind_of_model_are_open(tmp_path: Path) -> None:
    words = "data.max_prompt_length=256 data.max_response_length=128 actor_rollout_ref.model.vla=openvla-oft"
    assert "training.sequence_length" not in _facts(tmp_path, worker="RobActorRolloutRefWorker", words=words)


def test_sequences_of_verls_own_worker_are_prompt_and_response(tmp_path: Path) -> None:
    words = "data.max_prompt_length=256 data.max_response_length=128 actor_rollout_ref.model.vla=openvla-oft"
    assert _facts(tmp_path, words=words)["training.sequence_length"] == 384


def test_where_the_code_asks_no_more_than_verl_itself_its_release_decides(tmp_path: Path) -> None:
    script = tmp_path / "run.sh"
    (tmp_path / "verl" / "trainer").mkdir(parents=True)
    (tmp_path / "verl" / "trainer" / "main_ppo.py").write_text(
        _MAIN.format(worker=_WORKER, reference="", behind=_ASKED)
    )
    (tmp_path / "requirements.txt").write_text("verl==0.4.0\n")
    script.write_text("python3 -m verl.trainer.main_ppo algorithm.adv_estimator=grpo actor_rollout_ref.rollout.n=2")
    request = Request(paths=(str(script), str(tmp_path / "requirements.txt")), here=False)
    (subject,) = gather(request, open_rules(), {}).subjects
    reference = subject.roles["actor"]["training.reference_model"]
    assert (reference.value, reference.origin) == (False, "reader-default")


def test_a_trainer_that_decides_in_branches_leaves_it_to_the_release(tmp_path: Path) -> None:
    branches = "\n        self.use_reference_policy = False"
    assert "training.reference_model" not in _facts(tmp_path, kl=False, condition=branches)
