"""Find known memory regressions in an installed training stack and its configuration.

import compatcheck

compatcheck.check("uv.lock", "train.yaml", model="Qwen/Qwen2.5-32B", gpu="8xH100-80GB")
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from compatcheck.integrations.answers import Answer as Answer
    from compatcheck.integrations.answers import check as check
    from compatcheck.integrations.answers import estimate as estimate
    from compatcheck.integrations.answers import explain_oom as explain_oom

__version__ = "0.1.0"
__all__ = ["Answer", "check", "estimate", "explain_oom"]


def __dir__() -> list[str]:
    return [*__all__, "__version__"]


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from compatcheck.integrations import answers  # noqa: PLC0415 (not on the way of a command)

    return getattr(answers, name)
