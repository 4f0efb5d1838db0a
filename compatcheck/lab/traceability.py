"""Whether a subject's training step could be traced, as far as its facts say: nothing is run, and little is imported."""

from __future__ import annotations

from typing import TYPE_CHECKING

from compatcheck.frameworks.model.lookup import find_config
from compatcheck.lab.traced.request import StepRequest, make_request
from compatcheck.memory.role import TRAINED

if TYPE_CHECKING:
    from compatcheck.resolution.subject import Subject
    from compatcheck.rules.database import RuleSet


def can_trace(subject: Subject, rules: RuleSet) -> bool:
    """Tell whether nothing that is known of a run keeps it from being traced."""
    roles = [name for name in TRAINED if name in subject.roles]
    config = find_config(subject.documents, rules) if len(roles) == 1 else None
    return config is not None and isinstance(make_request(subject.roles[roles[0]], config), StepRequest)
