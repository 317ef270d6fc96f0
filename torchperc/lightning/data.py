"""A table in batches for a Trainer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from torch import Tensor

from torchperc._checks import check_choice
from torchperc.data.prepared_data import PreparedData
from torchperc.lightning._pl import pl
from torchperc.lightning.loader import LOADER_ORDERS, SliceLoader, check_batch_size, part_size


class TabularDataModule(PreparedData, pl.LightningDataModule):
    """A table with train, validation and test splits.

    The split is stratified and seeded, missing values are filled and features scaled by the training set alone, and
    labels of any name are mapped to −1/+1 or class indices; ``decode`` maps them back. Sparse samples stay sparse. Real
    targets are split without regard to their values and scaled to mean 0 and standard deviation 1 of the training set;
    ``unscaled`` is the way back. Data larger than memory are split and scaled into temporary files; of sparse ones,
    give a ``batch_size``. In several processes a batch is that of all of them together, of which each has a piece.

    Args:
        source: a gate (``"AND"``, ``"XOR"``, ``"parity-3"``, …), ``"separable-blobs"``, ``"noisy-blobs"``, ``"moons"``,
            ``"iris"``, ``"wine"``, ``"breast-cancer"``, ``"digits"``, ``"diabetes"``, or the path of a
            file: CSV, Parquet, svmlight or NumPy's; a pattern such as ``"data/part-*.parquet"``, or a list of files.
        options: of the source, see :func:`torchperc.data.load`; ``task`` is one of them.
        batch_size: samples per batch, or ``"full"``.
        order: ``"given"``, or ``"shuffled"`` in every epoch; of the training set.
        split: fractions of train, validation and test; by default 0.6, 0.2 and 0.2, and for gates 1, 0 and 0.
        scale: ``"none"``, ``"minmax"``, ``"standard"``, ``"maxabs"``, or ``"auto"``: ``"standard"`` for dense samples,
            ``"maxabs"`` for sparse ones.
        seed: of split and order.
        dtype: ``"float32"`` or ``"float64"``, as the net has.

    Example:
        >>> data = TabularDataModule("iris", options={"positive": "setosa"}, scale="standard")
        >>> data.width, data.classes, [len(part[1]) for part in data.parts]
        (4, None, [90, 30, 30])
        >>> data = TabularDataModule("diabetes", scale="standard")
        >>> data.task, data.parts[0][1].mean().abs() < 1e-9, data.unscaled(data.parts[0][1])[:2]
        ('regression', tensor(True), tensor([151.,  75.], dtype=torch.float64))
    """

    def __init__(
        self,
        source: str | Path | list[str] = "AND",
        options: dict[str, Any] | None = None,
        batch_size: int | str = "full",
        order: str = "given",
        split: tuple[float, float, float] | None = None,
        scale: str = "none",
        seed: int = 0,
        dtype: str = "float32",
    ) -> None:
        super().__init__(source, options, split, scale, seed, dtype)
        check_batch_size(batch_size, 1)
        self.batch_size = batch_size
        self.order = check_choice("order", order, LOADER_ORDERS)
        kept = {**self.settings, "batch_size": batch_size, "order": order}
        self.save_hyperparameters(kept, logger=False)  # as LitRule has order and seed, too

    def train_dataloader(self) -> SliceLoader:
        """The training set in batches."""
        return SliceLoader(*self.parts[0], self.batch_size, self.order, self.seed, self._sharding)

    def val_dataloader(self) -> SliceLoader | list[SliceLoader]:
        """Return the validation set, if there is one, as one batch or as what fits into memory."""
        return self._evaluated(*self.parts[1])

    def test_dataloader(self) -> SliceLoader | list[SliceLoader]:
        """Return the test set likewise."""
        return self._evaluated(*self.parts[2])

    def predict_dataloader(self) -> SliceLoader | list[SliceLoader]:
        """All samples in their order."""
        return self._evaluated(self.all_samples(), self.scaled_target(self.dataset.y))

    @property
    def _sharding(self) -> str:
        """Processes share the batches if they are those of the Trainer."""
        return "split" if self.trainer is not None and self.trainer.world_size > 1 else "none"

    def _evaluated(self, X: Any, y: Tensor) -> SliceLoader | list[SliceLoader]:
        return SliceLoader(X, y, part_size(X), sharding=self._sharding) if len(y) else []

    def state_dict(self) -> dict[str, Any]:
        """A hash of the data, the encoding, the scaling, and the seed of split and order."""
        scalers = [scaler and scaler.state() for scaler in (self.scaler, self.target_scaler)]
        fitted = {"labels": list(self.dataset.labels), "encoding": self.encoder and self.encoder.to_json()}
        return {"data": self.digest, "scalers": scalers, "seed": self.seed, **fitted}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Refuse to resume with other data."""
        if self.trainer is not None and self.trainer.state.fn != pl.trainer.states.TrainerFn.FITTING:
            return
        if state_dict != self.state_dict():
            raise ValueError(f"source={self.source!r} is not the data the checkpoint was made on, or its split differs")
