"""Nodes of a job that never ran."""

from __future__ import annotations

from compatcheck.core.environment import Environment, Package
from compatcheck.core.hardware import Hardware
from compatcheck.core.node import Node
from compatcheck.core.source import Source

SITE = "/opt/venv/lib/python3.11/site-packages"
RELEASES = {"torch": "2.6.0", "deepspeed": "0.16.8", "nvidia-nccl-cu12": "2.21.5", "ray": "2.60.0", "pytest": "8.3"}
HARDWARE = Hardware(
    Source("nvidia-smi"), "H100-80GB", 85520809984, 9.0, 132, 8, driver="550.54.15", host_memory_bytes=2**41
)


def draw(
    name: str,
    releases: dict[str, str | None] | None = None,
    variables: dict[str, str] | None = None,
    hardware: Hardware | None = HARDWARE,
    **more: object,
) -> Node:
    """Return a node with the releases of most nodes, but for those that are given; None takes a package away."""
    stated = {name: version for name, version in {**RELEASES, **(releases or {})}.items() if version is not None}
    packages = {
        name: Package(name, version, Source(f"{SITE}/{name}-{version}.dist-info")) for name, version in stated.items()
    }
    nccl = packages.get("nvidia-nccl-cu12")
    environment = Environment(
        "/opt/venv/bin/python",
        packages,
        complete=True,
        python="3.11.7",
        components={} if nccl is None else {"nccl": nccl._replace(name="nccl")},
        variables=variables or {},
        variables_complete=True,
        variables_source=Source("environment of this process"),
        hardware=hardware,
    )
    return Node(name, "0.1.0", environment, **more)  # type: ignore[arg-type]
