"""verl's command lines (Hydra): PPO, GRPO and their kin on FSDP or Megatron, and supervised training."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from compatcheck.core.document import BENEATH, CODE, LEFT_OUT, Document, Gap, Statement
from compatcheck.frameworks.conversions import opens
from compatcheck.frameworks.keys import SILENT, Key, KeyTable, Table
from compatcheck.frameworks.launch.arguments import (
    FurtherContent,
    OptionMeanings,
    make_command_document,
    skip_refused,
)
from compatcheck.frameworks.launch.hydra import Overrides, gaps_of_groups, parse_overrides
from compatcheck.frameworks.launch.interpolation import follow_all
from compatcheck.frameworks.launch.values import value_of
from compatcheck.frameworks.verl import configuration as verl

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from compatcheck.frameworks.launch.program import Launch
    from compatcheck.frameworks.launch.values import Argument

SFT_TABLE = KeyTable(__file__, "sft_keys.txt", verl.CONVERSIONS)
"""Keys of ``verl.trainer.fsdp_sft_trainer``."""
ENGINE_TABLE = KeyTable(__file__, "sft_engine_keys.txt", verl.CONVERSIONS, fields={"model.override_config.": None})
"""Keys of ``verl.trainer.sft_trainer``."""


def recognise(launch: Launch) -> str | None:
    """Tell which trainer of verl a launch starts: ``rl``, ``sft`` (on FSDP alone), ``sft-engine``, one not read (empty), or None.

    Of the other programs in ``verl/trainer`` of v0.1 to v0.9.0, two generate with the configuration of a trainer, or with one of
    their own (``main_generation_server``, ``main_generation``); ``main_eval`` has no model.
    """
    name = launch.program.removesuffix(".py").rpartition("verl/trainer/")[2].rpartition("verl.trainer.")[2]
    if re.split(r"[./]", name)[-1] in _OF_OTHER_ROLES:
        return ""
    if name.startswith("main_generation"):
        return None
    words = [word.text or word.written for word in launch.arguments]
    if any(word.lstrip("+~'\"").startswith("actor_rollout_ref.") for word in words):
        return "rl"
    if "verl" not in launch.program:
        return None
    if launch.kind == "module" and name in _OF_PPO:
        return "rl"
    name = re.split(r"[./]", name)[-1]
    return "sft" if name == "fsdp_sft_trainer" else "sft-engine" if name in _OF_ENGINES else None


_OF_OTHER_ROLES = {"main_gkd", "main_dance"}
"""Programs with the keys of the others and other roles: the first has a teacher behind a server, and no log-probabilities of its
own, no reference and no critic (recipe/gkd/megatron/ray_trainer.py, verl-recipe of 2026); the second trains a diffusion model
with workers of its own, on FSDP2 and without an engine (dance_grpo/dance_grpo_fsdp/workers/diffusion_worker.py there)."""
_OF_PPO = {"main_ppo", "main_ppo_sync", "main_ppo_v0"}
"""Programs of ``verl/trainer`` that compose from ``ppo_trainer.yaml``."""
_OF_ENGINES = {"sft_trainer", "sft_trainer_ray"}
"""Programs that compose from ``sft_trainer_engine.yaml``; Ray starts the ranks of the second."""


def read(launch: Launch, kind: str) -> tuple[Document, ...]:
    """Translate a launch of verl."""
    overrides = parse_overrides(launch.arguments)
    options = follow_all(overrides.values)
    source = launch.command.source
    if kind in {"rl", verl.READER}:  # the latter where the configuration tells
        kind = "rl"
        engine = overrides.values.get("model_engine") or overrides.groups.get("model_engine")
        base = verl.name_base(overrides.config_name, engine) if _has_own(launch) else ""
        table, models = verl.table_for(options, base)
        if not base and not any(_of_recipe(launch)) and value_of(options, _TOGETHER) is False:
            table |= {key: (Key(fact, opens),) for key, fact in _DEVICES.items()}
        reader = verl.tell_reader(options, base, source.path)
        meanings = OptionMeanings(reader, table, verl.is_plain, models)
        known = (*verl.infer(options, overrides.config_name, engine, base), *_of_recipe(launch))
    elif kind == "sft":
        meanings = OptionMeanings("verl-sft", SFT_TABLE, _is_plain_here, {"model.partial_pretrain": "model"})
        known = (Statement("training.trainer", "(program)", "sft"), *_of_supervised(options))
    else:
        models = {"model.path": "model"}
        meanings = OptionMeanings("verl-sft-engine", _engine_table(options, launch), _is_plain_here, models)
        known = (Statement("training.trainer", "(program)", "sft"), *_of_engine(options))
    skipped = tuple(skip_refused(overrides.refused))
    references = tuple(_configurations(overrides, launch))
    if kind == "rl" and not references and base:
        names = (f"_generated_{base}", base)  # the former from 0.5 on
        files = (f"{folder}verl/trainer/config/{name}.yaml" for folder in ("", *_VENDORED) for name in names)
        references = tuple((BENEATH, file, "--config-name") for file in files)
    if kind == "rl":
        references += tuple((CODE, folder + launch.file, "(program)") for folder in ("", *_VENDORED))
    composed = () if any(one[0] == "config" for one in references) else _compositions(overrides, launch, kind)
    gaps = (*composed, *_choices(overrides, launch), *_left_to_engine(overrides, launch))
    further = FurtherContent(known, references, skipped, overrides.unknown, gaps)
    document = make_command_document(meanings, source, options, further)
    return (document._replace(options=overrides.values if kind == "rl" else {}, added=overrides.added),)


_VENDORED = ("verl/", "src/")
"""Folders of a project in which its own copy of verl lies: the whole repository, or the package."""
_TOGETHER = "actor_rollout_ref.hybrid_engine"
_RECIPE = re.compile(r"(?:^|[./])recipe[./](\w+)[./]main\w*(?:\.py)?$")
"""A program of verl-recipe: ``recipe.dapo.main_dapo``."""
_DEVICES = {"trainer.n_gpus_per_node": "hardware.gpus_per_node", "trainer.nnodes": "hardware.nodes"}
"""Of all devices or of those that train: which of them generate, a program of its own decides."""


def _has_own(launch: Launch) -> bool:
    """Tell whether a program composes from verl's own configuration, or from one that leaves alone what memory depends on."""
    name = launch.program.removesuffix(".py").replace("/", ".")
    return name.endswith((*(f"verl.trainer.{one}" for one in _OF_PPO), "dapo.main_dapo"))


