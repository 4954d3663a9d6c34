"""Figures from result files and traces; nothing here runs a method or knows a paper."""
