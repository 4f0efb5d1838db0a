"""What a program of reinforcement learning does with its models while they wait."""

from __future__ import annotations

from typing import TYPE_CHECKING

from compatcheck.core.facts import Fact
from compatcheck.core.named_tuple import NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

    from compatcheck.core.facts import Value


class Habits(NamedTuple):
    """Habits of one program at one release."""

    moves: bool
    """``param_offload`` and ``optimizer_offload`` take state off the device only while another role works, where FSDP's and
    DeepSpeed's own offload keep it on the host at work too."""
    roles_in_process: bool
    """All roles of a device share a process, and with it the CUDA context and the allocator."""
    engine_in_process: bool
    """The engine runs in that process, too."""
    policy_at_rollout: str
    """When an offloaded policy leaves the device, as ``program.policy_at_rollout`` names it."""
    share_of_free: bool
    """The engine's share is one of what is free once weights are loaded, and for KV alone."""
    always_sleeps: bool
    """The engine sleeps between rollouts, whatever ``free_cache_engine`` says."""
    sleeps_by_cache: bool
    """An engine that can sleep does so only where ``free_cache_engine`` is on."""
    graphs_sleep: bool
    """CUDA graphs of the engine leave the device while it sleeps."""
    frozen_on_host: bool
    """Reference and reward model are under FSDP's CPUOffload, whatever their ``param_offload`` says."""


def read_habits(facts: Mapping[str, Fact | Value]) -> Habits:
    """Return what a program does.

    Where nobody has read it, everything happens in one process and stays where it is. Of a program that moves state and whose
    release is not known, the engine has a process of its own and what waits is on the host, as the newest of them do it
    (docs/memory-roles.md).
    """

    def get(name: str, otherwise: Value) -> Value:
        fact = facts.get(f"program.{name}")
        value = fact.value if isinstance(fact, Fact) else fact
        return otherwise if value is None else value

    moves = bool(get("moves_idle_state", otherwise=False))
    return Habits(
        moves=moves,
        roles_in_process=bool(get("roles_share_process", otherwise=True)),
        engine_in_process=bool(get("engine_shares_process", not moves)),
        policy_at_rollout=str(get("policy_at_rollout", "before_weights" if moves else "kept")),
        share_of_free=bool(get("engine_share_of_free", otherwise=False)),
        always_sleeps=bool(get("engine_always_sleeps", otherwise=False)),
        sleeps_by_cache=bool(get("engine_sleeps_by_cache", otherwise=False)),
        graphs_sleep=bool(get("engine_graphs_sleep", otherwise=False)),
        frozen_on_host=bool(get("frozen_on_host", moves)),
    )
