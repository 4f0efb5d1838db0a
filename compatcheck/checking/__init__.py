"""The application: from a request to gathered inputs, subjects and a report; what `compatcheck` prints, as Python values.

Every function takes what is asked (`Request`, or an `Inspection` with a policy), the rules (`open_rules`) and the variables of
the process; it prints nothing, keeps nothing, and raises `compatcheck.core.errors.CompatcheckError`::

    from compatcheck.checking import Request, check, open_rules

    report = check(Request(paths=("uv.lock", "train.yaml"), gpu="8xH100-80GB"), open_rules(), os.environ)
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from compatcheck.checking.checks import Checks as Checks
    from compatcheck.checking.comparison import compare as compare
    from compatcheck.checking.description import Description as Description
    from compatcheck.checking.description import describe as describe
    from compatcheck.checking.estimates import EstimateOptions as EstimateOptions
    from compatcheck.checking.estimates import Estimates as Estimates
    from compatcheck.checking.estimates import estimate as estimate
    from compatcheck.checking.explanation import Explanations as Explanations
    from compatcheck.checking.explanation import explain as explain
    from compatcheck.checking.fix import find_fix as find_fix
    from compatcheck.checking.gathering import gather as gather
    from compatcheck.checking.inspection import Inspection as Inspection
    from compatcheck.checking.inspection import PolicyUse as PolicyUse
    from compatcheck.checking.inspection import make_inspection as make_inspection
    from compatcheck.checking.out_of_memory import explain_oom as explain_oom
    from compatcheck.checking.report import check as check
    from compatcheck.checking.request import Request as Request
    from compatcheck.rules.locate import open_rules as open_rules

_MODULES = {
    "Checks": "checking.checks",
    "Description": "checking.description",
    "Estimates": "checking.estimates",
    "Explanations": "checking.explanation",
    "Inspection": "checking.inspection",
    "PolicyUse": "checking.inspection",
    "Request": "checking.request",
    "EstimateOptions": "checking.estimates",
    "check": "checking.report",
    "compare": "checking.comparison",
    "describe": "checking.description",
    "estimate": "checking.estimates",
    "explain": "checking.explanation",
    "explain_oom": "checking.out_of_memory",
    "find_fix": "checking.fix",
    "gather": "checking.gathering",
    "make_inspection": "checking.inspection",
    "open_rules": "rules.locate",
}
"""Name → module that defines it, imported when the name is asked for: a bare `env` needs few of them."""


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module  # noqa: PLC0415 (only for the API)

    return getattr(import_module(f"compatcheck.{_MODULES[name]}"), name)
