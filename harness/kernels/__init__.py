"""Compiled row kernels behind `torch.library` operators, so that ledgers and meta tensors see one operator each.

Import the operators from their modules (`spmm`, `dropout`, `quantize`); nothing here communicates or keeps state.
"""
