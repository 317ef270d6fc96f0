"""Rules that learn from mistakes, and the problem by which any of them is trained.

A rule adds c·z to the weights, where z = y·φ, or φ in block y minus φ in the block of the strongest wrong class r, and
φ = (x, √β) for a bias step of β. So m = w·z is the functional margin, and all formulas hold for two and for K classes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from functools import cache, cached_property
from itertools import accumulate
from typing import Any, ClassVar, NamedTuple

import numpy as np

from torchperc._checks import check_bool, check_choice, check_number
from torchperc.nn.functional import TIES
from torchperc.rules.decision import PerceptronRule, host
from torchperc.rules.engines import LoopSettings
from torchperc.rules.problem import Array, Mistakes, Problem, Weights

_LARGEST_SCALE = 2.0**20
_LANES = 8  # of a sum in one order everywhere, as in the compiled loop


class Rule:
    """When a sample leads to an update w ← f·w + c·z, with which coefficient c and which factor f.

    A rule of your own is a frozen dataclass that inherits from this class: :meth:`step` at least, and what of the rest
    differs. Its log, averages, votes, engines and estimators are those of all rules.

    Attributes:
        tie: ``"update"``: an update is made where m ≤ margin · ``"strict"``: where m < margin.
        margin: the required functional margin, unless :meth:`margins` says otherwise.
        shrinks: whether some factor f is not 1; the log then has a fifth column, ``factor``.
        counts: whether the rule counts its updates; the required margins are then divided by √k before update k.
        refused: options that have no meaning: ``"lr"``, ``"sample_weight"``, ``"num_classes"``.
        bounds_updates: whether :meth:`bound` counts updates; else those with m ≤ 0 only.
    """

    tie: str = "update"
    margin: float = 0.0
    shrinks: bool = False
    counts: bool = False
    refused: tuple[str, ...] = ("lr",)
    bounds_updates: bool = True

    @property
    def parameters(self) -> Sequence[float]:
        """The numbers that :meth:`step` needs."""
        return ()

    @staticmethod
    def step(m: float, squared: float, norm: float, k: float, parameters: Sequence[float]) -> tuple[float, float]:
        """Return c and f of an update; compiled by numba, so plain arithmetic.

        Args:
            m: the functional margin.
            squared: ‖z‖².
            norm: ‖w‖².
            k: the number of this update, from 1.
            parameters: those of the rule.
        """
        raise NotImplementedError

    def margins(self, y: Array, squared: Array) -> Array:
        """Return the required margin of each sample, given the labels and ‖z‖²: (N,)."""
        return np.full(len(y), self.margin)

    def bound(self, squared_radius: float, gamma: float, lr: float = 1.0) -> float:
        """Return the maximum number of mistakes on data with margin γ and ‖z‖² ≤ R²; infinite if none is proved."""
        return math.inf

    def describe(self) -> dict[str, Any]:
        """Return the rule as plain data."""
        return {"rule": described(self)}

    @property
    def code(self) -> int:
        """The tie as compiled loops know it."""
        return TIES.index(self.tie)


@dataclass(frozen=True)
class UnevenMargins(Rule):
    """PAUM, the perceptron with a required margin for each label: w ← w + η·z where m ≤ τ₊, or m ≤ τ₋.

    A large τ₊ moves the boundary away from few positive samples. At most (R² + 2·max(τ₊, τ₋)/η)/γ² updates. Li et al.,
    *The Perceptron Algorithm with Uneven Margins* (2002).

    Args:
        positive: τ₊, the margin of label +1.
        negative: τ₋, the margin of label −1.

    Example:
        >>> import torchperc as tp
        >>> rule = tp.rules.UnevenMargins(positive=2.0, negative=0.5)
        >>> tp.RuleTrainer(rule=rule).fit(tp.Perceptron(2), *tp.data.gate("AND")).verdict.name
        'SEPARATED'
    """

    positive: float = 1.0
    negative: float = 0.0
    refused = ("num_classes",)

    def __post_init__(self) -> None:
        check_number("positive", self.positive, at_least=0)
        check_number("negative", self.negative, at_least=0)

    @staticmethod
    def step(m: float, squared: float, norm: float, k: float, parameters: Sequence[float]) -> tuple[float, float]:
        """Return a coefficient of 1, which the learning rate multiplies."""
        return 1.0, 1.0

    def margins(self, y: Array, squared: Array) -> Array:
        """Return τ₊ or τ₋ by the label."""
        return np.where(y > 0, float(self.positive), float(self.negative))

    def bound(self, squared_radius: float, gamma: float, lr: float = 1.0) -> float:
        """Return the bound of the class."""
        return (squared_radius + 2 * max(self.positive, self.negative) / lr) / gamma**2


@dataclass(frozen=True)
class PassiveAggressive(Rule):
    """PA: the smallest change to a margin of 1, w ← w + τ·z where the loss ℓ = 1 − m > 0.

    PA (``variant=None``): τ = ℓ/‖z‖² · PA-I: τ = min(C, ℓ/‖z‖²) · PA-II: τ = ℓ/(‖z‖² + 1/(2C)). Updates with m ≤ 0 are at
    most R²/γ² · max(R², 1/C)/γ² · (R² + 1/(2C))/γ². Sample weights multiply τ. Crammer et al., *Online Passive-Aggressive
    Algorithms* (2006).

    Args:
        C: how large an update may become: the smaller, the less noise matters.
        variant: ``"I"``, ``"II"``, or ``None`` for PA without C.

    Example:
        >>> import torchperc as tp
        >>> rule, net = tp.rules.PassiveAggressive(variant=None), tp.Perceptron(1, bias=False)
        >>> tp.RuleTrainer(1, rule=rule).fit(net, [[2.0], [-1.0]], [1, -1]).log.coef
        tensor([ 0.2500, -0.5000], dtype=torch.float64)
    """

    C: float = 1.0
    variant: str | None = "I"
    tie, margin, bounds_updates = "strict", 1.0, False

    def __post_init__(self) -> None:
        check_number("C", self.C, above=0)
        if self.variant is not None:
            check_choice("variant", self.variant, ("I", "II"))
        elif self.C != 1.0:
            raise ValueError(f"C={self.C} has no effect with variant=None; use variant='I' or variant='II'")

    @property
    def parameters(self) -> Sequence[float]:
        """The largest coefficient, and what is added to ‖z‖²."""
        return float(self.C) if self.variant == "I" else math.inf, 0.5 / self.C if self.variant == "II" else 0.0

    @staticmethod
    def step(m: float, squared: float, norm: float, k: float, parameters: Sequence[float]) -> tuple[float, float]:
        """Return τ and 1."""
        return min(parameters[0], max(0.0, 1.0 - m) / (squared + parameters[1])), 1.0

    def bound(self, squared_radius: float, gamma: float, lr: float = 1.0) -> float:
        """Return the bound of the class, for wrong decisions."""
        largest, more = self.parameters
        return (max(squared_radius, 1 / largest) + more) / gamma**2


@dataclass(frozen=True)
class ROMMA(Rule):
    """ROMMA: the shortest w' with w'·z ≥ 1 and w'·w ≥ ‖w‖², in place of all margins so far.

    w' = f·w + c·z with f = (‖z‖²·‖w‖² − m)/D, c = ‖w‖²·(1 − m)/D, D = ‖z‖²·‖w‖² − m². Where f ≤ 0, or no w' exists
    (D = 0), w' = z/‖z‖². An update is made where m ≤ 0, if aggressive where m < 1; those with m ≤ 0 are at most (R/γ)². Li
    and Long, *The Relaxed Online Maximum Margin Algorithm* (2002).

    Args:
        aggressive: whether each margin below 1 leads to an update.

    Example:
        >>> import torchperc as tp
        >>> rule, net = tp.rules.ROMMA(aggressive=True), tp.Perceptron(2, bias=False)
        >>> log = tp.RuleTrainer(1, rule=rule).fit(net, [[1.0, 0.0], [0.0, -1.0]], [1, -1]).log
        >>> log.mistakes.factor, net.weight.data
        (array([0., 1.]), tensor([[1., 1.]]))
    """

    aggressive: bool = False
    shrinks, refused = True, ("lr", "sample_weight")

    def __post_init__(self) -> None:
        check_bool("aggressive", self.aggressive)
        if self.aggressive:
            vars(self).update(tie="strict", margin=1.0, bounds_updates=False)

    @staticmethod
    def step(m: float, squared: float, norm: float, k: float, parameters: Sequence[float]) -> tuple[float, float]:
        """Return c and f."""
        both = squared * norm
        apart = both - m * m
        if both <= m or apart <= 1e-12 * both:
            return 1.0 / squared, 0.0
        return norm * max(0.0, 1.0 - m) / apart, (both - m) / apart

    def bound(self, squared_radius: float, gamma: float, lr: float = 1.0) -> float:
        """Return (R/γ)²."""
        return squared_radius / gamma**2


@dataclass(frozen=True)
class ALMA(Rule):
    """ALMA₂, which reaches 1 − α of the largest margin γ̂ of samples of length 1: ẑ = z/‖z‖.

    Update k, where m/‖z‖ ≤ (1 − α)·B/√k with B = √8/α: w ← w + √(2/k)·ẑ, and if ‖w‖ > 1, w ← w/‖w‖. At most
    2/γ̂²·(2/α − 1)² + 8/α − 4 updates. Gentile, *A New Approximate Maximal Margin Classification Algorithm* (2001).

    Args:
        alpha: α, above 0 and at most 1; 1 asks for no margin.

    Example:
        >>> import torchperc as tp
        >>> X, y = tp.data.separable_blobs(100, margin=0.5, seed=0)
        >>> net = tp.Perceptron(2, dtype=X.dtype)
        >>> tp.RuleTrainer(1000, rule=tp.rules.ALMA(alpha=0.5)).fit(net, X, y).verdict.name
        'SEPARATED'
    """

    alpha: float = 0.9
    shrinks, counts, refused = True, True, ("lr", "sample_weight")

    def __post_init__(self) -> None:
        if check_number("alpha", self.alpha, above=0) > 1:
            raise ValueError(f"alpha={self.alpha} must be at most 1, which asks for no margin")

    @staticmethod
    def step(m: float, squared: float, norm: float, k: float, parameters: Sequence[float]) -> tuple[float, float]:
        """Return c and f, of the update and of the projection to length 1."""
        c = math.sqrt(2.0 / (k * squared))
        f = 1.0 / math.sqrt(max(1.0, norm + 2.0 * c * m + c * c * squared))
        return c * f, f

    def margins(self, y: Array, squared: Array) -> Array:
        """Return (1 − α)·B·‖z‖."""
        found: Array = (1 - self.alpha) * math.sqrt(8) / self.alpha * np.sqrt(squared)
        return found

    def bound(self, squared_radius: float, gamma: float, lr: float = 1.0) -> float:
        """Return the bound of the class; γ/R is a margin of the samples of length 1."""
        return 2 * squared_radius / gamma**2 * (2 / self.alpha - 1) ** 2 + 8 / self.alpha - 4


KNOWN = {kind.__name__: kind for kind in (PerceptronRule, UnevenMargins, PassiveAggressive, ROMMA, ALMA)}
_HOME = "torchperc.rules."


def described(rule: Any) -> dict[str, Any]:
    """Return a rule as plain data: the path of its class, and its arguments."""
    known = KNOWN.get(type(rule).__name__) is type(rule)
    home = _HOME if known else f"{type(rule).__module__}."
    options = rule._asdict() if isinstance(rule, PerceptronRule) else asdict(rule)
    return {"class_path": f"{home}{type(rule).__qualname__}", "init_args": options}


def check_rule(rule: Any) -> Any:
    """Return a rule, or make one from its name or from plain data; only those of torchperc are made."""
    if isinstance(rule, PerceptronRule):
        return PerceptronRule.checked(*rule)
    if isinstance(rule, Rule):
        return rule
    name, options = (rule.get("class_path"), rule.get("init_args")) if isinstance(rule, Mapping) else (rule, None)
    if not isinstance(name, str):
        raise TypeError(f"rule must be a rule or one of {', '.join(KNOWN)}, found {rule!r}")
    return check_rule(KNOWN[check_choice("rule", name.removeprefix(_HOME), tuple(KNOWN))](**(options or {})))


class ShrinkingMistake(NamedTuple):
    """A :class:`Mistake` before whose update the weights were multiplied by ``factor``."""

    sample: int
    step: int
    coef: float
    predicted: int
    factor: float


class ShrinkingMistakes(NamedTuple):
    """:class:`Mistakes` with a column ``factor``, by which each multiplied the weights before it added to them."""

    sample: Array
    step: Array
    coef: Array
    predicted: Array
    factor: Array

    entry = ShrinkingMistake
    rows, part, moved = Mistakes.rows, Mistakes.part, Mistakes.moved  # type: ignore[assignment]


@cache
def _compiled_step(step: Callable[..., Any]) -> Any:
    """Return a rule's step as compiled loops can call it: whichever it is, they stay the same."""
    from numba import cfunc, types

    number, numbers = types.float64, types.Array(types.float64, 1, "C")
    kind = types.UniTuple(number, 2)(number, number, number, number, numbers)
    return cfunc(kind, cache=step.__module__ == __name__, error_model="numpy")(step)


