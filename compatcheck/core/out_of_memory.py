"""Why a run died of memory: the message, the tensor whose size was asked for, the phase, and what explains it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from compatcheck.core.named_tuple import NamedTuple

if TYPE_CHECKING:
    from compatcheck.core.facts import Fact
    from compatcheck.core.report import Finding
    from compatcheck.core.source import Skipped, Source
    from compatcheck.core.suggestions import Suggestion

TOLD, CUT, NO_MESSAGE = "told", "cut-traceback", "no-message"
WORDS = frozenset({TOLD, CUT, NO_MESSAGE})
"""Forms that stand for a message that is missing: told in words, a traceback without its end, or neither."""


class Printed(NamedTuple):
    """A size as a message prints it."""

    text: str
    """``9.28 GiB``, as written."""
    low_bytes: int
    """Smallest size that prints so."""
    high_bytes: int
    """Largest size that prints so."""


class Frame(NamedTuple):
    """One frame of a traceback."""

    file: str
    line: int
    function: str
    code: str = ""
    """The source line the traceback shows, empty when it shows none."""


class Message(NamedTuple):
    """One message of a log that says memory ran out, or looks as if it did."""

    form: str
    """Which program's message, ``torch``, ``vllm-kv-cache``, ``nccl``, …: the names stand in the documentation."""
    allocator: str
    """What was asked, in words: ``CUDA``, ``HIP``, ``NPU``, ``host memory``, ``shared memory of a kernel``, …"""
    memory: str
    """``device``, ``host``, ``shm``, ``none`` for a look-alike that is no shortage of memory at all, ``unknown`` where memory is
    only one of the causes it lists."""
    releases: str | None
    """Releases that print this form, in words; None when the form does not tell."""
    line: int
    """Line of the log where it starts, the first is 1."""
    stream: str
    """Prefix of the lines it was read from (rank, pid), empty without one."""
    asked: Printed | None = None
    rounding: str = "unknown"
    """How ``asked`` relates to the tensor: ``segment`` (rounded up by the caching allocator), ``block`` (to 512 bytes,
    or to 128 KiB before torch 1.2), ``exact``, ``unknown``."""
    device: int | None = None
    total: Printed | None = None
    free: Printed | None = None
    allocated: Printed | None = None
    reserved: Printed | None = None
    unallocated: Printed | None = None
    """Reserved and not allocated; printed since torch 2.1, and until 1.3 as "cached"; else the difference of two numbers."""
    private_pools: Printed | None = None
    allowed: Printed | None = None
    """Limit set by ``set_per_process_memory_fraction``."""
    process: Printed | None = None
    """What the process itself holds on the device, other libraries included."""
    others: tuple[tuple[int, Printed], ...] = ()
    """Other processes by number, as the driver lists them."""
    details: tuple[tuple[str, str], ...] = ()
    """What forms of other programs say, by name."""
    frames: tuple[Frame, ...] = ()
    """Outermost first."""
    times: int = 1
    """How often the log prints it, ranks and repetitions taken together."""


class Place(NamedTuple):
    """Where in a run it happened."""

    phase: str
    """``load``, ``setup``, ``forward``, ``backward``, ``step``, ``gather``, ``rollout``, ``evaluation``, ``save``."""
    part: str
    """Narrower: ``loss``, ``attention``, ``mlp``, ``kv_cache``, …; the phase again when it is not known."""
    frame: Frame
    """The frame that tells."""
    why: str
    """How the frame tells, in words."""


class Match(NamedTuple):
    """A tensor of this configuration whose size prints as the size asked for."""

    name: str
    """In the field's words: ``fp32 logits``."""
    shape: tuple[int, ...]
    dtype: str
    size_bytes: int
    formula: str
    """The arithmetic with names: ``[micro_batch_size, sequence_length, vocab_size]``."""
    facts: tuple[str, ...]
    """Names of the facts it was computed from."""
    inferred: tuple[str, ...] = ()
    """What nobody stated and the size itself was solved for, in words."""
    fits_place: bool = True
    """Whether such a tensor can arise where the traceback points."""


