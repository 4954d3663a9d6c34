"""A report as one HTML file that needs no network: claims by outcome, the papers' tables, figures."""

from reports.whole.page._page import page

__all__ = ["page"]
