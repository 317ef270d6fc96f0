"""Sequences under a Trainer: lists, arrays or files of tagged tokens, split, made into features and batches."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from torchperc import _checks as checks
from torchperc.data.splits import split as split_numbers
from torchperc.data.tabular import DTYPES
from torchperc.lightning._pl import pl
from torchperc.lightning.chains import WholeSequences
from torchperc.lightning.checkpoints import plain
from torchperc.lightning.loader import LOADER_ORDERS, SliceLoader, check_batch_size
from torchperc.sequences import formats
from torchperc.sequences.corpus import Corpus
from torchperc.sequences.features import FeatureMap
from torchperc.sequences.layout import PAD, Array, PaddedSequences, Sequences, flat_tags, split
from torchperc.sequences.templates import Templates

_EVALUATED = 2**13  # tokens, about, of a batch that is only decoded
_WINDOW = 50  # batches among which sequences of similar length are put together
_MOST_TAGS = 2**15  # that a ChainPerceptron has


class SequenceLoader(SliceLoader):
    """Batches ((x, lengths), y) of sequences, padded to the longest of each batch; with ``"full"`` all without padding.

    x is (B, T, d), or for binary features (B, T, F), their numbers and −1 for none; y is (B, T) with −100 behind the
    end. With ``batch_size="full"`` x is a :class:`~torchperc.lightning.chains.WholeSequences`, which
    :class:`LitRule` and :class:`LitClassifier` read without padding; ``x.padded()`` is for modules of your own.

    As :class:`SliceLoader`, it resumes within an epoch, and several processes share each batch.

    Args:
        X: :class:`~torchperc.sequences.Sequences`, or what its ``of`` accepts.
        y: tags: a list of integer sequences, or one flat array.
        batch_size: sequences per batch, or ``"full"``.
        order: ``"given"``, or ``"shuffled"`` as :class:`~torchperc.RuleTrainer` shuffles with the same seed.
        seed: of the permutations.
        sharding: what several processes read, see :class:`SliceLoader`.
        by_length: put sequences of similar length into a batch, so that little is padded: after shuffling, sequences
            are sorted within windows of 50 batches, and full batches are shuffled again. Only with ``"shuffled"``.

    Example:
        >>> loader = SequenceLoader([[[1.0], [2.0]], [[3.0]], [[4.0]]], [[0, 1], [1], [0]], batch_size=2)
        >>> for (x, lengths), y in loader:
        ...     print(tuple(x.shape), lengths.tolist(), y.tolist())
        (2, 2, 1) [2, 1] [[0, 1], [1, -100]]
        (1, 1, 1) [1] [[0]]
    """

    def __init__(
        self,
        X: Any,
        y: Any,
        batch_size: int | str = "full",
        order: str = "given",
        seed: int = 0,
        sharding: str = "split",
        *,
        by_length: bool = False,
    ) -> None:
        self.X = Sequences.of(X)
        self.y = padded_tags(flat_tags(y, self.X, _MOST_TAGS), self.X)
        self._rows = None
        self._begin(batch_size, order, seed, sharding)
        self.by_length = checks.flag("by_length", by_length)
        if by_length and order != "shuffled":
            raise ValueError(f"by_length=True changes the order, and order={order!r}; use order='shuffled'")
        self._all = WholeSequences(self.X)

    def _permutation(self) -> Tensor:
        order = super()._permutation()
        size = self.batch_size
        if not self.by_length or size >= len(order):
            return order
        lengths = torch.from_numpy(self.X.lengths)
        windows = order.split(_WINDOW * size)
        order = torch.cat([window[lengths[window].argsort(stable=True)] for window in windows])
        full = len(order) // size
        generator = torch.Generator().manual_seed((self.seed + self._epoch) % 2**63)
        batches = order[: full * size].reshape(full, size)[torch.randperm(full, generator=generator)]
        return torch.cat((batches.reshape(-1), order[full * size :]))

    def _batch(self, number: int, order: Tensor | None) -> tuple[Any, Tensor]:
        part = self._piece(number)
        index = torch.arange(part.start, part.stop) if order is None else order[part]
        if not len(index):
            x, lengths = self.X.padded([0])
            return PaddedSequences(x[:0], lengths[:0]), self.y[:0, : x.shape[1]]
        if self._full:
            whole = order is None and len(index) == len(self.y)
            return self._all if whole else WholeSequences(self.X.take(index)), self.y[index]
        x = self.X.padded(index)
        return x, self.y[index, : x.x.shape[1]]


def padded_tags(flat: Array, sequences: Sequences) -> Tensor:
    """Flat tags as (N, T), with −100 behind the end of each sequence.

    Example:
        >>> padded_tags(np.array([0, 1, 2]), Sequences.of([[[1.0], [1.0]], [[1.0]]]))
        tensor([[   0,    1],
                [   2, -100]])
    """
    return torch.nn.utils.rnn.pad_sequence(split(flat, sequences), batch_first=True, padding_value=PAD)


class SequenceDataModule(pl.LightningDataModule):
    """Sequences with train, validation and test splits, in batches ((x, lengths), y) as :class:`SequenceLoader` gives.

    Files and lists of tokens become binary features by templates, of which those that occur in the training set are
    numbered; tags of any name are numbered in alphabetical order, and ``decode`` maps them back.

    Args:
        source: a file of tagged tokens, a pattern or a list of files, see :func:`torchperc.sequences.read`; a
            :class:`~torchperc.sequences.Corpus`; a list of sentences, each a list of tuples such as (word, tag); or
            with ``y``, features: :class:`~torchperc.sequences.Sequences` or what its ``of`` accepts.
        y: of features: a list of sequences of integers or of tag names.
        options: of :func:`torchperc.sequences.read`, such as ``{"format": "slash"}``.
        batch_size: sequences per batch, or ``"full"``.
        order: ``"given"``, or ``"shuffled"`` in every epoch; of the training set.
        split: fractions of train, validation and test; by default 0.8, 0.1 and 0.1, and 1, 0 and 0 if one of the next
            two is given.
        validation: another source of the same kind; with features a pair (X, y).
        test: likewise.
        seed: of split and order.
        dtype: of features that are numbers, ``"float32"`` or ``"float64"``, as the net has.
        tag_column: which column has the tags, by name or number.
        templates: what features look at, see :class:`~torchperc.sequences.Templates`; a text in their syntax will do.
        buckets: hash features into so many, a power of two, instead of numbering them.
        cutoff: drop features that occur fewer times in the training set.
        by_length: put sequences of similar length into a batch, see :class:`SequenceLoader`; by default if the order is
            shuffled and the batch size a number.

    Example:
        >>> import torchperc as tp
        >>> data = SequenceDataModule(tp.data.tagged_sentences(100), batch_size=10)
        >>> data.tags_[:3], [len(X) for X, _ in data.parts]
        (('ADJ', 'ADV', 'DET'), [80, 10, 10])
        >>> (x, lengths), y = next(iter(data.train_dataloader()))
        >>> x.dtype, y.shape == x.shape[:2]
        (torch.int64, True)
    """

    def __init__(
        self,
        source: Any,
        y: Any = None,
        options: dict[str, Any] | None = None,
        batch_size: int | str = "full",
        order: str = "given",
        split: tuple[float, float, float] | None = None,
        seed: int = 0,
        dtype: str = "float32",
        *,
        validation: Any = None,
        test: Any = None,
        tag_column: int | str = -1,
        templates: Templates | str | None = None,
        buckets: int | None = None,
        cutoff: int = 1,
        by_length: bool | None = None,
    ) -> None:
        super().__init__()
        self.source, self.y, self.options = source, y, dict(options or {})
        check_batch_size(batch_size, 1)
        self.batch_size = batch_size
        self.order = checks.one_of("order", order, LOADER_ORDERS)
        self.seed = checks.whole("seed", seed, at_least=0)
        self.dtype: torch.dtype = getattr(torch, checks.one_of("dtype", dtype, DTYPES))
        self.tag_column = tag_column
        self.templates = Templates(templates) if isinstance(templates, str) else templates
        if (validation is not None or test is not None) and split is not None:
            raise ValueError("split is for one source; leave it out with validation= or test=")
        self.split, self._others = split, (validation, test)
        can_sort = order == "shuffled" and batch_size != "full"
        self.by_length = can_sort if by_length is None else checks.flag("by_length", by_length)
        if y is not None and (self.options or templates is not None or buckets is not None or cutoff != 1):
            raise ValueError("options, templates, buckets and cutoff are for tokens, and y says X has features already")
        self.feature_map = FeatureMap(self.templates, buckets=buckets, cutoff=cutoff) if y is None else None
        if _is_plain((source, validation, test)):  # else there is nothing that a checkpoint could keep
            kept: dict[str, Any] = {"source": source, "options": self.options, "batch_size": batch_size, "order": order}
            kept |= {"split": split, "seed": seed, "dtype": dtype, "validation": validation, "test": test}
            kept |= {"tag_column": tag_column, "templates": None if self.templates is None else self.templates.text}
            kept |= {"buckets": buckets, "cutoff": cutoff, "by_length": by_length}
            self.save_hyperparameters(plain(kept), logger=False)

    # --- what is in it ---

    @cached_property
    def _whole(self) -> tuple[Any, list[Any]]:
        return self._read(self.source, self.y)

    def _read(self, source: Any, y: Any) -> tuple[Any, list[Any]]:
        """A corpus or sequences, and the tags of all tokens."""
        if y is None:
            return _tokens(source, self.options, self.tag_column)
        X = _as_floats(Sequences.of(source, name="source"), self.dtype)
        return X, _flat(y, X)

    @cached_property
    def _given(self) -> list[tuple[Any, list[Any]]]:
        """Train, validation and test: a corpus or sequences, and the tags of all tokens; ``None`` and [] for none."""
        if self._others == (None, None):
            return [_some(*self._whole, part.numpy()) if len(part) else (None, []) for part in self.indices]
        found = [self._whole]
        for name, other in zip(("validation", "test"), self._others, strict=True):
            if other is None:
                found.append((None, []))
            elif self.y is None:
                found.append(self._read(other, None))
            elif isinstance(other, tuple | list) and len(other) == 2:
                found.append(self._read(*other))
            else:
                raise TypeError(f"{name} must be a pair (X, y), as source has features, found {type(other).__name__}")
        return found

    @cached_property
    def indices(self) -> tuple[Tensor, Tensor, Tensor]:
        """Which sequences of the source are in the train, validation and test set."""
        alone = (0.8, 0.1, 0.1) if self._others == (None, None) else (1.0, 0.0, 0.0)
        numbers = np.zeros(len(self._whole[0]), np.int64)
        return split_numbers(numbers, self.split or alone, self.seed, stratify=False)

    @cached_property
    def tags_(self) -> tuple[Any, ...]:
        """The names of the tags by their numbers; integers are their own names."""
        found = {tag for _, tags in self._given for tag in tags}
        return tuple(range(max(found) + 1) if all(isinstance(tag, int) for tag in found) else sorted(found))

    @cached_property
    def parts(self) -> tuple[tuple[Any, Tensor], ...]:
        """Sequences and padded tags (N, T) of the three sets; ``None`` for an empty one."""
        number = {name: k for k, name in enumerate(self.tags_)}
        made: list[tuple[Any, Tensor]] = []
        for given, tags in self._given:
            X = given
            if isinstance(given, Corpus):
                assert self.feature_map is not None
                make = self.feature_map.transform if made else self.feature_map.fit_transform
                X = make(given, _without(given, self.tag_column))
            flat = np.fromiter((number[tag] for tag in tags), np.int64, len(tags))
            made.append((X, torch.empty(0, 0, dtype=torch.int64) if X is None else padded_tags(flat, X)))
        return tuple(made)

    @property
    def width(self) -> int:
        """The number of features."""
        return int(self.parts[0][0].width)

    @property
    def tags(self) -> int:
        """The number of tags."""
        return len(self.tags_)

    def decode(self, codes: Any) -> list[list[Any]]:
        """Tags by their names: of a batch (N, T) padded with −100, or of a list of sequences."""
        return [[self.tags_[code] for code in torch.as_tensor(row).tolist() if code != PAD] for row in codes]

    # --- batches ---

    def train_dataloader(self) -> SequenceLoader:
        """The training set in batches."""
        return self._loader(0, self.batch_size, self.order, by_length=self.by_length)

    def val_dataloader(self) -> SequenceLoader | list[SequenceLoader]:
        """The validation set in batches, if there is one."""
        return self._evaluated(1)

    def test_dataloader(self) -> SequenceLoader | list[SequenceLoader]:
        """The test set likewise."""
        return self._evaluated(2)

    def predict_dataloader(self) -> SequenceLoader | list[SequenceLoader]:
        """The test set, or without one the training set, in its order."""
        return self._evaluated(2) or self._evaluated(0)

    def _evaluated(self, part: int) -> SequenceLoader | list[SequenceLoader]:
        X = self.parts[part][0]
        if X is None:
            return []
        size = max(1, _EVALUATED * len(X) // X.tokens) if isinstance(self.batch_size, str) else self.batch_size
        return self._loader(part, size, "given")

    def _loader(self, part: int, size: int | str, order: str, *, by_length: bool = False) -> SequenceLoader:
        several = self.trainer is not None and self.trainer.world_size > 1
        sharding = "split" if several else "none"
        return SequenceLoader(*self.parts[part], size, order, self.seed, sharding, by_length=by_length)

    # --- checkpoints ---

    def state_dict(self) -> dict[str, Any]:
        """The tags, and a hash of the data."""
        hashes = [None if X is None else X.hash(y[y != PAD].numpy()) for X, y in self.parts]
        return {"tags": list(self.tags_), "data": hashes, "seed": self.seed}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Refuse to resume with other data."""
        if self.trainer is not None and self.trainer.state.fn != pl.trainer.states.TrainerFn.FITTING:
            return
        if state_dict != self.state_dict():
            raise ValueError("source is not the data that the checkpoint was made on, or its split differs")


