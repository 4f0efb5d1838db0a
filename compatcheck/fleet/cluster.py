"""A Ray cluster as the place where pieces of work are done.

A worker runs the code and the rules of this process, sent to it by content: whatever release is installed on its node, the
results are those of this one. What the code needs (click, packaging, PyYAML) Ray needs itself. There is no ``runtime_env``, which
would make another environment than the node's, and nothing is imported from where the command was started, which Ray puts on the
path of workers.

A worker or a node that is lost has its piece done again elsewhere by Ray, a few times. What no node can do, because it does not
see the inputs or has another torch, is done here, and that is said once for each reason.
"""

from __future__ import annotations

import os
import pickle
import threading
import zipfile
from contextlib import contextmanager
from hashlib import sha256
from io import BytesIO
from typing import TYPE_CHECKING, Any, TypeVar

import compatcheck
from compatcheck.core.errors import CompatcheckError, InputError, UsageError
from compatcheck.core.source import Source
from compatcheck.fleet.ray import connect
from compatcheck.rules.locate import COMPILED, open_builtin

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from compatcheck.core.place import Work

R = TypeVar("R")
_POLL_SECONDS = 0.2
_RETRIES = 3
"""How often Ray does a piece again whose worker or node was lost; then it is done here."""
_MOST_SAID = 200


@contextmanager
def open_cluster(address: str, note: Callable[[str], None]) -> Iterator[Cluster]:
    """Connect to a cluster and leave it again; what is still done there by then is given up.

    Args:
        address: as `ray.init` takes it.
        note: takes what is to be said about pieces that are done here.

    Raises:
        UsageError: Ray is not there.
        InputError: no cluster answers, or it has no processors to give.
    """
    with connect(address, "--ray") as ray:
        found = Cluster(ray, note)
        if not found.jobs:
            said = "no node offers a processor"
            raise InputError(said, source=Source(f"--ray {address}"), hint="`ray status` shows the cluster")
        if ray.available_resources().get("CPU", 0) < 1:
            note(f"no processor of {address} is free: work waits until one is, and `ray status` shows what takes them")
        yield found


class Cluster:
    """Does pieces of work on the nodes of a cluster; see `compatcheck.core.place.Place`."""

    def __init__(self, ray: Any, note: Callable[[str], None]) -> None:  # noqa: ANN401 (Ray's module)
        """Send the code to a cluster that Ray is connected to; `note` takes what is to be said."""
        code = pack_code()
        self._ray = ray
        self._note = note
        self._noted: set[str] = set()
        self._here = threading.BoundedSemaphore(os.cpu_count() or 1)
        self._code, self._digest = ray.put(code), sha256(code).hexdigest()[:20]
        self._task = ray.remote(max_retries=_RETRIES, scheduling_strategy="SPREAD")(_make_task())
        nodes = [record["Resources"] for record in ray.nodes() if record["Alive"]]
        self.jobs: int | None = sum(int(resources.get("CPU", 0)) for resources in nodes)
        self._devices = max(
            (int(resources.get("GPU", 0)) for resources in nodes if resources.get("CPU", 0) >= 1), default=0
        )

    def do(self, work: Work[R], keep: Callable[[R], None], cancelled: Callable[[], bool]) -> None:
        """See `Place`."""
        results, why = self._do_there(work, cancelled)
        if why is None:
            for result in results:
                keep(result)
            return
        if why not in self._noted:
            self._noted.add(why)
            self._note(f"done here and not on the cluster: {why}")
        with self._here:
            work.run(keep, cancelled)

    def _do_there(self, work: Work[R], cancelled: Callable[[], bool]) -> tuple[list[R], str | None]:
        """Return the results of work, or why no node could do it."""
        ray = self._ray
        if work.devices > self._devices:  # Ray waits for ever for a node that there is none of
            return [], f"{work.devices} GPUs are asked for, and no node offers more than {self._devices}"
        task = self._task.options(num_gpus=work.devices)
        try:
            reference = task.remote(self._code, self._digest, os.getcwd(), pickle.dumps(work))
            while not ray.wait([reference], timeout=_POLL_SECONDS)[0]:
                if cancelled():
                    ray.cancel(reference)
                    raise KeyboardInterrupt
            results, why = pickle.loads(ray.get(reference))  # noqa: S301 (written by our own worker)
        except ray.exceptions.RayError as error:
            said = " ".join(str(getattr(error, "cause", None) or error).split())
            return [], said[:_MOST_SAID]
        return results, why


