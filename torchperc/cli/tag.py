"""``torchperc tag``: learn to tag the tokens of sentences from a file, evaluate on another, tag new text."""

from __future__ import annotations

import argparse
import itertools
import shlex
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from torchperc.cli import inputs
from torchperc.reports.text import percent, plural, visible

if TYPE_CHECKING:
    from torchperc.sequences.evaluation import Evaluation
    from torchperc.sequences.files import Sentence
    from torchperc.sequences.tagger import Tagger, TaggerEpoch

OPTIONS = {"max_epochs": "epochs"}
_FORMATS = ("conll", "conllu", "slash")
_TOKENS = 2**14  # of a block that is tagged at once
_CONFUSIONS = 10  # that eval prints


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the command and its three actions."""
    parser.description = (
        "Tags for the tokens of sentences, such as parts of speech or names: learned by the perceptron rule on whole "
        "sentences from a file of tokens and tags, evaluated on another file, applied to new text."
    )
    actions = parser.add_subparsers(dest="action", required=True, metavar="fit | eval | apply")
    for name, text, add in (
        ("fit", "learn from a file of tokens and tags", _add_fit),
        ("eval", "compare a tagger with the tags of a file", _add_eval),
        ("apply", "tag new text", _add_apply),
    ):
        add(actions.add_parser(name, help=text))


def _add_fit(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Learns to tag tokens. The file has a token per line, its columns between blanks or tabs, and a blank line "
        "between sentences; or it is CoNLL-U or word/TAG text. Columns before that of the tags are features, those "
        "behind it are ignored. Prints a row per epoch and writes the tagger to one file."
    )
    parser.add_argument("file", metavar="FILE", help="tokens with tags")
    parser.add_argument("--dev", metavar="FILE", help="evaluate on this file after each epoch")
    out = "file of the tagger (default: runs/ and the name of the file, numbered if taken)"
    parser.add_argument("--out", metavar="MODEL", help=out)
    parser.add_argument("--overwrite", action="store_true", help="replace the file of the tagger if there is one")
    epochs = "passes over the file (default: %(default)s)"
    parser.add_argument("--epochs", type=int, default=5, metavar="N", help=epochs)
    templates = "feature templates in the syntax of CRF++ (default: words, affixes, shapes and neighbours)"
    parser.add_argument("--templates", metavar="FILE", help=templates)
    seed = "random seed for shuffling sentences (default: %(default)s)"
    parser.add_argument("--seed", type=int, default=0, help=seed)
    _add_reading(parser, "the last")


def _add_eval(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Tags the tokens of a file and compares with its tags: accuracy, on words known and unknown from training, "
        "entities if the tags are B-, I-, O or similar, and the most frequent confusions."
    )
    parser.add_argument("model", metavar="MODEL", help="a file written by tag fit")
    parser.add_argument("file", metavar="FILE", help="tokens with tags")
    _add_reading(parser, "the one behind the features")


def _add_apply(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Tags plain text, a sentence per line with words between blanks, or a file of tokens with the columns of "
        "training. Writes a token and its tag per line and a blank line between sentences; to files of tokens a column "
        "is added, of CoNLL-U only form, upos and the new tag are written."
    )
    parser.add_argument("model", metavar="MODEL", help="a file written by tag fit")
    parser.add_argument("file", metavar="FILE", nargs="?", default="-", help="text or tokens (default: standard input)")
    parser.add_argument("-o", "--out", metavar="OUT", help="write to this file (default: standard output)")
    kinds = "format of the file (default: by its name and first lines; plain text if they say nothing)"
    parser.add_argument("--format", choices=("text", *_FORMATS), help=kinds)
    _add_separator(parser, "runs of blanks and tabs are read, a tab is written")


def _add_reading(parser: argparse.ArgumentParser, default: str) -> None:
    column = f"column of the tags by its number from 1, in CoNLL-U by name (default: {default}; upos)"
    parser.add_argument("--column", help=column)
    parser.add_argument("--format", choices=_FORMATS, help="format of the file (default: by its name and first lines)")
    _add_separator(parser, "runs of blanks and tabs")


def _add_separator(parser: argparse.ArgumentParser, default: str) -> None:
    separator = f"what stands between columns, \\t for a tab (default: {default})"
    parser.add_argument("--separator", help=separator)


def run(arguments: argparse.Namespace) -> None:
    """Learn, evaluate or tag."""
    inputs.one_line_warnings()
    if arguments.separator is not None:
        arguments.separator = arguments.separator.replace("\\t", "\t")  # a shell has no short way to write a tab
    {"fit": _fit, "eval": _evaluate, "apply": _apply}[arguments.action](arguments)


def _read(arguments: argparse.Namespace, file: str, default: int) -> tuple[list[Sentence], int]:
    """The sentences of a file, and the number of the tags' column from 0; ``default`` is that if none is given."""
    from torchperc._checks import Option, ParameterError
    from torchperc.sequences import files

    how: dict[str, Any] = {"separator": arguments.separator}
    kind = arguments.format or files.format_of(file)
    if kind == "conllu":
        named = arguments.column or "upos"
        how["column"] = files.CONLLU[int(named) - 1] if named.isdecimal() and 1 <= int(named) <= 10 else named
        return files.read(file, kind, **how), 1
    sentences = files.read(file, kind, **how)
    width = len(sentences[0][0])
    if arguments.column is None:
        if default >= width or width < 2:
            raise ValueError(
                f"{file} has {plural(width, 'column')} and none of tags; each token needs a word and a tag"
            )
        return sentences, default % width
    if not arguments.column.isdecimal() or not 2 <= int(arguments.column) <= width:
        why = f" is not a column of tags in {file}, which has {plural(width, 'column')}, the first of them the words"
        raise ParameterError(Option("column", arguments.column), why)
    return sentences, int(arguments.column) - 1


