"""Measurements of haloscope beside other ways to do the same work, each as a ratio within one run; not tests."""
