"""Generates the pages of `docs` that are derived from the code."""
