"""CUDA, cuDNN, NCCL and cuBLAS that the system of an image ships: what dpkg and rpm installed, else the files themselves.

What the system ships and what torch loads are two things. Wheels of torch bring their own libraries or name the wheels
that do; a torch that was built in the image (NVIDIA's own, a source build) loads the system's.
"""

from __future__ import annotations

import posixpath
import re
from typing import TYPE_CHECKING

from compatcheck.core.environment import Package
from compatcheck.core.errors import InputError
from compatcheck.core.expected_shapes import as_table
from compatcheck.core.json_file import parse_json
from compatcheck.core.named_tuple import NamedTuple
from compatcheck.core.source import Skipped, Source

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from compatcheck.collectors.image.tree import ImageTree

DPKG_STATUS = "/var/lib/dpkg/status"
DPKG_DISTROLESS = "/var/lib/dpkg/status.d"
RPM_FOLDERS = ("/var/lib/rpm", "/usr/lib/sysimage/rpm", "/usr/share/rpm")
"""Where distributions keep rpm's database; the others are links to one of them."""
RPM_FILE = "rpmdb.sqlite"
_OTHER_RPM_FILES = {"Packages.db": "ndb's", "Packages": "Berkeley DB's"}
"""Databases of SUSE's rpm and of rpm before 4.16, whose formats are not read."""
STATUS_CHARACTERS = 32 << 20

_PACKAGES = {
    "cuda": r"(?:cuda-cudart|cuda-runtime|cuda-toolkit)-(\d+-\d+)",
    "cudnn": r"(?:lib)?cudnn\d*(?:-cuda-\d+)?",
    "nccl": r"libnccl2?",
    "cublas": r"libcublas-(\d+-\d+)",
    "nvcc": r"cuda-nvcc-(\d+-\d+)",
    "compat": r"cuda-compat-(\d+-\d+)",
}
"""Component → names of the packages that hold it, the same for dpkg and rpm (NVIDIA's repositories)."""
_LIBRARIES = {"cuda": "libcudart", "cudnn": "libcudnn", "nccl": "libnccl", "cublas": "libcublas"}
_FOLDERS = (
    "/usr/local/cuda/lib64",
    "/usr/local/cuda/targets/x86_64-linux/lib",
    "/usr/local/cuda/targets/sbsa-linux/lib",
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/usr/lib64",
    "/usr/local/lib",
)
"""Where NVIDIA's packages and archives put their libraries."""
_VARIABLES = {
    "cuda": ("CUDA_VERSION",),
    "cudnn": ("NV_CUDNN_VERSION", "CUDNN_VERSION"),
    "nccl": ("NV_LIBNCCL_PACKAGE_VERSION", "NCCL_VERSION"),
    "cublas": ("NV_LIBCUBLAS_VERSION", "CUBLAS_VERSION"),
}
"""Variables of the images ``nvidia/cuda`` and of NVIDIA's framework images."""
_COMPONENTS = ("cuda", "cudnn", "nccl", "cublas")
_VERSION = r"\d+(?:\.\d+)+"


class System(NamedTuple):
    """What the system ships; a component that is not in it was not found."""

    components: Mapping[str, Package]
    """``cuda``, ``cudnn``, ``nccl``, ``cublas``, with the package or file in ``details``; and ``nvcc``."""
    compatibility_driver: Package | None
    """The driver libraries of ``cuda-compat``, which let an older driver run this CUDA on data-centre devices."""
    notes: tuple[str, ...] = ()
    skipped: tuple[Skipped, ...] = ()


