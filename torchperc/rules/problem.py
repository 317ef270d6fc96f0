"""What the rule learns: samples, labels, step sizes and conventions, and what an update does to the weights."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import torch
from torch import Tensor

from torchperc._checks import Data, numpy_view
from torchperc.rules.decision import PerceptronRule, RoundingBound, decide_exactly, host
from torchperc.rules.models import LinearModel, Model
from torchperc.samples.dense import Samples, compilable
from torchperc.samples.mapped import as_samples
from torchperc.theory.weights import column_major, weights_norm

Array: TypeAlias = "np.ndarray[Any, Any]"
CLASSIC = PerceptronRule()
_BLOCK, _STATES = 1024, 256  # samples and states that are decided together


class Mistake(NamedTuple):
    """At ``step`` (samples seen before), ``sample`` was ``predicted`` wrongly and added ``coef`` times."""

    sample: int
    step: int
    coef: float
    predicted: int


class Mistakes(NamedTuple):
    """Mistakes as columns, see :class:`Mistake`: int64 but for ``coef``, which is float64."""

    sample: Array
    step: Array
    coef: Array
    predicted: Array

    @classmethod
    def of(cls, entries: Sequence[Mistake]) -> Mistakes:
        """Return columns from single mistakes."""
        sample, step, coef, predicted = zip(*entries, strict=True) if entries else ((), (), (), ())
        integers = [np.array(values, np.int64) for values in (sample, step, predicted)]
        return cls(integers[0], integers[1], np.array(coef, np.float64), integers[2])

    @classmethod
    def joined(cls, parts: Sequence[Mistakes]) -> Mistakes:
        """Return the mistakes of several parts, one after the other."""
        if len(parts) == 1:
            return parts[0]
        return cls(*map(np.concatenate, zip(*parts, strict=True))) if parts else cls.of(())

    def part(self, first: int, end: int) -> Mistakes:
        """Return mistakes ``first`` to ``end`` − 1."""
        return Mistakes(*(column[first:end] for column in self))

    def moved(self, samples: int, steps: int) -> Mistakes:
        """Return the same mistakes with larger sample numbers and later steps."""
        sample = self.sample + samples if samples else self.sample
        return self._replace(sample=sample, step=self.step + steps if steps else self.step)


class Weights(NamedTuple):
    """The numbers that the rule moves: weight (K, d) and bias (K,); K = 1 for labels −1/+1."""

    weight: Tensor
    bias: Tensor

    def clone(self) -> Weights:
        """Return a copy, laid out in memory as the original."""
        return Weights(*map(_copy, self))

    def scaled(self, factor: float) -> Weights:
        """Return the weights times a number; for 1, these weights themselves."""
        if factor == 1.0:
            return self
        return Weights(*(torch.as_tensor(numpy_view(values) * factor) for values in self))

    @property
    def any_nonzero(self) -> bool:
        """Whether some weight is not 0."""
        return any(bool(numpy_view(values).any()) for values in self)

    def equal(self, other: Weights) -> bool:
        """Return whether all numbers are the same."""
        return all(map(torch.equal, self, other))

    def state_dict(self) -> dict[str, Tensor]:
        """Return copies of the weights on the CPU, by name."""
        return {name: values.detach().cpu().clone() for name, values in self._asdict().items()}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Take over weights from a :meth:`state_dict`."""
        for name, values in self._asdict().items():
            values.copy_(state[name])


def _copy(values: Tensor) -> Tensor:
    own = numpy_view(values)
    return own.clone() if isinstance(own, Tensor) else torch.from_numpy(own.copy(order="K"))


