"""The live what-if page: one HTML file with sliders that needs no network, alone or fed by a server."""

from reports.live.page import page

__all__ = ["page"]