def pack_code() -> bytes:
    """Return this package with its compiled rules as an archive, alike for alike content.

    Raises:
        UsageError: it is one file that Python runs, which has no laboratory to send.
    """
    archive = BytesIO()
    root = os.path.dirname(os.path.abspath(compatcheck.__file__))
    if not os.path.isdir(root):
        raise UsageError("--ray needs compatcheck as an installed package", hint="pip install 'compatcheck[fleet]'")
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as file:
        for parent, folders, names in os.walk(root):
            folders[:] = sorted(name for name in folders if name != "__pycache__")
            for name in sorted(names):
                path = os.path.join(parent, name)
                if path != COMPILED:
                    with open(path, "rb") as stream:
                        file.writestr(zipfile.ZipInfo(os.path.relpath(path, os.path.dirname(root))), stream.read())
        file.writestr(zipfile.ZipInfo(os.path.relpath(COMPILED, os.path.dirname(root))), open_builtin().read_all())
    return archive.getvalue()


def _make_task() -> Callable[[bytes, str, str, bytes], bytes]:
    """Return what runs on a node: sent whole, for compatcheck may be missing there, or be of another release."""

    def work(code: bytes, digest: str, started_in: str, pickled: bytes) -> bytes:
        import io  # noqa: PLC0415 (on the node)
        import os  # noqa: PLC0415
        import shutil  # noqa: PLC0415
        import sys  # noqa: PLC0415
        import tempfile  # noqa: PLC0415
        import zipfile  # noqa: PLC0415

        base = os.path.join(tempfile.gettempdir(), f"compatcheck-code-{os.getuid()}")
        own = os.path.join(base, digest)
        if own not in sys.path:
            os.makedirs(base, 0o700, exist_ok=True)
            if os.path.islink(base) or os.lstat(base).st_uid != os.getuid() or os.lstat(base).st_mode & 0o022:
                own = os.path.join(tempfile.mkdtemp(prefix="compatcheck-code-"), digest)  # another's: it is not trusted
            if not os.path.isdir(own):
                scratch = tempfile.mkdtemp(dir=os.path.dirname(own))
                zipfile.ZipFile(io.BytesIO(code)).extractall(scratch)
                try:
                    os.rename(scratch, own)
                except OSError:  # another worker was faster
                    shutil.rmtree(scratch)
            inspected = os.path.realpath(started_in)
            sys.path[:] = [own, *(path for path in sys.path if path and os.path.realpath(path) != inspected)]
            for name in [name for name in sys.modules if name.partition(".")[0] == "compatcheck"]:
                del sys.modules[name]
        from compatcheck.fleet.cluster import do_pickled  # noqa: PLC0415

        return do_pickled(pickled)

    return work


def do_pickled(pickled: bytes) -> bytes:
    """Do a piece of work on the node that this runs on; return its results, or why it cannot be done there, pickled."""
    results: list[object] = []
    if os.environ.get("CUDA_VISIBLE_DEVICES") == "":  # by Ray, for a task that asks for no device
        del os.environ["CUDA_VISIBLE_DEVICES"]
    try:
        pickle.loads(pickled).adopt().run(results.append, lambda: False)  # noqa: S301 (of our own command)
    except CompatcheckError as error:
        return pickle.dumps(([], str(error)))
    return pickle.dumps((results, None))