@dataclass(frozen=True, eq=False)
class Problem:
    """Everything that an update needs to know, and what updates do to the weights of a linear net.

    Args:
        samples: the training samples.
        y: labels −1/+1, or class indices: int64 (N,).
        num_classes: K, or ``None`` for labels −1/+1.
        sample_weight: sample weight times class weight: float64 (N,); 0 leaves a sample out.
        steps: the step size of each sample's update: float64 (N,).
        rule: what is a mistake.
        bias_step: the step of the bias for a step size of 1.
        scale: a factor of all models. From zero weights the learning rate only scales the result, so the rule learns
            with steps of 1, exactly in integers, and models are multiplied by the learning rate.
    """

    samples: Samples
    y: Array
    num_classes: int | None
    sample_weight: Array
    steps: Array
    rule: PerceptronRule = CLASSIC
    bias_step: float = 1.0
    scale: float = 1.0

    @property
    def outputs(self) -> int:
        """The number of scores of a sample."""
        return self.num_classes or 1

    @property
    def can_compile(self) -> bool:
        """Whether the compiled loops can learn this problem."""
        return compilable(self.samples)

    @cached_property
    def bound(self) -> RoundingBound:
        """The bound of the rounding error of scores in the samples' type."""
        return RoundingBound.of(self.samples)

    @cached_property
    def largest_step(self) -> float:
        """The largest step size."""
        return float(self.steps.max())

    @cached_property
    def scratch(self) -> Array:
        """Memory in which the compiled loops record mistakes; kept, because fresh memory takes its time."""
        return np.empty((2, len(self.y)), np.int64)

    def parts(self, ids: Array) -> Iterator[tuple[Problem, int, Array]]:
        """Yield parts of the problem that fit into memory: the part, its first sample, the sample numbers in it."""
        done = 0
        for samples, at in self.samples.parts(torch.from_numpy(ids)):
            local = at.numpy()
            if samples is self.samples:
                yield self, 0, ids
                continue
            first = int(ids[done] - local[0])
            rows = slice(first, first + len(samples))
            columns = {name: getattr(self, name)[rows] for name in ("y", "sample_weight", "steps")}
            yield replace(self, samples=samples, **columns), first, local
            done += len(local)

    # --- one update ---

    def predict(self, weights: Weights, i: int) -> int:
        """Return the wrong class sample i is predicted as, or its label if it is no mistake."""
        columns, x = self.samples.row(i)
        weight, bias = (host(values) for values in weights)
        largest = torch.finfo(self.samples.dtype).max
        return decide_exactly(weight[:, columns], bias, x, int(self.y[i]), self.rule, largest)

    def coef(self, sample: Any) -> Any:
        """Return the coefficients of mistakes on some samples: the step size, times y for labels −1/+1."""
        return self.steps[sample] * (self.y[sample] if self.num_classes is None else 1)

    def update(self, weights: Weights, i: int, predicted: int, step: float) -> None:
        """Make the update of one mistake in place: w += η·y·x with one score, else w_y += η·x, w_predicted −= η·x."""
        label = int(self.y[i])
        moves = ((0, step * label),) if self.num_classes is None else ((label, step), (predicted, -step))
        for k, c in moves:
            self.samples.add(i, c, weights.weight[k])
            if self.bias_step:
                weights.bias[k].add_(c * self.bias_step)

    # --- scores and decisions of all samples ---

    def scores(self, weights: Weights, samples: Samples | None = None) -> Tensor:
        """Return the scores of samples (default: the training samples): (N, K)."""
        return (samples or self.samples).scores(*weights)

    def score_error(self, weights: Weights) -> float:
        """Return the largest rounding error of a score; 0 if all scores are sums of integers."""
        weight, bias = (host(values) for values in weights)
        size = self.bound.size(weight, bias)
        if size < self.bound.exact and not (weight % 1).any() and not (bias % 1).any() and self.samples.integers:
            return 0.0
        return self.bound.error(size)

    def mistakes(self, weights: Weights, rule: PerceptronRule | None = None) -> Array:
        """Return which training samples are mistakes now, near ties decided exactly: bool (N,)."""
        rule = rule or self.rule
        error, largest = self.score_error(weights), torch.finfo(self.samples.dtype).max
        found, near = _vector_mistakes(host(self.scores(weights)), self.y, rule, error)
        if len(near) and self.samples.dtype != torch.float64:  # a second look with more digits
            few = self.samples.take(torch.from_numpy(near).to(self.samples.device)).double()
            double = Weights(*(values.double() for values in weights))
            bound = RoundingBound.of(few)
            error = bound.error(bound.size(*map(host, double)))
            found[near], left = _vector_mistakes(host(few.scores(*double)), self.y[near], rule, error)
            near = near[left]
        if len(near):
            weight, bias = (host(values) for values in weights)
            for i in near.tolist():
                columns, x = self.samples.row(i)
                label = int(self.y[i])
                found[i] = decide_exactly(weight[:, columns], bias, x, label, rule, largest) != label
        return found

    def functional_margins(self, weights: Weights) -> Array:
        """Return y·s, or s_y minus the strongest other score, of every training sample in float64, scaled: (N,)."""
        return _margins(host(self.scores(weights)), self.y) * self.scale

    # --- many updates ---

    def signed(self, mistakes: Mistakes) -> Array:
        """Return what each mistake adds to each score's weights: (M, 1), or (M, K) with +c at y, −c at the rival."""
        if self.num_classes is None:
            return mistakes.coef[:, None]
        signed = np.zeros((len(mistakes.sample), self.num_classes))
        at = np.arange(len(signed))
        signed[at, self.y[mistakes.sample]] = mistakes.coef
        signed[at, mistakes.predicted] = -mistakes.coef
        return signed

    def dual(self, mistakes: Mistakes) -> Array:
        """Return the coefficients summed by sample: (N, 1), or (N, K)."""
        signed = self.signed(mistakes)
        columns = [np.bincount(mistakes.sample, column, len(self.y)) for column in signed.T]
        return np.stack(columns, axis=1)

    def replay(self, weights: Weights, mistakes: Mistakes) -> None:
        """Make the updates of these mistakes again in place, rounding as training did."""
        if not self.can_compile:
            for i, _, coef, predicted in zip(*(column.tolist() for column in mistakes), strict=True):
                self.update(weights, i, predicted, abs(coef))
            return
        from torchperc.rules import loops

        done, loop_weights = 0, self.loop_weights(weights)
        for part, _, local in self.parts(mistakes.sample):
            some = mistakes.part(done, done + len(local))
            label = part.y[local] if self.num_classes else np.ones_like(local)  # one score: the label is in coef
            loops.replay(
                part.samples.loop_arrays(), local, label, some.predicted, some.coef, *loop_weights, self.bias_step
            )
            done += len(local)

    def loop_weights(self, weights: Weights) -> tuple[Array, Array]:
        """Return the weights as the compiled loops want them, in the same memory: (d,), (K, d), or (d, K) for CSR."""
        weight = weights.weight.numpy()
        if self.num_classes is None:
            return weight[0], weights.bias.numpy()
        return (weight.T if self.samples.sparse else weight), weights.bias.numpy()

    def laid_out(self, weights: Weights) -> Weights:
        """Return the weights in memory as the compiled loops want them, copied only if they lie otherwise."""
        weight = weights.weight
        if self.num_classes and self.samples.sparse:
            return weights._replace(weight=weight.T.contiguous().T)
        return weights._replace(weight=weight.contiguous())

    def total(self, start: Weights, mistakes: Mistakes, steps: int) -> Weights:
        """Return the sum in float64 of the weights after each of so many steps."""
        device = start.bias.device
        weight, bias = (values.to(device, torch.float64) * steps for values in start)
        if len(mistakes.sample):
            coefs = self.dual(mistakes._replace(coef=mistakes.coef * (steps - mistakes.step)))
            weight = weight + self.samples.weighted_sum(torch.from_numpy(coefs).to(device))
            bias = bias + torch.from_numpy(coefs.sum(0) * self.bias_step).to(device)
        return Weights(weight, bias)

    def mean(self, total: Weights, steps: int) -> Model:
        """Return the model of the mean, from a sum over so many steps."""
        return self.model(Weights(*((values / steps).to(self.samples.dtype) for values in total)))

    def model(self, weights: Weights) -> Model:
        """Return the classifier with these weights, scaled; do not change them afterwards."""
        weight, bias = weights.scaled(self.scale)
        return LinearModel(weight.contiguous(), bias, self.num_classes)

    # --- about the weights ---

    def norm(self, weights: Weights) -> float:
        """Return √(‖w‖² + b²/β): a bias step of β is a constant feature of √β."""
        return weights_norm(*weights, self.bias_step)

    def digest(self, weights: Weights) -> str:
        """Return a hash of the weights, by which they are recognised when they recur."""
        return digest(weights)

    def squared_radius(self, ids: Array) -> float:
        """Return R² = max ‖x‖² + β over some samples, β being the bias step; twice that with K classes."""
        squares = host(self.samples.squared_norms())[ids]
        return (float(squares.max()) + self.bias_step) * (1 if self.num_classes is None else 2)

    # --- the decisions of many states ---

    def decisions(self, start: Weights, mistakes: Mistakes, samples: Samples) -> Iterator[tuple[slice, int, Array]]:
        """Yield which samples, the number of a state, and what it and the following states decide for: (n, S).

        State t is the start after the first t mistakes. Scores within their rounding error are decided exactly.
        """
        at_once = max(1, min(_STATES, 2**24 // start.weight.numel()))
        bound, weights, first = RoundingBound.of(samples), start.clone(), 0
        states = [start.clone()]
        while True:
            error = [bound.error(bound.size(*map(host, state))) for state in states]
            stacked = [torch.stack(values) for values in zip(*states, strict=True)]
            for block, part in blocks(samples):
                yield block, first, _decide_states(part, stacked[0], stacked[1], np.array(error))
            first += len(states)
            if first > len(mistakes.sample):
                return
            states = []
            for j in range(first - 1, min(first - 1 + at_once, len(mistakes.sample))):
                step = float(abs(mistakes.coef[j]))
                self.update(weights, int(mistakes.sample[j]), int(mistakes.predicted[j]), step)
                states.append(weights.clone())

    def describe(self) -> dict[str, Any]:
        """Return what a saved log must know of the problem besides the data."""
        about = {"kind": "linear", "num_classes": self.num_classes, "bias_step": self.bias_step, "scale": self.scale}
        return {**about, **self.rule._asdict(), "dtype": str(self.samples.dtype).removeprefix("torch.")}

    def samples_like(self, X: Data, name: str = "X") -> Samples:
        """Return checked samples of the width, type and device of the training samples."""
        own = self.samples
        return as_samples(X, dtype=own.dtype, device=own.device, n_features=own.n_features, name=name)


# --- helpers ------------------------------------------------------------------------------------------------------


def digest(tensors: Sequence[Tensor]) -> str:
    """Return a hash of numbers, whatever their type and layout in memory."""
    found = hashlib.sha256()
    for values in tensors:
        found.update((column_major(values) + 0.0).data)  # + 0.0 turns −0 into 0
    return found.hexdigest()


def blocks(samples: Samples) -> Iterator[tuple[slice, Samples]]:
    """Yield all samples in blocks: which they are, and the rows."""
    for first in range(0, len(samples), _BLOCK):
        block = slice(first, min(first + _BLOCK, len(samples)))
        yield block, samples.take(torch.arange(block.start, block.stop, device=samples.device))


def _margins(scores: Array, y: Array) -> Array:
    """Return the functional margins of scores (N, K), K = 1 for labels −1/+1: (N,)."""
    if scores.shape[1] == 1:
        margins: Array = y * scores[:, 0]
        return margins
    others = scores.copy()
    others[np.arange(len(y)), y] = -np.inf
    margins = scores[np.arange(len(y)), y]
    margins -= others.max(axis=1)
    return margins


def _vector_mistakes(scores: Array, y: Array, rule: PerceptronRule, error: float) -> tuple[Array, Array]:
    """Return which samples are mistakes by their scores, and the numbers of those that are too near to tell."""
    with np.errstate(invalid="ignore"):
        margins = _margins(scores, y)
    found = margins < rule.margin
    at_limit = np.flatnonzero(~(np.abs(margins - rule.margin) > 2 * error))
    if error:
        return found, at_limit
    if rule.tie == "update":
        found[at_limit] = True
    elif rule.tie == "sign":
        decided = np.where(scores[:, 0] >= 0, 1, -1) if scores.shape[1] == 1 else scores.argmax(1)
        found = decided != y
    return found, at_limit[:0]


def _decide_states(samples: Samples, weight: Tensor, bias: Tensor, error: Array) -> Array:
    """Return the labels that states (S, K, d) decide for: (n, S)."""
    states, outputs = bias.shape
    flat = samples.scores(weight.flatten(0, 1), bias.flatten())
    scores = host(flat).reshape(-1, states, outputs)
    labels = np.where(scores[..., 0] >= 0, 1, -1) if outputs == 1 else scores.argmax(-1)
    if outputs == 1:
        apart = np.abs(scores[..., 0])
    else:
        highest = np.partition(scores, outputs - 2, axis=-1)
        apart = highest[..., -1] - highest[..., -2]
    near = np.argwhere(~(apart > 2 * error) & (error > 0))
    rule = PerceptronRule("sign")
    for i, state in near.tolist():
        columns, x = samples.row(i)
        w, b = host(weight[state])[:, columns], host(bias[state])
        labels[i, state] = _exact_label(w, b, x, rule)
    return labels


def _exact_label(weight: Array, bias: Array, x: Array, rule: PerceptronRule) -> int:
    """Return the label of one sample in exact arithmetic."""
    if len(bias) == 1:
        return decide_exactly(weight, bias, x, 1, rule)  # +1, or −1 if that would be a mistake
    best = 0
    for k in range(1, len(bias)):
        pair = [best, k]
        if decide_exactly(weight[pair], bias[pair], x, 0, rule) == 1:
            best = k
    return best