def _sum_in_order(terms: Array) -> float:
    """Return Σ terms, added in the order of the compiled loop: eight sums in turn, then what is left."""
    whole = len(terms) - len(terms) % _LANES
    a, b, c, d, e, f, g, h = terms[:whole].reshape(-1, _LANES).cumsum(0)[-1].tolist() if whole else [0.0] * _LANES
    rest = terms[whole:].cumsum()[-1].item() if whole < len(terms) else 0.0
    return float(((a + b) + (c + d)) + ((e + f) + (g + h)) + rest)


@dataclass(frozen=True, eq=False)
class RuleProblem(Problem):
    """A :class:`Problem` whose coefficients depend on the scores, by any :class:`Rule`.

    While samples are presented, the weights are a·v: an update changes a, and v at the features of the sample. ``made``
    is the number of updates before. Sums of a score's terms have one order, so that all engines have one log.
    """

    rule: Any
    made: Array = field(default_factory=lambda: np.zeros(1, np.int64), kw_only=True)

    @cached_property
    def squared(self) -> Array:
        """‖z‖² of each sample: (N,)."""
        return (host(self.samples.squared_norms()) + self.bias_step) * (1 if self.num_classes is None else 2)

    @cached_property
    def required(self) -> Array:
        """The required margin of each sample, before it is divided by √k: (N,)."""
        return np.ascontiguousarray(self.rule.margins(self.y, self.squared), dtype=np.float64)

    def count_from(self, made: int) -> None:
        """Continue after this number of updates."""
        self.made[0] = made

    def _begin(self, weights: Weights) -> Array:
        """Return a, ‖w‖² and the number k of the next update."""
        return np.array([1.0, self.norm(weights) ** 2, self.made[0] + 1.0])

    def _end(self, weights: Weights, state: Array) -> None:
        """Multiply v by a, so that the weights are what they are."""
        self.made[0] = int(state[2]) - 1
        _multiply(weights, float(state[0]))

    def reference(self, weights: Weights, ids: Array, begun: Array | None = None) -> Any:
        """Present samples in order to the rule, in plain torch on any device: what the compiled loop does.

        ``begun`` is the state of a pass in progress, which is changed in place.
        """
        state, found, rule = self._begin(weights) if begun is None else begun, [], self.rule
        for position, i in enumerate(ids.tolist()):
            a, norm, k = state.tolist()
            required = self.required[i] * ((1.0 / math.sqrt(k) if rule.counts else 1.0) / a)
            predicted, label = self.predict(weights, i, PerceptronRule(rule.tie, float(required))), int(self.y[i])
            if predicted == label:
                continue
            m, squared = a * self._margin(weights, i, predicted), float(self.squared[i])
            c, f = rule.step(m, squared, norm, k, rule.parameters)
            if c == 0.0 and f == 1.0:
                continue
            c *= float(self.step_sizes[i])
            a *= f
            if f != 1.0 and not 1 / _LARGEST_SCALE < a < _LARGEST_SCALE:
                _multiply(weights, a)
                a = 1.0
            self.update(weights, i, predicted, c / a)
            state[:] = a, max(0.0, f * f * norm + 2.0 * f * c * m + c * c * squared), k + 1
            found.append((i, position, c * label if self.num_classes is None else c, predicted, f))
        if begun is None:
            self._end(weights, state)
        return self._columns(*(np.array(column) for column in zip(*found, strict=True)) if found else [np.empty(0)] * 5)

    def compiled(self, weights: Weights, ids: Array) -> Any:
        """Present samples in order in a compiled loop; what float64 cannot decide goes to :meth:`reference`."""
        from torchperc.rules import loops

        state, count = self._begin(weights), len(ids)
        at, predicted = np.empty((2, count), np.int64)
        changes = np.empty((2, count))
        settings = LoopSettings.of(self)._replace(growth=1.5 * self.bound.radius**2 + self.bias_step)
        rule = (_compiled_step(type(self.rule).step), np.array(self.rule.parameters, float), self.rule.counts)
        data = (self.samples.loop_arrays(), ids, self.y, self.step_sizes, self.required, self.squared)
        position, made = 0, 0
        while True:
            given = (*self.loop_weights(weights), settings, *rule, state, position, at, predicted, changes, made)
            position, made = loops.learn_by_rule(*data, *given)
            if position == count:
                break
            one = self.reference(weights, ids[position : position + 1], state)
            if len(one.sample):
                at[made], predicted[made], factor = position, one.predicted[0], getattr(one, "factor", np.ones(1))
                changes[:, made] = abs(one.coef[0]), factor[0]
                made += 1
            position += 1
        self._end(weights, state)
        sample, (coefs, factors) = ids[at[:made]], changes[:, :made]
        signed = coefs * (self.y[sample] if self.num_classes is None else 1)
        return self._columns(sample, at[:made].copy(), signed, predicted[:made].copy(), factors.copy())

    def _columns(self, sample: Array, step: Array, coef: Array, predicted: Array, factor: Array) -> Any:
        columns = (sample.astype(np.int64), step.astype(np.int64), coef.astype(float), predicted.astype(np.int64))
        return ShrinkingMistakes(*columns, factor.astype(float)) if self.rule.shrinks else Mistakes(*columns)

    def _margin(self, weights: Weights, i: int, predicted: int) -> float:
        """Return the functional margin in float64, summed in the order of the compiled loop."""
        columns, x = self.samples.row(i)
        weight, bias, label = *map(host, weights), int(self.y[i])
        if self.num_classes is None:
            return label * (_sum_in_order(x * weight[0, columns]) + float(bias[0]))
        own, wrong = (_sum_in_order(x * weight[k, columns]) + float(bias[k]) for k in (label, predicted))
        return own - wrong

    def mistakes(self, weights: Weights, rule: PerceptronRule | None = None) -> Array:
        """Return which training samples would lead to an update now, near ties decided exactly: bool (N,)."""
        if rule is not None:
            return super().mistakes(weights, rule)
        required = self.required / (math.sqrt(self.made[0] + 1.0) if self.rule.counts else 1.0)
        apart = self.functional_margins(weights) - required
        found = apart < 0
        for i in np.flatnonzero(~(np.abs(apart) > 2 * self.score_error(weights, self.samples) + 1e-15)).tolist():
            found[i] = self.predict(weights, i, PerceptronRule(self.rule.tie, float(required[i]))) != self.y[i]
        return found

    def digest(self, weights: Sequence[Any]) -> str:
        """Return a hash of the weights, and of the number of updates where it matters."""
        return f"{super().digest(weights)}{self.made[0] if self.rule.counts else ''}"

    # --- logs of rules that shrink old weights ---

    def redo(self, weights: Weights, mistake: Any) -> None:
        """Make the update of a mistake again in place."""
        _multiply(weights, getattr(mistake, "factor", 1.0))
        super().redo(weights, mistake)

    def replay(self, weights: Weights, mistakes: Any) -> None:
        """Make the updates of these mistakes again in place; rounded as in training, or in float64 if some shrink."""
        if not self.rule.shrinks:
            super().replay(weights, mistakes)
            return
        once = mistakes._replace(step=np.zeros_like(mistakes.step))
        for values, total in zip(weights, self.total(weights, once, 1), strict=True):
            values.copy_(total)

    def total(self, start: Weights, mistakes: Any, steps: int) -> Weights:
        """Return the float64 sum of the weights over ``steps`` steps."""
        if not self.rule.shrinks:
            return super().total(start, mistakes, steps)
        lasted = np.diff(mistakes.step, prepend=0, append=steps)  # for how many steps there were the weights of each state
        carried = _carried(mistakes.factor, lasted)
        flat = Mistakes(mistakes.sample, np.zeros_like(mistakes.step), mistakes.coef * carried[1:], mistakes.predicted)
        return super().total(Weights(*(values.double() * carried[0] for values in start)), flat, 1)

    def dual(self, mistakes: Any) -> Array:
        """Return the coefficients as they are in the end, summed by sample: (N, 1), or (N, K)."""
        if hasattr(mistakes, "factor"):
            last = np.append(np.zeros(len(mistakes.sample)), 1.0)
            mistakes = mistakes._replace(coef=mistakes.coef * _carried(mistakes.factor, last)[1:])
        return super().dual(mistakes)

    def from_columns(self, columns: dict[str, Array]) -> Any:
        """Return mistakes from :meth:`columns`."""
        factor = np.ones(len(columns["sample"]))
        return ShrinkingMistakes(**{"factor": factor, **columns}) if self.rule.shrinks else Mistakes(**columns)


def _multiply(weights: Weights, factor: float) -> None:
    """Multiply weights in place, on any device alike."""
    for values in weights if factor != 1.0 else ():
        values.mul_(factor)


def _carried(factor: Array, lasted: Array) -> Array:
    """Return Σ_{t ≥ j} lasted_t·Π_{j < l ≤ t} f_l for every state j: what its weights add to a sum over all states."""
    pairs = zip(factor[::-1].tolist(), lasted[-2::-1].tolist(), strict=True)
    backwards = accumulate(pairs, lambda after, pair: pair[1] + pair[0] * after, initial=float(lasted[-1]))
    return np.array(list(backwards))[::-1]
