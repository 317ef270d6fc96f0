"""Sequence labelling behind scikit-learn's interface: lists of sequences in, lists of tags out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise
from typing import Any

import numpy as np
import torch
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from torchperc import _checks as checks
from torchperc.rules.conventions import Verdict
from torchperc.rules.run import EpochRecord
from torchperc.rules.trainer import RuleTrainer
from torchperc.samples import compiling
from torchperc.sequences.chains import ChainPerceptron
from torchperc.sequences.corpus import Corpus
from torchperc.sequences.dictionaries import DictFeatures
from torchperc.sequences.features import FeatureMap
from torchperc.sequences.layout import Sequences
from torchperc.sequences.log import ChainModel, VotedChain
from torchperc.sequences.templates import Templates

_KINDS = {
    "words": "lists of words, or of tuples of strings",
    "dictionaries": "lists of dictionaries of features",
    "numbers": "arrays of numbers (T, d)",
}


class _Fitted(BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
    classes_: np.ndarray[Any, Any]
    features_: FeatureMap | DictFeatures | None
    model_: ChainModel | VotedChain
    verdict_: Verdict
    mistakes_: int
    n_iter_: int
    history_: tuple[EpochRecord, ...]


@dataclass(kw_only=True, eq=False, repr=False)
class SequenceTagger(_Fitted):
    """Tags for the tokens of sequences, by a perceptron over whole sequences that is learned by rule.

    A sequence is a list of words (or of tuples of strings, one per column), from which templates make features; or a
    list of dictionaries of features, as in sklearn-crfsuite; or an array of numbers (T, d). Tags may be any values that
    can be sorted. ``score`` is the fraction of tokens with the right tag.

    Args:
        templates: of features from words: :class:`torchperc.sequences.Templates`, their text, or ``None`` for the
            default set.
        max_epochs: passes over the sequences.
        select: which weights decide: ``"averaged"``, ``"last"``, ``"pocket"`` or ``"voted"``.
        order: of the sequences: ``"shuffled"`` or ``"given"``.
        seed: of the order.
        margin: per wrong tag, by which the true tags must score higher than others.
        decode: ``"viterbi"``, ``"beam"`` or ``"greedy"``.
        beam_width: of the beam.
        cutoff: features from words that occur fewer times are ignored.
        n_jobs: threads of ``predict``; ``None`` for one, −1 for all cores.

    After ``fit``: ``classes_`` are the tags, ``features_`` the features' map (``None`` for arrays), ``model_`` has the
    weights, ``verdict_``, ``mistakes_``, ``n_iter_`` and ``history_`` say how it went.

    Example:
        >>> X = [["the", "dog", "runs"], ["a", "cat"]]
        >>> y = [["D", "N", "V"], ["D", "N"]]
        >>> SequenceTagger(max_epochs=3).fit(X, y).predict([["the", "cat", "runs"]])
        [['D', 'N', 'V']]
        >>> dicts = [[{"word": word, "ends in s": word.endswith("s")} for word in words] for words in X]
        >>> SequenceTagger().fit(dicts, y).score(dicts, y)
        1.0
    """

    templates: Templates | str | None = None
    max_epochs: int = 5
    select: str = "averaged"
    order: str = "shuffled"
    seed: int = 0
    margin: float = 0.0
    decode: str = "viterbi"
    beam_width: int = 8
    cutoff: int = 1
    n_jobs: int | None = None

    def fit(self, X: Sequence[Any], y: Sequence[Sequence[Any]]) -> SequenceTagger:
        """Learn from sequences and the tags of their tokens."""
        options = {name: getattr(self, name) for name in ("max_epochs", "select", "order", "seed", "margin")}
        trainer = RuleTrainer(**options)
        if trainer.select == "best-validation":
            raise ValueError("select='best-validation' needs validation data, which fit has not; use 'averaged'")
        self._jobs()
        kind = _kind(X)
        tags = _flat(y)
        classes, codes = np.unique(tags, return_inverse=True)
        if len(classes) < 2:
            raise ValueError(f"y has one tag only, found {classes.tolist()}; at least two tags are required")
        features = self._features(kind)
        sequences = Sequences.of(X) if features is None else features.fit_transform(_given(X, kind))
        _check_lengths(sequences, y)
        net = ChainPerceptron(
            sequences.width, len(classes), decode=self.decode, beam_width=self.beam_width, dtype=_dtype(sequences)
        )
        run = trainer.start(net, sequences, codes.astype(np.int64))
        while run.verdict is None:
            run.epoch()
        result: Any = run.result()
        self.classes_, self.features_, self._kind = classes, features, kind
        self.model_, self._width = result.model, net.width
        self.verdict_, self.mistakes_, self.n_iter_ = result.verdict, result.mistakes, result.epochs
        self.history_ = tuple(result.history)
        return self

    def predict(self, X: Sequence[Any]) -> list[list[Any]]:
        """The tags of each sequence, as ``fit`` was given them."""
        sequences = self._sequences(X)
        names = self.classes_[self._codes(sequences)].tolist()
        return [names[start:stop] for start, stop in pairwise(sequences.offsets.tolist())]

    def score(self, X: Sequence[Any], y: Sequence[Sequence[Any]]) -> float:
        """The fraction of tokens with the right tag."""
        sequences = self._sequences(X)
        _check_lengths(sequences, y)
        return float((self.classes_[self._codes(sequences)] == _flat(y)).mean())

    def __sklearn_is_fitted__(self) -> bool:
        return "model_" in vars(self)

    def _sequences(self, X: Sequence[Any]) -> Sequences:
        check_is_fitted(self)
        kind = _kind(X)
        if kind != self._kind:
            raise TypeError(f"X has {_KINDS[kind]}, but fit was given {_KINDS[self._kind]}; give the same")
        if self.features_ is None:
            return Sequences.of(X, width=self._features_in)
        given: Any = _given(X, kind)
        return self.features_.transform(given)

    @property
    def _features_in(self) -> int:
        model = self.model_ if isinstance(self.model_, ChainModel) else self.model_.logs[0]
        return int(model.like["features"])

    def _codes(self, sequences: Sequences) -> np.ndarray[Any, Any]:
        jobs = self._jobs()
        if isinstance(self.model_, ChainModel):
            return self.model_.weights.decode(sequences, self._width, jobs)
        return self.model_.flat_predict(sequences, jobs)

    def _jobs(self) -> int:
        return compiling.threads(self.n_jobs, 1)

    def _features(self, kind: str) -> FeatureMap | DictFeatures | None:
        """What makes features of such sequences."""
        templates = Templates(self.templates) if isinstance(self.templates, str) else self.templates
        if kind == "words":
            return FeatureMap(templates, cutoff=self.cutoff)
        for name, unused in (("templates", templates is not None), ("cutoff", self.cutoff != 1)):
            if unused:
                given = checks.Option(name, getattr(self, name))
                raise checks.ParameterError(given, f" is for words, and X has {_KINDS[kind]}; leave it out")
        return DictFeatures() if kind == "dictionaries" else None


def _kind(X: Sequence[Any]) -> str:
    """What the sequences are made of, by the first token."""
    if isinstance(X, Sequences):
        return "numbers"
    if isinstance(X, str | bytes) or not hasattr(X, "__len__"):
        raise TypeError(f"X must be a list of sequences, found {type(X).__name__}")
    first = next(iter(X), None)
    if first is None:
        raise ValueError("X is empty; give at least one sequence")
    if isinstance(first, str | bytes) or not hasattr(first, "__len__"):
        raise TypeError(f"X must be a list of sequences, each a list of tokens, found {type(first).__name__} {first!r}")
    if isinstance(first, list | tuple):
        token = next(iter(first), None)
        if token is None:
            raise ValueError("sequence 0 of X is empty; leave empty sequences out")
        if isinstance(token, Mapping):
            return "dictionaries"
        if isinstance(token, str) or (isinstance(token, list | tuple) and token and isinstance(token[0], str)):
            return "words"
    elif isinstance(first, np.ndarray) and first.dtype.kind in "UO" and first.ndim == 1:
        return "words"
    return "numbers"


def _given(X: Sequence[Any], kind: str) -> Any:
    return Corpus.of(X) if kind == "words" else X


def _dtype(sequences: Sequences) -> torch.dtype:
    numbers = sequences.dense if sequences.dense is not None else sequences.values
    return torch.float64 if numbers is not None and numbers.dtype == np.float64 else torch.float32


_TAGS = (str, int, float, np.integer, np.floating, np.bool_)  # NaN is none


def _flat(y: Sequence[Any]) -> np.ndarray[Any, Any]:
    if isinstance(y, str | bytes) or not hasattr(y, "__len__") or any(isinstance(each, str) for each in y):
        raise TypeError("y must be a list with a list of tags per sequence")
    try:
        rows = [each.tolist() if isinstance(each, torch.Tensor) else list(each) for each in y]
    except TypeError:
        raise TypeError("y must be a list with a list of tags per sequence") from None
    tags = list(chain.from_iterable(rows))
    if not all(issubclass(kind, _TAGS) for kind in set(map(type, tags))) or any(tag != tag for tag in tags):
        for i, row in enumerate(rows):
            for t, tag in enumerate(row):
                if not isinstance(tag, _TAGS) or tag != tag:
                    raise TypeError(f"y: sequence {i}, position {t} has tag {tag!r}; tags must be strings or integers")
    found = np.asarray(tags)
    if found.dtype.kind in "US" and not all(isinstance(tag, str) for tag in tags):
        raise TypeError("y has tags of several types; use strings, or integers, for all of them")
    return found


def _check_lengths(sequences: Sequences, y: Sequence[Sequence[Any]]) -> None:
    lengths = [len(tags) for tags in y]
    if len(lengths) != len(sequences):
        raise ValueError(f"X has {len(sequences)} sequences and y has {len(lengths)}; they must have the same number")
    for number, (own, found) in enumerate(zip(sequences.lengths.tolist(), lengths, strict=True)):
        if own != found:
            raise ValueError(f"sequence {number} has {own} tokens and {found} tags; give one tag per token")
