"""Compare how Dockerfiles are split into instructions with the package dockerfile-parse.

    python benchmarks/dockerfiles.py DIRECTORY          # needs dockerfile-parse

Every Dockerfile below the directory counts, apart from those with here-documents, which the other does not know. Name, first
line and arguments (blanks aside) must agree.
"""

from __future__ import annotations

import io
import sys
from pathlib import Path

from compatcheck.collectors.dockerfile.text import read_instructions
from compatcheck.collectors.recognise import recognise, walk


def ours(text: str) -> list[tuple[str, int, str]]:
    """Return name, line and arguments of each instruction as compatcheck reads them."""
    return [(entry.name, entry.line, " ".join(entry.text.content.split())) for entry in read_instructions(text)]


def theirs(data: bytes) -> list[tuple[str, int, str]]:
    """Return the same as dockerfile-parse reads them."""
    from dockerfile_parse import DockerfileParser  # type: ignore[import-not-found]  # noqa: PLC0415 (of the benchmark only)

    structure = DockerfileParser(fileobj=io.BytesIO(data)).structure
    return [
        (entry["instruction"], entry["startline"] + 1, " ".join(entry["value"].split()))
        for entry in structure
        if entry["instruction"] != "COMMENT"
    ]


def main(directory: str) -> int:
    """Compare every file; return the number that differ."""
    same, different = 0, []
    for path, _ in walk(directory):
        data = Path(path).read_bytes()
        if recognise(path) != "dockerfile" or b"<<" in data:
            continue
        if ours(data.decode("utf-8-sig", "replace")) == theirs(data):
            same += 1
        else:
            different.append(path)
    sys.stdout.write("".join(f"differs: {path}\n" for path in different))
    sys.stdout.write(f"{same} agree, {len(different)} differ\n")
    return len(different)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]) > 0)
