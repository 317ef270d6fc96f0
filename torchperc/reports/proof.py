"""The sections of a report about the training data: whether they are separable, by proof, and the mistake bound."""

from __future__ import annotations

from torchperc import theory
from torchperc.reports import results
from torchperc.reports.page import Block, Text
from torchperc.reports.subject import Subject
from torchperc.reports.text import number, plural
from torchperc.rules.problem import Problem
from torchperc.theory.certificate import Certificate

_SECONDS = 30.0  # that a proof may take


def certificate(subject: Subject) -> Certificate | str:
    """The proof that a hyperplane separates the training data, or that none does; or why there is no proof."""
    (N, d), y, K, known = subject.X.shape, subject.y, subject.classes, subject.certificate
    if known is not None and known.separable is not None and known.samples == len(y):  # of no fewer, weighted 0
        return known
    by_rule = subject.result is not None and type(subject.result.log.problem) is Problem
    if not by_rule and subject.known.weight is None:
        return "Left out: the model is not linear; proof and bound are about a hyperplane."
    if len(y.unique()) < 2:
        return "Left out: the training data have one class only; at least two classes are required."
    if results.small_enough_to_prove((N, d), K):
        bias = subject.bias_step != "none"
        return theory.separability(subject.X.cpu(), y, bias=bias, num_classes=K, time_limit=_SECONDS)
    size = f"{N:,} samples with {plural(d, 'feature')}" + (f" in {K} classes" if K else "")
    remedy = "torchperc separable, or theory.separability, decides without a limit"
    limit = f"{results.PROVED:,} numbers and {results.PROVED_BY_CLASSES:,} numbers times classes"
    return f"Left out: {size} are beyond the budget of a proof in a report, {limit}; {remedy}."


def verdict(subject: Subject, proof: Certificate | str) -> list[Block]:
    """How the run ended, and the proof in words."""
    blocks: list[Block] = [Text(f"{subject.sentence}.")] if subject.sentence else []
    if isinstance(proof, str):
        return [*blocks, Text(proof)]
    blocks.append(Text(f"The training data are {proof}."))
    if proof.kind == "undecided":
        return blocks
    shown = "weights that have every sample on its side"
    if not proof.separable:
        equal = "Σ α·(φ(x, y) − φ(x, k)) = 0" if subject.classes else f"Σ α·y·{'(x, 1)' if proof.bias else 'x'} = 0"
        shown = f"weights α > 0 of some samples with {equal}, so that no hyperplane can have them all on their sides"
    error = proof.verification_error()
    held = "it holds" if error is None else f"it does NOT hold: {error}"
    where = "torchperc separable writes it to a file"
    checked = f"The proof was checked again, in exact rational arithmetic: {held}"
    return [*blocks, Text(f"The proof is {shown}; {where}. {checked}.")]


def bound(subject: Subject, proof: Certificate | str) -> tuple[float | None, list[Block]]:
    """(R/γ*)² if it is one of this run, and the blocks about it."""
    if isinstance(proof, str):
        return None, [Text(proof)]
    result, bias_step, K = subject.result, subject.bias_step, subject.classes
    made = "" if result is None else f" The run made {plural(result.mistakes, 'mistake')}."
    if not proof.separable:
        why = "were not decided to be" if proof.separable is None else "are not"
        return None, [Text(f"No bound: there is one for separable data, and these {why}.{made}")]
    X, y = subject.X.cpu(), subject.y
    gamma = theory.max_margin(X, y, regularize_bias=True, bias_step=bias_step, num_classes=K).margin
    if gamma <= 0:
        return None, [Text("No bound: the largest margin is too small for floating point.")]
    lr = 1.0 if result is None or not len(result.log) else float(result.log.coef.abs().max())
    slack = {"margin": subject.margin, "lr": lr} if subject.margin else {}
    limit = theory.mistake_bound(X, y, bias_step=bias_step, gamma=gamma, num_classes=K, **slack)
    formula = "(R² + 2·margin/η)/γ*²" if subject.margin else "(R/γ*)²"
    start = "A" if bias_step == "none" else "With a constant feature, whose weight is the bias, a"
    longest = f"n update is at most R = {number(theory.radius(X, bias_step=bias_step, num_classes=K))} long"
    figures = Text(f"{start}{longest}, and the margin is γ* = {number(gamma)}: {formula} = {number(limit)}.")
    if result is None:
        said = f"The run was not by rule; from zero weights the rule would make at most {number(limit)} mistakes here."
    elif result.log.start.any_nonzero:
        said = f"The bound is for runs from zero weights, and this one started from others.{made}"
    elif len(result.log) and float(result.log.coef.abs().min()) != lr:
        said = f"The bound is for updates of one size, and here samples were weighted.{made}"
    else:
        said = f"{made[1:-1]}; the bound is {number(limit)}, whatever the order of the samples."
        return limit, [Text(said), figures]
    return None, [Text(said), figures]
