"""A tagger: from sentences with tags to a model in one file, and from new sentences or text to tags."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

import torchperc
from torchperc.rules.trainer import RuleTrainer
from torchperc.samples.checksummed import read_checksummed, write_checksummed
from torchperc.sequences.chains import ChainPerceptron
from torchperc.sequences.engines import Task, engine_of
from torchperc.sequences.evaluation import Evaluation, evaluate
from torchperc.sequences.features import FeatureMap, Templates, columns_of
from torchperc.sequences.layout import Array, Sequences
from torchperc.sequences.rule import ChainRun, order_of
from torchperc.sequences.weights import ChainWeights

FORMAT = 2
DESCRIPTION = "torchperc.tagger"
_REMEDY = "train it again with `torchperc tag fit`"
_MOST_TAGS = 2**15  # that int16 numbers
_TOKENS = 2**14  # whose features are made at once


class TaggerEpoch(NamedTuple):
    """What happened in an epoch.

    Args:
        epoch: its number, from 1.
        wrong_sentences: sentences that were mistakes while they were learned from.
        wrong_tokens: their tokens that had another tag.
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

    def __init__(
        self,
        features: FeatureMap,
        tags: Sequence[str],
        weights: ChainWeights,
        *,
        columns: int,
        words: Sequence[str],
        history: Sequence[TaggerEpoch] = (),
    ) -> None:
        self.features, self.tags, self.weights, self.columns = features, tuple(tags), weights, columns
        self.words, self.history = frozenset(words), tuple(history)

    def __repr__(self) -> str:
        return f"Tagger({len(self.tags):,} tags, {self.weights.used:,} features)"

    @property
    def templates(self) -> Templates:
        """Of the features."""
        assert self.features.templates is not None
        return self.features.templates

    def net(self) -> ChainPerceptron:
        """A net with the weights, for torch: (tags, features) numbers, zeros included."""
        net = ChainPerceptron(self.features.width, len(self.tags), dtype=torch.float32)
        self.weights.write_to(net)
        return net

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
            watch: called after each epoch; what it is told is in ``history``, too.
        """
        trainer = RuleTrainer(max_epochs=epochs, order="shuffled", seed=seed, select="averaged")
        columns, lengths = columns_of(sentences)
        place = range(len(columns))[column] if -len(columns) <= column < len(columns) else 0
        if not place:
            raise ValueError(
                f"column={column} cannot be that of the tags: tokens have {len(columns)}, the first of them the word"
            )
        tags, y = np.unique(columns[place], return_inverse=True)
        if not 2 <= len(tags) <= _MOST_TAGS:
            some = ", ".join(map(repr, tags[:3].tolist()))
            raise ValueError(
                f"column={column} has {len(tags):,} different tags ({some}, …); 2 to {_MOST_TAGS:,} are possible"
            )
        features = FeatureMap(templates or Templates.default(place))
        if features.templates is not None and features.templates.columns > place:
            raise ValueError(f"templates name column {features.templates.columns - 1}, and {place} are before the tags")
        X, known = features.made(columns[:place], lengths, learn=True), dict.fromkeys(columns[0])
        del columns
        run = _start(trainer, X, y, len(tags))
        made = cls(features, tags.tolist(), run.weights, columns=place, words=list(known))
        history: list[TaggerEpoch] = []
        while run.verdict is None:
            begun = time.perf_counter()
            record = run.epoch()
            seconds = time.perf_counter() - begun
            wrong, held = int(run.log().wrong_tags_by_epoch()[-1]), None
            if dev is not None:
                made.weights = run.averaged()
                held = made.evaluate(dev, column).accuracy
            history.append(TaggerEpoch(record.epoch, record.mistakes, wrong, 1 - wrong / X.tokens, held, seconds))
            if watch is not None:
                watch(history[-1])
        made.weights, made.history = run.averaged(), tuple(history)
        return made

    def codes(self, sentences: Sequence[Sequence[Any]], *, n_jobs: int | None = None) -> Array:
        """The numbers of the tags of all tokens (T,)."""
        bounds = np.cumsum([0, *map(len, sentences)])
        cuts = np.searchsorted(bounds, np.arange(0, bounds[-1] + _TOKENS, _TOKENS)).tolist()
        found = [
            self.weights.decode(self.features.transform(sentences[first:stop]), n_jobs)
            for first, stop in pairwise(dict.fromkeys([*cuts[:-1], len(sentences)]))
        ]
        return np.concatenate([*found, np.zeros(0, np.int64)])

    def apply(self, sentences: Sequence[Sequence[Any]], *, n_jobs: int | None = None) -> list[list[str]]:
        """The tags of each sentence.

        Args:
            sentences: lists of words, or of tuples whose first columns are those of training.
            n_jobs: threads; by default one per core.
        """
        names = iter(np.array(self.tags, dtype=object)[self.codes(sentences, n_jobs=n_jobs)].tolist())
        return [[next(names) for _ in sentence] for sentence in sentences]

    def tag(self, text: str) -> list[list[tuple[str, str]]]:
        """The words of a text with their tags: a sentence per line, words between blanks."""
        sentences = [words for line in text.splitlines() if (words := line.split())]
        found = zip(sentences, self.apply(sentences), strict=True)
        return [list(zip(words, tags, strict=True)) for words, tags in found]

    def evaluate(
        self, sentences: Sequence[Sequence[Sequence[str]]], column: int | None = None, *, n_jobs: int | None = None
    ) -> Evaluation:
        """Compare the tags of the tagger with those of sentences.

        Args:
            sentences: with tags.
            column: the number of their column; by default behind the feature columns, as in training.
            n_jobs: threads; by default one per core.
        """
        columns, _ = columns_of(sentences)
        place = self.columns if column is None else range(len(columns))[column]
        if len(columns) <= max(place, self.columns):
            why = f"{self.columns} of features and the tags in column {place + 1} are needed"
            raise ValueError(f"tokens have {len(columns)} column{'s' * (len(columns) != 1)}; {why}")
        true = [[token[place] for token in sentence] for sentence in sentences]
        words = [[token[0] for token in sentence] for sentence in sentences]
        return evaluate(true, self.apply(sentences, n_jobs=n_jobs), words, self.words)

    def save(self, path: str | Path) -> None:
        """Write the tagger to one safetensors file, atomically and with a checksum; nothing in it is pickled.

        Args:
            path: the file, in a folder that exists. A file of that name is replaced.
        """
        tables, rest = self.features.state()
        active, rows, trans, end = self.weights.unpacked()
        row, tag = rows.nonzero()
        arrays = {
            "words": _bytes(sorted(self.words)),
            "values": _bytes(rest.pop("values")),
            "active": active,
            "row": row.astype(np.int32),
            "tag": tag.astype(np.int16),
            "weight": rows[row, tag],
            "transition": trans,
            "end": end,
            **{f"features.{name}": table for name, table in tables.items()},
        }
        state = {"format": FORMAT, "torchperc": torchperc.__version__, "tags": self.tags, "columns": self.columns}
        tensors = {name: torch.from_numpy(np.array(array, order="C")) for name, array in arrays.items()}
        write_checksummed(path, tensors, {DESCRIPTION: json.dumps({**state, **rest})})

    @classmethod
    def load(cls, path: str | Path) -> Tagger:
        """Read a tagger; a file that is none, is damaged or too new is a ``ValueError`` that says so.

        Example:
            >>> import tempfile
            >>> tagger = Tagger.fit([[("a", "D"), ("dog", "N")]], epochs=2)
            >>> with tempfile.TemporaryDirectory() as folder:
            ...     tagger.save(f"{folder}/tagger.safetensors")
            ...     Tagger.load(f"{folder}/tagger.safetensors").apply([["a", "dog"]])
            [['D', 'N']]
        """
        path = Path(path)
        if not path.is_file():
            raise ValueError(f"no such tagger: {path}; name a file that `torchperc tag fit` wrote")
        try:
            tensors, texts, sealed = read_checksummed(path, _REMEDY)
        except OSError as error:
            raise ValueError(f"cannot read {path}: {error.strerror or error}") from None
        if DESCRIPTION not in texts or not sealed:
            raise ValueError(f"{path} is not a tagger; name a file that `torchperc tag fit` wrote")
        try:
            state = json.loads(texts[DESCRIPTION])
            if state["format"] != FORMAT:
                found = f"is of format {state['format']} of torchperc {state['torchperc']}"
                raise ValueError(f"it {found}, and this version reads format {FORMAT}")
            return _tagger(state, {name: tensor.numpy() for name, tensor in tensors.items()})
        except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
            raise ValueError(f"{path} does not hold a tagger that can be used ({error}); {_REMEDY}") from None


def _start(trainer: RuleTrainer, X: Sequences, y: Array, tags: int) -> ChainRun:
    """A run of the rule from zero weights, without a net, whose weights would have no zeros left out."""
    start = ChainWeights.packed(
        X.width, np.zeros(0, np.int64), *(np.zeros(shape, np.float32) for shape in ((0, tags), (tags + 1, tags), tags))
    )
    like = {"features": X.width, "tags": tags, "dtype": torch.float32}
    task, order = Task(X, y, np.ones(1), 0.0), order_of(trainer, np.arange(len(X)))
    return ChainRun(
        engine_of(trainer.engine, task, start), start, order, max_epochs=trainer.max_epochs, select="averaged",
        cost=np.ones(len(X)), scale=1.0, lr=1.0, margin=0.0, like=like,
    )  # fmt: skip


def _bytes(texts: Sequence[str]) -> Array:
    return np.frombuffer(json.dumps(list(texts)).encode(), np.uint8)


def _tagger(state: dict[str, Any], arrays: dict[str, Array]) -> Tagger:
    """The tagger of a file, if its arrays fit together."""
    own = {name.removeprefix("features."): array for name, array in arrays.items() if name.startswith("features.")}
    words, values = (json.loads(arrays[name].tobytes()) for name in ("words", "values"))
    features = FeatureMap.from_state(own, {"templates": state["templates"], "values": values})
    tags, active, row, tag = state["tags"], arrays["active"], arrays["row"], arrays["tag"]
    if not all(isinstance(text, str) for text in tags) or len(set(tags)) < len(tags):
        raise TypeError("its tags are not different strings")
    within = ((active, features.width), (row, len(active)), (tag, len(tags)))
    if any(len(numbers) and not 0 <= numbers.min() <= numbers.max() < stop for numbers, stop in within):
        raise IndexError("its weights do not fit its features and tags")
    rows = np.zeros((len(active), len(tags)), np.float32)
    rows[row, tag] = arrays["weight"]
    if arrays["transition"].shape != (len(tags) + 1, len(tags)) or arrays["end"].shape != (len(tags),):
        raise TypeError("its transitions do not fit its tags")
    weights = ChainWeights.packed(features.width, active, rows, arrays["transition"], arrays["end"])
    return Tagger(features, tags, weights, columns=state["columns"], words=words)
