"""The live what-if page of `haloscope serve`: what it holds, and scores of earlier results."""
