"""Data: Boolean gates and tables from files."""

from torchperc.data.files import Table, read_csv
from torchperc.data.gates import GATES, gate, is_gate

__all__ = ["GATES", "Table", "gate", "is_gate", "read_csv"]
