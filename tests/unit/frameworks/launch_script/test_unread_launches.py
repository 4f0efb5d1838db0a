"""A training behind a command that is not known to start one is listed; what only mentions one is not."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from compatcheck.core.errors import InputError
from compatcheck.frameworks.launch_script.python_launches import find_in_python
from compatcheck.frameworks.launch_script.script import read_launch_script
from compatcheck.frameworks.launch_script.unread_launches import find_in_file
from tests.unit.frameworks.launch_script.test_unheard_words import COMMANDS

if TYPE_CHECKING:
    from pathlib import Path

    from compatcheck.frameworks.launch_script.commands import TrainingCommand

CMD = "deepspeed --num_gpus 8 train.py --model_name_or_path Qwen/Qwen2.5-7B-Instruct --deepspeed ds.json --output_dir o"


PROGRAM = "train.py --per_device_train_batch_size 4 --bf16 True --output_dir o"


def read(folder: Path, text: str) -> list[TrainingCommand]:
    text = text.replace("CMD", CMD).replace("PROGRAM", PROGRAM)
    (folder / "run.sh").write_text(f"#!/bin/bash\n{text}\n")
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
        "$PY train.py --per_device_train_batch_size 4 --output_dir o",
        "$L --module openrlhf.cli.train_sft --bf16",
        "retry torchrun --nproc_per_node 8 train.py $ARGS", "coverage run PROGRAM", "viztracer -- PROGRAM",
        "torchx run dist.ddp -j 1x8 --script PROGRAM", "alias go='torchrun --nproc_per_node 8'\ngo PROGRAM", "alias go='CMD'\ngo",
        'submit --command="CMD"', "at now <<EOF\nHF_HOME=/x CMD\nEOF",
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
    "program",
    [
        "$VENV/bin/python",
        '"$VENV/bin/python3"',
        "$(which python)",
        "$(command -v python3)",
        "$PY -m openrlhf.cli.train_sft",
    ],
)
def test_a_program_whose_name_is_known_is_what_it_says(tmp_path: Path, program: str) -> None:
    (run,) = read(
        tmp_path, f"{program}{'' if ' -m ' in program else ' train.py'} --per_device_train_batch_size 4 --output_dir o"
    )
    assert run.is_training


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
        "black train.py --check", "scp train.py h:", "alias py='python train.py'",
        "sed -i 's/deepspeed train.py/x/' a", "cat > README.md <<EOF\nCMD\nEOF", "train() { CMD; }", "cd deepspeed && make",
    ],
)  # fmt: skip
def test_what_only_mentions_a_training_is_not_listed(tmp_path: Path, text: str) -> None:
    assert read(tmp_path, text) == []
    (run,) = read(tmp_path, f"{text}\n:\nCMD --seed 3")
    assert run.documents[-1].reader != "shell"


def notebook(*cells: str, compact: bool = False) -> str:
    """Write cells of code as a notebook, each line of them on one of its own or all in one."""
    sources = [cell if compact else cell.splitlines(keepends=True) for cell in cells]
    written = [{"cell_type": "code", "metadata": {}, "source": source} for source in sources]
    return json.dumps({"cells": written, "nbformat": 4}, indent=None if compact else 1)


LANGUAGES = {
    "tox.ini": "[testenv]\ncommands =\n  CMD\n",
    "run.fish": "set -x A 1\nCMD\n",
    "run.bat": "@echo off\r\nset A=1\r\nCMD\r\n",
    "run.ps1": "$env:A = 1\nCMD\n",
    "job.sh.j2": "#!/bin/bash\n{% if x %}\nCMD\n{% endif %}\n",
    "pyproject.toml": '[tool.pixi.tasks]\ntrain = "CMD"\n',
    "Jenkinsfile": "pipeline { steps { sh 'CMD' } }\n",
    "Snakefile": 'rule a:\n  shell: "CMD"\n',
    "a.ipynb": notebook("import os\n", "!CMD\n"),
    "b.ipynb": notebook("out = !CMD\n"),
    "c.ipynb": notebook("log = %sx CMD\n"),
    "d.ipynb": notebook("%%bash\ncd x\nCMD\n"),
    "e.ipynb": notebook("%%writefile run.sh\nCMD\n"),
    "e-file.ipynb": notebook("%%file 'run.sh'\nCMD\n"),
    "f.ipynb": notebook("x = 1\n!!CMD", compact=True),
    "g.ipynb": notebook("%time !CMD"),
    "noxfile.py": "import nox\n@nox.session\ndef train(session):\n    session.run(*'CMD'.split())\n",
    "start.py": "import subprocess\nsubprocess.run('CMD', shell=True)\n",
    "flow.py": "operation(task='t', bash_command='CMD')\n",
    "CMake.in": "add_custom_target(t COMMAND CMD)\n",
    "Earthfile": "train:\n  RUN CMD\n",
    "Makefile.toml": "[tasks.train]\nscript = '''\nCMD\n'''\n",
    "cells.py": "# %%\nimport os\n\n# %%\n# !CMD\n",
    "shell.py": '# %% language="bash"\n# cd x\n# CMD\n',
    "magic.py": "# %%\n# %%bash\n# CMD\n",
}


@pytest.mark.parametrize("name", LANGUAGES)
@pytest.mark.parametrize(
    "command", [*COMMANDS, "python -m litgpt finetune_lora m {}", "uv run examples/run_grpo.py --config a.yaml"]
)
def test_commands_of_every_program_are_named_in_other_languages(name: str, command: str) -> None:
    text = LANGUAGES[name].replace("CMD", command.format("--seed 1"))
    found = (find_in_python if name.endswith(".py") else find_in_file)(name, text)
    assert found is not None
    lines = text.split("\n")
    assert command.split(maxsplit=1)[0] in lines[(found.source.line or 0) - 1]


WORDS = ["torchrun", "--nproc_per_node", "8", "train.py", "--lr", "1"]
OPTIONS = "--per_device_train_batch_size 4 --bf16 True --output_dir o"
APART = {
    "compact.toml": f"train = [{','.join(map(json.dumps, WORDS))}]\n",
    "lines.toml": "train = [\n" + "".join(f"  {json.dumps(word)},\n" for word in WORDS) + "]\n",
    "sequence.toml": 'train = ["cd x", "torchrun train.py --lr 1"]\n',
    "spawn.js": f"spawn('torchrun', {WORDS[1:]})\n",
    "run.rs": 'Command::new("torchrun").arg("train.py").arg("--lr").arg("1");\n',
    "train.run.xml": f'<option name="SCRIPT_NAME" value="train.py" />\n<option name="PARAMETERS" value="{OPTIONS}" />\n',
    "module.run.xml": '<option name="PARAMETERS" value="--nproc_per_node 8 train.py --lr 1" />\n',
    "train.submit": f'executable = train.py\narguments = "{OPTIONS}"\n',
    "job.nomad": 'command = "torchrun"\nargs = ["--nproc_per_node", "8", "train.py", "--lr", "1"]\n',
    "pod.py": f"Pod(cmds=['torchrun'], arguments={WORDS[1:]})\n",
    "local.py": f"torchrun = local['torchrun']\ntorchrun[{str(WORDS[1:])[1:-1]}]()\n",
    "sh.py": f"import sh\nsh.torchrun({str(WORDS[1:])[1:-1]})\n",
    "cut.bat": "torchrun train.py --lr 1 ^",
}


@pytest.mark.parametrize("name", APART)
def test_words_and_options_that_stand_apart_are_those_of_a_command(name: str) -> None:
    assert (find_in_python if name.endswith(".py") else find_in_file)(name, APART[name]) is not None


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.toml", 'launchers = ["python", "torchrun", "deepspeed"]\n'),
        ("a.toml", 'addopts = ["--cov", "train.py", "--strict"]\n'),
        ("a.toml", f'help = "pass {OPTIONS}"\n'),
        ("a.ts", 'x = ["--per-page", "train.py"]\n'),
        ("a.py", "# %% [markdown]\n# !torchrun train.py --lr 1\n# %%\nx = 1\n"),
        ("a.py", "# !torchrun train.py --lr 1\n"),
    ],
)
def test_words_that_are_no_command_are_not_named(name: str, text: str) -> None:
    assert (find_in_python if name.endswith(".py") else find_in_file)(name, text) is None


@pytest.mark.parametrize("line", ["(python a.py --b) ", "python a.py --b\n", '"--a-b c --d"\n'])
def test_commands_without_end_are_given_up_and_said(line: str) -> None:
    found = find_in_file("a.fish", "python\n" + line * 10_100)
    assert found is not None
    assert "more than 10,000 commands" in found.reason


def test_the_value_of_an_option_is_not_said() -> None:
    found = find_in_file("a.run.xml", f'<option SCRIPT="train.py" value="--hub_token=SECRETWORD {OPTIONS}" />\n')
    assert found is not None
    assert "SECRETWORD" not in str(found)


def test_a_command_that_goes_on_in_a_notebook_is_one() -> None:
    text = notebook("!torchrun --nproc_per_node 8 \\\n  train.py \\\n  --bf16 True --output_dir o\nprint(1)\n")
    found = find_in_file("a.ipynb", text)
    assert found is not None
    assert found.reason.endswith("train.py")


@pytest.mark.parametrize("options", ["", "-n -t ", "-t -N3 ", "-l x.log "])
def test_a_script_that_a_notebook_runs_is_named(options: str) -> None:
    text = notebook(f"%run {options}train.py --bf16 True --per_device_train_batch_size 4 --output_dir o")
    assert find_in_file("a.ipynb", text) is not None


@pytest.mark.parametrize(
    "cell", ["print('!torchrun train.py --x 1')", "# !torchrun train.py --x 1", "%%html\ntorchrun a.py --x 1", "!ls"]
)
def test_cells_that_start_nothing_are_not_named(cell: str) -> None:
    assert find_in_file("a.ipynb", notebook(cell)) is None


def test_a_broken_notebook_is_looked_through_line_by_line() -> None:
    assert find_in_file("a.ipynb", notebook("!torchrun train.py --x 1\n")[:-3]) is not None


@pytest.mark.parametrize(
    "text",
    [
        "import torch.distributed.run as tdr\ntdr.main(['--nproc_per_node', '8', 'train.py', '--lr', '1'])\n",
        "from torch.distributed import run\nrun.main(['--nproc_per_node', '8', 'train.py', '--lr', '1'])\n",
        "from torch.distributed import run as r\nr.run(r.parse_args(['--nproc_per_node', '8', 'train.py', '--lr', '1']))\n",
        "from torch.distributed.run import main as go\ngo(['--nproc_per_node', '8', 'train.py', '--lr', '1'])\n",
        "from torch.distributed import run\nrun.main(['train.py', " + "'--lr', " * 30_000 + "])\n",
    ],
)
def test_the_launcher_of_torch_is_known_by_any_name(text: str) -> None:
    found = find_in_python("start.py", text)
    assert found is not None
    assert found.reason.endswith("train.py")


@pytest.mark.parametrize("name", ["README.j2", "pyproject.toml"])
@pytest.mark.parametrize(
    "text",
    [
        "use swift sft to tune models",
        "axolotl train your model",
        "run python train.py and wait",
        "the sft trainer of trl",
    ],
)
def test_sentences_about_programs_are_no_commands(name: str, text: str) -> None:
    assert find_in_file(name, f'description = "{text}"\n{text}\n') is None


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("--pretrain Qwen/Qwen2.5-7B --learning_rate 1e-6 --zero-stage 2 --bf16 --flash-attn", True),
        ("--lr 1e-3 --lora_rank 8 --dtype bf16", True),
        ("--lr 1e-3 --epochs 3 --batch-size 8", False),  # of anything
        ("--model a/b --tensor_parallel 4 --max_tokens 512 --batch_size 8", False),  # of no training
    ],
)
def test_a_program_that_nobody_knows_is_a_training_by_its_options(tmp_path: Path, words: str, *, told: bool) -> None:
    runs = read(tmp_path, f"python zero_math.py {words}")
    said = [skip.reason for run in runs for one in run.documents for skip in one.skipped]
    assert said == (["starts zero_math.py, whose options this release does not read"] if told else [])
