"""Engines present samples to the rule; all make the same mistakes. ``reference`` is the specification."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from torchperc.rules.decision import RoundingBound
from torchperc.rules.family import RuleProblem
from torchperc.rules.problem import Array, Mistake, Mistakes, Problem, Weights

Engine: TypeAlias = Callable[[Any, Any, Array], Mistakes]
"""(problem, weights, numbers of the samples to present) → mistakes; the weights are changed in place."""


def reference(problem: Problem, weights: Weights, ids: Array) -> Mistakes:
    """Present samples in order and learn from each mistake: the perceptron rule in plain torch, on any device.

    Args:
        problem: what to learn.
        weights: where to begin; they are changed in place.
        ids: the numbers of the samples to present.
    """
    found = []
    for position, i in enumerate(ids.tolist()):
        predicted = problem.predict(weights, i)  # by the score w·x + b: the label, or the strongest wrong class
        if predicted != problem.y[i]:  # a mistake: w ← w + η·y·x, b ← b + η·y·β
            problem.update(weights, i, predicted, size=float(problem.step_sizes[i]))
            found.append(Mistake(i, position, float(problem.coef(i)), predicted))
    return Mistakes.of(found)


class LoopSettings(NamedTuple):
    """Settings of the compiled loops besides samples, labels and step sizes.

    Args:
        bias_step: the bias step for a step size of 1.
        tie: ``UPDATE``, ``SIGN`` or ``STRICT``.
        margin: the functional margin that every sample must exceed.
        bound: the bound of the rounding error of a score.
        growth: by how much an update raises a score at most.
        refresh: the number of mistakes after which the norm of the weights is computed anew.
    """

    bias_step: float
    tie: int
    margin: float
    bound: RoundingBound
    growth: float
    refresh: int

    @classmethod
    def of(cls, problem: Problem) -> LoopSettings:
        """Return the settings for a problem."""
        bound, samples = problem.bound, problem.samples
        farthest = 1.5 * bound.radius**2 + problem.bias_step  # √2 < 1.5 where two classes move
        growth = float(problem.step_sizes.max()) * farthest
        refresh = max(64, problem.outputs * samples.n_features // samples.terms)
        return cls(problem.bias_step, problem.rule.code, problem.rule.margin, bound, growth, refresh)


def compiled(problem: Problem, weights: Weights, ids: Array) -> Mistakes:
    """Present samples in order in a compiled loop; ties that float64 cannot decide go to ``reference``."""
    from torchperc.rules import loops  # which loads numba

    learn = loops.learn_two if problem.num_classes is None else loops.learn_classes
    data = (problem.samples.loop_arrays(), ids, problem.y, problem.step_sizes)
    state = (*problem.loop_weights(weights), LoopSettings.of(problem))
    at, predicted = problem.scratch if len(ids) <= len(problem.y) else np.empty((2, len(ids)), np.int64)
    position, made = 0, 0
    while True:
        position, made = learn(*data, *state, position, at, predicted, made)
        if position == len(ids):
            break
        mistake = reference(problem, weights, ids[position : position + 1])
        if len(mistake.sample):
            at[made], predicted[made] = position, mistake.predicted[0]
            made += 1
        position += 1
    sample, wrong = ids[at[:made]], predicted[:made].copy()
    size = problem.step_sizes[sample]  # −wrong is y of labels −1/+1, at hand without another look at y
    return Mistakes(sample, at[:made].copy(), size if problem.num_classes is not None else -wrong * size, wrong)


def choose_engine(engine: str | Engine, problem: Problem) -> Engine:
    """Return the engine by name, or the user's function; ``"auto"`` compiles where possible."""
    if callable(engine):
        return partial(_own, engine)
    if engine == "compiled" and not problem.can_compile:
        raise ValueError(
            "engine='compiled' is for linear nets (not kernels and joint features) in float32 or float64 on the CPU, "
            f"found {problem.samples.dtype} on {problem.samples.device}; use engine='auto'"
        )
    own = type(problem).own_engine
    if own is not None and (engine != "reference" or not problem.can_compile):
        return own
    if isinstance(problem, RuleProblem):
        return partial(RuleProblem.present, in_python=engine == "reference")
    return compiled if problem.can_compile and engine != "reference" else reference


def _own(engine: Engine, problem: Problem, weights: Weights, ids: Array) -> Mistakes:
    """Present samples by an engine of the user's, and check what it returns."""
    found = engine(problem, weights, ids)
    if not isinstance(found, Mistakes):
        raise TypeError(f"engine={engine!r} must return Mistakes, found {type(found).__name__}; see docs/extend.md")
    rising = (np.diff(found.step, prepend=-1, append=len(ids)) > 0).all()
    if not rising or not np.array_equal(found.sample, ids[found.step]):
        what = "must return mistakes with rising step, from 0 in each call, whose sample is ids[step]"
        raise ValueError(f"engine={engine!r} {what}; see docs/extend.md")
    return found
