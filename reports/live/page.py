"""Puts the page together: template, style, script, Plotly and data in one file."""

from __future__ import annotations

import json
from collections.abc import Mapping
from html import escape
from importlib.resources import files
from typing import Any

from harness.errors import InputError

POLICY = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:"
"""Content security policy of a page that is a file: it loads nothing."""


def live_page(content: Mapping[str, Any], title: str, connects: bool = False) -> str:
    """The page as HTML.

    Args:
        content: what `live.js` draws: axes, methods, notes and, for a file, the points of the grid.
        connects: it asks the server that it came from for its points.

    Raises:
        InputError: Plotly, which draws the charts, is not installed.
    """
    try:
        from plotly.offline import get_plotlyjs
    except ImportError as error:
        raise InputError("the live page needs Plotly: pip install 'haloscope[serve]'") from error
    folder = files("reports.live")
    data = json.dumps(content, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c")
    parts = {
        "POLICY": escape(POLICY + "; connect-src 'self'" * connects, quote=True),
        "TITLE": escape(title),
        "STYLE": (folder / "live.css").read_text(encoding="utf-8"),
        "PLOTLY": get_plotlyjs(),
        "DATA": data,
        "SCRIPT": (folder / "live.js").read_text(encoding="utf-8"),
    }
    text = (folder / "live.html").read_text(encoding="utf-8")
    for name, value in parts.items():
        before, after = text.split(f"@{name}@")
        text = before + value + after
    return text
