"""The incidents from launch scripts with the keys of the real ones: what is read from a script leads to the same verdicts."""

from __future__ import annotations

from pathlib import Path

import pytest

from compatcheck.checking import Request, gather
from compatcheck.core.estimate import Estimate
from compatcheck.memory.job import estimate_job
from compatcheck.rules.database import RuleSet
from compatcheck.rules.locate import open_rules

SEARCH_R1 = """
N_NODES={nodes}
MODEL='Qwen/Qwen2.5-32B'
ray job submit --address=$ADDRESS --no-wait -- \\
    python3 -m verl.trainer.main_ppo \\
    data.train_batch_size=512 data.max_prompt_length=4096 data.max_response_length=500 \\
    data.max_start_length=2048 data.max_obs_length=500 algorithm.adv_estimator=grpo \\
    actor_rollout_ref.model.path=$MODEL actor_rollout_ref.model.enable_gradient_checkpointing=True \\
    actor_rollout_ref.model.use_remove_padding=True actor_rollout_ref.actor.use_kl_loss=True \\
    actor_rollout_ref.actor.ppo_mini_batch_size=256 actor_rollout_ref.actor.ppo_micro_batch_size=64 \\
    actor_rollout_ref.actor.fsdp_config.param_offload=false actor_rollout_ref.actor.fsdp_config.optimizer_offload=false \\
    actor_rollout_ref.rollout.log_prob_micro_batch_size=128 actor_rollout_ref.ref.log_prob_micro_batch_size=128 \\
    actor_rollout_ref.rollout.tensor_model_parallel_size=2 actor_rollout_ref.rollout.name=vllm \\
    actor_rollout_ref.rollout.gpu_memory_utilization=0.5 actor_rollout_ref.ref.fsdp_config.param_offload=false \\
    actor_rollout_ref.rollout.n_agent=5 trainer.n_gpus_per_node=8 trainer.nnodes=$N_NODES max_turns=4
"""
SMALL = """
python3 -m verl.trainer.main_ppo \\
    data.train_batch_size=128 data.max_prompt_length=4096 data.max_response_length=1000 \\
    data.max_start_length=2048 data.max_obs_length=500 algorithm.adv_estimator=grpo \\
    actor_rollout_ref.model.path=Qwen/Qwen2.5-0.5B actor_rollout_ref.model.enable_gradient_checkpointing=true \\
    actor_rollout_ref.model.use_remove_padding=True actor_rollout_ref.actor.use_kl_loss=true \\
    actor_rollout_ref.actor.ppo_mini_batch_size=64 actor_rollout_ref.actor.ppo_micro_batch_size=16 \\
    actor_rollout_ref.actor.fsdp_config.param_offload=true actor_rollout_ref.actor.fsdp_config.optimizer_offload=true \\
    actor_rollout_ref.rollout.log_prob_micro_batch_size=32 trainer.n_gpus_per_node=2 trainer.nnodes=1 retriever.topk=3
"""
LOGIC_RL = """
python3 -m verl.trainer.main_ppo \\
    algorithm.adv_estimator=grpo data.train_batch_size={prompts} data.max_prompt_length=400 data.max_response_length=2048 \\
    actor_rollout_ref.model.path=Qwen/Qwen2.5-7B actor_rollout_ref.model.use_remove_padding=True \\
    actor_rollout_ref.actor.ppo_mini_batch_size=256 actor_rollout_ref.actor.ppo_micro_batch_size={micro} \\
    actor_rollout_ref.actor.use_kl_loss=True actor_rollout_ref.model.enable_gradient_checkpointing=True \\
    actor_rollout_ref.actor.fsdp_config.param_offload=True actor_rollout_ref.actor.fsdp_config.grad_offload=True \\
    actor_rollout_ref.actor.fsdp_config.optimizer_offload=True actor_rollout_ref.rollout.log_prob_micro_batch_size={scoring} \\
    actor_rollout_ref.rollout.tensor_model_parallel_size=1 actor_rollout_ref.rollout.name=vllm \\
    actor_rollout_ref.rollout.gpu_memory_utilization=0.6 actor_rollout_ref.rollout.n={n} \\
    actor_rollout_ref.ref.log_prob_micro_batch_size={scoring} actor_rollout_ref.ref.fsdp_config.param_offload=True \\
    trainer.project_name='GRPO_logic_KK' trainer.n_gpus_per_node=4 trainer.nnodes=1
"""
OPENRLHF = """
ray job submit -- python3 -m openrlhf.cli.train_ppo_ray \\
    --ref_num_nodes 4 --ref_num_gpus_per_node 8 --actor_num_nodes 4 --actor_num_gpus_per_node 8 \\
    --vllm_num_engines 1 --vllm_tensor_parallel_size 8 --pretrain Meta-Llama-3-70B --remote_rm_url http://host/reward \\
    --micro_train_batch_size 1 --train_batch_size 128 --micro_rollout_batch_size 2 --rollout_batch_size 256 \\
    --prompt_max_len 1024 --generate_max_len 1024 --zero_stage 3 --bf16 --advantage_estimator group_norm \\
    --n_samples_per_prompt 4 --packing_samples --adam_offload --flash_attn --gradient_checkpointing --init_kl_coef 0.01
"""


