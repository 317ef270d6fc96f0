"""The family of mistake-driven rules, and the problem by which they are trained; z and m are those of ``Rule``."""

from __future__ import annotations

import math
from collections import namedtuple
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from typing import Any

import numpy as np
import torch

from torchperc._checks import check_choice, check_number, weights_overflow
from torchperc.rules.decision import PerceptronRule, Rule
from torchperc.rules.problem import Array, Mistakes, Problem, Weights


@dataclass(frozen=True)
class UnevenMargins(Rule):
    """PAUM, the perceptron with a required margin for each label: w ← w + z where m ≤ τ₊, or m ≤ τ₋.

    A large τ₊ moves the boundary away from few positive samples. At most (R² + 2·max(τ₊, τ₋))/γ² updates. Li et al.,
    *The Perceptron Algorithm with Uneven Margins* (2002).

    Args:
        positive: τ₊, the margin of label +1.
        negative: τ₋, the margin of label −1.
    """

    positive: float = 1.0
    negative: float = 0.0
    refused = ("num_classes",)

    def __post_init__(self) -> None:
        check_number("positive", self.positive, at_least=0)
        check_number("negative", self.negative, at_least=0)

    def margins(self, y: Array, squared: Array) -> Array:
        """Return τ₊ or τ₋ by the label."""
        return np.where(y > 0, self.positive, self.negative)

    margin = property(lambda self: max(self.positive, self.negative))  # of which bounds speak
    bound = PerceptronRule.bound


@dataclass(frozen=True)
class PassiveAggressive(Rule):
    """PA: the smallest change to a margin of 1, w ← w + τ·z where the loss ℓ = 1 − m is positive.

    PA (``variant=None``): τ = ℓ/‖z‖² · PA-I: τ = min(C, ℓ/‖z‖²) · PA-II: τ = ℓ/(‖z‖² + 1/(2C)); τ times sample weight.
    Updates with m ≤ 0 are at most R²/γ², max(R², 1/C)/γ² and (R² + 1/(2C))/γ². Crammer et al., *Online
    Passive-Aggressive Algorithms* (2006).

    Args:
        C: how large an update may become: the smaller, the less noise matters.
        variant: ``"I"``, ``"II"``, or ``None`` for PA without C.

    Example:
        >>> import torchperc as tp
        >>> trainer = tp.RuleTrainer(1, rule=tp.rules.PassiveAggressive(variant=None))
        >>> trainer.fit(tp.Perceptron(1, bias=False), [[2.0], [-1.0]], [1, -1]).log.coef
        tensor([ 0.2500, -0.5000], dtype=torch.float64)
    """

    C: float = 1.0
    variant: str | None = "I"
    tie, margin = "strict", 1.0

    def __post_init__(self) -> None:
        check_number("C", self.C, above=0)
        if self.variant is not None:
            check_choice("variant", self.variant, ("I", "II"))
        elif self.C != 1.0:
            raise ValueError(f"C={self.C} has no effect with variant=None; use variant='I' or variant='II'")

    @property
    def parameters(self) -> tuple[float, ...]:
        """The largest coefficient, and what is added to ‖z‖²."""
        return (float(self.C) if self.variant == "I" else math.inf, 0.5 / self.C if self.variant == "II" else 0.0)

    @staticmethod
    def step(m: float, squared: float, norm: float, k: float, parameters: Any) -> tuple[float, float]:
        """Return τ and 1."""
        return min(parameters[0], (1.0 - m) / (squared + parameters[1])), 1.0

    def bound(self, squared_radius: float, gamma: float, lr: float = 1.0) -> float:
        """Return the bound of this variant."""
        largest, added = self.parameters
        return (max(squared_radius, 1 / largest) + added) / gamma**2


