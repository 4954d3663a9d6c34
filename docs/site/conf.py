"""How Sphinx renders the site; `python -m docs.generate.site` copies it beside the pages.

Nothing is loaded from the network: Furo uses the fonts of the system, and all of its scripts are part of the site.
"""

from __future__ import annotations

project = "haloscope"
extensions = ["myst_parser"]
source_suffix = {".md": "markdown"}
myst_heading_anchors = 4  # links to headings as in the repository: page.md#a-heading
html_theme = "furo"
html_title = "haloscope"
html_copy_source = False
html_show_sphinx = False
html_extra_path = ["extra"]
html_static_path: list[str] = []
highlight_language = "text"
smartquotes = False
exclude_patterns = ["extra"]
html_theme_options = {"navigation_with_keys": True}
