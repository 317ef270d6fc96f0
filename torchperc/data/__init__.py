"""Data: gates, synthetic problems, tables from files, scaling and splits."""

from torchperc.data.dataset import Dataset
from torchperc.data.files import read_csv
from torchperc.data.gates import GATES, gate, is_gate
from torchperc.data.scaling import SCALINGS, Identity, MinMax, Scaler, Standard, scaler
from torchperc.data.sources import SOURCES, load
from torchperc.data.splits import folds, split
from torchperc.data.synthetic import circles, moons, noisy_blobs, separable_blobs, separator
from torchperc.rules.parts import CsrParts

__all__ = [
    "GATES",
    "SCALINGS",
    "SOURCES",
    "CsrParts",
    "Dataset",
    "Identity",
    "MinMax",
    "Scaler",
    "Standard",
    "circles",
    "folds",
    "gate",
    "is_gate",
    "load",
    "moons",
    "noisy_blobs",
    "read_csv",
    "scaler",
    "separable_blobs",
    "separator",
    "split",
]
