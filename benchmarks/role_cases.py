"""Estimate the public reports of reinforcement learning that `memory_cases.py` leaves out, from their own command lines.

Each case's keys become the command line its program was started with; that is read as a launch script is, and estimated. The
reports tell outcomes, not peaks.

Usage: python benchmarks/role_cases.py CASES.yaml
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from compatcheck.checking import Request, gather
from compatcheck.core.units import GIB, format_bytes
from compatcheck.memory.job import estimate_job
from compatcheck.rules.locate import open_rules

if TYPE_CHECKING:
    from collections.abc import Mapping

    from compatcheck.core.estimate import Estimate
    from compatcheck.rules.database import RuleSet

PROGRAMS = {
    "Search-R1": "python3 -m verl.trainer.main_ppo max_turns=4",
    "Logic-RL": "python3 -m verl.trainer.main_ppo trainer.project_name=GRPO_logic_KK",
    "OpenRLHF": "python3 -m openrlhf.cli.train_ppo_ray --remote_rm_url x",
}
NOT_OPTIONS = ("deepspeed", "zpg", "_truncated_after")
"""Entries of a case that are no keys of its command."""
RIGHT = {"oom": {"does_not_fit", "marginal"}, "fits": {"fits", "marginal"}}


def write_script(case: Mapping[str, Any]) -> str:
    """Return the command line of a case."""
    name = next(name for name in PROGRAMS if case["framework"]["name"].startswith(name))
    words = [PROGRAMS[name]]
    options = {key: value for key, value in case["config"].items() if key not in NOT_OPTIONS}
    model = case["model"]["hf_id"]
    if name == "OpenRLHF":
        words.append(f"--pretrain {model}")
        words += [f"--{key}" if value is True else f"--{key} {value}" for key, value in options.items()]
    else:
        options.setdefault("trainer.n_gpus_per_node", case["hardware"]["gpus_total"] // case["hardware"]["nodes"])
        options.setdefault("trainer.nnodes", case["hardware"]["nodes"])
        words.append(f"actor_rollout_ref.model.path={model}")
        words += [f"{key}={value}" for key, value in options.items() if key != "max_turns"]
    return " \\\n  ".join(words) + "\n"


def evaluate(case: Mapping[str, Any], rules: RuleSet) -> Estimate:
    """Estimate a case."""
    gpu = str(case["hardware"]["gpu"]).partition("/")[0]
    packages = {"transformers": "4.47.1", "vllm": "0.6.3"}  # setup.py: transformers<4.48, vllm<=0.6.3
    if case["framework"]["name"].startswith("OpenRLHF"):
        packages = {"openrlhf": "0.5.9.post1", "transformers": "4.48.2", "vllm": "0.7.2"}
    with tempfile.TemporaryDirectory() as folder:
        script, requirements = Path(folder, "run.sh"), Path(folder, "requirements.txt")
        script.write_text(write_script(case), encoding="utf-8")
        requirements.write_text("".join(f"{name}=={release}\n" for name, release in packages.items()), encoding="utf-8")
        model = case["model"]
        sizes = (
            *(f"model.{name}={model[name]}" for name in ("hidden_size", "num_hidden_layers", "num_attention_heads")),
            *(f"model.{name}={model[name]}" for name in ("num_key_value_heads", "intermediate_size", "vocab_size")),
            f"model.tie_word_embeddings={str(model['tie_word_embeddings']).lower()}",
            f"model.parameters={model['num_params']}",
            f"model.model_type={'llama' if 'lama' in model['hf_id'] else 'qwen2'}",
        )
        request = Request(paths=(folder,), gpu=f"{gpu}-{case['hardware']['mem_gib']}GB", settings=sizes, here=False)
        (subject,) = gather(request, rules, {}).subjects
    return estimate_job(subject.roles, subject.environment)


def main() -> None:
    """Print one row for each case."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", type=Path)
    rules = open_rules()
    right = count = 0
    for case in yaml.safe_load(parser.parse_args().cases.read_text(encoding="utf-8"))["cases"]:
        if not case["framework"]["name"].startswith(tuple(PROGRAMS)):
            continue
        found = evaluate(case, rules)
        peak = max(found.phases, key=lambda phase: phase.needed.expected)
        low, expected, high = (size / GIB for size in peak.needed)
        outcome, verdict = case["outcome"]["result"], found.verdict
        good = verdict.outcome in RIGHT[outcome]
        right, count = right + good, count + 1
        limit = format_bytes(verdict.limit_bytes or 0)
        print(f"{case['id']}: reported {outcome}, estimated {verdict.outcome}{'' if good else ' (wrong)'}")
        print(f"  {peak.role} {peak.name}: {expected:.1f} GiB ({low:.1f} to {high:.1f}) of {limit}")
        print(f"  {verdict.primary}")
    print(f"\n{right} of {count} verdicts agree with the report; marginal agrees with both.")


if __name__ == "__main__":
    main()
