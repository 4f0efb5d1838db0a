"""What one command is asked about, and the subjects that came of it."""

from __future__ import annotations

from compatcheck.core.files import LOCAL, Files
from compatcheck.core.named_tuple import NamedTuple
from compatcheck.core.selection import DEFAULT, Selection

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from compatcheck.core.source import Skipped, Source
    from compatcheck.resolution.subject import Subject


class Request(NamedTuple):
    """The inputs of one command, as given."""

    python: str | None = None
    prefix: str | None = None
    paths: tuple[str, ...] = ()
    """Files and directories of `check`; empty for an installed environment."""
    model: str | None = None
    training: tuple[str, ...] = ()
    gpu: str | None = None
    nodes: int | None = None
    driver: str | None = None
    settings: tuple[str, ...] = ()
    env_file: str | None = None
    hook: bool = False
    """Whether the paths are files a commit touches: what belongs to them is read, files of other kinds are passed over."""
    here: bool = True
    """Whether the run is on this machine: then its devices and environment variables take part."""
    run: str | None = None
    """Named run of the policy that fills what the command line leaves open."""
    target: str | None = None
    """Name of the policy's target that says what the machine is, where there are several."""
    image: str | None = None
    """Container image: archive, layout or root directory, ``-`` for standard input."""
    image_environments: tuple[str, ...] = ()
    """Prefixes inside the image; empty for the one it starts, or all of them."""
    every_environment: bool = False
    """Whether all environments of the image are subjects where none is named, not only the one it starts."""
    all_environments: bool = False
    """Whether findings count in environments that the image does not start, too."""
    no_cache: bool = False
    """Whether to read every layer of an image again."""
    run_settings: tuple[str, ...] = ()
    """The run's own ``NAME=VALUE``; ``settings`` win over them."""
    manifests: bool = False
    """Whether manifests of a directory count beside their lock: who changes the one changes the other."""
    selection: Selection = DEFAULT
    """What is chosen of what the files offer: extras, groups, a stage."""
    run_files: frozenset[str] = frozenset()
    """Real paths that runs of the policy name: the person named them, also where a walk meets them."""
    foreign: frozenset[str] = frozenset()
    """Real paths of those that the checkout's own policy names outside of it, and nobody else: neither changed nor quoted."""
    covered: frozenset[str] = frozenset()
    """Real paths that were read for runs of the policy: what a walk makes of these alone is no further subject."""
    sources: Mapping[str, Source] = {}
    """Where the keys of the run and the target stand in the policy, settings as ``set.NAME``."""
    files: Files = LOCAL
    """Tree that the paths lie in; a change of it is checked before it is written."""
    within: str | None = None
    """Directory that what the paths include does not leave: a revision of git, which is not all there."""


class Gathered(NamedTuple):
    """The subjects of one command, and what could not be read."""

    subjects: tuple[Subject, ...]
    skipped: tuple[Skipped, ...]
    chosen: str | None = None
    """How the environment came to be the one inspected."""
    aside: frozenset[str] = frozenset()
    """Subjects whose findings are shown and do not fail the run."""
    reasons: Mapping[str, str] = {}
    """How each subject came to be inspected, where that differs between them."""
    files: Files = LOCAL
    """Tree that the sources lie in, what standard input gave among them."""
    passes: bool = False
    """Whether finding nothing to check is no error: of a commit whose files belong to no run."""
    bare: tuple[Skipped, ...] = ()
    """Runs that no rule could be checked on: where anything was checked, these were not."""
