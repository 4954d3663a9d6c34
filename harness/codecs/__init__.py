"""Encodings of the rows of an exchange on the wire: pure maps tensor -> payload -> tensor.

A codec never communicates and holds no state. The arithmetic is in `harness.kernels`.
"""

from harness.codecs._bucket import BUCKET_BITS, Bucket
from harness.codecs._cast import Cast
from harness.codecs._codec import Codec
from harness.codecs._linear import LinearRows
from harness.codecs._stochastic import ROW_BITS, StochasticRows

__all__ = [
    "BUCKET_BITS",
    "Bucket",
    "Cast",
    "Codec",
    "LinearRows",
    "ROW_BITS",
    "StochasticRows",
]
