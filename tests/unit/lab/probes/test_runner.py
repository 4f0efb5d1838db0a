"""The runner against probes that misbehave.

torch is a stand-in of a few lines here: what a worker does when a probe hangs, dies or floods has nothing to do with it, and
the real one is a gigabyte. Probes run with the real torch in tests/probes.
"""

import importlib.util
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import pytest

from compatcheck.core.errors import UsageError
from compatcheck.core.process import Completed
from compatcheck.core.programs import find_program
from compatcheck.lab.environments.installer import find_installer
from compatcheck.lab.environments.interpreter import Interpreter
from compatcheck.lab.environments.overlay import Base, Overlays
from compatcheck.lab.probes import allocator_counter
from compatcheck.lab.probes.allocator_counter import counter_library
from compatcheck.lab.probes.probe import Probe
from compatcheck.lab.probes.runner import (
    Limits,
    _clear_abandoned,
    explain_end,
    make_task,
    reproducing_command,
    run_tasks,
)
from tests import ROOT

TORCH = {
    "__init__.py": """
__version__ = "0"
class Tensor: ...
class UntypedStorage:
    def resize_(self, size): ...
class nn:
    Parameter = type("Parameter", (), {})
class cuda:
    is_available = staticmethod(lambda: False)
float32 = None
def manual_seed(seed): ...
def set_default_dtype(dtype): ...
def set_num_threads(count): ...
""",
    "utils/__init__.py": "",
    "utils/_pytree.py": "def tree_flatten(value): return [], None\n",
    "utils/_python_dispatch.py": """
class TorchDispatchMode:
    def __enter__(self): return self
    def __exit__(self, *arguments): ...
""",
}
PROBE = '''
"""A probe that does what it is told.

Nothing is derived.
"""
PACKAGES = ("nothing",)
BACKENDS = ("cpu", "cuda")
ACCOUNTING = "storages"
DEFAULTS = {"do": "measure", "number": 1}
SIZES = ()
METRIC = "answer"

def predict(parameters):
    return {"answer": 42}

def tolerance(parameters):
    return 0

def facts(parameters):
    return {}

def run(parameters, recorder):
    import os, sys, time
    with recorder.phase("first"):
        pass
    match parameters["do"]:
        case "measure":
            recorder.result("answer", 41 + parameters["number"])
            recorder.note("for the test")
        case "hang":
            time.sleep(60)
        case "exit":
            print("the last words", file=sys.stderr)
            os._exit(3)
        case "kill":
            os.kill(os.getpid(), 9)
        case "crash":
            os.kill(os.getpid(), 11)
        case "flood":
            while True:
                os.write(2, b"x" * 65536)
        case "raise":
            raise ValueError("wrong\\nthing")
        case "memory":
            raise MemoryError
        case "missing":
            import no_such_package_at_all
        case "variables":
            recorder.note(f"{os.environ.get('OBEYED')} {os.environ.get('PYTORCH_ALLOC_CONF')}")
        case "unsupported":
            recorder.unsupported("there is no such option")
        case "children":
            import subprocess
            child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
            open(os.environ["CHILD"], "w").write(str(child.pid))
            time.sleep(60)
'''


@pytest.fixture
def interpreter(tmp_path):
    for name, text in TORCH.items():
        path = tmp_path / "site" / "torch" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    environ = {"CHILD": str(tmp_path / "child")}
    return Interpreter(
        python=sys.executable, paths=(str(tmp_path / "site"),), versions={"nothing": "1"}, environ=environ
    )


