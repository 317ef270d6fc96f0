"""Weights of a chain as the compiled loops want them, and decoding with them on all cores."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from torchperc import _checks as checks
from torchperc.samples import compiling
from torchperc.sequences.layout import Array, Sequences

if TYPE_CHECKING:
    from torchperc.sequences.chains import ChainPerceptron

_LANES = 8  # tags are padded to whole vector registers


def padded(array: Array) -> Array:
    """Zeros behind the last column, up to a multiple of the vector width."""
    made = np.zeros((len(array), -(-array.shape[1] // _LANES) * _LANES), array.dtype)
    made[:, : array.shape[1]] = array
    return made


def plain(sequences: Sequences, dtype: Any) -> tuple[Array, Array, Array, Array]:
    """Features as the loops read them: (indptr, ids, values, dense), with nothing in what is not there."""
    none, no_ids = np.empty(0, np.int64), np.empty(0, np.int32)
    values, dense = np.empty(0, dtype), np.empty((0, 0), dtype)
    if sequences.dense is not None:
        return none, no_ids, values, sequences.dense.astype(dtype, copy=False)
    assert sequences.indptr is not None and sequences.ids is not None
    if sequences.values is not None:
        values = sequences.values.astype(dtype, copy=False)
    return sequences.indptr, sequences.ids, values, dense


@dataclass(frozen=True, eq=False)
class Decoder:
    """Weights laid out for decoding: rows of features and where they are, transitions and their bounds, end."""

    slot: Array
    rows: Array
    trans: Array
    end: Array
    width: int

    @classmethod
    def of(cls, net: ChainPerceptron) -> Decoder:
        """The weights of a net; those of the types that loops know are not copied."""
        dtype = np.float64 if net.weight.dtype.itemsize > 4 else np.float32
        weight, trans, end = (
            np.asarray(each.detach().cpu().float() if each.dtype.itemsize < 4 else each.detach().cpu())
            for each in (net.weight, net.transition, net.end)
        )
        rows = np.require(weight.T, dtype, "CW")
        for name, array in (("transition", trans), ("end", end)):
            if not np.isfinite(array).all():
                raise ValueError(f"net.{name} is not finite; reset the weights first")
        slot = np.arange(len(rows), dtype=np.int32)
        return cls(slot, rows, padded(trans), np.require(end, dtype, "CW"), net.width)

    def __call__(self, sequences: Sequences, n_jobs: int | None = None) -> Array:
        """The best tags of all sequences, as one array (T,)."""
        from torchperc.sequences import loops

        count, tags = len(self.end), np.empty(sequences.tokens, np.int64)
        pairs = self.trans[:count, :count]
        lows, highs = np.ascontiguousarray(pairs.min(1)), np.ascontiguousarray(pairs.max(1))
        data = plain(sequences, self.trans.dtype)
        threads = compiling.cores() if n_jobs is None else checks.whole("n_jobs", n_jobs, at_least=1)
        bad: list[int] = []

        def stretch(first: int, end: int) -> None:
            found = loops.decode(
                data, sequences.offsets, first, end, self.slot, self.rows, self.trans, self.end, lows, highs,
                self.width, tags,
            )  # fmt: skip
            if found >= 0:
                bad.append(found)

        compiling.on_all_cores(stretch, len(sequences), threads)
        if bad:
            raise ValueError(
                f"sequence {min(bad)} has a score that is not finite; its features or the weights are too large"
            )
        return tags
