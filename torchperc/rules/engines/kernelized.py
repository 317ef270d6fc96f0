"""The engine of the kernel perceptron."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from torchperc.nn import functional as tpf
from torchperc.rules.engines.reference import Engine, Task, shaped
from torchperc.rules.log import Mistake, Mistakes
from torchperc.rules.models import Model
from torchperc.rules.spaces import Entries, KernelSpace, Weights, dual
from torchperc.samples.rows import Rows


class KernelEngine(Engine):
    """The rule in a kernel's space.

    Every sample's scores are kept with the number of log entries they include. A block is brought up to date by one
    matrix product with the support vectors that are new to it; then a mistake costs one Gram row.
    """

    block = 512

    def __init__(self, task: Task) -> None:
        assert isinstance(task.space, KernelSpace)
        self.task, self.space = task, task.space
        rows = self.space.rows
        self._scores = torch.zeros(len(rows), self.space.outputs, dtype=rows.dtype, device=rows.device)
        self._included = torch.zeros(len(rows), dtype=torch.int64, device=rows.device)
        self._found: list[Mistake] = []

    def run(self, order: Tensor) -> Mistakes:
        """Present these samples in order, a block at a time."""
        before = len(self._found)
        for first in range(0, len(order), self.block):
            self._run_block(order[first : first + self.block], first)
        return Mistakes.of(self._found[before:], self.task.y.device)

    def _run_block(self, ids: Tensor, first: int) -> None:
        if len(ids.unique()) < len(ids):  # a sample twice in one block: its first visit may change its second score
            for at, i in enumerate(ids):
                self._run_block(i[None], first + at)
            return
        self._bring_up_to_date(ids)
        scores, rows, y, at = self._scores[ids], self.space.rows.take(ids), self.task.y[ids], 0
        while True:
            if not torch.isfinite(scores[at:]).all():
                raise ValueError("a score became infinite: the kernel's values are too large; scale X down")
            now = shaped(scores[at:], self.space)
            ahead = tpf.mistakes(now, y[at:], tie=self.task.tie, margin=self.task.margin).nonzero()
            if not len(ahead):
                break
            at += int(ahead[0])
            i, own = int(ids[at]), int(y[at])
            wrong = -own if self.space.classes is None else int(tpf.rival_scores(scores[at], y[at])[1])
            self._found.append(Mistake(i, first + at, self.task.coef(i, own), wrong))
            scores += self._effect(rows, len(self._found) - 1)
            at += 1
        self._scores[ids] = scores
        self._included[ids] = len(self._found)

    def _bring_up_to_date(self, ids: Tensor) -> None:
        included = self._included[ids]
        if (oldest := int(included.min())) < len(self._found):
            self._scores[ids] += self._effect(self.space.rows.take(ids), oldest, included)
            self._included[ids] = len(self._found)

    def _effect(self, rows: Rows, since: int, included: Tensor | None = None) -> Tensor:
        """What the mistakes from ``since`` on add to the scores, except those that are included already: (N, K)."""
        entries = self._entries(since)
        products = self.space.products(rows, entries).add_(self.space.bias_scale)
        if included is not None and bool((included > since).any()):
            products *= torch.arange(since, len(self._found), device=included.device) >= included[:, None]
        return products @ entries.signed(self.space.classes).to(products.dtype)

    def _entries(self, since: int = 0) -> Entries:
        found = Mistakes.of(self._found[since:], self.task.y.device)
        return Entries(found.sample, found.coef, self.task.y[found.sample], found.wrong)

    def training_scores(self) -> Tensor:
        """Every sample's scores, brought up to date."""
        for ids in torch.arange(len(self.space.rows), device=self._scores.device).split(self.block):
            self._bring_up_to_date(ids)
        return self._scores

    def scores(self, rows: Rows) -> Tensor:
        """Σ α·k(x_i, x) over the support vectors so far."""
        return self.model().row_scores(rows)

    def model(self) -> Model:
        """The current support vectors and coefficients."""
        nothing = torch.zeros(0, device=self._scores.device)
        return self.space.replay(Weights(nothing, nothing), self._entries())

    def norm(self) -> float:
        """√(Σ Σ α_i·α_j·k(x_i, x_j)), which is √(Σ α_i·s_i)."""
        alphas = dual(len(self._scores), self._entries(), self.space.classes)
        return math.sqrt(max(0.0, float((alphas * self.training_scores().double()).sum())))

    def state_dict(self) -> dict[str, Any]:
        """The mistakes so far, and every sample's scores with the number of mistakes they include."""
        kept = {"scores": self._scores.clone(), "included": self._included.clone()}
        return {"found": [tuple(mistake) for mistake in self._found], **kept}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Resume from there."""
        self._found = [Mistake(*mistake) for mistake in state["found"]]
        self._scores.copy_(state["scores"])
        self._included.copy_(state["included"])

    def _numbers(self) -> list[Tensor]:
        # not the coefficients: different ones may stand for the same weights; the future depends on the scores alone
        return [self.training_scores()]
