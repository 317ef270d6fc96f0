"""The sections of a report about the training data: whether they are separable, with a proof, and the mistake bound."""

from __future__ import annotations

import math

from torchperc import plots, theory
from torchperc.reports import results
from torchperc.reports.page import Block, Picture, Table, Text
from torchperc.reports.subject import FEW, LISTED, Subject
from torchperc.reports.text import exact, number, plural
from torchperc.rules.problem import Problem
from torchperc.theory.certificate import Certificate

_SECONDS = 30.0  # that a proof may take
_MEASURED = 100_000  # numbers of which the widest strip is found


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


def margin_of_data(subject: Subject, proof: Certificate | str) -> float | None:
    """γ, half the width of the widest strip between two classes; ``None`` without one, or if it would take long."""
    small = subject.classes is None and math.prod(subject.X.shape) <= _MEASURED
    if isinstance(proof, str) or not proof.separable or not small:
        return None
    bias_step = "none" if subject.bias_step == "none" else "unit"
    return theory.max_margin(subject.X.cpu(), subject.y, regularize_bias=False, bias_step=bias_step).margin or None


def verdict(subject: Subject, proof: Certificate | str, gamma: float | None) -> list[Block]:
    """How the run ended, the proof in words, and the margin γ of the data."""
    blocks: list[Block] = [Text(f"{subject.sentence}.")] if subject.sentence else []
    if isinstance(proof, str):
        return [*blocks, Text(proof)]
    said = str(proof)
    if proof.separable:
        two, many = "a hyperplane has every sample on its side", "every sample can have its highest score for its class"
        said = f"separable: {two if subject.classes is None else many}"
    blocks.append(Text(f"The training data are {said}."))
    if gamma is not None:
        through = " and around the origin" if subject.bias_step == "none" else ""
        strip = f"half the width of the widest strip between the classes{through}"
        said = f"The margin of the data is γ = {number(gamma)}: {strip}, in the features as the model sees them."
        blocks.append(Text(said))
    blocks += _hyperplane(subject, proof) + _witness(subject, proof)
    if proof.kind != "undecided":
        error = proof.verification_error()
        held = "it holds" if error is None else f"it does NOT hold: {error}"
        blocks.append(Text(f"The proof was checked again, in exact rational arithmetic: {held}."))
    return blocks


def _hyperplane(subject: Subject, proof: Certificate) -> list[Block]:
    """The proof that the data are separable: the weights."""
    plane = proof.hyperplane
    if plane is None:
        return []
    side = "on its side or on it" if proof.kind == "weakly separable" else "on its side"
    score = "y·s" if len(plane.weight) == 1 else "lead of its own class over another"
    least = f"the least {score} is {exact(plane.least)}"
    said = Text(f"Proof: weights that have every sample {side} ({least}). They need not be the best ones.")
    if len(plane.weight[0]) > LISTED or len(plane.weight) > FEW:
        return [said]
    rows = [(name, *(exact(row[k]) for row in plane.weight)) for k, name in enumerate(subject.feature_names)]
    if plane.bias is not None:
        rows.append(("bias", *map(exact, plane.bias)))
    return [said, Table(("feature", *subject.weight_heads(len(plane.weight))), rows)]


def _witness(subject: Subject, proof: Certificate) -> list[Block]:
    """The proof that the data are not separable: weights of samples."""
    witness, two = proof.witness, subject.classes is None
    if witness is None:
        return []
    why = "what speaks for the labels and for the others sums to the same (Σ α·(φ(x, y) − φ(x, k)) = 0)"
    if two and proof.bias:
        why = "both classes weigh the same and have the same weighted mean (Σ α·y·(x, 1) = 0)"
    elif two:
        why = "the rows and their mirror images have the same weighted mean (Σ α·y·x = 0)"
    said = f"Proof: with the weights α below, all above 0 and 1 in sum, {why}; no hyperplane can separate such rows."
    names, rows = subject.feature_names if len(subject.feature_names) <= FEW else [], []
    for sample, rival, alpha in list(zip(witness.samples, witness.rivals, witness.alpha, strict=True))[:LISTED]:
        values = [number(value) for value in subject.X[sample]] if names else []
        own = subject.class_names[subject.codes.index(int(subject.y[sample]))]
        rows.append([str(sample + 1), *values, own, *([] if two else [subject.class_names[rival]]), exact(alpha)])
    blocks: list[Block] = [Text(said), Table(["sample", *names, "label", *([] if two else ["against"]), "α"], rows)]
    if len(witness.samples) > LISTED:
        blocks.append(Text(f"These are the first {LISTED} of {len(witness.samples)} rows."))
    if two and proof.bias and names:
        blocks.append(Text(f"The point in both convex hulls: ({', '.join(map(exact, proof.point()))})."))
    return blocks


def bound(subject: Subject, proof: Certificate | str, own: float | None) -> tuple[float | None, list[Block]]:
    """(R/γ*)² if it is one of this run, and the blocks about it; ``own`` is the margin γ of the data, if known."""
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
    start, equal, below = "A", "" if own is None else "γ = ", ""
    if bias_step != "none":
        start, equal = "With a constant feature, whose weight is the bias, a", ""
        below = "" if own is None else ", which is never above γ"
    longest = f"n update is at most R = {number(theory.radius(X, bias_step=bias_step, num_classes=K))} long"
    space = f"{start}{longest}, and the margin is γ* = {equal}{number(gamma)}{below}"
    figures = Text(f"{space}: {formula} = {number(limit)}.")
    if result is None:
        said = f"The run was not by rule; from zero weights the rule would make at most {number(limit)} mistakes here."
        return None, [Text(said), figures]
    if result.log.start.any_nonzero:
        said = "The bound is for runs from zero weights, and this one started from others."
        return None, [Text(f"{said}{made}"), figures]
    if len(result.log) and float(result.log.coef.abs().min()) != lr:
        said = "The bound is for updates of one size, and here samples were weighted."
        return None, [Text(f"{said}{made}"), figures]
    said = f"{made[1:-1]}; the bound is {number(limit)}, whatever the order of the samples."
    display = plots.BracketDisplay.from_log(result.log, gamma=gamma)
    low, high = (float(line.get_ydata()[-1]) for line in (display.lower_, display.upper_))  # type: ignore[index, arg-type]  # an array
    alt = "Two lines by epoch that close around γ* from below and from above."
    between = f"between {number(low)} and {number(high)}"
    caption = f"What the run alone says of γ*: at its end, that it is {between}; it is {number(gamma)}."
    return limit, [Text(said), figures, Picture.of(display.figure_, alt, caption)]
