"""A table that is learned from: read, split and scaled by its training set."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import lazy_loader

from torchperc._checks import Option, ParameterError, check_choice, check_int, is_sparse, tensor_view
from torchperc.data.gates import is_gate
from torchperc.data.sources import load
from torchperc.data.task import TASKS

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from torchperc.data.dataset import Dataset
    from torchperc.data.encoding import Encoding
    from torchperc.data.partition import Partition
    from torchperc.data.scaling import Scaler
    from torchperc.samples.dense import Samples
else:
    torch = lazy_loader.load("torch")

DTYPES = ("float32", "float64")
SCALES = ("none", "minmax", "standard", "maxabs", "auto")


class SplitTable:
    """A table with train, validation and test splits; what :class:`~torchperc.lightning.TabularDataModule` is without
    a Trainer, with the same arguments.

    Example:
        >>> table = SplitTable("iris", {"positive": "setosa"}, scale="standard")
        >>> table.width, table.classes, [len(part[1]) for part in table.parts]
        (4, None, [90, 30, 30])
    """

    def __init__(
        self,
        source: str | Path | list[str] = "AND",
        options: dict[str, Any] | None = None,
        split: tuple[float, float, float] | None = None,
        scale: str = "none",
        seed: int = 0,
        dtype: str = "float32",
        task: str | None = None,
        scale_target: str = "auto",
    ) -> None:
        super().__init__()
        self.source, self.options = source, dict(options or {})
        self.split = split
        self.seed = check_int("seed", seed, at_least=0)
        check_choice("dtype", dtype, DTYPES)
        self.scale = check_choice("scale", scale, SCALES)
        if task is not None:
            check_choice("task", task, TASKS)
            if "task" in self.options:
                raise ValueError(f"task={task!r} and options['task']={self.options['task']!r} say it twice; drop one")
            self.options["task"] = task
        self.scale_target = check_choice("scale_target", scale_target, SCALES)
        named = str(source) if isinstance(source, str | Path) else [str(each) for each in source]
        self.settings: dict[str, Any] = {"source": named, "options": dict(options or {})}
        self.settings |= {"split": None if split is None else list(split), "scale": scale, "seed": seed}
        self.settings |= {"dtype": dtype, "task": task, "scale_target": scale_target}

    @property
    def dtype(self) -> torch.dtype:
        """Of the scaled samples."""
        made: torch.dtype = getattr(torch, self.settings["dtype"])
        return made

    @cached_property
    def dataset(self) -> Dataset:
        """The whole source, unscaled."""
        made = load(self.source, **self.options)
        if made.labels and self.scale_target != "auto":
            why = f" needs real targets, but {self.source} has labels; leave it out"
            raise ParameterError(Option("scale_target", self.scale_target), why)
        return made

    @property
    def task(self) -> str:
        """``"classification"``, or ``"regression"`` if the targets are real numbers."""
        return self.dataset.task

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
        from torchperc.samples.mapped import CsrParts

        return is_sparse(self.dataset.X) or isinstance(self.dataset.X, CsrParts)

    @property
    def classes(self) -> int | None:
        """``None`` for two labels and for real targets, else the number of labels."""
        return self.dataset.classes

    @cached_property
    def indices(self) -> tuple[Tensor, Tensor, Tensor]:
        """Which samples are in the train, validation and test set."""
        fractions = self.split or ((1.0, 0.0, 0.0) if is_gate(str(self.source)) else (0.6, 0.2, 0.2))
        from torchperc.data.splits import split as split_rows

        return split_rows(self.dataset.y, fractions, self.seed, stratify=self.task == "classification")

    @cached_property
    def partition(self) -> Partition:
        """The three sets, and the scaling and missing values of the training set."""
        from torchperc.data.partition import make_partition
        from torchperc.data.scaling import make_scaler

        kind = ("maxabs" if self.sparse else "standard") if self.scale == "auto" else self.scale
        cache = self.options.get("cache")
        return make_partition(self.dataset, self.indices, make_scaler(kind), dtype=self.dtype, cache=cache)

    @property
    def scaler(self) -> Scaler:
        """The scaling, fitted on the training set."""
        return self.partition.scaler

    @property
    def encoding(self) -> Encoding | None:
        """How the columns of the file became features, missing values filled as in the training set."""
        return self.partition.encoding

    @cached_property
    def parts(self) -> tuple[tuple[Any, Tensor], ...]:
        """Scaled samples and labels or targets of the three sets: tensors, CSR arrays, or data larger than memory."""
        return tuple((X, self._scaled(y)) for X, y in self.partition.parts)

    @cached_property
    def target_scaler(self) -> Scaler | None:
        """The scaling of real targets, as one column, fitted on the training set; ``None`` for labels."""
        if self.task == "classification":
            return None
        from torchperc.data.scaling import make_scaler

        kind = "standard" if self.scale_target == "auto" else self.scale_target
        return make_scaler(kind).fit_target(self.partition.parts[0][1])

    @property
    def target_unit(self) -> float:
        """What an error of 1 in the scaled target is in the target's own units; 1 for labels."""
        scale = None if self.target_scaler is None else self.target_scaler.scale
        return 1.0 if scale is None else float(scale)

    def _scaled(self, y: Tensor) -> Tensor:
        scaler = self.target_scaler
        if scaler is None or not len(y):
            return y
        scaled: Tensor = scaler.transform(y)
        return scaled

    def unscaled(self, y: Tensor) -> Tensor:
        """Predictions, or targets as ``parts`` has them, in the target's own units (N,)."""
        if self.target_scaler is None:
            raise ValueError("the data have labels, which are not scaled; decode gives their names")
        return self.target_scaler.inverse(y.double()) if len(y) else y

    def decode(self, codes: Tensor) -> list[str]:
        """Labels by the names the source gives them."""
        return self.dataset.decode(codes)

    @cached_property
    def digest(self) -> str:
        """Of samples, labels and split."""
        from torchperc.samples.dense import Dense
        from torchperc.samples.mapped import chunked, is_chunked
        from torchperc.samples.sparse import Sparse

        X = self.dataset.X
        rows: Samples
        if is_chunked(X):
            rows = chunked(X)
        elif is_sparse(X):
            rows = Sparse(X)
        else:
            rows = Dense(X if isinstance(X, torch.Tensor) else tensor_view(X))  # a small mapped file
        return rows.hash(torch.cat([self.dataset.y, *self.indices]))
