"""What the rows of an exchange look like on the wire: pure maps tensor -> payload -> tensor.

A codec never communicates and keeps no state: error feedback, caches and bit schedules belong to methods.
"""

from __future__ import annotations

from harness.codecs.bucket import Bucket
from harness.codecs.cast import Cast
from harness.codecs.codec import Codec
from harness.codecs.linear import LinearRows
from harness.codecs.stochastic import StochasticRows

__all__ = ["Bucket", "Cast", "Codec", "LinearRows", "StochasticRows"]
