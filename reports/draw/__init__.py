"""Figures from result files and traces; the same for all papers, with one colour for every method."""
