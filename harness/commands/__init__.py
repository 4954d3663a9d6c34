"""One module per command of `haloscope`, each with `main(args) -> exit code`; `harness.cli` imports what it needs.

Their flags are in `arguments`, what several of them use in `shared`; `validation`, `curves` and `live` are parts of
`validate`, of `what-if` and `advise`, and of `serve`. `python` is the same for Python (`import harness`). The roof: may
import everything.
"""
