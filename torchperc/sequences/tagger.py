"""A tagger: from sentences with tags to a model in one file, and from new sentences or text to tags."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
import torch

import torchperc
from torchperc import _checks as checks
from torchperc.rules.orders import Order
from torchperc.rules.trainer import RuleTrainer
from torchperc.samples import compiling, streams
from torchperc.samples.jobs import in_order
from torchperc.samples.sealed import read_sealed, write_sealed
from torchperc.sequences import formats
from torchperc.sequences.chains import DECODES, ChainPerceptron
from torchperc.sequences.corpus import Array, Column, Corpus
from torchperc.sequences.engines import Task, engine_of
from torchperc.sequences.evaluation import Evaluation, evaluate_codes
from torchperc.sequences.features import FeatureMap
from torchperc.sequences.layout import Sequences
from torchperc.sequences.log import ChainLog
from torchperc.sequences.rule import ChainRun
from torchperc.sequences.sparse import Sparse
from torchperc.sequences.tables import Strings
from torchperc.sequences.templates import Templates
from torchperc.sequences.tokens import Vocabulary, iter_lines, open_text, tokenize
from torchperc.sequences.weights import ChainWeights

FORMAT = 1
DESCRIPTION = "torchperc.tagger"
SELECTS = ("averaged", "last")
_ORDERS = ("shuffled", "given")
_REMEDY = "train it again with `torchperc tag fit`"
_KEPT = ("decode", "beam_width", "select", "margin", "epochs")  # options that a file of a tagger keeps
_ENDINGS = {
    **dict.fromkeys((".conll", ".conllup", ".tsv", ".bio", ".iob", ".iob2", ".iobes"), "conll"),
    ".conllu": "conllu",
    **dict.fromkeys((".parquet", ".pq"), "parquet"),
}
_TOKENS = 2**14  # in a block that one thread tags
_MOST_TAGS = 2**15  # that int16 numbers


class TaggerEpoch(NamedTuple):
    """What happened in an epoch.

    Args:
        epoch: its number, from 1.
        wrong_sentences: sentences that were mistakes while they were learned from.
        wrong_tokens: their tokens that had another tag.
        accuracy: the fraction of all other tokens.
        dev: accuracy on the development corpus by the weights so far, if there is one.
        seconds: that the epoch took, without the development corpus.
    """

    epoch: int
    wrong_sentences: int
    wrong_tokens: int
    accuracy: float
    dev: float | None
    seconds: float


class Tagged(NamedTuple):
    """A piece of tagged output: lines of UTF-8, and how many tokens are in it."""

    lines: bytes
    tokens: int


class Layout(NamedTuple):
    """Which columns of the training corpus were features, and which the tag.

    Args:
        features: the names of the columns that templates count from 0, ``None`` for one without a name.
        tag: the name of the tag's column.
        place: the number of the tag's column among all, from 0.
    """

    features: tuple[str | None, ...]
    tag: str | None
    place: int

    @classmethod
    def of(cls, corpus: Corpus, tag_column: int | str) -> Layout:
        """The layout of a corpus with tags."""
        names = [column.name for column in corpus.columns]
        if len(names) < 2:
            raise ValueError(
                f"{corpus.name} has one column only, so there is no column of tags; each token needs a word and a tag"
            )
        place = corpus.number(tag_column)
        return cls(tuple(names[:place] + names[place + 1 :]), names[place], place)

    def columns(self, corpus: Corpus, tag: int | None = None) -> list[int]:
        """The numbers of the feature columns in another corpus; ``tag`` is the column of its tags, if they are read."""
        names, count = [column.name for column in corpus.columns], len(self.features)
        if all(name is not None and name in names for name in self.features):
            found = [names.index(name) for name in self.features]
            if tag in found:
                what = f"column {names[found[found.index(tag)]]!r} was a feature in training"
                raise ValueError(f"{corpus.name}: {what}, so it cannot be the column of tags")
            return found
        if len(names) == count + 1:
            left_out = self.place if tag is None else tag
            return [number for number in range(count + 1) if number != left_out]
        if len(names) == count and tag is None:
            return list(range(count))
        raise ValueError(
            f"{corpus.name} has {_columns(len(names))}, but the tagger was trained on {count} besides the tag; "
            "give a file with the same columns"
        )

    def tag_column(self, corpus: Corpus, given: int | str | None) -> int:
        """The number of the tag's column in another corpus."""
        if given is not None:
            return corpus.number(given)
        names = [column.name for column in corpus.columns]
        if self.tag is not None and self.tag in names:
            return names.index(self.tag)
        if self.tag is not None and None not in names and len(names) > len(self.features):
            raise ValueError(f"{corpus.name} has no column {self.tag!r} of tags, found {', '.join(map(str, names))}")
        if len(names) == len(self.features) + 1:
            return self.place
        if len(names) == len(self.features):
            raise ValueError(f"{corpus.name} has {_columns(len(names))} and no tags; a file with tags has one more")
        self.columns(corpus)
        return corpus.number(-1)


