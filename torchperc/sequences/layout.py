"""How sequences lie in memory: their tokens one after the other, each a row of a sparse matrix (CSR)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np
import torch
from torch import Tensor

from torchperc._checks import as_csr, as_tensor, check_int, first_line, is_sparse
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
    """N sequences of tokens, each token with d features, of which those that are not 0 are stored.

    Args:
        offsets: where sequences begin and end: tokens of sequence i are ``offsets[i]:offsets[i + 1]``.
        width: d, the number of features.
        indptr: where the features of each token begin and end in ``ids``.
        ids: feature numbers from 0 to d − 1; a number that occurs twice in a token counts twice.
        values: of these features; ``None`` if each is 1, as templates make them.

    Shape:
        offsets (N + 1,), indptr (T + 1,) for T tokens in all, ids and values of equal length.

    Example:
        >>> two = Sequences.of([[[1, 0], [0, 1], [1, 1]], [[0, 1]]])
        >>> len(two), two.tokens, two.width, two.lengths.tolist()
        (2, 4, 2, [3, 1])
        >>> two.take([1]).ids, two.take([1]).values
        (array([1], dtype=int32), array([1.], dtype=float32))
    """

    offsets: Array
    width: int
    indptr: Array
    ids: Array
    values: Array | None = None

    def __post_init__(self) -> None:
        check_int("width", self.width, at_least=1)
        for name, dtype in (("offsets", np.int64), ("indptr", np.int64), ("ids", np.int32)):
            object.__setattr__(self, name, np.require(getattr(self, name), dtype, ["C", "W"]))
        for name, bounds, end in (
            ("offsets", self.offsets, len(self.indptr) - 1),
            ("indptr", self.indptr, len(self.ids)),
        ):
            if not len(bounds) or bounds[0] != 0 or bounds[-1] != end or (np.diff(bounds) < 0).any():
                raise ValueError(f"{name} must rise from 0 to {end}, found {bounds[:1]} to {bounds[-1:]}")
        if len(self.offsets) < 2:
            raise ValueError("there are no sequences; give at least one")
        if (self.lengths < 1).any():
            raise ValueError(f"sequence {int(np.argmin(self.lengths))} is empty; leave empty sequences out")
        if len(self.ids) and (self.ids.min() < 0 or self.ids.max() >= self.width):
            wrong = int(np.argmax((self.ids < 0) | (self.ids >= self.width)))
            raise ValueError(
                f"{self._place(wrong)} has feature {self.ids[wrong]}; features run from 0 to {self.width - 1}"
            )
        if self.values is None:
            return
        if self.values.dtype not in (np.float32, np.float64) or self.values.shape != self.ids.shape:
            found = f"{self.values.dtype} of shape {self.values.shape}"
            raise ValueError(f"values must be float32 or float64 of shape {self.ids.shape}, found {found}")
        finite = np.isfinite(self.values)
        if not finite.all():
            at = int(np.argmin(finite))
            raise ValueError(f"{self._place(at)} has a feature of {self.values[at]}; features must be finite")

    def _place(self, number: int) -> str:
        """The sequence and position of a stored number."""
        return _place(int(np.searchsorted(self.indptr, number, side="right")) - 1, self.offsets)

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __repr__(self) -> str:
        kind = "binary " if self.values is None else ""
        return f"Sequences({len(self)} sequences, {self.tokens} tokens, {self.width} {kind}features)"

    @property
    def tokens(self) -> int:
        """T, the number of tokens in all sequences."""
        return int(self.offsets[-1])

    @property
    def lengths(self) -> Array:
        """The number of tokens of each sequence: (N,)."""
        return np.diff(self.offsets)

    def hash(self, y: Array | None = None) -> str:
        """A checksum of all sequences, and of their tags if they are given."""
        parts = (self.offsets, self.indptr, self.ids, self.values, y)
        about = " ".join("-" if part is None else f"{part.dtype}{part.shape}" for part in parts)
        return digest.of_arrays(f"{self.width} {about}", (part for part in parts if part is not None))

    def take(self, index: Any) -> Sequences:
        """Some of the sequences, by a slice, sequence numbers or a mask.

        Example:
            >>> Sequences.of([[[1.0]], [[2.0], [3.0]]]).take(slice(1, 2)).values.tolist()
            [2.0, 3.0]
        """
        try:
            numbers = np.arange(len(self))[index.cpu().numpy() if isinstance(index, Tensor) else index].reshape(-1)
        except (IndexError, OverflowError) as error:
            raise ValueError(
                f"index must be numbers from 0 to {len(self) - 1}, a slice or a mask: {first_line(error)}"
            ) from None
        offsets, tokens = _ranges(self.offsets, numbers)
        indptr, at = _ranges(self.indptr, tokens)
        return Sequences(offsets, self.width, indptr, self.ids[at], None if self.values is None else self.values[at])

    def padded(self, index: Any = None) -> PaddedSequences:
        """A batch for :class:`ChainPerceptron`: numbers (n, T, d) with zeros behind the end, or for binary features
        their numbers (n, T, F) with −1 behind the end.

        Example:
            >>> x, lengths = Sequences.of([[[1.0]], [[2.0], [3.0]]]).padded()
            >>> x.squeeze(-1).tolist(), lengths.tolist()
            ([[1.0, 0.0], [2.0, 3.0]], [1, 2])
        """
        part = self if index is None else self.take(index)
        lengths, longest, counts = part.lengths, int(part.lengths.max()), np.diff(part.indptr)
        places = np.repeat(np.arange(len(part)) * longest - part.offsets[:-1], lengths) + np.arange(part.tokens)
        rows = np.repeat(places, counts)
        if part.values is None:
            x: Array = np.full((len(part) * longest, max(1, int(counts.max()))), -1, np.int64)
            x[rows, np.arange(len(part.ids)) - np.repeat(part.indptr[:-1], counts)] = part.ids
        else:
            x = np.zeros((len(part) * longest, part.width), part.values.dtype)
            np.add.at(x, (rows, part.ids), part.values)
        made = torch.from_numpy(x.reshape(len(part), longest, -1))
        return PaddedSequences(made, torch.from_numpy(lengths.copy()))

    @classmethod
    def of(cls, X: Any, *, width: int | None = None, name: str = "X") -> Sequences:
        """Sequences from what users have.

        Args:
            X: a list of arrays, tensors or lists (T_i, d), a list of scipy sparse matrices, an array or tensor (N, T,
                d), an integer tensor (N, T, F) of feature numbers as a net reads it, (x, lengths) with one of these, or
                sequences, which are returned as they are.
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
            return cls.unpadded(PaddedSequences(*X), width, name)
        if isinstance(X, Tensor) and X.dim() == 3 and not X.is_floating_point():  # feature numbers, as for a net
            return cls.unpadded(PaddedSequences(X, torch.full((len(X),), X.shape[1])), width, name)
        if isinstance(X, Tensor | np.ndarray) and X.dtype != object:
            if X.ndim != 3:
                raise ValueError(f"{name} must have shape (N, T, d), or be a list of (T, d), found {tuple(X.shape)}")
            X = list(X)
        if isinstance(X, str | bytes) or not isinstance(X, Sequence | np.ndarray):
            raise TypeError(f"{name} must be a list of sequences or a Sequences, found {type(X).__name__}")
        if not len(X):
            raise ValueError(f"{name} is empty; give at least one sequence")
        sparse = [is_sparse(each) for each in X]
        if any(sparse) and not all(sparse):
            raise TypeError(f"{name} mixes sparse and dense sequences; convert one kind into the other")
        convert = as_csr if any(sparse) else as_tensor
        parts = [convert(each, f"{name}[{i}]") for i, each in enumerate(X)]
        for i, part in enumerate(parts):
            if len(part.shape) != 2 or not all(part.shape):
                raise ValueError(f"{name}[{i}] must have shape (T, d), not empty, found {tuple(part.shape)}")
            if part.shape[1] != parts[0].shape[1]:
                raise ValueError(f"{name}[{i}] has {part.shape[1]} features but {name}[0] has {parts[0].shape[1]}")
        lengths = np.array([part.shape[0] for part in parts])
        if not any(sparse):
            return cls._of_dense(torch.cat(parts), lengths)
        from scipy.sparse import vstack

        return cls.of_tokens(vstack(parts, format="csr"), lengths)

    @classmethod
    def _of_dense(cls, tokens: Tensor, lengths: Array) -> Sequences:
        """Sequences of all tokens (T, d), in float32 if that holds them exactly."""
        from scipy.sparse import csr_array

        tokens = tokens.detach().cpu()
        exact = tokens.dtype != torch.float64 and torch.equal(tokens.float().to(tokens.dtype), tokens)
        return cls.of_tokens(csr_array((tokens.float() if exact else tokens.double()).numpy()), lengths)

    @classmethod
    def of_tokens(cls, tokens: csr_array, lengths: Array) -> Sequences:
        """Sequences of all tokens as a CSR matrix."""
        single = tokens.data.dtype in (np.float16, np.float32)
        values = np.ascontiguousarray(tokens.data, np.float32 if single else np.float64)
        return cls(np.concatenate(([0], lengths.cumsum())), tokens.shape[1], tokens.indptr, tokens.indices, values)

    @classmethod
    def unpadded(cls, X: PaddedSequences, width: int | None = None, name: str = "X") -> Sequences:
        """Sequences of a padded batch; ``width`` is the number of features if x holds their numbers.

        Example:
            >>> x = PaddedSequences(torch.tensor([[[2], [0]], [[1], [-1]]]), torch.tensor([2, 1]))
            >>> Sequences.unpadded(x, 3).ids
            array([2, 0, 1], dtype=int32)
        """
        x, lengths = X.x.detach().cpu(), X.lengths.detach().cpu().long()
        if x.dim() != 3 or lengths.shape != x.shape[:1]:
            found = f"{tuple(x.shape)} and {tuple(lengths.shape)}"
            raise ValueError(f"{name} must be x (N, T, d) and lengths (N,), found {found}")
        if not len(lengths) or int(lengths.min()) < 1 or int(lengths.max()) > x.shape[1]:
            found = f"{lengths.min()} to {lengths.max()}" if len(lengths) else "none"
            raise ValueError(f"{name}: lengths run from {found}; they must lie between 1 and T={x.shape[1]}")
        tokens = x[torch.arange(x.shape[1]) < lengths[:, None]]
        if tokens.is_floating_point():
            return cls._of_dense(tokens, lengths.numpy())
        if tokens.dtype == torch.bool or tokens.is_complex():
            raise TypeError(f"{name} must hold numbers, or feature numbers as integers, found {tokens.dtype}")
        if width is None:
            raise ValueError(f"{name} holds feature numbers, of which the width is not known; give width")
        numbers, offsets = tokens.numpy(), np.concatenate(([0], lengths.numpy().cumsum()))
        wrong = (numbers < -1) | (numbers >= width)
        if wrong.any():
            token, column = (int(each[0]) for each in wrong.nonzero())
            raise ValueError(
                f"{_place(token, offsets)} has feature {numbers[token, column]}; features run from 0 to {width - 1}, "
                "−1 means no feature"
            )
        active = numbers >= 0
        return cls(offsets, width, np.concatenate(([0], active.sum(1).cumsum())), numbers[active])


def _place(token: int, offsets: Array) -> str:
    sequence = int(np.searchsorted(offsets, token, side="right")) - 1
    return f"sequence {sequence}, position {token - int(offsets[sequence])}"


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
        flat = as_tensor(y, name).cpu().numpy()
        if flat.ndim == 2:
            flat = _unpadded_tags(flat, lengths, name)
    elif isinstance(y, str | bytes) or not isinstance(y, Sequence | np.ndarray):
        raise TypeError(f"{name} must be a list of integer sequences or a flat array, found {type(y).__name__}")
    elif not any(isinstance(each, Sequence | np.ndarray | Tensor) for each in y):
        flat = as_tensor(y, name).numpy()
    else:
        if len(y) != len(sequences):
            raise ValueError(f"{name} has {len(y)} sequences but there are {len(sequences)}")
        parts = [as_tensor(each, f"{name}[{i}]").cpu().reshape(-1).numpy() for i, each in enumerate(y)]
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
