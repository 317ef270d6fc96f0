"""Reading tokens from files: columns, CoNLL-U, ``word/TAG`` text and plain text.

- ``"conll"``: one token per line, its columns between blanks and tabs or ``separator``; empty lines between sentences.
  Lines of ``-DOCSTART-`` are ignored; a line with # before a sentence is a comment if its columns differ
- ``"conllu"``: ten columns between tabs, of which form and one other are read; comments with #, words of several tokens
  (3-4) and empty nodes (3.1) are ignored
- ``"slash"``: one sentence per line, ``word/TAG`` tokens between blanks; the last slash counts
- ``"text"``: one sentence per line, words between blanks

Text is UTF-8; files may be compressed (.gz, .bz2, .xz). Errors are a ``ValueError`` with file and line.
"""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
from collections.abc import Callable, Iterable, Iterator
from contextlib import nullcontext
from itertools import chain, groupby, islice
from pathlib import Path
from typing import IO, Any, cast

from torchperc._checks import Option, ParameterError, check_choice

Token = tuple[str, ...]
Sentence = list[Token]
Source = str | Path | IO[bytes]

FORMATS = ("conll", "conllu", "slash", "text")
CONLLU = ("id", "form", "lemma", "upos", "xpos", "feats", "head", "deprel", "deps", "misc")
_OPENED: dict[str, Callable[..., Any]] = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}
_COLUMNS = (".conll", ".tsv", ".bio", ".iob", ".iob2", ".iobes")
_LOOK = 100  # lines by which a format is recognised


def read(
    path: Source, format: str | None = None, *, separator: str | None = None, column: str = "upos"
) -> list[Sentence]:
    """All sentences of a file or stream, each a list of tuples with a string per column.

    Args:
        path: a file, or a stream of bytes such as ``sys.stdin.buffer``.
        format: one of the formats above; by default inferred from the extension and the first lines.
        separator: what stands between columns, or between word and tag; by default blanks and tabs, or a slash.
        column: of CoNLL-U, which is read after the form.

    Example:
        >>> import io
        >>> read(io.BytesIO(b"the DT\\ndog NN\\n\\nrun VB\\n"))
        [[('the', 'DT'), ('dog', 'NN')], [('run', 'VB')]]
        >>> read(io.BytesIO(b"the/DT dog\\n"), "slash")
        Traceback (most recent call last):
        ValueError: the stream, line 1: 'dog' has no '/' between word and tag
    """
    sentences = list(iter_sentences(path, format, separator=separator, column=column))
    if not sentences:
        raise ValueError(f"{name_of(path)} has no tokens; give at least one sentence")
    return sentences


def iter_sentences(
    path: Source, format: str | None = None, *, separator: str | None = None, column: str = "upos"
) -> Iterator[Sentence]:
    """Sentences one after the other, as :func:`read` has them; a format that is not given is inferred first."""
    if separator is not None and not separator:
        raise ParameterError(Option("separator", separator), " is empty; leave it out for blanks and tabs")
    lines, name = numbered_lines(path), name_of(path)
    if format is None:
        first = list(islice(lines, _LOOK))
        lines, format = chain(first, lines), format_of(path, first)
    if check_choice("format", format, FORMATS) == "conllu":
        return _grouped(_conllu(lines, name, CONLLU.index(check_choice("column", column, CONLLU))))
    if format == "conll":
        return _grouped(_conll(lines, name, separator))
    if format == "slash":
        return _slash(lines, name, separator or "/")
    return ([(word,) for word in line.split()] for _, line in lines if not line.isspace() and line)


def line_of(path: str | Path, wanted: Callable[[Token], bool], **how: Any) -> int:
    """Return the number of the first line with a token that is wanted, 0 for none."""
    for number, line in numbered_lines(path):
        if any(map(wanted, chain.from_iterable(iter_sentences(io.BytesIO(line.encode()), **how)))):
            return number
    return 0