def _of_recipe(launch: Launch) -> Iterator[Statement]:
    """Say what a recipe asserts of its configuration: the engine has devices of its own (``assert not self.hybrid_engine``)."""
    if re.search(r"(fully_async_policy[./]fully_async_main|one_step_off_policy[./]main_ppo)(\.py)?$", launch.program):
        yield Statement("rollout.colocated", f"({launch.program})", value=False)


def _left_to_engine(overrides: Overrides, launch: Launch) -> Iterator[Gap]:
    """Say of a reward model that an engine of its own serves: what that takes beside the rest is left out."""
    loop = overrides.values.get(verl.REWARD_LOOP)
    if loop is not None and loop.value is True and value_of(overrides.values, "reward_model.enable") is True:
        place = launch.command.source._replace(key=verl.REWARD_LOOP, line=loop.line)
        yield Gap(place, "serves the reward model with an engine of its own, which is left out", "reward_model.rollout")


def _is_plain_here(key: str) -> bool:
    """Tell whether a key of supervised training has no bearing on memory."""
    section, dot, name = key.partition(".")
    return section in _SFT_SECTIONS and (not dot or verl.is_name(name))


_SFT_SECTIONS = frozenset({"checkpoint", "data", "model", "optim", "profiler", "trainer"})


def _engine_table(options: Mapping[str, Argument], launch: Launch) -> Table:
    """Read micro batches as counts of tokens, which ``data.use_dynamic_bsz``, on by default, makes them.

    ``engine=fsdp`` chooses a file of defaults, ``strategy`` among them: over these goes what the command says.
    """
    table: Table = dict(ENGINE_TABLE)
    if "sft_trainer_ray" not in launch.program:  # torchrun tells how many ranks there are
        table.update(dict.fromkeys(("trainer.n_gpus_per_node", "trainer.nnodes"), ()))
    if "engine.strategy" in options:
        table["engine"] = SILENT
    verl.settle_offload(table, options, "", "engine.optimizer_offload")
    dynamic = options.get("data.use_dynamic_bsz")
    if dynamic is None or dynamic.value is not False:
        table["data.micro_batch_size_per_gpu"] = SILENT
        key = Key("training.micro_batch_tokens", None, None, () if dynamic is not None else ("data.use_dynamic_bsz",))
        table["data.max_token_len_per_gpu"] = (key,)
    return table


