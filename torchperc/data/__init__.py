"""Data: gates, synthetic problems, tables from files, scaling and splits."""

from torchperc.data.applying import Batch, Batches, batches
from torchperc.data.dataset import Dataset
from torchperc.data.encoding import Column, Encoding
from torchperc.data.files import read, read_csv
from torchperc.data.gates import GATES, gate, is_gate
from torchperc.data.partition import Partition, partition
from torchperc.data.scaling import SCALINGS, Identity, MaxAbs, MinMax, Scaler, Standard, scaler
from torchperc.data.sources import SOURCES, load
from torchperc.data.splits import folds, split
from torchperc.data.synthetic import circles, moons, noisy_blobs, separable_blobs, separator
from torchperc.rules.parts import CsrParts

__all__ = [
    "GATES",
    "SCALINGS",
    "SOURCES",
    "Batch",
    "Batches",
    "Column",
    "CsrParts",
    "Dataset",
    "Encoding",
    "Identity",
    "MaxAbs",
    "MinMax",
    "Partition",
    "Scaler",
    "Standard",
    "batches",
    "circles",
    "folds",
    "gate",
    "is_gate",
    "load",
    "moons",
    "noisy_blobs",
    "partition",
    "read",
    "read_csv",
    "scaler",
    "separable_blobs",
    "separator",
    "split",
]