def _columns(count: int) -> str:
    return f"{count} column{'s' * (count != 1)}"


class Rest(NamedTuple):
    """What a tagger is made of, and learning goes on from.

    Args:
        last: the last weights.
        total: the sum of the weights after each sentence that was presented.
        steps: how many sentences that were.
    """

    last: Sparse
    total: Sparse
    steps: int


class Tagger:
    """Tags for the tokens of sentences, by a :class:`ChainPerceptron` on features of templates.

    Make one with :meth:`fit` or :meth:`load`.

    Example:
        >>> corpus = Corpus.of([[("the", "D"), ("dog", "N"), ("runs", "V")], [("a", "D"), ("cat", "N")]])
        >>> tagger = Tagger.fit(corpus, epochs=3)
        >>> tagger.apply([["the", "cat", "runs"]])
        [['D', 'N', 'V']]
        >>> tagger.tag("A dog runs.")[0][:2]
        [('A', 'D'), ('dog', 'N')]
        >>> tagger.evaluate(corpus).accuracy
        1.0
    """

    def __init__(
        self,
        features: FeatureMap,
        tags: Sequence[str],
        rest: Rest,
        vocabulary: Vocabulary,
        layout: Layout,
        *,
        decode: str = "viterbi",
        beam_width: int = 8,
        select: str = "averaged",
        margin: float = 0.0,
        epochs: int = 0,
    ) -> None:
        self.features, self.tags, self.rest, self.vocabulary = features, tuple(tags), rest, vocabulary
        self.layout, self.epochs = layout, epochs
        self.decode = checks.one_of("decode", decode, DECODES)
        self.beam_width = checks.whole("beam_width", beam_width, at_least=1)
        self.select = checks.one_of("select", select, SELECTS)
        self.margin = checks.number("margin", margin, at_least=0)

    @cached_property
    def weights(self) -> ChainWeights:
        """The selected weights: of float32, or of float64 if those of the last step are too large for it."""
        kept, over = (self.rest.last, 1) if self.select == "last" else (self.rest.total, max(1, self.rest.steps))
        large = any(self_.dtype == np.float64 for self_ in (self.rest.last.values, self.rest.last.trans))
        return kept.dense(self.features.width, np.float64 if large else np.float32, over)

    def __repr__(self) -> str:
        return f"Tagger({len(self.tags):,} tags, {self.weights.used:,} features)"

    @property
    def templates(self) -> Templates:
        """Of the features."""
        assert self.features.templates is not None
        return self.features.templates

    @property
    def buckets(self) -> int | None:
        """How many numbers features are hashed to; ``None`` with a dictionary."""
        return self.features.buckets

    @property
    def width(self) -> int:
        """How many tags decoding keeps at each token."""
        count = len(self.tags)
        return {"viterbi": count, "greedy": 1}.get(self.decode, min(self.beam_width, count))

    def net(self) -> ChainPerceptron:
        """A net with the weights, for torch: (tags, features) numbers, zeros included."""
        net = ChainPerceptron(
            self.features.width,
            len(self.tags),
            decode=self.decode,
            beam_width=self.beam_width,
            dtype=torch.float32 if self.weights.trans.dtype == np.float32 else torch.float64,
        )
        self.weights.write_to(net)
        return net

    def about(self) -> list[tuple[str, str]]:
        """What there is to say of the tagger, as name and value."""
        rows = [
            ("tags", f"{len(self.tags):,}"),
            ("features with a weight", f"{self.weights.used:,}"),
            ("words known from training", f"{len(self.vocabulary):,}"),
            ("templates", str(len(self.templates))),
            ("decoding", self.decode + (f", width {self.beam_width}" if self.decode == "beam" else "")),
            ("weights", self.select),
        ]
        if self.buckets is not None:
            rows.insert(2, ("features hashed to", f"{self.buckets:,} numbers"))
        return [*rows, ("epochs", str(self.epochs))]

    # --- learning ---

    @classmethod
    def fit(
        cls,
        corpus: Corpus | Sequence[Sequence[Any]],
        tag_column: int | str = -1,
        *,
        dev: Corpus | Sequence[Sequence[Any]] | None = None,
        templates: Templates | None = None,
        epochs: int = 5,
        buckets: int | None = None,
        cutoff: int = 1,
        order: str = "shuffled",
        seed: int = 0,
        select: str = "averaged",
        margin: float = 0.0,
        decode: str = "viterbi",
        beam_width: int = 8,
        watch: Callable[[TaggerEpoch], None] | None = None,
    ) -> Tagger:
        """Learn from sentences with tags.

        Args:
            corpus: tokens with at least two columns, or lists of sentences of tuples (word, …, tag).
            tag_column: name or number of the column of tags; all others are for the templates.
            dev: another corpus, on which the weights so far are evaluated after each epoch.
            templates: of the features; :meth:`Templates.default` for the number of columns if None.
            epochs: passes over the corpus; learning ends sooner if one is without a mistake.
            buckets: hash features to so many numbers, a power of two, instead of a dictionary.
            cutoff: ignore features that occur fewer times.
            order: of the sentences: ``"shuffled"`` or ``"given"``.
            seed: of the order.
            select: which weights are kept: ``"averaged"`` or ``"last"``.
            margin: per wrong tag, by which the true tags must score higher than others.
            decode: ``"viterbi"``, ``"beam"`` or ``"greedy"``; also while learning.
            beam_width: of the beam.
            watch: called after each epoch.
        """
        checks.one_of("order", order, _ORDERS)
        trainer = RuleTrainer(max_epochs=epochs, order=order, seed=seed, margin=margin)
        corpus = _corpus(corpus)
        if not corpus.tokens:
            raise ValueError(f"{corpus.name} is empty; give at least one sentence")
        layout = Layout.of(corpus, tag_column)
        tags, y = _tag_codes(corpus, layout.place)
        if len(tags) < 2:
            raise ValueError(
                f"{corpus.name} has one tag only, {tags[0]!r}; at least two are required; is the right column chosen?"
            )
        features = FeatureMap(templates, buckets=buckets, cutoff=cutoff)
        numbers = layout.columns(corpus)
        X = features.fit_transform(corpus, numbers)
        nothing = Sparse.of(ChainWeights.zeros(features.width, len(tags)))
        vocabulary = Vocabulary.of_column(corpus.columns[numbers[0]])
        options: dict[str, Any] = {"decode": decode, "beam_width": beam_width, "select": select, "margin": margin}
        made = cls(features, tags, Rest(nothing, nothing, 0), vocabulary, layout, **options)
        del corpus  # which is as large as what learning needs, and may be nobody else's
        return made._learned(X, y, trainer, None if dev is None else _corpus(dev), watch)

    def fit_more(
        self,
        corpus: Corpus | Sequence[Sequence[Any]],
        tag_column: int | str | None = None,
        *,
        dev: Corpus | Sequence[Sequence[Any]] | None = None,
        epochs: int = 5,
        order: str = "shuffled",
        seed: int = 0,
        watch: Callable[[TaggerEpoch], None] | None = None,
    ) -> Tagger:
        """Go on learning from more sentences; returns a new tagger and leaves this one as it is.

        Learning goes on from the last weights. New tags, words and features are added with weights of zero. Averaged
        weights are the mean over all sentences presented so far, in the earlier calls and in this one.

        Args:
            corpus, tag_column, dev, epochs, order, seed, watch: as in :meth:`fit`; the columns must be those of before.

        Example:
            >>> first = Tagger.fit(Corpus.of([[("a", "D"), ("dog", "N")]]), epochs=2)
            >>> first.fit_more(Corpus.of([[("dogs", "N"), ("run", "V")]]), epochs=2).tags
            ('D', 'N', 'V')
        """
        checks.one_of("order", order, _ORDERS)
        trainer = RuleTrainer(max_epochs=epochs, order=order, seed=seed, margin=self.margin)
        corpus = _corpus(corpus)
        place = self.layout.tag_column(corpus, tag_column)
        numbers = self.layout.columns(corpus, place)
        tags, y = _tag_codes(corpus, place, self.tags)
        features = FeatureMap.from_state(*self.features.state())  # a copy
        X = features.fit_more(corpus, numbers)
        vocabulary = Vocabulary.of([*self.vocabulary.words(), *corpus.columns[numbers[0]].strings()])
        last, total, steps = self.rest
        rest = Rest(last.with_tags(len(tags)), total.with_tags(len(tags)), steps)
        made = self._like(features, tags, rest, vocabulary)
        return made._learned(X, y, trainer, None if dev is None else _corpus(dev), watch, tag_column)

    def _like(self, features: FeatureMap, tags: Sequence[str], rest: Rest, vocabulary: Vocabulary) -> Tagger:
        options = {name: getattr(self, name) for name in _KEPT}
        return Tagger(features, tags, rest, vocabulary, self.layout, **options)

    def _learned(
        self,
        X: Sequences,
        y: Array,
        trainer: RuleTrainer,
        dev: Corpus | None,
        watch: Callable[[TaggerEpoch], None] | None,
        tag_column: int | str | None = None,
    ) -> Tagger:
        """The tagger after learning from more sentences; ``tag_column`` is that of ``dev``."""
        run = self._run(X, y, trainer)
        while run.verdict is None:
            begun = time.perf_counter()
            record = run.epoch()
            seconds = time.perf_counter() - begun
            if watch is None:
                continue
            log = run.log()
            wrong = int(log.wrong_tags_by_epoch()[-1])
            held = None
            if dev is not None:
                now = self._like(self.features, self.tags, self._rest(Sparse.of(run.weights), log), self.vocabulary)
                held = now.evaluate(dev, tag_column, worst=0).accuracy
            watch(TaggerEpoch(record.epoch, record.mistakes, wrong, 1 - wrong / X.tokens, held, seconds))
        log, last, epochs = run.log(), Sparse.of(run.weights), len(run.history)
        del run  # whose weights take as much memory as their sum
        made = self._like(self.features, self.tags, self._rest(last, log), self.vocabulary)._reduced()
        made.epochs = self.epochs + epochs
        return made

    def _run(self, X: Sequences, y: Array, trainer: RuleTrainer) -> ChainRun:
        start = self.rest.last.dense(X.width, np.float64)
        task = Task(X, y, np.ones(1), self.width, trainer.tie, trainer.margin)
        order = Order(trainer.order, torch.arange(len(X)), trainer.seed, trainer.max_epochs)
        like = {"features": X.width, "tags": len(self.tags), "decode": self.decode, "beam_width": self.beam_width,
                "dtype": torch.float32}  # fmt: skip
        return ChainRun(
            engine_of(trainer.engine, task, start), start, order, max_epochs=trainer.max_epochs, select="last",
            cost=np.ones(len(X)), scale=1.0, lr=1.0, margin=trainer.margin, like=like,
        )  # fmt: skip

    def _rest(self, last: Sparse, log: ChainLog) -> Rest:
        """The last weights, and the sum of all: those of before and those of this log."""
        total = log.total(len(last.features))
        self.rest.total.add_to(total)
        return Rest(last, Sparse.of(total), self.rest.steps + log.steps)

    def _reduced(self) -> Tagger:
        """The same tagger with only the features that have a weight."""
        if self.buckets is not None:
            return self
        kept = np.union1d(self.rest.last.features, self.rest.total.features)
        kept = kept if len(kept) else np.zeros(1, np.int64)
        last, total = (
            each._replace(features=np.searchsorted(kept, each.features)) for each in (self.rest.last, self.rest.total)
        )
        return self._like(self.features.reduced(kept), self.tags, Rest(last, total, self.rest.steps), self.vocabulary)

    # --- tags ---

    def codes(self, corpus: Corpus, *, n_jobs: int | None = None, numbers: Sequence[int] | None = None) -> Array:
        """The numbers of the tags of all tokens (T,); ``numbers`` are the feature columns, if they are known."""
        if not corpus.tokens:
            return np.zeros(0, np.int64)
        numbers = self.layout.columns(corpus) if numbers is None else numbers
        X = self.features.transform(corpus, numbers, n_jobs=compiling.threads(n_jobs))
        return self.weights.decode(X, self.width, n_jobs)

    def apply(self, corpus: Corpus | Sequence[Sequence[Any]], *, n_jobs: int | None = None) -> list[list[str]]:
        """The tags of each sentence.

        Args:
            corpus: tokens with the columns of training, with or without a column of tags, which is ignored; or a list
                of sentences of words, or of tuples with one string per column.
            n_jobs: threads; by default one per core.
        """
        given = _corpus(corpus)
        codes = self.codes(given, n_jobs=n_jobs)
        names = np.array(self.tags, dtype=object)[codes].tolist()
        return [names[start:stop] for start, stop in pairwise(given.offsets.tolist())]

    def tag(self, text: str, *, tokenized: bool = False) -> list[list[tuple[str, str]]]:
        """The tokens of a text with their tags, by sentence; see :mod:`torchperc.sequences.tokens`."""
        corpus = tokenize(text, self.vocabulary, tokenized=tokenized)
        pairs = zip(corpus.sentences(), self.apply(corpus), strict=True)
        return [list(zip(words, tags, strict=True)) for words, tags in pairs]

    def evaluate(
        self,
        corpus: Corpus | Sequence[Sequence[Any]],
        tag_column: int | str | None = None,
        *,
        strict: bool = False,
        worst: int = 20,
        n_jobs: int | None = None,
    ) -> Evaluation:
        """Compare the tags of the tagger with those of a corpus.

        Args:
            corpus: with tags.
            tag_column: name or number of their column; by default as in training.
            strict: count only entities that are well formed.
            worst: how many confusions are listed.
            n_jobs: threads; by default one per core.
        """
        corpus = _corpus(corpus)
        place = self.layout.tag_column(corpus, tag_column)
        numbers = self.layout.columns(corpus, place)
        tags, true = _tag_codes(corpus, place, self.tags)
        words = corpus.columns[numbers[0]]
        return evaluate_codes(
            true,
            self.codes(corpus, n_jobs=n_jobs, numbers=numbers),
            tags,
            corpus.offsets,
            word=lambda token: words.taken(token, token + 1).strings()[0],
            known=self.vocabulary.knows(words),
            strange=len(self.tags),
            strict=strict,
            worst=worst,
        )

    def tagged_lines(
        self,
        source: str | Path | IO[bytes],
        *,
        format: str | None = None,
        separator: str | None = None,
        encoding: str = "utf-8",
        tokenized: bool = False,
        n_jobs: int | None = None,
    ) -> Iterator[Tagged]:
        """Tag a file or a stream, block by block: lines with the columns of a token and its tag, sentences apart.

        Args:
            source: a file, or a stream of bytes.
            format: ``"text"`` for plain text, or one of :data:`torchperc.sequences.formats.FORMATS`; by default by
                :meth:`format_of`.
            separator: between columns; a tab is written if None.
            encoding: of the file; what is written is UTF-8.
            tokenized: see :func:`torchperc.sequences.tokens.tokenize`.
            n_jobs: threads, each with a block of its own; by default one per core.
        """
        jobs = compiling.threads(n_jobs)
        kind = format or self.format_of(source, encoding, tokenized=tokenized)[0]
        between = (separator or "\t").encode()
        if kind == "text":
            self._check_text()
            yield from self._tagged_text(source, formats.check_encoding(encoding), tokenized, between, jobs)
            return
        if tokenized:
            raise checks.ParameterError(checks.Option("tokenized", True), f" is for plain text, not for {kind}")
        with contextlib.ExitStack() as stack:
            if isinstance(source, str | Path) and Path(source).is_fifo():
                source = stack.enter_context(Path(source).open("rb"))
            how: dict[str, Any] = {"separator": separator, "encoding": encoding, "tokens_per_block": _TOKENS}
            blocks = formats.iter_blocks(source, kind, **how)
            yield from in_order(lambda block: self._lines(block, between), blocks, jobs, lambda: streams.waits(source))

    def format_of(
        self, source: str | Path | IO[bytes], encoding: str = "utf-8", *, tokenized: bool = False
    ) -> tuple[str, bool]:
        """The format of what is to be tagged, and whether a file's first lines say so, since its name says nothing.

        It is plain text, unless the name, the number of columns of training or the first lines say something else.

        Args:
            source, encoding, tokenized: as in :meth:`tagged_lines`.
        """
        name = Path(source).name.lower() if isinstance(source, str | Path) else ""
        for packed in streams.PACKED:
            name = name.removesuffix(packed)
        ending = Path(name).suffix
        if ending in _ENDINGS:
            return _ENDINGS[ending], False
        if len(self.layout.features) > 1:
            return "conll", False
        if tokenized or not isinstance(source, str | Path) or not Path(source).is_file():
            return "text", False
        kind = self._kind_of_lines(formats.beginning(Path(source), encoding))
        return kind, kind != "text"

    def _kind_of_lines(self, begin: bytes) -> str:
        """The format of a file's first lines for a tagger of words: of tokens if tags are known, or set off by tabs."""
        kind, lines = formats.guess(begin), formats.first_lines(begin)
        rows = [line.split() for line in lines]
        if kind == "conllu":
            return kind
        if kind == "slash":
            tags = [token.rpartition(b"/")[2] for row in rows for token in row]
        elif len(rows) > 1 and all(len(row) == 2 for row in rows):
            if all(b"\t" in line for line in lines):
                return kind
            tags = [row[self.layout.place] for row in rows]
        else:
            return "text"
        known = {tag.encode() for tag in self.tags}
        return kind if 2 * sum(tag in known for tag in tags) > len(tags) else "text"

    def _check_text(self) -> None:
        if len(self.layout.features) > 1:
            raise ValueError(
                f"the tagger needs {len(self.layout.features)} columns and plain text has words only; give a file with "
                "the columns of training, and its format"
            )

    def _tagged_text(
        self, source: str | Path | IO[bytes], encoding: str, tokenized: bool, between: bytes, jobs: int
    ) -> Iterator[Tagged]:
        def tagged(block: bytes) -> Tagged:
            return self._lines(tokenize(block, self.vocabulary, tokenized=tokenized, checked=True), between)

        with contextlib.ExitStack() as stack:
            name = "standard input"
            if isinstance(source, str | Path):
                name = str(source)
                stream: IO[bytes] = stack.enter_context(open_text(Path(source)))
            else:
                stream = source
            blocks = iter_lines(stream, name=name, encoding=encoding)
            yield from in_order(tagged, blocks, jobs, lambda: streams.waits(stream))

    def _lines(self, corpus: Corpus, between: bytes) -> Tagged:
        """Each token's columns and its tag in a line."""
        from torchperc.sequences import token_loops

        if not corpus.tokens:
            return Tagged(b"", 0)
        codes, tags = self.codes(corpus, n_jobs=1), Column.of(self.tags)
        mark = np.frombuffer(between, np.uint8)
        column = corpus.columns[0]
        for other in corpus.columns[1:]:
            out = np.empty(len(column.data) + len(other.data) + len(mark) * len(column), np.uint8)
            ends = np.empty(len(column), np.int64)
            token_loops.join_columns(column.data, column.ends, other.data, other.ends, mark, out, ends)
            column = Column(None, out, ends)
        sizes = tags.ends - tags.starts
        room = int(column.ends[-1]) + int(sizes[codes].sum()) + (len(mark) + 1) * len(column) + len(corpus)
        lines = np.empty(room, np.uint8)
        token_loops.write_lines(column.data, column.ends, tags.data, tags.ends, codes, mark, corpus.offsets, lines)
        return Tagged(lines.tobytes(), corpus.tokens)

    # --- files ---

    def save(self, path: str | Path) -> None:
        """Write the tagger to one safetensors file, atomically and with a checksum; nothing in it is pickled.

        Args:
            path: the file, in a folder that exists. A file of that name is replaced.
        """
        arrays, features = self.features.state()
        tensors = {f"features.{name}": array for name, array in arrays.items()}
        tensors |= {"vocabulary.data": self.vocabulary.data, "vocabulary.ends": self.vocabulary.ends}
        for name, weights in (("last", self.rest.last), ("total", self.rest.total)):
            tensors |= {f"{name}.{part}": array for part, array in weights._asdict().items()}
        state = {
            "format": FORMAT,
            "torchperc": torchperc.__version__,
            "tags": self.tags,
            "features": features,
            "layout": self.layout._asdict(),
            "steps": self.rest.steps,
            **{name: getattr(self, name) for name in _KEPT},
        }
        packed = {name: torch.from_numpy(_storable(array)) for name, array in tensors.items()}
        write_sealed(path, packed, {DESCRIPTION: json.dumps(state)})

    @classmethod
    def load(cls, path: str | Path) -> Tagger:
        """Read a tagger; a file that is none, is damaged or too new is a ``ValueError`` that says so.

        Example:
            >>> import tempfile
            >>> tagger = Tagger.fit(Corpus.of([[("a", "D"), ("dog", "N")]]), epochs=2)
            >>> with tempfile.TemporaryDirectory() as folder:
            ...     tagger.save(f"{folder}/tagger.safetensors")
            ...     Tagger.load(f"{folder}/tagger.safetensors").apply([["a", "dog"]])
            [['D', 'N']]
        """
        path = Path(path)
        if not path.is_file():
            raise ValueError(f"no such tagger: {path}; name a file that `torchperc tag fit` wrote")
        try:
            tensors, texts, sealed = read_sealed(path, _REMEDY)
        except OSError as error:
            raise ValueError(f"cannot read {path}: {error.strerror or error}") from None
        if DESCRIPTION not in texts:
            raise ValueError(f"{path} is not a tagger; name a file that `torchperc tag fit` wrote")
        if not sealed:
            raise ValueError(f"{path} has lost its checksum, so another program has written it; {_REMEDY}")
        new = ""
        try:
            state = json.loads(texts[DESCRIPTION])
            if state["format"] > FORMAT:
                new = f"{path} is of format {state['format']}, written by torchperc {state['torchperc']}"
            else:
                return _tagger(state, {name: tensor.numpy() for name, tensor in tensors.items()})
        except (KeyError, TypeError, ValueError, AttributeError, IndexError, RecursionError) as error:
            what = f"{error} is missing" if isinstance(error, KeyError) else error
            raise ValueError(f"{path} does not hold a tagger that can be used: {what}; {_REMEDY}") from None
        raise ValueError(f"{new}; this one reads up to format {FORMAT}: pip install -U torchperc")


