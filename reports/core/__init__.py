"""What tables and figures of a report are made of: rows and verdicts, published numbers, kept runs, trained scores.

Knows no paper. Open rooms: `table`, `load`, `context`, `train`, `predict`, `testbeds`, `clusters`.
"""
