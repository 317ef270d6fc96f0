"""Is a sample a mistake, and which class was it predicted as? One rule for Python and for compiled loops.

Engines sum a score in different orders, so their rounded scores differ. A score farther from its limit than a proven
bound of the rounding error is on the same side for all of them; nearer ones are decided in exact arithmetic. So every
engine makes the same mistakes by construction.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from torchperc._checks import check_choice, check_number, weights_overflow
from torchperc.nn.functional import TIES
from torchperc.samples.rows import Array, Samples

UPDATE, SIGN, STRICT = range(3)  # the places of the ties in TIES
UNCLEAR = -(2**31)


class Rule:
    """When a sample leads to an update w ← f·w + c·z, with which coefficient c and which factor f.

    Here z is y·φ, or with K classes φ in block y minus φ in block r of the strongest wrong class, where φ = (x, √β) for
    a bias step of β; and m = w·z is the functional margin. A rule of your own is a frozen dataclass of numbers that
    inherits from this class, see docs/extend/rule.py. Log, engines, averages and estimators work with it as with ours.
    """

    tie: str = "update"  # an update is made where m ≤ the required margin; "strict": where m is below it
    margin: float = 0.0  # the required margin, unless margins() says otherwise
    counts = False  # whether required margins are divided by √k before update k
    refused: tuple[str, ...] = ()  # "sample_weight" or "num_classes", where these have no meaning

    @property
    def code(self) -> int:
        """The tie as compiled loops know it."""
        return TIES.index(self.tie)

    @property
    def parameters(self) -> tuple[float, ...]:
        """The numbers that :meth:`step` needs: all fields."""
        return tuple(map(float, vars(self).values()))

    @staticmethod
    def step(m: float, squared: float, norm: float, k: float, parameters: Any) -> tuple[float, float]:
        """Return c and f of update k from 1, by m, ‖z‖², ‖w‖² and the parameters; plain arithmetic, also compiled."""
        return 1.0, 1.0

    def margins(self, y: Array, squared: Array) -> Array:
        """Return the required margin of each sample by its label and ‖z‖²: (N,)."""
        return np.full(len(y), self.margin)

    def bound(self, squared_radius: float, gamma: float, lr: float = 1.0) -> float:
        """Return the maximum number of mistakes where a unit vector has m ≥ γ and ‖z‖² ≤ R²; infinite if unproved."""
        return math.inf

    def describe(self) -> dict[str, Any]:
        """Return what a saved log must know of the rule: the path of its class, and its arguments."""
        home = "torchperc.rules" if type(self).__module__.startswith("torchperc.rules.") else type(self).__module__
        return {"rule": {"class_path": f"{home}.{type(self).__qualname__}", "init_args": dict(vars(self))}}


@dataclass(frozen=True)
class PerceptronRule(Rule):
    """The perceptron: w ← w + η·z at a mistake; its tie and the margin that every sample must exceed.

    Args:
        tie: ``"update"``: functional margin ≤ margin · ``"strict"``: functional margin < margin · ``"sign"``: the
            decision is wrong. The functional margin is y·s, or s_y − s_r against the strongest wrong class r.
        margin: the functional margin that every sample must exceed; 0 is the classic rule.
    """

    tie: str = "update"
    margin: float = 0.0

    @classmethod
    def checked(cls, tie: str, margin: float) -> PerceptronRule:
        """Return the rule if tie and margin go together."""
        rule = cls(check_choice("tie", tie, TIES), check_number("margin", margin, at_least=0))
        if rule.margin and tie == "sign":
            why = "has no effect with tie='sign', which looks at the decision only"
            raise ValueError(f"margin={margin} {why}; use tie='update' or tie='strict'")
        return rule

    def describe(self) -> dict[str, Any]:
        """Return tie and margin."""
        return dict(vars(self))

    def bound(self: Rule, squared_radius: float, gamma: float, lr: float = 1.0) -> float:
        """Return (R² + 2·margin/η)/γ²."""
        return (squared_radius + 2 * self.margin / lr) / gamma**2


def predicted_as(scores: Any, label: int, tie: int, margin: float, error: float) -> int:
    """Return the wrong class a sample is predicted as, or ``label`` if it is no mistake.

    The result is ``UNCLEAR`` if scores with an error of up to ``error`` each leave the decision open.

    Args:
        scores: one score for labels −1/+1, K scores for class indices; floats, or fractions with ``error=0``.
        label: the true label.
        tie: ``UPDATE``, ``SIGN`` or ``STRICT``, see :class:`PerceptronRule`.
        margin: the functional margin that every sample must exceed.
        error: the largest error of a score.

    Example:
        >>> predicted_as([0.0], 1, UPDATE, 0.0, 0.0), predicted_as([0.0], 1, SIGN, 0.0, 0.0)
        (-1, 1)
        >>> predicted_as([1.0, 5.0, 5.0], 0, UPDATE, 0.0, 0.0)
        1
        >>> predicted_as([1.0, 5.0, 5.0], 0, UPDATE, 0.0, 0.1) == UNCLEAR
        True
    """
    if len(scores) == 1:
        rival, margin_now, loses_tie = -label, label * scores[0], label < 0  # a score of 0 is decided as +1
    else:
        rival = -1
        for k in range(len(scores)):
            if k != label and (rival < 0 or scores[k] > scores[rival]):
                rival = k
        margin_now, loses_tie = scores[label] - scores[rival], rival < label  # equal scores: the lower index
    if margin_now > margin + 2 * error:
        return label
    if error != 0:
        if not margin_now < margin - 2 * error:  # or it is NaN
            return UNCLEAR
        for k in range(len(scores) if len(scores) > 1 else 0):
            if k != label and k != rival and not scores[rival] - scores[k] > 2 * error:
                return UNCLEAR  # which of two wrong classes is the strongest
    if margin_now < margin or tie == UPDATE or (tie == SIGN and loses_tie):
        return rival
    return label


class RoundingBound(NamedTuple):
    """A bound of the rounding error of a score: γ·(‖w‖·radius + |b|) + floor.

    Args:
        gamma: n·u/(1 − n·u) for sums of n products with unit roundoff u, in any order of summation.
        radius: at least the norm of the longest sample.
        floor: what products too small for the type add.
        limit: a quarter of the largest number of the type.
        exact: below this size, sums of integers are exact.
    """

    gamma: float
    radius: float
    floor: float
    limit: float
    exact: float

    @classmethod
    def of(cls, samples: Samples) -> RoundingBound:
        """Return the bound for scores of these samples in their own type."""
        about = torch.finfo(samples.dtype)
        unit = max(about.eps / 2, _matmul_roundoff() if about.bits == 32 else 0.0)
        relative = (samples.terms + 2) * unit
        gamma = 1.01 * relative / (1 - relative) if relative < 0.5 else math.inf  # 1 % for the bound's own rounding
        radius = math.sqrt(samples.max_squared_norm) * (1 + 1e-6) + 2.0**-536 * math.sqrt(samples.n_features)
        floor = (samples.terms + 2) * 4 * about.smallest_normal * about.eps
        return cls(gamma, radius, floor, about.max / 4, 1 / unit)

    def size(self, weight: Array, bias: Array) -> float:
        """Return an upper bound of |w|·|x| + |b| for these weights; 0 if all are 0."""
        flat = weight.reshape(-1)
        if not flat.any() and not bias.any():
            return 0.0
        norm = math.sqrt(flat @ flat) + 2.0**-536 * math.sqrt(flat.size)
        return norm * self.radius + float(np.abs(bias).max())

    def error(self, size: float) -> float:
        """Return the largest rounding error of a score of this size."""
        if size == 0.0:
            return 0.0
        return self.gamma * size + self.floor if size < self.limit else math.inf


def _matmul_roundoff() -> float:
    """Return the unit roundoff of matrix products in single precision, which is a setting of torch."""
    try:
        chosen = torch.get_float32_matmul_precision()
    except RuntimeError:  # the settings of one backend were changed by themselves
        chosen = "medium"
    return {"highest": 2.0**-24, "high": 2.0**-11}.get(chosen, 2.0**-8)


def decide_exactly(weight: Array, bias: Array, x: Array, label: int, rule: Rule, largest: float = math.inf) -> int:
    """Apply :func:`predicted_as` to the exact scores: weight (K, d), bias (K,), x (d,) in float64.

    A score above ``largest``, the largest number of the net's type, is an error.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        scores = weight @ x + bias
        size = float((np.abs(weight) @ np.abs(x) + np.abs(bias)).max())
    if not size <= largest or not math.isfinite(size):
        raise weights_overflow()
    terms = len(x) + 2
    error = 0.0 if size == 0.0 and not weight.any() else 1.01 * terms * (2.0**-53 * size + 2.0**-1070)
    found = predicted_as(scores.tolist(), label, rule.code, rule.margin, error)
    if found == UNCLEAR:
        exact = [Fraction(offset) for offset in bias.tolist()]
        for k, row in enumerate(weight.tolist()):
            exact[k] += sum(Fraction(a) * Fraction(b) for a, b in zip(x.tolist(), row, strict=True) if a and b)
        found = predicted_as(exact, label, rule.code, rule.margin, 0)
    return found


def host(values: Tensor) -> Array:
    """Return a tensor as a float64 array on the host."""
    array: Array = values.detach().cpu().double().numpy()
    return array