class Budget(NamedTuple):
    """What the numbers of a message say about the device, besides the tensor."""

    cause: str
    """``need``, ``nearly_full`` (what is left would do if it were one piece), ``larger_than_device``, ``memory_limit``,
    ``refused_with_free_memory``, ``other_processes``, ``outside_allocator`` (of this very process), ``foreign_memory`` (one of
    the two), ``fragmentation``, ``unclear``."""
    reason: str
    """The arithmetic in words."""
    ruled_out: tuple[str, ...] = ()
    """What was looked at first and is not it."""
    foreign_bytes: int | None = None
    """Device memory held outside this process's allocator: other processes, contexts, other libraries."""


class MessageReading(NamedTuple):
    """Everything that is known about one message."""

    message: Message
    place: Place | None
    outcome: str
    """``named``, ``tied``, ``not_derivable``, or ``no_size`` when the message has none to match."""
    matches: tuple[Match, ...]
    """What prints as the size asked for; one when named, several when tied, chance matches when not derivable."""
    tried: int
    """Candidates whose printed size was compared."""
    chance: float | None
    """Share of sizes near this one that some candidate would match by accident."""
    reason: str
    """Why it is named, tied or not derivable, in words."""
    needs: tuple[str, ...]
    """Facts that would help."""
    budget: Budget | None
    remarks: tuple[str, ...] = ()
    """Arithmetic on what was already allocated, and other evidence."""
    question: str = ""
    """What would decide where the message leaves it open; empty where nothing is."""


class Explained(NamedTuple):
    """A finding of the rules beside a message."""

    finding: Finding
    relation: str
    """``size`` (its cost prints as the size asked for), ``tensor`` (reads the dimensions of the tensor that was named), ``phase``
    (bites in the phase of the message), ``other``."""


class Relief(NamedTuple):
    """One thing to change."""

    words: str
    source: Source | None = None
    """Where the setting stands."""


class ReleaseChange(NamedTuple):
    """A package that the log names in several releases, of which one may have worked, and the known problems between them."""

    package: str
    before: str
    after: str
    enter: tuple[Finding, ...]
    """What may apply under the newer release and not under the older."""


class Disagreement(NamedTuple):
    """What a log says of its run where the inputs say something else: they may be of another run."""

    name: str
    """Fact, or package."""
    logged: str
    """What the log says, as it is shown."""
    stated: str
    """What the inputs say."""
    source: Source | None
    """Where they do."""


class Held(NamedTuple):
    """What a part of an engine took, as the log accounts for it."""

    part: str
    """In words: ``weights``, ``KV cache``, ``CUDA graphs``."""
    size_bytes: int
    writer: str
    """Program that printed it."""
    line: int


class Series(NamedTuple):
    """What a process held at one moment of each step, as the log says it again and again."""

    moment: str
    """``After update actor``; N stands for numbers in it."""
    kind: str
    """``allocated``, ``reserved``, ``used`` of the device, ``free``."""
    writer: str
    stream: str
    """Rank or process; of several the one that grew most."""
    times: int
    """How often it is said."""
    first_line: int
    first_bytes: int
    last_line: int
    last_bytes: int
    highest_bytes: int
    grows: bool
    """Whether it holds more from time to time, as what leaks does."""


class Account(NamedTuple):
    """What a log says of device memory beside its messages."""

    held: tuple[Held, ...] = ()
    series: tuple[Series, ...] = ()
    total_bytes: int | None = None
    """Memory of the device, where the lines name it."""


class OutOfMemoryReport(NamedTuple):
    """What ``compatcheck oom`` answers."""

    version: str
    log: str
    readings: tuple[MessageReading, ...]
    """Distinct messages, the first of the log first."""
    primary: int | None
    """Index of the reading that explains the failure, None when none does."""
    model: str | None
    """Model whose dimensions were used, and how it became known."""
    unknown_models: tuple[str, ...]
    """Models the log names whose dimensions are not known."""
    account: Account
    disagreements: tuple[Disagreement, ...]
    facts: tuple[Fact, ...]
    """Facts that took part."""
    findings: tuple[Explained, ...]
    changes: tuple[ReleaseChange, ...]
    """Of packages whose release nothing else tells."""
    relief: tuple[Relief, ...]
    """What the cause asks for, and settings to lower."""
    suggestions: tuple[Suggestion, ...]
    """What the estimate suggests; an outcome of ``unknown`` where it would have let the run pass as it is."""
    skipped: tuple[Skipped, ...]
    exit_code: int
