"""The sections of a report about the data: whether they are separable, with a proof, and the mistake bound."""

from __future__ import annotations

import math

from torchperc import plots, theory
from torchperc.reports.budget import COMPARED, ENTRIES, moderate
from torchperc.reports.page import Block, Picture, Section, Table, Text
from torchperc.reports.subject import Subject
from torchperc.reports.text import exact, number, plural
from torchperc.rules.run import RuleResult
from torchperc.theory.certificate import Certificate
from torchperc.theory.verifier import Hyperplane

_LISTED = 20  # features or rows that are listed one by one
_SECONDS = 30.0  # that a proof may take
_MEASURED = 100_000  # numbers of which the widest strip is found


def certificate(subject: Subject) -> Certificate | str:
    """The proof that a hyperplane separates the training data, or that none does; or why there is no proof."""
    X, y, known = subject.X, subject.y, subject.certificate
    if known is not None and known.separable is not None and known.samples == len(y):  # of no fewer, weighted 0
        return known
    if not subject.linear:
        return "Left out: the model is not linear; proof and bound are about a hyperplane."
    if len(y.unique()) < 2:
        return "Left out: the training data have one class only; at least two classes are required."
    if not moderate(X.shape, subject.classes):
        size = f"{X.shape[0]:,} samples with {plural(X.shape[1], 'feature')}"
        size += f" in {subject.classes} classes" if subject.classes else ""
        limit = f"{ENTRIES:,} numbers and {COMPARED:,} numbers times classes"
        return (
            f"Left out: {size} are beyond the budget of a proof in a report, {limit}; torchperc separable, or "
            "theory.separability, decides without a limit."
        )
    bias = subject.bias_step != "none"
    return theory.separability(X.cpu(), y, bias=bias, num_classes=subject.classes, time_limit=_SECONDS)


def margin_of_data(subject: Subject, proof: Certificate | str) -> float | None:
    """γ, half the width of the widest strip between two classes; ``None`` without one, or if it would take long."""
    if isinstance(proof, str) or not proof.separable or subject.classes is not None:
        return None
    if math.prod(subject.X.shape) > _MEASURED:
        return None
    bias_step = "none" if subject.bias_step == "none" else "unit"
    return theory.max_margin(subject.X.cpu(), subject.y, regularize_bias=False, bias_step=bias_step).margin or None


def verdict(subject: Subject, proof: Certificate | str, gamma: float | None) -> Section:
    """How the run ended, the proof, and the margin γ of the data."""
    blocks: list[Block] = [Text(f"{subject.sentence}.")] if subject.sentence else []
    if isinstance(proof, str):
        return Section("Verdict and proof", (*blocks, Text(proof)))
    said = f"{proof}" if not proof.separable else "separable: a hyperplane has every sample on its side"
    if proof.separable and subject.classes is not None:
        said = "separable: weights give every sample its highest score for its own class"
    blocks.append(Text(f"The training data are {said}."))
    if gamma is not None:
        strip = "half the width of the widest strip between the classes, in the features as the model sees them"
        through = " and around the origin" if subject.bias_step == "none" else ""
        blocks.append(Text(f"The margin of the data is γ = {number(gamma)}: {strip}{through}."))
    if proof.hyperplane is not None:
        blocks += _hyperplane(subject, proof.hyperplane, proof.kind)
    if proof.witness is not None:
        blocks += _witness(subject, proof)
    if proof.kind != "undecided":
        error = proof.verification_error()
        held = "it holds" if error is None else f"it does NOT hold: {error}"
        blocks.append(Text(f"verify() checked the proof again, in exact rational arithmetic: {held}."))
    return Section("Verdict and proof", blocks)


def _hyperplane(subject: Subject, plane: Hyperplane, kind: str) -> list[Block]:
    where = "on its side or on it" if kind == "weakly separable" else "on its side"
    has = "a hyperplane that has every sample" if len(plane.weight) == 1 else "weights that have every sample"
    least = exact(plane.least)
    least = least if least.startswith("≈") else f"= {least}"
    score = "y·s" if len(plane.weight) == 1 else "lead of its own class over another"
    said = Text(f"Certificate: {has} {where} (least {score} {least}). It proves separability; it need not be the best.")
    if len(plane.weight[0]) > _LISTED or len(plane.weight) > 6:
        return [said]
    rows = [(name, *(exact(row[k]) for row in plane.weight)) for k, name in enumerate(subject.feature_names)]
    if plane.bias is not None:
        rows.append(("bias", *map(exact, plane.bias)))
    return [said, Table(("feature", *weight_heads(subject, len(plane.weight))), rows)]


def weight_heads(subject: Subject, count: int) -> tuple[str, ...]:
    """The heads of columns of weights."""
    return ("weight",) if count == 1 else tuple(f"weight of {name}" for name in subject.class_names)


