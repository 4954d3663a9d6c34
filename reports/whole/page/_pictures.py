"""Figures as data URLs: the first file of a figure that is whole, and what is wrong with the others."""

from __future__ import annotations

import re
import struct
from base64 import b64encode
from dataclasses import dataclass
from xml.etree import ElementTree

from reports.core.table import Plot

PNG_START, PNG_END = b"\x89PNG\r\n\x1a\n", b"IEND\xaeB`\x82"
KINDS = {".svg": "image/svg+xml", ".png": "image/png"}


@dataclass(frozen=True)
class Picture:
    """A figure's file as a data URL, "" where none is whole; what is wrong with its files, "" if nothing; its size.

    `size`: width and height; only their ratio counts: a page that knows it does not move when the image comes.
    """

    source: str
    wrong: str
    size: tuple[int, int] = (0, 0)


def picture(plot: Plot) -> Picture:
    """The SVG of a figure, or its PNG where that is not whole."""
    wrong = []
    for suffix in KINDS:
        for path in (path for path in plot.paths if path.suffix == suffix):
            try:
                content = path.read_bytes()
            except OSError:
                wrong.append(f"its {suffix[1:].upper()} is missing")
                continue
            if _whole(content, suffix):
                return Picture(_address(content, suffix), "; ".join(wrong), _size(content, suffix))
            wrong.append(f"its {suffix[1:].upper()} is damaged")
    return Picture("", "; ".join(wrong) or "it has no picture")


def _whole(content: bytes, suffix: str) -> bool:
    if suffix == ".png":
        return content.startswith(PNG_START) and content.rstrip().endswith(PNG_END)
    try:
        return ElementTree.fromstring(content).tag.endswith("svg")
    except (ElementTree.ParseError, ValueError, LookupError):
        return False


def _size(content: bytes, suffix: str) -> tuple[int, int]:
    """Width and height; (0, 0) where an SVG does not say them."""
    if suffix == ".png":
        width, height = struct.unpack(">II", content[16:24])
        return width, height
    box = re.split(r"[\s,]+", ElementTree.fromstring(content).get("viewBox", "").strip())
    try:
        return round(float(box[2])), round(float(box[3]))
    except (IndexError, ValueError, OverflowError):
        return 0, 0


def _address(content: bytes, suffix: str) -> str:
    """As an image no script in it can run."""
    return f"data:{KINDS[suffix]};base64,{b64encode(content).decode()}"
