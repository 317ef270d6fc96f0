"""Samples ready to learn from: split, missing values imputed and features scaled by the training set alone."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import lazy_loader
import numpy as np

from torchperc._checks import Data, Option, ParameterError, check_bool, check_choice, check_int, check_number, is_sparse
from torchperc.data.example_data import is_gate, load
from torchperc.data.read import mapped

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from torchperc.data.datasets import Dataset
    from torchperc.data.scaling import Scaler
    from torchperc.data.table_encoder import TableEncoder
    from torchperc.samples.rows import Samples
else:
    torch = lazy_loader.load("torch")  # a bad file is refused before torch is imported

_ROUNDING = 1e-6  # 0.29 of 100 samples is 29 of them, which it is not in binary
DTYPES = ("float32", "float64")
SCALES = ("none", "minmax", "standard", "maxabs", "auto")


class PreparedData:
    """A data set with scaled train, validation and test sets.

    What was missing becomes the mean of its feature over the training samples that have it, or 0 if none has. Then the
    scaler is fitted on the training set; real targets are scaled to mean 0 and standard deviation 1 there. Data larger
    than memory are read and written in chunks.

    Args:
        source: what :func:`~torchperc.data.load` accepts: a name, files, a data frame, or a Dataset.
        options: of the source.
        split: fractions of train, validation and test; by default 0.6, 0.2 and 0.2, and for gates 1, 0 and 0.
        scale: ``"none"``, ``"minmax"``, ``"standard"``, ``"maxabs"``, or ``"auto"``: ``"standard"`` for dense samples,
            ``"maxabs"`` for sparse ones.
        seed: of the split.
        dtype: of the scaled samples, ``"float32"`` or ``"float64"``.

    Example:
        >>> data = PreparedData("iris", {"positive": "setosa"}, scale="standard")
        >>> data.width, data.classes, [len(y) for _, y in data.parts]
        (4, None, [90, 30, 30])
    """

    def __init__(
        self,
        source: Any = "AND",
        options: dict[str, Any] | None = None,
        split: tuple[float, float, float] | None = None,
        scale: str = "none",
        seed: int = 0,
        dtype: str = "float32",
    ) -> None:
        super().__init__()
        self.source, self.options, self.split = source, dict(options or {}), split
        self.seed, self.scale = check_int("seed", seed, at_least=0), check_choice("scale", scale, SCALES)
        many = isinstance(source, list | tuple)
        named = [*map(str, source)] if many else str(source) if isinstance(source, str | Path) else None
        self.settings: dict[str, Any] = {"source": named, "options": dict(self.options)}
        self.settings |= {"split": None if split is None else list(split), "scale": scale, "seed": seed}
        self.settings |= {"dtype": check_choice("dtype", dtype, DTYPES)}

    dtype = property(lambda self: getattr(torch, self.settings["dtype"]), doc="Of the scaled samples.")
    task = property(lambda self: self.dataset.task, doc='``"classification"``, or ``"regression"``.')
    width = property(lambda self: int(self.dataset.X.shape[1]), doc="The number of features.")
    names = property(lambda self: self.dataset.names, doc="Of the features.")
    classes = property(lambda self: self.dataset.classes, doc="The number of labels; ``None`` for two and for none.")

    @cached_property
    def dataset(self) -> Dataset:
        """The whole source, unscaled."""
        return load(self.source, **self.options)

    @cached_property
    def indices(self) -> tuple[Tensor, Tensor, Tensor]:
        """Which samples are in the train, validation and test set."""
        fractions = self.split or ((1.0, 0.0, 0.0) if is_gate(self.source) else (0.6, 0.2, 0.2))
        return split(self.dataset.y, fractions, self.seed, stratify=self.task == "classification")

    @property
    def _rows(self) -> Samples:
        """All samples, as they are in memory or in files; not kept, as a chunk of them would be."""
        from torchperc.samples.mapped import CsrParts, chunked
        from torchperc.samples.rows import Dense, Sparse

        X = self.dataset.X
        if isinstance(X, CsrParts | np.memmap):
            return chunked(X, torch.float64)
        return Sparse(X) if is_sparse(X) else Dense(X)

    @cached_property
    def _at_once(self) -> int:
        """How many scaled samples are held in memory together."""
        from torchperc.samples.mapped import CHUNK, Chunked

        rows, size = self._rows, np.dtype(self.settings["dtype"]).itemsize
        return max(1, CHUNK // (size * next(rows.all_parts()).terms)) if isinstance(rows, Chunked) else len(rows)

    def _chunks(self, index: Tensor, means: Tensor | None, scaler: Scaler | None = None) -> Iterator[Any]:
        """Some samples, in ascending order and imputed and scaled, as many together as memory asks for."""
        missing, rows = self.dataset.missing_positions, self._rows
        for numbers in index.split(self._at_once):
            some: Any = rows.take(numbers).raw()
            if missing is not None and means is not None:
                at, columns = missing[torch.isin(missing[:, 0], numbers)].numpy().T.copy()
                at = np.searchsorted(numbers.numpy(), at)
                with warnings.catch_warnings(action="ignore"):  # a mean of 0 is no entry of a sparse array
                    (some if rows.sparse else some.numpy())[at, columns] = means.numpy()[columns]
            if scaler is not None:
                some = scaler.transform(some) if len(numbers) else some
                some = some.astype(self.settings["dtype"], copy=False) if rows.sparse else some.to(self.dtype)
            yield some

    @cached_property
    def _means(self) -> Tensor | None:
        """The mean of each feature over the training samples that have it, 0 where none has."""
        missing, train = self.dataset.missing_positions, self.indices[0]
        if missing is None:
            return None
        absent = torch.bincount(missing[torch.isin(missing[:, 0], train), 1], minlength=self.width)
        chunks = self._chunks(train, torch.zeros(self.width, dtype=torch.float64))
        return sum(torch.as_tensor(chunk.sum(0)).reshape(-1) for chunk in chunks) / (len(train) - absent).clamp(1)

    @cached_property
    def scaler(self) -> Scaler:
        """The scaling, fitted on the training set."""
        from torchperc.data.scaling import Scaler

        kind = ("maxabs" if self._rows.sparse else "standard") if self.scale == "auto" else self.scale
        return Scaler.fit(kind, lambda: self._chunks(self.indices[0], self._means))

    @cached_property
    def encoder(self) -> TableEncoder | None:
        """How the columns of the file became features, missing values imputed as in the training set."""
        encoder, means = self.dataset.encoder, self._means
        return encoder if encoder is None or means is None else encoder.with_imputed_values(means.tolist())

    @cached_property
    def parts(self) -> tuple[tuple[Any, Tensor], ...]:
        """Scaled samples and labels or targets of the three sets: tensors, CSR arrays, or data larger than memory."""
        return tuple((self._scaled(index), self.scaled_target(self.dataset.y[index])) for index in self.indices)

    def all_samples(self) -> Any:
        """All samples in their order, imputed and scaled: a tensor, a CSR array, or data larger than memory."""
        return self._scaled(torch.arange(len(self.dataset.y)))

    def _scaled(self, index: Tensor) -> Any:
        """Some samples imputed and scaled, in files of their own if they are larger than memory."""
        X, dtype = self.dataset.X, self.settings["dtype"]
        whole = len(index) == len(self.dataset.y) and self.dataset.missing_positions is None
        if whole and self.scaler.kind == "none" and isinstance(X, np.memmap) and X.dtype == dtype:
            return X
        chunks = self._chunks(index, self._means, self.scaler)
        few = len(index) <= self._at_once
        return next(chunks) if few else mapped(chunks, (len(index), self.width), self._rows.sparse, dtype)

    @cached_property
    def target_scaler(self) -> Scaler | None:
        """The scaling of real targets, as one column, fitted on the training set; ``None`` for labels."""
        from torchperc.data.scaling import Scaler

        return None if self.task == "classification" else Scaler.fit("standard", self.dataset.y[self.indices[0]])

    @property
    def target_unit(self) -> float:
        """What an error of 1 in the scaled target is in the target's own units; 1 for labels."""
        return 1.0 if self.target_scaler is None else float(self.target_scaler.scale)

    def scaled_target(self, y: Tensor) -> Tensor:
        """Targets as ``parts`` has them; labels as they are."""
        scaled: Tensor = y if self.target_scaler is None or not len(y) else self.target_scaler.transform(y)
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
        return str(self._rows.hash(torch.cat([self.dataset.y, *self.indices])))


