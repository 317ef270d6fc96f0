"""Reading tagged and plain token files into a :class:`Corpus`, whole or in blocks, and writing columns.

=============  ========================================================================================================
format         what it is
=============  ========================================================================================================
``"conll"``    one token per line, its columns separated by blanks and tabs or by ``separator``; sentences are
               separated by empty lines. A line whose first column is ``-DOCSTART-`` is left out. A line that begins
               with # is a comment only if it stands before the first token of a sentence and has not as many columns
               as the tokens: # is a token, too (see ``comments``)
``"conllu"``   ten columns separated by tabs (id, form, lemma, upos, xpos, feats, head, deprel, deps, misc), comments
               with #; words of several tokens (3-4) and empty nodes (3.1) are left out. Form and upos are read
``"slash"``    one sentence per line, ``word/TAG`` tokens separated by blanks; the last slash counts
``"parquet"``  one row per sentence with lists of strings, or one row per token and a column that numbers sentences
=============  ========================================================================================================

Text is UTF-8 with or without a byte order mark, lines end with LF or CR LF, files may be compressed (.gz, .bz2, .xz,
.zst). Several empty lines are as good as one. What is wrong is a ``ValueError`` with file, line and column; columns of
text count from 1 there, as in an editor.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import IO, Any, NoReturn

import numpy as np

from torchperc import _checks as checks
from torchperc._lazy import requires
from torchperc.samples import streams
from torchperc.sequences import format_loops as loops
from torchperc.sequences import parquet
from torchperc.sequences.corpus import Array, Column, Corpus
from torchperc.sequences.tokens import open_text

FORMATS = ("conll", "conllu", "slash", "parquet")
CONLLU = ("id", "form", "lemma", "upos", "xpos", "feats", "head", "deprel", "deps", "misc")
_ENDINGS = {".conllu": "conllu", ".conllup": "conll", ".parquet": "parquet", ".pq": "parquet"}
_LOOK = 2**16  # bytes by which a format is guessed
_PER_TOKEN = 16  # bytes that are read per token of a block
_MARKS = {b"\xff\xfe": "utf-16", b"\xfe\xff": "utf-16"}

Source = Any  # a path, several of them, or a binary stream


@dataclass(frozen=True)
class _How:
    """The options of a reader."""

    format: str | None
    separator: str | None
    columns: tuple[int | str, ...] | None
    encoding: str
    comments: bool | None
    sentence: str | None
    max_unpacked: int | None


def read(
    path: Source,
    format: str | None = None,
    *,
    separator: str | None = None,
    columns: Sequence[int | str] | None = None,
    encoding: str = "utf-8",
    comments: bool | None = None,
    sentence: str | None = None,
    max_unpacked: int | None = None,
) -> Corpus:
    """Read a file, several files one after the other, or a binary stream.

    Args:
        path: a file, a pattern such as ``brown/c*``, a list of either, or a stream of bytes such as
            ``sys.stdin.buffer``.
        format: one of the formats of this module; guessed from the name and the first lines if None.
        separator: what is between columns, exactly (``"\\t"``, ``","``, …); runs of blanks and tabs if None. With
            ``"slash"`` what is between word and tag.
        columns: which columns to read, in this order: numbers from 0, or from the end by −1, −2, …, or names where the
            format has them. All if None (``"conllu"``: form and upos).
        encoding: of text.
        comments: whether lines of ``"conll"`` that begin with # are comments: True, False, or None for the rule above.
        sentence: in ``"parquet"`` with one row per token, the column in which equal values in a row are one sentence.
        max_unpacked: bytes that a compressed file may decompress to.

    Example:
        >>> import io
        >>> corpus = read(io.BytesIO(b"the DT\\ndog NN\\n\\nrun VB\\n"))
        >>> corpus.sentences(0), corpus.strings(1), corpus.lines
        ([['the', 'dog'], ['run']], ['DT', 'NN', 'VB'], array([1, 2, 4]))
        >>> read(io.BytesIO(b"the/DT dog\\n"), "slash")
        Traceback (most recent call last):
        ValueError: the stream, line 1, token 2: 'dog' has no '/' between word and tag; is the format 'conll'?
    """
    how = _options(format, separator, columns, encoding, comments, sentence, max_unpacked)
    blocks = [block for source in _sources(path) for block in _read(source, how, None)]
    return Corpus.joined(blocks)


def iter_blocks(
    path: Source,
    format: str | None = None,
    *,
    tokens_per_block: int = 100_000,
    separator: str | None = None,
    columns: Sequence[int | str] | None = None,
    encoding: str = "utf-8",
    comments: bool | None = None,
    sentence: str | None = None,
    max_unpacked: int | None = None,
) -> Iterator[Corpus]:
    """Read as :func:`read` does, but in blocks of whole sentences, so that memory is bounded.

    Args:
        path, format, separator, columns, encoding, comments, sentence, max_unpacked: as in :func:`read`.
        tokens_per_block: a block has at most so many tokens, or one longer sentence. Blocks of a stream are smaller
            where less has arrived.

    Example:
        >>> import io
        >>> [block.strings(0) for block in iter_blocks(io.BytesIO(b"a/X b/Y\\nc/Z\\n"), "slash", tokens_per_block=2)]
        [['a', 'b'], ['c']]
    """
    how = _options(format, separator, columns, encoding, comments, sentence, max_unpacked)
    checks.whole("tokens_per_block", tokens_per_block, at_least=1)

    def blocks() -> Iterator[Corpus]:
        for source in _sources(path):
            for block in _read(source, how, tokens_per_block):
                yield from block.blocks(tokens_per_block)

    return blocks()


def write_conll(stream: IO[str], corpus: Corpus, tags: Iterable[str] | None = None, *, separator: str = "\t") -> None:
    """Write one token per line: its columns, then its tag, and an empty line behind each sentence.

    Args:
        stream: text that is written to.
        corpus: the tokens.
        tags: one per token, for all sentences one after the other; ``None`` to write the columns alone.
        separator: between the columns.

    Example:
        >>> import sys
        >>> write_conll(sys.stdout, Corpus.of([["the", "dog"]]), ["DT", "NN"], separator=" ")
        the DT
        dog NN
        <BLANKLINE>
    """
    columns = [corpus.strings(number) for number in range(len(corpus.columns))]
    if tags is not None:
        columns.append(list(tags))
        if len(columns[-1]) != corpus.tokens:
            raise ValueError(f"tags has {len(columns[-1])} tags for {corpus.tokens} tokens; it needs one per token")
    lines = list(map(separator.join, zip(*columns, strict=True)))
    bounds = corpus.offsets.tolist()
    for first, stop in pairwise(bounds):
        stream.write("\n".join(lines[first:stop]) + "\n\n")


def format_of(path: Source, encoding: str = "utf-8") -> str | None:
    """The format that :func:`read` finds a file to have; ``None`` for streams and pipes, which are read once only.

    Args:
        path: as in :func:`read`; the first file counts.
        encoding: of text.
    """
    source = next(_sources(path))
    if not isinstance(source, Path) or not source.is_file():
        return None
    return _ENDINGS.get(_packed(source)[1]) or guess(beginning(source, encoding))


def beginning(path: Path, encoding: str = "utf-8") -> bytes:
    """The first bytes of a file's text, in UTF-8 and without a byte order mark; what cannot be decoded is left out."""
    with open_text(path) as file:
        data: bytes = file.read(_LOOK)
    return data.removeprefix(codecs.BOM_UTF8).decode(check_encoding(encoding), "ignore").encode(errors="ignore")


