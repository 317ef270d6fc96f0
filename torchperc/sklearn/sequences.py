"""Sequence labelling behind scikit-learn's interface: lists of sequences in, lists of tags out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise
from typing import Any, cast

import numpy as np
import torch
from sklearn.base import BaseEstimator
from sklearn.feature_extraction import DictVectorizer
from sklearn.utils.validation import check_is_fitted

from torchperc._checks import Option, ParameterError, check_bool, check_int
from torchperc.rules.trainer import RuleTrainer
from torchperc.samples import parallel
from torchperc.sequences.chain import ChainPerceptron
from torchperc.sequences.features import FeatureMap, Templates
from torchperc.sequences.sequences import Sequences, check_lengths
from torchperc.sklearn.base import seed_of

_KINDS = {
    "words": "lists of words, or of tuples of strings",
    "dictionaries": "lists of dictionaries of features",
    "numbers": "arrays of numbers (T, d)",
}


@dataclass(kw_only=True, eq=False, repr=False)
class SequenceTagger(BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """Tags for the tokens of sequences, by a perceptron over whole sequences that is learned by rule.

    A sequence is a list of words (or of tuples of strings, one per column), from which templates make features; or a
    list of dictionaries of features, as in sklearn-crfsuite; or an array of numbers (T, d). Tags may be any values that
    can be sorted. ``score`` is the fraction of tokens with the right tag.

    Args:
        templates: of features from words: :class:`torchperc.sequences.Templates`, their text, or ``None`` for the
            default set.
        max_iter: passes over the sequences.
        select: which weights decide: ``"averaged"``, ``"last"`` or ``"pocket"``.
        shuffle: present the sequences in a new random order in each pass; ``False`` for the given order.
        random_state: of the order; a number is the seed itself.
        margin: per wrong tag, by which the true tags must score higher than others.
        n_jobs: threads of ``predict``; ``None`` for one, −1 for all cores.

    After ``fit``: ``classes_`` are the tags, ``features_`` numbers the features (``None`` for arrays), ``model_`` has
    the weights, ``verdict_``, ``mistakes_``, ``n_iter_`` and ``history_`` say how it went.

    Example:
        >>> X = [["the", "dog", "runs"], ["a", "cat"]]
        >>> y = [["D", "N", "V"], ["D", "N"]]
        >>> SequenceTagger(max_iter=3).fit(X, y).predict([["the", "cat", "runs"]])
        [['D', 'N', 'V']]
        >>> dicts = [[{"word": word, "ends in s": word.endswith("s")} for word in words] for words in X]
        >>> SequenceTagger().fit(dicts, y).score(dicts, y)
        1.0
    """

    templates: Templates | str | None = None
    max_iter: int = 5
    select: str = "averaged"
    shuffle: bool = True
    random_state: Any = 0
    margin: float = 0.0
    n_jobs: int | None = None

    def fit(self, X: Sequence[Any], y: Sequence[Sequence[Any]]) -> SequenceTagger:
        """Learn from sequences and the tags of their tokens."""
        check_int("max_iter", self.max_iter, at_least=1)
        order, seed = "shuffled" if check_bool("shuffle", self.shuffle) else "given", seed_of(self.random_state)
        trainer = RuleTrainer(self.max_iter, order=order, select=self.select, seed=seed, margin=self.margin)
        if trainer.select == "best-validation":
            raise ValueError("select='best-validation' needs validation data, which fit has not; use 'averaged'")
        parallel.threads(self.n_jobs, 1)  # refuses what is no number of threads
        kind = _kind(X)
        if kind != "words" and self.templates is not None:
            why = f" is for words, and X has {_KINDS[kind]}; leave it out"
            raise ParameterError(Option("templates", self.templates), why)
        features: Any = DictVectorizer(dtype=np.float32, sort=False) if kind == "dictionaries" else None
        if kind == "words":
            features = FeatureMap(Templates(self.templates) if isinstance(self.templates, str) else self.templates)
        classes, codes = np.unique(_flat(y), return_inverse=True)
        if len(classes) < 2:
            raise ValueError(f"y has one tag only, found {classes.tolist()}; at least two tags are required")
        sequences = _sequences(X, features, learn=True)
        check_lengths(y, sequences.lengths.tolist())
        double = sequences.values is not None and sequences.values.dtype == np.float64
        net = ChainPerceptron(sequences.n_features, len(classes), dtype=torch.float64 if double else torch.float32)
        result: Any = trainer.fit(net, sequences, codes.astype(np.int64))
        self.classes_, self.model_, self.features_, self._kind = classes, result.model, features, kind
        self.verdict_, self.mistakes_ = result.verdict, result.mistakes
        self.n_iter_, self.history_ = result.epochs, result.history
        return self

    def predict(self, X: Sequence[Any]) -> list[list[Any]]:
        """Return the tags of each sequence, as ``fit`` was given them."""
        check_is_fitted(self)
        kind = _kind(X)
        if kind != self._kind:
            raise TypeError(f"X has {_KINDS[kind]}, but fit was given {_KINDS[self._kind]}; give the same")
        sequences = _sequences(X, self.features_, learn=False)
        names = self.classes_[self.model_.decode(sequences, parallel.threads(self.n_jobs, 1))].tolist()
        return [names[start:stop] for start, stop in pairwise(sequences.offsets.tolist())]

    def score(self, X: Sequence[Any], y: Sequence[Sequence[Any]]) -> float:
        """Return the fraction of tokens with the right tag."""
        found = self.predict(X)
        check_lengths(y, [len(tags) for tags in found])
        return float((_flat(found) == _flat(y)).mean())


def _kind(X: Sequence[Any]) -> str:
    """Return what the sequences are made of, by the first token."""
    if isinstance(X, Sequences):
        return "numbers"
    first = next(iter(X), ()) if hasattr(X, "__len__") else ()
    for values in (X, first):
        if isinstance(values, str | bytes) or not hasattr(values, "__len__"):
            raise TypeError(f"X must be a list of sequences, each a list of tokens, found {values!r:.80}")
    if not len(X):
        raise ValueError("X is empty; give at least one sequence")
    token = next(iter(first), None) if isinstance(first, list | tuple | np.ndarray) else None
    if isinstance(token, Mapping):
        return "dictionaries"
    words = isinstance(token, str) or (isinstance(token, list | tuple) and token and isinstance(token[0], str))
    return "words" if words else "numbers"


def _sequences(X: Any, features: Any, *, learn: bool) -> Sequences:
    """Return sequences as numbered features; ``features`` makes them from words or dictionaries."""
    if features is None:
        return Sequences.of(X)
    make: Any = features.fit_transform if learn else features.transform
    if isinstance(features, FeatureMap):
        return cast(Sequences, make(X))
    return Sequences.of_tokens(make(list(chain.from_iterable(X))), np.array(list(map(len, X))))


def _flat(y: Sequence[Any]) -> np.ndarray[Any, Any]:
    """Return the tags of all tokens."""
    if isinstance(y, str) or not all(isinstance(each, list | tuple | np.ndarray) for each in y):
        raise TypeError("y must be a list with a list of tags per sequence")
    tags = list(chain.from_iterable(each.tolist() if isinstance(each, np.ndarray) else each for each in y))
    kinds = {type(tag) for tag in tags}
    plain = all(issubclass(kind, str | int | float | np.generic) for kind in kinds) and not any(t != t for t in tags)
    if not plain or (str in kinds and kinds - {str, np.str_}):
        found = ", ".join(sorted(kind.__name__ for kind in kinds))
        raise TypeError(f"y must hold strings, or integers, for all tokens, found {found} or NaN")
    return np.asarray(tags)
