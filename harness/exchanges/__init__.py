"""Exchanges of rows between ranks, each with its adjoint: what methods put between layers."""