def first_lines(begin: bytes) -> list[bytes]:
    """Up to 50 whole lines with tokens."""
    lines = begin.split(b"\n")
    lines = [line.strip(b" \t\r") for line in lines[: max(1, len(lines) - 1)]]
    return [line for line in lines if line and not line.startswith((b"#", b"-DOCSTART-"))][:50]


def check_encoding(encoding: str) -> str:
    """The name of an encoding of text as Python spells it."""
    try:
        bytes(4).decode(encoding, "replace")  # refuses codecs that are not of text
        return codecs.lookup(encoding).name
    except (LookupError, TypeError):
        raise checks.ParameterError(
            checks.Option("encoding", encoding), " is unknown; 'utf-8', 'latin-1' and 'utf-16' are common"
        ) from None


def _options(
    format: str | None,
    separator: str | None,
    columns: Sequence[int | str] | None,
    encoding: str,
    comments: bool | None,
    sentence: str | None,
    max_unpacked: int | None,
) -> _How:
    if format is not None:
        checks.one_of("format", format, FORMATS)
    if separator is not None and (not isinstance(separator, str) or not separator or set(separator) & set("\n\r\0")):
        raise checks.ParameterError(
            checks.Option("separator", separator), " must be a string of at least one character and no line end"
        )
    if columns is not None:
        if isinstance(columns, str) or not isinstance(columns, Sequence) or not columns:
            raise TypeError(f"columns must be a list of names or numbers, found {columns!r}")
        for which in columns:
            if isinstance(which, bool) or not isinstance(which, (int, str, np.integer)):
                raise TypeError(f"columns must hold names or integers, found {type(which).__name__} {which!r}")
    if comments is not None:
        checks.flag("comments", comments)
    if max_unpacked is not None:
        checks.whole("max_unpacked", max_unpacked, at_least=1)
    return _How(
        format,
        separator,
        None if columns is None else tuple(columns),
        check_encoding(encoding),
        comments,
        sentence,
        max_unpacked,
    )


