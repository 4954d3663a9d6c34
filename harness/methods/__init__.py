"""Methods: a file per system with what its paper does differently, and the bases that systems share."""
