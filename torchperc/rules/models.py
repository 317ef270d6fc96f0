"""What a log turns into: classifiers that score and predict, by weights, by support vectors or by vote."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias, runtime_checkable

import torch
from torch import Tensor, nn

from torchperc._checks import Data
from torchperc.nn import functional as tpf
from torchperc.nn.modules import JointPerceptron, MulticlassPerceptron, Perceptron
from torchperc.rules.kernels import Kernel
from torchperc.samples.parts import as_rows
from torchperc.samples.rows import Rows

_BLOCK = 1024
Net: TypeAlias = Perceptron | MulticlassPerceptron | JointPerceptron | nn.Linear


@runtime_checkable
class OwnRule(Protocol):
    """A net that the rule learns in a way of its own, such as one of tag sequences."""

    def start_rule(self, trainer: Any, X: Any, y: Any, **options: Any) -> Any:
        """A run before its first epoch, with the methods of :class:`torchperc.rules.run.RuleRun`."""

    def rule_stream(self) -> Any:
        """What online learning keeps between calls, with the methods of :class:`torchperc.rules.online.Stream`."""


def decisions(scores: Tensor, classes: int | None) -> Tensor:
    """Scores (…, K), K = 1 for ``classes=None``, to labels (…)."""
    return tpf.decide(scores[..., 0]) if classes is None else tpf.decide_class(scores)


def rows_like(rows: Rows, X: Data, name: str = "X") -> Rows:
    """Checked samples of the width, type and device of others."""
    return as_rows(X, dtype=rows.dtype, device=rows.device, width=rows.width, name=name)


class Model(ABC):
    """A classifier of samples in rows; ``classes`` is ``None`` for labels −1/+1."""

    classes: int | None

    @abstractmethod
    def _admit(self, X: Data) -> Rows:
        """Checked samples in the model's width and dtype."""

    @abstractmethod
    def row_scores(self, rows: Rows) -> Tensor:
        """Scores of samples that are checked already: (N, K), K = 1 for two classes."""

    @torch.no_grad()
    def scores(self, X: Data) -> Tensor:
        """Scores: (N,) for two classes, (N, K) for K."""
        scores = self.row_scores(self._admit(X))
        if not torch.isfinite(scores).all():
            raise ValueError("some scores are too large for the model's dtype; scale X down")
        return scores.squeeze(-1) if self.classes is None else scores

    def predict(self, X: Data) -> Tensor:
        """Labels −1/+1, or class indices: (N,)."""
        scores = self.scores(X)
        return tpf.decide(scores) if self.classes is None else tpf.decide_class(scores)


@dataclass(frozen=True, eq=False)
class LinearModel(Model):
    """Weight (K, d) and bias (K,), or one weight vector (1, D) over joint features.

    Example:
        >>> LinearModel(torch.tensor([[3.0, 2.0]]), torch.tensor([-4.0])).predict([[0, 0], [1, 1]])
        tensor([-1, 1])
    """

    weight: Tensor
    bias: Tensor
    classes: int | None = None
    width: int | None = None
    features: Callable[[Tensor], Tensor] | None = None

    def _admit(self, X: Data) -> Rows:
        width = self.width or self.weight.shape[1]
        return as_rows(X, dtype=self.weight.dtype, device=self.weight.device, width=width)

    def row_scores(self, rows: Rows) -> Tensor:
        """w·x + b, or w·φ(x, k)."""
        if self.features is not None:
            return joint_scores(rows, self.weight, self.features)
        return rows.scores(self.weight, self.bias)

    def write_to(self, net: Net) -> None:
        """Copy weight and bias into a net of the same shape."""
        weight, bias = net.weight, net.bias
        if weight.shape != self.weight.shape or (bias is None and bool(self.bias.any())):
            found = f"{tuple(weight.shape)}{' and no bias' if bias is None else ''}"
            raise ValueError(
                f"net has weights of shape {found}, the model has {tuple(self.weight.shape)} and a bias; "
                "use a net like the one that was trained"
            )
        weight.detach().copy_(self.weight)
        if bias is not None:
            bias.detach().copy_(self.bias)


@dataclass(frozen=True, eq=False)
class KernelModel(Model):
    """s = Σ_m α_m·k(x_m, x) + b: support vectors, which training samples they are, coefficients (M, K), bias (K,)."""

    support: Rows
    index: Tensor
    coefs: Tensor
    bias: Tensor
    kernel: Kernel
    classes: int | None = None

    def _admit(self, X: Data) -> Rows:
        return rows_like(self.support, X)

    def row_scores(self, rows: Rows) -> Tensor:
        """Σ α·k + b."""
        return _in_blocks(rows, lambda block: self.kernel.gram(block, self.support) @ self.coefs + self.bias)


def joint_scores(rows: Rows, weight: Tensor, features: Callable[[Tensor], Tensor]) -> Tensor:
    """w·φ(x, k) for every sample and class: (N, K)."""
    return _in_blocks(rows, lambda block: features(block.dense()) @ weight[0])


def _in_blocks(rows: Rows, score: Callable[[Rows], Tensor]) -> Tensor:
    blocks = torch.arange(len(rows), device=rows.device).split(_BLOCK)
    return torch.cat([score(rows.take(block)) for block in blocks])
