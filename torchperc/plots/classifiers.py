"""Adapter from models to displays: scores, decisions and weights of a net, a model, a result or a function."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from torchperc._checks import Data, check_labels, is_sparse
from torchperc.nn import functional as tpf
from torchperc.nn.heads import Head, PerceptronHead
from torchperc.nn.modules import MLP, MulticlassPerceptron, Perceptron, eval_mode
from torchperc.rules.kernel import KernelModel
from torchperc.rules.log import MistakeLog, VotedModel
from torchperc.rules.models import LinearModel, Model
from torchperc.rules.run import RuleResult
from torchperc.samples import convert


@dataclass(frozen=True, eq=False)
class Classifier:
    """Scores and how they are decided, with the weights of a linear classifier."""

    score: Callable[[Tensor], Any]  # from samples (N, d) to scores (N,) or (N, K)
    head: Head
    dtype: torch.dtype | None = None  # that samples must have
    device: torch.device | None = None
    weight: Tensor | None = None  # of a linear classifier, (1, d) or (K, d)
    graded: bool = False  # whether a score says how far a sample is from the boundary, here or in a kernel's space

    def judge(self, X: Data, y: Data) -> tuple[Any, Tensor, Tensor]:
        """Checked samples, their scores and their checked labels."""
        samples = self.admit(X)
        scores = self.scores(samples)
        return samples, scores, self.labels(y, scores)

    def admit(self, X: Data, name: str = "X") -> Any:
        """Checked samples, in the classifier's dtype: a tensor, or a CSR array if they are sparse."""
        width = None if self.weight is None else self.weight.shape[1]
        if is_sparse(X):
            return convert.sparse_features(X, dtype=self.dtype or torch.get_default_dtype(), width=width, name=name)
        given = X.dtype if isinstance(X, Tensor) and X.is_floating_point() else torch.get_default_dtype()
        return convert.features(X, dtype=self.dtype or given, device=self.device, width=width, name=name, convert=True)

    @torch.no_grad()
    def scores(self, X: Any) -> Tensor:
        """Scores on the CPU: (N,), or (N, K)."""
        given = X if isinstance(X, Tensor) else convert.csr_tensor(X).to(self.device)
        scores: Tensor = torch.as_tensor(self.score(given)).detach().cpu()
        scores = scores.squeeze(-1) if scores.dim() == 2 and scores.shape[1] == 1 else scores
        if scores.dim() not in (1, 2) or len(scores) != X.shape[0]:
            found = f"scores of shape {tuple(scores.shape)} for {X.shape[0]} samples"
            raise ValueError(f"the model gives {found}; (N,) or (N, K) is needed")
        return scores

    def labels(self, y: Data, scores: Tensor) -> Tensor:
        """Checked labels: −1/+1 for one score per sample, class indices for K."""
        return check_labels(y, len(scores), scores.shape[1] if scores.dim() > 1 else None, both=False).cpu()

    def functional_margins(self, scores: Tensor, y: Tensor) -> Tensor:
        """y·(s − threshold), or s_y − s_r against the strongest other class: (N,)."""
        return tpf.functional_margins(scores.double() - (self.head.threshold if scores.dim() == 1 else 0.0), y)


def classifier(model: Any, head: Head | None = None) -> Classifier:
    """The adapter of a model; see :class:`torchperc.plots.style.Display` for what models are."""
    model = model.model if isinstance(model, RuleResult) else model
    if isinstance(model, nn.Module):
        return _of_module(model, head)
    head = head or PerceptronHead()
    if isinstance(model, LinearModel):
        weight, plain = model.weight, type(model) is LinearModel
        own = weight.detach().cpu() if plain else None
        return Classifier(model.scores, head, weight.dtype, weight.device, own, graded=plain)
    if isinstance(model, KernelModel | VotedModel):
        rows = model.support if isinstance(model, KernelModel) else model.log.problem.samples
        return Classifier(model.scores, head, rows.dtype, rows.device, graded=isinstance(model, KernelModel))
    if isinstance(model, Model) or callable(model):
        return Classifier(model.scores if isinstance(model, Model) else model, head)
    raise TypeError(f"model must be a net, a model, a RuleResult or a function, found {type(model).__name__}")


def check_log(log: object) -> MistakeLog:
    """The log, or that of a result; anything else raises."""
    found = log.log if isinstance(log, RuleResult) else log
    if not isinstance(found, MistakeLog):
        raise TypeError(f"log must be a MistakeLog, such as result.log, found {type(found).__name__}")
    return found


def codes_of(scores: Tensor) -> list[int]:
    """The labels that scores stand for: −1/+1 for one per sample, else class indices."""
    return [-1, 1] if scores.dim() == 1 else list(range(scores.shape[1]))


def _of_module(module: nn.Module, head: Head | None) -> Classifier:
    own = getattr(module, "head", None)
    head = head or (own if isinstance(own, Head) else PerceptronHead())
    net = getattr(module, "net", module)
    if isinstance(net, MLP) and not net.hidden:
        net = net.layers[0]
    weight = net.weight.detach().cpu() if isinstance(net, nn.Linear | Perceptron | MulticlassPerceptron) else None
    first = next(module.parameters(), None)
    dtype, device = (None, None) if first is None else (first.dtype, first.device)

    def score(X: Tensor) -> Any:
        with eval_mode(module):
            return module(X)

    return Classifier(score, head, dtype, device, weight, graded=weight is not None)
