"""Figures as data URLs: the first file of a figure that is whole, and what is wrong with the others."""

from __future__ import annotations

from base64 import b64encode
from xml.etree import ElementTree

from reports.core.table import Plot

PNG_START, PNG_END = b"\x89PNG\r\n\x1a\n", b"IEND\xaeB`\x82"
KINDS = {".svg": "image/svg+xml", ".png": "image/png"}


def picture(plot: Plot) -> tuple[str, str]:
    """The data URL of a figure, its SVG before its PNG, "" where neither is whole; and what is wrong, "" if nothing."""
    wrong = []
    for suffix in KINDS:
        for path in (path for path in plot.paths if path.suffix == suffix):
            try:
                content = path.read_bytes()
            except OSError:
                wrong.append(f"its {suffix[1:].upper()} is missing")
                continue
            if _whole(content, suffix):
                return _address(content, suffix), "; ".join(wrong)
            wrong.append(f"its {suffix[1:].upper()} is damaged")
    return "", "; ".join(wrong) or "it has no picture"


def _whole(content: bytes, suffix: str) -> bool:
    if suffix == ".png":
        return content.startswith(PNG_START) and content.rstrip().endswith(PNG_END)
    try:
        return ElementTree.fromstring(content).tag.endswith("svg")
    except (ElementTree.ParseError, ValueError, LookupError):
        return False


def _address(content: bytes, suffix: str) -> str:
    """As an image no script in it can run."""
    return f"data:{KINDS[suffix]};base64,{b64encode(content).decode()}"