def read_system(files: ImageTree, environ: Mapping[str, str]) -> System:
    """Find what the system of an image ships: installed packages first, then files, then variables of the image."""
    packages, skipped, notes = _installed_packages(files)
    wanted = _linked_cuda(files)
    found: dict[str, Package] = {}
    for component, pattern in _PACKAGES.items():
        candidates = [package for package in packages if re.fullmatch(pattern, package.name)]
        versions = {str(package.version) for package in candidates}
        fitting = [package for package in candidates if wanted is None or _is_of(package, component, wanted)]
        if not candidates:
            continue
        chosen = (fitting or candidates)[0]
        found[component] = _as_component(component, chosen)
        if len(versions) > 1 and component in {"cuda", "cudnn", "nccl"}:
            others = ", ".join(f"{package.name} {package.version}" for package in candidates if package is not chosen)
            notes.append(f"the system also has {others}; {chosen.name} {chosen.version} is taken")
    for read in (_from_version_json, _from_libraries):
        for component, package in read(files).items():
            found.setdefault(component, package)
    for component, names in _VARIABLES.items():
        name = next((name for name in names if re.match(_VERSION, environ.get(name, ""))), None)
        if component not in found and name is not None:
            version = re.match(_VERSION, environ[name])
            source = Source("image configuration", key=name)
            found[component] = Package(component, version[0] if version else None, source, details={"variable": name})
    compat = found.pop("compat", None)
    return System(found, compat, tuple(notes), skipped)


def _as_component(component: str, package: Package) -> Package:
    """Name a system package after the component; its version is the upstream one, without what the distribution adds."""
    match = re.match(_VERSION, str(package.version))
    version = match[0] if match is not None else package.version
    return Package(component, version, package.source, details={"system": f"{package.name} {package.version}"})


def _is_of(package: Package, component: str, cuda: str) -> bool:
    """Tell whether a package belongs to the CUDA that ``/usr/local/cuda`` leads to."""
    match = re.fullmatch(_PACKAGES[component], package.name)
    release = match[1] if match is not None and match.re.groups else None
    if release is not None:
        return release == cuda.replace(".", "-")
    stated = re.search(r"\+cuda(\d+)", str(package.version)) or re.search(r"-cuda-(\d+)$", package.name)
    return stated is None or stated[1] == cuda.partition(".")[0]


def _linked_cuda(files: ImageTree) -> str | None:
    """Return ``12.4`` where ``/usr/local/cuda`` is a link to ``cuda-12.4``."""
    match = re.search(r"cuda-(\d+\.\d+)$", files.resolve("/usr/local/cuda"))
    return match[1] if match is not None else None


def _installed_packages(files: ImageTree) -> tuple[list[Package], tuple[Skipped, ...], list[str]]:
    """Return the packages of dpkg and rpm, what could not be read, and remarks."""
    packages: list[Package] = []
    notes: list[str] = []
    skipped: list[Skipped] = []
    statuses = [DPKG_STATUS] if files.is_file(DPKG_STATUS) else []
    if files.is_directory(DPKG_DISTROLESS):
        statuses += [f"{DPKG_DISTROLESS}/{name}" for name in sorted(files.list_names(DPKG_DISTROLESS))]
    for path in statuses:
        try:
            packages += read_dpkg(files.read_text(path, STATUS_CHARACTERS), path)
        except OSError as error:
            skipped.append(Skipped(Source(path), f"could not be read: {error.strerror}"))
    seen = set()
    for folder in RPM_FOLDERS:
        path = f"{folder}/{RPM_FILE}"
        if files.is_file(path) and files.resolve(path) not in seen:
            seen.add(files.resolve(path))
            found, unread = _read_rpm(files, path)
            packages += found
            skipped += unread
        for name, form in _OTHER_RPM_FILES.items():
            path = f"{folder}/{name}"
            if not seen and files.is_file(path):
                seen.add(files.resolve(path))
                notes.append(
                    f"{path} is an rpm database in {form} format, which is not read: what the system ships is told by its "
                    "libraries; rpm --rebuilddb with rpm 4.16 or later writes SQLite's"
                )
    return packages, tuple(skipped), notes


