"""The head of chains: what the scores of whole tag sequences mean."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import Tensor

from torchperc._checks import check_number
from torchperc.nn.heads import Head
from torchperc.sequences.chains import ChainScores, StructuredPerceptronLoss, best_tags


@dataclass(frozen=True)
class StructuredHead(Head):
    """Output and decision are the best tag sequence, by Viterbi; the loss is :class:`StructuredPerceptronLoss`.

    Scores are those of a :class:`ChainPerceptron` or of any net that gives :class:`ChainScores`; labels are tags (N, T)
    with −100 behind the end of each sequence.

    Args:
        margin: by which a sequence must beat each other one per tag in which they differ; 0 is the classic criterion.

    Example:
        >>> import torch
        >>> from torchperc.sequences import ChainPerceptron
        >>> head, scores = StructuredHead(), ChainPerceptron(1, 2)(torch.ones(1, 3, 1))
        >>> head.decide(scores), head.mistakes(scores, torch.tensor([[0, 0, 1]]))
        (tensor([[0, 0, 0]]), tensor([True]))
    """

    margin: float = 0.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "margin", check_number("margin", self.margin, at_least=0))

    def output(self, scores: Any) -> Tensor:
        """The best tags."""
        return self.decide(scores)

    def decide(self, scores: Any) -> Tensor:
        """The best tags: (N, T), −100 behind the end of each sequence."""
        return best_tags(_chain(scores))

    def loss(self, scores: Any, y: Tensor, reduction: str = "mean") -> Tensor:
        """The perceptron criterion of whole sequences."""
        return StructuredPerceptronLoss(reduction, self.margin).forward(_chain(scores), y)

    def mistakes(self, scores: Any, y: Tensor) -> Tensor:
        """Which sequences the loss moves the weights for: (N,)."""
        return self.judge(scores, y)[1]

    def judge(self, scores: Any, y: Tensor) -> tuple[Tensor, Tensor]:
        """:meth:`loss` of each sequence and :meth:`mistakes`, which need the same search."""
        return StructuredPerceptronLoss("none", self.margin).judge(_chain(scores), y)


def _chain(scores: Any) -> ChainScores:
    if not isinstance(scores, ChainScores):
        raise TypeError(
            f"the head 'structured' needs ChainScores, as a ChainPerceptron gives them, found {type(scores).__name__}; "
            "use another head, such as 'perceptron', for scores of single samples"
        )
    return scores