# --- bytes ---


def _sources(path: Source) -> Iterator[Path | IO[bytes]]:
    if hasattr(path, "read"):
        yield path
        return
    yield from streams.found(path)


def _read(source: Path | IO[bytes], how: _How, tokens: int | None) -> Iterator[Corpus]:
    """The corpus in blocks, or as one block if ``tokens`` is None."""
    if not isinstance(source, Path):
        name = getattr(source, "name", None)
        name = name if isinstance(name, str) and name else "the stream"
        yield from _blocks(name, _available(source, name), how, tokens)
        return
    packing, suffix = _packed(source)
    kind = how.format or _ENDINGS.get(suffix)
    try:
        pipe = source.exists() and not source.is_file() and not source.is_dir()
        if pipe:
            with source.open("rb") as stream:
                yield from _blocks(str(source), _available(stream, str(source)), how, tokens)
            return
    except OSError as error:
        raise streams.unreadable(source, error) from None
    if kind == "parquet":
        streams.check_begin(source, None, "parquet")
        yield from parquet.blocks(source, how.columns, how.sentence, tokens)
        return
    streams.check_begin(source, packing, None)
    if packing == "zstd":
        requires(f"reading {source}", "pyarrow")
    limit = how.max_unpacked or streams.most_unpacked(source)
    with streams.Stream(source, packing, limit=limit) as file:
        yield from _blocks(str(source), file.read, how, tokens, kind)


def _packed(path: Path) -> tuple[str | None, str]:
    """How a file is compressed, and the ending of its name before that."""
    inner = path.name.lower()
    ending = next((end for end in streams.PACKED if inner.endswith(end)), "")
    return streams.PACKED.get(ending), Path(inner.removesuffix(ending)).suffix


def _available(stream: IO[bytes], name: str) -> Callable[[int], bytes]:
    """Reads what has arrived, so that what comes through a pipe is worked on at once."""
    take = getattr(stream, "read1", stream.read)

    def reading(size: int) -> bytes:
        try:
            data = take(size)
        except (OSError, EOFError, ValueError) as error:
            raise streams.unreadable(Path(name), error) from None
        if not isinstance(data, bytes):
            raise TypeError(f"{name} is a stream of {type(data).__name__}, not of bytes; pass its .buffer")
        return data

    return reading


