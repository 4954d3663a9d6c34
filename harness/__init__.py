"""The driver-free core: the seam, graphs, partitions, codecs, models, methods, configs and results."""
