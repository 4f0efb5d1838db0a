"""Words that depend on a condition: what every way says alike is known."""

from __future__ import annotations

from compatcheck.core.document import Document
from compatcheck.frameworks.launch_script.commands import read_commands
from compatcheck.shell import read_script
from tests.unit.frameworks.stated_facts import facts

NPU = """DEVICE=${DEVICE:-$(python3 -c 'import torch_npu' && echo npu || echo gpu)}
ARGS=(
  actor_rollout_ref.rollout.n=4
  actor_rollout_ref.rollout.gpu_memory_utilization=0.5
)
if [ "$DEVICE" = npu ]; then
  ARGS+=(trainer.device=npu actor_rollout_ref.rollout.gpu_memory_utilization=0.7 data.max_prompt_length=8)
else
  ARGS+=(data.max_prompt_length=8)
fi
python3 -m verl.trainer.main_ppo "${ARGS[@]}" actor_rollout_ref.model.path=x "$@"
"""


def read(text: str) -> Document:
    (run,) = read_commands(read_script("run.sh", text).commands, {})
    return run.documents[0]


def test_an_array_keeps_what_no_condition_changes() -> None:
    document = read(NPU)
    stated = facts(document)
    assert stated["rollout.n"] == 4
    assert stated["training.max_prompt_length"] == 8
    assert "rollout.gpu_memory_utilization" not in stated
    assert [(entry.fact, entry.why) for entry in document.unresolved] == [
        (
            "rollout.gpu_memory_utilization",
            "depends on ${ARGS[@]}, which the script sets under a condition that is not known",
        )
    ]
    assert all(gap.assumed for gap in document.gaps)


def test_text_under_a_condition_is_split_into_its_options() -> None:
    text = (
        'E=""\n[ -f x ] && E="data.max_prompt_length=8 data.max_response_length=9"\npython3 -m verl.trainer.main_ppo $E'
    )
    found = {entry.fact for entry in read(text).unresolved}
    assert found == {"training.max_prompt_length", "training.max_response_length"}


def test_a_loop_of_unknown_length_may_add_any_option() -> None:
    text = 'A=(data.max_prompt_length=8)\nfor x in $Y; do A+=("$x"); done\npython3 -m verl.trainer.main_ppo "${A[@]}"'
    document = read(text)
    assert facts(document)["training.max_prompt_length"] == 8
    assert [gap.source.key for gap in document.gaps] == ["${A[@]}"]
