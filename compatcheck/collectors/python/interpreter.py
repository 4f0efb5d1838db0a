"""Which environment is inspected: its prefix, its package directories in import order, its Python version.

Everything follows from the layout of files by the rules of CPython's ``getpath`` and ``site``; the interpreter is never
run, because it may be broken, foreign to this machine, or older than this tool needs.
"""

import os
import re
import sys
from collections.abc import Mapping

from compatcheck.core.errors import InputError, UsageError
from compatcheck.core.files import LOCAL, Files
from compatcheck.core.named_tuple import NamedTuple
from compatcheck.core.source import Source
from compatcheck.core.units import parse_count

_LEVELS_ABOVE_EXECUTABLE = 2
_MOST_CHARACTERS = 65536
"""Of a ``pyvenv.cfg``; real ones have some hundred."""
_LONGEST_PATH = 4096
"""As of Linux: a longer one names nothing, and each of its directories would be looked for."""


class Layout(NamedTuple):
    """Where the packages of one environment lie."""

    prefix: str
    """``sys.prefix`` of the environment."""
    site_packages: tuple[str, ...]
    """Directories whose distributions can be imported, in import order; their ``.pth`` files are followed."""
    version: str | None
    """``3.11.7``, or ``3.11`` when the files do not tell the micro version."""
    chosen: str
    """How this environment came to be the one inspected: ``--python``, ``VIRTUAL_ENV``."""
    executable: str | None = None
    python_path: tuple[str, ...] = ()
    """Directories of ``PYTHONPATH``, which come before all others; their ``.pth`` files are not followed."""
    conda_meta: tuple[str, ...] = ()
    """``conda-meta`` directories whose packages are visible."""
    notes: tuple[str, ...] = ()
    lost: tuple[tuple[str, str], ...] = ()
    """Files that could not be read or followed, and why: packages may lie where they lead."""

    @property
    def origin(self) -> str:
        """Name the environment as a person would: its interpreter, or its prefix."""
        return self.executable or self.prefix


def locate(python: str | None, prefix: str | None, environ: Mapping[str, str], files: Files = LOCAL) -> Layout:
    """Find the environment a person means.

    Args:
        python: interpreter, as a path or a command on ``PATH``.
        prefix: directory of an environment, or a directory of packages (``pip install --target``).
        environ: environment variables; without ``python`` and ``prefix``, ``VIRTUAL_ENV``, then ``CONDA_PREFIX``, then
            the virtual environment of the working directory, then the tool's own prefix is taken.
        files: the tree that ``prefix`` lies in.

    Raises:
        InputError: no environment lies there.
        UsageError: both are given.
    """
    if python is not None and prefix is not None:
        raise UsageError("--python and --prefix name two environments", hint="give one of them")
    if python is not None:
        return layout_of_executable(_find_executable(python, environ), "--python", environ)
    if prefix is not None:
        return layout_of_prefix(prefix, "--prefix", environ, files=files)
    for variable in ("VIRTUAL_ENV", "CONDA_PREFIX"):
        value = environ.get(variable)
        if value:
            return layout_of_prefix(value, variable, environ)
    found = _find_virtual(os.getcwd())
    if found is not None:
        return layout_of_prefix(found, f"{_NONE_ACTIVE}: the nearest one here or above", environ)
    own = f"{_NONE_ACTIVE}, no .venv here or above: the one compatcheck itself runs in"
    return layout_of_prefix(sys.prefix, own, environ, executable=sys.executable or None)


_NONE_ACTIVE = "no environment is active"


def find_active(environ: Mapping[str, str]) -> str | None:
    """Return the interpreter of the active environment, or of the one in the working directory; None where there is none."""
    try:
        prefix = environ.get("VIRTUAL_ENV") or environ.get("CONDA_PREFIX") or _find_virtual(os.getcwd())
    except InputError:
        return None
    return None if prefix is None else _executable_in(prefix, LOCAL)


