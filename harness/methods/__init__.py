"""One file per system, each with only what its paper does differently; `bases` has what several share."""
