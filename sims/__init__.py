"""Runs rank programs on a modelled cluster: SimPy clocks, a fluid network, device cost profiles."""
