"""Parts that tables and figures of all papers share: rows and verdicts, published numbers, cached runs, trained scores.

Independent of single papers. Modules: `table`, `rows`, `load`, `context`, `train`, `predict`, `clusters`.
"""
