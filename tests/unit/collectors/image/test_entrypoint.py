import pytest

from compatcheck.collectors.image.entrypoint import Start, find_start
from compatcheck.rules.programs import installed_tools
from tests.unit.collectors.image.trees import PROGRAM, To, conda, debian, make_image, python, venv

FILES = {
    **debian(),
    **python("/usr/local", "3.12"),
    **venv("/opt/venv", "/usr/local", "3.12"),
    **conda("/opt/conda"),
    **conda("/opt/conda/envs/train", version="3.10"),
    **venv("/app/.venv", "/usr/local", "3.12"),
    "/opt/venv/bin/torchrun": "#!/opt/venv/bin/python\n",
    "/opt/conda/envs/train/bin/torchrun": "#!/opt/conda/envs/train/bin/python3.10\n",
    "/opt/venv/bin/accelerate": "#!/bin/sh\n'''exec' \"/opt/venv/bin/python\" \"$0\" \"$@\"\n' '''\n",
    "/opt/conda/bin/conda": "#!/opt/conda/bin/python\n",
    "/usr/bin/vllm": "#!/usr/bin/env python3\n",
    "/usr/bin/tini": PROGRAM,
    "/usr/bin/nginx": PROGRAM,
    "/entrypoint.sh": '#!/bin/bash\nset -e\n# python old.py\nsource /opt/venv/bin/activate\nexec "$@"\n',
    "/start.sh": "#!/usr/bin/env bash\n. /opt/conda/etc/profile.d/conda.sh\nconda activate train\npython -m train\n",
}
VENV, TRAIN = "/opt/venv/bin/python", "/opt/conda/envs/train/bin/python"


def start(*words, entrypoint=(), env=None, folder=None, files=FILES):
    image = make_image(files, entrypoint=entrypoint, cmd=words, env=env, folder=folder)
    return find_start(image.config, image.files)


@pytest.mark.parametrize(
    ("words", "executable"),
    [
        (("python3", "train.py"), "/usr/local/bin/python3"),
        (("/usr/bin/python3", "train.py"), "/usr/bin/python3"),
        (("/opt/venv/bin/python", "-m", "train"), VENV),
        (("/opt/venv/bin/torchrun", "train.py"), VENV),
        (("/opt/venv/bin/accelerate", "launch", "train.py"), VENV),
        (("vllm", "serve"), "/usr/local/bin/python3"),
        (("tini", "-g", "--", "/opt/venv/bin/torchrun", "x.py"), VENV),
        (("/usr/bin/env", "-u", "FOO", "A=1", "PATH=/opt/venv/bin:/usr/bin", "python", "x.py"), VENV),
        (("gosu", "app", "timeout", "-k", "5", "60", "nice", "-n", "5", "/opt/venv/bin/python", "x.py"), VENV),
        (("/bin/bash", "-c", "cd /opt && venv/bin/python x.py"), VENV),
        (("/bin/sh", "-c", "export PATH=/opt/venv/bin:$PATH; exec python x.py"), VENV),
        (("bash", "-c", ". /opt/venv/bin/activate && accelerate launch x.py"), VENV),
        (("bash", "-euo", "pipefail", "-c", 'if true; then\n  "$PY" x.py\nfi'), VENV),
        (("bash", "-c", "source /opt/conda/bin/activate train && torchrun x.py"), TRAIN + "3.10"),
        (("conda", "run", "--no-capture-output", "-n", "train", "python", "x.py"), TRAIN),
        (("conda", "run", "--prefix=/opt/conda/envs/train", "torchrun", "x.py"), TRAIN + "3.10"),
        (("micromamba", "run", "-n", "base", "python", "x.py"), "/opt/conda/bin/python"),
        (("uv", "run", "--frozen", "--extra", "gpu", "train.py"), "/app/.venv/bin/python"),
        (("uv", "run", "--no-sync", "python", "train.py"), "/app/.venv/bin/python"),
        (("poetry", "run", "python", "train.py"), "/app/.venv/bin/python"),
        (("/start.sh",), TRAIN),
        (("bash", "/start.sh"), TRAIN),
        (("bash", "-c", 'exec "$@"', "bash", "/opt/venv/bin/python", "x.py"), VENV),
        (("bash", "-c", 'exec "$0" "$@"', "/opt/venv/bin/python", "x.py"), VENV),
        (("mpirun", "-np", "8", "--bind-to", "none", "/opt/venv/bin/python", "x.py"), VENV),
        (("nsys", "profile", "-o", "out", "/opt/venv/bin/torchrun", "x.py"), VENV),
    ],
)
def test_command_names_the_interpreter(words, executable):
    found = start(*words, env={"PY": VENV}, folder="/app")
    assert found.executable == executable
    assert found.from_command
    assert found.doubts == ()
    assert " ".join(words)[:20] in found.reason or "\n" in " ".join(words)


