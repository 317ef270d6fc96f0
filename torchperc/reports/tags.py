"""The report of a tagger on a file: how many tags are right, of which kind, and what the others were taken for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import torch

from torchperc import plots
from torchperc.reports.page import Block, Code, Picture, Section, Table, Text
from torchperc.reports.report import Report
from torchperc.reports.sections import versions
from torchperc.reports.text import percent, plural
from torchperc.sequences.evaluation import Confusion, Counts, Entities, Evaluation, Example, PerKind, Scores

_DRAWN = 14  # tags in the confusion matrix
_LISTED = 200  # tags in the table


def lines(found: Evaluation) -> Iterator[str]:
    """The figures of an evaluation, a line each; ``accuracy`` first.

    Example:
        >>> from torchperc.sequences import evaluate
        >>> print(*lines(evaluate([["a", "b"], ["a"]], [["a", "a"], ["a"]])), sep="\\n")
        accuracy 66.67 % (2 of 3 tokens)
        sentences without an error 50.00 % (1 of 2)
    """
    yield f"accuracy {_ratio(found.correct, found.tokens, 'tokens')}"
    if found.known is not None and found.unknown is not None:
        yield f"known words {_ratio(*found.known)}"
        if found.unknown[1]:
            yield f"unknown words {_ratio(*found.unknown)}"
    yield f"sentences without an error {_ratio(found.right_sentences, found.sentences)}"
    if found.entities is not None:
        all_ = found.entities.micro
        figures = ", ".join(f"{name} {percent(value, '.2f')}" for name, value in _figures(all_))
        counted = f"{all_.correct:,} correct, {all_.predicted:,} predicted, {all_.true:,} true"
        yield f"entities ({found.entities.scheme}) {figures} ({counted})"
        yield from found.entities.notes()
    if found.strange:
        yield _strange(found)


def _ratio(part: int, of: int, what: str = "") -> str:
    return f"{percent(part / of if of else 0, '.2f')} ({part:,} of {of:,}{f' {what}' if what else ''})"


def _figures(scores: Counts | Scores) -> tuple[tuple[str, float], ...]:
    return ("precision", scores.precision), ("recall", scores.recall), ("F1", scores.f1)


def _strange(found: Evaluation) -> str:
    some = ", ".join(repr(tag) for tag in list(found.strange)[:5]) + (", …" if len(found.strange) > 5 else "")
    tokens = sum(found.strange.values())
    return f"{plural(tokens, 'token')} whose tag did not occur in training count{'s' * (tokens == 1)} as wrong: {some}"


def report_tags(title: str, found: Evaluation, about: Sequence[tuple[str, str]] = (), templates: str = "") -> Report:
    """The page of an evaluation.

    Args:
        title: of the page.
        found: what :func:`torchperc.sequences.evaluate` returned.
        about: what else is to be said of the tagger, as name and value.
        templates: of the tagger's features.

    Example:
        >>> from torchperc.sequences import evaluate
        >>> report = report_tags("two tags", evaluate([["a", "b"]], [["a", "a"]]))
        >>> [section.title for section in report.sections]
        ['Accuracy', 'Confusion', 'Most frequent errors', 'Tags', 'Versions']
    """
    first = next(lines(found))
    parts = [_accuracy(found), *_entities(found.entities), *_errors(found), _per_tag(found.per_tag)]
    if about:
        shown: list[Block] = [Table(("what", "value"), about)]
        shown += [Text("Its templates:"), Code(templates)] if templates else []
        parts.append(Section("The tagger", tuple(shown)))
    return Report(title, f"{first[0].upper()}{first[1:]}.", (*parts, versions()))


def _accuracy(found: Evaluation) -> Section:
    rows = [("all tokens", *_row(found.correct, found.tokens))]
    if found.known is not None and found.unknown is not None:
        rows.append(("words known from training", *_row(*found.known)))
        if found.unknown[1]:
            rows.append(("unknown words", *_row(*found.unknown)))
    rows.append(("sentences without an error", *_row(found.right_sentences, found.sentences)))
    notes = [Text(f"{_strange(found)}.")] if found.strange else []
    return Section("Accuracy", (Table(("of", "accuracy", "correct", "all"), rows), *notes))


def _row(part: int, of: int) -> tuple[str, str, str]:
    return percent(part / of if of else 0, ".2f"), f"{part:,}", f"{of:,}"


def _entities(found: Entities | None) -> list[Section]:
    if found is None:
        return []
    rows = [(name, *_scores(each), f"{each.true:,}", f"{each.predicted:,}") for name, each in found.counts.items()]
    rows.append(("all (micro)", *_scores(found.micro), f"{found.micro.true:,}", f"{found.micro.predicted:,}"))
    rows += [
        (f"mean ({name})", *_scores(each), "", "")
        for name, each in (("macro", found.macro), ("weighted", found.weighted))
    ]
    heads = ("type", "precision", "recall", "F1", "true", "predicted")
    said = f"The tags are {found.scheme}. An entity is correct if its type, its first and its last token are."
    notes = [Text(f"{note}.") for note in found.notes()]
    return [Section("Entities", (Text(said), Table(heads, rows), *notes))]


def _scores(scores: Counts | Scores) -> tuple[str, ...]:
    return tuple(percent(value, ".2f") for _, value in _figures(scores))


def _per_tag(found: PerKind) -> Section:
    there = ((tag, each) for tag, each in found.counts.items() if each.true or each.predicted)
    order = sorted(there, key=lambda each: (-each[1].true, each[0]))
    rows = [(tag, *_scores(each), f"{each.true:,}", f"{each.predicted:,}") for tag, each in order[:_LISTED]]
    left = [Text(f"The {len(order) - _LISTED:,} rarest tags are not listed.")] if len(order) > _LISTED else []
    return Section("Tags", (Table(("tag", "precision", "recall", "F1", "true", "predicted"), rows), *left))


def _errors(found: Evaluation) -> list[Section]:
    if not found.worst:
        return [Section("Confusion", (Text("No tag is wrong."),))]
    return [_confusion(found), _worst(found.worst)]


def _confusion(found: Evaluation) -> Section:
    """The confusion matrix of the tags that are most often involved in errors."""
    wrong = found.true != found.predicted
    size = len(found.tags)
    involved = sum(np.bincount(side[wrong], found.count[wrong], size) for side in (found.true, found.predicted))
    chosen = np.sort(np.argsort(-np.asarray(involved), kind="stable")[:_DRAWN])
    chosen = chosen[np.asarray(involved)[chosen] > 0]
    place = np.full(size, -1)
    place[chosen] = np.arange(len(chosen))
    both = (place[found.true] >= 0) & (place[found.predicted] >= 0)
    matrix = np.zeros((len(chosen), len(chosen)), np.int64)
    matrix[place[found.true[both]], place[found.predicted[both]]] = found.count[both]
    names = [found.tags[k] for k in chosen]
    which = "All tags with errors" if len(chosen) < _DRAWN else f"The {len(chosen)} tags with most errors"
    shown = int(found.count[both & wrong].sum())
    errors = f"{shown:,} of {int(found.count[wrong].sum()):,} errors"
    text = f"{which}: {errors}. Rows are true tags, columns are predicted tags."
    display = plots.ConfusionDisplay(torch.from_numpy(matrix), names).plot()
    display.ax_.set_title("")  # which would count the drawn tags only
    return Section(
        "Confusion", (Picture.of(display.figure_, f"The confusion matrix of {plural(len(chosen), 'tag')}.", text),)
    )


def _worst(found: Sequence[Confusion]) -> Section:
    rows = [
        (each.true, each.predicted, f"{each.tokens:,}", ", ".join(f"{word} ({count})" for word, count in each.words))
        for each in found
    ]
    parts: list[Block] = [Table(("true", "predicted", "count", "words"), rows)]
    examples = [
        (each.true, each.predicted, f"{example.sentence + 1:,}", _shown(example))
        for each in found[:10]
        for example in each.examples[:2]
    ]
    if examples:
        parts += [
            Text("Examples, with the word in brackets:"),
            Table(("true", "predicted", "sentence", "text"), examples),
        ]
    return Section("Most frequent errors", tuple(parts))


def _shown(example: Example) -> str:
    at = example.place - example.first
    words = [f"[{word}]" if k == at else word for k, word in enumerate(example.words)]
    return f"{'… ' if example.first else ''}{' '.join(words)}"