def _witness(subject: Subject, proof: Certificate) -> list[Block]:
    witness, two = proof.witness, subject.classes is None
    assert witness is not None
    sums = "Σ α·y·(x, 1) = 0" if two and proof.bias else "Σ α·y·x = 0" if two else "Σ α·(φ(x, y) − φ(x, k)) = 0"
    said = f"Certificate: {sums} over the rows below, with α > 0 and Σ α = 1; no hyperplane can separate such rows."
    listed = len(subject.feature_names) <= 6
    head = ["sample", *(subject.feature_names if listed else ()), "label", *(() if two else ("against",)), "α"]
    rows = []
    for sample, rival, alpha in list(zip(witness.samples, witness.rivals, witness.alpha, strict=True))[:_LISTED]:
        values = [number(value) for value in subject.X[sample]] if listed else []
        own = subject.class_names[subject.codes.index(int(subject.y[sample]))]
        rows.append([str(sample + 1), *values, own, *(() if two else (subject.class_names[rival],)), exact(alpha)])
    blocks: list[Block] = [Text(said), Table(head, rows)]
    if len(witness.samples) > _LISTED:
        blocks.append(Text(f"These are the first {_LISTED} of {len(witness.samples)} rows."))
    if two and proof.bias and listed:
        blocks.append(Text(f"The point in both convex hulls: ({', '.join(map(exact, proof.point()))})."))
    return blocks


def bound(subject: Subject, proof: Certificate | str, own: float | None) -> tuple[float | None, list[Block]]:
    """(R/γ*)² if it is one of this run, and the blocks about it; ``own`` is the margin γ of the data, if known."""
    result = subject.result
    made = "" if result is None else f"The run made {plural(result.mistakes, 'mistake')}"
    if isinstance(proof, str):
        return None, [Text(proof)]
    if not proof.separable:
        why = "were not decided to be" if proof.separable is None else "are not"
        said = f"No bound: there is one for separable data, and these {why}."
        return None, [Text(f"{said} {made}." if made else said)]
    bias_step, K = subject.bias_step, subject.classes
    X, y = subject.X.cpu(), subject.y
    gamma = theory.max_margin(X, y, regularize_bias=True, bias_step=bias_step, num_classes=K).margin
    if gamma <= 0:
        return None, [Text("No bound: the largest margin is too small for floating point.")]
    R = theory.radius(X, bias_step=bias_step, num_classes=K)
    lr = 1.0 if result is None or not len(result.log) else float(result.log.coef.abs().max())
    slack = {"margin": subject.margin, "lr": lr} if subject.margin else {}
    limit = theory.mistake_bound(X, y, bias_step=bias_step, gamma=gamma, num_classes=K, **slack)
    formula = "(R² + 2·margin/η)/γ*²" if subject.margin else "(R/γ*)²"
    figures = Text(f"{_space(bias_step, R, gamma, own)}: {formula} = {number(limit)}.")
    if result is None:
        said = f"The run was not by rule; from zero weights the rule would make at most {number(limit)} mistakes here."
        return None, [Text(said), figures]
    if (exception := _exception(result)) is not None:
        return None, [Text(f"{exception} {made}."), figures]
    said = f"{made}; the bound is {number(limit)}, whatever the order of the samples."
    display = plots.BracketDisplay.from_log(result.log, gamma=gamma)
    low, high = (float(line.get_ydata()[-1]) for line in (display.lower_, display.upper_))  # type: ignore[index, arg-type]  # an array
    alt = "Two lines by epoch that close around γ* from below and from above."
    caption = f"What the run alone says of γ*: at its end, that it is between {number(low)} and {number(high)}; "
    picture = Picture.of(display.figure_, alt, f"{caption}it is {number(gamma)}.")
    return limit, [Text(said), figures, picture]


def _space(bias_step: str, R: float, gamma: float, own: float | None) -> str:
    """What R and γ* are: as the rule sees the data, with a constant feature whose weight is the bias.

    Example:
        >>> _space("none", 1.5, 0.5, 0.5)
        'An update is at most R = 1.5 long, and the margin is γ* = γ = 0.5'
        >>> _space("unit", 1.5, 0.25, 0.5)[78:]
        'an update is at most R = 1.5 long, and the margin is γ* = 0.25, which is never above γ'
    """
    longest = f"n update is at most R = {number(R)} long, and the margin is γ* ="
    if bias_step == "none":
        return f"A{longest} {'' if own is None else 'γ = '}{number(gamma)}"
    below = "" if own is None else ", which is never above γ"
    added = "To the rule, the bias is the weight of a constant feature. With that feature, a"
    return f"{added}{longest} {number(gamma)}{below}"


def _exception(result: RuleResult) -> str | None:
    """Why the bound does not speak of a run."""
    log = result.log
    if log.start.any_nonzero:
        return "The bound is for runs from zero weights, and this one started from others."
    if len(log) and float(log.coef.abs().min()) != float(log.coef.abs().max()):
        return "The bound is for updates of one size, and here samples were weighted."
    return None
