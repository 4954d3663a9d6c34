"""Compiled row kernels behind `torch.library` operators, so that ledgers and meta tensors see one operator each.

Import the operators from their modules (`columns`, `dropout`, `quantize`, ...). Each declares beside its kernel how
much it does (`work`), for those who price it. Nothing here communicates or keeps state.
"""
