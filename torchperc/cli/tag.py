"""``torchperc tag``: learn to tag the tokens of sentences from a file, evaluate on another, tag new text."""

from __future__ import annotations

import argparse
import itertools
import re
import shlex
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import IO, TYPE_CHECKING

from torchperc.cli import inputs
from torchperc.reports.text import percent, plural, visible

if TYPE_CHECKING:
    from torchperc._checks import Option
    from torchperc.sequences.corpus import Corpus
    from torchperc.sequences.tagger import Tagger, TaggerEpoch
    from torchperc.sequences.templates import Templates

OPTIONS = {"max_epochs": "epochs", "tag_column": "column", "n_jobs": "jobs", "buckets": "hash"}
_FORMATS = ("conll", "conllu", "slash", "parquet")
_MADE = ("cutoff", "decode", "beam_width", "select")  # what a new tagger is made with


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
        "between sentences; or it is CoNLL-U, word/TAG text or Parquet. Prints a row per epoch and writes the tagger "
        "to one file."
    )
    parser.add_argument("file", metavar="FILE", help="tokens with tags")
    parser.add_argument("--dev", metavar="FILE", help="evaluate on this file after each epoch")
    out = "file of the tagger (default: runs/ and the name of the file, numbered if taken)"
    parser.add_argument("--out", metavar="MODEL", help=out)
    parser.add_argument("--overwrite", action="store_true", help="replace the file of the tagger if there is one")
    parser.add_argument(
        "--epochs", type=int, default=5, metavar="N", help="passes over the file (default: %(default)s)"
    )
    _add_reading(parser)
    templates = "feature templates in the syntax of CRF++ (default: words, affixes, shapes and neighbours)"
    parser.add_argument("--templates", metavar="FILE", help=templates)
    bits = "hash features to 2^BITS numbers instead of keeping them in a dictionary"
    parser.add_argument("--hash", type=int, metavar="BITS", help=bits)
    cutoff = "ignore features that occur fewer than N times (default: 1)"
    parser.add_argument("--cutoff", type=int, metavar="N", help=cutoff)
    decode = "how the best tags are found (default: viterbi)"
    parser.add_argument("--decode", choices=("viterbi", "beam", "greedy"), help=decode)
    width = "tags kept per token with --decode beam (default: 8)"
    parser.add_argument("--beam-width", type=int, metavar="N", help=width)
    parser.add_argument("--select", choices=("averaged", "last"), help="which weights are kept (default: averaged)")
    seed = "random seed for shuffling sentences (default: %(default)s)"
    parser.add_argument("--seed", type=int, default=0, help=seed)
    again = "go on learning from this tagger, with its options; new features and tags are added"
    parser.add_argument("--continue", dest="start", metavar="MODEL", help=again)


def _add_eval(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Tags the tokens of a file and compares with its tags: accuracy, on words known and unknown from training, and "
        "entities if the tags are B-, I-, O or similar."
    )
    parser.add_argument("model", metavar="MODEL", help="a file written by tag fit")
    parser.add_argument("file", metavar="FILE", help="tokens with tags")
    parser.add_argument("--report", metavar="PAGE", help="write an HTML page with all figures, confusions and examples")
    strict = "count only well-formed entities, as seqeval's strict mode (default: as conlleval)"
    parser.add_argument("--strict", action="store_true", help=strict)
    _add_reading(parser)
    _add_jobs(parser)


def _add_apply(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Tags text: plain text, a sentence or several per line, or a file of tokens with the columns of training. "
        "Writes a token and its tag per line and a blank line between sentences; to files of tokens a column is added, "
        "of CoNLL-U only form, upos and the new tag are written."
    )
    parser.add_argument("model", metavar="MODEL", help="a file written by tag fit")
    parser.add_argument("file", metavar="FILE", nargs="?", default="-", help="text or tokens (default: standard input)")
    parser.add_argument("-o", "--out", metavar="OUT", help="write to this file (default: standard output)")
    kinds = "format of the file (default: by its name and first lines; plain text if they say nothing)"
    parser.add_argument("--format", choices=("text", *_FORMATS), help=kinds)
    _add_text(parser, "runs of blanks and tabs are read, a tab is written")
    tokenized = "the text has a sentence per line and blanks between its tokens; nothing else is split"
    parser.add_argument("--tokenized", action="store_true", help=tokenized)
    _add_jobs(parser)


