"""What the rule learns: samples, labels, step sizes and conventions, and what an update does to the weights."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
from torch import Tensor

from torchperc._checks import Data, check_labels, weights_overflow
from torchperc.nn import functional as tpf
from torchperc.rules.decision import PerceptronRule, RoundingBound, Rule, decide_exactly, host, predicted_as
from torchperc.rules.models import LinearModel, Model, blocks, in_blocks
from torchperc.samples.mapped import Chunked, as_samples
from torchperc.samples.rows import Array as Array
from torchperc.samples.rows import Samples, compilable
from torchperc.theory.weights import column_major, weights_norm

CLASSIC = PerceptronRule()
PER_SAMPLE = ("y", "sample_weight", "step_sizes")  # fields of a problem that have one entry per sample
_STATES = 256  # that are decided together


class Mistake(NamedTuple):
    """A mistake: after ``step`` presented samples, ``sample`` was added ``coef`` times.

    ``predicted`` is the strongest wrong class, which loses what the true class gains; at a tie or within the margin,
    the decision itself may have been right.
    """

    sample: int
    step: int
    coef: float
    predicted: int


class Mistakes(NamedTuple):
    """Mistakes as columns, see :class:`Mistake`: int64 but for ``coef``, which is float64.

    Where a sample has several labels, ``predicted`` is an array of tuples.
    """

    sample: Array
    step: Array
    coef: Array
    predicted: Array

    @classmethod
    def of(cls, entries: Sequence[Mistake]) -> Mistakes:
        """Return columns from single mistakes."""
        sample, step, coef, predicted = zip(*entries, strict=True) if entries else ((), (), (), ())
        several = bool(predicted) and isinstance(predicted[0], tuple)  # labels of one sample
        labels = np.fromiter(predicted, object if several else np.int64)
        return cls(np.array(sample, np.int64), np.array(step, np.int64), np.array(coef, np.float64), labels)

    @classmethod
    def joined(cls, parts: Sequence[Mistakes]) -> Mistakes:
        """Return the mistakes of several parts, one after the other."""
        if len(parts) == 1:
            return parts[0]
        return type(parts[0])(*map(np.concatenate, zip(*parts, strict=True))) if parts else cls.of(())

    @staticmethod
    def entry(*values: Any) -> Mistake:
        """Return one mistake."""
        return Mistake(*values)

    def rows(self) -> Iterator[Mistake]:
        """Yield one mistake after the other."""
        return (self.entry(*entry) for entry in zip(*(column.tolist() for column in self), strict=True))

    def part(self, first: int, end: int) -> Mistakes:
        """Return mistakes ``first`` to ``end`` − 1."""
        return type(self)(*(column[first:end] for column in self))

    def moved(self, samples: int, steps: int) -> Mistakes:
        """Return the same mistakes with larger sample numbers and later steps."""
        sample = self.sample + samples if samples else self.sample
        return self._replace(sample=sample, step=self.step + steps if steps else self.step)

    def carried(self, lasted: Array) -> Array:
        """Return how often the start and each update are in a sum over states, each ``lasted`` so often: (M + 1,)."""
        return lasted[::-1].cumsum()[::-1]


class Weights(NamedTuple):
    """The numbers that the rule moves: weight (K, d) and bias (K,); K = 1 for labels −1/+1."""

    weight: Tensor
    bias: Tensor

    def clone(self) -> Weights:
        """Return a copy, laid out in memory as the original."""
        return Weights(*(values.detach().clone() for values in self))

    def scaled(self, factor: float) -> Weights:
        """Return the weights times a number; for 1, these weights themselves."""
        return self if factor == 1.0 else Weights(*(values * factor for values in self))

    @property
    def any_nonzero(self) -> bool:
        """Whether some weight is not 0."""
        return any(bool(values.any()) for values in self)

    def plus(self, other: Weights) -> Weights:
        """Return the sum of both weights, on the other's device."""
        return Weights(*(a.to(b.device) + b for a, b in zip(self, other, strict=True)))

    def state_dict(self) -> dict[str, Tensor]:
        """Return copies of the weights on the CPU, by name."""
        return {name: values.detach().cpu().clone() for name, values in self._asdict().items()}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Take over weights from a :meth:`state_dict`."""
        for name, values in self._asdict().items():
            values.copy_(state[name])


@dataclass(frozen=True, eq=False)
class Problem:
    """Data and settings of an update, and its effect on the weights of a linear net.

    Args:
        samples: the training samples.
        y: labels −1/+1, or class indices: int64 (N,).
        num_classes: K, or ``None`` for labels −1/+1.
        sample_weight: sample weight times class weight: float64 (N,); 0 leaves a sample out.
        step_sizes: the size η of each sample's update: float64 (N,).
        rule: what is a mistake.
        bias_step: the step of the bias for a step size of 1.
        scale: a factor of all models. From zero weights the learning rate only scales the result, so the rule learns
            with steps of 1, exactly in integers, and models are multiplied by the learning rate.
        made: the number of updates, for rules that count them; shared by all parts.
    """

    samples: Samples
    y: Array
    num_classes: int | None
    sample_weight: Array
    step_sizes: Array
    rule: Rule = CLASSIC
    bias_step: float = 1.0
    scale: float = 1.0
    made: Array = field(default_factory=lambda: np.zeros(1, np.int64), kw_only=True)
    own_engine: ClassVar[Callable[..., Mistakes] | None] = None  # instead of the compiled loops of linear nets
    near_ties_exact: ClassVar[bool] = True  # else the rounded scores decide, which are then computed in one way only

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
    def scratch(self) -> Array:
        """Buffers in which the compiled loops record mistakes; reused, as allocation is slow."""
        return np.empty((2, len(self.y)), np.int64)

    def parts(self, ids: Array) -> Iterator[tuple[Problem, int, Array]]:
        """Yield parts of the problem that fit into memory: the part, its first sample, the sample numbers in it."""
        if self.own_engine is not None or not isinstance(self.samples, Chunked):
            yield self, 0, ids  # an engine of its own keeps scores of all samples, and reads as it goes
            return
        done = 0
        for samples, at in self.samples.parts(torch.from_numpy(ids)):
            local = at.numpy()
            first = int(ids[done] - local[0])
            rows = slice(first, first + len(samples))
            columns = {name: getattr(self, name)[rows] for name in PER_SAMPLE}
            yield replace(self, samples=samples, **columns), first, local
            done += len(local)

    # --- one update ---

    def predict(self, weights: Weights, i: int, rule: Rule | None = None) -> int:
        """Return the wrong class sample i is predicted as, or its label if it is no mistake."""
        columns, x = self.samples.row(i)
        weight, bias = map(host, weights)
        largest = torch.finfo(self.samples.dtype).max
        return decide_exactly(weight[:, columns], bias, x, int(self.y[i]), rule or self.rule, largest)

    def coef(self, sample: Any) -> Any:
        """Return the coefficients of mistakes on some samples: the step size, times y for labels −1/+1."""
        return self.step_sizes[sample] * (self.y[sample] if self.num_classes is None else 1)

    def update(self, weights: Weights, i: int, predicted: int, size: float) -> None:
        """Make an update of size η in place: w += η·y·x with one score, else w_y += η·x, w_predicted −= η·x."""
        label = int(self.y[i])
        moves = ((0, size * label),) if self.num_classes is None else ((label, size), (predicted, -size))
        for k, c in moves:
            self.samples.add(i, c, weights.weight[k])
            if self.bias_step:
                weights.bias[k].add_(c * self.bias_step)

    # --- scores and decisions of all samples ---

    def scores(self, weights: Weights, samples: Samples | None = None) -> Tensor:
        """Return the scores of samples (default: the training samples): (N, K)."""
        return (samples or self.samples).scores(*weights)

    def score_error(self, weights: Weights, samples: Samples) -> float:
        """Return the largest rounding error of a score; 0 if all scores are sums of integers."""
        if not self.near_ties_exact:
            return 0.0
        weight, bias = map(host, weights)
        bound = self.bound if samples is self.samples else RoundingBound.of(samples)
        size = bound.size(weight, bias)
        if size < bound.exact and not (weight % 1).any() and not (bias % 1).any() and samples.integers:
            return 0.0
        return bound.error(size)

    def mistakes(self, weights: Weights, rule: Rule | None = None) -> Array:
        """Return which training samples are mistakes now, near ties decided exactly: bool (N,)."""
        rule = rule or self.rule
        found, near = self._by_scores(weights, self.samples, self.y, rule)
        if len(near) and self.samples.dtype != torch.float64:  # a second look with more digits
            few = self.samples.take(torch.from_numpy(near).to(self.samples.device)).double()
            double = Weights(*(values.double() for values in weights))
            found[near], left = self._by_scores(double, few, self.y[near], rule)
            near = near[left]
        for i in near.tolist():
            found[i] = self.predict(weights, i, rule) != self.y[i]
        return found

    def _by_scores(self, weights: Weights, samples: Samples, y: Array, rule: Rule) -> tuple[Array, Array]:
        """Return which samples are mistakes by their rounded scores, and the numbers of those too near to tell."""
        scores = torch.from_numpy(host(self.scores(weights, samples)))
        scores = scores.squeeze(-1) if self.num_classes is None else scores
        labels, error = torch.from_numpy(y), self.score_error(weights, samples)
        found = tpf.mistakes(scores, labels, tie=rule.tie, margin=rule.margin).numpy()
        if not error:
            return found, np.empty(0, np.int64)
        apart = np.abs(tpf.functional_margins(scores, labels).numpy() - rule.margin)
        return found, np.flatnonzero(~(apart > 2 * error))

    def functional_margins(self, weights: Weights) -> Array:
        """Return y·s, or s_y minus the strongest other score, of every training sample in float64, scaled: (N,)."""
        if self.num_classes is None and self.can_compile and self.own_engine is None:
            from torchperc.rules import loops

            margins = np.empty(len(self.y))
            for part, first, _ in self.parts(np.arange(len(self.y))):
                at = slice(first, first + len(part.y))
                loops.margins_two(part.samples.loop_arrays(), part.y, *self.loop_weights(weights), margins[at])
            margins *= self.scale
            return margins
        scores, y = torch.from_numpy(host(self.scores(weights)) * self.scale), torch.from_numpy(self.y)
        return np.asarray(tpf.functional_margins(scores.squeeze(-1) if self.num_classes is None else scores, y))

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
        """Return the coefficients as they are in the end, summed by sample: (N, 1), or (N, K)."""
        at_end = np.arange(len(mistakes.sample) + 1) == len(mistakes.sample)
        signed = self.signed(mistakes._replace(coef=mistakes.coef * mistakes.carried(at_end)[1:]))
        columns = [np.bincount(mistakes.sample, column, len(self.y)) for column in signed.T]
        return np.stack(columns, axis=1)

    def replay(self, weights: Weights, mistakes: Mistakes) -> None:
        """Make the updates of these mistakes again in place, rounding as training did."""
        if not self.can_compile:
            for i, _, coef, predicted in mistakes.rows():
                self.update(weights, i, predicted, abs(coef))
            return
        from torchperc.rules import loops

        done, loop_weights = 0, self.loop_weights(weights)
        for part, _, local in self.parts(mistakes.sample):
            some = mistakes.part(done, done + len(local))
            label = part.y[local] if self.num_classes else np.ones_like(local)  # one score: the label is in coef
            of_each = (local, label, some.predicted, some.coef, getattr(some, "factor", None))
            loops.replay(part.samples.loop_arrays(), *of_each, *loop_weights, self.bias_step)
            done += len(local)

    def loop_weights(self, weights: Weights) -> tuple[Array, Array]:
        """Return the weights as the compiled loops want them, in the same memory: (d,), (K, d), or (d, K) for CSR."""
        weight = weights.weight.numpy()
        if self.num_classes is None:
            return weight[0], weights.bias.numpy()
        return (weight.T if self.samples.sparse else weight), weights.bias.numpy()

    def laid_out(self, weights: Any) -> Any:
        """Return the weights in memory as the compiled loops want them, copied only if they lie otherwise."""
        weight = weights.weight
        classes_last = self.num_classes and self.samples.sparse
        return weights._replace(weight=weight.T.contiguous().T if classes_last else weight.contiguous())

    def total(self, start: Weights, mistakes: Mistakes, steps: int) -> Weights:
        """Return the float64 sum of the weights over ``steps`` steps."""
        device = start.bias.device
        often = mistakes.carried(np.diff(mistakes.step, prepend=0, append=steps))
        weight, bias = (values.to(device, torch.float64) * float(often[0]) for values in start)
        if len(mistakes.sample):
            coefs = self.dual(Mistakes(*mistakes[:4])._replace(coef=mistakes.coef * often[1:]))
            weight = weight + self.samples.weighted_sum(torch.from_numpy(coefs).to(device))
            bias = bias + torch.from_numpy(coefs.sum(0) * self.bias_step).to(device)
        return Weights(weight, bias)

    def mean(self, total: Weights, steps: int) -> Model:
        """Return the averaged model, given the sum over the steps."""
        return self.model(Weights(*((values / steps).to(self.samples.dtype) for values in total)))

    def model(self, weights: Weights) -> Model:
        """Return the classifier with these weights, scaled; do not change them afterwards."""
        weight, bias = weights.scaled(self.scale)
        return LinearModel(weight.contiguous(), bias, self.num_classes)

    def norm(self, weights: Weights) -> float:
        """Return √(‖w‖² + b²/β): a bias step of β is a constant feature of √β."""
        return weights_norm(*weights, self.bias_step)

    def digest(self, weights: Sequence[Tensor]) -> str:
        """Return a hash of the weights, independent of type and layout, to detect recurrence."""
        found = hashlib.sha256()
        for values in weights:
            found.update((column_major(values) + 0.0).data)  # + 0.0 turns −0 into 0
        return found.hexdigest()

    def running_average(self, log: Any, weights: Any, sums: dict[str, Any]) -> Model:
        """Return the averaged model of a run; ``sums`` is kept from one epoch to the next."""
        model: Model = log.averaged()
        return model

    @cached_property
    def squared(self) -> Array:
        """‖x‖² + β of every sample; with K classes twice that: (N,)."""
        return (host(self.samples.squared_norms()) + self.bias_step) * (1 if self.num_classes is None else 2)

    def squared_radius(self, ids: Array) -> float:
        """Return R² = max ‖x‖² + β over some samples, β being the bias step; twice that with K classes."""
        return float(self.squared[ids].max())

    def decisions(self, start: Weights, mistakes: Mistakes, samples: Samples) -> Iterator[tuple[slice, int, Array]]:
        """Yield a block of samples, the first state's number, and the decisions of S states: (n, S).

        State t is the start after the first t mistakes. Scores are computed in float64.
        """
        at_once = max(1, min(_STATES, 2**24 // start.weight.numel()))
        weights, states, first = start.clone(), [start.clone()], 0
        while states:
            weight, bias = (torch.stack(values).double() for values in zip(*states, strict=True))
            for block, part in blocks(samples):
                yield block, first, self.labels(host(self.state_scores(part.double(), weight, bias)))
            first += len(states)
            states = []
            for j in range(first - 1, min(first - 1 + at_once, len(mistakes.sample))):
                self.replay(weights, mistakes.part(j, j + 1))
                states.append(weights.clone())

    def state_scores(self, samples: Samples, weight: Tensor, bias: Tensor) -> Tensor:
        """Return the scores of samples for S states at once: weight (S, K, d), bias (S, K) → (n, S, K)."""
        return samples.scores(weight.flatten(0, 1), bias.flatten()).reshape(-1, *bias.shape)

    def labels(self, scores: Array) -> Array:
        """Return the labels for scores (…, K): −1/+1, or the lowest index among the largest."""
        return np.where(scores[..., 0] >= 0, 1, -1) if self.num_classes is None else scores.argmax(-1)

    def data_hash(self) -> str:
        """Return a hash of samples and labels."""
        return self.samples.hash(torch.from_numpy(self.y))

    def labelled(self, X: Data, y: Data, prefix: str = "") -> tuple[Samples, Any]:
        """Return other samples and labels of the same kind, checked; ``prefix`` is for error messages."""
        samples = self.samples_like(X, f"{prefix}X")
        return samples, check_labels(y, len(samples), self.num_classes, name=f"{prefix}y", both=False)

    def wrong_decisions(self, weights: Any, samples: Samples, y: Tensor) -> tuple[int, int]:
        """Return the number of errors and of decisions on other samples."""
        scores = self.scores(weights, samples)
        if not torch.isfinite(scores).all():
            raise ValueError("scores of the validation samples are not finite; scale validation X down")
        return int((self.labels(host(scores)) != y.cpu().numpy()).sum()), len(y)

    def columns(self, mistakes: Mistakes) -> dict[str, Array]:
        """Return mistakes as arrays of numbers, which a file can hold."""
        return mistakes._asdict()

    def from_columns(self, columns: dict[str, Array]) -> Mistakes:
        """Return mistakes from :meth:`columns`."""
        return Mistakes(**columns)

    def describe(self) -> dict[str, Any]:
        """Return what a saved log must know of the problem besides the data."""
        about = {"kind": "linear", "num_classes": self.num_classes, "bias_step": self.bias_step, "scale": self.scale}
        return {**about, **self.rule.describe(), "dtype": str(self.samples.dtype).removeprefix("torch.")}

    def samples_like(self, X: Data, name: str = "X") -> Samples:
        """Return checked samples of the width, type and device of the training samples."""
        own = self.samples
        return as_samples(X, dtype=own.dtype, device=own.device, n_features=own.n_features, name=name)


@dataclass(frozen=True, eq=False)
class JointModel(LinearModel):
    """One weight vector (1, D) over joint features φ: (N, d) → (N, K, D)."""

    n_features: int = field(kw_only=True)
    features: Callable[[Tensor], Tensor] = field(kw_only=True)

    def _samples(self, X: Data, n_features: int | None = None) -> Samples:
        return super()._samples(X, self.n_features)

    def row_scores(self, samples: Samples) -> Tensor:
        """Return w·φ(x, k) for every class: (N, K)."""
        return in_blocks(samples, lambda block: self.features(block.dense()) @ self.weight[0])


@dataclass(frozen=True, eq=False)
class JointProblem(Problem):
    """A :class:`Problem` whose updates are w += c·(φ(x, y) − φ(x, r)); a bias is part of φ."""

    features: Callable[[Tensor], Tensor] = field(kw_only=True)
    can_compile = False
    near_ties_exact = False

    def predict(self, weights: Weights, i: int, rule: Rule | None = None) -> int:
        """Return the wrong class sample i is predicted as by its scores, or its label if it is no mistake."""
        rule = rule or self.rule
        scores = self._phi(i) @ weights.weight[0]
        if not torch.isfinite(scores).all():
            raise weights_overflow()
        return int(predicted_as(scores.tolist(), int(self.y[i]), rule.code, rule.margin, 0))

    def update(self, weights: Weights, i: int, predicted: int, size: float) -> None:
        """Make the update of one mistake in place, in the precision of the weights."""
        phi = self._phi(i).to(weights.weight.dtype)
        weights.weight[0].add_(phi[int(self.y[i])] - phi[predicted], alpha=size)

    def scores(self, weights: Weights, samples: Samples | None = None) -> Tensor:
        """Return w·φ(x, k): (N, K)."""
        return in_blocks(samples or self.samples, lambda block: self.features(block.dense()) @ weights.weight[0])

    def total(self, start: Weights, mistakes: Mistakes, steps: int) -> Weights:
        """Return the float64 sum of the weights over ``steps`` steps."""
        total = Weights(start.weight.double() * steps, start.bias.double())
        for i, step, coef, predicted in mistakes.rows():
            self.update(total, i, predicted, coef * (steps - step))
        return total

    def model(self, weights: Weights) -> Model:
        """Return the classifier with these weights, scaled; do not change them afterwards."""
        width, given = self.samples.n_features, weights.scaled(self.scale)
        return JointModel(*given, self.num_classes, n_features=width, features=self.features)

    def state_scores(self, samples: Samples, weight: Tensor, bias: Tensor) -> Tensor:
        """Return the scores of samples for S states at once: weight (S, 1, D) → (n, S, K)."""
        phi = self.features(samples.dense().to(self.samples.dtype)).double()
        return torch.einsum("nkd,sd->nsk", phi, weight[:, 0])

    def describe(self) -> dict[str, Any]:
        """Return what a saved log must know of the problem besides the data."""
        own = self.features
        in_blocks = isinstance(own, partial) and own.func is tpf.joint_features
        bias = own.keywords.get("bias", True) if in_blocks else None  # type: ignore[attr-defined]
        return {**super().describe(), "kind": "joint", "block_bias": bias}

    def _phi(self, i: int) -> Tensor:
        return self.features(self.samples.take(torch.tensor([i], device=self.samples.device)).dense())[0]
