"""What torch was built for, as a report states it or its version's label or conda's build string tells."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from compatcheck.collectors.python.components import TorchBuild, read_torch_build

if TYPE_CHECKING:
    from collections.abc import Mapping

    from compatcheck.collectors.conda.records import CondaPackage
    from compatcheck.core.environment import Package
    from compatcheck.core.source import Source


def read_build(
    torch: Package | None, values: Mapping[str, tuple[Any, Source]], conda: Mapping[str, CondaPackage]
) -> TorchBuild | None:
    """Return the build of torch; None where nothing says anything of it.

    "CUDA used to build PyTorch: None" says that it is no CUDA build; which other one it is, only a label tells.
    """
    stated = values.get("runtime.torch_cuda")
    if stated is not None and stated[0] is not None:
        return TorchBuild("cuda", str(stated[0]), stated[1])
    other = values.get("runtime.torch_build")
    if other is not None:
        return TorchBuild(str(other[0]), None, other[1])
    told = read_torch_build(torch, None, conda) if torch is not None and torch.version is not None else None
    if stated is not None:
        return TorchBuild(told.build if told is not None and told.cuda is None else None, None, stated[1])
    return told