def _tagger(state: dict[str, Any], arrays: dict[str, Array]) -> Tagger:
    own = {name.removeprefix("features."): array for name, array in arrays.items() if name.startswith("features.")}
    features = FeatureMap.from_state(own, state["features"])
    last, total = (Sparse(*(arrays[f"{name}.{part}"] for part in Sparse._fields)) for name in ("last", "total"))
    layout = Layout(tuple(state["layout"]["features"]), state["layout"]["tag"], state["layout"]["place"])
    vocabulary = Vocabulary(arrays["vocabulary.data"], arrays["vocabulary.ends"])
    options = {name: state[name] for name in _KEPT}
    tags = state["tags"]
    if not isinstance(tags, list) or not all(isinstance(tag, str) for tag in tags) or len(set(tags)) < len(tags):
        raise TypeError("its tags are not different strings")
    for name, number in (("steps", state["steps"]), ("epochs", state["epochs"]), ("place", layout.place)):
        checks.whole(name, number, at_least=0)
    for weights in (last, total):
        weights.check(features.width, len(tags))
    return Tagger(features, tags, Rest(last, total, state["steps"]), vocabulary, layout, **options)


def _storable(array: Array) -> Array:
    return np.array(array, copy=True, order="C")  # of arrays that cannot be written to, torch would warn


# --- helpers ---


def _corpus(corpus: Corpus | Sequence[Sequence[Any]]) -> Corpus:
    return corpus if isinstance(corpus, Corpus) else Corpus.of(corpus)


def _tag_codes(corpus: Corpus, place: int, known: Sequence[str] | None = None) -> tuple[tuple[str, ...], Array]:
    """The tags of a column, sorted, or new ones behind those that are known; and the number of each token's."""
    table = Strings()
    for each in (Column.of(known or ()), corpus.columns[place]):
        codes = table.add(each.data, each.starts, each.ends)
    if table.count > _MOST_TAGS:
        raise ValueError(
            f"{corpus.name} has {table.count:,} different tags, and at most {_MOST_TAGS:,} are possible; "
            "is the right column chosen?"
        )
    names = [table.text(number) for number in range(table.count)]
    first = 0 if known is None else len(known)
    order = [*range(first), *sorted(range(first, len(names)), key=names.__getitem__)]
    moved: Array = np.empty(len(names), np.int64)
    moved[order] = np.arange(len(names))
    return tuple(names[number] for number in order), moved[codes]