class _Text:
    """UTF-8 from what a function reads, with the number of lines before it; checks each piece."""

    def __init__(self, name: str, take: Callable[[int], bytes], encoding: str) -> None:
        self.name, self._take, self._encoding = name, take, encoding
        self._decoder = None if encoding in ("utf-8", "utf-8-sig") else codecs.getincrementaldecoder(encoding)()
        self.rest, self.done, self.line, self._begun, self._decoded = b"", False, 0, False, 0

    def all(self) -> None:
        """Append all that is left to the rest."""
        pieces = [self.rest]
        while not self.done:
            pieces.append(self._next(2**24))
        self.rest = b"".join(pieces)

    def more(self, size: int, long: int = 0) -> None:
        """Append about so many bytes to the rest; of a long sentence as many again, so that the cost stays linear."""
        pieces = [self.rest, self._next(size)]
        while sum(map(len, pieces)) < 2 * long and long > _LOOK and not self.done:
            pieces.append(self._next(max(size, long)))
        self.rest = b"".join(pieces)

    def _next(self, size: int) -> bytes:
        data = self._take(size)
        self.done = not data
        if not self._begun and data:
            self._begun = True
            if self._decoder is None:
                while len(data) < 3 and (more := self._take(3 - len(data))):
                    data += more
                data = data.removeprefix(codecs.BOM_UTF8)
                if data[:2] in _MARKS:
                    why = f"{self.name} is not UTF-8 but UTF-16; read it with "
                    raise checks.ParameterError(why, checks.Option("encoding", "utf-16"))
        if self._decoder is not None:
            try:
                data = self._decoder.decode(data, self.done).encode()
            except UnicodeError as error:
                why = f"not valid {self._encoding} ({checks.first_line(error)}); it may be in another "
                where = f"{self.name}, line {self._decoded + 1} or later: "
                raise checks.ParameterError(where, why, checks.Option("encoding", "utf-8")) from None
            self._decoded += data.count(b"\n")
        return data

    def taken(self, end: int) -> tuple[bytes, int]:
        """The first bytes of the rest, which are checked, and the number of lines before them."""
        data, line = self.rest[:end], self.line
        self.rest = self.rest[end:]
        try:
            _ = data.isascii() or data.decode()
        except UnicodeDecodeError as error:
            why = f"byte 0x{data[error.start]:02x} is not valid UTF-8; if the file is in another encoding, name it: "
            raise self._wrong(data[: error.start], why, checks.Option("encoding", "latin-1")) from None
        if b"\0" in data:
            why = "a NUL byte, which text does not have; this is a binary file, or it needs "
            raise self._wrong(data[: data.index(b"\0")], why, checks.Option("encoding", "utf-16"))
        self.line += data.count(b"\n")
        return data, line

    def put_back(self, data: bytes) -> None:
        """Undo :meth:`taken`."""
        self.rest, self.line = data + self.rest, self.line - data.count(b"\n")

    def _wrong(self, before: bytes, *why: str | checks.Option) -> ValueError:
        line = self.line + before.count(b"\n") + 1
        column = len(before[before.rfind(b"\n") + 1 :].decode()) + 1
        return checks.ParameterError(f"{self.name}, line {line}, column {column}: ", *why)


def _blocks(
    name: str, take: Callable[[int], bytes], how: _How, tokens: int | None, kind: str | None = None
) -> Iterator[Corpus]:
    """Blocks of text that end with a sentence, parsed."""
    text = _Text(name, take, how.encoding)
    size = 2**24 if tokens is None else min(max(_LOOK, _PER_TOKEN * tokens), 2**26)
    text.more(size)
    kind = how.format or kind
    while not kind and not text.done and len(text.rest) < _LOOK and not (b"\n" in text.rest and first_lines(text.rest)):
        text.more(size)  # a pipe may give its first token later
    kind = kind or guess(text.rest[:_LOOK])
    if kind == "parquet":
        raise ValueError(f"{name} is a stream, and Parquet is read from files; save it as one first")
    parser = _Slashes(name, how) if kind == "slash" else _Columns(name, how, kind)
    found = 0
    if tokens is None:
        text.all()
    while True:
        end = len(text.rest) if text.done else loops.last_boundary(np.frombuffer(text.rest, np.uint8), kind == "slash")
        if end:
            data, line = text.taken(end)
            block = parser.parse(data, line, text.done)
            if block is not None:
                found += block.tokens
                yield block
            elif parser.undecided:
                text.put_back(data)
                end = 0
        if text.done:
            break
        text.more(size, 0 if end else len(text.rest))
    if not found:
        raise ValueError(f"{name} has no tokens: it is empty or has only blank lines and comments")


# --- parsers ---


