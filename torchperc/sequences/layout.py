"""How sequences lie in memory: their tokens one after the other, as dense rows or as lists of active features."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np
import torch
from torch import Tensor

from torchperc import _checks as checks
from torchperc.samples import digest

if TYPE_CHECKING:
    from scipy.sparse import csr_array

Array: TypeAlias = np.ndarray[Any, Any]
PAD = -100
"""The tag behind the end of a sequence, which losses ignore, as ``ignore_index`` in torch."""


class PaddedSequences(NamedTuple):
    """A batch: x (N, T, d) of numbers, or (N, T, F) of feature numbers padded with −1, and lengths (N,)."""

    x: Tensor
    lengths: Tensor


@dataclass(frozen=True, eq=False, repr=False)
class Sequences:
    """N sequences of tokens, each token with d features: dense rows, or the numbers of its active features.

    Args:
        offsets: where sequences begin and end: tokens of sequence i are ``offsets[i]:offsets[i + 1]``.
        width: d, the number of features.
        dense: the features of all tokens, or ``None`` if they are sparse.
        indptr: where the features of each token begin and end in ``ids``.
        ids: feature numbers from 0 to d − 1; a number that occurs twice in a token counts twice.
        values: of these features; ``None`` if each is 1.

    Shape:
        offsets (N + 1,), dense (T, d) for T tokens in all, indptr (T + 1,), ids and values of equal length.

    Example:
        >>> two = Sequences.of([[[1, 0], [0, 1], [1, 1]], [[0, 1]]])
        >>> len(two), two.tokens, two.width, two.lengths.tolist()
        (2, 4, 2, [3, 1])
        >>> two.take([1]).dense
        array([[0., 1.]], dtype=float32)
    """

    offsets: Array
    width: int
    dense: Array | None = None
    indptr: Array | None = None
    ids: Array | None = None
    values: Array | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "width", checks.whole("width", self.width, at_least=1))
        object.__setattr__(self, "offsets", _whole("offsets", self.offsets, np.int64))
        _check_bounds("offsets", self.offsets, "sequence")
        lengths = np.diff(self.offsets)
        if not len(lengths):
            raise ValueError("there are no sequences; give at least one")
        if (lengths < 1).any():
            raise ValueError(f"sequence {int(np.argmax(lengths < 1))} is empty; leave empty sequences out")
        if (self.dense is None) == (self.ids is None):
            raise ValueError("give either dense or indptr and ids, not both and not neither")
        if self.dense is not None:
            if self.indptr is not None or self.values is not None:
                raise ValueError("indptr and values belong to sparse sequences; leave them out with dense")
            object.__setattr__(self, "dense", _floats("dense", self.dense, 2))
            if self.dense.shape[1] != self.width:
                raise ValueError(f"dense has {self.dense.shape[1]} features but width={self.width}")
        else:
            object.__setattr__(self, "indptr", _whole("indptr", self.indptr, np.int64))
            object.__setattr__(self, "ids", _whole("ids", self.ids, np.int32))
            assert self.indptr is not None
            assert self.ids is not None
            _check_bounds("indptr", self.indptr, "token")
            if self.values is not None:
                object.__setattr__(self, "values", _floats("values", self.values, 1))
                assert self.values is not None
                if len(self.values) != len(self.ids):
                    raise ValueError(f"values has {len(self.values)} numbers for {len(self.ids)} ids")
            if self.indptr[-1] != len(self.ids):
                raise ValueError(f"indptr ends at {self.indptr[-1]}, but there are {len(self.ids)} ids")
        if self.offsets[-1] != self._rows:
            raise ValueError(f"offsets ends at {self.offsets[-1]}, but there are {self._rows} tokens")
        self._check_numbers()

    @property
    def _rows(self) -> int:
        if self.dense is not None:
            return len(self.dense)
        assert self.indptr is not None
        return len(self.indptr) - 1

    def _check_numbers(self) -> None:
        if self.ids is not None and len(self.ids) and (self.ids.min() < 0 or self.ids.max() >= self.width):
            wrong = int(np.argmax((self.ids < 0) | (self.ids >= self.width)))
            raise ValueError(
                f"{self._place(wrong)} has feature {self.ids[wrong]}; features run from 0 to {self.width - 1}"
            )
        numbers = self.dense if self.dense is not None else self.values
        if numbers is not None and not np.isfinite(numbers.sum(dtype=np.float64)) and not np.isfinite(numbers).all():
            at = int(np.argmax(~np.isfinite(numbers.reshape(-1))))
            raise ValueError(f"{self._place(at)} has a feature of {numbers.reshape(-1)[at]}; features must be finite")

    def _place(self, number: int) -> str:
        """The sequence and position of a stored number."""
        if self.dense is not None:
            token = number // self.width
        else:
            assert self.indptr is not None
            token = int(np.searchsorted(self.indptr, number, side="right")) - 1
        sequence = int(np.searchsorted(self.offsets, token, side="right")) - 1
        return f"sequence {sequence}, position {token - int(self.offsets[sequence])}"

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __repr__(self) -> str:
        kind = "dense" if self.dense is not None else "binary" if self.values is None else "sparse"
        return f"Sequences({len(self)} sequences, {self.tokens} tokens, {self.width} {kind} features)"

    @property
    def tokens(self) -> int:
        """T, the number of tokens in all sequences."""
        return int(self.offsets[-1])

    @property
    def lengths(self) -> Array:
        """The number of tokens of each sequence: (N,)."""
        return np.diff(self.offsets)

    @property
    def binary(self) -> bool:
        """Whether every stored feature is 1."""
        return self.dense is None and self.values is None

    def hash(self, y: Array | None = None) -> str:
        """A checksum of all sequences, and of their tags if they are given."""
        parts = (self.offsets, self.dense, self.indptr, self.ids, self.values, y)
        about = " ".join("-" if part is None else f"{part.dtype}{part.shape}" for part in parts)
        return digest.of_arrays(f"{self.width} {about}", (part for part in parts if part is not None))

    def take(self, index: Any) -> Sequences:
        """Some of the sequences, by a slice, sequence numbers or a mask.

        Example:
            >>> Sequences.of([[[1.0]], [[2.0], [3.0]]]).take(slice(1, 2)).dense.tolist()
            [[2.0], [3.0]]
        """
        try:
            numbers = np.arange(len(self))[index.cpu().numpy() if isinstance(index, Tensor) else index].reshape(-1)
        except (IndexError, OverflowError) as error:
            raise ValueError(
                f"index must be numbers from 0 to {len(self) - 1}, a slice or a mask: {checks.first_line(error)}"
            ) from None
        if not len(numbers):
            raise ValueError("index names no sequence; at least one is needed")
        offsets, tokens = _ranges(self.offsets, numbers)
        if self.dense is not None:
            return Sequences(offsets, self.width, self.dense[tokens])
        assert self.indptr is not None
        assert self.ids is not None
        indptr, at = _ranges(self.indptr, tokens)
        values = None if self.values is None else self.values[at]
        return Sequences(offsets, self.width, None, indptr, self.ids[at], values)

    def padded(self, index: Any = None) -> PaddedSequences:
        """A batch for :class:`ChainPerceptron`: numbers (n, T, d) with zeros behind the end, or for binary features
        their numbers (n, T, F) with −1 behind the end.

        Example:
            >>> x, lengths = Sequences.of([[[1.0]], [[2.0], [3.0]]]).padded()
            >>> x.squeeze(-1).tolist(), lengths.tolist()
            ([[1.0, 0.0], [2.0, 3.0]], [1, 2])
        """
        part = self if index is None else self.take(index)
        lengths, longest = part.lengths, int(part.lengths.max())
        places = np.repeat(np.arange(len(part)) * longest - part.offsets[:-1], lengths) + np.arange(part.tokens)
        if part.dense is not None:
            x = np.zeros((len(part) * longest, part.width), part.dense.dtype)
            x[places] = part.dense
        else:
            assert part.indptr is not None
            assert part.ids is not None
            counts = np.diff(part.indptr)
            if part.values is None:
                x = np.full((len(part) * longest, max(1, int(counts.max()))), -1, np.int64)
                columns = np.arange(len(part.ids)) - np.repeat(part.indptr[:-1], counts)
                x[np.repeat(places, counts), columns] = part.ids
            else:
                x = np.zeros((len(part) * longest, part.width), part.values.dtype)
                np.add.at(x, (np.repeat(places, counts), part.ids), part.values)
        made = torch.from_numpy(x.reshape(len(part), longest, -1))
        return PaddedSequences(made, torch.from_numpy(lengths.copy()))

    @classmethod
    def of(cls, X: Any, *, width: int | None = None, name: str = "X") -> Sequences:
        """Sequences from what users have.

        Args:
            X: a list of arrays, tensors or lists (T_i, d), a list of scipy sparse matrices or sparse tensors, an array
                or tensor (N, T, d), an integer tensor (N, T, F) of feature numbers as a net reads it, (x, lengths) with
                one of these, or sequences, which are returned as they are.
            width: the number of features they must have, if known.
            name: the parameter's name for error messages.
        """
        found = cls._of(X, width, name)
        if width is not None and found.width != width:
            raise ValueError(f"{name} has {found.width} features but {width} are needed, as the net or model has")
        return found

    @classmethod
    def _of(cls, X: Any, width: int | None, name: str) -> Sequences:
        if isinstance(X, Sequences):
            return X
        if isinstance(X, tuple) and len(X) == 2 and all(isinstance(each, Tensor) for each in X) and X[0].dim() == 3:
            X = PaddedSequences(*X)
        elif isinstance(X, Tensor) and X.dim() == 3 and not X.is_floating_point():  # feature numbers, as for a net
            X = PaddedSequences(X, torch.full((len(X),), X.shape[1]))
        if isinstance(X, PaddedSequences):
            return cls._unpadded(X, width, name)
        if isinstance(X, Tensor | np.ndarray) and X.dtype != object:
            if X.ndim != 3:
                raise ValueError(f"{name} must have shape (N, T, d), or be a list of (T, d), found {tuple(X.shape)}")
            X = list(X)
        if isinstance(X, str | bytes) or not isinstance(X, Sequence | np.ndarray):
            raise TypeError(f"{name} must be a list of sequences or a Sequences, found {type(X).__name__}")
        if not len(X):
            raise ValueError(f"{name} is empty; give at least one sequence")
        sparse = [checks.is_sparse(each) for each in X]
        if any(sparse):
            if not all(sparse):
                raise TypeError(f"{name} mixes sparse and dense sequences; convert one kind into the other")
            return _of_csr([checks.as_csr(each, f"{name}[{i}]") for i, each in enumerate(X)], name)
        parts = [_dense(each, f"{name}[{i}]") for i, each in enumerate(X)]
        _same_widths([part.shape[1] for part in parts], name)
        offsets = np.cumsum([0, *map(len, parts)])
        return cls(offsets, parts[0].shape[1], np.concatenate(parts))

    @classmethod
    def _unpadded(cls, X: PaddedSequences, width: int | None, name: str) -> Sequences:
        x, lengths = X
        if x.dim() != 3 or lengths.shape != x.shape[:1]:
            raise ValueError(f"{name} must be x (N, T, d) and lengths (N,), found {tuple(x.shape)} and "
                             f"{tuple(lengths.shape)}")  # fmt: skip
        counts = lengths.detach().cpu().numpy()
        if (counts < 1).any() or (counts > x.shape[1]).any():
            wrong = int(np.argmax((counts < 1) | (counts > x.shape[1])))
            raise ValueError(f"sequence {wrong} has length {counts[wrong]}; lengths run from 1 to {x.shape[1]}")
        parts = [each[:n] for each, n in zip(x.detach().cpu(), counts.tolist(), strict=True)]
        if x.is_floating_point():
            return cls._of(parts, width, name)
        if width is None:
            raise ValueError(f"{name} holds feature numbers, of which the width is not known; give width")
        return cls.of_numbers(torch.cat(parts), np.concatenate(([0], counts.cumsum())), width)

    @classmethod
    def of_numbers(cls, tokens: Tensor, offsets: Array, width: int) -> Sequences:
        """Sequences of binary features from the feature numbers of all tokens, with −1 for none.

        Args:
            tokens: (T, F) integers.
            offsets: where sequences begin and end.
            width: the number of features.

        Example:
            >>> Sequences.of_numbers(torch.tensor([[0, 2], [1, -1]]), np.array([0, 1, 2]), 3).ids
            array([0, 2, 1], dtype=int32)
        """
        if tokens.dtype == torch.bool or tokens.is_complex():
            raise TypeError(f"x must hold numbers, or feature numbers as integers, found {tokens.dtype}")
        numbers = tokens.numpy()
        if numbers.size and (numbers.min() < -1 or numbers.max() >= width):
            token, column = (int(each[0]) for each in ((numbers < -1) | (numbers >= width)).nonzero())
            sequence = int(np.searchsorted(offsets, token, side="right")) - 1
            raise ValueError(
                f"sequence {sequence}, position {token - int(offsets[sequence])} has feature {numbers[token, column]}; "
                f"features run from 0 to {width - 1}, −1 means no feature"
            )
        active = numbers >= 0
        indptr = np.concatenate(([0], active.sum(1).cumsum()))
        return cls(offsets, width, None, indptr, numbers[active])


def flat_tags(y: Any, sequences: Sequences, tags: int, name: str = "y") -> Array:
    """Tags as one array (T,) of int64, each from 0 to K − 1.

    Args:
        y: a list of integer sequences, one flat array (T,), or a batch (N, T) padded with −100.
        sequences: which they belong to.
        tags: K.
        name: the parameter's name for error messages.

    Example:
        >>> flat_tags([[0, 1], [2]], Sequences.of([[[1.0], [1.0]], [[1.0]]]), 3)
        array([0, 1, 2])
    """
    lengths = sequences.lengths
    if isinstance(y, Tensor) or (isinstance(y, np.ndarray) and y.dtype != object):
        flat = checks.as_tensor(y, name).cpu().numpy()
        if flat.ndim == 2:
            flat = _unpadded_tags(flat, lengths, name)
    elif isinstance(y, str | bytes) or not isinstance(y, Sequence | np.ndarray):
        raise TypeError(f"{name} must be a list of integer sequences or a flat array, found {type(y).__name__}")
    elif not any(isinstance(each, Sequence | np.ndarray | Tensor) for each in y):
        flat = checks.as_tensor(y, name).numpy()
    else:
        if len(y) != len(sequences):
            raise ValueError(f"{name} has {len(y)} sequences but there are {len(sequences)}")
        parts = [checks.as_tensor(each, f"{name}[{i}]").cpu().reshape(-1).numpy() for i, each in enumerate(y)]
        for i, (part, length) in enumerate(zip(parts, lengths, strict=True)):
            if len(part) != length:
                raise ValueError(f"{name}: sequence {i} has {len(part)} tags for {length} tokens")
        flat = np.concatenate(parts)
    if flat.ndim != 1 or len(flat) != sequences.tokens:
        raise ValueError(f"{name} has {flat.size} tags for {sequences.tokens} tokens; they must have the same number")
    if flat.dtype.kind not in "iu" and not (flat.dtype.kind == "f" and (np.rint(flat) == flat).all()):
        raise TypeError(f"{name} must hold integers from 0 to {tags - 1}, found {flat.dtype}; number your tags from 0")
    flat = np.ascontiguousarray(flat, np.int64)
    if flat.min() < 0 or flat.max() >= tags:
        at = int(np.argmax((flat < 0) | (flat >= tags)))
        sequence = int(np.searchsorted(sequences.offsets, at, side="right")) - 1
        raise ValueError(
            f"{name}: sequence {sequence}, position {at - int(sequences.offsets[sequence])} has tag {flat[at]}; tags "
            f"run from 0 to {tags - 1}"
        )
    return flat


def _unpadded_tags(y: Array, lengths: Array, name: str) -> Array:
    """The tags of a batch (N, T) that are not behind the end of their sequence."""
    if len(y) != len(lengths) or y.shape[1] < lengths.max():
        raise ValueError(
            f"{name} has shape {y.shape}, but there are {len(lengths)} sequences of up to {lengths.max()} tokens"
        )
    behind = np.arange(y.shape[1]) >= lengths[:, None]
    if (y[behind] != PAD).any():
        row = int(np.argmax((behind & (y != PAD)).any(1)))
        raise ValueError(f"{name}: sequence {row} has tags behind its end; pad with {PAD}")
    flat: Array = y[~behind]
    return flat


def tag_lengths(y: Tensor) -> Tensor:
    """The lengths of sequences whose tags (N, T) have −100 behind the end."""
    inside = y != PAD
    lengths = inside.sum(1)
    gaps = inside != (torch.arange(y.shape[1], device=y.device) < lengths[:, None])
    if gaps.any():
        row = int(gaps.any(1).nonzero()[0])
        raise ValueError(f"sequence {row} of a batch has {PAD} before its end; pad tags behind the end only")
    return lengths


def with_lengths(X: Any, y: Any) -> Any:
    """A batch (N, T, …) without lengths, with those of its tags (N, T) if they are padded; all else as it is."""
    arrays = all(isinstance(each, Tensor | np.ndarray) and each.dtype != object for each in (X, y))
    if not arrays or X.ndim != 3 or y.ndim != 2 or X.shape[:2] != y.shape or not (y == PAD).any():
        return X
    return PaddedSequences(torch.as_tensor(X), tag_lengths(torch.as_tensor(y)))


def split(flat: Array, sequences: Sequences) -> list[Tensor]:
    """A flat array of tags as one int64 tensor per sequence."""
    return list(torch.from_numpy(flat.astype(np.int64, copy=False)).split(sequences.lengths.tolist()))


def _ranges(bounds: Array, numbers: Array) -> tuple[Array, Array]:
    """The bounds of some ranges placed one after the other, and the places that they cover."""
    lengths = bounds[numbers + 1] - bounds[numbers]
    made = np.concatenate(([0], lengths.cumsum()))
    return made, np.arange(made[-1]) + np.repeat(bounds[numbers] - made[:-1], lengths)


def _whole(name: str, array: Any, dtype: Any) -> Array:
    if not isinstance(array, np.ndarray) or array.dtype.kind not in "iu" or array.ndim != 1:
        found = f"{array.dtype} {array.shape}" if isinstance(array, np.ndarray) else type(array).__name__
        raise TypeError(f"{name} must be an array of integers in one dimension, found {found}")
    made = np.require(array, dtype, ["C", "W"])
    if array.size and array.dtype.itemsize > made.dtype.itemsize and (made != array).any():
        raise ValueError(f"{name} holds {array.max()}, which {made.dtype} cannot hold")
    return made


def _floats(name: str, array: Any, dimensions: int) -> Array:
    if not isinstance(array, np.ndarray) or array.dtype not in (np.float32, np.float64) or array.ndim != dimensions:
        found = f"{array.dtype} {array.shape}" if isinstance(array, np.ndarray) else type(array).__name__
        raise TypeError(f"{name} must be an array of float32 or float64 in {dimensions} dimensions, found {found}")
    return np.require(array, None, ["C", "W"])


def _check_bounds(name: str, bounds: Array, what: str) -> None:
    if not len(bounds) or bounds[0] != 0:
        raise ValueError(f"{name} must begin with 0, found {bounds[:1].tolist()}")
    falls = np.diff(bounds) < 0
    if falls.any():
        raise ValueError(f"{name} falls at {what} {int(np.argmax(falls))}; bounds must rise")


def _dense(each: Any, name: str) -> Array:
    tensor = checks.as_tensor(each, name)
    if tensor.dim() != 2 or not tensor.shape[1]:
        if not tensor.numel() and tensor.dim() < 3:
            raise ValueError(f"{name} is empty; leave empty sequences out")
        raise ValueError(f"{name} must have shape (T, d), found {tuple(tensor.shape)}")
    if not len(tensor):
        raise ValueError(f"{name} is empty; leave empty sequences out")
    if tensor.dtype == torch.float64:
        return tensor.cpu().numpy()
    made: Array = tensor.cpu().to(torch.float32).numpy()
    if not tensor.is_floating_point() and not torch.equal(torch.from_numpy(made).to(tensor.dtype), tensor.cpu()):
        made = tensor.cpu().double().numpy()
    return made


def _of_csr(parts: list[csr_array], name: str) -> Sequences:
    _same_widths([part.shape[1] for part in parts], name)
    for i, part in enumerate(parts):
        if not part.shape[0]:
            raise ValueError(f"{name}[{i}] is empty; leave empty sequences out")
    from scipy.sparse import vstack

    joined = vstack(parts, format="csr") if len(parts) > 1 else parts[0]
    values = joined.data.astype(np.result_type(joined.data.dtype, np.float32) if joined.data.dtype.kind == "f" else
                                np.float64, copy=False)  # fmt: skip
    offsets = np.cumsum([0, *(part.shape[0] for part in parts)])
    kept = None if len(values) and (values == 1).all() else np.ascontiguousarray(values)
    return Sequences(offsets, joined.shape[1], None, joined.indptr, joined.indices, kept)


def _same_widths(widths: list[int], name: str) -> None:
    for i, width in enumerate(widths):
        if width != widths[0]:
            raise ValueError(f"{name}[{i}] has {width} features but {name}[0] has {widths[0]}")
