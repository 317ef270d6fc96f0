"""A report: title, outcome and sections, as a page or as a card."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from torch import Tensor

from torchperc._checks import Data, check_number, is_sparse
from torchperc._files import write_atomically
from torchperc.nn.heads import Head
from torchperc.reports.budget import ENTRIES
from torchperc.reports.page import Code, Section, Text, report_card, report_page
from torchperc.reports.sections import sections, versions
from torchperc.reports.subject import Subject
from torchperc.rules.run import RuleResult


@dataclass(frozen=True)
class Report:
    """What was learned, from what, with proof, curves and pictures: one HTML page, or a model card in Markdown.

    Example:
        >>> import torchperc as tp
        >>> X, y = tp.data.gate("AND")
        >>> report = Report.of_result(tp.RuleTrainer().fit(tp.Perceptron(2), X, y), X, y, title="AND")
        >>> report.lead[:40]
        'SEPARATED after 9 epochs and 18 mistakes'
        >>> "the bound is 51" in report.html(), "the bound is 51" in report.card()
        (True, True)
    """

    title: str
    lead: str
    sections: tuple[Section, ...]

    @classmethod
    def of_result(cls, result: RuleResult, X: Data, y: Data, **options: Any) -> Report:
        """Report a run by rule: :func:`report` for results alone.

        Example:
            >>> import torchperc as tp
            >>> Report.of_result(tp.Perceptron(2), *tp.data.gate("AND"))
            Traceback (most recent call last):
            TypeError: result must be a RuleResult, found Perceptron; use report() for nets
        """
        if not isinstance(result, RuleResult):
            raise TypeError(f"result must be a RuleResult, found {type(result).__name__}; use report() for nets")
        return report(result, X, y, **options)

    @classmethod
    def of_subject(cls, title: str, subject: Subject) -> Report:
        """Report a model of which everything that is known has been put together."""
        return cls(title, subject.lead(), tuple(sections(subject)))

    @classmethod
    def joined(cls, title: str, lead: str, reports: Sequence[Report], first: Sequence[Section] = ()) -> Report:
        """Several reports on one page, each a section, after sections that are about all of them.

        Example:
            >>> one = Report("a", "", (Section("Data"),))
            >>> [(section.title, section.level) for section in Report.joined("both", "", [one, one]).sections]
            [('a', 2), ('Data', 3), ('a', 2), ('Data', 3), ('Versions', 2)]
        """
        joined = list(first)
        for one in reports:
            joined.append(Section(one.title, (Text(one.lead),) if one.lead else ()))
            joined += [replace(section, level=3) for section in one.sections if section.title != "Versions"]
        return cls(title, lead, (*joined, versions()))

    def html(self) -> str:
        """The page: one file, no network. The same run gives the same page."""
        return report_page(self.title, self.sections, self.lead)

    def card(self) -> str:
        """The same content in Markdown, captions in place of pictures."""
        return report_card(self.title, self.sections, self.lead)

    def save(self, path: str | Path, card: str | Path | None = None) -> None:
        """Write the page, and the card if a file is named for it, each atomically."""
        write_atomically(Path(path), self.html().encode())
        if card is not None:
            write_atomically(Path(card), self.card().encode())


def report(
    model: Any,
    X: Data,
    y: Data,
    *,
    title: str = "A perceptron",
    held_out: Mapping[str, tuple[Data, Data]] | None = None,
    head: Head | None = None,
    names: Sequence[str] | None = None,
    labels: Sequence[object] | None = None,
    margin: float = 0.0,
    config: str | None = None,
) -> Report:
    """Report a trained model: what it learned, data, verdict with proof, bound, curves, boundary, confusion, versions.

    Args:
        model: a ``RuleResult``, or a net.
        X: the training samples.
        y: labels −1/+1, or class indices.
        title: of the page.
        held_out: other data by name, such as ``{"test": (X, y)}``.
        head: decides; a net's own by default, else a perceptron's.
        names: of the features.
        labels: names of the classes, in the order −1, +1 or 0 … K−1.
        margin: the margin y·s that a run by rule required, if its trainer had one.
        config: how the run is made again, as text that is shown as it is.

    Shape:
        X (N, d), y (N,).

    Example:
        >>> import torchperc as tp
        >>> X, y = tp.data.gate("AND")
        >>> report(tp.Perceptron(2), X, y).lead
        'Training error 75 % (3 of 4).'
    """
    given = {"training": (X, y), **(held_out or {})}
    parts = {name: (_shown(A), target) for name, (A, target) in given.items()}
    again = () if config is None else (Code(config),)
    margin = check_number("margin", margin, at_least=0)
    subject = Subject(model, parts, head=head, names=names, labels=labels, margin=margin, again=again)
    return Report.of_subject(str(title), subject)


def _shown(X: Data) -> Data:
    """Sparse samples as a page shows them: dense if they are so few that a proof is to be found."""
    small = is_sparse(X) and math.prod(X.shape) <= ENTRIES
    return (X.to_dense() if isinstance(X, Tensor) else X.toarray()) if small else X