def test_entry_script_hands_over_to_the_command():
    found = start("python", "train.py", entrypoint=("/entrypoint.sh",))
    assert found.executable == VENV
    assert found.reason == "/entrypoint.sh python train.py starts it"


def test_credentials_in_the_command_are_hidden():
    words = ("python", "x.py", "--hf-token", "abcdef")
    found = start(*words, entrypoint=("env", "API_KEY=abcdef"), env={"PATH": "/opt/venv/bin"})
    assert found.reason == "env API_KEY=[redacted] python x.py --hf-token [… starts it"


def test_path_of_the_image_decides_without_a_command():
    found = start(env={"PATH": "/opt/conda/envs/train/bin:/usr/bin"})
    assert found.executable == TRAIN
    assert not found.from_command
    assert found.reason == "first on PATH; there is no command"


def test_shell_finds_the_first_python_on_path():
    found = start("/bin/bash", env={"PATH": "/opt/venv/bin:/usr/bin"})
    assert (found.executable, found.from_command) == (VENV, False)
    assert found.reason == "first on PATH; /bin/bash starts no Python itself"


def test_root_directory_says_nothing():
    assert start() == Start(None, "nothing says what it starts", from_command=False)


def test_default_path_is_dockers():
    assert start("bash").executable == "/usr/local/bin/python"


@pytest.mark.parametrize("options", [("-lc",), ("-l", "-c"), ("--login", "-c"), ("-ic",)])
def test_login_shell_is_a_doubt(options):
    found = start("bash", *options, "python x.py", env={"PATH": "/opt/venv/bin:/usr/bin"})
    assert found.executable == VENV
    assert "login shell" in found.doubts[0]


def test_file_that_bash_reads_first_is_a_doubt():
    found = start("bash", "-c", "python x.py", env={"BASH_ENV": "/etc/start.env"})
    assert "BASH_ENV" in found.doubts[0]


def test_program_that_is_no_python_leaves_path_to_decide():
    found = start("nginx", "-g", "daemon off;")
    assert (found.executable, found.from_command) == ("/usr/local/bin/python", False)
    assert "nginx" in found.doubts[0]


def test_missing_interpreter_is_a_doubt():
    found = start("/opt/gone/bin/python", "x.py")
    assert not found.from_command
    assert "/opt/gone/bin/python" in found.doubts[0]


def test_variable_of_the_command_line_of_a_container_is_a_doubt():
    found = start("bash", "-c", "$PYTHON x.py")
    assert "$PYTHON" in found.doubts[0]


def test_unknown_conda_environment_is_a_doubt():
    assert "gone" in start("conda", "run", "-n", "gone", "python", "x.py").doubts[0]


def test_runner_without_its_environment_is_a_doubt():
    found = start("uv", "run", "train.py", folder="/srv")
    assert found.executable == "/usr/local/bin/python"
    assert "no .venv is in /srv" in found.doubts[0]


def test_variables_name_the_environment_where_path_has_no_python():
    assert start(env={"PATH": "/sbin", "VIRTUAL_ENV": "/opt/venv"}).executable == VENV
    found = start(env={"PATH": "/sbin", "CONDA_PREFIX": "/opt/conda/envs/train"})
    assert (found.executable, found.reason) == (TRAIN, "CONDA_PREFIX; PATH has no Python")


def test_image_without_python_starts_none():
    assert start("sh", files={"/bin/sh": PROGRAM}).executable is None


def test_scripts_that_start_each_other_end():
    files = {**debian(), "/a.sh": "#!/bin/sh\n/b.sh\n", "/b.sh": "#!/bin/sh\n/a.sh\n"}
    found = start("/a.sh", files=files)
    assert not found.from_command
    assert any("start each other" in doubt for doubt in found.doubts)


@pytest.mark.parametrize(
    "lines", ["pip install a\n%s\n", "aws s3 cp a b\n%s\n", "%s\naws s3 sync out b\n", "x=$(aws ls)\n%s\n"]
)
def test_console_scripts_before_and_after_the_program_decide_nothing(lines):
    files = {**FILES, "/usr/bin/aws": "#!/usr/bin/python3\n", "/usr/bin/pip": "#!/usr/bin/python3\n"}
    files["/entry.sh"] = "#!/bin/bash\n" + lines % "/opt/venv/bin/python train.py"
    found = start(entrypoint=("/entry.sh",), files=files)
    assert (found.executable, found.doubts) == (VENV, ())


def test_last_of_several_interpreters_is_started_and_the_others_are_said():
    text = "#!/bin/bash\n/usr/bin/python3 prepare.py\nsource /opt/conda/bin/activate train\nexec torchrun train.py\n"
    found = start(entrypoint=("/entry.sh",), files={**FILES, "/entry.sh": text})
    assert (found.executable, found.doubts) == (TRAIN + "3.10", ("a start script runs /usr/bin/python3, too",))


