"""A new head: the hinge loss of a support vector machine."""

from dataclasses import dataclass

import torch

import torchperc as tp


@dataclass(frozen=True)
class HingeHead(tp.heads.Head):
    """Output s itself, loss max(0, margin − y·s) for labels −1/+1, decision s ≥ 0."""

    margin: float = 1.0

    def output(self, scores):
        """The score itself."""
        return scores

    def loss(self, scores, y, reduction="mean"):
        """0 beyond the margin, and rising in proportion before it."""
        losses = torch.relu(self.margin - y * scores)
        return tp.functional.reduce(losses, reduction)

    def mistakes(self, scores, y):
        """The samples that the loss moves the weights for."""
        return y * scores < self.margin
