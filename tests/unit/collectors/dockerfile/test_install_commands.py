"""Shell texts: which commands install what, and what only the build knows."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compatcheck.collectors.dockerfile.install_commands import Install, read_install
from compatcheck.shell import read_script

VARIABLES = {"TORCH": "2.6.0", "FLAG": "--no-cache-dir -U", "EMPTY": "", "ON": "true"}


def _installs(text: str) -> list[Install]:
    script = read_script("Dockerfile", text, variables=VARIABLES, assuming=False)
    found = map(read_install, script.commands)
    return [install for install in found if install is not None]


def _names(text: str) -> list[str | None]:
    return [word.text for install in _installs(text) for word in install.requirements]


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("pip install torch==2.5.1", ["torch==2.5.1"]),
        ("apt-get update && pip3 install --no-cache-dir -U a 'b>=1,<2' && rm -rf x", ["a", "b>=1,<2"]),
        ("python3 -m pip --quiet install a", ["a"]),
        ("/opt/venv/bin/pip install a; pip3.11 install b", ["a", "b"]),
        ("uv pip install --system --torch-backend cu128 torch", ["torch"]),
        ("sudo -H env A=1 pip install a", ["a"]),
        ("MAX_JOBS=4 pip install flash-attn==2.7.4.post1 --no-build-isolation", ["flash-attn==2.7.4.post1"]),
        ("pip install torch==${TORCH} $FLAG x", ["torch==2.6.0", "x"]),
        ("pip install $EMPTY a", ["a"]),
        ("pip install -r req.txt -c con.txt --index-url https://i -e . a[b]", [".", "a[b]"]),
        ("pip install \"a\"'==1'", ["a==1"]),
        ("pip install a>=1.0", ["a"]),  # the shell takes it for a redirection
        ("pip install a 2>&1 > log", ["a"]),
        ("pip install \\\n  a \\\n  b # c", ["a", "b"]),
        ("conda install -y -c pytorch pytorch==2.5.1 pytorch-cuda=12.4", ["torch==2.5.1", "pytorch-cuda==12.4.*"]),
        ("mamba install 'numpy<2' conda-forge::peft", ["numpy<2", "peft"]),
        ("conda run -n env pip install a", ["a"]),
        ("pip install $(cat x) `y` ${UNKNOWN}", [None, None, None]),
        ("echo pip install a", []),
        ("pip download a; pip freeze; uv sync; uv pip sync x", []),
        ("export V=1.2 && pip install a==$V", ["a==1.2"]),
        ('if [ "$ON" = "true" ]; then pip install a; else pip install b; fi', ["a"]),
        ('if [ -z "$EMPTY" ]; then pip install a; fi', ["a"]),
        (
            "if [ $ON = true ]; then pip install a; elif [ $ON = x ]; then pip install b; else pip install c; fi; pip install d",
            ["a", "d"],
        ),
        ("if [ $ON = x ]; then pip install a; elif [ $ON = y ]; then pip install b; else pip install c; fi", ["c"]),
        ('if [ "$ON" != true ]; then pip install a; elif [ -n "$ON" ]; then pip install b; fi', ["b"]),
    ],
)
def test_what_is_installed(text: str, names: list[str | None]) -> None:
    assert _names(text) == names


@pytest.mark.parametrize(
    ("text", "certain"),
    [
        ("pip install a", [True]),
        ("if test -f x; then pip install a; fi; pip install b", [False, True]),
        ("for p in a b; do pip install $p; done", [True, True]),
        ("for p in $PS; do pip install x; done", [False]),
        ("[ -f x ] && a && pip install b; X=$(y) && pip install c", [False, True]),
        ("pip install a || pip install b", [True, False]),
        ("pip install a || true && pip install b", [True, True]),
        ("[ -f x ] && pip install a; pip install b", [False, True]),
        ("if x; then pip install a; else pip install b; fi", [False, False]),
        ("while true; do if x; then pip install a; fi; done", [False, False]),
    ],
)
def test_what_may_not_run_is_not_certain(text: str, certain: list[bool]) -> None:
    assert [install.certain for install in _installs(text)] == certain


def test_options_of_an_install() -> None:
    (install,) = _installs(
        "UV_TORCH_BACKEND=cu126 uv pip install --no-deps -rreq.txt --extra-index-url=https://x/whl/cu118 a"
    )
    assert install.settings == {"UV_TORCH_BACKEND": "cu126"}
    assert install.is_uv
    assert not install.dependencies
    assert [word.text for word in install.files] == ["req.txt"]
    assert install.indexes == ("https://x/whl/cu118",)


def test_uninstall_is_told_apart() -> None:
    (install,) = _installs("pip uninstall -y torch flash_attn")
    assert (install.kind, [word.text for word in install.requirements]) == ("uninstall", ["torch", "flash_attn"])


@given(st.text(alphabet="pip instal torch=$(){}[]\"'`\\\n;&|<>#if thenfi 12.", max_size=200))
def test_any_text_is_read_to_its_end(text: str) -> None:
    _installs(text)


def test_long_texts_take_time_in_proportion() -> None:
    assert len(_installs("pip install a && " * 4_000 + "pip install a")) == 4_001
    assert _installs("(" * 50_000 + '"' * 50_001 + "$(" * 50_000) == []
