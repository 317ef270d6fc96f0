"""Where the update happens, and what it does to scores and weights: linear, kernel and joint-feature spaces."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from torchperc._checks import numpy_view
from torchperc.rules.kernels import Kernel
from torchperc.rules.models import KernelModel, LinearModel, Model, joint_scores
from torchperc.samples import compiling
from torchperc.samples.rows import Rows

_Array: TypeAlias = "np.ndarray[Any, Any]"
_Arrays: TypeAlias = tuple[_Array, ...]
_BLOCK = 1024  # samples and states at a time: 32 MB of scores
_CHUNK = 4096


@dataclass
class Weights:
    """The numbers that the rule moves: weight (K, d) and bias (K,)."""

    weight: Tensor
    bias: Tensor

    def clone(self) -> Weights:
        """A copy."""
        return Weights(_copied(self.weight), _copied(self.bias))

    def to(self, device: torch.device) -> Weights:
        """The same weights on a device."""
        return Weights(self.weight.to(device), self.bias.to(device))

    def times(self, factor: float) -> Weights:
        """The weights times a number."""
        return Weights(self.weight * factor, self.bias * factor)

    @property
    def at_zero(self) -> bool:
        """Whether all of them are 0."""
        return not (numpy_view(self.weight).any() or numpy_view(self.bias).any())

    @property
    def finite(self) -> bool:
        """Whether none of them is NaN or infinite."""
        numbers = (numpy_view(values) for values in (self.weight, self.bias))
        return all(bool(abs(values).max() < math.inf) for values in numbers)


def _copied(values: Tensor) -> Tensor:
    numbers = numpy_view(values)
    return numbers.clone() if isinstance(numbers, Tensor) else torch.from_numpy(numbers.copy())


class Entries(NamedTuple):
    """Log entries as columns: sample, coefficient, true label, class it was taken for."""

    sample: Tensor
    coef: Tensor
    own: Tensor
    wrong: Tensor

    def part(self, start: int, stop: int) -> Entries:
        """Entries start to stop."""
        return Entries(*(column[start:stop] for column in self))

    def signed(self, classes: int | None) -> Tensor:
        """The coefficient that each entry adds to each row of scores: (C, 1), or (C, K) with +c at y and −c at r."""
        if classes is None:
            return self.coef[:, None]
        direction = F.one_hot(self.own, classes) - F.one_hot(self.wrong, classes)
        return self.coef[:, None] * direction


@dataclass(frozen=True)
class Space(ABC):
    """Training samples, the number of classes (``None``: two, by one score) and the bias step for coefficient 1.

    From zero weights the learning rate only scales the result, so the rule learns with steps of 1, exactly in integers,
    and a model's weights are multiplied by ``scale``.
    """

    rows: Rows
    classes: int | None
    bias_scale: float
    scale: float = field(default=1.0, kw_only=True)

    @property
    def outputs(self) -> int:
        """How many scores a sample has."""
        return self.classes or 1

    @abstractmethod
    def gram(self, rows: Rows, index: Tensor) -> Tensor:
        """Inner products of samples with training samples, without the bias: (N, M)."""

    @abstractmethod
    def start_scores(self, start: Weights, rows: Rows) -> Tensor:
        """Scores under the starting weights, in float64: (N, K)."""

    @abstractmethod
    def average(self, start: Weights, entries: Entries, left: Tensor, steps: int) -> Model:
        """The mean of the weights after each of the steps; ``left`` says how many steps an entry lasts."""

    @abstractmethod
    def replay(self, start: Weights, entries: Entries) -> Model:
        """The model after these entries, made one after the other as in training."""

    def squared_radius(self, ids: Tensor | None = None) -> float:
        """R² = max ‖x‖² + β, β being the bias step, over all samples or some; twice that with K classes."""
        squares = self.rows.squared_norms() if ids is None else self.rows.squared_norms()[ids]
        return (float(squares.max()) + self.bias_scale) * (1 if self.classes is None else 2)

    def products(self, rows: Rows, entries: Entries) -> Tensor:
        """Inner products of samples with the samples of entries: (N, C)."""
        unique, place = entries.sample.unique(return_inverse=True)
        return self.gram(rows, unique)[:, place]

    def increments(self, rows: Rows, entries: Entries) -> Tensor:
        """What each entry adds to each score, in float64: (N, C, K)."""
        products = self.products(rows, entries).double() + self.bias_scale
        return products[:, :, None] * entries.signed(self.classes)

    @staticmethod
    def blocks(rows: Rows) -> Iterator[tuple[slice, Rows]]:
        """All samples, some at a time: which they are, and the rows."""
        for first in range(0, len(rows), _BLOCK):
            block = slice(first, min(first + _BLOCK, len(rows)))
            yield block, rows.take(torch.arange(block.start, block.stop, device=rows.device))

    def paths(self, start: Weights, entries: Entries, rows: Rows) -> Iterator[tuple[slice, int, Tensor]]:
        """Scores of every sample under every state: (slice of samples, number of the first state, scores), in blocks.

        Scores are (block, states, K) in float64.
        """
        chunk = max(1, _CHUNK // self.outputs)
        for block, part in self.blocks(rows):
            now = self.start_scores(start, part)
            yield block, 0, now[:, None]
            for j in range(0, len(entries.sample), chunk):
                path = self.increments(part, entries.part(j, j + chunk)).cumsum_(1).add_(now[:, None])
                yield block, j + 1, path
                now = path[:, -1]


@dataclass(frozen=True)
class LinearSpace(Space):
    """Weight (K, d) and bias (K,): w_y += c·x, w_r −= c·x, and the bias likewise with c·bias_scale."""

    def score(self, weights: Weights, i: int) -> list[float]:
        """The scores of one training sample."""
        scores: list[float] = self.rows.score(i, weights.weight, weights.bias).tolist()
        return scores

    def update(self, weights: Weights, i: int, coef: float, own: int, wrong: int) -> None:
        """Make one entry's update, in place."""
        steps = ((0, coef),) if self.classes is None else ((own, coef), (wrong, -coef))
        for row, step in steps:
            self.rows.add(i, step, weights.weight[row])
            if self.bias_scale:
                weights.bias[row].add_(step * self.bias_scale)

    def all_scores(self, weights: Weights, rows: Rows) -> Tensor:
        """The scores of all samples: (N, K)."""
        return rows.scores(weights.weight, weights.bias)

    def gram(self, rows: Rows, index: Tensor) -> Tensor:
        """Inner products in float64, in which integers stay exact."""
        return rows.double().dots(self.rows.take(index).double())

    def start_scores(self, start: Weights, rows: Rows) -> Tensor:
        """Scores under the starting weights."""
        return self.all_scores(Weights(start.weight.double(), start.bias.double()), rows.double())

    def average(self, start: Weights, entries: Entries, left: Tensor, steps: int) -> LinearModel:
        """The sum over all steps, divided by their number."""
        return self.mean(self.total(start, entries, left, steps), steps)

    def mean(self, total: Weights, steps: int) -> LinearModel:
        """The model of the mean, from a sum over so many steps."""
        dtype = self.rows.dtype
        return self.model(Weights((total.weight / steps).to(dtype), (total.bias / steps).to(dtype)))

    def total(self, start: Weights, entries: Entries, left: Tensor, steps: int) -> Weights:
        """The sum in float64 of the weights after each step."""
        weight, bias = (values.double() * steps for values in (start.weight, start.bias))
        if len(entries.sample):
            coefs = dual(len(self.rows), entries._replace(coef=entries.coef * left), self.classes)
            weight, bias = weight + self.rows.combine(coefs), bias + coefs.sum(0) * self.bias_scale
        return Weights(weight, bias)

    def replay(self, start: Weights, entries: Entries) -> LinearModel:
        """The updates in their order, rounding as training did."""
        return self.model(self.moved(start, entries))

    def moved(self, start: Weights, entries: Entries) -> Weights:
        """The weights after the updates, before they are scaled."""
        if type(self) is LinearSpace and compiling.suits(self.rows.dtype, self.rows.device):
            from torchperc.rules.loops.learn import replay

            laid, bias = compiling.laid_out(start.weight, self.rows.sparse), start.bias.clone()
            for update in self.updates(entries):
                replay(*update, laid.loop, bias.numpy(), self.bias_scale)
            return Weights(laid.tensor, bias)
        weights = start.clone()
        for i, coef, own, wrong in zip(*(column.tolist() for column in entries), strict=True):
            self.update(weights, i, coef, own, wrong)
        return weights

    def unfolded(self, start: Weights, entries: Entries) -> Weights:
        """The weights after each of the updates, (S, K, d) and (S, K), for samples that loops are compiled for."""
        from torchperc.rules.loops.learn import unfold

        laid, bias, done = compiling.laid_out(start.weight, self.rows.sparse), start.bias.clone(), 0
        states = np.empty((len(entries.sample), *laid.loop.shape), laid.loop.dtype)
        biases = np.empty((len(states), len(bias)), states.dtype)
        for update in self.updates(entries):
            some = slice(done, done + len(update[1]))
            unfold(*update, laid.loop, bias.numpy(), self.bias_scale, states[some], biases[some])
            done = some.stop
        weight = torch.from_numpy(states)
        if self.classes is None:
            weight = weight[:, None]
        elif self.rows.sparse:
            weight = weight.transpose(1, 2)
        return Weights(weight.contiguous(), torch.from_numpy(biases))

    def updates(self, entries: Entries) -> Iterator[tuple[_Arrays, _Array, _Array, _Array, _Array]]:
        """Entries as compiled loops see them: samples, numbers of those within them, and coef, own and wrong."""
        own = torch.ones_like(entries.own) if self.classes is None else entries.own  # one score: the label is in coef
        columns = [column.contiguous().numpy() for column in (entries.coef, own, entries.wrong)]
        done = 0
        for rows, at in self.rows.parts(entries.sample):
            coefs, own_part, wrong = (column[done : done + len(at)] for column in columns)
            yield rows.plain(), at.contiguous().numpy(), coefs, own_part, wrong
            done += len(at)

    def model(self, weights: Weights) -> LinearModel:
        """The classifier with these weights, scaled."""
        if self.scale != 1.0:
            scaled = (numpy_view(values) * self.scale for values in (weights.weight, weights.bias))
            weights = Weights(*map(torch.as_tensor, scaled))
        return LinearModel(weights.weight, weights.bias, self.classes)


