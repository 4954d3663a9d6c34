"""Curves of `what-if` and of advice: epoch times over a bandwidth or latency, where they cross, how sure that is."""