def _find_virtual(directory: str) -> str | None:
    """Return the nearest virtual environment at or above a directory: one it lies in, else its ``.venv``, else its ``venv``.

    The order is uv's, which goes up to the root and takes a ``.venv`` without a ``pyvenv.cfg`` for a broken environment, not
    for none; ``venv`` is a name that may stand for anything.
    https://github.com/astral-sh/uv/blob/main/crates/uv-python/src/virtualenv.rs

    Raises:
        InputError: the nearest ``.venv`` is broken.
    """
    while True:
        dotted = os.path.join(directory, ".venv")
        for prefix in (directory, dotted, os.path.join(directory, "venv")):
            if os.path.isfile(os.path.join(prefix, "pyvenv.cfg")):
                return prefix
            if prefix == dotted and (os.path.isdir(dotted) or os.path.islink(dotted)):
                raise InputError(
                    "is no virtual environment: it has no pyvenv.cfg",
                    source=Source(dotted),
                    hint="make it again, or name the environment that counts with --python or --prefix",
                )
        above = os.path.dirname(directory)
        if above == directory:
            return None
        directory = above


def _find_executable(python: str, environ: Mapping[str, str]) -> str:
    path = os.path.expanduser(python)
    if os.sep not in path and (os.altsep is None or os.altsep not in path) and not os.path.exists(path):
        for directory in environ.get("PATH", "").split(os.pathsep):
            for suffix in ("", ".exe") if os.name == "nt" else ("",):
                candidate = os.path.join(directory, path + suffix)
                if os.path.isfile(candidate) and os.access(candidate, os.X_OK):
                    return _follow_pyenv_shim(candidate, environ)
        raise InputError(
            f"no command {python!r} on PATH",
            source=Source("--python"),
            hint="give the path of an interpreter: --python /venv/bin/python",
        )
    path = os.path.abspath(path)
    source = Source("--python")
    if os.path.isdir(path):
        raise InputError(f"{python} is a directory, not an interpreter", source=source, hint=f"use --prefix {python}")
    if not os.path.lexists(path):
        raise InputError(
            f"{python} does not exist", source=source, hint="give the path of an interpreter: --python /venv/bin/python"
        )
    return _follow_pyenv_shim(path, environ)


def _is_python(path: str) -> bool:
    """Tell whether a file is called as interpreters are: ``python3.11``, ``pypy3``, ``.python-wrapped``, ``python3.13t.exe``."""
    name = os.path.basename(path).lower().removeprefix(".")
    rest = name.removeprefix("python").removeprefix("pypy").removesuffix(".exe").lstrip(".0123456789")
    return name.startswith(("python", "pypy")) and (not rest or rest.replace("_", "a").isalnum())


def _follow_pyenv_shim(path: str, environ: Mapping[str, str]) -> str:
    """Return what a pyenv shim would start: ``PYENV_VERSION``, ``.python-version``, then the global version."""
    shims, name = os.path.split(path)
    root = os.path.dirname(shims)
    if os.path.basename(shims) != "shims" or not os.path.isdir(os.path.join(root, "versions")):
        return path
    words = environ.get("PYENV_VERSION", "").replace(":", " ").split()
    folder = os.getcwd()
    while not words:
        words = _read(os.path.join(folder, ".python-version"), LOCAL).split()
        if folder == os.path.dirname(folder):
            break
        folder = os.path.dirname(folder)
    for word in words or _read(os.path.join(root, "version"), LOCAL).split():
        candidate = os.path.join(root, "versions", word, "bin", name)
        if os.path.exists(candidate):
            return candidate
    raise InputError(
        f"{path} is a pyenv shim and the version it would start is not known",
        source=Source("--python"),
        hint=f"give the interpreter itself: --python {root}/versions/VERSION/bin/python",
    )