def read_dpkg(text: str, path: str) -> list[Package]:
    """Read a status file of dpkg; packages that were removed and left their configuration are not installed."""
    packages = []
    for stanza in re.split(r"\n[ \t]*\n", text):
        stated = re.findall(r"(?m)^(Package|Version|Status):(.*)$", stanza)
        fields = {name: value.strip(" \t") for name, value in stated}
        if "Package" in fields and "Version" in fields:
            installed = fields.get("Status", "install ok installed").endswith(" installed")
            if installed and _is_wanted(fields["Package"]):
                packages.append(Package(fields["Package"], _without_epoch(fields["Version"]), Source(path)))
    return packages


def _read_rpm(files: ImageTree, path: str) -> tuple[list[Package], list[Skipped]]:
    from compatcheck.collectors.image.rpm import RpmError, read_rpm_packages  # noqa: PLC0415 (images with rpm only)

    try:
        found = read_rpm_packages(files.read_bytes(path))
    except OSError as error:
        return [], [Skipped(Source(path), f"the rpm database could not be read: {error.strerror}")]
    except RpmError as error:
        return [], [Skipped(Source(path), str(error))]
    return [Package(name, version, Source(path)) for name, version in found if _is_wanted(name)], []


def _is_wanted(name: str) -> bool:
    return any(re.fullmatch(pattern, name) for pattern in _PACKAGES.values())


def _without_epoch(version: str) -> str:
    epoch, colon, rest = version.partition(":")
    return rest if colon and epoch.isdigit() else version


def _from_version_json(files: ImageTree) -> dict[str, Package]:
    """Read ``version.json`` of a CUDA toolkit, as its installer and packages write it since 11.1."""
    keys = {"cuda": ("cuda", "cuda_cudart"), "cublas": ("libcublas",), "nvcc": ("cuda_nvcc",)}
    for path in ("/usr/local/cuda/version.json", *files.glob("/usr/local/cuda-*/version.json")):
        try:
            content = parse_json(files.read_text(path), path)
        except (OSError, InputError):
            continue
        found = {}
        for component, names in keys.items():
            for name in names:
                version = as_table(as_table(content).get(name)).get("version")
                if isinstance(version, str) and re.fullmatch(_VERSION, version):
                    source = Source(path, key=name)
                    found[component] = Package(component, version, source, details={"system": posixpath.dirname(path)})
                    break
        if found:
            return found
    return {}


def _from_libraries(files: ImageTree) -> dict[str, Package]:
    """Read versions out of the names of libraries: ``libcudnn.so.9.1.0``."""
    found: dict[str, Package] = {}
    for folder in _FOLDERS:
        if not files.is_directory(folder):
            continue
        names = files.list_names(folder)
        for component, library in _LIBRARIES.items():
            version = newest(re.fullmatch(rf"{library}\.so\.(\d+(?:\.\d+)+)", name) for name in names)
            if version is not None and component not in found:
                source = Source(f"{folder}/{library}.so.{version}")
                found[component] = Package(component, version, source, details={"system": source.path})
    return found


def newest(matches: Iterable[re.Match[str] | None]) -> str | None:
    """Return the longest of several versions: ``libnccl.so.2`` and ``libnccl.so.2.21.5`` are one library."""
    versions = [match[1] for match in matches if match is not None]
    return max(versions, key=lambda version: (version.count("."), version), default=None)


def lay_under(
    components: Mapping[str, Package], system: System, *, loads_system: bool | None
) -> tuple[dict[str, Package], list[str]]:
    """Put what the system ships under what an environment brings itself.

    Args:
        components: of the environment.
        system: what the system ships.
        loads_system: whether its torch loads the system's libraries; None when that is not known, and nothing is added.
    """
    if loads_system:
        shipped = {name: system.components[name] for name in _COMPONENTS if name in system.components}
        return {**shipped, **components}, []
    notes = []
    for name in _COMPONENTS:
        package, own = system.components.get(name), components.get(name)
        if package is not None and own is not None and own.version != package.version:
            notes.append(f"the system's {name} {package.version} is not what torch loads ({own.version})")
        elif package is not None and own is None:
            notes.append(f"the system has {name} {package.version}; nothing tells that torch loads it")
    return dict(components), notes