def format_of(path: Source, first: Iterable[tuple[int, str]] | None = None, *, plain: bool = False) -> str:
    """Return the format of a file by its extension, else by its first lines.

    With ``plain`` it may be plain text, which it is if its lines have several words and no tab.
    """
    name = Path(name_of(path))
    ending = (name.with_suffix("") if name.suffix in _OPENED else name).suffix.lower()
    if ending == ".conllu" or ending in _COLUMNS:
        return "conllu" if ending == ".conllu" else "conll"
    first = islice(numbered_lines(path), _LOOK) if first is None else first
    lines = [line for _, line in first if line and line[0] != "#"]
    if lines and all(line.count("\t") == 9 for line in lines):
        return "conllu"
    words, tabs = [line.split() for line in lines], any("\t" in line for line in lines)
    if plain:
        return "conll" if tabs or (len(words) > 2 and max(map(len, words)) == 1) else "text"
    slashes = [("/" in token) for line in words for token in line]
    return "slash" if slashes and all(slashes) and not tabs else "conll"


def name_of(path: Source) -> str:
    """What to call a file or stream in messages."""
    return str(path) if isinstance(path, str | Path) else str(getattr(path, "name", "the stream")).strip("<>")


def numbered_lines(path: Source) -> Iterator[tuple[int, str]]:
    """Lines with their numbers from 1, without what ends them."""
    number, name = 0, name_of(path)
    try:
        opened: Any = nullcontext(path)
        if isinstance(path, str | Path):
            opened = _OPENED.get(Path(name).suffix, open)(path, "rb")
        with opened as stream:
            for number, line in enumerate(stream, 1):
                text = line.decode("utf-8-sig" if number == 1 else "utf-8")
                yield number, text.rstrip("\r\n")
    except UnicodeDecodeError as error:
        where = f"{name}, line {number}"
        raise ValueError(f"{where}: not valid UTF-8 at byte {error.start + 1}; convert the file") from None
    except (OSError, EOFError, lzma.LZMAError) as error:
        why = getattr(error, "strerror", None) or error
        raise ValueError(f"cannot read {name}{f' after line {number}' * (number > 0)}: {why}") from None


def _grouped(tokens: Iterable[Token | None]) -> Iterator[Sentence]:
    """Sentences from tokens, with ``None`` between sentences."""
    return (list(cast("Iterator[Token]", group)) for there, group in groupby(tokens, bool) if there)


def _conll(lines: Iterator[tuple[int, str]], name: str, separator: str | None) -> Iterator[Token | None]:
    width, within, interned = 0, False, cast("dict[Token, Token]", {})
    for number, line in lines:
        token = tuple(line.split(separator)) if line.strip() else ()
        if not token or token[0] == "-DOCSTART-":
            within = False
            yield None
        elif len(token) == width or not (width or line.startswith("# ")):
            width, within = len(token), True
            if separator is not None and not all(map(str.strip, token)):
                empty = [not cell.strip() for cell in token].index(True) + 1
                raise ValueError(f"{name}, line {number}: column {empty} is empty")
            yield interned.setdefault(token, token)
        elif within or not line.startswith("#"):
            found = f"{len(token)} column{'s' * (len(token) != 1)}"
            remedy = "; if columns hold blanks, give a separator" if "\t" in line and separator is None else ""
            raise ValueError(f"{name}, line {number}: found {found}, and {width} in the lines before{remedy}")


def _conllu(lines: Iterator[tuple[int, str]], name: str, column: int) -> Iterator[Token | None]:
    for number, line in lines:
        cells = line.split("\t")
        if not line.strip():
            yield None
        elif line[0] != "#":
            if len(cells) != len(CONLLU):
                raise ValueError(f"{name}, line {number}: found {len(cells)} columns between tabs; CoNLL-U has 10")
            if cells[0].isdecimal():
                yield cells[1], cells[column]


def _slash(lines: Iterator[tuple[int, str]], name: str, separator: str) -> Iterator[Sentence]:
    for number, line in lines:
        sentence: Sentence = []
        for token in line.split():
            word, _, tag = token.rpartition(separator)
            if not word or not tag:
                raise ValueError(f"{name}, line {number}: {token!r} has no {separator!r} between word and tag")
            sentence.append((word, tag))
        if sentence:
            yield sentence