def layout_of_executable(path: str, chosen: str, environ: Mapping[str, str], *, files: Files = LOCAL) -> Layout:
    """Find the environment an interpreter starts in.

    Args:
        path: the interpreter, absolute.
        chosen: how it came to be the one.
        environ: environment variables it would see.
        files: the tree it lies in.

    Raises:
        InputError: it is no interpreter, or no library belongs to it.
    """
    folder = os.path.dirname(path)
    source = Source(chosen)
    # As getpath does: the virtual environment is looked for beside the path as given, before links are resolved.
    for prefix in (folder, os.path.dirname(folder)):
        if files.is_file(os.path.join(prefix, "pyvenv.cfg")) and _is_python(path):
            return layout_of_prefix(prefix, chosen, environ, executable=path, files=files)
    real = files.resolve(path)
    if not files.is_file(real):
        raise InputError(
            f"{path} is a link to {real}, which does not exist",
            source=source,
            hint="recreate the environment, or name another one",
        )
    if not _is_python(real) or not files.is_program(real):
        raise InputError(
            f"{path} is not a Python interpreter",
            source=source,
            hint="give an interpreter (--python) or a directory (--prefix)",
        )
    prefix = os.path.dirname(real)
    for _ in range(_LEVELS_ABOVE_EXECUTABLE + 1):
        if _library_names(prefix, files) or files.is_file(os.path.join(prefix, "Lib", "os.py")):
            return layout_of_prefix(prefix, chosen, environ, executable=path, files=files)
        prefix = os.path.dirname(prefix)
    raise InputError(
        f"no Python library belongs to {path}", source=source, hint="name the environment's directory with --prefix"
    )


def layout_of_prefix(
    prefix: str,
    chosen: str,
    environ: Mapping[str, str],
    *,
    executable: str | None = None,
    files: Files = LOCAL,
) -> Layout:
    """Find the packages of the environment in a directory.

    Args:
        prefix: the directory.
        chosen: how it came to be the one.
        environ: environment variables its interpreter would see.
        executable: its interpreter, whose name decides where several Pythons share the prefix; looked for where it is
            not given.
        files: the tree it lies in.

    Raises:
        InputError: no environment lies there.
    """
    source = Source(chosen)
    prefix = os.path.abspath(os.path.expanduser(prefix))
    if not files.is_directory(prefix):
        reason = "is not a directory" if files.exists(prefix) else "does not exist"
        hint = "give the directory of an environment: --prefix /venv"
        if chosen in {"VIRTUAL_ENV", "CONDA_PREFIX"}:
            hint = f"unset {chosen}, or name the environment with --python or --prefix"
        raise InputError(f"{prefix} {reason}", source=source, hint=hint)
    place = os.path.join(prefix, "pyvenv.cfg")
    text, lost = _read_whole(place, files)
    config = _parse_config(text)
    executable = executable or _executable_in(prefix, files)
    library = _choose_library(prefix, executable, config.get("version_info") or config.get("version"), files)
    windows = os.path.join(prefix, "Lib", "site-packages")
    if library is None and not files.is_directory(windows):
        if _holds_packages(prefix, files):
            return Layout(prefix, (prefix,), None, chosen, python_path=_python_path(environ, files))
        raise InputError(
            f"{prefix} holds no Python environment",
            source=source,
            hint="expected lib/pythonX.Y below it, or packages in it; name another one with --python or --prefix",
        )
    is_venv = bool(config)
    system = config.get("include-system-site-packages", "").lower() == "true"
    base = _base_prefix(config, files) if system else None
    version = _find_version(prefix, library, config, files)
    notes = []
    folders = _site_packages(prefix, library, files, virtual=is_venv)
    enabled = (system or not is_venv) and not environ.get("PYTHONNOUSERSITE")
    user = _user_site(library, version, environ) if enabled else None
    if user is not None and files.is_directory(user):
        notes.append(f"the user's own packages count: {user}")
        # `site` puts them in front of the system's directories and behind those of the virtual environment.
        folders = [*folders, user] if is_venv else [user, *folders]
    metas = [os.path.join(prefix, "conda-meta")]
    if base is not None:
        base_library = (
            library
            if library is None or files.is_directory(os.path.join(base, "lib", library))
            else _choose_library(base, None, None, files)
        )
        folders += _site_packages(base, base_library, files, virtual=False)
        metas.append(os.path.join(base, "conda-meta"))
    elif system:
        lost = (*lost, (place, "asks for the system's packages, and the system's Python was not found"))
    return Layout(
        prefix,
        _distinct(folders, files),
        version,
        chosen,
        executable,
        _python_path(environ, files),
        tuple(meta for meta in metas if files.is_directory(meta)),
        tuple(notes),
        lost,
    )


