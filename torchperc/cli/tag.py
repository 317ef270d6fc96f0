"""``torchperc tag``: learn to tag the tokens of sentences from a file, evaluate on another, tag new text."""

from __future__ import annotations

import argparse
import contextlib
import itertools
import shlex
import sys
from pathlib import Path
from typing import Any

from torchperc._checks import Option, ParameterError
from torchperc._files import atomic_path
from torchperc.cli import inputs
from torchperc.reports.text import percent, plural, visible

_SENTENCES = 1000  # of a block that is tagged at once
_ACTIONS: dict[str, tuple[str, dict[str, Any]]] = {
    "fit": (
        "Learns from a file of tokens and tags: a token per line, columns between blanks or tabs, blank lines between "
        "sentences; or CoNLL-U or word/TAG text. Columns before that of the tags are features, others are ignored.",
        {
            "file": {"metavar": "FILE", "help": "tokens with tags"},
            "--dev": {"metavar": "FILE", "help": "evaluate on this file after each epoch"},
            "--out": {"metavar": "MODEL", "help": "file of the tagger (default: runs/ and the name of the file)"},
            "--overwrite": {"action": "store_true", "help": "replace the file of the tagger if there is one"},
            "--epochs": {"type": int, "default": 5, "metavar": "N", "help": "passes over the file (default: 5)"},
            "--templates": {"metavar": "FILE", "help": "feature templates in the syntax of CRF++"},
            "--seed": {"type": int, "default": 0, "help": "random seed for shuffling sentences (default: 0)"},
        },
    ),
    "eval": (
        "Compares a tagger with the tags of a file: accuracy, known and unknown words, entities, confusions. Exit code "
        "2 if the file has tags that the tagger does not know, which count as wrong.",
        {"model": {"metavar": "MODEL"}, "file": {"metavar": "FILE", "help": "tokens with tags"}},
    ),
    "apply": (
        "Tags new text: a sentence per line, words between blanks; or tokens with the columns of training. Writes a "
        "token and its tag per line; of CoNLL-U only form, upos and the new tag.",
        {
            "model": {"metavar": "MODEL", "help": "a file written by tag fit"},
            "file": {"metavar": "FILE", "nargs": "?", "default": "-", "help": "text (default: standard input)"},
            "-o --out": {"metavar": "OUT", "help": "write to this file (default: standard output)"},
        },
    ),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the command and its three actions."""
    parser.description = "Tags for the tokens of sentences, learned by the perceptron rule on whole sentences."
    actions = parser.add_subparsers(dest="action", required=True, metavar="fit | eval | apply")
    for name, (text, arguments) in _ACTIONS.items():
        action = actions.add_parser(name, help=text.split(":")[0].lower(), description=text)
        for names, options in arguments.items():
            action.add_argument(*names.split(), **options)
        if name != "apply":
            action.add_argument("--column", help="column of the tags by number from 1, in CoNLL-U also by name")
        formats = ("conll", "conllu", "slash", *(["text"] if name == "apply" else []))
        action.add_argument("--format", choices=formats, help="of the file (default: by its name and first lines)")
        action.add_argument("--separator", help="between columns, \\t for a tab (default: runs of blanks and tabs)")


def run(arguments: argparse.Namespace) -> None:
    """Learn, evaluate or tag."""
    inputs.one_line_warnings()
    if arguments.separator is not None:
        arguments.separator = arguments.separator.replace("\\t", "\t")  # a shell has no short way to write a tab
    {"fit": _fit, "eval": _evaluate, "apply": _apply}[arguments.action](arguments)


def _read(arguments: argparse.Namespace, file: str, default: int) -> tuple[list[Any], int, dict[str, Any]]:
    """Return sentences, the number of the tags' column from 0 (``default`` if none is given), how it was read."""
    from torchperc.sequences import files

    how: dict[str, Any] = {"separator": arguments.separator, "format": arguments.format or files.format_of(file)}
    named = arguments.column
    if how["format"] == "conllu":
        number = int(named) if named and named.isdecimal() else 0
        how["column"] = files.CONLLU[number - 1] if 1 <= number <= 10 else named or "upos"
        return files.read(file, **how), 1, how
    sentences = files.read(file, **how)
    width = len(sentences[0][0])
    if named is None and (default >= width or width < 2):
        where = f"{file}, line {files.line_of(file, lambda token: True, **how)}"
        raise ValueError(f"{where}: found {plural(width, 'column')} and none of tags; a token needs a word and a tag")
    if named is None:
        return sentences, default % width, how
    if not named.isdecimal() or not 2 <= int(named) <= width:
        why = f" is not a column of tags in {file}, which has {plural(width, 'column')}, the first of them the words"
        raise ParameterError(Option("column", named), why)
    return sentences, int(named) - 1, how


def _fit(arguments: argparse.Namespace) -> None:
    from torchperc.sequences.features import Templates
    from torchperc.sequences.tagger import Tagger

    out = None if arguments.out is None else inputs.output_file(arguments.out)
    if out is not None and out.exists() and not arguments.overwrite:
        raise ParameterError(Option("out", out), " exists already; choose another, or use ", Option("overwrite", True))
    templates = arguments.templates and Templates.read(arguments.templates)
    sentences, column, _ = _read(arguments, arguments.file, -1)
    dev = None if arguments.dev is None else _read(arguments, arguments.dev, column)[0]
    names = [str(number + 1) for number in range(len(sentences[0][0]))]
    features = f"features of column{'s' * (column > 1)} {', '.join(names[:column])}"
    features += f"; ignored: {', '.join(names[column + 1 :])}" if column + 1 < len(names) else ""
    counts = f"{plural(len(sentences), 'sentence')}, {plural(sum(map(len, sentences)), 'token')}"
    inputs.say(f"{arguments.file}: {counts}; tags in column {column + 1}, {features}")
    if len(sentences) == 1 and len(sentences[0]) > 200:
        inputs.say("Note: all tokens are one sentence; sentences are separated by empty lines.")
    held = "  dev accuracy" if dev is not None else ""
    print(f"epoch  wrong sentences  wrong tokens  training accuracy     time{held}", flush=True)
    options: dict[str, Any] = {"dev": dev, "templates": templates, "watch": _show}
    tagger = Tagger.fit(sentences, column, epochs=arguments.epochs, seed=arguments.seed, **options)
    if out is None:
        stem = Path(arguments.file).name.split(".")[0] or "tagger"
        numbered = (Path("runs", f"{stem}{'' if n == 1 else f'-{n}'}.safetensors") for n in itertools.count(1))
        out = next(path for path in numbered if not path.exists())
        out.parent.mkdir(parents=True, exist_ok=True)
    tagger.save(out)
    inputs.say(f"{tagger!r} is in {out}, {out.stat().st_size:,} bytes. Next steps:")
    named, ending = shlex.quote(str(out)), "txt" if tagger.columns == 1 else "conll"
    inputs.say(f"  evaluate it        torchperc tag eval {named} other{Path(arguments.file).suffix}")
    inputs.say(f"  tag new text       torchperc tag apply {named} new.{ending}")


def _show(epoch: Any) -> None:
    """Print a row of an epoch."""
    counts = f"{epoch.epoch:5}  {epoch.wrong_sentences:15,}  {epoch.wrong_tokens:12,}"
    dev = "" if epoch.dev is None else f"  {percent(epoch.dev, '.2f'):>12}"
    print(f"{counts}  {percent(epoch.accuracy, '.2f'):>17}  {epoch.seconds:5.2f} s{dev}", flush=True)


def _evaluate(arguments: argparse.Namespace) -> None:
    from torchperc.sequences import files
    from torchperc.sequences.tagger import Tagger

    tagger = Tagger.load(arguments.model)
    sentences, column, how = _read(arguments, arguments.file, tagger.columns)
    print(*map(visible, str(tagger.evaluate(sentences, column)).splitlines()), sep="\n")
    if unseen := {token[column] for sentence in sentences for token in sentence} - set(tagger.tags):
        number = files.line_of(arguments.file, lambda token: token[column] in unseen, **how)
        some = ", ".join(map(repr, sorted(unseen)[:5]))
        raise ValueError(f"{arguments.file}, line {number}: tags unknown to the tagger count as wrong: {some}")


def _apply(arguments: argparse.Namespace) -> None:
    from torchperc.sequences import files
    from torchperc.sequences.tagger import Tagger

    out = None if arguments.out is None else inputs.output_file(arguments.out)
    for read, what in ((arguments.file, "file to be tagged"), (arguments.model, "tagger")):
        if out is not None and out.exists() and Path(read).exists() and out.samefile(read):
            raise ParameterError(Option("out", out), f" is the {what}; choose another")
    tagger = Tagger.load(arguments.model)
    source: Any = sys.stdin.buffer if arguments.file == "-" else arguments.file
    kind = arguments.format or ("text" if tagger.columns == 1 else "conll")
    if arguments.format is None and Path(arguments.file).is_file():
        kind = files.format_of(arguments.file, plain=tagger.columns == 1)
        if kind != "text" and Path(arguments.file).suffix == ".txt":
            print(visible(f"{arguments.file} is read as {kind}; use --format text for plain text"), file=sys.stderr)
    sentences = files.iter_sentences(source, kind, separator=arguments.separator)
    first, between, tokens = next(sentences, []), arguments.separator or "\t", 0
    if not first or len(first[0]) < tagger.columns:
        found = f"{files.name_of(source)} has {plural(len(first[0]), 'column') if first else 'no tokens'}"
        raise ValueError(f"{found}; the tagger was trained on {plural(tagger.columns, 'column')} besides the tag")
    sentences = itertools.chain([first], sentences)
    with contextlib.ExitStack() as stack:
        part = None if out is None else stack.enter_context(atomic_path(out))
        file = sys.stdout.buffer if part is None else stack.enter_context(part.open("wb"))
        while block := list(itertools.islice(sentences, _SENTENCES)):
            for sentence, tags in zip(block, tagger.apply(block), strict=True):
                rows = (between.join((*token, tag)) for token, tag in zip(sentence, tags, strict=True))
                file.write(("\n".join(rows) + "\n\n").encode())
                tokens += len(sentence)
            file.flush()  # what comes through a pipe is passed on block by block
    if out is not None:
        inputs.say(f"{plural(tokens, 'tag')} in {out}")
