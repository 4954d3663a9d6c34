"""Encodings of the rows of an exchange on the wire: pure maps tensor -> payload -> tensor.

A codec never communicates and holds no state. A `Codec` codes rows one by one, so that any exchange takes it; `Bucket`
and `MixedRows`, whose rows share a range or have different bits, have exchanges of their own. `choose_bits` says how
many bits rows get. The arithmetic is in `harness.kernels`.
"""

from harness.codecs._bit_choice import BitGroups, choose_bits
from harness.codecs._bucket import BUCKET_BITS, Bucket
from harness.codecs._cast import Cast
from harness.codecs._codec import Codec
from harness.codecs._linear import LinearRows
from harness.codecs._mixed import MIXED_SIDE_BYTES, MixedRows
from harness.codecs._stochastic import ROW_BITS, StochasticRows

__all__ = [
    "BUCKET_BITS",
    "BitGroups",
    "Bucket",
    "Cast",
    "Codec",
    "LinearRows",
    "MIXED_SIDE_BYTES",
    "MixedRows",
    "ROW_BITS",
    "StochasticRows",
    "choose_bits",
]
