"""What each program of reinforcement learning does with its models while they wait, release by release.

Read in the sources; docs/memory-roles.md says where.
"""

from __future__ import annotations

from typing import NamedTuple

FORKS = frozenset({"search-r1", "logic-rl", "tinyzero"})
"""Forks of verl from January 2025, before 0.2: micro batches count all ranks and are multiplied by ``rollout.n``."""
VERL = FORKS | {"verl", "easy-r1"}


class Habits(NamedTuple):
    """Habits of one program at one release."""

    moves: bool
    """``param_offload`` and ``optimizer_offload`` take state off the device only while another role works, where FSDP's and
    DeepSpeed's own offload keep it on the host at work too (verl/utils/fsdp_utils.py, offload_fsdp_model_to_cpu)."""
    roles_in_process: bool
    """All roles of a device share a process, and with it the CUDA context and the allocator."""
    engine_in_process: bool
    """The engine runs in that process, too."""
    policy_at_rollout: str
    """Where an offloaded policy is: ``kept`` on the device while the engine generates; ``synced``, taken off once the engine has
    its weights, KV pool and all; ``before_cache``, before the KV pool is made; ``off``, before the engine's weights are."""
    share_of_free: bool
    """The engine's share is one of what is free once weights are loaded, and for KV alone."""
    always_sleeps: bool
    """The engine sleeps between rollouts, whatever ``free_cache_engine`` says."""
    frozen_on_host: bool
    """Reference and reward model are under FSDP's CPUOffload, whatever their ``param_offload`` says."""


TRAINER = Habits(
    moves=False,
    roles_in_process=True,
    engine_in_process=True,
    policy_at_rollout="kept",
    share_of_free=False,
    always_sleeps=False,
    frozen_on_host=False,
)
"""TRL and others whose trainer does everything in one process."""


def habits(framework: str, release: tuple[int, ...] | None) -> Habits:
    """Return what a program does.

    Args:
        framework: as ``training.framework`` names it.
        release: numbers of its release; unknown is taken as the newest.
    """
    if framework in FORKS or (framework == "verl" and release is not None and release < (0, 2)):
        return Habits(
            moves=True,
            roles_in_process=True,
            engine_in_process=True,
            policy_at_rollout="kept",
            share_of_free=True,
            always_sleeps=True,
            frozen_on_host=False,
        )
    if framework == "verl":
        return _verl(release)
    if framework == "easy-r1":
        return TRAINER._replace(moves=True, policy_at_rollout="before_cache", always_sleeps=True)
    if framework == "openrlhf":
        return TRAINER._replace(roles_in_process=False, engine_in_process=False)
    return TRAINER


def _verl(release: tuple[int, ...] | None) -> Habits:
    steps = (((0, 6), "off"), ((0, 4), "before_cache"), ((0, 3), "synced"), ((0, 2), "kept"))
    at = "off" if release is None else next((where for since, where in steps if release >= since), "kept")
    return Habits(
        moves=True,
        roles_in_process=True,
        engine_in_process=release is not None and release < (0, 7),
        policy_at_rollout=at,
        share_of_free=False,
        always_sleeps=release is not None and release < (0, 5),
        frozen_on_host=True,
    )
