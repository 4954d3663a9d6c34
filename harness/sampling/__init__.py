"""Neighbour sampling: the sampler, the mini-batches made of it, and EC-Graph-S's fixed sample of edges."""
