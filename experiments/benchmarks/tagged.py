"""Tagged text for the benchmarks: the Brown corpus, which its user brings, or sentences of a generated grammar."""

from __future__ import annotations

import io
import re
import tarfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from torchperc.data.example_data import tagged_sentences

Sentence = list[tuple[str, str]]
_DOCUMENT = re.compile(r"c[a-r]\d\d")
_MODIFIERS = re.compile(r"(-(tl|hl|nc))+$")


class Split(NamedTuple):
    """Sentences to learn from, and others."""

    name: str
    train: list[Sentence]
    held: list[Sentence]

    def text(self) -> str:
        """The held-out words as plain text, a sentence per line, words between blanks."""
        return "".join(" ".join(word for word, _ in sentence) + "\n" for sentence in self.held)

    def tags(self) -> list[str]:
        """The held-out tags, one after the other."""
        return [tag for sentence in self.held for _, tag in sentence]


def simplified(tag: str) -> str:
    """A tag of Brown without what says where a word stands: in titles, headlines, foreign phrases, contractions.

    ``fw-`` and ``-tl``, ``-hl``, ``-nc`` are dropped, of ``ppss+bez`` the first part is kept, ``md*`` becomes ``md``.

    Example:
        >>> simplified("fw-at-tl"), simplified("PPSS+BEZ"), simplified("md*"), simplified("*"), simplified("--")
        ('at', 'ppss', 'md', '*', '--')
    """
    found = _MODIFIERS.sub("", tag.lower().removeprefix("fw-"))
    return found if found in ("--", "*") else found.split("+")[0].rstrip("*") or found


def brown(source: Path) -> Iterator[list[Sentence]]:
    """The 500 documents of the Brown corpus in their order, from a folder or an archive of its files."""
    for _, content in sorted(_documents(source)):
        pairs = [[word.rpartition("/") for word in line.split()] for line in content.decode("latin-1").splitlines()]
        yield [[(word, simplified(tag)) for word, _, tag in line] for line in pairs if line]


def checked(source: str | Path) -> Path:
    """A folder or an archive, if it has files of the Brown corpus."""
    next(_documents(Path(source)))
    return Path(source)


def _documents(source: Path) -> Iterator[tuple[str, bytes]]:
    found = 0
    if source.is_dir():
        for path in source.rglob("c[a-r][0-9][0-9]"):
            found += 1
            yield path.name, path.read_bytes()
    else:
        try:
            with tarfile.open(source) as archive:
                for member in archive:
                    name = Path(member.name).name
                    if _DOCUMENT.fullmatch(name) and (file := archive.extractfile(member)) is not None:
                        found += 1
                        yield name, io.BytesIO(file.read()).getvalue()
        except (OSError, tarfile.TarError) as error:
            raise ValueError(
                f"--brown {source} is neither a folder nor an archive of the Brown corpus: {error}"
            ) from None
    if not found:
        raise ValueError(f"--brown {source} has no files of the Brown corpus, which are named ca01 to cr09")


def split(source: Path | None, quick: bool) -> Split:
    """A split by document: of every 28 documents of Brown five to learn from and one held out; else a grammar.

    With the 500 documents of Brown that is 209,538 tokens to learn from, 41,690 held out, and 91 tags.
    """
    if source is None:
        count = 60 if quick else 25_000
        made = tagged_sentences(count + count // 4, seed=0)
        return Split("a generated grammar", made[:count], made[count:])
    documents = list(brown(source))
    chosen: Sequence[list[list[Sentence]]] = [
        [document for number, document in enumerate(documents) if number % 28 in places] for places in (range(5), (5,))
    ]
    train, held = ([sentence for document in part for sentence in document] for part in chosen)
    return Split("Brown", train[:60], held[:20]) if quick else Split("Brown", train, held)


def whole(source: Path) -> list[Sentence]:
    """All of Brown."""
    return [sentence for document in brown(source) for sentence in document]


def write_conll(path: Path, sentences: Sequence[Sentence]) -> None:
    """Word and tag per line, a blank line after each sentence."""
    with path.open("w") as file:
        for sentence in sentences:
            file.writelines(f"{word}\t{tag}\n" for word, tag in sentence)
            file.write("\n")


def read_conll(path: Path) -> list[Sentence]:
    """What :func:`write_conll` wrote, as users of the peers read it."""
    sentences: list[Sentence] = [[]]
    with path.open() as file:
        for line in file:
            if line.strip():
                word, tag = line.rstrip("\n").split("\t")
                sentences[-1].append((word, tag))
            elif sentences[-1]:
                sentences.append([])
    return sentences if sentences[-1] else sentences[:-1]