@pytest.mark.parametrize("tool", sorted(installed_tools()))
def test_tools_of_the_programs_train_and_do_not_prepare(tool):
    files = {**FILES, f"/opt/venv/bin/{tool}": "#!/opt/venv/bin/python\n"}
    files["/entry.sh"] = f"#!/bin/bash\n/usr/bin/python3 prepare.py\nexec /opt/venv/bin/{tool} train x.yaml\n"
    found = start(entrypoint=("/entry.sh",), files=files)
    assert (found.executable, found.doubts) == (VENV, ("a start script runs /usr/bin/python3, too",))
    assert start("mpirun", "-np", "8", f"/opt/venv/bin/{tool}", "train", "x.yaml", files=files).executable == VENV


@pytest.mark.parametrize(
    ("words", "from_command"),
    [
        (("python", "x.py"), True),
        (("/opt/venv/bin/python", "x.py"), True),
        (("torchrun", "x.py"), True),
        (("bash",), False),
    ],
)
def test_virtual_environment_without_its_python_is_chosen_with_a_doubt(words, from_command):
    files = {**FILES, VENV: To("/opt/uv/python/bin/python3.12")}
    found = start(*words, env={"PATH": "/opt/venv/bin:/usr/local/bin"}, files=files)
    assert (found.executable, found.from_command) == (VENV, from_command)
    text = "/opt/venv/bin/python is a link to /opt/uv/python/bin/python3.12, which leads to nothing in the image"
    assert found.doubts == (text,)


@pytest.mark.parametrize(
    "lines",
    [
        "cat <<EOT\ndon't /usr/bin/python3\nEOT\n",
        "cat <<-'EOT'\n\tpython a.py\n\tEOT\n",
        "echo it\\'s\necho don\\'t\n",
        'start() { exec "$@"; }\nstart "$@"\n',
        'case ${1:-none} in -*) set -- python "$@";; esac\n',
        'main=("$@")\nif ! command -v x; then pip list; fi\nexec "${main[@]}"\n',
        "case $1 in\n  *.txt) cat $1;;\nesac\n",
        'if [[ $# -eq 0 ]]; then\n  exec "/bin/bash"\nelse\n  :\nfi\n',
    ],
)
def test_what_scripts_do_before_they_hand_over(lines):
    files = {**FILES, "/entry.sh": f'#!/bin/bash\n{lines}exec "$@"\n'}
    found = start("/opt/venv/bin/python", "x.py", entrypoint=("/entry.sh",), files=files)
    assert (found.executable, found.doubts) == (VENV, ())


def test_quotation_mark_that_is_not_closed_is_a_doubt():
    files = {**FILES, "/entry.sh": '#!/bin/bash\necho don\'t\nexec "$@"\n'}
    found = start("/opt/venv/bin/python", "x.py", entrypoint=("/entry.sh",), files=files)
    assert not found.from_command
    assert found.doubts == ("/entry.sh:2 a single quote is not closed; the rest is not read",)


def test_what_is_sourced_is_read_and_directories_are_followed():
    files = {
        **FILES,
        "/app/env.sh": "PY=$1/bin/python\n",
        "/entry.sh": '#!/bin/bash\ncd /opt && . ../app/env.sh "$PWD/venv"\ncd venv\nexec $PY x.py\n',
    }
    found = start(entrypoint=("/entry.sh",), files=files)
    assert (found.executable, found.doubts) == (VENV, ())


def test_environment_that_may_be_activated_is_a_doubt():
    text = '#!/bin/bash\nif [ -n "$USE" ]; then . /opt/venv/bin/activate; fi\nexec "$@"\n'
    found = start("python", "x.py", entrypoint=("/entry.sh",), files={**FILES, "/entry.sh": text})
    assert (found.executable, found.doubts) == (VENV, ("PATH is known only when the container runs",))


def test_long_entry_script_is_followed_to_its_end():
    lines = "".join(f'if [ -n "$A{number}" ]; then\n  echo {number}\nfi\n' for number in range(300))
    files = {**FILES, "/opt/nvidia/nvidia_entrypoint.sh": f'#!/bin/bash\n{lines}exec "$@"\n'}
    found = start("/opt/venv/bin/python", "x.py", entrypoint=("/opt/nvidia/nvidia_entrypoint.sh",), files=files)
    assert (found.executable, found.doubts) == (VENV, ())


@pytest.mark.parametrize(
    "text",
    [
        "'" * 100_001,
        "(" * 200_000,
        "$" * 200_000,
        "${" * 100_000,
        "a=" * 100_000,
        "PATH=$PATH:$PATH\n" * 3000,
        "ls\n" * 20_000,
        "conda activate a\n" * 3000,
        "\\\n" * 100_000,
        ";" * 300_000,
        "\0",
    ],
)
def test_hostile_text_ends(text):
    assert not start("bash", "-c", text, files=debian()).from_command
