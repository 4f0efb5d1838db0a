"""NeMo RL's command lines: ``uv run examples/run_grpo.py --config FILE key=value …``.

The script parses ``--config`` and leaves the other words to Hydra's grammar; without it a file of its own counts.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from compatcheck.core.document import Document, Gap
from compatcheck.frameworks.launch.arguments import skip_refused
from compatcheck.frameworks.launch.flags import gaps_of_words, parse_flags
from compatcheck.frameworks.launch.hydra import gaps_of_groups, parse_overrides
from compatcheck.frameworks.nemo_rl import configuration as nemo_rl

if TYPE_CHECKING:
    from compatcheck.frameworks.launch.program import Launch

_OWN = {
    "run_grpo.py": "grpo_math_1B.yaml",
    "run_grpo_single_controller.py": "grpo_math_1B_megatron_single_controller.yaml",
    "run_vlm_grpo.py": "vlm_grpo_3B.yaml",
    "run_vlm_sft.py": "sft_vlm_3B.yaml",
    "run_sft.py": "sft.yaml",
    "run_dpo.py": "dpo.yaml",
    "run_rm.py": "rm.yaml",
    "run_ppo.py": "ppo_math_1B.yaml",
    "run_distillation.py": "distillation_math.yaml",
}
"""Files that count where none is named (examples/run_*.py, 7ea279a)."""
_SECTIONS = ("policy.", "cluster.", "grpo.", "sft.", "dpo.", "rm.", "loss_fn.", "checkpointing.", "logger.")


def recognise(launch: Launch) -> str | None:
    """Tell whether a launch starts one of NeMo RL's scripts with words that are its own."""
    if launch.kind != "script" or os.path.basename(launch.program) not in _OWN:
        return None
    flags = parse_flags(launch.arguments, single=True)
    words = [(word.text or word.written).lstrip("+~") for word in (*flags.positional, *flags.unknown)]
    own = any(word.startswith(_SECTIONS) for word in words)
    folder = os.path.basename(os.path.dirname(launch.program))
    return nemo_rl.READER if own or ("config" in flags.options and folder == "examples") else None


def read(launch: Launch, _: str) -> tuple[Document, ...]:
    """Translate a launch; `composition` reads the file that it names with it."""
    flags = parse_flags(launch.arguments, single=True)
    overrides = parse_overrides((*flags.positional, *flags.unknown))
    source, config = launch.command.source, flags.options.get("config")
    gaps = [*gaps_of_words(overrides.unknown), *gaps_of_groups(overrides, source)]
    others = (
        Gap(source._replace(key=f"--{name}"), "is not understood", name) for name in flags.options.keys() - {"config"}
    )
    gaps += sorted(others, key=str)
    references: tuple[tuple[str, str, str], ...] = ()
    if config is None:
        name = os.path.join(os.path.dirname(launch.program), "configs", _OWN[os.path.basename(launch.program)])
        references = ((nemo_rl.READER, name, "--config (left out)"),)
    elif config.why is None:
        references = ((nemo_rl.READER, str(config.value), "--config"),)
    else:
        gaps.append(Gap(source._replace(key="--config", line=config.line), config.why))
    document = Document(
        nemo_rl.READER,
        source,
        (),
        skipped=tuple(skip_refused(overrides.refused)),
        references=references,
        is_command=True,
        gaps=tuple(gaps),
        options=overrides.values,
        added=overrides.added,
    )
    return nemo_rl.compose(document)
