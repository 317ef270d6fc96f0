"""What an epoch adds up to: loss, error and margin, accumulated on the device and read once."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from torchperc import functional as tpf
from torchperc.heads import Head


class EpochSums:
    """Sums over the batches of an epoch. Nothing is read off the device before :meth:`means`."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Forget everything."""
        self._loss: Tensor | None = None
        self._errors: Tensor | None = None
        self._slack: Tensor | None = None
        self._count = 0

    @torch.no_grad()
    def add(self, head: Head, loss: Tensor, scores: Tensor, y: Tensor, norm: Tensor | None) -> None:
        """Add a batch: its mean loss, its mistakes, and its smallest slack over the length of the weights."""
        wrong, slack = (
            torch.stack([(head.decide(scores) != y).sum(), head.mistakes(scores, y).sum()]),
            tpf.slacks(scores, y).min(),
        )
        slack = slack if norm is None else torch.where(norm > 0, slack / norm, torch.zeros_like(slack))
        if self._loss is None or self._errors is None or self._slack is None:
            self._loss, self._errors, self._slack = loss.detach() * len(y), wrong, slack
        else:
            self._loss, self._errors = self._loss + loss.detach() * len(y), self._errors + wrong
            self._slack = torch.minimum(self._slack, slack)
        self._count += len(y)

    def state_dict(self) -> dict[str, Any]:
        """The sums so far."""
        return {"loss": self._loss, "errors": self._errors, "slack": self._slack, "count": self._count}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """The sums so far again."""
        self._loss, self._errors, self._slack = state["loss"], state["errors"], state["slack"]
        self._count = state["count"]

    def means(self) -> dict[str, float]:
        """Mean loss, share of wrong decisions, number of mistakes as the head counts them, and the smallest slack."""
        if self._loss is None or self._errors is None or self._slack is None:
            return {}
        errors, mistakes = self._errors.tolist()
        return {
            "loss": float(self._loss) / self._count,
            "error": errors / self._count,
            "mistakes": float(mistakes),
            "margin": float(self._slack),
        }
