"""Classifiers that score and predict: what a log turns into."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn

from torchperc._checks import Data
from torchperc.nn import functional as tpf
from torchperc.nn.modules import JointPerceptron, MulticlassPerceptron, Perceptron
from torchperc.samples.mapped import as_samples
from torchperc.samples.rows import Samples

Net: TypeAlias = Perceptron | MulticlassPerceptron | JointPerceptron | nn.Linear


class Model(ABC):
    """A classifier of samples in rows; ``num_classes`` is ``None`` for labels −1/+1."""

    num_classes: int | None

    @abstractmethod
    def _samples(self, X: Data) -> Samples:
        """Return checked samples in the model's width and dtype."""

    @abstractmethod
    def row_scores(self, samples: Samples) -> Tensor:
        """Return the scores of samples that are checked already: (N, K), K = 1 for two classes."""

    @torch.no_grad()
    def scores(self, X: Data) -> Tensor:
        """Return scores: (N,) for two classes, (N, K) for K."""
        scores = self.row_scores(self._samples(X))
        if not torch.isfinite(scores).all():
            raise ValueError("some scores are too large for the model's dtype; scale X down")
        return scores.squeeze(-1) if self.num_classes is None else scores

    def predict(self, X: Data) -> Tensor:
        """Return labels −1/+1, or class indices: (N,)."""
        scores = self.scores(X)
        return tpf.decide(scores) if self.num_classes is None else tpf.decide_class(scores)

    def write_to(self, net: Any) -> None:
        """Write the weights into a net of the same shape, where a net can hold them."""
        raise TypeError(f"the weights of a {type(self).__name__} fit into no net; use result.model")


@dataclass(frozen=True, eq=False)
class LinearModel(Model):
    """Weight (K, d) and bias (K,).

    Example:
        >>> LinearModel(torch.tensor([[3.0, 2.0]]), torch.tensor([-4.0])).predict([[0, 0], [1, 1]])
        tensor([-1, 1])
    """

    weight: Tensor
    bias: Tensor
    num_classes: int | None = None

    def _samples(self, X: Data, n_features: int | None = None) -> Samples:
        width = n_features or self.weight.shape[1]
        return as_samples(X, dtype=self.weight.dtype, device=self.weight.device, n_features=width)

    def row_scores(self, samples: Samples) -> Tensor:
        """Return w·x + b."""
        return samples.scores(self.weight, self.bias)

    def write_to(self, net: Any) -> None:
        """Copy weight and bias into a net of the same shape."""
        weight, bias = net.weight, net.bias
        if weight.shape != self.weight.shape or (bias is None and bool(self.bias.any())):
            found = f"{tuple(weight.shape)}{' and no bias' if bias is None else ''}"
            needed = f"{tuple(self.weight.shape)} and a bias"
            raise ValueError(f"net has weights of shape {found}, the trained net {needed}; use a net of that shape")
        weight.detach().copy_(self.weight)
        if bias is not None:
            bias.detach().copy_(self.bias)


def blocks(samples: Samples, size: int = 1024) -> Iterator[tuple[slice, Samples]]:
    """Yield all samples in blocks: which they are, and the rows."""
    for numbers in torch.arange(len(samples), device=samples.device).split(size):
        yield slice(int(numbers[0]), int(numbers[-1]) + 1), samples.take(numbers)


def in_blocks(samples: Samples, score: Callable[[Samples], Tensor]) -> Tensor:
    """Return the scores of all samples, computed a block at a time: (N, K)."""
    return torch.cat([score(rows) for _, rows in blocks(samples)])
