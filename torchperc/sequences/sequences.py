"""How sequences lie in memory: their tokens one after the other, each a row of a sparse matrix (CSR)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain, pairwise
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from torchperc._checks import as_tensor, check_int, check_labels

Array: TypeAlias = np.ndarray[Any, Any]
PAD = -100  # the tag behind the end of a sequence, which losses ignore, as ignore_index in torch
MOST_TAGS = 2**15


class PaddedSequences(NamedTuple):
    """A batch: x (N, T, d) of numbers, or (N, T, F) of feature numbers padded with −1, and lengths (N,)."""

    x: Tensor
    lengths: Tensor


@dataclass(frozen=True, eq=False, repr=False)
class Sequences:
    """N sequences of tokens, each token with d features, of which those that are not 0 are stored.

    Args:
        offsets: where sequences begin and end: tokens of sequence i are ``offsets[i]:offsets[i + 1]``.
        n_features: d, the number of features.
        indptr: where the features of each token begin and end in ``ids``.
        ids: feature numbers from 0 to d − 1; a number that occurs twice in a token counts twice.
        values: of these features; ``None`` if each is 1, as templates make them.

    Shape:
        offsets (N + 1,), indptr (T + 1,) for T tokens in all, ids and values of equal length.

    Example:
        >>> two = Sequences.of([[[1, 0], [0, 1], [1, 1]], [[0, 1]]])
        >>> len(two), two.tokens, two.n_features, two.lengths.tolist()
        (2, 4, 2, [3, 1])
        >>> two.ids.tolist(), two.indptr.tolist()
        ([0, 1, 0, 1, 1], [0, 1, 2, 4, 5])
    """

    offsets: Array
    n_features: int
    indptr: Array
    ids: Array
    values: Array | None = None

    def __post_init__(self) -> None:
        check_int("n_features", self.n_features, at_least=1)
        for name, end in (("offsets", len(self.indptr) - 1), ("indptr", len(self.ids))):
            bounds = np.require(getattr(self, name), np.int64, ["C", "W"])
            object.__setattr__(self, name, bounds)
            if len(bounds) < 2 or bounds[0] != 0 or bounds[-1] != end or (np.diff(bounds) < 0).any():
                raise ValueError(f"{name} must rise from 0 to {end}, with at least one sequence, found {bounds[:5]}")
        if not self.lengths.all():
            raise ValueError(f"sequence {int(np.argmin(self.lengths))} is empty; leave empty sequences out")
        self._refuse((self.ids < 0) | (self.ids >= self.n_features), self.ids, f"must be 0 to {self.n_features - 1}")
        object.__setattr__(self, "ids", np.require(self.ids, np.int32, ["C", "W"]))
        if self.values is not None:
            if self.values.dtype not in (np.float32, np.float64) or self.values.shape != self.ids.shape:
                raise ValueError(f"values must be float32 or float64 of shape {self.ids.shape}, found {self.values}")
            self._refuse(~np.isfinite(self.values), self.values, "must be finite")

    def _refuse(self, wrong: Array, entries: Array, why: str) -> None:
        """Raise if an entry is wrong, naming its sequence and position."""
        if wrong.any():
            at = int(np.argmax(wrong))
            token = np.searchsorted(self.indptr, at, side="right") - 1
            sequence = np.searchsorted(self.offsets, token, side="right") - 1
            where = f"sequence {sequence}, position {token - self.offsets[sequence]}"
            raise ValueError(f"{where} has feature {entries[at]}, which {why}")

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __repr__(self) -> str:
        return f"Sequences({len(self)} sequences, {self.tokens} tokens, {self.n_features} features)"

    @property
    def tokens(self) -> int:
        """T, the number of tokens in all sequences."""
        return int(self.offsets[-1])

    @property
    def lengths(self) -> Array:
        """The number of tokens of each sequence: (N,)."""
        return np.diff(self.offsets)

    def padded(self) -> PaddedSequences:
        """Return all sequences as a batch for :class:`ChainPerceptron`.

        x has numbers (N, T, d) with zeros behind the end, or for binary features their numbers (N, T, F) with −1.

        Example:
            >>> x, lengths = Sequences.of([[[1.0]], [[2.0], [3.0]]]).padded()
            >>> x.squeeze(-1).tolist(), lengths.tolist()
            ([[1.0, 0.0], [2.0, 3.0]], [1, 2])
        """
        longest, counts = int(self.lengths.max()), np.diff(self.indptr)
        places = np.repeat(np.arange(len(self)) * longest - self.offsets[:-1], self.lengths) + np.arange(self.tokens)
        rows = np.repeat(places, counts)
        if self.values is None:
            x: Array = np.full((len(self) * longest, max(1, int(counts.max()))), -1, np.int64)
            x[rows, np.arange(len(self.ids)) - np.repeat(self.indptr[:-1], counts)] = self.ids
        else:
            x = np.zeros((len(self) * longest, self.n_features), self.values.dtype)
            np.add.at(x, (rows, self.ids), self.values)
        return PaddedSequences(torch.from_numpy(x).reshape(len(self), longest, -1), torch.from_numpy(self.lengths))

    @classmethod
    def of(cls, X: Any, *, n_features: int | None = None, name: str = "X") -> Sequences:
        """Return sequences from what users have, numbers in float32 if that holds them exactly.

        Args:
            X: a list of arrays, tensors or lists (T_i, d), an array or tensor (N, T, d), or sequences, which are
                returned as they are.
            n_features: the number of features they must have, if known.
            name: the parameter's name for error messages.
        """
        found = X if isinstance(X, Sequences) else cls.of_tokens(*_tokens(X, name))
        if n_features is not None and found.n_features != n_features:
            raise ValueError(f"{name} has {found.n_features} features but {n_features} are needed, as the net has")
        return found

    @classmethod
    def of_tokens(cls, tokens: Any, lengths: Array) -> Sequences:
        """Return sequences of all tokens as a CSR matrix of float32 or float64."""
        return cls(np.concatenate(([0], lengths.cumsum())), tokens.shape[1], tokens.indptr, tokens.indices, tokens.data)


def _tokens(X: Any, name: str) -> tuple[Any, Array]:
    """Return all tokens of sequences of numbers as a CSR matrix, and the lengths of the sequences."""
    from scipy.sparse import csr_array

    if isinstance(X, str | bytes) or not isinstance(X, Sequence | np.ndarray | Tensor):
        raise TypeError(f"{name} must be a list of sequences or a Sequences, found {type(X).__name__}")
    if not len(X):
        raise ValueError(f"{name} is empty; give at least one sequence")
    parts = [as_tensor(each, f"{name}[{i}]").detach().cpu() for i, each in enumerate(X)]
    for i, part in enumerate(parts):
        if part.dim() != 2 or not part.numel() or part.shape[1] != parts[0].shape[1]:
            raise ValueError(f"{name}[{i}] must have shape (T, d), d as {name}[0], found {tuple(part.shape)}")
    tokens = torch.cat(parts)
    exact = tokens.dtype != torch.float64 and torch.equal(tokens.float().to(tokens.dtype), tokens)
    return csr_array((tokens.float() if exact else tokens.double()).numpy()), np.array([len(part) for part in parts])


def labelled_sequences(X: Any, y: Any, n_features: int | None, tags: int, prefix: str = "") -> tuple[Sequences, Array]:
    """Return sequences and their tags as one array (T,)."""
    sequences = Sequences.of(X, n_features=n_features, name=f"{prefix}X")
    return sequences, flat_tags(y, sequences, tags, f"{prefix}y")


def flat_tags(y: Any, sequences: Sequences, tags: int, name: str = "y") -> Array:
    """Return tags as one array (T,) of int64, each from 0 to K − 1.

    Args:
        y: a list of integer sequences, an array (N, T), or one flat array of all tags.
        sequences: which they belong to.
        tags: K.
        name: the parameter's name for error messages.

    Example:
        >>> flat_tags([[0, 1], [2]], Sequences.of([[[1.0], [1.0]], [[1.0]]]), 3)
        array([0, 1, 2])
    """
    if isinstance(y, str | bytes) or not isinstance(y, Sequence | np.ndarray | Tensor):
        raise TypeError(f"{name} must be a list of integer sequences or a flat array, found {type(y).__name__}")
    if len(y) and np.ndim(y[0]):
        check_lengths(y, sequences.lengths.tolist(), name)
        y = np.concatenate([as_tensor(each, name).cpu().numpy() for each in y])
    return check_labels(y, sequences.tokens, tags, name=name, both=False).cpu().numpy()


def check_lengths(y: Any, lengths: Sequence[int], name: str = "y") -> None:
    """Refuse lists of tags of other lengths than the sequences."""
    if len(y) != len(lengths):
        raise ValueError(f"{name} has {len(y)} sequences but X has {len(lengths)}; they must have the same number")
    for i, (tags, tokens) in enumerate(zip(map(len, y), lengths, strict=True)):
        if tags != tokens:
            raise ValueError(f"{name}: sequence {i} has {tags} tags for {tokens} tokens; give one per token")


def split(flat: Array, sequences: Sequences) -> list[Tensor]:
    """Return a flat array of tags as one int64 tensor per sequence."""
    return list(torch.from_numpy(flat.astype(np.int64, copy=False)).split(sequences.lengths.tolist()))


def tuples(flat: Array, lengths: Array) -> Array:
    """Return flat tags as an array with one tuple per sequence."""
    values, bounds = flat.tolist(), np.concatenate(([0], lengths.cumsum())).tolist()
    return np.fromiter((tuple(values[first:end]) for first, end in pairwise(bounds)), object, len(lengths))


def flat(y: Array) -> Array:
    """Return the tags of all sequences one after the other, from :func:`tuples`: (T,)."""
    return np.fromiter(chain.from_iterable(y), np.int64)


def items(X: Any, y: Any) -> list[tuple[Tensor, Tensor]]:
    """Return sequences and their tags as the items of a ``DataLoader`` with ``collate_fn=collate``.

    Args:
        X: :class:`Sequences`, as a :class:`~torchperc.sequences.FeatureMap` makes them, or what its ``of`` accepts.
        y: tags: a list of integer sequences, or one flat array.

    Example:
        >>> from torch.utils.data import DataLoader
        >>> pairs = items([[[1.0], [2.0]], [[3.0]]], [[0, 1], [1]])
        >>> (x, lengths), y = next(iter(DataLoader(pairs, batch_size=2, collate_fn=collate)))
        >>> tuple(x.shape), lengths, y.tolist()
        ((2, 2, 1), tensor([2, 1]), [[0, 1], [1, -100]])
    """
    sequences, tags = labelled_sequences(X, y, None, MOST_TAGS)
    return [(x[: len(own)], own) for x, own in zip(sequences.padded().x, split(tags, sequences), strict=True)]


def collate(items: Sequence[tuple[Any, Any]]) -> tuple[PaddedSequences, Tensor]:
    """Return a batch ((x, lengths), y) of pairs of x (T, d), or feature numbers (T, F), and tags (T,)."""
    X, y = ([torch.as_tensor(item[k]) for item in items] for k in (0, 1))
    empty, widest = 0 if X[0].is_floating_point() else -1, max(each.shape[1] for each in X)
    X = [F.pad(each, (0, widest - each.shape[1]), value=empty) for each in X]  # tokens may have fewer features
    lengths = torch.tensor([len(each) for each in X])
    return PaddedSequences(pad_sequence(X, True, empty), lengths), pad_sequence(y, True, PAD)
