"""Measuring this machine: operators, copies, collectives; written as device and cluster files of the model."""
