"""Bounds on the mistakes of a run by rule, and bounds on the margin that a run gives."""

from __future__ import annotations

import math
from typing import Any

import torch

from torchperc._checks import Data, check_int, check_labels, check_number
from torchperc.nn import functional as tpf
from torchperc.theory.margins import max_margin, weights_and_labels, weights_of
from torchperc.theory.problem import Points, class_count
from torchperc.theory.weights import Bracket, live_bracket


def mistake_bound(
    X: Data,
    y: Data,
    *,
    bias_step: str = "unit",
    gamma: float | None = None,
    num_classes: int | None = None,
    margin: float = 0.0,
    lr: float = 1.0,
    rule: Any = None,
) -> float:
    """Return the maximum number of mistakes of the rule from zero weights, in any order: (R/γ)².

    With a required ``margin`` it is (R² + 2·margin/η)/γ²; with sample weights c it bounds (Σ c)²/Σ c², and by
    ``distributed="mix"`` Σ|coef|/η of the log. γ is the largest margin with a regularized bias: with the geometric
    one, which is larger, a run may make more mistakes than that. The proofs are in docs/concepts/theory.md. It is
    infinite if ``gamma`` is not positive, if no weights were found that separate the data, or if none is proved.

    Args:
        X: samples (N, d), as a tensor, an array, lists or a scipy sparse matrix.
        y: labels −1/+1, or class indices with ``num_classes``.
        bias_step: that of the run, see :func:`radius`.
        gamma: a margin that some weights reach, see :func:`margin`; by default the largest, of :func:`max_margin`.
        num_classes: K, or ``None`` for two classes by one score.
        margin: the margin y·s that the run required of every sample, ``RuleTrainer(margin=)``.
        lr: the learning rate η of the run, which matters with a required margin only.
        rule: a rule of :mod:`torchperc.rules`, whose own bound is returned.

    Example:
        >>> AND = [[0, 0], [0, 1], [1, 0], [1, 1]]
        >>> round(mistake_bound(AND, [-1, -1, -1, 1]), 6), mistake_bound(AND, [-1, 1, 1, -1])
        (51.0, inf)
    """
    check_labels(y, len(points := Points.of(X, bias_step)), class_count(num_classes))
    margin, lr = check_number("margin", margin, at_least=0), check_number("lr", lr, above=0)
    if rule is not None and not hasattr(rule, "bound"):
        raise TypeError(f"rule must be a rule such as tp.rules.ROMMA(), found {rule!r}")
    options: Any = {"regularize_bias": True, "bias_step": bias_step, "num_classes": num_classes}
    if (gamma := max_margin(X, y, **options).margin if gamma is None else check_number("gamma", gamma)) <= 0:
        return math.inf
    squared = points.squared_radius(num_classes)
    return float(rule.bound(squared, gamma, lr)) if rule is not None else (squared + 2 * margin / lr) / gamma**2


def inseparable_bound(
    X: Data, y: Data, weights: Any, gamma: float, *, bias_step: str = "unit", passes: int = 1
) -> float:
    """Return the maximum number of mistakes from zero weights on any data: ((R + D)/γ)².

    For a unit vector u, d_n = max(0, γ − y_n·u·φ_n) is what sample n lacks of the margin γ, and D² = Σ d_n² over all
    presentations. The proof, after Freund and Schapire, is in docs/concepts/theory.md.

    Args:
        X: samples (N, d), as a tensor, an array, lists or a scipy sparse matrix.
        y: labels −1/+1, or class indices if the weight has more than one row.
        weights: a linear net or a pair (weight, bias) to compare with, of any length but 0.
        gamma: γ, a margin to ask of them.
        bias_step: that of the run, see :func:`radius`.
        passes: how often every sample is presented.

    Example:
        >>> inseparable_bound([[1], [-1], [1]], [1, -1, -1], ([[1.0]], None), 1.0, bias_step="none")
        9.0
    """
    points = Points.of(X, bias_step)
    weight, bias, target = weights_and_labels(weights, points, y)
    gamma = check_number("gamma", gamma, above=0)
    norm = points.norm(weight, bias)
    if not norm:
        raise ValueError("the weights are all zero, so they have no direction; give others to compare with")
    lacking = (gamma - tpf.functional_margins(points.scores(weight, bias), target) / norm).clamp(min=0)
    squared = check_int("passes", passes, at_least=1) * float(lacking.square().sum())
    R = math.sqrt(points.squared_radius(None if len(weight) == 1 else len(weight)))
    return ((R + math.sqrt(squared)) / gamma) ** 2


def bracket(
    net: Any, X: Data, y: Data, t: float, lr: float = 1.0, *, bias_step: str = "unit", start: Any = None
) -> Bracket:
    """Return bounds on the largest margin after t mistakes: margin(w_t) ≤ γ* ≤ ‖w_t‖/(η·t).

    γ* is that of :func:`max_margin` with ``regularize_bias=True``. The upper bound holds for any order.

    Args:
        net: the weights w_t: a linear net or a pair (weight, bias).
        X: the samples of the run; those of weight 0 left out.
        y: their labels.
        t: the number of mistakes; with sample weights the sum of the weights of these mistakes.
        lr: the learning rate η.
        bias_step: that of the run, see :func:`radius`.
        start: the weights w₀ before the first sample, if they were not zero.

    Returns:
        The two bounds: −∞ for zero weights, ∞ without mistakes. An upper one of 0 says that nothing separates the data.

    Example:
        >>> AND = [[0, 0], [0, 1], [1, 0], [1, 1]], [-1, -1, -1, 1]
        >>> [round(bound, 6) for bound in bracket(([[3.0, 2.0]], [-4.0]), *AND, t=18)]
        [0.185695, 0.299176]
    """
    points = Points.of(X, bias_step)
    weight, bias, target = weights_and_labels(net, points, y)
    before = (torch.zeros_like(weight), torch.zeros_like(bias)) if start is None else weights_of(start, weight.shape[1])
    if before[0].shape != weight.shape:
        raise ValueError(f"start has {len(before[0])} rows of weights and net {len(weight)}; they must be equal")
    total = check_number("lr", lr, above=0) * check_number("t", t, at_least=0)
    moved = points.norm(weight - before[0], bias - before[1])
    return live_bracket(points.scores(weight, bias), target, points.norm(weight, bias), total, moved=moved)


def wilson(successes: int, n: int) -> tuple[float, float]:
    """Return Wilson's 95 % interval of the fraction successes/n."""
    from scipy.stats import binomtest

    interval = binomtest(successes, n).proportion_ci(method="wilson")
    return float(interval.low), float(interval.high)
