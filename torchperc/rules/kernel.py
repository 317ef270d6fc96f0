"""The rule in a kernel's feature space, which is never built: the model has a coefficient per support vector."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from torchperc._checks import Data, as_tensor, check_choice, check_int, check_number
from torchperc.nn import functional as tpf
from torchperc.rules.decision import host
from torchperc.rules.models import Model, blocks, in_blocks
from torchperc.rules.problem import Array, Mistake, Mistakes, Problem
from torchperc.samples.mapped import as_samples
from torchperc.samples.rows import Samples

KERNELS = ("linear", "poly", "rbf")
_BLOCK, _CHUNK = 512, 4096


@dataclass(frozen=True)
class Kernel:
    """k(x, z): ``"linear"`` x·z, ``"poly"`` (1 + x·z)^degree, ``"rbf"`` exp(−gamma·‖x − z‖²), or a function.

    Args:
        name: one of the above, or a function from (N, d) and (M, d) to the (N, M) matrix of k.
        degree: of ``"poly"``, at least 1.
        gamma: of ``"rbf"``, above 0.

    Example:
        >>> x = as_samples([[0, 1], [1, 1]], dtype=torch.float32)
        >>> Kernel("poly", degree=2).gram(x, x)
        tensor([[4., 4.],
                [4., 9.]])
    """

    name: str | Callable[[Any, Any], Any]
    degree: int = 3
    gamma: float = 1.0

    @classmethod
    def checked(cls, kernel: Any, options: dict[str, Any]) -> Kernel | None:
        """Return the named kernel with its options, or ``None``; options of other kernels raise."""
        owners = {"degree": "poly", "gamma": "rbf"}
        given = {name: value for name, value in options.items() if value is not None}
        for name, value in given.items():
            if name not in owners:
                raise TypeError(f"RuleTrainer has no argument {name}={value!r}; a kernel has degree or gamma")
            if kernel != owners[name]:
                why = f"needs kernel={owners[name]!r}, found kernel={kernel!r}; omit {name}"
                raise ValueError(f"{name}={value!r} {why}")
        if kernel is None:
            return None
        degree = check_int("degree", given.get("degree", 3), at_least=1)
        gamma = check_number("gamma", given.get("gamma", 1.0), above=0)
        return cls(kernel if callable(kernel) else check_choice("kernel", kernel, KERNELS), degree, gamma)

    def problem(self, *common: Any) -> KernelProblem:
        """Return the problem that learns with this kernel, from the fields that all problems have."""
        return KernelProblem(*common, kernel=self)

    def gram(self, samples: Samples, others: Samples) -> Tensor:
        """Return the Gram matrix of N samples and M others: (N, M)."""
        if callable(self.name):
            needed, found = (len(samples), len(others)), as_tensor(self.name(samples.raw(), others.raw()), "k(X, Z)")
            gram = found.to(samples.device, samples.dtype)
            if gram.shape != needed or not torch.isfinite(gram).all():
                what = f"shape {tuple(gram.shape)}" if gram.shape != needed else "numbers that are not finite"
                raise ValueError(f"the kernel function must return finite numbers of shape {needed}, found {what}")
            return gram
        if self.name == "rbf":
            x, z = samples.double(), others.double()  # far from the origin the three terms cancel
            distance = x.squared_norms()[:, None] - 2 * x.gram(z) + z.squared_norms()
            return distance.clamp_(min=0).mul_(-self.gamma).exp_().to(samples.dtype)
        dots = samples.gram(others)
        return dots if self.name == "linear" else dots.add_(1).pow_(self.degree)


@dataclass(frozen=True, eq=False)
class KernelModel(Model):
    """Kernel classifier s = Σ_m α_m·k(x_m, x) + b: support vectors, their indices, α (M, K) and bias (K,)."""

    support: Samples
    index: Tensor
    coefs: Tensor
    bias: Tensor
    kernel: Kernel
    num_classes: int | None = None

    def _samples(self, X: Data) -> Samples:
        own = self.support
        return as_samples(X, dtype=own.dtype, device=own.device, n_features=own.n_features)

    def row_scores(self, samples: Samples) -> Tensor:
        """Return Σ α·k + b: (N, K)."""
        return in_blocks(samples, lambda block: self.kernel.gram(block, self.support) @ self.coefs + self.bias)


@dataclass(eq=False)
class KernelState:
    """State in place of weights: all mistakes so far, and each sample's cached scores."""

    scores: Tensor
    included: Tensor
    found: list[Mistake]

    def clone(self) -> KernelState:
        """Return a copy."""
        return KernelState(self.scores.clone(), self.included.clone(), list(self.found))

    @property
    def any_nonzero(self) -> bool:
        """Whether there are support vectors."""
        return bool(self.found)

    def state_dict(self) -> dict[str, Any]:
        """Return everything needed to resume exactly."""
        return {**vars(self.clone()), "found": [tuple(mistake) for mistake in self.found]}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Resume from a :meth:`state_dict`."""
        self.found = [Mistake(*mistake) for mistake in state["found"]]
        self.scores.copy_(state["scores"])
        self.included.copy_(state["included"])


@dataclass(frozen=True, eq=False)
class KernelProblem(Problem):
    """A :class:`Problem` whose updates happen in a kernel's feature space."""

    kernel: Kernel = field(kw_only=True)
    can_compile = False
    near_ties_exact = False

    def laid_out(self, weights: Any = None) -> Any:
        """Return the state without support vectors."""
        count, dtype, device = len(self.samples), self.samples.dtype, self.samples.device
        scores = torch.zeros(count, self.outputs, dtype=dtype, device=device)
        return KernelState(scores, torch.zeros(count, dtype=torch.int64, device=device), [])

    def own_engine(self, state: Any, ids: Array) -> Mistakes:
        """Present samples in order, a block at a time.

        A block's scores are brought up to date by one matrix product with the support vectors that are new to it; then
        a mistake costs one row of the Gram matrix.
        """
        before = len(state.found)
        for first in range(0, len(ids), _BLOCK):
            self._learn_block(state, ids[first : first + _BLOCK], first)
        return Mistakes.of(state.found[before:])

    def _learn_block(self, state: KernelState, ids: Array, first: int) -> None:
        if len(np.unique(ids)) < len(ids):  # a sample twice in one block: its first visit may change its second score
            for at in range(len(ids)):
                self._learn_block(state, ids[at : at + 1], first + at)
            return
        numbers = torch.from_numpy(ids).to(state.scores.device)
        self._bring_up_to_date(state, numbers)
        scores, samples = state.scores[numbers], self.samples.take(numbers)
        y, at = torch.from_numpy(self.y[ids]).to(scores.device), 0
        while True:
            if not torch.isfinite(scores[at:]).all():
                raise ValueError("a score became infinite: the kernel's values are too large; scale X down")
            now = scores[at:].squeeze(-1) if self.num_classes is None else scores[at:]
            ahead = tpf.mistakes(now, y[at:], tie=self.rule.tie, margin=self.rule.margin).nonzero()
            if not len(ahead):
                break
            at += int(ahead[0])
            i, label = int(ids[at]), int(y[at])
            predicted = -label if self.num_classes is None else int(tpf.rival_scores(scores[at], y[at])[1])
            state.found.append(Mistake(i, first + at, float(self.coef(i)), predicted))
            scores += self._effect(state, samples, len(state.found) - 1)
            at += 1
        state.scores[numbers] = scores
        state.included[numbers] = len(state.found)

    def _bring_up_to_date(self, state: KernelState, numbers: Tensor) -> None:
        included = state.included[numbers]
        if (oldest := int(included.min())) < len(state.found):
            state.scores[numbers] += self._effect(state, self.samples.take(numbers), oldest, included)
            state.included[numbers] = len(state.found)

    def _effect(self, state: KernelState, samples: Samples, since: int, included: Tensor | None = None) -> Tensor:
        """Return what the mistakes from ``since`` on add to scores, except those included already: (N, K)."""
        mistakes = Mistakes.of(state.found[since:])
        products = self._products(samples, mistakes.sample)
        if included is not None and bool((included > since).any()):
            products *= torch.arange(since, len(state.found), device=included.device) >= included[:, None]
        return products @ torch.from_numpy(self.signed(mistakes)).to(products)

    def _products(self, samples: Samples, index: Array) -> Tensor:
        """Return k of samples with training samples, bias included: (N, M)."""
        unique, place = (torch.from_numpy(n).to(self.samples.device) for n in np.unique(index, return_inverse=True))
        return self.kernel.gram(samples, self.samples.take(unique))[:, place] + self.bias_step

    def scores(self, weights: Any, samples: Samples | None = None) -> Tensor:
        """Return the scores of samples (default: the training samples): (N, K)."""
        if samples is not None and samples is not self.samples:
            return self.model(weights, 1.0).row_scores(samples)
        for numbers in torch.arange(len(self.samples), device=weights.scores.device).split(_BLOCK):
            self._bring_up_to_date(weights, numbers)
        found: Tensor = weights.scores
        return found

    def replay(self, weights: Any, mistakes: Mistakes) -> None:
        """Add these mistakes to a state; scores are updated lazily."""
        weights.found += mistakes.rows()

    def total(self, start: Any, mistakes: Mistakes, steps: int) -> Any:
        """Return the sum of the coefficients over ``steps`` steps."""
        return self.dual(mistakes._replace(coef=mistakes.coef * (steps - mistakes.step)))

    def mean(self, total: Any, steps: int) -> Model:
        """Return the averaged model, given the sum over the steps."""
        return self._dual_model(total / steps, np.flatnonzero(total.any(axis=1)), self.scale)

    def model(self, weights: Any, scale: float | None = None) -> Model:
        """Return the classifier with the support vectors so far, scaled."""
        mistakes = Mistakes.of(weights.found)
        scale = self.scale if scale is None else scale
        return self._dual_model(self.dual(mistakes), np.unique(mistakes.sample), scale)

    def _dual_model(self, coefs: Array, support: Array, scale: float) -> KernelModel:
        rows, numbers = self.samples, torch.from_numpy(support).to(self.samples.device)
        values = (coefs[support], coefs.sum(0) * self.bias_step)
        alphas, bias = (torch.from_numpy(each * scale).to(rows.device, rows.dtype) for each in values)
        return KernelModel(rows.take(numbers), numbers, alphas, bias, self.kernel, self.num_classes)

    def norm(self, weights: Any) -> float:
        """Return √(Σ Σ α_i·α_j·k(x_i, x_j)), which is √(Σ α_i·s_i)."""
        alphas = self.dual(Mistakes.of(weights.found))
        return math.sqrt(max(0.0, float((alphas * host(self.scores(weights))).sum())))

    def digest(self, weights: Any) -> str:
        """Return a hash of the scores: different coefficients may give the same weights."""
        return super().digest([self.scores(weights)])

    def decisions(self, start: Any, mistakes: Mistakes, samples: Samples) -> Iterator[tuple[slice, int, Array]]:
        """Yield a block of samples, the first state's number, and the decisions of S states: (n, S)."""
        signed, size = self.signed(mistakes), max(1, _CHUNK // self.outputs)
        for block, part in blocks(samples):
            now = np.zeros((len(part), self.outputs))
            yield block, 0, self.labels(now[:, None])
            for first in range(0, len(signed), size):
                some = slice(first, first + size)
                products = host(self._products(part, mistakes.sample[some]))
                path = (products[:, :, None] * signed[some]).cumsum(1) + now[:, None]
                yield block, first + 1, self.labels(path)
                now = path[:, -1]

    def describe(self) -> dict[str, Any]:
        """Return the problem's settings for a saved log, without the data."""
        name, degree, gamma = self.kernel.name, self.kernel.degree, self.kernel.gamma
        kernel = {"kernel": name if isinstance(name, str) else "function", "degree": degree, "gamma": gamma}
        return {**super().describe(), "kind": "kernel", **kernel}
