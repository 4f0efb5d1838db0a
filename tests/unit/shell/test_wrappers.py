"""One wrapper at a time: where the inner command begins."""

from __future__ import annotations

import shlex

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compatcheck.shell.wrappers import Shown, open_wrapper


def shown(text: str) -> list[Shown]:
    return [Shown(word, "$" not in word) for word in shlex.split(text)]


@pytest.mark.parametrize(
    ("text", "inner"),
    [
        ("nohup train -x", "train -x"),
        ("timeout -k5 --signal=INT 1h train", "train"),
        ("numactl -N0 --membind 1 train", "train"),
        ("docker run -itv /a:/b --gpus all --rm image train --rm", "train --rm"),
        ("docker --context c run image train", "train"),
        ("docker build .", None),
        ("docker run $OPTIONS image bash", "bash"),
        ("docker run $IMAGE bash", "bash"),
        ("docker run --gpus all vllm/vllm-openai:v1 --model m", "vllm/vllm-openai:v1 --model m"),
        ("docker run docker.io/vllm/vllm-openai-rocm a/b", "docker.io/vllm/vllm-openai-rocm a/b"),
        ("docker run vllm/vllm-openai:v1 python3 train", "python3 train"),
        ("docker run --entrypoint bash vllm/vllm-openai:v1 -c train", ""),
        ("kubectl exec -it pod -n space -- train -- x", "train -- x"),
        ("kubectl exec pod train", "train"),
        ("srun -N4 --gres gpu:8 --exclusive -l train", "train"),
        ("srun $OPTIONS python train.py", "python train.py"),
        ("mpirun -np 8 -x A=1 -mca btl tcp --allow-run-as-root train", "train"),
        ("ray job submit --working-dir . -- train", "train"),
        ("ray job submit -- A=1 B=2 train", "train"),
        ("conda run -n e --no-capture-output train", "train"),
        ("screen -dmS name train", "train"),
        ("strace -f -o log train -x", "train -x"),
        ("py-spy record -o a.svg -- train -x", "train -x"),
        ("gdb -ex run --args train -x", "train -x"),
        ("unshare -r train", "train"),
        ("doppler run -p a -- train", "train"),
        ("dotenv -f .env run train", "train"),
        ("uvx --from deepspeed train -x", "train -x"),
        ("train", None),
        ("$WRAPPER train", None),
    ],
)
def test_where_the_inner_command_begins(text: str, inner: str | None) -> None:
    words = shown(text)
    layer = open_wrapper(words)
    found = None if layer is None else [word.text for word in words[layer.start :]]
    assert found == (None if inner is None else inner.split())


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("bash -c TEXT name 1", "TEXT"),
        ("bash -euo pipefail -lc TEXT", "TEXT"),
        ("sbatch -N1 --wrap=TEXT", "TEXT"),
        ("sbatch --wrap TEXT", "TEXT"),
        ("su - me -c TEXT", "TEXT"),
        ("env -STEXT", "TEXT"),
        ("bash file -c x", None),
    ],
)
def test_which_word_is_text_for_a_shell(text: str, part: str | None) -> None:
    words = shown(text)
    layer = open_wrapper(words)
    assert layer is not None
    found = None if layer.text is None else words[layer.text.place].text[layer.text.offset :]
    assert found == part


WORDS = "bash docker run exec srun -c -it -- -N --env A=1 ssh env xargs -I su - $A tmux new kubectl"


@given(st.lists(st.sampled_from(WORDS.split())))
def test_nothing_is_taken_that_is_not_there(words: list[str]) -> None:
    layer = open_wrapper([Shown(word, "$" not in word) for word in words])
    assert layer is None or layer.start <= len(words)