@dataclass(frozen=True)
class ROMMA(Rule):
    """ROMMA: the shortest w' with w'·z ≥ 1 and w'·w ≥ ‖w‖²; an update is made where m ≤ 0.

    w' = f·w + c·z with f = (‖z‖²·‖w‖² − m)/D, c = ‖w‖²·(1 − m)/D, D = ‖z‖²·‖w‖² − m². Where f ≤ 0, or no w' exists
    (D = 0), w' = z/‖z‖². At most (R/γ)² updates; where nothing separates the samples, w may grow without limit. Li and
    Long, *The Relaxed Online Maximum Margin Algorithm* (2002).
    """

    refused = ("sample_weight",)

    @staticmethod
    def step(m: float, squared: float, norm: float, k: float, parameters: Any) -> tuple[float, float]:
        """Return c and f."""
        both = squared * norm
        apart = both - m * m
        if both <= m or apart <= 1e-12 * both:
            return 1.0 / squared, 0.0
        return norm * (1.0 - m) / apart, (both - m) / apart

    def bound(self, squared_radius: float, gamma: float, lr: float = 1.0) -> float:
        """Return (R/γ)²."""
        return squared_radius / gamma**2


@dataclass(frozen=True)
class AggressiveROMMA(ROMMA):
    """:class:`ROMMA` with an update wherever m < 1, of which those with m ≤ 0 are at most (R/γ)²."""

    tie, margin = "strict", 1.0


@dataclass(frozen=True)
class ALMA(Rule):
    """ALMA₂, which reaches 1 − α of the largest margin γ̂ of ẑ = z/‖z‖.

    Update k, where m/‖z‖ ≤ (1 − α)·B/√k with B = √8/α: w ← w + √(2/k)·ẑ, and where then ‖w‖ > 1, w ← w/‖w‖. At most
    2/γ̂²·(2/α − 1)² + 8/α − 4 updates. Gentile, *A New Approximate Maximal Margin Classification Algorithm* (2001).

    Args:
        alpha: α, above 0 and at most 1; 1 asks for no margin.
    """

    alpha: float = 0.9
    counts, refused = True, ("sample_weight",)

    def __post_init__(self) -> None:
        if check_number("alpha", self.alpha, above=0) > 1:
            raise ValueError(f"alpha={self.alpha} must be at most 1, which asks for no margin")

    @staticmethod
    def step(m: float, squared: float, norm: float, k: float, parameters: Any) -> tuple[float, float]:
        """Return c and f, projection to length 1 included."""
        c = math.sqrt(2.0 / (k * squared))
        f = 1.0 / math.sqrt(max(1.0, norm + 2.0 * c * m + c * c * squared))
        return c * f, f

    def margins(self, y: Array, squared: Array) -> Array:
        """Return (1 − α)·B·‖z‖."""
        return np.asarray((1 - self.alpha) * math.sqrt(8) / self.alpha * np.sqrt(squared))

    def bound(self, squared_radius: float, gamma: float, lr: float = 1.0) -> float:
        """Return the bound with γ/R, which is at most γ̂."""
        return 2 * squared_radius / gamma**2 * (2 / self.alpha - 1) ** 2 + 8 / self.alpha - 4


RULES = {
    kind.__name__: kind for kind in (PerceptronRule, UnevenMargins, PassiveAggressive, ROMMA, AggressiveROMMA, ALMA)
}


def check_rule(rule: Any) -> Rule:
    """Return a rule, or make one of torchperc's from its name or from ``Rule.describe()["rule"]``."""
    if isinstance(rule, Rule):
        return PerceptronRule.checked(**vars(rule)) if isinstance(rule, PerceptronRule) else rule
    name, options = (rule.get("class_path"), rule.get("init_args")) if isinstance(rule, Mapping) else (rule, None)
    name = check_choice("rule", name.removeprefix("torchperc.rules.") if isinstance(name, str) else name, tuple(RULES))
    return check_rule(RULES[name](**(options or {})))


