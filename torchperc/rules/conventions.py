"""What the authors of perceptrons disagree about, by name: ties, bias steps, orders, selections, verdicts."""

from __future__ import annotations

import math
from collections.abc import Sequence
from enum import Enum

from torchperc.functional import TIES

BIAS_STEPS = ("unit", "radius", "none")
ORDERS = ("given", "shuffled", "random-mistake")
SELECTS = ("last", "averaged", "voted", "pocket", "best-validation")
ENGINES = ("auto", "reference", "compiled", "blocked")

__all__ = ["BIAS_STEPS", "ENGINES", "ORDERS", "SELECTS", "TIES", "Verdict", "mistaken_for"]


class Verdict(Enum):
    """How training ended. Running out of epochs is a result like the others, not an exception.

    Example:
        >>> Verdict.SEPARATED.sentence
        'a whole pass without a mistake: these weights separate the training data'
    """

    SEPARATED = "separated"
    NOT_SEPARABLE = "not separable"
    CYCLING = "cycling"
    BUDGET = "budget"

    @property
    def sentence(self) -> str:
        """What the verdict means."""
        return {
            Verdict.SEPARATED: "a whole pass without a mistake: these weights separate the training data",
            Verdict.NOT_SEPARABLE: "no hyperplane separates the training data, which was proved",
            Verdict.CYCLING: "the weights of an earlier epoch came back: in this order the run repeats for ever",
            Verdict.BUDGET: "the epochs are used up and mistakes remain: try more epochs, or select averaged or pocket",
        }[self]


def mistaken_for(scores: Sequence[float], y: int, *, tie: str, margin: float) -> int | None:
    """The label a sample was taken for, or ``None`` if the rule leaves it alone: the rule's test, sample by sample.

    :func:`torchperc.functional.mistakes` is the same test for whole tensors.

    Args:
        scores: one score for labels −1/+1, K scores for class indices.
        y: the right label.
        tie: ``"update"``: slack ≤ margin · ``"strict"``: slack < margin · ``"sign"``: the decision is not y. The slack
            is y·s, or s_y − s_r against the strongest wrong class r.
        margin: the slack that every sample must exceed.

    Example:
        >>> mistaken_for([0.0], 1, tie="update", margin=0), mistaken_for([0.0], 1, tie="sign", margin=0)
        (-1, None)
        >>> mistaken_for([1.0, 5.0, 5.0], 0, tie="update", margin=0)
        1
    """
    if not all(map(math.isfinite, scores)):
        raise ValueError(f"a score became {max(scores, key=abs)}: the weights overflow; scale X down or lower lr")
    if len(scores) == 1:
        other, slack = -y, y * scores[0]
        wrong_side = (1 if scores[0] >= 0 else -1) != y
    else:
        other = max((k for k in range(len(scores)) if k != y), key=lambda k: (scores[k], -k))
        slack = scores[y] - scores[other]
        wrong_side = slack < 0 or (slack == 0 and other < y)
    mistake = wrong_side if tie == "sign" else slack <= margin if tie == "update" else slack < margin
    return other if mistake else None