@pytest.fixture
def probe(tmp_path):
    path = tmp_path / "obedient.py"
    path.write_text(PROBE)
    spec = importlib.util.spec_from_file_location("obedient", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return Probe("obedient", module, str(path))


def run(probe, interpreter, *actions, timeout_seconds=20.0, **options):
    kept = []
    tasks = [make_task(probe, {"do": action}) for action in actions]
    limits = Limits(timeout_seconds=timeout_seconds, **options)
    run_tasks(tasks, interpreter, keep=lambda _, one: kept.append(one), limits=limits)
    return kept


def test_what_a_killed_run_left_behind_is_removed_by_a_later_one(probe, interpreter, tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    old, young = tmp_path / "compatcheck-probe-old", tmp_path / "compatcheck-probe-young"
    for folder in (old, young):
        (folder / "inside").mkdir(parents=True)
    os.utime(old, (0, 0))
    _clear_abandoned.cache_clear()
    run(probe, interpreter, "measure")
    assert not old.exists()
    assert young.exists()


def test_what_another_run_works_in_is_kept_however_old_a_clock_that_jumped_makes_it(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    held = tmp_path / "compatcheck-probe-held"
    held.mkdir()
    os.utime(held, (0, 0))
    holds = (
        "import time; from compatcheck.lab.probes.runner import _locked\n"
        f"with _locked({str(held)!r}): print(1, flush=True); time.sleep(60)"
    )
    other = subprocess.Popen([sys.executable, "-c", holds], cwd=ROOT, stdout=subprocess.PIPE)
    assert other.stdout is not None
    other.stdout.readline()
    _clear_abandoned.cache_clear()
    _clear_abandoned()
    assert held.exists()
    other.kill()
    other.communicate()
    _clear_abandoned.cache_clear()
    _clear_abandoned()
    assert not held.exists()


def test_a_result_has_all_that_identifies_it(probe, interpreter):
    (one,) = run(probe, interpreter, "measure")
    assert one.status == "ok"
    assert one.results == {"answer": 42}
    assert one.reason == "for the test"
    assert one.parameters == {"do": "measure", "number": 1}
    assert one.probe_hash == probe.hash_for(one.parameters)
    assert one.accounting == "storages"
    assert [phase.name for phase in one.phases] == ["first"]
    assert one.versions["python"] == "{}.{}.{}".format(*sys.version_info[:3])
    assert probe.judge(one)[0] == "good"
    assert one.command == "compatcheck probe run obedient --backend cpu"


@pytest.mark.parametrize(
    ("action", "status", "reason"),
    [
        ("exit", "failed", "exit code 3: the last words"),
        ("crash", "failed", "it crashed (signal 11)"),
        ("raise", "failed", "ValueError: wrong thing (obedient.py:"),
        ("memory", "oom", "MemoryError"),
        ("missing", "unsupported", "needs no_such_package_at_all, which is not installed"),
        ("unsupported", "unsupported", "there is no such option"),
        ("flood", "failed", "printed more than"),
    ],
)
def test_a_failure_is_a_result_with_a_reason_and_the_others_go_on(probe, interpreter, action, status, reason):
    first, broken, last = run(probe, interpreter, "measure", action, "measure")
    assert (first.status, last.status) == ("ok", "ok")
    assert broken.status == status
    assert reason in broken.reason
    assert [phase.name for phase in broken.phases] == ["first"]
    assert probe.judge(broken)[0] == "skipped"


def test_a_hang_ends_and_says_where(probe, interpreter):
    start = time.monotonic()
    broken, last = run(probe, interpreter, "hang", "measure", timeout_seconds=1.0, retries=0)
    assert time.monotonic() - start < 20
    assert broken.status == "timeout"
    assert "obedient.py" in broken.reason
    assert last.status == "ok"


def test_a_kill_is_tried_again_once(probe, interpreter):
    tries = []
    task = make_task(probe, {"do": "kill"})
    run_tasks([task], interpreter, keep=lambda _, one: tries.append(one), limits=Limits(timeout_seconds=20))
    (one,) = tries
    assert one.status == "interrupted"
    assert "signal 9" in one.reason


def test_cancelling_keeps_what_was_finished_and_leaves_no_process(probe, interpreter):
    kept = []
    child = Path(interpreter.environ["CHILD"])
    tasks = [make_task(probe, {"do": "measure"}), make_task(probe, {"do": "children"})]
    with pytest.raises(KeyboardInterrupt):
        run_tasks(
            tasks,
            interpreter,
            keep=lambda _, one: kept.append(one),
            cancelled=lambda: child.exists() and child.read_text() != "",
        )
    assert [one.status for one in kept] == ["ok"]
    pid = int(child.read_text())
    for _ in range(100):
        if not _alive(pid):
            return
        time.sleep(0.05)
    pytest.fail("a grandchild is still there")


def _alive(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"


def test_an_interrupt_ends_the_process(probe, interpreter):
    # A shell switches interrupts off for what it starts in the background.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    timer = threading.Timer(2.0, lambda: os.kill(os.getpid(), signal.SIGINT))
    timer.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            run(probe, interpreter, "hang")
    finally:
        signal.signal(signal.SIGINT, before)


def test_an_interpreter_that_cannot_start_is_a_reason(probe, tmp_path):
    (one,) = run(probe, Interpreter(python=str(tmp_path / "none")), "measure")
    assert one.status == "failed"
    assert "could not be started" in one.reason


def test_a_probe_has_its_variables_before_torch_starts_and_its_process_to_itself(probe, interpreter, monkeypatch):
    monkeypatch.setenv("PYTORCH_ALLOC_CONF", "expandable_segments:True")
    # The person's own setting reaches a probe that does not say otherwise.
    assert run(probe, interpreter, "variables")[0].reason == "None expandable_segments:True"
    assert not make_task(probe, {}).alone
    probe.module.environ = lambda parameters: {"OBEYED": str(parameters["number"]), "PYTORCH_ALLOC_CONF": None}
    assert run(probe, interpreter, "variables")[0].reason == "1 None"
    assert make_task(probe, {}).alone


def test_without_torch_is_a_reason(probe):
    (one,) = run(
        probe, Interpreter(python=sys.executable, environ={"PYTHONPATH": "", "PYTHONSAFEPATH": "1"}), "measure"
    )
    assert one.status in {"unsupported", "ok"}  # ok where the tests' own interpreter has torch
    if one.status == "unsupported":
        assert "needs torch" in one.reason


def test_a_back_end_that_is_not_there_is_unsupported(probe, interpreter):
    kept = []
    run_tasks([make_task(probe, {}, "cuda")], interpreter, keep=lambda _, one: kept.append(one))
    assert kept[0].status == "unsupported"
    assert "no CUDA device" in kept[0].reason


def test_a_back_end_the_probe_does_not_have_is_an_error(probe):
    with pytest.raises(UsageError, match="cannot run on fake"):
        make_task(probe, {}, "fake")


@pytest.mark.parametrize(
    ("parameters", "hint"), [({"numer": 1}, "did you mean 'number'?"), ({"number": "many"}, "its default is 1")]
)
def test_parameters_are_checked(probe, parameters, hint):
    with pytest.raises(UsageError) as error:
        make_task(probe, parameters)
    assert error.value.hint == hint


def test_the_command_that_runs_it_again_names_what_differs(probe):
    assert reproducing_command(make_task(probe, {"do": "raise", "number": 2})) == (
        "compatcheck probe run obedient --backend cpu --param do=raise --param number=2"
    )


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="a parent's death is told on Linux only")
def test_a_worker_does_not_outlive_a_runner_that_was_killed(probe, interpreter, tmp_path):
    script = tmp_path / "run.py"
    script.write_text(
        "import sys, importlib.util\n"
        f"sys.path.insert(0, {str(ROOT)!r})\n"
        "from compatcheck.lab.environments.interpreter import Interpreter\n"
        "from compatcheck.lab.probes.probe import Probe\n"
        "from compatcheck.lab.probes.runner import make_task, run_tasks\n"
        f"spec = importlib.util.spec_from_file_location('obedient', {probe.path!r})\n"
        "module = importlib.util.module_from_spec(spec); spec.loader.exec_module(module)\n"
        f"interpreter = Interpreter(python=sys.executable, paths={interpreter.paths!r}, environ={dict(interpreter.environ)!r})\n"
        f"run_tasks([make_task(Probe('obedient', module, {probe.path!r}), {{'do': 'children'}})], interpreter, keep=print)\n"
    )
    child = Path(interpreter.environ["CHILD"])
    runner = subprocess.Popen([sys.executable, str(script)])
    for _ in range(200):
        if child.exists() and child.read_text():
            break
        time.sleep(0.05)
    worker = int(Path(f"/proc/{child.read_text()}/stat").read_text().rpartition(")")[2].split()[1])
    runner.kill()
    runner.wait()
    for _ in range(100):
        if not _alive(worker):
            break
        time.sleep(0.05)
    os.kill(int(child.read_text()), signal.SIGKILL)
    assert not _alive(worker)


def test_a_cache_that_cannot_be_written_is_said(probe, interpreter, monkeypatch, tmp_path):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("COMPATCHECK_CACHE", str(tmp_path / "file" / "cache"))
    with pytest.raises(UsageError, match="cannot be written"):
        run(probe, interpreter, "measure")


def test_an_overlay_that_cannot_be_kept_is_said(tmp_path):
    (tmp_path / "file").write_text("")
    base = object.__new__(Base)
    base.python, base.version, base.versions = sys.executable, "3.11.7", {"torch": "2.13.0"}
    overlays = Overlays(base, installer=find_installer("pip"), directory=tmp_path / "file" / "environments")
    with pytest.raises(UsageError, match="cannot be written: Not a directory") as error:
        overlays.open(["x==1"])
    assert error.value.hint == "name another place in COMPATCHECK_CACHE"


def test_a_counter_that_cannot_be_kept_is_said(monkeypatch, tmp_path):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("COMPATCHECK_CACHE", str(tmp_path / "file" / "cache"))
    monkeypatch.setattr(
        allocator_counter, "find_program", lambda _: find_program("true")
    )  # a compiler need not be here
    counter_library.cache_clear()
    try:
        with pytest.raises(UsageError, match="cannot be written") as error:
            counter_library()
    finally:
        counter_library.cache_clear()
    assert error.value.hint == "name another place in COMPATCHECK_CACHE"


STACK = """Timeout (0:00:03)!
Thread 0x1 (most recent call first):
  File "<frozen importlib._bootstrap_external>", line 1131 in get_data
  File "<frozen importlib._bootstrap>", line 690 in _load_unlocked
  File "/home/p/.cache/compatcheck/environments/0123456789abcdef0123/transformers/utils/generic.py", line 30 in <module>
  File "<frozen importlib._bootstrap>", line 1178 in _find_and_load
  File "/usr/lib/python3.11/site-packages/compatcheck/lab/probes/catalog/masks.py", line 63 in run
  File "/usr/lib/python3.11/site-packages/compatcheck/lab/probes/worker/main.py", line 88 in _run_task
"""


def test_a_limit_that_ends_an_import_is_not_a_hang_of_the_probe():
    status, reason = explain_end(Completed(STACK, 1, None), began=True, timeout_seconds=3)
    assert status == "timeout"
    assert reason == (
        "the time limit of 3 s ended while importing transformers/utils/generic.py for "
        "compatcheck/lab/probes/catalog/masks.py:63"
    )


def test_a_hang_is_told_with_its_stack_and_the_limit():
    lines = [line for line in STACK.splitlines(keepends=True) if "frozen" not in line]
    _, reason = explain_end(Completed("".join(lines), 1, None), began=True, timeout_seconds=2.5)
    assert reason.startswith(
        "the time limit of 2.5 s ended while it hung in transformers/utils/generic.py:30 in <module>"
    )


def test_the_stack_of_a_hang_is_the_one_of_the_thread_that_runs_the_probe():
    lines = [line for line in STACK.splitlines(keepends=True) if "frozen" not in line]
    monitor = 'Thread 0x2 (most recent call first):\n  File "/usr/lib/python3.11/threading.py", line 331 in wait\n\n'
    _, reason = explain_end(Completed("".join([lines[0], monitor, *lines[1:]]), 1, None), began=True, timeout_seconds=3)
    assert "threading" not in reason
    assert "it hung in transformers/utils/generic.py:30 in <module>" in reason


def test_runs_that_are_forked_off_share_imports_and_nothing_else(probe, interpreter):
    probe.module.FORKS = True
    text = Path(probe.path).read_text()
    counting = ("global COUNT", "COUNT += 1", 'recorder.result("answer", 41 + COUNT)')
    case = "".join(['        case "count":\n', *(f"            {line}\n" for line in counting)])
    told = text.replace('        case "measure":\n', case + '        case "measure":\n')
    told += "\nimport os\nCOUNT = 0\ndef prepare(parameters):\n    os.environ['OBEYED'] = f'by {os.getpid()}'\n"
    Path(probe.path).write_text(told)
    found = run(probe, interpreter, "count", "variables", "crash", "count", "hang", "count", timeout_seconds=3.0)
    assert [one.status for one in found] == ["ok", "ok", "failed", "ok", "ok", "timeout"]  # what hung is tried again
    assert [one.results["answer"] for one in found if one.results] == [42, 42, 42]
    assert found[1].reason.startswith("by ")
    assert "crashed (signal 11)" in found[2].reason
    assert "hung in" in found[5].reason
