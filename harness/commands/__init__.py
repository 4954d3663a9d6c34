"""One module per command of `haloscope`, each with `main(args) -> exit code`; `harness.cli` imports what it needs.

`interface` and `outcomes` are the same for Python (`import harness`). The roof: may import everything.
"""