def _of_engine(options: Mapping[str, Argument]) -> Iterator[Statement]:
    """Say what ``sft_trainer`` does without being asked (``config/sft_trainer_engine.yaml`` of v0.6.1 and v0.7.0)."""
    dynamic, limit = options.get("data.use_dynamic_bsz"), "data.max_token_len_per_gpu"
    if (dynamic is None or dynamic.value is True) and limit not in options:
        left = () if dynamic is not None else ("data.use_dynamic_bsz",)
        yield Statement("training.micro_batch_tokens", f"{limit}{LEFT_OUT}", 8192, None, left)


def _of_supervised(options: Mapping[str, Argument]) -> Iterator[Statement]:
    """Say what ``fsdp_sft_trainer`` does without being asked.

    It always shards with FSDP: ``verl/trainer/fsdp_sft_trainer.py`` of v0.2.0.post2 to v0.7.0, which agree.
    """
    key = "(program fsdp_sft_trainer)"
    if "model.strategy" not in options:
        yield Statement("training.sharding", key, "fsdp")
    yield Statement("training.compute_dtype", key, "bfloat16")
    yield Statement("training.reduce_dtype", key, "float32")
    yield Statement("model.attn_implementation", key, "flash_attention_2")


def _configurations(overrides: Overrides, launch: Launch) -> Iterator[tuple[str, str, str]]:
    """Name the YAML file a command composes from: in the directory that it gives, or beside the recipe that it starts.

    Recipes have theirs in ``config`` (``@hydra.main(config_path="config")`` of verl-recipe 2026, all but three).
    """
    path, name = overrides.config_path, overrides.config_name
    if name is None or not isinstance(name.value, str) or name.value.removesuffix(".yaml") in verl.OWN:
        return
    file = name.value if name.value.endswith((".yaml", ".yml")) else f"{name.value}.yaml"
    if path is not None and isinstance(path.value, str):
        yield "config", f"{path.value.rstrip('/')}/{file}", "--config-name"
    elif path is None and (recipe := _RECIPE.search(launch.program)) is not None:
        beside = launch.command.source.path.split("/")[-2:-1] == [
            recipe[1]
        ]  # also where the recipes are a checkout of their own
        yield "config", f"config/{file}" if beside else f"recipe/{recipe[1]}/config/{file}", "--config-name"


def _compositions(overrides: Overrides, launch: Launch, kind: str) -> Iterator[Gap]:
    """Name the configuration a command composes from that is not verl's own, and not at hand."""
    name = overrides.config_name
    if name is not None and (name.why is not None or str(name.value).removesuffix(".yaml") not in verl.OWN):
        shown = name.why or f"composes from {name.value}, which is not at hand"
        yield Gap(launch.command.source._replace(key="--config-name", line=name.line), shown)
    elif name is None and kind == "rl" and not _has_own(launch):
        source = launch.command.source._replace(key=f"({launch.program})")
        yield Gap(source, "composes from a configuration of its own, which is not at hand")


def _choices(overrides: Overrides, launch: Launch) -> Iterator[Gap]:
    """Name the choices of files of defaults that nobody read: ``actor@actor_rollout_ref.actor=megatron_actor``.

    A section whose keys go on to an engine may say anything that the section around it says.
    """
    source = launch.command.source
    yield from gaps_of_groups(overrides, source)
    for key, choice in overrides.values.items():
        place = source._replace(key=key, line=choice.line)
        section = re.sub(r"(?<=\.engine_kwargs)\.\w+$", "", key)
        if key in _ENGINES and str(choice.value) not in _ENGINES[key]:
            yield Gap(place, choice.why or f"chooses the defaults of {choice.value}, which nobody read")
        elif choice.why is not None and section.endswith(verl.PASSED_ON):
            yield Gap(place, choice.why, section)


_ENGINES = {"model_engine": {"dp", "megatron"}, "engine": {"fsdp", "fsdp2", "megatron"}}
"""Groups of files of defaults, with the choices that were read."""
