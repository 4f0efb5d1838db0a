"""Builds of one release of PyTorch's own distributions, told apart by their label (``2.6.0+cu118``), and their index."""

from __future__ import annotations

from compatcheck.core.pattern import lazy_compile

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

OF_PYTORCH = ("torch", "torchvision", "torchaudio")
"""Distributions that PyTorch publishes in the same builds; the last two are compiled against the first."""
_LABEL = lazy_compile(r"cpu|xpu|cu\d{2,3}|rocm\d[\d.]*", needs=("cpu", "xpu", "cu", "rocm"))
_INDEX = "https://download.pytorch.org/whl/"
"""PyPI has no release with a label: https://pytorch.org/get-started/previous-versions."""


def label_of(version: str | None) -> str:
    """Return the label of a version: ``cu118``; empty where it has none."""
    return (version or "").partition("+")[2]


def with_label(release: str, label: str) -> str:
    """Write a release with a label."""
    return f"{release}+{label}" if label else release


def label_beside(name: str, version: str | None, torch: str | None) -> str:
    """Return the label that a release of a distribution has beside a torch: torch's own, where PyTorch builds both."""
    label = label_of(torch)
    ours = name in OF_PYTORCH and torch is not None and (not label or _LABEL.fullmatch(label))
    return label if ours else label_of(version)


def index_of(version: str | None) -> str | None:
    """Return the index that has the build of a version; None where its label is none of PyTorch's."""
    label = label_of(version)
    return f"{_INDEX}{label}" if _LABEL.fullmatch(label) else None


def write_install(pins: Mapping[str, str], others: Iterable[str] = (), tool: str = "pip install") -> str:
    """Write the command that installs releases, with the index that has their builds.

    Args:
        pins: distribution → version, or range; only PyTorch's keep their label, no index has the others'.
        others: further requirements, as they are written.
        tool: that installs.
    """
    known = {name: label_of(version) for name, version in pins.items() if name in OF_PYTORCH}
    labels = dict.fromkeys(label for label in known.values() if _LABEL.fullmatch(label))
    kept = {name: version if known.get(name) in labels else version.partition("+")[0] for name, version in pins.items()}
    words = [f"'{name}{'' if version[:1] in set('<>=!~') else '=='}{version}'" for name, version in kept.items()]
    return " ".join((tool, *words, *others, *(f"--extra-index-url {_INDEX}{label}" for label in labels)))
