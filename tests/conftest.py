"""What every test shares."""

import os
from collections.abc import Iterator

import pytest
from hypothesis import settings

from compatcheck.core import programs

os.environ["LC_ALL"] = "C.UTF-8"  # reports are read here as they are in English
# No test is timed: a busy machine is slow, and that is no defect of what is tested.
settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")


CORPUS = frozenset(
    f"tests/{name}.py"
    for name in (
        *("cases/test_one_verdict", "cases/test_plan_cases", "cases/test_known_good", "cases/test_measured_peaks"),
        *("cases/test_review_cases", "cases/test_verdict_cases", "cases/test_unread_scripts"),
        *("cli/test_action", "cli/test_bare", "cli/test_bulk_command", "cli/test_readme"),
        *(
            "probes/test_simulated_cuda",
            "rules/test_experiments",
            "rules/test_program_matrix",
            "rules/test_remedies_of_examples",
        ),
        *("unit/frameworks/test_toggles", "unit/frameworks/test_embedded", "unit/resolution/test_hidden_statements"),
        *("unit/collectors/image/test_hostile", "unit/collectors/locks/test_lock_mutations"),
        *("unit/reporters/test_agreement", "unit/reporters/test_difference_formats", "unit/shell/test_grammar"),
    )
)
"""Files that go over many runs, programs, releases or whole commands: three quarters of the time of all tests."""
_WITHOUT = "COMPATCHECK_WITHOUT_CORPUS"


def pytest_configure(config: pytest.Config) -> None:
    """Leave those out where no file is named and `-m corpus` does not ask for them; workers are told by the environment."""
    if not hasattr(config, "workerinput"):
        named = config.args_source is pytest.Config.ArgsSource.ARGS
        os.environ[_WITHOUT] = "" if named or "corpus" in config.option.markexpr else "1"


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark the tests of those files, and leave them out or not."""
    of_corpus = [item for item in items if item.nodeid.partition("::")[0] in CORPUS]
    for item in of_corpus:
        item.add_marker("corpus")
    if of_corpus and os.environ.get(_WITHOUT):
        config.hook.pytest_deselected(items=of_corpus)
        items[:] = [item for item in items if item.nodeid.partition("::")[0] not in CORPUS]


@pytest.fixture(autouse=True)
def nothing_is_inspected() -> Iterator[None]:
    """Let no test find what another one inspected in the same process."""
    kept = (programs._inspected, programs._named)
    tokens = [variable.set(frozenset()) for variable in kept]
    yield
    for variable, token in zip(kept, tokens, strict=True):
        variable.reset(token)
