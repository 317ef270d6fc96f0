"""Data: gates, synthetic problems, tables from files, scaling and splits."""

from torchperc._lazy import attach

_OLD = {"batches": "iter_batches", "partition": "make_partition", "read_csv": "read", "scaler": "make_scaler"}
__getattr__, __dir__, __all__ = attach(__name__, __file__, _OLD)
