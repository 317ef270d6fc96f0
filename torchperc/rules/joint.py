"""The rule for joint features φ(x, k): one weight vector for all classes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor

from torchperc._checks import weights_overflow
from torchperc.nn import functional as tpf
from torchperc.rules.decision import PerceptronRule, predicted_as
from torchperc.rules.models import LinearModel, Model, in_blocks
from torchperc.rules.problem import Mistakes, Problem, Weights
from torchperc.samples.rows import Samples

Features = Callable[[Tensor], Tensor]


@dataclass(frozen=True, eq=False)
class JointModel(LinearModel):
    """One weight vector (1, D) over joint features φ: (N, d) → (N, K, D)."""

    sample_features: int = 0
    features: Features | None = None

    @property
    def n_features(self) -> int:
        """The number of features of a sample."""
        return self.sample_features

    def row_scores(self, samples: Samples) -> Tensor:
        """Return w·φ(x, k) for every class: (N, K)."""
        assert self.features is not None
        phi = self.features
        return in_blocks(samples, lambda block: phi(block.dense()) @ self.weight[0])


@dataclass(frozen=True, eq=False)
class JointProblem(Problem):
    """A :class:`Problem` whose updates are w += c·(φ(x, y) − φ(x, r)); a bias is part of φ."""

    features: Features = field(kw_only=True)

    @property
    def can_compile(self) -> bool:
        """Joint features are a function of the user's, which is not compiled."""
        return False

    def predict(self, weights: Weights, i: int, rule: PerceptronRule | None = None) -> int:
        """Return the wrong class sample i is predicted as by its scores, or its label if it is no mistake."""
        rule = rule or self.rule
        scores = self._phi(torch.tensor([i]))[0] @ weights.weight[0]
        if not torch.isfinite(scores).all():
            raise weights_overflow()
        return int(predicted_as(scores.tolist(), int(self.y[i]), rule.code, rule.margin, 0))

    def update(self, weights: Weights, i: int, predicted: int, step: float) -> None:
        """Make the update of one mistake in place, in the precision of the weights."""
        phi = self._phi(torch.tensor([i]))[0].to(weights.weight.dtype)
        weights.weight[0].add_(phi[int(self.y[i])] - phi[predicted], alpha=step)

    def scores(self, weights: Weights, samples: Samples | None = None) -> Tensor:
        """Return w·φ(x, k): (N, K)."""
        return in_blocks(samples or self.samples, lambda block: self.features(block.dense()) @ weights.weight[0])

    def score_error(self, weights: Weights, samples: Samples) -> float:
        """Return 0: joint features are scored in one way only, so their rounded scores decide."""
        return 0.0

    def total(self, start: Weights, mistakes: Mistakes, steps: int) -> Weights:
        """Return the sum in float64 of the weights after each of so many steps."""
        total = Weights(start.weight.double() * steps, start.bias.double())
        for i, step, coef, predicted in mistakes.rows():
            self.update(total, i, predicted, coef * (steps - step))
        return total

    def model(self, weights: Weights) -> Model:
        """Return the classifier with these weights, scaled; do not change them afterwards."""
        return JointModel(*weights.scaled(self.scale), self.num_classes, self.samples.n_features, self.features)

    def state_scores(self, samples: Samples, weight: Tensor, bias: Tensor) -> Tensor:
        """Return the scores of samples for S states at once: weight (S, 1, D) → (n, S, K)."""
        phi = self.features(samples.dense().to(self.samples.dtype)).double()
        return torch.einsum("nkd,sd->nsk", phi, weight[:, 0])

    def describe(self) -> dict[str, Any]:
        """Return what a saved log must know of the problem besides the data."""
        own = self.features
        block = isinstance(own, partial) and own.func is tpf.joint_features
        bias = own.keywords.get("bias", True) if isinstance(own, partial) and block else None
        return {**super().describe(), "kind": "joint", "block_bias": bias}

    def _phi(self, index: Tensor) -> Tensor:
        return self.features(self.samples.take(index.to(self.samples.device)).dense())
