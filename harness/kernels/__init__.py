"""Compiled row kernels behind `torch.library` operators, so that each is one operator to ledgers and meta tensors.

Import the operators from their modules (`columns`, `dropout`, `quantize`, ...). Each declares beside its kernel how
much it does (`work`), for those who price it. Nothing here communicates or keeps state.
"""
