"""Trainings that stand in files of make, just, containers and other programs: read, or said to be not read."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from compatcheck.frameworks.embedded import find_pieces
from tests.cli.run_cli import run
from tests.effort import at_most

STACK = "torch==2.6.0\ndeepspeed==0.16.4\ntransformers==4.49.0\n"
ZERO3 = '{"zero_optimization": {"stage": 3}, "bf16": {"enabled": true}}'
TRAIN = "from transformers import Trainer, TrainingArguments, HfArgumentParser\n"
OPTIONS = [
    "train.py",
    "--deepspeed",
    "ds.json",
    "--bf16",
    "--gradient_checkpointing",
    "--gradient_checkpointing_kwargs",
]
NAMED = "--model_name_or_path Qwen/Qwen2.5-7B --output_dir o"
TAIL = f"""{" ".join(OPTIONS)} '{{"use_reentrant": false}}' {NAMED}"""
GO = f"torchrun --nproc_per_node 8 {TAIL}"
WORDS = ["torchrun", "--nproc_per_node", "8", *OPTIONS, '{"use_reentrant": false}', *NAMED.split()]
LISTED = json.dumps(WORDS)
CONTINUED = GO.replace(" --bf16", " \\\n\t  --bf16")
WINDOWS = GO.replace(" --bf16", " ^\r\n  --bf16")
REGRESSION = "deepspeed/zero3-params-kept-in-backward"

READ = {
    "Makefile": "GPUS ?= 8\nM = Qwen/Qwen2.5-7B\n.PHONY: train\ntrain: data\n\t@"
    + GO.replace(" 8 ", " $(GPUS) ").replace("Qwen/Qwen2.5-7B", "${M}"),
    "GNUmakefile": f"train:\n\t{GO.replace('torchrun', '$(PY) -m torch.distributed.run')}\n",
    "rules.mk": f'train:\n\ttest -n "$$HOME" || exit 1\n\t{CONTINUED}\n',
    "inline.mk": f"train: ; @{GO}\n",
    "continued.mk": f"LAUNCH = torchrun \\\n  --nproc_per_node 8\ntrain:\n\t$(LAUNCH) {TAIL}\n",
    "prefix.mk": f".RECIPEPREFIX = >\ntrain:\n> {GO}\n",
    "called.mk": f"run = torchrun --nproc_per_node 8 $(1)\ntrain:\n\t$(call run,{TAIL})\n",
    "justfile": 'gpus := "8"\ntrain model="x":\n    @' + GO.replace(" 8 ", " {{gpus}} "),
    "tasks.just": f"train:\n    #!/usr/bin/env bash\n    set -e\n    {GO}\n",
    "sky.yaml": f"resources:\n  accelerators: H100:8\nenvs:\n  N: 8\nrun: |\n  {GO.replace(' 8 ', ' $N ')}\n",
    "job.yaml": "apiVersion: v1\nkind: Secret\n---\nkind: Job\nspec:\n  containers:\n  - command: [bash, -c]\n    args:\n"
    f"    - |\n      {GO}\n",
    "pod.yaml": 'kind: Pod\nspec:\n  containers:\n  - env:\n    - name: N\n      value: "8"\n    command: '
    + LISTED.replace('"8"', '"$(N)"'),
    "compose.yml": f"services:\n  t:\n    command: >-\n      {GO}\n",
    "Dockerfile": "FROM python:3.11\nENV N=8\nRUN pip install -r requirements.txt\nCMD " + GO.replace(" 8 ", " $N "),
    "job.json": json.dumps({"jobDefinition": {"containerProperties": {"command": WORDS}}}),
    "odd-key.yaml": f"jobs:\n- launch: {LISTED}\n",
    "odd-key.json": json.dumps({"jobs": [{"launch": WORDS}]}),
    "submit.json": json.dumps({"entrypoint": GO, "runtime_env": {}}),
    "package.json": json.dumps({"name": "x", "scripts": {"test": "pytest", "train": GO}}, indent=2),
    "MLproject": f"name: x\nentry_points:\n  main:\n    parameters: {{n: int}}\n    command: >-\n      {GO}\n",
    "copied.Dockerfile": f"FROM python:3.11\nCOPY --chmod=755 <<'EOF' /opt/run.sh\n#!/bin/bash\n{GO}\nEOF\n"
    'CMD ["/opt/run.sh"]\n',
    "run.Dockerfile": f"FROM python:3.11\nENV N=8\nRUN --mount=type=cache,target=/c {GO.replace(' 8 ', ' $N ')}\n",
    "heredoc.Dockerfile": f"FROM python:3.11\nRUN <<EOF\nset -e\n{GO}\nEOF\n",
    "bash.Dockerfile": f"FROM python:3.11\nRUN bash -ex <<EOF\n{GO}\nEOF\n",
    "written.Dockerfile": f'FROM python:3.11\nRUN <<EOF\ncat > /opt/run.sh <<\'X\'\n{GO}\nX\nEOF\nCMD ["bash", "/opt/run.sh"]\n',
    "onbuild-run.Dockerfile": f"FROM python:3.11 AS a\nONBUILD RUN {GO}\nFROM a\n",
    "devcontainer.json": f'{{\n  // of Qwen\n  "image": "x",\n  "postStartCommand": {json.dumps(GO)}, /* a */\n}}',
    ".devcontainer.json": json.dumps({"postAttachCommand": {"data": "ls", "train": WORDS}}),
    "launch.json": json.dumps(
        {
            "configurations": [
                {"type": "debugpy", "module": "torch.distributed.run", "args": WORDS[1:], "env": {"A": "1"}},
            ]
        }
    ),
    "play.yml": f"tasks:\n- command:\n    argv: {LISTED}\n",
    "tasks.yml": f"tasks:\n  train:\n    cmds:\n    - {json.dumps(GO + ' --learning_rate {{.LR}}')}\n",
    "onbuild.Dockerfile": f"FROM python:3.11\nONBUILD CMD {GO}\n",
    "Containerfile": f'FROM python:3.11 AS base\nCMD ["true"]\nFROM base\nENTRYPOINT ["bash", "-c", {json.dumps(GO)}]\n',
}
UNREAD = {
    "train.fish": f"set -x A 1\n{GO}\n",
    "train.bat": f"@echo off\r\nrem train\r\n{WINDOWS}\r\n",
    "train.cmd": f"@echo off\r\n{WINDOWS}\r\n",
    "train.sh.j2": GO.replace(" 8 ", " {{ gpus }} ") + "\n",
    "tox.ini": f"[testenv]\ncommands = {GO}\n",
    "launch.py": f"import subprocess\nsubprocess.run({LISTED}, check=True)\n",
    "start.py": "import os\ndef main():\n    os.system(f'torchrun --nproc_per_node {n} train.py --deepspeed ds.json')\n",
    "added.py": "import subprocess\ncmd = 'torchrun --nproc_per_node 8'\ncmd += ' train.py'\ncmd += f' --deepspeed {path}'\n"
    "subprocess.run(cmd, shell=True)\n",
    "joined.py": "import subprocess\ncmd = ['torchrun', '--nproc_per_node', '8']\ncmd += ['train.py']\n"
    "cmd.extend(['--deepspeed', 'ds.json'])\nif args.bf16:\n    cmd.append('--bf16')\nsubprocess.run(cmd)\n",
    "grown.py": "import subprocess\nsubprocess.run(['torchrun', '--nproc_per_node', '8']"
    "    + ['train.py', '--deepspeed', 'ds.json'])\n",
    "elastic.py": "from torch.distributed.run import main\n"
    "main(['--nproc_per_node', '8', 'train.py', '--deepspeed', 'ds.json'])\n",
    "elastic2.py": "import torch.distributed.run\n"
    "torch.distributed.run.main(['--nproc_per_node=8', 'train.py', '--deepspeed', 'ds.json'])\n",
    "cluster.py": "import submitit\nexecutor = submitit.AutoExecutor(folder='log')\n"
    f"executor.submit(submitit.helpers.CommandFunction({LISTED}))\n",
    "noxfile.py": "import nox\n@nox.session\ndef train(session):\n"
    "    session.run('torchrun', '--nproc_per_node', '8', 'train.py', '--deepspeed', 'ds.json')\n",
    "tasks.py": f"from invoke import task\n@task\ndef train(c):\n    c.run({GO!r})\n",
    "mise.toml": f"[tasks.train]\nrun = {json.dumps(GO)}\n",
    "system.ipynb": json.dumps(
        {"cells": [{"cell_type": "code", "source": [f"get_ipython().system({GO!r})\n"]}]}, indent=1
    ),
    "run.ipynb": json.dumps({"cells": [{"cell_type": "code", "source": [f"%run {TAIL}\n"]}]}, indent=1),
    "pyproject.toml": '[project]\nname = "x"\nversion = "1"\ndependencies = ["torch==2.6.0"]\n[tool.poe.tasks]\n'
    'train = "torchrun train.py --deepspeed ds.json"\n',
    "nb.ipynb": json.dumps({"cells": [{"cell_type": "code", "source": [f"!{GO}\n"]}]}, indent=1),
    "shell.ipynb": json.dumps({"cells": [{"cell_type": "code", "source": ["%%bash\n", f"{GO}\n"]}]}, indent=1),
    "long.ipynb": json.dumps(
        {"cells": [{"cell_type": "code", "source": ["!torchrun --nproc_per_node 8 \\\n", f"  {TAIL}\n"]}]}, indent=1
    ),
    "loop.mk": f"train:\n\t@$(foreach s,$(SEEDS),{GO};)\n",
    "other.just": f"train:\n    #!/usr/bin/env python3\n    import os\n    os.system({GO!r})\n",
    "x.mk": f"define RUN\n\t{GO}\nendef\ntrain: ; $(RUN)\n\t$(call RUN)\n",
    "asked.mk": f"PY := $(shell which python)\ntrain:\n\t$(PY) {TAIL}\n",
    "launcher.mk": "ifdef X\nL = torchrun\nelse\nL = deepspeed\nendif\ntrain:\n\t$(L) --module openrlhf.cli.train_sft --bf16\n",
    "long.just": f'cmd := """\n{GO}\n"""\ntrain:\n    {{{{cmd}}}}\n',
    "sum.just": f"cmd := 'torchrun ' + '{TAIL}'\ntrain:\n    {{{{cmd}}}}\n",
    "short.yml": f"tasks:\n  train: {GO}\n",
    "joined.ipynb": json.dumps({"cells": [{"cell_type": "code", "source": f"%%bash\n{GO}"}]}),
    "supervisord.conf": f"[program:train]\ncommand={GO}\n",
    "train.def": f"Bootstrap: docker\nFrom: x\n%runscript\n  {GO}\n",
    "train.hcl": f'command = "{GO}"\n',
    "asked.sh": f"$PY {TAIL}\n",
    "python.Dockerfile": f"FROM python:3.11\nRUN python3 <<EOF\nimport os\nos.system({GO!r})\nEOF\n",
    "held.ipynb": json.dumps({"cells": [{"cell_type": "code", "source": [f"cmd = {GO!r}\n", "!{cmd}\n"]}]}, indent=1),
    "kernel.ipynb": json.dumps(
        {"cells": [{"cell_type": "code", "source": [f"{GO}\n"]}], "metadata": {"kernelspec": {"language": "bash"}}},
        indent=1,
    ),
    "unknown.sh": f'eval "$CMD {" ".join(OPTIONS[1:4])} --output_dir o"\n',
    "program.sh": f"python $SCRIPT {' '.join(OPTIONS[1:4])} --output_dir o\n",
    "neither.sh": "$RUN $SCRIPT --per_device_train_batch_size 4 --output_dir o\n",
    "tasks.yaml": "tasks:\n- '{{.CMD}} --per_device_train_batch_size 4 --output_dir o'\n",
    "crontab": f"0 1 * * * {GO}\n",
    "train.sl": f"{GO}\n",
    "Singularity": f"Bootstrap: docker\n%runscript\n{GO}\n",
    "Pipfile": f"[packages]\ntorch = '==2.6.0'\n[scripts]\ntrain = {json.dumps(GO)}\n",
    "rules.smk": "rule train:\n  shell:\n    'torchrun train.py '\n    '--deepspeed ds.json'\n",
    "dag.py": f"BashOperator(task_id='t', bash_command={GO!r})\n",
    "sky.py": f"import sky\nsky.launch(sky.Task(run={GO!r}))\n",
    "dodo.py": f"def task_train():\n    return {{'actions': [{GO!r}]}}\n",
    "job.py": "options = {'per_device_train_batch_size': 4, 'output_dir': 'o'}\n"
    "HuggingFace(entry_point='train.py', hyperparameters=options).fit()\n",
    "again.py": "import runpy, sys\nsys.argv = ['train.py', '--per_device_train_batch_size', '4', '--output_dir', 'o']\n"
    "runpy.run_path('train.py')\n",
    "filled.py": "import os\nos.system(f'{launcher} --per_device_train_batch_size 4 --output_dir o')\n",
    "chart.yaml": "{{- if .Values.x }}\nrun: torchrun train.py --deepspeed ds.json\n{{ end }}\n",
}
SILENT = {
    "Makefile": "CC = gcc\nhelp:\n\t@echo 'torchrun train.py --deepspeed ds.json trains'\nquality:\n\truff accelerate deepspeed\n"
    "test:\n\tpython -m pytest tests/deepspeed\n",
    "page.yaml": "script: |\n  const x = (a) => { accelerate(\"(the 'python' one)\")[0] || '' }\n  if (x) {\n",
    "justfile": "test:\n    pytest -x\n",
    "job.yaml": "kind: Job\nspec:\n  containers:\n  - command: [python, -m, http.server]\n",
    "train.fish": "# torchrun train.py --deepspeed ds.json\necho torchrun train.py --deepspeed ds.json\n",
    "tool.py": '"""Usage:\n\ntorchrun --nproc_per_node 8 train.py --deepspeed ds.json\n"""\n'
    'import subprocess\nsubprocess.run(["ls"])\n'
    'print("torchrun --nproc_per_node 8 train.py --deepspeed ds.json")\n',
    "data.json": json.dumps([{"instruction": "How do I train?", "output": GO}, {"command": "ls"}], indent=1),
    "package.json": json.dumps(
        {"name": "deepspeed", "scripts": {"accelerate": "vite build", "test": "vitest run"}}, indent=1
    ),
    "helper.py": "import subprocess\nnames = ['torchrun', 'accelerate', 'deepspeed']\nsubprocess.run(['ls'] + names)\n"
    "text = 'torchrun'\ntext += ' is not there, train.py needs --deepspeed'\nlogger.error(text)\n",
    "tox.ini": "[testenv]\ndeps = deepspeed\ncommands = pytest --deepspeed\n",
    "Dockerfile": 'FROM python:3.11\nRUN pip install torch==2.6.0\nCMD ["bash"]\n',
    "build.Dockerfile": "FROM python:3.11\nRUN pip install deepspeed && python setup.py install\n"
    "RUN python -c 'import deepspeed'\n",
    "devcontainer.json": '{\n  // python\n  "image": "x", "postCreateCommand": "pip install -r requirements.txt",\n}',
    "README": f"Train it:\n\n    {GO}\n",
    "train.log": f"{GO}\n",
    "image.bin": "torchrun train.py --deepspeed ds.json\n\0",
    "get.sh": "curl $URL --max-time 3 --output-dir x\n",
    "page.ipynb": json.dumps(
        {"cells": [{"cell_type": "code", "source": ["cmd = 'ls'\n", "!{cmd} | awk '{print $1}'\n"]}]}
    ),
}


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "requirements.txt").write_text(STACK)
    (tmp_path / "ds.json").write_text(ZERO3)
    (tmp_path / "train.py").write_text(TRAIN)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("name", READ)
def test_a_training_in_a_file_of_another_program_is_read(project: Path, name: str) -> None:
    (project / name).write_text(READ[name])
    report = json.loads(run("check", ".", "--format", "json").out)
    found = [one for one in report["findings"] if one["rule_id"] == REGRESSION and one["status"] == "affected"]
    assert [one["subject"] for one in found if name in one["subject"]], report["skipped"]
    facts = {fact["name"]: fact for one in report["subjects"] if name in one["id"] for fact in one["facts"]}
    assert facts["hardware.world_size"]["value"] == 8
    line = next(n for n, text in enumerate(READ[name].split("\n"), 1) if "--gradient_checkpointing" in text)
    assert facts["training.gradient_checkpointing"]["source"].startswith(f"{name}:{line}")
    assert run("check", "requirements.txt", name).code == 1


@pytest.mark.parametrize("name", UNREAD)
def test_one_in_a_language_that_is_not_read_is_said(project: Path, name: str) -> None:
    (project / name).write_text(UNREAD[name])
    report = json.loads(run("check", ".", "--format", "json").out)
    assert [one for one in report["skipped"] if one["source"].startswith(name) and "not read" in one["reason"]]
    assert run("check", ".", "--fail-unread").code in {1, 4}
    assert run("check", "--hook", "--fail-unread", name).code in {1, 4}


@pytest.mark.parametrize("name", SILENT)
def test_what_starts_no_training_is_no_matter(project: Path, name: str) -> None:
    before = json.loads(run("check", ".", "--format", "json").out)
    (project / name).write_text(SILENT[name])
    after = json.loads(run("check", ".", "--format", "json").out)
    assert after["skipped"] == before["skipped"]
    assert not [one for one in after["subjects"] if name in one["id"] and "Dockerfile" not in name]


def test_a_program_and_its_words_may_have_keys_of_their_own() -> None:
    swept = (
        "program: train.py\nmethod: grid\nparameters:\n  lr: {values: [1, 2]}\n  a.b: {min: 0}\n  bf16: {value: true}\n"
    )
    debugged = "program: ${workspaceFolder}/train.py\nargs: [--lr, 1, '${file}/a b']\n"
    tasks = "command: [torchrun]\narguments: [train.py, --lr, '1']\n"
    assert [piece.text for text in (swept, debugged, tasks) for piece in find_pieces("a.yaml", text)] == [
        "python train.py --lr=${lr} --a.b=${NOT_STATED} --bf16=true",
        "python train.py --lr 1 \"${NOT_STATED}\"'/a b'",
        "torchrun train.py --lr 1",
    ]


def test_what_make_puts_in_is_put_in() -> None:
    text = (
        "A := 1\nB = $(A) $(C)\nC = 2\nifdef X\nD = 3\nendif\ntrain:\n\t@python $(B) $$HOME $(D) $(shell nproc) $@\n"
        "t2: ; python $A\n"
        "define BLOCK\nE = 1\nendef\nexport F = g h\n"
    )
    assert [(piece.line, piece.text.partition("; ")[2]) for piece in find_pieces("Makefile", text)] == [
        (8, "python 1 2 $HOME ${D} ${NOT_STATED} train"),
        (9, "python 1"),
    ]


def test_what_a_makefile_includes_holds_in_it(project: Path) -> None:
    (project / "common.mk").write_text("LAUNCH = torchrun --nproc_per_node 8\n")
    (project / "Makefile").write_text(f"include common.mk none.mk\ntrain:\n\t$(LAUNCH) {TAIL}\n")
    report = json.loads(run("check", ".", "--format", "json").out)
    assert [one for one in report["subjects"] if "Makefile" in one["id"]]


def test_a_value_that_holds_itself_ends() -> None:
    text = "A = $(A)$(A)$(A)$(A)\nt:\n\tpython " + "$(A)" * 20 + "\n"
    assert len(next(find_pieces("Makefile", text)).text) <= 65_536


HOSTILE = {
    "Makefile": {
        "loops": "".join(
            f"t{n}:\n\ttorchrun train.py --x {n}; for i in $$(seq 1900); do x=$$x$$i; y=$$((y+1)); done; torchrun a.py $$y\n"
            for n in range(190)
        ),
        "far below": "\n" * 500_000 + "".join(f"t{n}:\n\ttorchrun train.py --x {n}\n" for n in range(200)),
        "doubling": "".join(f"A{n} = $(A{n + 1})$(A{n + 1})\n" for n in range(30))
        + "t:\n\t$(A0) $(A3) torchrun\n" * 20_000,
        "runs": "".join(
            f"t{n}:\n\tfor a in {{1..10}}; do for b in {{1..100}}; do torchrun train.py --x {n} --y $$a$$b; done; done\n"
            for n in range(190)
        ),
        "value": f"A = {'x' * 1_000_000}\nt:\n\ttorchrun {'$A' * 8_000}\n\ttorchrun {'$(A)' * 4_000} 1\n"
        + f"\t{'$A' * 8_000}\n" * 50,
        "calls": f"f = {'$1' * 8_000} torchrun\nt:\n\t{('$(call f,' + 'y' * 60 + ')') * 200}\n" * 30,
        "functions": "t:\n\ttorchrun " + "$(foreach a" * 100_000 + "\n",
        "exports": "".join(f"export V{n} = {'x' * 100}\n" for n in range(5_000))
        + "t:\n\techo torch\n" * 30_000
        + "t2: ; torchrun",
    },
    "justfile": {
        "braces": "t:\n    torchrun " + "{{" * 100_000 + "\n",
        "value": f'x := "{"y" * 500_000}"\nt:\n    #!/bin/bash\n' + "    torchrun {{x}}{{x}}{{x}}\n" * 20_000,
    },
    "job.yaml": {
        "documents": "---\nrun: torchrun train.py\n" * 10_000,
        "aliases": f"x: &a '{'deep ' * 10_000}'\nz: [torchrun]\ny:\n  - args: &b [{','.join(['*a'] * 3_000)}]\n"
        + "  - args: *b\n" * 60,
        "variables": f"a: &a\n  env: {{A: '{'x' * 16_000}'}}\n  run: torchrun train.py\nb:\n" + "  - *a\n" * 20_000,
    },
    "train.sh.j2": {"braces": "{{" * 300_000 + f"\n{GO}\n"},
}


@pytest.mark.parametrize(("name", "case"), [(name, case) for name, cases in HOSTILE.items() for case in cases])
def test_no_file_of_commands_takes_long(project: Path, name: str, case: str) -> None:
    (project / name).write_text(HOSTILE[name][case])
    with at_most(80):
        names_no_program = case in {"calls", "functions"}
        assert run("check", ".", "--no-policy", "--fail-unread").code == (0 if names_no_program else 4)


def test_a_command_of_a_later_document_has_its_line() -> None:
    text = "a: 1\n---\nrun: |\n  torchrun train.py\n--- {run: torchrun b.py}\n"
    assert [piece.line for piece in find_pieces("job.yaml", text)] == [4, 5]


@pytest.mark.parametrize(
    "text",
    [
        "A = $(A)$(A)$(A)$(A)\n" + "".join(f"t:\n\ttorchrun {n} $(A)$(A)$(A)$(A) train.py\n" for n in range(2_000)),
        "t:\n" + "".join(f"\ttorchrun train.py --x {n}\n" for n in range(20_000)),
        "define A\n" * 100_000,
        "A = $" + "(" * 100_000 + "\nt:\n\ttorchrun $(A)\n",
    ],
    ids=["growing", "many", "open", "brackets"],
)
def test_many_commands_end_and_are_said(project: Path, text: str) -> None:
    (project / "Makefile").write_text(text)
    with at_most(80):
        report = json.loads(run("check", ".", "--format", "json").out)
    many = [one for one in report["skipped"] if "the rest is not read" in one["reason"]]
    assert bool(many) == (text.count("torchrun") > 1)


def test_a_command_that_is_not_read_hides_no_packages(project: Path) -> None:
    (project / "Dockerfile").write_text(f'FROM python:3.11\nRUN pip install torch==2.6.0\nCMD {GO} "open\n')
    for inputs in (["."], ["Dockerfile"]):
        report = json.loads(run("check", *inputs, "--format", "json").out)
        assert [one for one in report["subjects"] if "Dockerfile" in one["id"] and one["environment"]["packages"]]
        assert [one for one in report["skipped"] if one["source"].startswith("Dockerfile")]


SERVED = "--model Qwen/Qwen2.5-7B --max-model-len 4096"


@pytest.mark.parametrize(
    ("text", "read"),
    [
        (f"FROM vllm/vllm-openai:v0.8.5 AS a\nFROM a\nCMD {json.dumps(SERVED.split())}\n", True),
        (f'FROM vllm/vllm-openai:v0.8.5\nENTRYPOINT ["python3", "own.py"]\nCMD {json.dumps(SERVED.split())}\n', False),
        (f"services:\n  a:\n    image: vllm/vllm-openai:v1\n    command: {SERVED}\n", True),
        (f"services:\n  a:\n    image: vllm/vllm-openai:v1\n    command:\n      {SERVED[:23]}\n      {SERVED[24:]}\n", True),
        (f"kind: Pod\nspec:\n  containers:\n  - image: vllm/vllm-openai:v1\n    args: {json.dumps(SERVED.split())}\n", True),
        (f"services:\n  a:\n    image: vllm/vllm-openai:v1\n    command: {SERVED.removeprefix('--model ')}\n", True),
        (f"services:\n  a:\n    image: vllm/vllm-openai:v1\n    entrypoint: vllm serve\n    command: {SERVED[8:]}\n", True),
        (f"services:\n  a:\n    image: own/vllm\n    command: {SERVED}\n", False),  # whose entrypoint nobody knows
    ],
)  # fmt: skip
def test_an_image_that_serves_by_itself_is_given_options(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, *, read: bool
) -> None:
    monkeypatch.chdir(tmp_path)
    name = "Dockerfile" if text.startswith("FROM") else "compose.yml"
    (tmp_path / name).write_text(text)
    told = run("facts", name).out
    assert ("rollout.max_model_len = 4096" in told) is read
    assert ("model.name = Qwen/Qwen2.5-7B" in told) is read