def _fit(arguments: argparse.Namespace) -> None:
    from torchperc.sequences.features import Templates
    from torchperc.sequences.tagger import Tagger

    out = _model_file(arguments)
    templates = None if arguments.templates is None else Templates.read(arguments.templates)
    sentences, column = _read(arguments, arguments.file, -1)
    dev = None if arguments.dev is None else _read(arguments, arguments.dev, column)[0]
    width, names = len(sentences[0][0]), [str(number + 1) for number in range(len(sentences[0][0]))]
    ignored = f"; ignored: {', '.join(names[column + 1 :])}" if column + 1 < width else ""
    features = f"features of column{'s' * (column > 1)} {', '.join(names[:column])}{ignored}"
    tokens = plural(sum(map(len, sentences)), "token")
    inputs.say(
        f"{arguments.file}: {plural(len(sentences), 'sentence')}, {tokens}; tags in column {column + 1}, {features}"
    )
    if len(sentences) == 1 and len(sentences[0]) > 200:
        inputs.say("Note: all tokens are one sentence; sentences are separated by empty lines.")
    print(_HEAD + ("  dev accuracy" if dev is not None else ""), flush=True)
    options = {"dev": dev, "epochs": arguments.epochs, "seed": arguments.seed}
    tagger = Tagger.fit(sentences, column, templates=templates, **options, watch=_show)
    if arguments.out is None:
        out = _free(out)
        out.parent.mkdir(parents=True, exist_ok=True)
    tagger.save(out)
    size = f"{plural(len(tagger.tags), 'tag')}, {plural(tagger.weights.used, 'feature')}"
    inputs.say(f"The tagger ({size}) is in {out}, {out.stat().st_size:,} bytes. Next steps:")
    named, other = shlex.quote(str(out)), "new.txt" if tagger.columns == 1 else "new.conll"
    inputs.say(f"  evaluate it        torchperc tag eval {named} other{Path(arguments.file).suffix}")
    inputs.say(f"  tag new text       torchperc tag apply {named} {other}")


_HEAD = "epoch  wrong sentences  wrong tokens  training accuracy     time"


def _show(epoch: TaggerEpoch) -> None:
    """A row of an epoch."""
    row = (
        f"{epoch.epoch:5}  {epoch.wrong_sentences:15,}  {epoch.wrong_tokens:12,}  {percent(epoch.accuracy, '.2f'):>17}"
    )
    dev = "" if epoch.dev is None else f"  {percent(epoch.dev, '.2f'):>12}"
    print(f"{row}  {epoch.seconds:5.2f} s{dev}", flush=True)


def _model_file(arguments: argparse.Namespace) -> Path:
    from torchperc._checks import Option, ParameterError

    if arguments.out is None:
        return _free(Path("runs", f"{Path(arguments.file).name.split('.')[0] or 'tagger'}.safetensors"))
    out = inputs.output_file(arguments.out)
    if out.exists() and not arguments.overwrite:
        raise ParameterError(Option("out", out), " exists already; choose another, or use ", Option("overwrite", True))
    return out


def _free(path: Path) -> Path:
    """The path, or the first numbered one that is free."""
    numbered = (path.with_stem(f"{path.stem}-{n}") for n in itertools.count(2))
    return next(each for each in itertools.chain([path], numbered) if not each.exists())


def _evaluate(arguments: argparse.Namespace) -> None:
    from torchperc.sequences.tagger import Tagger

    tagger = Tagger.load(arguments.model)
    sentences, column = _read(arguments, arguments.file, tagger.columns)
    found = tagger.evaluate(sentences, column)
    for line in lines(found):
        inputs.say(line)
    unseen = {token[column] for token in itertools.chain.from_iterable(sentences)} - set(tagger.tags)
    if unseen:
        some = ", ".join(map(repr, sorted(unseen)[:5]))
        inputs.say(f"tags that did not occur in training, whose tokens count as wrong: {some}")