def _add_reading(parser: argparse.ArgumentParser) -> None:
    default = "as in training; for a new tagger the last, in CoNLL-U upos"
    parser.add_argument("--column", help=f"column of the tags, by name or by number from 1 (default: {default})")
    formats = "format of the file (default: by its name and first lines)"
    parser.add_argument("--format", choices=_FORMATS, help=formats)
    _add_text(parser, "runs of blanks and tabs")


def _add_text(parser: argparse.ArgumentParser, default: str) -> None:
    separator = f"what stands between columns, \\t for a tab (default: {default})"
    parser.add_argument("--separator", type=_separator, help=separator)
    parser.add_argument("--encoding", default="utf-8", help="encoding of the file (default: %(default)s)")


def _separator(given: str) -> str:
    return given.replace("\\t", "\t")  # a shell has no short way to write a tab


def _add_jobs(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--jobs", type=int, metavar="N", help="number of threads (default: one per core)")


def run(arguments: argparse.Namespace) -> None:
    """Learn, evaluate or tag."""
    from torchperc._checks import ParameterError

    inputs.one_line_warnings()
    try:
        {"fit": _fit, "eval": _evaluate, "apply": _apply}[arguments.action](arguments)
    except ParameterError as error:
        raise ParameterError(*map(_shown, error.args)) from None


def _shown(part: str | Option) -> str | Option:
    """A separator as it is written in a shell."""
    from torchperc._checks import Option

    tab = isinstance(part, Option) and part.name == "separator" and part.value == "\t"
    return Option("separator", r"\t") if tab else part


# --- fit ---


def _fit(arguments: argparse.Namespace) -> None:
    from torchperc._checks import Option, ParameterError
    from torchperc.sequences.tagger import Tagger
    from torchperc.sequences.templates import Templates

    out = _model_file(arguments)
    templates = None if arguments.templates is None else Templates.read(arguments.templates)
    if arguments.hash is not None and not 1 <= arguments.hash <= 31:
        raise ParameterError(Option("hash", arguments.hash), " must lie between 1 and 31")
    start = None if arguments.start is None else _continued(arguments, templates)
    decode = arguments.decode if start is None else start.decode
    if arguments.beam_width is not None and decode != "beam":
        raise ParameterError(Option("beam_width", arguments.beam_width), " is for ", Option("decode", "beam"))
    known = None if start is None else start.layout.tag
    corpus, column = _tagged(arguments, arguments.file, known)
    dev = None if arguments.dev is None else _tagged(arguments, arguments.dev, known)[0]
    options = {"dev": dev, "epochs": arguments.epochs, "seed": arguments.seed}
    read = partial(_say_read, arguments.file, corpus, column)
    with _progress(arguments.epochs, dev is not None, read) as watch:
        if start is not None:
            given = None if arguments.column is None else column
            tagger = start.fit_more(corpus, given, **options, watch=watch)
        else:
            made = {name: value for name in _MADE if (value := getattr(arguments, name)) is not None}
            made["buckets"] = None if arguments.hash is None else 2**arguments.hash
            tagger = Tagger.fit(corpus, column, templates=templates, **made, **options, watch=watch)
    if arguments.out is None:
        out = _free(out)
        out.parent.mkdir(parents=True, exist_ok=True)
    tagger.save(out)
    size = f"{plural(len(tagger.tags), 'tag')}, {plural(tagger.weights.used, 'feature')}"
    inputs.say(f"The tagger ({size}) is in {out}, {out.stat().st_size:,} bytes. Next steps:")
    named = shlex.quote(str(out))
    inputs.say(f"  evaluate it        torchperc tag eval {named} other{Path(arguments.file).suffix}")
    if len(tagger.layout.features) == 1:
        inputs.say(f"  tag new text       torchperc tag apply {named} new.txt")
    else:  # which plain text does not have
        inputs.say(f"  tag new tokens     torchperc tag apply {named} new.conll, with the feature columns of training")


def _say_read(file: str, corpus: Corpus, column: int | str) -> None:
    """What was read, and which columns are what."""
    names = [each.name or str(number) for number, each in enumerate(corpus.columns, 1)]
    tags = names.pop(column) if isinstance(column, int) else names.pop(names.index(column))
    words = f"tags in column {tags}, features of column{'s' * (len(names) > 1)} {', '.join(names)}"
    inputs.say(f"{file}: {plural(len(corpus), 'sentence')}, {plural(corpus.tokens, 'token')}; {words}")
    if len(corpus) == 1 and corpus.tokens > 200:
        inputs.say("Note: all tokens are one sentence; sentences are separated by empty lines.")


def _continued(arguments: argparse.Namespace, templates: Templates | None) -> Tagger:
    """The tagger to go on from, if the options of a new one are not in contradiction to it."""
    from torchperc._checks import Option, ParameterError

    tagger = _loaded(arguments.start, "name a file that tag fit wrote")
    known: dict[str, tuple[object, object]] = {
        "hash": (arguments.hash, None if tagger.buckets is None else tagger.buckets.bit_length() - 1),
        "templates": (templates and templates.text, tagger.templates.text),
        "cutoff": (arguments.cutoff, tagger.features.cutoff),
        "decode": (arguments.decode, tagger.decode),
        "select": (arguments.select, tagger.select),
    }
    if tagger.decode == "beam":
        known["beam_width"] = (arguments.beam_width, tagger.beam_width)
    for name, (given, own) in known.items():
        if given is not None and given != own:
            shown = getattr(arguments, name)
            raise ParameterError(
                Option(name, shown), f" is not what {arguments.start} was trained with; leave it out, or train anew"
            )
    return tagger


def _loaded(path: str, remedy: str) -> Tagger:
    """The tagger of a file; a file of another kind may be named in its place."""
    from torchperc.sequences.tagger import Tagger

    try:
        return Tagger.load(path)
    except ValueError:
        with suppress(OSError), Path(path).open("rb") as file:
            begin = file.read(9)
            if begin and begin[8:] != b"{":  # with which the description of a safetensors file begins
                raise ValueError(f"{path} is not a tagger; {remedy}") from None
        raise


def _model_file(arguments: argparse.Namespace) -> Path:
    from torchperc._checks import Option, ParameterError

    if arguments.out is None:
        stem = re.sub(r"[-_]*[*?\[\]]+", "", Path(arguments.file).name.split(".")[0]) or "tagger"
        return _free(Path("runs", f"{stem}.safetensors"))
    out = inputs.output_file(arguments.out)
    if out.exists() and not arguments.overwrite:
        raise ParameterError(Option("out", out), " exists already; choose another, or use ", Option("overwrite", True))
    return out


def _free(path: Path) -> Path:
    """The path, or the first numbered one that is free."""
    numbered = (path.with_stem(f"{path.stem}-{n}") for n in itertools.count(2))
    return next(each for each in itertools.chain([path], numbered) if not each.exists())


@contextmanager
def _progress(epochs: int, dev: bool, begin: Callable[[], None]) -> Iterator[Callable[[TaggerEpoch], None]]:
    """What was read and a row per epoch on standard output, and a bar on standard error if that is a terminal."""
    heads = [
        "epoch",
        "wrong sentences",
        "wrong tokens",
        "training accuracy",
        *(["dev accuracy"] if dev else []),
        "time",
    ]

    def show(epoch: TaggerEpoch) -> None:
        if epoch.epoch == 1:
            begin()
            print("  ".join(heads))
        cells = [str(epoch.epoch), f"{epoch.wrong_sentences:,}", f"{epoch.wrong_tokens:,}"]
        cells.append(percent(epoch.accuracy, ".2f"))
        cells += [] if epoch.dev is None else [percent(epoch.dev, ".2f")]
        cells.append(f"{epoch.seconds:.2f} s")
        print("  ".join(cell.rjust(len(head)) for cell, head in zip(cells, heads, strict=True)), flush=True)

    if not sys.stderr.isatty():
        yield show
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("epochs", total=epochs)

        def both(epoch: TaggerEpoch) -> None:
            show(epoch)
            progress.update(task, completed=epoch.epoch)

        yield both


# --- eval ---


def _evaluate(arguments: argparse.Namespace) -> None:
    from torchperc.reports.tags import lines

    page = None if arguments.report is None else inputs.output_file(arguments.report, "report")
    tagger = _loaded(arguments.model, "give MODEL first, then FILE")
    corpus, column = _tagged(arguments, arguments.file, tagger.layout.tag)
    given = None if arguments.column is None else column
    found = tagger.evaluate(corpus, given, strict=arguments.strict, n_jobs=arguments.jobs)
    for line in lines(found):
        inputs.say(line)
    if page is not None:
        from torchperc.reports.tags import report_tags

        title = f"{Path(arguments.model).stem} on {Path(arguments.file).name}"
        report_tags(title, found, tagger.about(), tagger.templates.text).save(page)
        inputs.say(f"report: {page}")


def _tagged(arguments: argparse.Namespace, file: str, known: str | None = None) -> tuple[Corpus, int | str]:
    """A file of tokens, and the column of the tags as Python counts it; ``known`` is its name in training."""
    from torchperc.sequences import formats

    how = {"separator": arguments.separator, "encoding": arguments.encoding}
    if (arguments.format or formats.format_of(file, arguments.encoding)) == "conllu":
        wanted = _conllu_column(arguments.column, known)
        return formats.read(file, "conllu", columns=["form", wanted], **how), -1
    corpus = formats.read(file, arguments.format, **how)
    return corpus, _column(arguments.column, corpus)


def _conllu_column(given: str | None, known: str | None) -> str:
    """The name of a column of CoNLL-U, by its name or number from 1; by default that of training, or upos."""
    from torchperc._checks import Option, ParameterError
    from torchperc.sequences.formats import CONLLU

    names = [name for name in CONLLU if name != "form"]
    if given is None:
        return known if known in names else "upos"
    numbered = {str(number): name for number, name in enumerate(CONLLU, 1)}
    name = numbered.get(given, given.lower())
    if name not in names:
        why = f" is not a column of tags in CoNLL-U; choose one of {', '.join(names)}, or its number from 1"
        raise ParameterError(Option("column", given), why)
    return name


def _column(given: str | None, corpus: Corpus) -> int | str:
    """A column by name or by position from 1."""
    from torchperc._checks import Option, ParameterError

    names = [column.name for column in corpus.columns]
    if given is None:
        return -1
    if given in names:
        return given
    if given.isdecimal() and 1 <= int(given) <= len(names):
        return int(given) - 1
    known = ", ".join(name for name in names if name)
    there = f"{plural(len(names), 'column')}{f': {known}' if known else ''}"
    raise ParameterError(Option("column", given), f" is not in {corpus.name}, which has {there}")


# --- apply ---


def _apply(arguments: argparse.Namespace) -> None:
    from torchperc._atomic import appearing
    from torchperc._checks import Option, ParameterError

    out = None if arguments.out is None else inputs.output_file(arguments.out)
    if out is not None and out.exists() and arguments.file != "-":
        for read, what in ((arguments.file, "file to be tagged"), (arguments.model, "tagger")):
            if Path(read).exists() and out.samefile(read):
                raise ParameterError(Option("out", out), f" is the {what}; choose another")
    tagger = _loaded(arguments.model, "give MODEL first, then FILE")
    source = _source(arguments.file)
    options = {name: getattr(arguments, name) for name in ("format", "separator", "encoding", "tokenized")}
    if arguments.format is None:
        options["format"], looked = tagger.format_of(source, arguments.encoding, tokenized=arguments.tokenized)
        if looked:
            said = f"{arguments.file} reads as {options['format']}; --format text takes it as plain text"
            print(visible(said), file=sys.stderr)
    pieces = tagger.tagged_lines(source, **options, n_jobs=arguments.jobs)
    if out is None:
        for piece in pieces:
            sys.stdout.buffer.write(piece.lines)
            sys.stdout.buffer.flush()  # what comes through a pipe is passed on at once
        return
    tokens = 0
    with appearing(out) as part, part.open("wb") as file:
        for piece in pieces:
            file.write(piece.lines)
            tokens += piece.tokens
    print(visible(f"{plural(tokens, 'tag')} in {out}"))


def _source(file: str) -> str | IO[bytes]:
    return sys.stdin.buffer if file == "-" else file