@pytest.fixture(scope="module")
def rules() -> RuleSet:
    return open_rules()


class Scripts:
    """Estimates scripts with a model and a device."""

    def __init__(self, folder: Path, rules: RuleSet) -> None:
        self.folder, self.rules = folder, rules

    def price(self, script: str, model: str, gpu: str, *packages: str) -> Estimate:
        (self.folder / "run.sh").write_text(script, encoding="utf-8")
        (self.folder / "requirements.txt").write_text("\n".join(packages) + "\n", encoding="utf-8")
        request = Request(paths=(str(self.folder),), model=model, gpu=gpu, here=False)
        (subject,) = gather(request, self.rules, {}).subjects
        return estimate_job(subject.roles, subject.environment)

    def logic_rl(self, *packages: str, **keys: int) -> Estimate:
        script = LOGIC_RL.format(**{"prompts": 8, "n": 32, "micro": 64, "scoring": 160, **keys})
        return self.price(script, "qwen2.5-7b", "A800-80GB", *(packages or ("transformers==4.47.1",)))


@pytest.fixture
def scripts(tmp_path: Path, rules: RuleSet) -> Scripts:
    return Scripts(tmp_path, rules)


@pytest.mark.parametrize(("nodes", "outcomes"), [(1, {"does_not_fit"}), (2, {"marginal"}), (4, {"fits"})])
def test_search_r1_32b_needs_more_than_two_nodes(scripts: Scripts, nodes: int, outcomes: set[str]) -> None:
    found = scripts.price(
        SEARCH_R1.format(nodes=nodes), "qwen2.5-32b", "H100-80GB", "transformers==4.47.1", "vllm==0.6.3"
    )
    assert found.verdict.outcome in outcomes
    assert {phase.role for phase in found.phases} == {"rollout", "actor", "reference"}
    assert "retriever" in {left.name for left in found.unmodelled}


def test_search_r1_half_a_billion_fails_in_its_worst_batch(scripts: Scripts) -> None:
    found = scripts.price(SMALL, "qwen2.5-0.5b", "A100-40GB", "transformers==4.47.1", "vllm==0.6.3")
    assert found.verdict.outcome == "marginal"
    assert found.verdict.margin_bytes is not None
    assert found.verdict.margin_bytes < 0
    assert "ppo_micro_batch_size 16 counts all ranks: 16 // 2 = 8" in str(found.verdict.primary)


@pytest.mark.parametrize(
    ("prompts", "n", "outcome"),
    [(8, 32, "does_not_fit"), (4, 32, "marginal"), (4, 64, "does_not_fit"), (8, 16, "marginal")],
)
def test_logic_rl_as_its_thread_has_it(scripts: Scripts, prompts: int, n: int, outcome: str) -> None:
    assert scripts.logic_rl(prompts=prompts, n=n).verdict.outcome == outcome


def test_logic_rl_a_smaller_micro_batch_does_not_help(scripts: Scripts) -> None:
    found = scripts.logic_rl()
    for micro in (32, 16, 8):
        assert scripts.logic_rl(micro=micro).phases == found.phases
    assert scripts.logic_rl(micro=4).device.expected < found.device.expected
    assert any("ppo_micro_batch_size of 8 or more" in text for text in found.verdict.ruled_out)


def test_logic_rl_scoring_fails_too_where_the_model_casts_its_logits(scripts: Scripts) -> None:
    found = scripts.logic_rl("transformers==4.45.2")
    scoring = [text for text in found.verdict.contributing if text.startswith("log probabilities of actor")]
    assert len(scoring) == 1
    cured = scripts.logic_rl("transformers==4.45.2", micro=4, scoring=4)
    assert not [text for text in cured.verdict.contributing if text.startswith("log probabilities")]


def test_openrlhf_70b_fits_by_size_alone(scripts: Scripts) -> None:
    packages = ("openrlhf==0.5.9.post1", "deepspeed==0.16.3", "transformers==4.48.2", "vllm==0.7.2")
    found = scripts.price(OPENRLHF, "llama-3-70b", "A800-80GB", *packages)
    assert found.verdict.outcome == "fits"
    limit = found.verdict.limit_bytes
    assert limit is not None
    assert all(phase.size.high < limit / 2 for phase in found.phases if phase.role in {"actor", "reference"})
