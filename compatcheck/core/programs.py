"""Programs of this machine that may be started: named by their whole path, and never out of what is inspected.

``PATH`` often leads through the active environment, and at times through ``.`` or the checkout: a package or a repository that
ships a program called ``nvidia-smi`` or ``git`` would be executed by whoever only looks at it.
"""

import os
import re
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from contextvars import ContextVar

from compatcheck.core.named_tuple import NamedTuple

_WINDOWS = sys.platform == "win32"
_SYSTEM = {"/usr/bin", "/bin", "/usr/sbin", "/sbin", "/usr/lib/wsl/lib"} | (
    {os.path.join(os.environ.get("SYSTEMROOT", "C:\\Windows"), "System32")} if _WINDOWS else set()
)
"""What the system's own package manager writes alone."""
_PERSONAL = ("~/.local/bin", "~/.cargo/bin", "~/bin")
"""Where installers put a person's programs: good also for one who works in, or inspects, the home directory."""
_ENVIRONMENT_MARKS = ("pyvenv.cfg", "conda-meta")
_ACTIVE = ("VIRTUAL_ENV", "CONDA_PREFIX")
_KEPT = (
    r"(?:HOME|USER|LOGNAME|LANG|TZ|TE?MP|TMPDIR|NETRC|SYSTEMROOT|WINDIR|COMSPEC|PATHEXT|(?:LOCAL)?APPDATA|PROGRAMDATA|USERPROFILE"
    r"|\w+_PROXY|SSL_CERT_\w+|\w+_CA_BUNDLE|(?:XDG|PIP|UV)_\w+)"
)

LED_ASTRAY = "a link in a checkout, in what is inspected or into .git leads there"
_MOST_LINKS = 40
"""On the way to a file, as of Linux."""

_inspected: ContextVar[frozenset[str]] = ContextVar("inspected", default=frozenset())
_named: ContextVar[frozenset[str]] = ContextVar("named", default=frozenset())
_shown: ContextVar[frozenset[str]] = ContextVar("shown", default=frozenset())


class Program(NamedTuple):
    """Where a program is, or why it is not started."""

    name: str
    path: str | None
    """None where there is none that may be started."""
    refused: str | None = None
    """The first one on ``PATH`` that was passed over, because it lies in what is inspected."""

    def describe_absence(self) -> str:
        """Say why there is none."""
        if self.refused is None:
            return f"there is no {self.name}"
        return (
            f"{self.refused} is not run: it lies in an environment, in what is inspected or in the working directory, "
            f"and there is no other {self.name}"
        )


def distrust(*paths: str, named: bool = True) -> None:
    """Start no program from these directories, those of these files, nor their checkouts, in this context from now on.

    Args:
        paths: what is inspected.
        named: whether the person named them, so that they may be changed and quoted; else what is inspected did.
    """
    folders = {path if os.path.isdir(path) else os.path.dirname(path) or os.curdir for path in paths if path != "-"}
    checkouts = set(map(_checkout_of, folders))
    _inspected.set(_inspected.get() | checkouts)
    if named:
        _named.set(_named.get() | checkouts)


def show(*paths: str) -> None:
    """Let the words of these files, which a person named beside what is inspected, and of their checkouts be said back."""
    _shown.set(_shown.get() | {_checkout_of(os.path.dirname(path) or os.curdir) for path in paths})


def is_named(path: str) -> bool:
    """Tell whether a file lies, behind all links, in what a person named to be inspected, or its checkout."""
    return any(_lies_in(os.path.realpath(path), root) for root in _named.get())


def lies_beside(path: str, file: str) -> bool:
    """Tell whether a path lies, behind all links, in the checkout of a file, or below its directory where that is in none."""
    return _lies_in(os.path.realpath(path), _checkout_of(os.path.dirname(os.path.abspath(file))))


def leads_out(path: str) -> bool:
    """Tell whether a file that is there lies, behind all links, outside of what is inspected: nobody named it but that."""
    if not _inspected.get() or not os.path.exists(path):
        return False
    real = os.path.realpath(path)
    return not any(_lies_in(real, root) for root in _named.get() | _shown.get())


def is_led_astray(path: str) -> bool:
    """Tell whether a path to write to goes through a link of a checkout, or of what is inspected, or by a link into a ``.git``.

    Whoever wrote the checkout chose where such a link leads; one that stands elsewhere is the person's own.
    """
    place, waiting, led = os.path.splitdrive(os.path.abspath(os.curdir))[0] + os.sep, _split(os.path.abspath(path)), 0
    while waiting:
        part = waiting.pop()
        whole = os.path.dirname(place) if part == os.pardir else os.path.join(place, part)
        if not os.path.islink(whole):
            place = whole
            continue
        led += 1
        if led > _MOST_LINKS or any(_lies_in(place, root) for root in {*_inspected.get(), *_git_above(place)}):
            return True
        target = os.readlink(whole)
        place = os.sep if os.path.isabs(target) else place
        waiting += _split(target)
    return bool(led) and ".git" in place.split(os.sep)