@dataclass(frozen=True)
class JointSpace(LinearSpace):
    """One weight vector (1, D) over φ(x, k): w += c·(φ(x, y) − φ(x, r)). A bias is part of φ."""

    features: Callable[[Tensor], Tensor]

    def score(self, weights: Weights, i: int) -> list[float]:
        """w·φ(x_i, k) for every class."""
        scores: list[float] = (self._phi(torch.tensor([i]))[0] @ weights.weight[0]).tolist()
        return scores

    def update(self, weights: Weights, i: int, coef: float, own: int, wrong: int) -> None:
        """Make one entry's update, in place."""
        phi = self._phi(torch.tensor([i]))[0]
        weights.weight[0].add_(phi[own] - phi[wrong], alpha=coef)

    def all_scores(self, weights: Weights, rows: Rows) -> Tensor:
        """The scores of all samples: (N, K)."""
        return joint_scores(rows, weights.weight, self.features)

    def start_scores(self, start: Weights, rows: Rows) -> Tensor:
        """Scores under the starting weights."""
        return joint_scores(rows, start.weight, self.features).double()

    def increments(self, rows: Rows, entries: Entries) -> Tensor:
        """c·(φ(x_i, y) − φ(x_i, r))·φ(x, k)."""
        return torch.einsum("nkd,cd->nck", self.features(rows.dense()).double(), self._moves(entries))

    def total(self, start: Weights, entries: Entries, left: Tensor, steps: int) -> Weights:
        """The sum in float64 of the weights after each step."""
        total = start.weight.double() * steps
        if len(entries.sample):
            total = total + self._moved(entries._replace(coef=entries.coef * left))
        return Weights(total, start.bias.double())

    def model(self, weights: Weights) -> LinearModel:
        """The classifier with these weights, scaled."""
        return replace(super().model(weights), width=self.rows.width, features=self.features)

    def _phi(self, index: Tensor) -> Tensor:
        return self.features(self.rows.take(index.to(self.rows.device)).dense())

    def _moved(self, entries: Entries) -> Tensor:
        """The sum of all updates, in float64 and in blocks: (D,)."""
        total = self._moves(entries.part(0, _BLOCK)).sum(0)
        for j in range(_BLOCK, len(entries.sample), _BLOCK):
            total += self._moves(entries.part(j, j + _BLOCK)).sum(0)
        return total

    def _moves(self, entries: Entries) -> Tensor:
        phi = self._phi(entries.sample).double()
        at = torch.arange(len(phi), device=phi.device)
        return (phi[at, entries.own] - phi[at, entries.wrong]) * entries.coef[:, None]


