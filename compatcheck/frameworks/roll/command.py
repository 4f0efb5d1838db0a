"""ROLL's command lines: ``python examples/start_rlvr_pipeline.py --config_path DIRECTORY --config_name NAME``."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

from compatcheck.core.document import Document, Gap
from compatcheck.frameworks.launch.flags import gaps_of_words, parse_flags
from compatcheck.frameworks.roll import configuration as roll

if TYPE_CHECKING:
    from compatcheck.frameworks.launch.program import Launch

_PATH, _NAME = "config_path", "config_name"


def recognise(launch: Launch) -> str | None:
    """Tell whether a launch starts one of ROLL's pipelines that train."""
    found = re.search(r"(^|/)start_\w+_pipeline\.py$", launch.program)
    return roll.READER if found and _NAME in parse_flags(launch.arguments).options else None


def read(launch: Launch, _: str) -> tuple[Document, ...]:
    """Translate a launch; `composition` reads the file that it names with it, beside its script."""
    flags = parse_flags(launch.arguments)
    source = launch.command.source
    folder, name = (flags.options.get(key) for key in (_PATH, _NAME))
    gaps = [*gaps_of_words(flags.unknown)]
    references: tuple[tuple[str, str, str], ...] = ()
    unknown = next((one for one in (folder, name) if one is not None and one.why is not None), None)
    if unknown is not None:
        gaps.append(Gap(source._replace(key=f"--{_NAME}", line=unknown.line), str(unknown.why)))
    elif name is not None:
        directory = "config" if folder is None else str(folder.value)
        file = os.path.join(os.path.dirname(launch.program), directory, f"{str(name.value).removesuffix('.yaml')}.yaml")
        references = ((roll.READER, file, f"--{_NAME}"),)
    document = Document(
        roll.READER, source, (), references=references, is_command=True, gaps=tuple(gaps), options=flags.options
    )
    return roll.compose(document)
