"""The live what-if page: one HTML file with sliders that needs no network, alone or fed by a server."""

from reports.live.page import live_page

__all__ = ["live_page"]