class _Columns:
    """One token per line; the number of columns is that of the first token."""

    def __init__(self, name: str, how: _How, kind: str) -> None:
        self._name, self._how, self._conllu = name, how, kind == "conllu"
        separator = "\t" if self._conllu else how.separator or ""
        if self._conllu and how.separator not in (None, "\t"):
            raise checks.ParameterError(
                checks.Option("separator", how.separator), " does not fit CoNLL-U, which has tabs"
            )
        self._separator = np.frombuffer(separator.encode(), np.uint8)
        modes = {None: loops.BY_WIDTH, True: loops.ALWAYS, False: loops.NEVER}
        self._comments = loops.ALWAYS if self._conllu else modes[how.comments]
        self._slots: Array | None = None
        self._names: list[str | None] = []
        self.undecided = False  # lines with # so far, of which the first token tells whether they are comments

    def parse(self, data: bytes, line: int, last: bool) -> Corpus | None:
        """The tokens of some lines; nothing if there are only blanks and comments."""
        if self._slots is None:
            self._begin(data, line, last)
        if self._slots is None:
            return None
        most, wanted = data.count(b"\n") + 1, len(self._names)
        out, ends = np.empty((wanted, len(data)), np.uint8), np.empty((wanted, most), np.int64)
        offsets, lines = np.zeros(most + 1, np.int64), np.empty(most, np.int64)
        given = (np.frombuffer(data, np.uint8), self._separator, self._slots, self._comments, self._conllu, line)
        tokens, sentences, wrong, line, column, found = loops.parse_columns(*given, out, ends, offsets, lines)
        if wrong:
            self._refuse(wrong, line, column, found, data)
        return _corpus(self._name, self._names, out, ends, offsets, lines, tokens, sentences)

    def _begin(self, data: bytes, line: int, last: bool) -> None:
        """Find the first token, and with it the number of columns."""
        first = None
        for number, text in enumerate(data.split(b"\n"), line + 1):
            if not text.strip(b" \t\r") or self._begins_document(text):
                continue
            if text.startswith(b"#") and self._comments == loops.ALWAYS:
                continue
            if first is None or not text.startswith(b"#"):
                first = number, text
            if not text.startswith(b"#") or self._comments == loops.NEVER:
                break
        undecided = first is not None and first[1].startswith(b"#") and self._comments == loops.BY_WIDTH
        self.undecided = undecided and not last
        if first is None or self.undecided:
            return
        number, text = first
        row = np.frombuffer(text, np.uint8)
        begins = np.empty(len(row) + 1, np.int64)
        stop = len(text.rstrip(b" \t\r" if not len(self._separator) else b"\r"))
        width = loops.split_fields(row, 0, stop, self._separator, begins, begins.copy())
        if self._conllu and width != len(CONLLU):
            why = f"found {width} column{'s' * (width != 1)}, and CoNLL-U has ten, separated by tabs"
            where = f"{self._name}, line {number}: "
            raise checks.ParameterError(where, why, "; use ", checks.Option("format", "conll"), " for other columns")
        self._slots = self._chosen(width, number)

    def _begins_document(self, text: bytes) -> bool:
        separator = self._separator.tobytes()
        first = text.split(separator, 1)[0] if separator else _words(text)[0]
        return first.strip(b"\r") == b"-DOCSTART-"

    def _chosen(self, width: int, line: int) -> Array:
        known: tuple[str | None, ...] = CONLLU if self._conllu else (None,) * width
        wanted = self._how.columns or (("form", "upos") if self._conllu else tuple(range(width)))
        slots = np.full(width, -1, np.int64)
        for slot, which in enumerate(wanted):
            number = known.index(which) if isinstance(which, str) and which in known else which
            if isinstance(number, str):
                names = (
                    f"its columns are {', '.join(CONLLU)}"
                    if self._conllu
                    else "its columns have no names, only numbers"
                )
                raise ValueError(f"{self._name}, line {line}: there is no column {number!r}; {names}")
            if not -width <= number < width:
                raise ValueError(
                    f"{self._name}, line {line}: there is no column {number}, as the line has {width}; "
                    "columns count from 0, or from the end by -1, -2, …"
                )
            if slots[number] >= 0:
                raise checks.ParameterError(checks.Option("columns", list(wanted)), f" names column {which} twice")
            slots[number] = slot
            self._names.append(known[number])
        return slots

    def _refuse(self, wrong: int, line: int, column: int, found: int, data: bytes) -> NoReturn:
        assert self._slots is not None
        width, where = len(self._slots), f"{self._name}, line {line}"
        if wrong == loops.WIDTH:
            remedy: tuple[str | checks.Option, ...] = (
                "every token needs the same, and an empty line separates sentences",
            )
            if not len(self._separator) and b"\t" in data:
                option = checks.Option("separator", "\t")
                remedy = ("if columns are separated by tabs and hold blanks, use ", option)
            if self._conllu:
                remedy = ("columns are separated by tabs",)
            there = f"found {found} column{'s' * (found != 1)} and {width} in the lines before"
            raise checks.ParameterError(f"{where}: {there}; ", *remedy)
        where = f"{where}, column {column}"
        if wrong == loops.EMPTY:
            raise ValueError(f"{where}: the column is empty; write _ where there is no value")
        if wrong == loops.NO_NUMBER:
            why = f"{where}: not the number of a token, such as 3, 3-4 or 3.1; for other columns use "
            raise checks.ParameterError(why, checks.Option("format", "conll"))
        raise _carriage_return(where)