def _executable_in(prefix: str, files: Files) -> str | None:
    for relative in ("bin/python", "bin/python3", "Scripts/python.exe", "python.exe", "bin/pypy3"):
        path = os.path.join(prefix, *relative.split("/"))
        if files.is_file(path):
            return path
    return None


def _library_names(prefix: str, files: Files) -> list[str]:
    """List ``pythonX.Y`` below ``lib`` and ``lib64``, oldest first."""
    names: set[str] = set()
    for lib in ("lib", "lib64"):
        try:
            names.update(name for name in files.list_names(os.path.join(prefix, lib)) if _library_key(name)[0])
        except OSError:
            continue
    return sorted(names, key=_library_key)


def _library_key(name: str) -> tuple[int, int, str]:
    """Split ``python3.13t`` into (3, 13, "t"); the first is 0 when the name is another directory's."""
    if not name.startswith(("python", "pypy")):
        return 0, 0, ""
    major, dot, minor = name.removeprefix("python").removeprefix("pypy").partition(".")
    digits = minor.removesuffix("t")
    numbers = parse_count(major), parse_count(digits)
    if not dot or numbers[0] is None or numbers[1] is None:
        return 0, 0, ""
    return numbers[0], numbers[1], "t" if digits != minor else ""


def _choose_library(prefix: str, executable: str | None, version: str | None, files: Files) -> str | None:
    """Return the ``pythonX.Y`` that belongs to this prefix when ``lib`` has several (``/usr`` often does)."""
    names = _library_names(prefix, files)
    if len(names) < 2:
        return names[0] if names else None
    wanted = []
    if version:
        wanted.append("python" + ".".join(version.split(".")[:2]))
    if executable:
        wanted.append(os.path.basename(files.resolve(executable)).removesuffix(".exe"))
    for name in wanted:
        if name in names:
            return name
    landmarks = [name for name in names if files.is_file(os.path.join(prefix, "lib", name, "os.py"))]
    return (landmarks or names)[-1]


def _site_packages(prefix: str, library: str | None, files: Files, *, virtual: bool) -> list[str]:
    """List the directories ``site.getsitepackages`` would, Debian's and Fedora's changes to it included."""
    if library is None:
        return [os.path.join(prefix, "Lib", "site-packages")]
    major = f"python{_library_key(library)[0]}"
    folders = []
    local = os.path.join(prefix, "local", "lib", library, "dist-packages")
    # Either may be there alone: pip's own, or that of Debian's packages.
    if not virtual and (
        files.is_directory(os.path.join(prefix, "lib", major, "dist-packages")) or files.is_directory(local)
    ):
        folders += [
            local,
            os.path.join(prefix, "lib", major, "dist-packages"),
            os.path.join(prefix, "lib", library, "dist-packages"),
        ]
        return folders
    roots = [prefix]
    # Fedora: the administrator's packages lie in /usr/local, before those of the distribution (library in lib64).
    if (
        not virtual
        and os.path.basename(prefix) == "usr"
        and files.is_file(os.path.join(prefix, "lib64", library, "os.py"))
    ):
        roots.insert(0, os.path.join(prefix, "local"))
    for root in roots:
        folders += [os.path.join(root, lib, library, "site-packages") for lib in ("lib64", "lib")]
    return folders


def _distinct(folders: list[str], files: Files) -> tuple[str, ...]:
    """Keep the first name of every directory that exists (lib64 is often a link to lib)."""
    seen = set()
    kept = []
    for folder in folders:
        try:
            identity = files.identify(folder)
        except OSError:
            continue
        if identity not in seen:
            seen.add(identity)
            # The plain name reads better than lib64's.
            plain = folder.replace(f"{os.sep}lib64{os.sep}", f"{os.sep}lib{os.sep}")
            kept.append(plain if plain != folder and _same_directory(plain, folder, files) else folder)
    return tuple(kept)


def _same_directory(one: str, other: str, files: Files) -> bool:
    try:
        return files.identify(one) == files.identify(other)
    except OSError:
        return False


