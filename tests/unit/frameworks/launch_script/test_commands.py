"""Which commands of a script train, and what the script itself brings."""

from __future__ import annotations

import pytest

from compatcheck.frameworks.launch_script.commands import read_commands
from tests.unit.frameworks.launch_script.written_commands import command, facts, runs

HF = "--output_dir o --per_device_train_batch_size 4 --learning_rate 1e-5"


def test_every_training_command_counts_once() -> None:
    found = runs(
        f"torchrun a.py {HF}", "echo x", f"torchrun a.py {HF}", f"torchrun a.py {HF} --bf16", "axolotl train c.yml"
    )
    assert [run.launch.program for run in found] == ["a.py", "a.py", "axolotl train"]
    assert {run.line for run in found} == {7}


def test_a_deepspeed_file_the_script_writes_is_read_from_it() -> None:
    text = '{"zero_optimization": {"stage": 3}, # comment\n "train_micro_batch_size_per_gpu": 2}'
    ((launch, documents),) = runs(f"deepspeed --num_gpus 2 a.py {HF} --deepspeed ./ds.json", files={"ds.json": text})
    assert launch.program == "a.py"
    written = next(document for document in documents if document.reader == "deepspeed")
    assert facts(written)["training.zero_stage"] == 3
    assert written.source.path == "train.sh (ds.json)"
    assert not any(kind == "deepspeed" for document in documents for kind, _, _ in document.references)


def test_a_written_file_that_is_broken_is_said() -> None:
    ((_, documents),) = runs(
        f"deepspeed --num_gpus 2 a.py {HF} --deepspeed ds.json", files={"ds.json": '{"zero_optimization": '}
    )
    (skip,) = documents[0].skipped
    assert skip.reason.startswith("writes 'ds.json'")
    assert skip.source.line == 7


def test_a_program_nobody_knows_is_named_where_it_runs_on_many_ranks() -> None:
    ((_, documents),) = runs("torchrun --nproc_per_node 8 mine.py --layers 3")
    assert [skip.reason for skip in documents[0].skipped] == [
        "starts mine.py, whose options this release does not read"
    ]
    assert facts(documents[1]) == {"hardware.gpus_per_node": 8, "hardware.nodes": 1}
    ((_, (alone,)),) = runs("python -m pkg.mine --layers 3")
    assert (alone.references, alone.skipped) == ((("program", "pkg/mine.py", "(program)"),), ())
    ((_, (known, *_)),) = runs("torchrun --nproc_per_node 8 -m verl.trainer.fsdp_sft_trainer model.partial_pretrain=x")
    assert not any(kind == "program" for kind, _, _ in known.references)


def test_a_program_with_options_of_its_own_may_name_a_deepspeed_file() -> None:
    ((_, documents),) = runs("deepspeed --num_gpus 8 mine.py --deepspeed --deepspeed_config d.json")
    assert ("deepspeed", "d.json", "--deepspeed_config") in documents[0].references


@pytest.mark.parametrize(
    ("server", "training", "told"),
    [
        ("4,5", "0,1,2,3", False),
        ("3,4", "0,1,2,3", True),
        ("0", "", True),
        ("4,5", "", None),
        ("", "0,1", True),
    ],
)
def test_a_retriever_on_devices_of_its_own(server: str, training: str, *, told: bool | None) -> None:
    texts = {"python search/retrieval_server.py --faiss_gpu": server, "python -m verl.trainer.main_ppo": training}
    started = [command(text, **({"CUDA_VISIBLE_DEVICES": seen} if seen else {})) for text, seen in texts.items()]
    document = read_commands(started)[0].documents[0]
    assert facts(document).get("run.retriever_on_gpu") is told
    assert bool(document.unresolved) is (told is None)


def test_the_script_in_a_checkpoint_of_deepspeed_merges_it() -> None:
    ((_, documents),) = runs("python out/zero_to_fp32.py out/checkpoint-10 out/whole")
    assert facts(documents[0]) == {"run.converts_zero_checkpoint": True}


def test_a_retriever_on_the_devices_is_a_fact() -> None:
    ((_, documents),) = runs("python search/retrieval_server.py --index_path i --faiss_gpu")
    assert facts(documents[0]) == {"run.retriever_on_gpu": True}
    assert documents[0].place("faiss_gpu").line == 7


def test_an_index_on_the_cpu_shares_no_devices() -> None:
    ((_, documents),) = runs("python search_r1/search/retrieval_server.py --index_path i --retriever_name e5")
    assert facts(documents[0]) == {"run.retriever_on_gpu": False}


def test_whether_a_retriever_with_devices_of_its_own_shares_them_is_asked() -> None:
    ((_, documents),) = runs("python search/retrieval_server.py --index_path i --faiss_gpu", CUDA_VISIBLE_DEVICES="6,7")
    assert facts(documents[0]) == {}
    assert [one.fact for one in documents[0].unresolved] == ["run.retriever_on_gpu"]
