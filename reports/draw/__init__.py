"""Figures from result files and traces; independent of methods and papers."""
