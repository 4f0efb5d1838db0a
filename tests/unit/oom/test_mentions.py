"""What a log says in passing: the model, packages, settings; and silence where it says two things."""

from __future__ import annotations

from compatcheck.oom.mentions import read_mentions, read_packages

MODELS = {"qwen2.5-7b": ("Qwen/Qwen2.5-7B", "Qwen/Qwen2.5-7B-Instruct"), "llama-3-8b": ("meta-llama/Meta-Llama-3-8B",)}


def test_the_one_known_model_is_taken() -> None:
    assert read_mentions("--model_name_or_path Qwen/Qwen2.5-7B-Instruct --bf16", MODELS).model == "qwen2.5-7b"
    assert read_mentions("loading /hub/models--Qwen--Qwen2.5-7B/snapshots/0a1b", MODELS).model == "qwen2.5-7b"
    assert read_mentions("I train llama-3-8b on two cards", MODELS).model == "llama-3-8b"
    for text in ("Qwen2.5-7B全参微调", "模型Qwen2.5-7B，全参", "Qwen/Qwen2.5-7B全参", "用Qwen2.5-7B-Instruct训练"):
        assert read_mentions(text, MODELS).model == "qwen2.5-7b", text
    assert read_mentions("用Qwen2.5-7B-Instructor训练", MODELS).model is None


def test_a_name_with_its_ending_is_the_model_of_that_name_alone() -> None:
    models = {**MODELS, "qwen2.5-7b": ("Qwen/Qwen2.5-7B",), "qwen2.5-7b-instruct": ("Qwen/Qwen2.5-7B-Instruct",)}
    for text in ("loading Qwen/Qwen2.5-7B-Instruct", "my Qwen2.5-7B-Instruct", "with Qwen2.5 7B Instruct here"):
        assert read_mentions(text, models).model == "qwen2.5-7b-instruct", text
    assert read_mentions("a Qwen2.5-7B run", models).model == "qwen2.5-7b"
    assert read_mentions("Qwen2.5-7B, then Qwen2.5-7B-Instruct", models).model is None


def test_several_models_are_no_model() -> None:
    mentions = read_mentions("actor Qwen/Qwen2.5-7B and reward meta-llama/Meta-Llama-3-8B", MODELS)
    assert mentions.model is None


def test_a_model_that_is_not_known_is_named_and_nothing_is_assumed() -> None:
    mentions = read_mentions("actor Qwen/Qwen2.5-7B, critic Qwen/Qwen3-Omni-30B", MODELS)
    assert (mentions.model, mentions.unknown_models) == (None, ("Qwen/Qwen3-Omni-30B",))
    assert read_mentions("File models/llama/modeling_llama.py and scripts/qwen-run.sh", MODELS).unknown_models == ()


def test_packages_with_one_version_are_taken() -> None:
    log = "[pip3] torch==2.4.0+cu121\n- `transformers` version: 4.48.0\ndeepspeed==0.16.4\naccelerate 1.2.0\nPyTorch version: 2.4.0+cu121\n"
    packages = read_mentions(log + "vllm==0.6.3 then vllm==0.7.0", MODELS).packages
    assert packages == {
        "torch": "2.4.0+cu121",
        "transformers": "4.48.0",
        "deepspeed": "0.16.4",
        "accelerate": "1.2.0",
    }
    said = "We run\ntorch 2.5.1、transformers 4.48.3 (vllm 0.7), deepspeed 0.16.4; trl 0.15.1 then trl 0.16.0"
    assert read_packages(said) == {"torch": ("2.5.1", 2), "transformers": ("4.48.3", 2), "deepspeed": ("0.16.4", 2)}


