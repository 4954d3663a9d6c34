"""The study of `haloscope validate`: its cells, their order, the machine's pace beside them, its tables."""