def lines(found: Evaluation) -> Iterator[str]:
    """The figures of an evaluation, a line each; ``accuracy`` first.

    Example:
        >>> from torchperc.sequences import evaluate
        >>> print(*lines(evaluate([["a", "b"], ["a"]], [["a", "a"], ["a"]])), sep="\\n")
        accuracy 66.67 % (2 of 3 tokens)
        sentences without an error 50.00 % (1 of 2)
        most frequent confusions (true, predicted, tokens): b a 1
    """
    yield f"accuracy {_ratio(found.correct, found.tokens, ' tokens')}"
    if found.known is not None and found.unknown is not None:
        yield f"known words {_ratio(*found.known)}"
        yield f"unknown words {_ratio(*found.unknown)}"
    yield f"sentences without an error {_ratio(found.right_sentences, found.sentences)}"
    if found.entities is not None and found.all_entities is not None:
        for name, counts in (("all", found.all_entities), *found.entities.items()):
            figures = (("precision", counts.precision), ("recall", counts.recall), ("F1", counts.f1))
            shown = ", ".join(f"{what} {percent(value, '.2f')}" for what, value in figures)
            counted = f"{counts.correct:,} correct, {counts.predicted:,} predicted, {counts.true:,} true"
            yield f"entities, {name}: {shown} ({counted})"
    if found.confusions:
        some = ", ".join(f"{true} {said} {count:,}" for true, said, count in found.confusions[:_CONFUSIONS])
        yield f"most frequent confusions (true, predicted, tokens): {some}"


def _ratio(part: int, of: int, what: str = "") -> str:
    return f"{percent(part / of if of else 0, '.2f')} ({part:,} of {of:,}{what})"


def _apply(arguments: argparse.Namespace) -> None:
    from torchperc._checks import Option, ParameterError
    from torchperc._files import atomic_path
    from torchperc.sequences import files
    from torchperc.sequences.tagger import Tagger

    out = None if arguments.out is None else inputs.output_file(arguments.out)
    if out is not None and out.exists():
        for read, what in ((arguments.file, "file to be tagged"), (arguments.model, "tagger")):
            if Path(read).exists() and out.samefile(read):
                raise ParameterError(Option("out", out), f" is the {what}; choose another")
    tagger = Tagger.load(arguments.model)
    source: str | IO[bytes] = sys.stdin.buffer if arguments.file == "-" else arguments.file
    kind = arguments.format or ("text" if tagger.columns == 1 else "conll")
    if arguments.format is None and Path(arguments.file).is_file():
        kind = files.format_of(arguments.file, plain=tagger.columns == 1)
        if kind != "text" and Path(arguments.file).suffix == ".txt":
            print(visible(f"{arguments.file} is read as {kind}; use --format text for plain text"), file=sys.stderr)
    sentences = files.iter_sentences(source, kind, separator=arguments.separator)
    pieces = _tagged(tagger, sentences, arguments.separator or "\t", files.name_of(source))
    if out is None:
        for piece, _ in pieces:
            sys.stdout.buffer.write(piece.encode())
            sys.stdout.buffer.flush()  # what comes through a pipe is passed on block by block
        return
    tokens = 0
    with atomic_path(out) as part, part.open("wb") as file:
        for piece, count in pieces:
            file.write(piece.encode())
            tokens += count
    print(visible(f"{plural(tokens, 'tag')} in {out}"))


def _tagged(tagger: Tagger, sentences: Iterable[Sentence], between: str, name: str) -> Iterator[tuple[str, int]]:
    """Blocks of lines, each a token's columns and its tag, sentences apart; and the number of tokens of a block."""
    block: list[Sentence] = []
    count = done = 0
    for sentence in itertools.chain(sentences, [[]]):  # the last one ends the last block
        count += len(sentence)
        if sentence:
            block.append(sentence)
        if not block or (sentence and count < _TOKENS):
            continue
        if len(block[0][0]) < tagger.columns:
            have, need = plural(len(block[0][0]), "column"), plural(tagger.columns, "column")
            raise ValueError(f"{name} has {have}, but the tagger was trained on {need} besides the tag")
        found = zip(block, tagger.apply(block), strict=True)
        rows = ("".join(f"{between.join((*token, tag))}\n" for token, tag in zip(*pair, strict=True)) for pair in found)
        yield "\n".join(rows) + "\n", count
        done, block, count = done + count, [], 0
    if not done:
        raise ValueError(f"{name} has no tokens; give at least one sentence")