def split(
    y: Data, fractions: Sequence[float] = (0.6, 0.2, 0.2), seed: int = 0, stratify: bool = True
) -> tuple[Tensor, Tensor, Tensor]:
    """Sample numbers (int64) of a training, a validation and a test set, each in ascending order.

    The sets have no sample in common and hold all of them. Of a class with n samples a set with fraction f gets
    ⌊n·f⌋ or ⌈n·f⌉, and the training set at least one.

    Args:
        y: the labels (N,), of any kind.
        fractions: of train, validation and test, adding up to 1; the last two may be 0.
        seed: of the generator.
        stratify: split each class by itself; if not, all samples together.

    Example:
        >>> train, validation, test = split([-1] * 6 + [1] * 4, fractions=(0.5, 0.5, 0))
        >>> len(train), len(validation), len(test), (train < 6).sum().item()
        (5, 5, 0, 3)
    """
    from torchperc.data.datasets import label_codes

    if not (count := len(y) if len(np.shape(y)) == 1 else 0):
        raise ValueError(f"y must be one label per sample, found shape {np.shape(y)}; give at least one sample")
    classes = label_codes(y)[1] if check_bool("stratify", stratify) else torch.zeros(count, dtype=torch.int64)
    three = np.shape(fractions) == (3,)
    values = [check_number(f"fractions[{i}]", each, at_least=0) for i, each in enumerate(fractions) if three]
    given = Option("fractions", tuple(fractions))
    if not three or abs(sum(values) - 1) > 1e-6 or not values[0]:
        why = " must be three numbers that add up to 1: of train, which must be above 0, validation and test"
        raise ParameterError(given, why)
    counts = _counts(torch.bincount(classes).numpy(), np.array(values) / sum(values))
    for name, value, sizes in zip(("train", "validation", "test"), values, counts.T, strict=True):
        if value > 0 and not sizes.any():
            why = f" leaves no sample for the {name} set of {count}; give more samples, or 0 for {name}"
            raise ParameterError(given, why)
    order = torch.randperm(count, generator=torch.Generator().manual_seed(check_int("seed", seed, at_least=0)))
    chunks = order[classes[order].argsort(stable=True)].split(counts.flatten().tolist())
    train, validation, test = (torch.cat(chunks[part::3]).sort().values for part in range(3))
    return train, validation, test


def _counts(sizes: Any, fractions: Any) -> Any:
    """How many of each class go to each set; what rounding leaves over goes to the sets that are furthest behind."""
    exact = sizes[:, None] * fractions
    counts, due = np.floor(exact + _ROUNDING).astype(np.int64), np.zeros(3)
    for k in sizes.argsort(kind="stable"):  # small ones first: they have the least choice
        due += exact[k] - counts[k]
        rank = np.where(exact[k] > counts[k] + _ROUNDING, np.round(due, 6), -np.inf)
        if counts[k, 0] == 0 and rank[0] > -np.inf:
            rank[0] = np.inf  # each class is to be trained on
        more = (-rank).argsort(kind="stable")[: sizes[k] - counts[k].sum()]
        counts[k, more] += 1
        due[more] -= 1
    return counts
