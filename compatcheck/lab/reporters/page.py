"""Memory across releases as a page of HTML: each number that changed, as steps over the releases of its package."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from compatcheck.reporters.figure import STYLE

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from compatcheck.reporters.figure import Figure

_PAGE = """<!doctype html>
<html lang="en">
<head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<title>Memory across releases</title>
<style>
:root {{ color-scheme: light dark }}
body {{ font: 16px/1.5 system-ui, sans-serif; max-width: 56rem; margin: 2rem auto; padding: 0 1rem }}
figure {{ margin: 1.5rem 0 }}
{style}</style></head>
<body>
<h1>Memory across releases</h1>
<p>The same runs in each release of a package, beside the packages of its day. A number that never changed is not drawn.</p>
{body}</body>
</html>
"""


def format_page(sections: Mapping[str, tuple[int, Sequence[Figure]]]) -> str:
    """Format a page.

    Args:
        sections: package → how many numbers were followed, and a figure of each that changed.
    """
    parts = []
    for package, (count, figures) in sections.items():
        parts.append(f"<h2>{escape(package)}</h2>")
        parts.append(f"<p>{len(figures)} of {count} numbers changed.</p>")
        parts += [
            f'<figure><figcaption>{escape(one.title)}</figcaption><svg class="figure" role="img" height="{one.height:g}">'
            f"<title>{escape(one.title)}</title>{one.svg}</svg></figure>"
            for one in figures
        ]
    return _PAGE.format(style=STYLE, body="\n".join(parts) + "\n")