def check_supported(trainer: Any, net: Any, problem: Problem, start: Any, ids: Array) -> None:
    """Refuse what the trainer's rule cannot learn by or from."""
    rule, weights, fits = trainer.rule, problem.sample_weight[ids], type(problem) is RuleProblem
    first, squared = float(weights[(weights != 1.0).argmax()]), problem.squared[ids] if fits else weights
    refused = {
        f"lr={trainer.lr}": trainer.lr != 1.0,
        f"sample_weight={first:g}": first != 1.0 and "sample_weight" in rule.refused,
        f"num_classes={problem.num_classes}": problem.num_classes is not None and "num_classes" in rule.refused,
        f"engine={trainer.engine!r}": callable(trainer.engine),
        f"kernel={trainer.kernel and trainer.kernel.name!r}": trainer.kernel is not None,
        f"distributed={trainer.distributed!r}": trainer.distributed is not None,
        f"a {type(net).__name__}": not fits,
        f"engine={trainer.engine!r} on this type or device": not problem.can_compile,
        "a sample of length 0 or infinite length": fits and not 0 < squared.min() <= squared.max() < np.inf,
        "a bias without a bias step": fits and not problem.bias_step and start.bias.any(),
    }
    for option in (text for text, found in refused.items() if found):
        raise ValueError(f"{option} cannot be used with rule={rule}; leave it out, or use another rule")


_tuple: Any = namedtuple  # of fields that mypy cannot read
ScaledMistake = _tuple("ScaledMistake", (*Mistakes._fields, "factor"))


class ScaledMistakes(ScaledMistake):  # type: ignore[misc, valid-type]
    """:class:`Mistakes` with a column ``factor``, by which each update multiplied the weights first."""

    entry, rows, part, moved = ScaledMistake, Mistakes.rows, Mistakes.part, Mistakes.moved

    def carried(self, lasted: Array) -> Array:
        """Return Σ_{t ≥ j} lasted_t·Π_{j < l ≤ t} f_l of every state j."""
        pairs = zip(self.factor[::-1].tolist(), lasted[-2::-1].tolist(), strict=True)
        backwards = accumulate(pairs, lambda after, pair: pair[1] + pair[0] * after, initial=float(lasted[-1]))
        return np.array(list(backwards))[::-1]


@dataclass(frozen=True, eq=False)
class RuleProblem(Problem):
    """A :class:`Problem` of another rule than the perceptron.

    Rounded scores decide. Where a margin is to be reached, it may be missed by rounding.
    """

    rule: Rule

    @cached_property
    def required(self) -> Array:
        """The required margin of each sample before it is divided by √k, and less rounding if it is to be reached."""
        rounding = max(1e-12, 8 * torch.finfo(self.samples.dtype).eps) if self.rule.tie == "strict" else 0.0
        return self.rule.margins(self.y, self.squared) - rounding

    def present(self, weights: Weights, ids: Array, in_python: bool = False) -> Any:
        """Present samples in order to the rule, in a compiled loop or in Python: an engine."""
        from torchperc.rules import loops

        learn, step = loops.learn_by_rule, self.rule.step
        learn, step = (learn.py_func, step) if in_python else (learn, loops.compiled_step(step))
        (at, predicted), (coefs, factors) = np.empty((2, len(ids)), np.int64), np.empty((2, len(ids)))
        of_each = (self.y, self.step_sizes, self.required, self.squared)
        rule = (self.rule.code, self.rule.counts, step, np.array(self.rule.parameters, float))
        state = (self.norm(weights) ** 2, float(self.made[0] + 1), at, predicted, coefs, factors)
        data = (self.samples.loop_arrays(), ids, *of_each, *self.loop_weights(weights), self.bias_step)
        with np.errstate(all="ignore"):  # an overflow is an error below
            made = learn(*data, *rule, *state)
        if made < 0:
            raise weights_overflow()
        self.made[0] += made
        found = ScaledMistakes(ids[at[:made]], *(column[:made].copy() for column in (at, coefs, predicted, factors)))
        if not (found.coef >= 0).all():
            raise ValueError(f"rule={self.rule} must return c ≥ 0, found {found.coef.min()}")
        return found if self.num_classes else found._replace(coef=-found.predicted * found.coef)

    def mistakes(self, weights: Weights, rule: Rule | None = None) -> Array:
        """Return which training samples are mistakes now: bool (N,)."""
        if rule is not None:
            return super().mistakes(weights, rule)
        required = self.required / math.sqrt(self.made[0] + 1) if self.rule.counts else self.required
        compare = np.less if self.rule.tie == "strict" else np.less_equal
        return np.asarray(compare(self.functional_margins(weights), required))

    def from_columns(self, columns: dict[str, Array]) -> Any:
        """Return mistakes from :meth:`columns`."""
        return ScaledMistakes(**{"factor": np.empty(0), **columns})