def _tokens(source: Any, options: dict[str, Any], column: int | str) -> tuple[Corpus, list[Any]]:
    """Files or lists as a corpus, and the tags of all tokens."""
    if isinstance(source, Corpus):
        corpus = source
    elif isinstance(source, str | Path) or (_is_list(source) and all(isinstance(e, str | Path) for e in source)):
        corpus = formats.read(source, **options)
    elif _is_list(source) and _is_list(source[0]) and source[0] and _is_token(source[0][0]):
        corpus = Corpus.of(source, name="source")
    elif isinstance(source, list | tuple) and not source:
        raise ValueError("source is empty; give at least one sentence or file")
    else:
        raise TypeError(
            f"source must be files, a Corpus or a list of sentences of (word, tag), found {type(source).__name__}; "
            "with features, give their tags as y"
        )
    if len(corpus.columns) < 2:
        raise ValueError(f"{corpus.name} has one column; words and tags are needed, such as (word, tag) per token")
    return corpus, corpus.strings(column)


def _is_plain(sources: tuple[Any, ...]) -> bool:
    """Whether all of them are files."""
    lists = [each if isinstance(each, list | tuple) else [each] for each in sources if each is not None]
    return all(isinstance(path, str | Path) for each in lists for path in each)


def _is_list(source: Any) -> bool:
    return isinstance(source, list | tuple) and len(source) > 0


