"""Plain text to tokens: where sentences end, and which marks are tokens of their own.

Each line is text whose sentences end at ``.``, ``!`` or ``?`` (and closing marks behind it) before a blank and a
capital letter, and at the end of the line. Tokens stand between blanks, with marks split off at both ends:
``(Well, yes.)`` is ``( Well , yes . )``. Runs of one mark are one token (``...``, ``--``). These stay as they are:

- what the vocabulary knows: ``Dr.`` if it occurred in training, so that text that is tokenised already passes
  unchanged;
- marks inside a word: ``state-of-the-art``, ``3.5``, ``don't``; but an ending that the vocabulary has as a token of its
  own (``'s``, ``n't``) is split off, and so is a currency sign;
- the period of an initial (``J.``) and of a word with periods inside (``U.N.``). Such a period ends no sentence.
"""

from __future__ import annotations

import codecs
import contextlib
import unicodedata
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import IO, Any

import numpy as np

from torchperc import _checks as checks
from torchperc._lazy import requires
from torchperc.samples import streams
from torchperc.sequences.corpus import Column, Corpus
from torchperc.sequences.tables import Strings

Array = np.ndarray[Any, Any]
_BLOCK = 2**17  # bytes that are read at once
_LOOKED_UP = 256  # bytes of a word up to which a text is searched for it: each mark of a run looks up what is left


class Vocabulary:
    """A set of words, for lookups in compiled loops.

    Args:
        data: the words one after the other, in UTF-8. Shape (B,), uint8.
        ends: where each ends. Shape (V,), int64.

    Example:
        >>> known = Vocabulary.of(["Dr.", "said", "."])
        >>> "Dr." in known, "Dr" in known, len(known)
        (True, False, 3)
    """

    def __init__(self, data: Array, ends: Array) -> None:
        from torchperc.sequences.feature_loops import place_strings

        column = Column(None, np.ascontiguousarray(data), np.ascontiguousarray(ends))  # which checks them
        self.data, self.ends = _read_only(column.data), column.ends
        self._bounds = np.concatenate((np.zeros(1, np.int64), self.ends))
        self._slots = np.zeros(1 << max(4, (2 * len(self.ends)).bit_length()), np.uint64)
        self._longest = int(np.diff(self._bounds).max(initial=0))
        place_strings(self._slots, self.data, self._bounds, len(self.ends))

    @classmethod
    def of(cls, words: Iterable[str]) -> Vocabulary:
        """The vocabulary of some words."""
        column = Column.of(sorted(set(words)))
        return cls(column.data, column.ends)

    @classmethod
    def of_column(cls, column: Column) -> Vocabulary:
        """The vocabulary of all words in a column."""
        table = Strings()
        table.add(column.data, column.starts, column.ends)
        return cls(table.data[: table.ends[table.count]].copy(), table.ends[1 : table.count + 1].copy())

    def __len__(self) -> int:
        return len(self.ends)

    def __contains__(self, word: object) -> bool:
        return isinstance(word, str) and bool(self.knows(Column.of([word]))[0])

    def words(self) -> list[str]:
        """All words."""
        return Column(None, self.data, self.ends).strings()

    def knows(self, column: Column) -> Array:
        """Which strings of a column are in the vocabulary: (T,) bool."""
        from torchperc.sequences.token_loops import are_known

        found = np.empty(len(column), np.bool_)
        are_known(_read_only(column.data), column.ends, self._longest, *self.table[1:], found)
        return found

    @property
    def table(self) -> tuple[int, Array, Array, Array]:
        """What compiled loops look words up in: the longest word's bytes, up to 256, slots, words and their bounds."""
        return min(self._longest, _LOOKED_UP), self._slots, self.data, self._bounds


def tokenize(
    text: str | bytes,
    vocabulary: Vocabulary | None = None,
    *,
    tokenized: bool = False,
    name: str = "the text",
    checked: bool = False,
) -> Corpus:
    """The sentences and tokens of a text, as this module describes.

    Args:
        text: lines of text; bytes are UTF-8.
        vocabulary: words that stay as they are.
        tokenized: the text has a sentence per line and its tokens between blanks; nothing else is split.
        name: of the text, for errors.
        checked: the bytes are known to be UTF-8, as those of :func:`iter_lines` are, so that nobody checks them twice.

    Example:
        >>> tokenize('He said: "Stop!" Then Mr. J. Smith (of the U.N.) left...').sentences()
        [['He', 'said', ':', '"', 'Stop', '!', '"'],
         ['Then', 'Mr', '.'],
         ['J.', 'Smith', '(', 'of', 'the', 'U.N.', ')', 'left', '...']]
        >>> tokenize("Mr. Smith left.", Vocabulary.of(["Mr."])).sentences()
        [['Mr.', 'Smith', 'left', '.']]
    """
    from torchperc.sequences import token_loops

    if not isinstance(text, str | bytes):
        raise TypeError(f"text must be a string or bytes, found {type(text).__name__} {text!r}")
    if isinstance(text, bytes):
        content = text
        if not checked:  # the loops trust the first byte of a character
            check_utf8(content, name)
    else:
        try:
            content = text.encode()
        except UnicodeEncodeError as error:
            wrong = f"{text[error.start]!r}, which is half a surrogate pair and has no UTF-8"
            raise ValueError(f"{name} has {wrong}; decode its file as UTF-8") from None
    data = np.frombuffer(content, np.uint8)
    out, ends = np.empty(len(data), np.uint8), np.zeros(len(data) + 1, np.int64)
    offsets = np.zeros(len(data) + 1, np.int64)
    if checks.flag("tokenized", tokenized):
        count, sentences = token_loops.split_blanks(data, _classes(), out, ends, offsets)
    else:
        table = (vocabulary or _nothing()).table
        count, sentences = token_loops.split_text(data, _classes(), *table, out, ends, offsets)
    column = Column(None, out[: ends[count]], ends[1 : count + 1].copy())
    return Corpus((column,), offsets[: sentences + 1].copy(), name)