@dataclass(frozen=True)
class KernelSpace(Space):
    """A feature space known by its inner products only; the model has one coefficient per support vector."""

    kernel: Kernel

    def gram(self, rows: Rows, index: Tensor) -> Tensor:
        """k(x, x_i)."""
        return self.kernel.gram(rows, self.rows.take(index))

    def start_scores(self, start: Weights, rows: Rows) -> Tensor:
        """Zero: a kernel perceptron starts with no support vectors."""
        return torch.zeros(len(rows), self.outputs, dtype=torch.float64, device=rows.device)

    def average(self, start: Weights, entries: Entries, left: Tensor, steps: int) -> KernelModel:
        """Each entry counts for the steps it lasted."""
        return self.replay(start, entries._replace(coef=entries.coef * left / steps))

    def replay(self, start: Weights, entries: Entries) -> KernelModel:
        """Support vectors with their coefficients, repeats merged."""
        coefs = dual(len(self.rows), entries, self.classes) * self.scale
        support = entries.sample.unique()
        alphas, bias = (part.to(self.rows.dtype) for part in (coefs[support], coefs.sum(0) * self.bias_scale))
        return KernelModel(self.rows.take(support), support, alphas, bias, self.kernel, self.classes)


def dual(count: int, entries: Entries, classes: int | None) -> Tensor:
    """The entries' coefficients summed by sample: (N, 1), or (N, K)."""
    total = torch.zeros(count, classes or 1, dtype=torch.float64, device=entries.sample.device)
    return total.index_add_(0, entries.sample, entries.signed(classes).double())
