"""How an installation is shown."""

from __future__ import annotations

import json

from compatcheck.core.installation import Installation, Part
from compatcheck.reporters.installation import format_json, format_text

FOUND = Installation(
    version="0.1.0",
    kind="archive",
    place="/opt/compatcheck.pyz",
    python="3.12.1",
    interpreter="/usr/bin/python3",
    rules_date="2026-11-21",
    rules_age_days=2,
    rules_count=204,
    rules_id="0123456789ab",
    parts=(
        Part("uv", "resolves", "0.9.17", "/usr/bin/uv"),
        Part("cc", "counts", None, "/usr/bin/cc"),
        Part("pip-audit", "asks", remedy="pip install pip-audit"),
    ),
)


def test_text() -> None:
    assert format_text(FOUND) == (
        "compatcheck 0.1.0, an archive at /opt/compatcheck.pyz\n"
        "Python 3.12.1 (/usr/bin/python3)\n"
        "204 rules of 2026-11-21, reviewed 2 days ago (0123456789ab)\n"
        "\nthere\n"
        "  uv          0.9.17  (/usr/bin/uv)\n    resolves\n"
        "  cc          version not known  (/usr/bin/cc)\n    counts\n"
        "\nmissing; everything else works without\n"
        "  pip-audit\n    asks\n    get it  pip install pip-audit\n"
    )


def test_json() -> None:
    shown = json.loads(format_json(FOUND))
    assert shown["rules_count"] == 204
    assert [(part["name"], part["found"]) for part in shown["parts"]] == [
        ("uv", True),
        ("cc", True),
        ("pip-audit", False),
    ]


def test_a_long_place_has_a_line_of_its_own() -> None:
    long = "/srv/a-home-that-is-not-short/environments/of-a-project/with-a-name/bin/uv"
    text = format_text(FOUND._replace(interpreter=long, parts=(Part("uv", "resolves", "0.9.17", long),)))
    assert f"Python 3.12.1\n  ({long})\n" in text
    assert f"  uv          0.9.17\n              ({long})\n" in text


def test_a_long_command_has_a_line_of_its_own() -> None:
    command = "/srv/a-home-that-is-not-short/environments/project/bin/python3 -m pip install uv"
    text = format_text(FOUND._replace(parts=(Part("uv", "resolves", remedy=command),)))
    assert f"    get it\n      {command}\n" in text
