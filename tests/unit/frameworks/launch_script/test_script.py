"""Launch scripts whose training command stands inside of other commands, and in files beside them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from compatcheck.core.errors import InputError
from compatcheck.frameworks.launch_script.script import read_launch_script
from tests.unit.frameworks.launch_script.written_commands import facts, ranks

if TYPE_CHECKING:
    from pathlib import Path

    from compatcheck.frameworks.launch_script.commands import TrainingCommand

CMD = (
    "deepspeed --num_gpus 8 --module openrlhf.cli.train_sft --pretrain meta-llama/Meta-Llama-3-8B --zero_stage 3"
    " --micro_train_batch_size 2 --bf16"
)


def read(folder: Path, text: str, **others: str) -> list[TrainingCommand]:
    for name, content in others.items():
        (folder / f"{name}.sh").write_text(content)
    (folder / "run.sh").write_text(f"#!/bin/bash\n{text}\n")
    return [run for _, run in read_launch_script(str(folder / "run.sh"), named=True)]


def read_one(folder: Path, text: str, **others: str) -> TrainingCommand:
    (run,) = read(folder, text, **others)
    return run


@pytest.mark.parametrize(
    "text",
    [
        "srun CMD",
        'bash -c "CMD"',
        'sh -c "CMD"',
        "bash -lc 'CMD'",
        'srun --nodes 1 bash -c "CMD"',
        "docker run --gpus all --rm -v $PWD:/w -w /w img:1 CMD",
        'docker run --gpus all -it --rm img:1 bash -c "CMD"',
        "docker exec -it name CMD",
        "singularity exec --nv -B /a:/b img.sif CMD",
        "apptainer exec --nv img.sif CMD",
        "sbatch <<EOF\n#!/bin/bash\n#SBATCH --nodes 1\nCMD\nEOF",
        'sbatch --nodes=1 --wrap="CMD"',
        "ssh -p 22 host 'CMD'",
        "ssh host CMD",
        "ssh host <<EOF\nCMD\nEOF",
        "ssh host 'bash -s' <<EOF\nCMD\nEOF",
        "bash <<EOF\nCMD\nEOF",
        "bash -s <<EOF\nCMD\nEOF",
        'pdsh -w h[1-2] "CMD"',
        'tmux new -d -s x "CMD"',
        "tmux new-session -d -s x CMD",
        'tmux send-keys -t x "CMD" C-m',
        "screen -dmS x CMD",
        'screen -dmS x bash -c "CMD"',
        "echo 2 | xargs CMD --seed",
        "echo 2 | xargs -I X CMD --seed X",
        "kubectl exec pod -- CMD",
        'kubectl exec -it pod -n x -- bash -c "CMD"',
        "nohup CMD &",
        "timeout -k 5 3600 CMD",
        "numactl --cpunodebind=0 --membind=0 CMD",
        "numactl -m 0 -N 0 CMD",
        "env A=1 CMD",
        'env -S "A=1 CMD"',
        "env -u B -i A=1 CMD",
        "time CMD",
        "/usr/bin/time -f %M -o t CMD",
        "stdbuf -oL CMD",
        "ray job submit --working-dir . -- CMD",
        "nice -n 10 CMD",
        "taskset -c 0-3 CMD",
        "ionice -c 2 -n 7 CMD",
        'script -q -c "CMD" log',
        "setsid CMD",
        "sudo -E -u me CMD",
        "unbuffer CMD",
        "flock /tmp/l CMD",
        "caffeinate -i CMD",
        "podman run --rm img CMD",
        "docker compose run --rm svc CMD",
        "enroot start --rw img CMD",
        "uv run CMD",
        "conda run -n e --no-capture-output CMD",
        "nsys profile -o x --trace cuda CMD",
        'su - me -c "CMD"',
        "watch -n 5 CMD",
        "salloc -N 1 CMD",
        "pdsh -R ssh -w ^hf CMD",
        'parallel-ssh -H h -i "CMD"',
        'bash -euo pipefail -c "CMD"',
        "kubectl run p --image=x -- CMD",
        "docker exec -i n bash <<EOF\nCMD\nEOF",
        'mpirun -np 1 bash -c "CMD"',
        'gcloud compute ssh v --zone z --command "CMD"',
        'bsub -n 1 "CMD"',
        'sbatch --nodes 1 <<< "#!/bin/bash\nCMD"',
        "poetry run CMD",
        "dumb-init -- CMD",
    ],
)
def test_a_command_inside_of_another_one_is_read(tmp_path: Path, text: str) -> None:
    run = read_one(tmp_path, text.replace("CMD", CMD))
    assert run.launch.program == "openrlhf.cli.train_sft"
    known = facts(run.documents[0])
    assert (known["training.zero_stage"], known["training.micro_batch_size"]) == (3, 2)
    assert ranks(run.launch)["hardware.gpus_per_node"] == 8


@pytest.mark.parametrize(
    "text",
    ["bash other.sh", "bash -x ./other.sh", "source other.sh", ". ./other.sh", "./other.sh", "sbatch -N 2 other.sh",
     "srun bash other.sh 1 2", 'source "$(dirname "$0")/other.sh"', "exec bash other.sh"],
)  # fmt: skip
def test_a_file_beside_the_script_is_read_as_part_of_it(tmp_path: Path, text: str) -> None:
    run = read_one(tmp_path, text, other=f"\n{CMD}\n")
    assert facts(run.documents[0])["training.zero_stage"] == 3
    assert run.documents[0].place("zero_stage").place == f"{tmp_path}/other.sh:2"


def test_a_file_that_the_script_wrote_is_read(tmp_path: Path) -> None:
    run = read_one(tmp_path, f"cat > job.sh <<EOF\n{CMD}\nEOF\nbash ./job.sh")
    assert run.documents[0].place("zero_stage").place == f"{tmp_path}/run.sh:3"


def test_a_started_file_is_given_its_arguments(tmp_path: Path) -> None:
    runs = read(tmp_path, "bash other.sh 1\nbash other.sh 2", other=CMD.replace("stage 3", "stage $1"))
    assert [facts(run.documents[0])["training.zero_stage"] for run in runs] == [1, 2]


def test_a_sourced_file_sets_variables_up_to_its_return(tmp_path: Path) -> None:
    run = read_one(
        tmp_path,
        "source other.sh\n" + CMD.replace("stage 3", "stage $STAGE").replace("size 2", "size ${SIZE:-1}"),
        other="STAGE=2\nreturn 0\nSIZE=4\n",
    )
    assert facts(run.documents[0])["training.zero_stage"] == 2
    assert facts(run.documents[0])["training.micro_batch_size"] == 1


def test_launchers_around_a_shell_keep_their_ranks(tmp_path: Path) -> None:
    run = read_one(
        tmp_path, 'srun --nodes 4 --ntasks-per-node=8 bash -c "python -m openrlhf.cli.train_sft --zero_stage 3"'
    )
    assert ranks(run.launch) == {"hardware.nodes": 4, "hardware.world_size": 32}


@pytest.mark.parametrize("launcher", ["srun --nodes 1 --ntasks=1", "mpirun -np 1", "srun --ntasks=1 ray job submit --"])
@pytest.mark.parametrize(
    "command",
    [
        "python3 -m openrlhf.cli.train_ppo_ray --actor.num_nodes 1 --actor.num_gpus_per_node 8",
        "python3 -m verl.trainer.main_ppo trainer.nnodes=1 trainer.n_gpus_per_node=8",
        "env NPROC_PER_NODE=8 swift sft --model m",
        "env CUDA_VISIBLE_DEVICES=0,1,2,3,4,5,6,7 llamafactory-cli train a.yaml",
        "axolotl train a.yaml",
        "vllm serve m --tensor-parallel-size 8",
        "python -m sglang.launch_server --model-path m --tp 8",
    ],
)
def test_processes_that_start_their_ranks_are_no_ranks(tmp_path: Path, launcher: str, command: str) -> None:
    run = read_one(tmp_path, f"{launcher} {command}")
    assert "hardware.world_size" not in {fact for one in run.documents for fact in facts(one)}


def test_tasks_that_torchrun_starts_in_are_no_ranks(tmp_path: Path) -> None:
    run = read_one(
        tmp_path, "srun --ntasks=2 tune run --nproc_per_node 8 --nnodes 2 full_finetune_distributed --config c"
    )
    assert ranks(run.launch) == {"hardware.nodes": 2, "hardware.gpus_per_node": 8}


@pytest.mark.parametrize(
    ("text", "size", "given"),
    [
        ("export A=4\nbash -c 'CMD'", 4, {"A": "4"}),
        ("A=4\nbash -c 'CMD'", 9, {}),
        ("A=4 bash -c 'CMD'", 4, {"A": "4"}),
        ('A=4\nbash -c "CMD"', 4, {}),
        ("export A=4\nssh h 'CMD'", 9, {}),
        ("export A=4\ndocker run -e A -eB=1 i bash -c 'CMD'", 4, {"A": "4", "B": "1"}),
        ("export A=4\ndocker run i bash -c 'CMD'", 9, {}),
        ("export A=4\ndocker run -e B=1 i CMD", 4, {"B": "1"}),
        ("export A=4\nsingularity exec i bash -c 'CMD'", 4, {"A": "4"}),
        ("export A=4\nsingularity exec --cleanenv i bash -c 'CMD'", 9, {}),
        ("export A=4\nenv -u A bash -c 'CMD'", 9, {}),
        ("export A=4\nenv A=5 bash -c 'CMD'", 5, {"A": "5"}),
        ("export A=4\nsbatch <<'EOF'\nCMD\nEOF", 4, {"A": "4"}),
        ("bash -c 'CMD' name 3", 9, {}),
    ],
)
def test_variables_reach_what_they_reach(tmp_path: Path, text: str, size: int, given: dict[str, str]) -> None:
    run = read_one(tmp_path, text.replace("CMD", CMD.replace("size 2", "size ${A:-9}")))
    assert facts(run.documents[0])["training.micro_batch_size"] == size
    assert run.launch.variables == given


def test_arguments_of_text_for_a_shell(tmp_path: Path) -> None:
    run = read_one(tmp_path, "bash -c '" + CMD.replace("size 2", "size $1") + "' name 3")
    assert facts(run.documents[0])["training.micro_batch_size"] == 3


def test_the_header_of_a_job_inside_of_a_script(tmp_path: Path) -> None:
    job = (
        "#SBATCH --nodes=4\ntorchrun --nnodes $SLURM_NNODES --nproc_per_node 8 -m openrlhf.cli.train_sft --zero_stage 3"
    )
    run = read_one(tmp_path, f"sbatch <<'EOF'\n{job}\nEOF")
    assert ranks(run.launch) == {"hardware.nodes": 4, "hardware.gpus_per_node": 8}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("bash gone.sh", "line 2 starts gone.sh, which is not read"),
        ("docker run $IMG ./gone.sh", "starts ./gone.sh"),
        ('srun bash -c "$CMD"', "starts a shell that reads $CMD, which is not known"),
        ("curl x | bash", "starts a shell that reads $(curl …)"),
        ("bash run.sh", "starts run.sh, which is not read"),
    ],
)
def test_what_was_not_opened_is_named(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(InputError) as found:
        read(tmp_path, text)
    assert said in found.value.message


def test_a_missing_file_is_said_beside_what_was_read(tmp_path: Path) -> None:
    run = read_one(tmp_path, f"bash gone.sh\n{CMD}")
    assert [skip.reason for document in run.documents for skip in document.skipped] == [
        "starts gone.sh, which is not read: what it runs is not known"
    ]


WORDS = "openrlhf.cli.train_sft \\\n  --zero_stage 3 \\\n  --micro_train_batch_size 2"


@pytest.mark.parametrize(
    ("text", "place"),
    [
        (f"read -r -d '' words <<EOF\n{WORDS}\nEOF\ndeepspeed --module $words", "run.sh:4, used at :7"),
        (f'words="{WORDS}"\neval "deepspeed --module $words"', "run.sh:3, used at :5"),
        (f"words='deepspeed --module {WORDS}'\neval \"$words\"", "run.sh:3, used at :5"),
        (f'bash -c "deepspeed --module {WORDS}"', "run.sh:3"),
        (f"sbatch <<'EOF'\ndeepspeed --module {WORDS}\nEOF", "run.sh:4"),
    ],
)
def test_a_word_of_a_text_stands_in_its_own_line(tmp_path: Path, text: str, place: str) -> None:
    run = read_one(tmp_path, text)
    assert run.documents[0].place("zero_stage").place == f"{tmp_path}/{place}"


@pytest.mark.parametrize(
    "text",
    [
        "x=$(CMD)", "x=`CMD`", 'echo "$(CMD)"', "export X=$(CMD)", "x=(a $(CMD))", ": > $(CMD)", "cat <<< $(CMD)",
        "if CMD; then echo ok; fi", "! CMD", "while ! CMD; do sleep 1; done", "[[ $(CMD) == ok ]]", '[ "$(CMD)" = 1 ]',
        "case $(CMD) in a) ;; esac", "for x in $(CMD); do echo $x; done", "(( $(CMD) > 3 ))", 'echo "${x:-$(CMD)}"',
        "coproc CMD", "coproc X { CMD; }", "coproc X (CMD)", "cat <(CMD)", "tee >(CMD)", "mapfile -t a < <(CMD)",
        "go() { CMD; }; x=$(go)", "x=$(cd a && CMD | tee log)", "x=$(bash -c 'CMD')", "cat << EOF\n$(CMD)\nEOF",
        "trap 'CMD' EXIT", "trap -- 'CMD' USR1",
    ],
)  # fmt: skip
def test_a_training_that_is_started_for_its_output_is_read(tmp_path: Path, text: str) -> None:
    (tmp_path / "run.sh").write_text(f"#!/bin/bash\n{text.replace('CMD', CMD)}\n")
    ((name, run),) = read_launch_script(str(tmp_path / "run.sh"), named=False)
    assert name == str(tmp_path / "run.sh")
    assert facts(run.documents[0])["training.micro_batch_size"] == 2


@pytest.mark.parametrize("text", ["x=$(python3 count.py --seed 1)", "n=$(accelerate env)", "trap 'kill 0' EXIT"])
def test_a_question_is_no_training(tmp_path: Path, text: str) -> None:
    assert [run.launch.program for run in read(tmp_path, f"{text}\n{CMD}")] == ["openrlhf.cli.train_sft"]


def test_a_substitution_that_is_not_understood_is_said(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"line 2 \$\( … \) is not understood"):
        read(tmp_path, "x=$(if deepspeed train.py)")


@pytest.mark.parametrize(
    ("text", "condition"),
    [
        ('if [ -n "$RUN" ]; then\nCMD\nfi', '[ -n "$RUN" ]'),
        ('[ -n "$RUN" ] && CMD', '[ -n "$RUN" ]'),
        ("[ $# -gt 0 ] && CMD", "[ $# -gt 0 ]"),
        ("[[ -n $CUDA_VISIBLE_DEVICES ]] && CMD", "[[ -n $CUDA_VISIBLE_DEVICES ]]"),
        ('if [ -n "${SLURM_JOB_ID:-}" ]; then CMD; fi', '[ -n "${SLURM_JOB_ID:-}" ]'),
        ('MODE=${MODE:-debug}; if [ "$MODE" = full ]; then CMD; fi', '[ "$MODE" = full ]'),
        ("N=${NODES:-1}; if (( N > 1 )); then CMD; fi", "(( N > 1 ))"),
        ("case ${MODE:-debug} in full) CMD;; *) :;; esac", "case ${MODE:-debug} in full"),
        ('[ -z "$RUN" ] || CMD', '[ -z "$RUN" ]'),
        ('go() { [ "${MODE:-debug}" = full ] || return; CMD; }; go', '[ "${MODE:-debug}" = full ]'),
        ('for s in a b; do [ -z "$RUN" ] && continue; CMD --seed $s; done', '[ -z "$RUN" ]'),
        ('for seed in "$@"; do CMD --seed "$seed"; done', "for seed in $@"),
        ('x=$([ -n "$RUN" ] && CMD)', '[ -n "$RUN" ]'),
    ],
)  # fmt: skip
def test_a_training_that_starts_only_if_something_is_given_is_read(tmp_path: Path, text: str, condition: str) -> None:
    (tmp_path / "run.sh").write_text(f"#!/bin/bash\n{text.replace('CMD', CMD)}\n")
    _, run = next(read_launch_script(str(tmp_path / "run.sh"), named=False))
    assert facts(run.documents[0])["training.micro_batch_size"] == 2
    (said,) = [note for note in run.assumptions if "starts only under" in note]
    assert condition in said


def test_the_run_of_a_script_that_is_given_nothing_keeps_its_name(tmp_path: Path) -> None:
    text = f'if [ -n "$SLURM_JOB_ID" ]; then {CMD} --max_len 8192; else\n{CMD}; fi'
    path = tmp_path / "run.sh"
    path.write_text(f"#!/bin/bash\n{text}\n")
    found = [(name, run.assumptions) for name, run in read_launch_script(str(path), named=False)]
    assert found == [(str(path), ()), (f"{path}:2", (f'{path}:2: starts only under: [ -n "$SLURM_JOB_ID" ]',))]


def test_the_same_training_on_both_ways_counts_once(tmp_path: Path) -> None:
    read_one(tmp_path, f'if [ -n "$DEBUG" ]; then set -x; {CMD}; else {CMD}; fi')


def test_a_default_gives_way_where_another_value_is_asked_for(tmp_path: Path) -> None:
    text = f'N=${{N:-1}}; if [ "$N" -gt 1 ]; then {CMD} --seed $N; else {CMD} --seed 0$N; fi'
    one, two = read(tmp_path, text)
    assert [one.launch.arguments[-1].text, two.launch.arguments[-1].text] == ["01", None]


def test_of_runs_without_end_the_first_are_read_and_one_is_by_its_line(tmp_path: Path) -> None:
    runs = read(tmp_path, "\n".join(f"{CMD} --max_len {length}" for length in range(501)))
    assert len(runs) == 500
    (skipped,) = runs[0].documents[-1].skipped
    assert skipped.reason == "starts 501 runs, of which the first 500 were read"
    ((name, run),) = read_launch_script(str(tmp_path / "run.sh:502"), named=True)
    assert name.endswith("run.sh:502")
    assert not run.documents[-1].skipped


@pytest.mark.parametrize("word", ["--bf16", "actor_rollout_ref.model.path=x", "+trainer.n=1"])
@pytest.mark.parametrize("between", ["# a remark", "    # --flash_attn \\", ""])
def test_words_that_a_comment_cuts_off_are_said(tmp_path: Path, word: str, between: str) -> None:
    script = tmp_path / "go.sh"
    script.write_text(f"deepspeed train.py --deepspeed ds.json \\\n{between}\n  {word} \\\n  --x 1\n")
    skipped = [
        entry
        for _, run in read_launch_script(str(script), named=True)
        for one in run.documents
        for entry in one.skipped
    ]
    assert [entry for entry in skipped if "begins a command of its own" in entry.reason and entry.source.line == 3]


def test_an_edit_of_a_file_that_nobody_can_name_is_said(tmp_path: Path) -> None:
    script = tmp_path / "go.sh"
    script.write_text(
        "for f in configs/*.json; do\n  sed -i s/2/3/ $f\ndone\ndeepspeed train.py --deepspeed configs/ds.json\n"
    )
    skipped = [
        entry
        for _, run in read_launch_script(str(script), named=True)
        for one in run.documents
        for entry in one.skipped
    ]
    assert [
        entry for entry in skipped if "edits a file whose name is not known" in entry.reason and entry.source.line == 2
    ]


@pytest.mark.parametrize("word", ["per_device_train_batch_szie=16", "--per_device_train_batch_szie 16"])
def test_a_key_beside_a_file_that_nobody_knows_is_said(tmp_path: Path, word: str) -> None:
    script = tmp_path / "go.sh"
    script.write_text(f"llamafactory-cli train c.yaml {word}\n")
    ((_, run),) = read_launch_script(str(script), named=True)
    assert run.documents[0].unread == (("per_device_train_batch_szie", "per_device_train_batch_size"),)


@pytest.mark.parametrize("loop", [False, True])
def test_a_file_that_is_written_anew_is_to_each_run_what_it_held_by_then(tmp_path: Path, loop: bool) -> None:  # noqa: FBT001
    def write(stage: str) -> str:
        return f"echo '{{\"zero_optimization\": {{\"stage\": '{stage}'}}}}' > ds.json"

    start = "deepspeed --num_gpus 8 t.py --output_dir o --per_device_train_batch_size 1 --deepspeed ds.json"
    body = (
        f"for n in 2 3; do\n{write('$n')}\n{start}\ndone" if loop else f"{write('2')}\n{start}\n{write('3')}\n{start}"
    )
    stages = [
        stated.value
        for run in read(tmp_path, body)
        for document in run.documents
        for stated in document.statements
        if stated.fact == "training.zero_stage"
    ]
    assert stages == [2, 3]


_TRAINS = "deepspeed --num_gpus 8 t.py --output_dir o --per_device_train_batch_size 1 --deepspeed conf/ds.json"


@pytest.mark.parametrize(
    "text",
    [
        "cd sub\nTRAINS",
        "cd sub && TRAINS",
        "(cd -P -- ./sub; TRAINS)",
        "pushd sub\nTRAINS",
        "pushd other; popd; cd sub; TRAINS",
        "cd other; cd -; cd sub; TRAINS",
        "cd $HOME/work/proj/sub && TRAINS",
        "cd /workspace/proj/sub && TRAINS",
        'cd "$UNSET/sub"\nTRAINS',
        "cd $UNSET/sub/deeper/..\nTRAINS",
        'bash -c "cd sub && TRAINS"',
        'cd sub; bash -c "TRAINS"',
        "ssh host 'cd /data/proj/sub; TRAINS'",
        "env -C sub TRAINS",
        "sudo -D sub TRAINS",
        "srun --chdir=sub TRAINS",
        'srun -D sub bash -c "TRAINS"',
        'srun -D other bash -c "cd ../sub; TRAINS"',
        "#SBATCH --chdir=/home/me/proj/sub\nTRAINS",
        "sbatch <<EOF\n#!/bin/bash\n#SBATCH -D /home/me/proj/sub\nTRAINS\nEOF",
        'sbatch --chdir sub --wrap="TRAINS"',
        "docker run -w /srv/proj/sub img:1 TRAINS",
        "docker exec --workdir /srv/proj/sub name bash -c 'TRAINS'",
        "uv run --directory sub TRAINS",
        "conda run -n x --cwd sub TRAINS",
        "ray job submit --working-dir sub -- TRAINS",
        "bash sub/deeper/go.sh",
        "cd sub; bash deeper/go.sh",
        "cd /data/proj/sub; ./deeper/go.sh",
    ],
)
def test_what_a_command_names_is_looked_for_where_the_script_has_gone(tmp_path: Path, text: str) -> None:
    for folder in (".git", "conf", "sub/conf", "sub/deeper", "other"):
        (tmp_path / folder).mkdir(parents=True)
    for folder in ("conf", "sub/conf"):
        (tmp_path / folder / "ds.json").write_text("{}")
    (tmp_path / "sub/deeper/go.sh").write_text('cd "$(dirname "$0")/.."\n' + _TRAINS)
    run = read_one(tmp_path, text.replace("TRAINS", _TRAINS))
    assert [name for kind, name, _ in run.documents[0].references if kind == "deepspeed"] == ["sub/conf/ds.json"]


@pytest.mark.parametrize(
    "text",
    [
        "cd proj\nTRAINS",  # the name of the checkout itself
        "(cd sub; ls); TRAINS",
        "if [ -n $A ]; then cd sub; else cd other; fi\nTRAINS",
        "cd $UNSET\nTRAINS",
        "cd sub\ncd $UNSET\nTRAINS",
        "cd sub; ssh host 'TRAINS'",
        "pushd sub; popd; TRAINS",
    ],
)
def test_where_it_has_gone_to_no_place_of_the_project_names_stay(tmp_path: Path, text: str) -> None:
    for folder in (".git", "conf", "sub/conf", "other/conf"):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "ds.json").write_text("{}")
    run = read_one(tmp_path, text.replace("TRAINS", _TRAINS))
    assert [name for kind, name, _ in run.documents[0].references if kind == "deepspeed"] == ["conf/ds.json"]


@pytest.mark.parametrize(
    ("keys", "reader"),
    [
        ("stage: sft\ncutoff_len: 512\nfinetuning_type: full\n", "llamafactory"),
        ("output_dir: out\nper_device_train_batch_size: 1\n", "script"),
    ],
)
def test_a_script_that_is_given_a_file_of_another_program_is_that_program(
    tmp_path: Path, keys: str, reader: str
) -> None:
    (tmp_path / "sft.yaml").write_text(f"model_name_or_path: m\n{keys}")
    (tmp_path / "run.sh").write_text("accelerate launch --num_processes 4 src/train.py sft.yaml\n")
    ((_, run),) = read_launch_script(str(tmp_path / "run.sh"), named=True)
    assert run.documents[0].reader == reader
