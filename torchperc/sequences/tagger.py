"""A tagger: from sentences with tags to a model in one file, and from new sentences or text to tags."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np
import torch

import torchperc
from torchperc._checks import check_int
from torchperc.rules.conventions import Order
from torchperc.rules.run import RuleRun
from torchperc.samples.checksummed import read_checksummed, write_checksummed
from torchperc.sequences.evaluation import Evaluation, evaluate
from torchperc.sequences.features import FeatureMap, Templates, columns_of
from torchperc.sequences.rule import ChainProblem, ChainWeights
from torchperc.sequences.sequences import MOST_TAGS, flat

FORMAT = 2
DESCRIPTION = "torchperc.tagger"
_REMEDY = "train it again with `torchperc tag fit`"
_SENTENCES = 1000  # whose features are made at once


class TaggerEpoch(NamedTuple):
    """What happened in an epoch.

    Args:
        epoch: its number, from 1.
        wrong_sentences, wrong_tokens: mistakes while they were learned from, and their tokens with another tag.
        accuracy: the fraction of all other tokens.
        dev: accuracy on the development sentences by the averaged weights so far, if there are any.
        seconds: that the epoch took, without the development sentences.
    """

    epoch: int
    wrong_sentences: int
    wrong_tokens: int
    accuracy: float
    dev: float | None
    seconds: float


@dataclass(eq=False, repr=False)
class Tagger:
    """Tags for the tokens of sentences, by the averaged weights of a chain perceptron on features of templates.

    Make one with :meth:`fit` or :meth:`load`. Tokens are words, or tuples with a string per column; the first
    ``columns`` of them are features.

    Example:
        >>> sentences = [[("the", "D"), ("dog", "N"), ("runs", "V")], [("a", "D"), ("cat", "N")]]
        >>> tagger = Tagger.fit(sentences, epochs=3)
        >>> tagger.apply([["the", "cat", "runs"]])
        [['D', 'N', 'V']]
        >>> tagger.tag("A dog runs")
        [[('A', 'D'), ('dog', 'N'), ('runs', 'V')]]
        >>> tagger.evaluate(sentences).accuracy
        1.0
    """

    features: FeatureMap
    tags: tuple[str, ...]
    weights: ChainWeights
    columns: int
    words: frozenset[str]
    history: tuple[TaggerEpoch, ...] = ()

    def __repr__(self) -> str:
        return f"Tagger({len(self.tags):,} tags, {int((self.weights.slot >= 0).sum()):,} features)"

    @classmethod
    def fit(
        cls,
        sentences: Sequence[Sequence[Sequence[str]]],
        column: int = -1,
        *,
        dev: Sequence[Sequence[Sequence[str]]] | None = None,
        templates: Templates | None = None,
        epochs: int = 5,
        seed: int = 0,
        watch: Callable[[TaggerEpoch], None] | None = None,
    ) -> Tagger:
        """Learn from sentences with tags, which are presented in shuffled order.

        Args:
            sentences: lists of tuples (word, …, tag).
            column: the number of the tags' column, from 0 or from the end by −1, …; those before it are features, and
                those behind it are ignored.
            dev: other sentences, on which the averaged weights so far are evaluated after each epoch.
            templates: of the features; :meth:`Templates.default` for the number of feature columns if None.
            epochs: passes over the sentences; learning ends sooner if one is without a mistake.
            seed: of the order.
            watch: called with each epoch's record, which is also in ``history``.
        """
        check_int("epochs", epochs, at_least=1)
        check_int("seed", seed, at_least=0)
        columns, lengths = columns_of(sentences)
        place = range(len(columns))[column] if -len(columns) <= column < len(columns) else 0
        if not place:
            raise ValueError(f"column={column} cannot be that of the tags: tokens have {len(columns)} columns")
        tags, y = np.unique(columns[place], return_inverse=True)
        if not 2 <= len(tags) <= MOST_TAGS:
            some = ", ".join(map(repr, tags[:3].tolist()))
            raise ValueError(f"column={column} has {len(tags):,} different tags ({some}, …), not 2 to {MOST_TAGS:,}")
        features = FeatureMap(templates or Templates.default(place))
        if features.templates.columns > place:
            raise ValueError(f"templates name column {features.templates.columns - 1}, and {place} are before the tags")
        X, known = features.made(columns[:place], lengths, learn=True), frozenset(columns[0])
        del columns
        problem, order = ChainProblem.of(X, y, len(tags)), Order("shuffled", np.arange(len(X)), seed)
        start = ChainWeights.zeros(X.n_features, len(tags))
        run = RuleRun(problem, start, ChainProblem.own_engine, order, max_epochs=epochs, select="averaged")
        made = cls(features, tuple(tags.tolist()), run.weights, place, known)
        while run.verdict is None:
            begun = time.perf_counter()
            record = run.epoch()
            seconds, held, log = time.perf_counter() - begun, None, run.log()
            found = log.mistakes.part(len(log) - record.mistakes, len(log))
            wrong = int((flat(found.predicted) != flat(problem.y[found.sample])).sum())
            if dev is not None:
                made.weights = run.result().model  # type: ignore[assignment]
                held = made.evaluate(dev, column).accuracy
            epoch = TaggerEpoch(record.epoch, record.mistakes, wrong, 1 - wrong / X.tokens, held, seconds)
            made.history += (epoch,)
            if watch is not None:
                watch(epoch)
        made.weights = run.result().model  # type: ignore[assignment]
        return made

    def apply(self, sentences: Sequence[Sequence[Any]]) -> list[list[str]]:
        """Return the tags of each sentence, a list of words, or of tuples whose first columns are those of training."""
        names, found = np.array(self.tags, dtype=object), cast("list[list[str]]", [])
        for first in range(0, len(sentences), _SENTENCES):
            X = self.features.transform(sentences[first : first + _SENTENCES])
            tags = names[self.weights.decode(X)].tolist()
            found += [tags[start:end] for start, end in pairwise(X.offsets.tolist())]
        return found

    def tag(self, text: str) -> list[list[tuple[str, str]]]:
        """The words of a text with their tags: a sentence per line, words between blanks."""
        sentences = [words for line in text.splitlines() if (words := line.split())]
        found = zip(sentences, self.apply(sentences), strict=True)
        return [list(zip(words, tags, strict=True)) for words, tags in found]

    def evaluate(self, sentences: Sequence[Sequence[Sequence[str]]], column: int | None = None) -> Evaluation:
        """Compare the tags of the tagger with those of sentences.

        Args:
            sentences: with tags.
            column: the number of their column; by default behind the feature columns, as in training.
        """
        width, place = len(columns_of(sentences)[0]), self.columns if column is None else column
        if width <= self.columns or not -width <= place < width:
            needed = f"{self.columns} of features and the tags are needed"
            raise ValueError(f"column={column}: tokens have {width} columns; {needed}")
        true = [[token[place] for token in sentence] for sentence in sentences]
        words = [[token[0] for token in sentence] for sentence in sentences]
        return evaluate(true, self.apply(sentences), words, self.words)

    def save(self, path: str | Path) -> None:
        """Write the tagger to one safetensors file, atomically and with a checksum; nothing in it is pickled.

        Args:
            path: the file, in a folder that exists. A file of that name is replaced.
        """
        active, rows, transition, end = (values.numpy() for values in self.weights)
        row, tag = rows.nonzero()
        texts = {"words": sorted(self.words), "values": list(self.features.values)}
        arrays = {name: np.frombuffer(json.dumps(each).encode(), np.uint8) for name, each in texts.items()}
        arrays |= {**self.features.arrays(), "active": active, "transition": transition, "end": end}
        arrays |= {"row": row.astype(np.int32), "tag": tag.astype(np.int16), "weight": rows[row, tag]}
        state = {"format": FORMAT, "torchperc": torchperc.__version__, "tags": self.tags, "columns": self.columns}
        state["templates"] = self.features.templates.text
        tensors = {name: torch.from_numpy(np.array(array, order="C")) for name, array in arrays.items()}
        write_checksummed(path, tensors, {DESCRIPTION: json.dumps(state)})

    @classmethod
    def load(cls, path: str | Path) -> Tagger:
        """Read a tagger; a file that is damaged, too new or no tagger is a ``ValueError``.

        Example:
            >>> import tempfile
            >>> tagger = Tagger.fit([[("a", "D"), ("dog", "N")]], epochs=2)
            >>> with tempfile.TemporaryDirectory() as folder:
            ...     tagger.save(f"{folder}/tagger.safetensors")
            ...     Tagger.load(f"{folder}/tagger.safetensors").apply([["a", "dog"]])
            [['D', 'N']]
        """
        if not Path(path).is_file():
            raise ValueError(f"no such tagger: {path}; name a file that `torchperc tag fit` wrote")
        tensors, texts, sealed = read_checksummed(path, _REMEDY)
        if DESCRIPTION not in texts or not sealed:
            raise ValueError(f"{path} is not a tagger; name a file that `torchperc tag fit` wrote")
        state = json.loads(texts[DESCRIPTION])
        if state["format"] != FORMAT:
            found = f"is of format {state['format']} of torchperc {state['torchperc']}"
            raise ValueError(f"{path} {found}, and this version reads format {FORMAT}; {_REMEDY}")
        arrays, tags = {name: tensor.numpy() for name, tensor in tensors.items()}, tuple(state["tags"])
        try:
            words, values = (json.loads(arrays[name].tobytes()) for name in ("words", "values"))
            features, active = FeatureMap.from_state(state["templates"], values, arrays), arrays["active"]
            rows = np.zeros((len(active), len(tags)), np.float32)
            rows[arrays["row"], arrays["tag"]] = arrays["weight"]
            weights = ChainWeights.packed(features.n_features, active, rows, arrays["transition"], arrays["end"])
        except (KeyError, TypeError, ValueError, IndexError) as error:
            raise ValueError(f"{path} does not hold a tagger that can be used ({error}); {_REMEDY}") from None
        return cls(features, tags, weights, state["columns"], frozenset(words))
