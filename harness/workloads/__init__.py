"""Partitioned graphs known by counts only: descriptions, what is built from them, recorded rates; and shipped ones."""