def test_settings_with_one_value_are_taken() -> None:
    log = "tensor_parallel_size=4, max_num_seqs=256 --per_device_train_batch_size 2 --cutoff_len 4096 max_num_batched_tokens: 8192"
    settings = read_mentions(log, MODELS).settings
    assert settings == {
        "rollout.tensor_parallel": 4,
        "rollout.max_num_seqs": 256,
        "rollout.max_num_batched_tokens": 8192,
        "training.micro_batch_size": 2,
        "training.sequence_length": 4096,
    }
    assert read_mentions("--per_device_train_batch_size 2 … --per_device_train_batch_size 1", MODELS).settings == {}


def test_a_model_in_a_comment_of_code_is_not_the_one_that_ran() -> None:
    log = 'model_name = args.model\n    # or "Qwen/Qwen2.5-7B"\nname = find(args) # e.g. Qwen/Qwen2.5-7B\n# "Qwen/Qwen2.5-7B",\n'
    assert read_mentions(log, MODELS).model is None
    assert read_mentions("# OOM with Qwen/Qwen2.5-7B (two cards)\n", MODELS).model == "qwen2.5-7b"
    assert read_mentions("see #123 about Qwen/Qwen2.5-7B\n", MODELS).model == "qwen2.5-7b"


def test_a_value_of_thousands_of_digits_is_no_setting() -> None:
    log = f"per_device_train_batch_size={'7' * 4400} max_num_seqs=256"
    assert read_mentions(log, MODELS).settings == {"rollout.max_num_seqs": 256}


def test_names_are_told_whatever_their_case() -> None:
    log = "İ Transformers version: 4.48.0\nPyTorch version: 2.4.0+CU121\nTorch == 2.4.0+CU121\nTENSOR_PARALLEL_SIZE=4 qwen/QWEN2.5-7B"
    mentions = read_mentions(log, MODELS)
    assert mentions.packages == {"transformers": "4.48.0", "torch": "2.4.0+CU121"}
    assert (mentions.settings, mentions.model) == ({"rollout.tensor_parallel": 4}, "qwen2.5-7b")


def test_a_model_is_told_as_people_write_it_and_not_from_a_part_of_another_name() -> None:
    models = {**MODELS, "llama-7b": (), "phi-4": (), "qwen2.5-vl-7b": (), "llama-3.1-8b": ()}
    for text, name in {
        "OOM with Qwen2.5-VL 7B since today": "qwen2.5-vl-7b",
        "Llama 3.1 8B Instruct on 8 cards": "llama-3.1-8b",
        "llama3-8b": "llama-3-8b",
        "Code Llama 7B": None,
        "Phi 4 mini": None,
        "Phi-4-mini": None,
        "llama 31.8b": None,
        "qwen2.5 7b vl": None,
    }.items():
        assert read_mentions(text, models).model == name, text


def test_the_oldest_and_the_newest_release_are_told_where_several_are_named() -> None:
    changes = read_mentions("vllm==0.10.0, then vllm==0.9.1; trl==1.0.0; peft from v0.15.0 -> v0.17.0", MODELS).changes
    assert changes == {"vllm": ("0.9.1", "0.10.0"), "peft": ("0.15.0", "0.17.0")}


def test_a_list_of_all_releases_is_no_change() -> None:
    assert read_mentions("\n".join(f"vllm==0.{minor}.0" for minor in range(100)), MODELS).changes == {}


def test_a_repository_and_a_directory_are_no_models() -> None:
    for said in (
        "QwenLM/Qwen3-VL · issue #3",
        "hiyouga/LlamaFactory#12",
        "fixed in QwenLM/Qwen3-VL/pull/7",
        "output/Qwen9-7B-mine",
    ):
        assert read_mentions(said, MODELS).unknown_models == ()
    for said in (
        "--model path/Qwen2.5-7B-Instruct",
        "model_name = unsloth/Qwen2.5-7B",
        "Qwen/Qwen2.5-7B, saved to saves/qwen2_5-7b",
    ):
        assert read_mentions(said, MODELS).model == "qwen2.5-7b"
    assert read_mentions("unsloth/Qwen9-7B", MODELS).unknown_models == ("unsloth/Qwen9-7B",)
