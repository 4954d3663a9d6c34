"""What a codec declares of its payload."""

from __future__ import annotations

import torch

from harness.codecs import Codec


def row_bytes(codec: Codec, width: int) -> list[int]:
    """Bytes of a row of `width` float32 values in every tensor of the payload, as `Codec.payload` declares them."""
    return [columns * dtype.itemsize for columns, dtype in codec.payload(width, torch.float32)]