class _Slashes:
    """One sentence per line, of tokens word/TAG."""

    def __init__(self, name: str, how: _How) -> None:
        self._name, self._mark, self.undecided = name, how.separator or "/", False
        if set(self._mark) & set(" \t"):
            why = " must have no blank or tab, which stand between tokens"
            raise checks.ParameterError(checks.Option("separator", how.separator), why)
        self._wanted: list[int] = []
        for which in how.columns or (0, 1):
            number = {"word": 0, "tag": 1}.get(which, -9) if isinstance(which, str) else int(which)
            if not -2 <= number < 2 or number % 2 in self._wanted:
                raise ValueError(f"{name} has no such columns as {list(how.columns or ())}; it has 'word' and 'tag'")
            self._wanted.append(number % 2)

    def parse(self, data: bytes, line: int, last: bool) -> Corpus | None:
        """The tokens of some lines; nothing if there are only blanks."""
        most = len(data) // 4 + 1
        out, ends = np.empty((2, len(data)), np.uint8), np.empty((2, most), np.int64)
        offsets, lines = np.zeros(data.count(b"\n") + 2, np.int64), np.empty(most, np.int64)
        mark = np.frombuffer(self._mark.encode(), np.uint8)
        given = (np.frombuffer(data, np.uint8), mark, line)
        tokens, sentences, wrong, line, column, _ = loops.parse_slashes(*given, out, ends, offsets, lines)
        if wrong:
            text = _words(data.split(b"\n")[line - given[2] - 1])[column - 1].decode()
            what = {
                loops.NO_MARK: f"{text!r} has no {self._mark!r} between word and tag",
                loops.NO_WORD: f"{text!r} has no word before {self._mark!r}",
                loops.NO_TAG: f"{text!r} has no tag behind {self._mark!r}",
            }
            where = f"{self._name}, line {line}, token {column}"
            if wrong not in what:
                raise _carriage_return(where)
            raise ValueError(f"{where}: {what[wrong]}; is the format 'conll'?")
        corpus = _corpus(self._name, ["word", "tag"], out, ends, offsets, lines, tokens, sentences)
        if corpus is None or self._wanted == [0, 1]:
            return corpus
        chosen = tuple(corpus.columns[number] for number in self._wanted)
        return Corpus(chosen, corpus.offsets, corpus.name, corpus.lines)


def _words(line: bytes) -> list[bytes]:
    """What stands between blanks and tabs; ``bytes.split`` knows more blanks."""
    return re.split(rb"[ \t]+", line.strip(b" \t\r"))


def _carriage_return(where: str) -> ValueError:
    return ValueError(f"{where}: a carriage return inside of the line; lines end with LF or CR LF")


def _corpus(
    name: str,
    names: Sequence[str | None],
    out: Array,
    ends: Array,
    offsets: Array,
    lines: Array,
    tokens: int,
    sentences: int,
) -> Corpus | None:
    if not tokens:
        return None
    columns = tuple(
        Column(each, out[k, : ends[k, tokens - 1]].copy(), ends[k, :tokens].copy()) for k, each in enumerate(names)
    )
    return Corpus(columns, offsets[: sentences + 1].copy(), name, lines[:tokens].copy())


def guess(begin: bytes) -> str:
    """The format of text by its first lines."""
    lines = first_lines(begin)
    if not lines:
        return "conll"
    if all(line.count(b"\t") == 9 and re.match(rb"\d+([-.]\d+)?\t", line) for line in lines):
        return "conllu"
    if all(re.fullmatch(rb"\S+/\S+", word) for line in lines for word in _words(line)):
        return "slash"
    return "conll"
