"""A training behind a command that is not known to start one is listed; what only mentions one is not."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from compatcheck.core.errors import InputError
from compatcheck.frameworks.launch_script.script import read_launch_script

if TYPE_CHECKING:
    from pathlib import Path

    from compatcheck.frameworks.launch_script.commands import TrainingCommand

CMD = "deepspeed --num_gpus 8 train.py --model_name_or_path Qwen/Qwen2.5-7B-Instruct --deepspeed ds.json --output_dir o"


def read(folder: Path, text: str) -> list[TrainingCommand]:
    (folder / "run.sh").write_text(f"#!/bin/bash\n{text.replace('CMD', CMD)}\n")
    return [run for _, run in read_launch_script(str(folder / "run.sh"), named=False)]


@pytest.mark.parametrize(
    "text",
    [
        "jsrun -n 1 CMD", "aprun -n 8 CMD", "npx CMD", "with-env A=1 CMD", "retry 3 -- CMD", "nohup retry CMD &",
        "find . -name ds.json -exec CMD \\;", "parallel CMD ::: 1 2", "parallel 'CMD --seed {}' ::: 1 2", "echo CMD | at now",
        "at now <<EOF\nCMD\nEOF", "crontab - <<EOF\n0 1 * * * CMD\nEOF", 'a=(CMD); retry "${a[@]}"',
        "cat > mp.conf <<EOF\n0-7 CMD\nEOF\nsrun -n 8 --multi-prog mp.conf", "retry python -m verl.trainer.main_ppo a.b=c",
        "python - <<EOF\nimport os\nos.system('CMD')\nEOF", "python -c \"import subprocess; subprocess.run('CMD', shell=True)\"",
        "python -c \"run(['deepspeed', 'train.py', '--deepspeed', 'ds.json'])\"", "retry llamafactory-cli train a.yaml",
        'if [ -n "$RUN" ]; then retry CMD; fi', "x=$(retry CMD)",
    ],
)  # fmt: skip
def test_a_training_behind_what_is_not_known_is_listed(tmp_path: Path, text: str) -> None:
    with pytest.raises(InputError, match=r"names a training that .* may start, which is not read"):
        read(tmp_path, text)


def test_it_is_listed_beside_what_is_read(tmp_path: Path) -> None:
    (run,) = read(tmp_path, "CMD\nretry CMD --seed 2\nretry CMD --seed 2")
    assert [(skip.source.line, skip.reason) for skip in run.documents[-1].skipped] == [
        (3, "names a training that retry may start, which is not read: train.py"),
        (4, "names a training that retry may start, which is not read: train.py"),
    ]


def test_a_name_of_a_variable_that_is_another_one_is_said(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="another name of a variable"):
        read(tmp_path, "declare -n c=cmd; cmd='CMD'; $c")


@pytest.mark.parametrize(
    "text", ["torchrun --nproc_per_node 8 $SCRIPT --x 1", "deepspeed --module $ARGS", "srun accelerate launch $RUN"]
)
def test_a_program_that_is_not_known_is_a_training_that_nobody_reads(tmp_path: Path, text: str) -> None:
    (run,) = read(tmp_path, text)
    assert run.is_training
    assert any(
        "which does not say" in skip.reason or "does not read" in skip.reason for skip in run.documents[0].skipped
    )


@pytest.mark.parametrize(
    "text",
    [
        "pip install deepspeed", "pip install deepspeed accelerate==1.2 trl", "uv pip install deepspeed", "which deepspeed",
        "command -v deepspeed && echo ok", "deepspeed --version", "python -c 'import deepspeed; print(deepspeed.__version__)'",
        "# CMD", "echo CMD", "echo 'run: CMD'", "printf '%s\\n' 'CMD'", "cat <<EOF\nusage: CMD\nEOF", "accelerate config",
        "accelerate test", "ds_report", "torchrun --help", "grep -n deepspeed train.py", "pkill -f 'deepspeed train.py'",
        "kill $(pgrep -f 'torchrun train.py')", "pytest -k deepspeed tests/test_a.py", "git add deepspeed train.py",
        "scp deepspeed train.py h:", "log 'starting CMD'", "git commit -m 'run CMD'", "python -c 'print(\"CMD\")'",
        "sed -i 's/deepspeed train.py/x/' a", "cat > README.md <<EOF\nCMD\nEOF", "train() { CMD; }", "cd deepspeed && make",
    ],
)  # fmt: skip
def test_what_only_mentions_a_training_is_not_listed(tmp_path: Path, text: str) -> None:
    assert read(tmp_path, text) == []
    (run,) = read(tmp_path, f"{text}\n:\nCMD --seed 3")
    assert run.documents[-1].reader != "shell"
