"""What the authors of perceptrons disagree about, by name: ties, bias steps, orders, selections, verdicts."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from enum import Enum
from typing import TypeAlias

from torchperc._checks import weights_overflow
from torchperc.nn.functional import TIES

BIAS_STEPS = ("unit", "radius", "none")
ORDERS = ("given", "shuffled", "random-mistake")
SELECTS = ("last", "averaged", "voted", "pocket", "best-validation")
RATCHETS = ("runs", "every")
DISTRIBUTED = ("mix",)
MIXINGS = ("uniform", "mistakes")
ENGINES = ("auto", "reference", "compiled")

__all__ = [
    "BIAS_STEPS", "DISTRIBUTED", "ENGINES", "MIXINGS", "ORDERS", "SELECTS", "TIES", "Verdict",
    "mistaken_for",
]  # fmt: skip


class Verdict(Enum):
    """How training ended; a result in every case, not an exception.

    Example:
        >>> Verdict.SEPARATED.sentence
        'an epoch without a mistake: these weights separate the training data'
    """

    SEPARATED = "separated"
    NOT_SEPARABLE = "not separable"
    CYCLING = "cycling"
    BUDGET = "budget"
    CONVERGED = "converged"
    STOPPED_EARLY = "stopped early"
    UNBOUNDED = "unbounded"

    @property
    def sentence(self) -> str:
        """What the verdict means."""
        return {
            Verdict.SEPARATED: "an epoch without a mistake: these weights separate the training data",
            Verdict.NOT_SEPARABLE: "it is proved that no hyperplane separates the training data",
            Verdict.CYCLING: "the weights of an earlier epoch recurred: in this order the run repeats forever",
            Verdict.BUDGET: "reached max_epochs with mistakes left: try more epochs, or select averaged or pocket",
            Verdict.CONVERGED: "the gradient is below tol, or the loss has stopped falling",
            Verdict.STOPPED_EARLY: "the loss on the validation samples has stopped falling",
            Verdict.UNBOUNDED: "the loss has no minimum: a hyperplane separates the samples, so it falls forever",
        }[self]


Compare: TypeAlias = Callable[[float, float, int, int | None], int]
"""(slack or difference of two scores, limit, label or class, other class) → the sign of slack − limit."""


def _rounded(value: float, limit: float, own: int, other: int | None) -> int:
    return (value > limit) - (value < limit)


def mistaken_for(
    scores: Sequence[float], y: int, *, tie: str, margin: float, compare: Compare = _rounded
) -> int | None:
    """The wrong label that a sample was taken for, or ``None`` if it is no mistake.

    :func:`torchperc.nn.functional.mistakes` is the same test for whole tensors.

    Args:
        scores: one score for labels −1/+1, K scores for class indices.
        y: the true label.
        tie: ``"update"``: slack ≤ margin · ``"strict"``: slack < margin · ``"sign"``: the decision is not y. The slack
            is y·s, or s_y − s_r against the strongest wrong class r.
        margin: the slack that every sample must exceed.
        compare: on which side of its limit a slack lies; by the rounded scores if not given.

    Example:
        >>> mistaken_for([0.0], 1, tie="update", margin=0), mistaken_for([0.0], 1, tie="sign", margin=0)
        (-1, None)
        >>> mistaken_for([1.0, 5.0, 5.0], 0, tie="update", margin=0)
        1
    """
    if not all(map(math.isfinite, scores)):
        raise weights_overflow(max(scores, key=abs))
    if len(scores) == 1:
        other, side = -y, compare(y * scores[0], margin, y, None)
        loses_tie = y < 0  # a score of 0 is decided as +1
    else:
        wrong = [k for k in range(len(scores)) if k != y]
        other = wrong[0]
        for k in wrong[1:]:
            other = k if compare(scores[k] - scores[other], 0.0, k, other) > 0 else other
        side = compare(scores[y] - scores[other], margin, y, other)
        loses_tie = other < y  # equal scores are decided for the lower index
    mistake = side < 0 or (side == 0 and (tie == "update" or (tie == "sign" and loses_tie)))
    return other if mistake else None
