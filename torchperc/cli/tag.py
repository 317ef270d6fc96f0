"""``torchperc tag``: learn to tag the tokens of sentences from a file, evaluate on another, tag new text."""

from __future__ import annotations

import contextlib
import itertools
import shlex
import sys
from pathlib import Path
from typing import Any

import torchperc as tp
from torchperc._checks import Option, ParameterError
from torchperc._files import atomic_path
from torchperc.cli.output import output_file, say
from torchperc.reports.text import percent, plural, visible


def fit(file: str, dev: str | None = None, out: str | None = None, overwrite: bool = False, **options: Any) -> None:
    """Learn from a file of tokens and tags.

    A token per line, columns between blanks or tabs, blank lines between sentences; or CoNLL-U or word/TAG text.
    Columns before that of the tags are features, others are ignored.
    """
    layout = {name: options.pop(name) for name in ("column", "format", "separator") if name in options}
    stem = Path(file).name.split(".")[0] or "tagger"
    numbered = (Path("runs", f"{stem}{'' if n == 1 else f'-{n}'}.safetensors") for n in itertools.count(1))
    target = next(path for path in numbered if not path.exists()) if out is None else output_file(out)
    if target.exists() and not overwrite:
        raise ParameterError(Option("out", out), " exists already; choose another, or use ", Option("overwrite", True))
    if "templates" in options:
        options["templates"] = tp.sequences.Templates.read(options["templates"])
    sentences, place, _ = read(file, -1, **layout)
    held = None if dev is None else read(dev, place, **layout)[0]
    names = [str(number + 1) for number in range(len(sentences[0][0]))]
    counts = f"{plural(len(sentences), 'sentence')}, {plural(sum(map(len, sentences)), 'token')}"
    ignored = f"; ignored: {', '.join(names[place + 1 :])}" if place + 1 < len(names) else ""
    features = f"features of column{'s' * (place > 1)} {', '.join(names[:place])}{ignored}"
    say(f"{file}: {counts}; tags in column {place + 1}, {features}")
    if len(sentences) == 1 and len(sentences[0]) > 200:
        say("Note: all tokens are one sentence; sentences are separated by empty lines.")
    last = "" if held is None else "  dev accuracy"
    print(f"epoch  wrong sentences  wrong tokens  training accuracy     time{last}", flush=True)
    tagger = tp.sequences.Tagger.fit(sentences, place, dev=held, watch=_show, **options)
    target.parent.mkdir(parents=True, exist_ok=True)
    tagger.save(target)
    named, ending = shlex.quote(str(target)), "txt" if tagger.columns == 1 else "conll"
    say(f"{tagger!r} is in {target}, {target.stat().st_size:,} bytes. Next steps:")
    say(f"  evaluate it        torchperc tag eval {named} other{Path(file).suffix}")
    say(f"  tag new text       torchperc tag apply {named} new.{ending}")


def _show(epoch: Any) -> None:
    """Print a row of an epoch."""
    counts = f"{epoch.epoch:5}  {epoch.wrong_sentences:15,}  {epoch.wrong_tokens:12,}"
    dev = "" if epoch.dev is None else f"  {percent(epoch.dev, '.2f'):>12}"
    print(f"{counts}  {percent(epoch.accuracy, '.2f'):>17}  {epoch.seconds:5.2f} s{dev}", flush=True)


def evaluate(model: str, file: str, **layout: Any) -> None:
    """Compare a tagger with the tags of a file.

    Prints accuracy, known and unknown words, entities, confusions. Exit code 2 if the file has tags that the tagger
    does not know, which count as wrong.
    """
    tagger = tp.sequences.Tagger.load(model)
    sentences, place, how = read(file, tagger.columns, **layout)
    print(*map(visible, str(tagger.evaluate(sentences, place)).splitlines()), sep="\n")
    if unseen := {token[place] for sentence in sentences for token in sentence} - set(tagger.tags):
        number = tp.sequences.files.line_of(file, lambda token: token[place] in unseen, **how)
        some = ", ".join(map(repr, sorted(unseen)[:5]))
        raise ValueError(f"{file}, line {number}: tags unknown to the tagger count as wrong: {some}")


def read(
    file: str, default: int, column: str | None = None, format: str | None = None, separator: str | None = None
) -> tuple[list[Any], int, dict[str, Any]]:
    """Return sentences, the number of the tags' column from 0, and how the file was read."""
    files = tp.sequences.files
    how: dict[str, Any] = {"format": format or files.format_of(file), "separator": separator}
    if how["format"] == "conllu":
        names = dict(zip(map(str, range(1, 11)), files.CONLLU, strict=True))
        how["column"] = names.get(column or "4", column)
        return files.read(file, **how), 1, how
    sentences = files.read(file, **how)
    width = len(sentences[0][0])
    if column is None and (default >= width or width < 2):
        found = f"{file}, line {files.line_of(file, lambda token: True, **how)}: found {plural(width, 'column')}"
        raise ValueError(f"{found} and none of tags; a token needs a word and a tag")
    if column is not None and (not column.isdecimal() or not 2 <= int(column) <= width):
        why = f" is not a column of tags in {file}, which has {plural(width, 'column')}, the first of them the words"
        raise ParameterError(Option("column", column), why)
    return sentences, default % width if column is None else int(column) - 1, how


def apply(model: str, file: str = "-", out: str | None = None, **text: Any) -> None:
    """Tag new text.

    A sentence per line, words between blanks; or tokens with the columns of training. Writes a token and its tag per
    line; of CoNLL-U only form, upos and the new tag.
    """
    files, target = tp.sequences.files, None if out is None else output_file(out)
    for given, what in ((file, "file to be tagged"), (model, "tagger")):
        if target is not None and target.exists() and Path(given).exists() and target.samefile(given):
            raise ParameterError(Option("out", target), f" is the {what}; choose another")
    tagger = tp.sequences.Tagger.load(model)
    source: Any = sys.stdin.buffer if file == "-" else file
    kind = text.get("format", "text" if tagger.columns == 1 else "conll")
    if "format" not in text and Path(file).is_file():
        kind = files.format_of(file, plain=tagger.columns == 1)
        if kind != "text" and Path(file).suffix == ".txt":
            say(f"{file} is read as {kind}; use --format text for plain text", sys.stderr)
    sentences = files.iter_sentences(source, kind, separator=text.get("separator"))
    first, tokens = next(sentences, []), 0
    if not first or len(first[0]) < tagger.columns:
        found = f"{files.name_of(source)} has {plural(len(first[0]), 'column') if first else 'no tokens'}"
        raise ValueError(f"{found}; the tagger was trained on {plural(tagger.columns, 'column')} besides the tag")
    sentences = itertools.chain([first], sentences)
    with contextlib.ExitStack() as stack:
        part = None if target is None else stack.enter_context(atomic_path(target))
        stream = sys.stdout.buffer if part is None else stack.enter_context(part.open("wb"))
        while block := list(itertools.islice(sentences, 1000)):
            for sentence, tags in zip(block, tagger.apply(block), strict=True):
                rows = (
                    text.get("separator", "\t").join((*token, tag)) for token, tag in zip(sentence, tags, strict=True)
                )
                stream.write(("\n".join(rows) + "\n\n").encode())
                tokens += len(sentence)
            stream.flush()  # what comes through a pipe is passed on block by block
    if target is not None:
        say(f"{plural(tokens, 'tag')} in {target}")
