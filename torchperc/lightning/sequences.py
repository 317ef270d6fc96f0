"""Sequences under a Trainer: lists, arrays or files of tagged tokens, split, made into features and batches."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from torchperc._checks import check_choice, check_int
from torchperc.data.prepared_data import DTYPES
from torchperc.data.prepared_data import split as split_numbers
from torchperc.lightning._pl import pl
from torchperc.lightning.chains import WholeSequences
from torchperc.lightning.checkpoints import plain
from torchperc.lightning.loader import LOADER_ORDERS, SliceLoader, check_batch_size
from torchperc.sequences import files
from torchperc.sequences.features import FeatureMap, Templates, columns_of
from torchperc.sequences.layout import PAD, Array, PaddedSequences, Sequences, flat_tags, split

_EVALUATED = 2**13  # tokens, about, of a batch that is only decoded
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
    ) -> None:
        self.X = Sequences.of(X)
        self.y = padded_tags(flat_tags(y, self.X, _MOST_TAGS), self.X)
        self._rows = None
        self._begin(batch_size, order, seed, sharding)
        self._all = WholeSequences(self.X)

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
        source: a file of tagged tokens, see :func:`torchperc.sequences.read`; a list of sentences, each a list of
            tuples such as (word, tag); or with ``y``, features: :class:`~torchperc.sequences.Sequences` or what its
            ``of`` accepts.
        y: of features: a list of sequences of tag numbers.
        options: of :func:`torchperc.sequences.read`, such as ``{"format": "slash"}``.
        batch_size: sequences per batch, or ``"full"``.
        order: ``"given"``, or ``"shuffled"`` in every epoch; of the training set.
        split: fractions of train, validation and test; by default 0.8, 0.1 and 0.1, and 1, 0 and 0 if one of the next
            two is given.
        validation: another source of the same kind; with features a pair (X, y).
        test: likewise.
        seed: of split and order.
        dtype: of features that are numbers, ``"float32"`` or ``"float64"``, as the net has.
        column: of tokens, the number of the tags' column, from 0 or from the end; those before it are features.
        templates: what features look at, see :class:`~torchperc.sequences.Templates`; a text in their syntax will do.

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
        column: int = -1,
        templates: Templates | str | None = None,
    ) -> None:
        super().__init__()
        self.source, self.y, self.options, self.column = source, y, dict(options or {}), column
        check_batch_size(batch_size, 1)
        self.batch_size = batch_size
        self.order = check_choice("order", order, LOADER_ORDERS)
        self.seed = check_int("seed", seed, at_least=0)
        self.dtype = check_choice("dtype", dtype, DTYPES)
        self.templates = Templates(templates) if isinstance(templates, str) else templates
        if (validation is not None or test is not None) and split is not None:
            raise ValueError("split is for one source; leave it out with validation= or test=")
        self.split, self._others = split, (validation, test)
        if y is not None and (self.options or templates is not None):
            raise ValueError("options and templates are for tokens, and y says that source has features already")
        self.feature_map = FeatureMap(self.templates) if y is None else None
        if all(isinstance(each, str | Path | None) for each in (source, validation, test)):
            kept: dict[str, Any] = {"source": source, "options": self.options, "batch_size": batch_size, "order": order}
            kept |= {"split": split, "seed": seed, "validation": validation, "test": test, "column": column}
            kept |= {"dtype": dtype, "templates": None if self.templates is None else self.templates.text}
            self.save_hyperparameters(plain(kept), logger=False)

    # --- what is in it ---

    @cached_property
    def _whole(self) -> tuple[Any, list[Any]]:
        return self._read(self.source, self.y)

    @cached_property
    def indices(self) -> tuple[Tensor, Tensor, Tensor]:
        """Which sequences of the source are in the train, validation and test set."""
        alone = (0.8, 0.1, 0.1) if self._others == (None, None) else (1.0, 0.0, 0.0)
        numbers = np.zeros(len(self._whole[0]), np.int64)
        return split_numbers(numbers, self.split or alone, self.seed, stratify=False)

    @cached_property
    def _given(self) -> list[tuple[Any, list[Any]]]:
        """Train, validation and test: tokens or sequences, and the tags of each; ``None`` and [] for none."""
        if self._others == (None, None):
            return [_some(*self._whole, part.tolist()) if len(part) else (None, []) for part in self.indices]
        found = [self._whole]
        for name, other in zip(("validation", "test"), self._others, strict=True):
            pair: Any = (other, None) if self.y is None else other
            if other is None:
                found.append((None, []))
            elif isinstance(pair, tuple | list) and len(pair) == 2:
                found.append(self._read(*pair))
            else:
                raise TypeError(f"{name} must be a pair (X, y), as source has features, found {type(other).__name__}")
        return found

    def _read(self, source: Any, y: Any) -> tuple[Any, list[Any]]:
        """Tokens or sequences, and the tags of each."""
        if y is not None:
            X = Sequences.of(source, name="source")
            if X.values is not None:
                X = replace(X, values=X.values.astype(self.dtype, copy=False))
            return X, [tags.tolist() for tags in split(flat_tags(y, X, _MOST_TAGS), X)]
        if isinstance(source, str | Path):
            source = files.read(source, **self.options)
        try:
            columns, _ = columns_of(source)
        except TypeError as error:
            raise TypeError(
                f"source must be a file or a list of sentences of (word, tag); with features, give y: {error}"
            ) from None
        place = range(len(columns))[self.column] if -len(columns) <= self.column < len(columns) else 0
        if not place:
            raise ValueError(f"column={self.column} cannot be that of the tags: tokens have {len(columns)} columns")
        tokens = [[tuple(token[:place]) for token in sentence] for sentence in source]
        return tokens, [[token[place] for token in sentence] for sentence in source]

    @cached_property
    def tags_(self) -> tuple[Any, ...]:
        """The names of the tags by their numbers; integers are their own names."""
        found = {tag for _, tags in self._given for each in tags for tag in each}
        return tuple(sorted(found) if self.y is None else range(max(found) + 1))

    @cached_property
    def parts(self) -> tuple[tuple[Any, Tensor], ...]:
        """Sequences and padded tags (N, T) of the three sets; ``None`` for an empty one."""
        number = {name: k for k, name in enumerate(self.tags_)}
        made: list[tuple[Any, Tensor]] = []
        for given, tags in self._given:
            X = given
            if self.feature_map is not None and given is not None:
                X = (self.feature_map.transform if made else self.feature_map.fit_transform)(given)
            flat = np.array([number[tag] for each in tags for tag in each], np.int64)
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
        return self._loader(0, self.batch_size, self.order)

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

    def _loader(self, part: int, size: int | str, order: str) -> SequenceLoader:
        several = self.trainer is not None and self.trainer.world_size > 1
        sharding = "split" if several else "none"
        return SequenceLoader(*self.parts[part], size, order, self.seed, sharding)

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


def _some(given: Any, tags: list[Any], numbers: list[int]) -> tuple[Any, list[Any]]:
    """Some of the sequences with their tags."""
    kept = given.take(numbers) if isinstance(given, Sequences) else [given[i] for i in numbers]
    return kept, [tags[i] for i in numbers]
