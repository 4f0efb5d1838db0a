"""Compare the options read from launch scripts with what the frameworks' own parsers make of the same words.

    python benchmarks/launch_options.py hydra VERL/verl/trainer/config SCRIPTS…
    python benchmarks/launch_options.py openrlhf OpenRLHF/openrlhf/cli SCRIPTS…
    python benchmarks/launch_options.py hf_trainer - SCRIPTS…

``hydra`` composes verl's own configuration directory with the overrides of each command (needs hydra-core); ``openrlhf``
builds the parser from the ``add_argument`` calls of the program's file; ``hf_trainer`` asks transformers' ``HfArgumentParser``
for the fields of ``TrainingArguments`` (needs transformers). Nothing of a script is run. A value that differs is printed and
counted as wrong; words that depend on what a script does not tell are counted as unresolved.
"""

from __future__ import annotations

import argparse
import ast
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from compatcheck.core.textfile import read_text
from compatcheck.frameworks.hf_trainer import command as hf_trainer
from compatcheck.frameworks.launch.flags import parse_flags
from compatcheck.frameworks.launch.hydra import parse_overrides
from compatcheck.frameworks.launch_script.commands import read_commands
from compatcheck.frameworks.openrlhf import command as openrlhf
from compatcheck.frameworks.verl import command as verl
from compatcheck.shell import read_script

if TYPE_CHECKING:
    from collections.abc import Iterator

    from compatcheck.frameworks.launch.program import Launch

UNSET = type("Unset", (), {})()
"""What a parser gives an option that is left out."""


def launches(directory: Path) -> Iterator[tuple[Path, Launch]]:
    """Yield the training commands of the scripts below a directory."""
    for path in sorted(directory.rglob("*.sh")):
        for run in read_commands(read_script(str(path), read_text(str(path))).commands):
            yield path, run.launch


def compare_hydra(configurations: Path, scripts: Path) -> Counter[str]:
    """Compose every command of verl, and look the values of its overrides up."""
    from hydra import compose, initialize_config_dir  # noqa: PLC0415 (this comparison alone needs it)
    from hydra.core.global_hydra import GlobalHydra  # noqa: PLC0415 (as above)
    from omegaconf import OmegaConf  # noqa: PLC0415 (as above)

    counts: Counter[str] = Counter()
    for path, launch in launches(scripts):
        kind = verl.recognise(launch)
        if kind is None:
            continue
        found = parse_overrides(launch.arguments)
        chosen = "ppo_trainer" if kind == "rl" else "sft_trainer"
        name = str(found.config_name.value).removesuffix(".yaml") if found.config_name else chosen
        if not (configurations / f"{name}.yaml").exists():
            counts["configuration of its own"] += 1
            continue
        words = [word.text for word in launch.arguments if word.text is not None and not word.text.startswith("-")]
        GlobalHydra.instance().clear()
        try:
            with initialize_config_dir(config_dir=str(configurations.resolve()), version_base=None):
                composed = compose(config_name=name, overrides=words)
        except Exception as error:  # noqa: BLE001 (whatever Hydra has against the words)
            counts[f"refused by Hydra ({type(error).__name__})"] += 1
            continue
        counts["commands"] += 1
        for key, argument in found.values.items():
            if argument.why is not None:
                counts["unresolved"] += 1
                continue
            value = OmegaConf.select(composed, key)
            if OmegaConf.is_config(value):
                value = OmegaConf.to_container(value)
            if isinstance(argument.value, str) and "${" in argument.value:
                counts["interpolated"] += 1
            else:
                tell(counts, path, key, value, argument.value)
    return counts


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise ValueError(message)


