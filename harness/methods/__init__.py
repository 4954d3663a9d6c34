"""One file per system: what each paper does differently, and nothing else."""
