"""Tables and figures of papers, studies and advice. Runs that they need are made by `harness.running` and kept."""
