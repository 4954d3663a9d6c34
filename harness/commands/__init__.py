"""One module per command of `haloscope`, each with `main(args) -> exit code`; `harness.cli` imports what it needs."""