def _is_token(token: Any) -> bool:
    return isinstance(token, str) or (_is_list(token) and all(isinstance(each, str) for each in token))


def _flat(y: Any, X: Sequences) -> list[Any]:
    """Tags of any kind, one per token."""
    if not isinstance(y, Sequence | np.ndarray | Tensor) or isinstance(y, str | bytes):
        raise TypeError(f"y must be a list of sequences of tags, found {type(y).__name__}")
    lengths = X.lengths.tolist()
    if isinstance(y, Tensor | np.ndarray) and y.ndim == 1 and y.dtype != object:
        if len(y) != X.tokens:
            raise ValueError(f"y has {len(y)} tags for {X.tokens} tokens; they must have the same number")
        flat = y.tolist()
    else:
        if len(y) != len(X):
            raise ValueError(f"y has {len(y)} sequences but X has {len(X)}; they must have the same number")
        padded = isinstance(y, Tensor | np.ndarray) and y.ndim == 2
        flat = []
        for i, (row, length) in enumerate(zip(y, lengths, strict=True)):
            if isinstance(row, str | bytes) or not isinstance(row, Sequence | np.ndarray | Tensor):
                raise TypeError(f"y must be a list of sequences of tags, found {type(row).__name__} at sequence {i}")
            tags = row.tolist() if isinstance(row, Tensor | np.ndarray) else list(row)
            tags = tags[:length] if padded else tags
            if len(tags) != length:
                raise ValueError(f"y: sequence {i} has {len(tags)} tags for {length} tokens; give one tag per token")
            flat += tags
    kinds = {type(tag) for tag in flat}
    if len(kinds) > 1 or not kinds <= {int, str}:
        found = ", ".join(sorted(kind.__name__ for kind in kinds))
        raise TypeError(f"y must hold integers, or names of tags as strings, found {found}")
    if kinds == {int} and (min(flat) < 0 or max(flat) >= _MOST_TAGS):
        at = next(i for i, tag in enumerate(flat) if not 0 <= tag < _MOST_TAGS)
        sequence = int(np.searchsorted(X.offsets, at, side="right")) - 1
        raise ValueError(
            f"y: sequence {sequence}, position {at - int(X.offsets[sequence])} has tag {flat[at]}; tags run from 0 to "
            f"{_MOST_TAGS - 1}"
        )
    return flat


def _as_floats(X: Sequences, dtype: torch.dtype) -> Sequences:
    kind = np.float64 if dtype == torch.float64 else np.float32
    dense, values = (None if part is None else part.astype(kind, copy=False) for part in (X.dense, X.values))
    return Sequences(X.offsets, X.width, dense, X.indptr, X.ids, values)


def _some(whole: Any, tags: list[Any], index: Array) -> tuple[Any, list[Any]]:
    bounds = whole.offsets.tolist()
    return whole.take(index), [tag for i in index.tolist() for tag in tags[bounds[i] : bounds[i + 1]]]


def _without(corpus: Corpus, column: int | str) -> list[int]:
    """The numbers of all columns but that of the tags."""
    return [number for number in range(len(corpus.columns)) if number != corpus.number(column)]
