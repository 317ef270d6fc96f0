"""What the five scripts share: a finding, how it is judged and shown, and the few steps that all of them take."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

import torchperc as tp

AGREES, WRONG, OPEN, MANGLED = "agrees", "wrong", "left open", "mangled"
WIDTH = 118
DOUBLE = torch.float64


@dataclass(frozen=True)
class Finding:
    """One statement of a note against what comes out when it is run.

    Args:
        about: the matter in a few words.
        says: what the note has, as a fact or a formula.
        found: what comes out.
        verdict: AGREES; WRONG, with what is right in ``found``; OPEN, if the note does not say and it matters;
            MANGLED, if the text taken off the page has lost a sign and the rest of the note shows which.
        figures: the measured figures by name.
    """

    about: str
    says: str
    found: str
    verdict: str
    figures: dict[str, Any] = field(default_factory=dict)


def judged(holds: bool, otherwise: str = WRONG) -> str:
    """AGREES if what the note says held in the run."""
    return AGREES if holds else otherwise


def show(title: str, checks: Iterable[Callable[[], Finding]]) -> dict[str, Finding]:
    """Run the checks of a note and print what they found; return the findings by the checks' names."""
    torch.set_num_threads(1)  # the data are tiny, and sums come out the same everywhere
    print(f"{title}\n{'=' * len(title)}")
    findings = {}
    for check in checks:
        findings[check.__name__] = finding = check()
        print(f"\n{finding.verdict.upper():<9}  {finding.about}")
        for label, text in (("note", finding.says), ("run", finding.found)):
            print(textwrap.fill(text, WIDTH, initial_indent=f"{label:>9}  ", subsequent_indent=" " * 11))
    verdicts = [finding.verdict for finding in findings.values()]
    counts = ", ".join(f"{verdicts.count(kind)} {kind}" for kind in (AGREES, WRONG, OPEN, MANGLED))
    print(f"\n{len(findings)} checks: {counts}")
    return findings


def gate(name: str) -> tuple[Tensor, Tensor]:
    return tp.data.gate(name, dtype=DOUBLE)


def line(*points: float) -> Tensor:
    """Samples with one feature."""
    return torch.tensor(points, dtype=DOUBLE)[:, None]


def learn(X: Tensor, y: Tensor, *, bias: bool = True, start: Iterable[float] | None = None, **options: Any) -> Any:
    """A run by rule, from zero weights or from a start (b, w₁, w₂, …)."""
    net = tp.Perceptron(X.shape[1], bias=bias, dtype=DOUBLE)
    if start is not None:
        weight, constant = tp.functional.unfold_bias(torch.tensor([list(start)], dtype=DOUBLE), "first")
        net.load_state_dict({"weight": weight, "bias": constant})
    return tp.RuleTrainer(**options).fit(net, X, y)


def states(log: tp.MistakeLog) -> list[Any]:
    """The weights before the first mistake, after it, and so on to the last."""
    return [log.state_at(t) for t in range(len(log) + 1)]


def slacks(log: tp.MistakeLog, X: Tensor) -> list[tuple[float, float]]:
    """y·s of each mistake's sample, just before its update and just after it."""
    path = torch.stack([state.scores(X) for state in states(log)])
    return [tuple((log.y[mistake.sample] * path[t : t + 2, mistake.sample]).tolist()) for t, mistake in enumerate(log)]


def folded(model: Any) -> tuple[float, ...]:
    """A linear model as (b, w₁, w₂, …)."""
    return tuple(tp.functional.fold_bias(model.weight, model.bias, "first")[0].tolist())


def wrong(labels: Tensor, y: Tensor) -> int:
    return int((labels != y).sum())


def least_squares(X: Tensor, targets: Tensor) -> Tensor:
    """The weights (w₁, w₂, …, b) with the least Σ (t − s)²."""
    solution: Tensor = torch.linalg.lstsq(tp.functional.homogeneous(X), targets.to(X.dtype)[:, None]).solution
    return solution[:, 0]


def number(value: float, digits: int = 4) -> str:
    """Rounded, with a true minus and without −0."""
    return f"{float(value) + 0.0:.{digits}g}".replace("-", "−")


def numbers(values: Iterable[float]) -> str:
    """(−4, 3, 2), as one writes it."""
    return f"({', '.join(map(number, values))})"


def yes(holds: bool) -> str:
    return "yes" if holds else "no"


def markdown(findings: Iterable[Finding], *verdicts: str) -> str:
    """The findings with one of the verdicts as a definition list, for a page of the documentation.

    A term is the matter; below it what the note has and what came out.
    """
    return "\n\n".join(
        f"{_plain(each.about)}\n: **Note:** {_plain(each.says)}\n\n  **Run:** {_plain(each.found)}"
        for each in findings
        if each.verdict in verdicts
    )


def _plain(text: str) -> str:
    """Text without a meaning for Markdown."""
    for sign in "\\`*_[]<|":
        text = text.replace(sign, f"\\{sign}")
    return text