def iter_text(
    stream: IO[bytes],
    vocabulary: Vocabulary | None = None,
    *,
    tokenized: bool = False,
    name: str = "standard input",
) -> Iterator[Corpus]:
    """:func:`tokenize` for a stream, block by block; a block ends at the end of a line.

    Example:
        >>> import io
        >>> [corpus.sentences() for corpus in iter_text(io.BytesIO(b"One. Two.\\nThree."))]
        [[['One', '.'], ['Two', '.']], [['Three', '.']]]
    """
    for block in iter_lines(stream, name=name):
        corpus = tokenize(block, vocabulary, tokenized=tokenized, name=name, checked=True)
        if len(corpus):
            yield corpus


@contextlib.contextmanager
def open_text(path: Path) -> Iterator[Any]:
    """A file or a pipe to read bytes from, decompressed if its name ends in .gz, .bz2, .xz or .zst."""
    if path.exists() and not path.is_file() and not path.is_dir():
        with path.open("rb") as pipe:
            yield pipe
        return
    packing = streams.PACKED.get(path.suffix.lower())
    streams.check_begin(path, packing, None)
    if packing == "zstd":
        requires(f"reading {path}", "pyarrow")
    with streams.Stream(path, packing, limit=streams.most_unpacked(path)) as file:
        yield file


def iter_lines(stream: IO[bytes], *, name: str, size: int = _BLOCK, encoding: str = "utf-8") -> Iterator[bytes]:
    """Blocks of whole lines in UTF-8, checked or converted to it; a byte order mark is skipped."""
    rest: list[bytes] = []
    convert = None if encoding == "utf-8" else codecs.getincrementaldecoder(encoding)()
    line, first = 1, True
    take = getattr(stream, "read1", stream.read)  # what has arrived, so that a pipe is worked on at once
    while True:
        block = given = take(size)
        if convert is not None:
            try:
                block = convert.decode(given, not given).encode()
            except UnicodeError as error:
                why = f"not valid {encoding} ({checks.first_line(error)}); it may be in another "
                where = f"{name}, line {line} or later: "
                raise checks.ParameterError(where, why, checks.Option("encoding", "utf-8")) from None
        cut = block.rfind(b"\n") + 1 if given else len(block)
        if given and not cut:
            rest.append(block)
            continue
        whole = b"".join((*rest, block[:cut]))
        rest = [block[cut:]]
        if first:
            whole, first = whole.removeprefix(b"\xef\xbb\xbf"), False
        if whole:
            check_utf8(whole, name, line)
            line += whole.count(b"\n")
            yield whole
        if not given:
            return


def check_utf8(content: bytes, name: str | Path, line: int = 1) -> None:
    """Refuse bytes that are not UTF-8, by name and line."""
    try:
        content.decode()
    except UnicodeDecodeError as error:
        number = line + content.count(b"\n", 0, error.start)
        wrong = content[error.start]
        why = f"byte 0x{wrong:02x} is not valid UTF-8; if the text is in another encoding, name it: "
        raise checks.ParameterError(f"{name}, line {number}: ", why, checks.Option("encoding", "latin-1")) from None


def _read_only(data: Array) -> Array:
    """The same bytes as the loops were compiled for: those of a file cannot be written to."""
    seen = np.ascontiguousarray(data).view()
    seen.flags.writeable = False
    return seen


@cache
def _nothing() -> Vocabulary:
    return Vocabulary.of([])


@cache
def _classes() -> Array:
    """What each character of the Basic Multilingual Plane is, as bits."""
    from torchperc.sequences import token_loops as loops

    bits = {"Lu": loops.UPPER, "Lt": loops.UPPER, "Nd": loops.DIGIT, "Sc": loops.CURRENCY}
    kinds = {"Pe": loops.CLOSES, "Pf": loops.CLOSES, "Ps": loops.OPENS, "Pi": loops.OPENS}
    table = np.zeros(0x10000, np.uint8)
    for code in range(0x10000):
        letter = chr(code)
        category = unicodedata.category(letter)
        if category[0] == "P":
            table[code] = loops.PUNCTUATION | kinds.get(category, 0)
        elif category in bits:
            table[code] = bits[category]
        elif letter.isspace():
            table[code] = loops.SPACE
    for letters, bit in ((".!?…。！？", loops.ENDS), ("\"'’", loops.CLOSES), ("\"'`¿¡", loops.OPENS)):
        for letter in letters:
            table[ord(letter)] |= bit
    table[ord("`")] |= loops.PUNCTUATION  # `` opens quotes in many corpora
    return table