def build_parser(file: Path) -> _Parser:
    """Build the parser of a program from its ``add_argument`` calls."""
    parser = _Parser()
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if not isinstance(node, ast.Call) or getattr(node.func, "attr", "") != "add_argument":
            continue
        names = [argument.value for argument in node.args if isinstance(argument, ast.Constant)]
        given: dict[str, Any] = {"default": UNSET}
        for keyword in node.keywords:
            if keyword.arg == "type":
                given["type"] = {"int": int, "float": float}.get(ast.unparse(keyword.value), str)
            elif keyword.arg in {"action", "nargs", "dest"}:
                given[keyword.arg] = ast.literal_eval(keyword.value)
        if names:
            parser.add_argument(*map(str, names), **given)
    return parser


def compare_openrlhf(programs: Path, scripts: Path) -> Counter[str]:
    """Parse every command of OpenRLHF with the parser of its own program."""
    counts: Counter[str] = Counter()
    for path, launch in launches(scripts):
        kind = openrlhf.recognise(launch)
        file = programs / f"train_{kind}.py"
        if kind is None or not file.exists():
            continue
        words = [word.text if word.text is not None else "1" for word in launch.arguments]
        try:
            parsed = vars(build_parser(file).parse_args(words))
        except ValueError as error:
            counts[f"refused by argparse ({error})"] += 1
            continue
        counts["commands"] += 1
        options = parse_flags(launch.arguments, switches=openrlhf.SWITCHES).options
        for key, value in parsed.items():
            argument = options.get(key)
            if argument is not None and argument.why is not None:
                counts["unresolved"] += 1
            elif argument is not None or value is not UNSET:
                tell(counts, path, key, value, None if argument is None else argument.value)
    return counts


def compare_hf_trainer(_: Path, scripts: Path) -> Counter[str]:
    """Parse every command of a Trainer as transformers does; options of a script's own classes are not compared."""
    from transformers import HfArgumentParser, TrainingArguments  # noqa: PLC0415 (this comparison alone needs it)

    parser = HfArgumentParser(TrainingArguments, allow_abbrev=False, exit_on_error=False)
    parser.error = _Parser.error.__get__(parser)
    for action in parser._actions:  # noqa: SLF001 (argparse has no other way)
        action.default = UNSET
    counts: Counter[str] = Counter()
    for path, launch in launches(scripts):
        if hf_trainer.recognise(launch) is None:
            continue
        unread = [word for word in launch.arguments if word.text is None]
        words = [word.text if word.text is not None else "1" for word in launch.arguments]
        try:
            parsed = vars(parser.parse_known_args(words)[0])
        except (ValueError, argparse.ArgumentError) as error:
            counts[f"refused by HfArgumentParser{' for the value in its place' if unread else f' ({error})'}"] += 1
            continue
        counts["commands"] += 1
        options = parse_flags(launch.arguments).options
        for key, value in parsed.items():
            argument = options.get(key)
            if argument is not None and argument.why is not None:
                counts["unresolved"] += 1
            elif argument is not None or value is not UNSET:
                ours = None if argument is None else argument.value
                meant = str(ours).lower() in {"true", "1", "yes", "t", "y"} if isinstance(value, bool) else ours
                tell(counts, path, key, value, meant)
    return counts


def tell(counts: Counter[str], path: Path, key: str, theirs: object, ours: object) -> None:
    """Count a value as equal or wrong; a number that a program takes as text is the same word."""
    same = (
        theirs == ours
        or str(theirs) == str(ours)
        or (isinstance(theirs, list) and list(map(str, theirs)) == [str(ours)])
    )
    counts["equal" if same else "wrong"] += 1
    if not same:
        print(f"{path}: {key}: {theirs!r}, read as {ours!r}")


if __name__ == "__main__":
    compare = {"hydra": compare_hydra, "openrlhf": compare_openrlhf, "hf_trainer": compare_hf_trainer}[sys.argv[1]]
    total: Counter[str] = Counter()
    for place in sys.argv[3:]:
        total += compare(Path(sys.argv[2]), Path(place))
    for what, number in total.most_common():
        print(f"{number:7} {what}")
    sys.exit(1 if total["wrong"] else 0)
