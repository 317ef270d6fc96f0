"""Tables under a Trainer: a source by name or a file, split, scaled and cut into batches."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from torchperc import _checks as checks
from torchperc.data.dataset import Dataset
from torchperc.data.encoding import Encoding
from torchperc.data.gates import is_gate
from torchperc.data.partition import Partition, make_partition, whole
from torchperc.data.scaling import SCALINGS, Scaler, make_scaler
from torchperc.data.sources import load
from torchperc.data.splits import split as split_rows
from torchperc.lightning._pl import pl
from torchperc.lightning.loader import LOADER_ORDERS, SliceLoader, check_batch_size, part_size
from torchperc.samples.parts import CsrParts, in_parts, rows_as_read
from torchperc.samples.rows import CsrRows, DenseRows, Rows

DTYPES = {"float32": torch.float32, "float64": torch.float64}


class TabularDataModule(pl.LightningDataModule):
    """A table with train, validation and test parts.

    The split is stratified and seeded, missing values are filled and features scaled by the training part alone, and
    labels of any name are mapped to −1/+1 or class indices; ``decode`` maps them back. Sparse samples stay sparse.
    Samples that are larger than memory are cut and scaled into temporary files, part by part, and read from there.

    Args:
        source: a gate (``"AND"``, ``"XOR"``, ``"parity-3"``, …), ``"separable-blobs"``, ``"noisy-blobs"``, ``"moons"``,
            ``"circles"``, ``"iris"``, ``"wine"``, ``"breast-cancer"``, ``"digits"``, or the path of a file: CSV,
            Parquet, svmlight or NumPy's.
        options: of the source, see :func:`torchperc.data.load`; a file's ``cache`` is also where the temporary files
            of its parts are.
        batch_size: ``"full"`` for batch descent, a number for folds, 1 for one sample at a time.
        order: ``"given"``, or ``"shuffled"`` anew each epoch; of the training part.
        split: shares of train, validation and test. By default 0.6, 0.2 and 0.2; a gate is small enough to be learned
            whole, so all of it is training data.
        scale: ``"none"``, ``"minmax"``, ``"standard"`` or ``"maxabs"``; ``"auto"`` is ``"standard"`` for dense samples
            and ``"maxabs"`` for sparse ones, whose zeros must stay zeros.
        seed: of split and order.
        dtype: ``"float32"`` or ``"float64"``, as the net has.

    Example:
        >>> data = TabularDataModule("iris", options={"positive": "setosa"}, scale="standard")
        >>> data.width, data.classes, [len(part[1]) for part in data.parts]
        (4, None, [90, 30, 30])
    """

    def __init__(
        self,
        source: str | Path = "AND",
        options: dict[str, Any] | None = None,
        batch_size: int | str = "full",
        order: str = "given",
        split: tuple[float, float, float] | None = None,
        scale: str = "none",
        seed: int = 0,
        dtype: str = "float32",
    ) -> None:
        super().__init__()
        self.source, self.options = source, dict(options or {})
        check_batch_size(batch_size, 1)
        self.batch_size = batch_size
        self.order = checks.one_of("order", order, LOADER_ORDERS)
        self.split = split
        self.seed = checks.whole("seed", seed, at_least=0)
        self.dtype = DTYPES[checks.one_of("dtype", dtype, tuple(DTYPES))]
        self.scale = checks.one_of("scale", scale, (*SCALINGS, "auto"))
        self.save_hyperparameters(
            {
                "source": str(source),
                "options": self.options,
                "batch_size": batch_size,
                "order": order,
                "split": None if split is None else list(split),
                "scale": scale,
                "seed": seed,
                "dtype": dtype,
            },
            logger=False,  # a Trainer refuses to log two options of one name, and LitRule has order and seed, too
        )

    @cached_property
    def dataset(self) -> Dataset:
        """The whole source, as it is."""
        return load(self.source, **self.options)

    @property
    def width(self) -> int:
        """The number of features."""
        return int(self.dataset.X.shape[1])

    @property
    def names(self) -> tuple[str, ...]:
        """Of the features."""
        return self.dataset.names

    @property
    def sparse(self) -> bool:
        """Whether samples are sparse."""
        return checks.is_sparse(self.dataset.X) or isinstance(self.dataset.X, CsrParts)

    @property
    def classes(self) -> int | None:
        """``None`` for two labels, else their number."""
        return self.dataset.classes

    @cached_property
    def indices(self) -> tuple[Tensor, Tensor, Tensor]:
        """Which samples are in the train, validation and test part."""
        shares = self.split or ((1.0, 0.0, 0.0) if is_gate(str(self.source)) else (0.6, 0.2, 0.2))
        return split_rows(self.dataset.y, shares, self.seed)

    @cached_property
    def partition(self) -> Partition:
        """The parts, and what the training part said about scale and missing values."""
        kind = ("maxabs" if self.sparse else "standard") if self.scale == "auto" else self.scale
        cache = self.options.get("cache")
        return make_partition(self.dataset, self.indices, make_scaler(kind), dtype=self.dtype, cache=cache)

    @property
    def scaler(self) -> Scaler:
        """The scaling, fitted on the training part."""
        return self.partition.scaler

    @property
    def encoding(self) -> Encoding | None:
        """How the columns of the file became features, missing values filled as in the training part."""
        return self.partition.encoding

    @property
    def parts(self) -> tuple[tuple[Any, Tensor], ...]:
        """Scaled samples and labels of the three parts: tensors, CSR arrays, or what is read in parts."""
        return self.partition.parts

    def decode(self, codes: Tensor) -> list[str]:
        """Labels by the names the source gives them."""
        return self.dataset.decode(codes)

    def train_dataloader(self) -> SliceLoader:
        """The training part in batches."""
        return SliceLoader(*self.parts[0], self.batch_size, self.order, self.seed)

    def val_dataloader(self) -> SliceLoader | list[SliceLoader]:
        """The validation part as one batch, or a part at a time if it is larger than memory; none if there is none."""
        return self._whole(1)

    def test_dataloader(self) -> SliceLoader | list[SliceLoader]:
        """The test part in the same way."""
        return self._whole(2)

    def predict_dataloader(self) -> SliceLoader:
        """All samples in their order."""
        X = whole(self.dataset, self.partition, self.dtype)
        return SliceLoader(X, self.dataset.y, part_size(X))

    def _whole(self, part: int) -> SliceLoader | list[SliceLoader]:
        X, y = self.parts[part]
        return SliceLoader(X, y, part_size(X)) if len(y) else []

    def state_dict(self) -> dict[str, Any]:
        """What was fitted, for those who apply the model elsewhere."""
        state = {
            "scaler": self.scaler.state(),
            "labels": list(self.dataset.labels),
            "data": self._hash,
            "seed": self.seed,
        }
        return state if self.encoding is None else {**state, "encoding": self.encoding.state()}

    @cached_property
    def _hash(self) -> str:
        """Of samples, labels and split; what is larger than memory is read once for it, a part at a time."""
        X = self.dataset.X
        rows: Rows
        if in_parts(X):
            rows = rows_as_read(X)
        elif checks.is_sparse(X):
            rows = CsrRows(X)
        else:
            rows = DenseRows(X if isinstance(X, Tensor) else checks.shared(X))  # a small mapped file
        return rows.hash(torch.cat([self.dataset.y, *self.indices]))

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Refuse to go on with other data than the run began with."""
        fitting = self.trainer is None or self.trainer.state.fn == pl.trainer.states.TrainerFn.FITTING
        if fitting and state_dict != self.state_dict():
            raise ValueError(f"source={self.source!r} is not the data the checkpoint was made on, or its split differs")
