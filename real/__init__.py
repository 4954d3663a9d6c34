"""Runs rank programs for real on torch.distributed (gloo or NCCL) and measures them."""