def _split(path: str) -> list[str]:
    """Return the parts of a path, the first at the end."""
    return [part for part in reversed(os.path.splitdrive(path)[1].split(os.sep)) if part not in {"", os.curdir}]


def _git_above(folder: str) -> tuple[str, ...]:
    """Return the checkout that a directory lies in, unless it is that of the home, or there is none."""
    checkout = _checkout_of(folder)
    return (checkout,) if os.path.exists(os.path.join(checkout, ".git")) else ()


def _checkout_of(folder: str) -> str:
    """Return the checkout that a directory lies in, without links; itself where it lies in none, or in that of the home."""
    here = real = os.path.realpath(folder)
    home = os.path.realpath(os.path.expanduser("~"))
    while here not in {home, os.path.dirname(here)}:
        if os.path.exists(os.path.join(here, ".git")):
            return here
        here = os.path.dirname(here)
    return real


def find_program(
    name: str, environ: Mapping[str, str] | None = None, *, own: bool = True, also: Sequence[str] = ()
) -> Program:
    """Find a program on ``PATH`` outside of what is inspected.

    Args:
        name: without a folder.
        environ: its ``PATH``, and the environment that is active; this process's by default.
        own: whether the installation that this runs in is asked first (`pip install uv` beside it): it is trusted as this
            program is. False where it may be what is inspected.
        also: folders behind those of ``PATH``.
    """
    environ = os.environ if environ is None else environ
    file = f"{name}.exe" if _WINDOWS else name
    refused = None
    home = own_programs()
    for folder in (*([home] if own else []), *environ.get("PATH", "").split(os.pathsep), *also):
        path = os.path.join(folder, file)
        if not folder or not os.access(path, os.X_OK) or os.path.isdir(path):
            continue
        if (own and folder == home) or is_trusted(folder, environ, path):
            return Program(name, path)
        refused = refused or os.path.abspath(path)
    return Program(name, None, refused)


def own_programs() -> str:
    """Return the folder of programs of the installation that this runs in."""
    return os.path.join(sys.prefix, "Scripts" if _WINDOWS else "bin")


def is_trusted(folder: str, environ: Mapping[str, str], path: str | None = None) -> bool:
    """Tell whether what lies in a folder may be loaded: it is absolute, in no environment and in nothing that is inspected.

    Args:
        folder: as ``PATH`` names it.
        environ: names the active environment.
        path: the file in it that is meant; a link may lead elsewhere.
    """
    plain = os.path.normpath(folder)
    if plain in _SYSTEM:
        return True
    parent = os.path.dirname(plain)
    if not os.path.isabs(folder) or any(os.path.exists(os.path.join(parent, mark)) for mark in _ENVIRONMENT_MARKS):
        return False
    real = {os.path.realpath(plain), *([os.path.realpath(path)] if path else [])}
    roots = {os.path.realpath(environ[name]) for name in _ACTIVE if environ.get(name)} | _inspected.get()
    with suppress(OSError):  # it was deleted: nothing can lie in it
        roots.add(_checkout_of(os.getcwd()))
    home = os.path.realpath(os.path.expanduser("~"))
    if plain in {os.path.expanduser(place) for place in _PERSONAL}:
        roots = {root for root in roots if not _lies_in(home, root)}
    # Who works in `/` has not chosen the whole machine as a project.
    return not any(_lies_in(one, root) for one in real for root in roots if os.path.dirname(root) != root)


def _lies_in(path: str, root: str) -> bool:
    return path == root or path.startswith(os.path.join(root, ""))


def small_environment(environ: Mapping[str, str] | None = None, *, more: str = "") -> dict[str, str]:
    """Return the variables that programs are started with: proxies, indexes and directories of the person, and trusted paths.

    Args:
        environ: what they are taken from, this process's by default.
        more: names of further ones, as a regular expression.
    """
    environ = os.environ if environ is None else environ
    wanted = re.compile(f"{_KEPT}|{more}" if more else _KEPT, re.IGNORECASE)
    kept = {name: value for name, value in environ.items() if wanted.fullmatch(name)}
    for name in ("PATH", "LD_LIBRARY_PATH"):  # the driver's libraries are found by the second on some machines
        if value := trusted_path(environ.get(name, ""), environ):
            kept[name] = value
    return kept


def trusted_path(value: str, environ: Mapping[str, str] | None = None) -> str:
    """Return a list of folders without those that are inspected, relative, or of an environment."""
    environ = os.environ if environ is None else environ
    folders = dict.fromkeys(value.split(os.pathsep))
    return os.pathsep.join(folder for folder in folders if folder and is_trusted(folder, environ))
