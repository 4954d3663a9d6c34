"""Compiled row kernels behind `torch.library` operators, so that each is one operator to ledgers and meta tensors.

Operators are imported from their modules (`spmm`, `dropout`, `quantize`). They keep no state.
"""