def _user_site(library: str | None, version: str | None, environ: Mapping[str, str]) -> str | None:
    base = environ.get("PYTHONUSERBASE")
    if library is None:
        root = base or (os.path.join(environ["APPDATA"], "Python") if environ.get("APPDATA") else None)
        if root is None or version is None:
            return None
        return os.path.join(root, "Python" + "".join(version.split(".")[:2]), "site-packages")
    if base is None:
        home = environ.get("HOME")
        if not home:
            return None
        base = os.path.join(home, ".local")
    return os.path.join(base, "lib", library, "site-packages")


def _python_path(environ: Mapping[str, str], files: Files) -> tuple[str, ...]:
    entries = environ.get("PYTHONPATH", "").split(os.pathsep)
    return tuple(os.path.abspath(entry) for entry in entries if entry and files.exists(entry))


def _holds_packages(folder: str, files: Files) -> bool:
    try:
        return any(name.endswith((".dist-info", ".egg-info")) for name in files.list_names(folder))
    except OSError:
        return False


def _read(path: str, files: Files) -> str:
    try:
        return files.read_text(path)
    except OSError:
        return ""


def _read_whole(path: str, files: Files) -> tuple[str, tuple[tuple[str, str], ...]]:
    """Return the text of ``pyvenv.cfg``, empty where there is none, and what of it could not be read."""
    try:
        text = files.read_text(path, _MOST_CHARACTERS + 1)
    except (FileNotFoundError, NotADirectoryError):
        return "", ()
    except OSError as error:
        return "", ((path, f"could not be read: {error.strerror}"),)
    if len(text) > _MOST_CHARACTERS:
        return text, ((path, f"is longer than {_MOST_CHARACTERS:,} characters; the rest is not read"),)
    return text, ()


def _parse_config(text: str) -> dict[str, str]:
    """Read ``pyvenv.cfg`` as ``site`` does: lines with ``=``, keys in lower case."""
    config = {}
    for line in text.splitlines():
        key, equals, value = line.partition("=")
        if equals:
            config[key.strip().lower()] = value.strip()
    return config


def _base_prefix(config: Mapping[str, str], files: Files) -> str | None:
    """Return the prefix of the Python a virtual environment was made from."""
    home = config.get("home", "")
    home = "" if len(home) > _LONGEST_PATH else home
    candidates = [config.get("base-prefix", "")]
    executable = config.get("executable") or config.get("base-executable") or _python_in(home, files)
    executable = None if executable is not None and len(executable) > _LONGEST_PATH else executable
    for path in (files.resolve(executable) if executable else "", os.path.join(home, "python") if home else ""):
        folder = os.path.dirname(path)
        while folder and folder != os.path.dirname(folder):
            candidates.append(folder)
            folder = os.path.dirname(folder)
    for candidate in candidates:
        if candidate and (
            _library_names(candidate, files) or files.is_directory(os.path.join(candidate, "Lib", "site-packages"))
        ):
            return candidate
    return None


def _python_in(folder: str, files: Files) -> str | None:
    for name in ("python3", "python", "python.exe"):
        path = os.path.join(folder, name)
        if folder and files.exists(path):
            return path
    return None


def _find_version(prefix: str, library: str | None, config: Mapping[str, str], files: Files) -> str | None:
    """Return the version as exactly as the files tell it."""
    stated = config.get("version_info") or config.get("version")
    if stated:
        return stated.removesuffix(".final.0")  # as virtualenv writes it
    if files is LOCAL and _same_directory(prefix, sys.prefix, files):
        return ".".join(str(part) for part in sys.version_info[:3])
    short = None if library is None else ".".join(str(part) for part in _library_key(library)[:2])
    try:
        metas = files.list_names(os.path.join(prefix, "conda-meta"))
    except OSError:
        metas = []
    for name in metas:
        match = re.fullmatch(r"python-(\d+\.\d+\.\d+\w*)-[^-]+\.json", name)
        if match:
            return match[1]
    if library is not None and not library.startswith("pypy"):
        header = _read(os.path.join(prefix, "include", library, "patchlevel.h"), files)
        match = re.search(r'#define\s+PY_VERSION\s+"([^"+]+)', header)
        if match:
            return match[1]
    if os.path.basename(os.path.dirname(prefix)) == "versions" and os.path.basename(prefix)[:1].isdigit():
        return os.path.basename(prefix)
    return short
