"""The head of chains: what the scores of whole tag sequences mean."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import Tensor

from torchperc import _checks as checks
from torchperc.nn import functional as tpf
from torchperc.nn.heads import Head
from torchperc.sequences.chains import StructuredPerceptronLoss
from torchperc.sequences.decoding import ChainScores, best_tags


@dataclass(frozen=True)
class StructuredHead(Head):
    """Output and decision are the best tag sequence, by Viterbi; the loss is :class:`StructuredPerceptronLoss`.

    Scores are those of a :class:`ChainPerceptron` or of any net that gives :class:`ChainScores`; labels are tags (N, T)
    with −100 behind the end of each sequence.

    Args:
        margin: by which a sequence must beat each other one per tag in which they differ; 0 is the classic criterion.
        tie: the derivative where another sequence has the same score, see :class:`StructuredPerceptronLoss`.

    Example:
        >>> import torch
        >>> from torchperc.sequences import ChainPerceptron
        >>> head, scores = StructuredHead(), ChainPerceptron(1, 2)(torch.ones(1, 3, 1))
        >>> head.decide(scores), head.mistakes(scores, torch.tensor([[0, 0, 1]]))
        (tensor([[0, 0, 0]]), tensor([True]))
    """

    margin: float = 0.0
    tie: str = "update"

    def __post_init__(self) -> None:
        object.__setattr__(self, "margin", checks.number("margin", self.margin, at_least=0))
        object.__setattr__(self, "tie", tpf.tie_name(self.tie))
        self._criterion("mean")  # refuses what does not go together

    def _criterion(self, reduction: str) -> StructuredPerceptronLoss:
        return StructuredPerceptronLoss(reduction, self.margin, self.tie)

    def output(self, scores: Any) -> Tensor:
        """The best tags."""
        return self.decide(scores)

    def decide(self, scores: Any) -> Tensor:
        """The best tags: (N, T), −100 behind the end of each sequence."""
        return best_tags(_chain(scores))

    def loss(self, scores: Any, y: Tensor, reduction: str = "mean") -> Tensor:
        """The perceptron criterion of whole sequences."""
        return self.judge(scores, y, reduction)[0]

    def mistakes(self, scores: Any, y: Tensor) -> Tensor:
        """Which sequences the loss moves the weights for: (N,)."""
        return self._criterion("none").violators(_chain(scores), y)[1]

    def judge(self, scores: Any, y: Tensor, reduction: str = "none") -> tuple[Tensor, Tensor]:
        """:meth:`loss` and :meth:`mistakes`, which need the same search."""
        criterion = self._criterion(reduction)
        wrong, counts = criterion.violators(_chain(scores), y)
        return criterion.against(scores, y, wrong, counts), counts


def _chain(scores: Any) -> ChainScores:
    if not isinstance(scores, ChainScores):
        raise TypeError(
            f"the head 'structured' needs ChainScores, as a ChainPerceptron gives them, found {type(scores).__name__}; "
            "use another head, such as 'perceptron', for scores of single samples"
        )
    return scores
