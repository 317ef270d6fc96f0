"""The blocked engine: exact sequential learning by matrix products, for GPUs.

Within a block of B samples with Gram matrix K, the score of sample i is s_i = S_i + Σ_{j<i} m_j·c_j·K_ij, and the
mistakes m solve m_i = [y_i·s_i ≤ 0], where each depends on earlier ones only. Every sweep settles at least one more, so
a sweep that changes nothing has found the one solution: in practice after a few sweeps, never more than B.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cached_property

import torch
from torch import Tensor

from torchperc import _checks as checks
from torchperc.rules.engines.reference import LinearEngine, ReferenceEngine, Task
from torchperc.rules.log import Mistakes
from torchperc.rules.spaces import Weights
from torchperc.samples.rows import Rows

SWEEPS = 4  # between two looks at whether anything still changes, for which the host waits for the device


class BlockedEngine(LinearEngine):
    """Blocks of samples, each learned by two matrix products and a few sweeps.

    A block in which a score is within rounding of the limit is learned by the plain loop, and updates are made together
    only where that is exact. So mistakes and weights are those of the plain loop.
    """

    block = 128

    def __init__(self, task: Task, start: Weights) -> None:
        super().__init__(task, start)
        self.weights.weight = self.weights.weight.contiguous()
        different = task.coefs[:1] if task.coefs.stride(0) == 0 else task.coefs
        self._total: float | None = None
        self._whole = torch.equal(different, different.trunc()) and float(self.space.bias_scale).is_integer()

    @cached_property
    def _plain(self) -> ReferenceEngine:
        """The plain loop on the same weights."""
        engine = ReferenceEngine(self.task, self.weights)
        engine.weights = self.weights
        return engine

    def run(self, order: Tensor) -> Mistakes:
        """Present these samples in order, a block at a time."""
        wrong = torch.empty_like(order)
        before = 0
        for rows, at in self.space.rows.parts(order):
            for first in range(0, len(at), self.block):
                part = slice(before + first, before + min(first + self.block, len(at)))
                wrong[part] = self._learn(rows.take(at[first : first + self.block]), order[part])
            before += len(at)
        own = self.task.y[order]
        step = self._where(wrong != own, order)
        sample = order[step]
        coef = self.task.coefs[sample]
        return Mistakes(sample, step, coef * own[step] if self.space.classes is None else coef, wrong[step])

    def total(self, found: Mistakes) -> float:
        """Σ|c|, which :meth:`run` has looked up already on a device."""
        return super().total(found) if self._total is None else self._total

    def _where(self, mistake: Tensor, order: Tensor) -> Tensor:
        """The numbers at which there is a mistake, with one wait for the device."""
        if mistake.device.type in ("cpu", "mps"):  # the latter cannot count in float64
            return mistake.nonzero().squeeze(-1)
        weighted = [(self.task.coefs[order] * mistake).abs().sum()] if self.task.common is None else []
        count, *total = self.look(mistake.sum(), *weighted)
        self._total = total[0] if total else None
        # as nonzero does, which would wait for their number
        return mistake.byte().sort(descending=True, stable=True).indices[: int(count)]

    def _learn(self, rows: Rows, ids: Tensor) -> Tensor:
        """Learn one block; return the class each sample was taken for."""
        own, coefs = self.task.y[ids], self.task.coefs[ids].to(rows.dtype)
        scores = rows.scores(self.weights.weight, self.weights.bias)
        earlier = rows.dots(rows).add_(self.space.bias_scale).tril_(-1)
        sweep = self._two(own, coefs) if self.space.classes is None else self._many(own, coefs)
        moves = torch.zeros_like(scores)
        for _ in range(0, len(ids) + SWEEPS, SWEEPS):
            for _ in range(SWEEPS):
                before, seen = moves, torch.addmm(scores, earlier, moves)
                moves, wrong = sweep(seen)
            settled, finite = torch.stack((torch.eq(moves, before).all(), torch.isfinite(seen).all())).tolist()
            if not finite:
                raise checks.weights_overflow()
            if settled:
                break
        assert self.rounding is not None
        steps = moves.abs().amax(1)
        bound = self.rounding.bound_of_block(self.weights, steps, self.space.bias_scale, whole=self._whole)
        rounds, undecided = torch.stack((bound > 0, self._open(seen, own, bound))).tolist()
        if rounds and undecided:
            mistakes = self._plain.run(ids)
            return own.index_put((mistakes.step,), mistakes.wrong)
        found = wrong if self.space.classes is not None else torch.where(moves[:, 0] != 0, -own, own)
        if not rounds:
            self.weights.weight += rows.mix(moves)
            self.weights.bias += moves.sum(0) * self.space.bias_scale
            return found
        for j in (found != own).nonzero().squeeze(-1).tolist():
            i = int(ids[j])
            self.space.update(self.weights, i, self.task.coef(i, int(own[j])), int(own[j]), int(found[j]))
        return found

    def _open(self, seen: Tensor, own: Tensor, bound: Tensor) -> Tensor:
        """Whether rounding leaves any mistake of the block open, or which class a sample was taken for."""
        near = 2 * bound
        if self.space.classes is None:
            return ((seen[:, 0] * own - self.task.margin).abs() <= near).any()
        best = seen.scatter(1, own[:, None], -math.inf).topk(min(2, self.space.outputs - 1), -1).values.double()
        slack = seen.gather(1, own[:, None])[:, 0].double() - best[:, 0] - self.task.margin
        several = (best[:, 0] - best[:, -1] <= near) & (slack <= near) & (best.shape[1] > 1)
        return ((slack.abs() <= near) | several).any()

    def _two(self, own: Tensor, coefs: Tensor) -> Callable[[Tensor], tuple[Tensor, Tensor]]:
        """A sweep with one score: from scores to updates; the second result is not used."""
        label, step, negative, nothing = own[:, None], (coefs * own)[:, None], own[:, None] < 0, coefs.new_zeros(())
        return lambda seen: (torch.where(self._below(seen * label, negative), step, nothing), own)

    def _many(self, own: Tensor, coefs: Tensor) -> Callable[[Tensor], tuple[Tensor, Tensor]]:
        """A sweep with K scores: from scores to updates, and the class each sample was taken for."""
        every = torch.arange(self.space.outputs, device=own.device)  # not one_hot, which looks at the labels
        mine = every == own[:, None]

        def sweep(seen: Tensor) -> tuple[Tensor, Tensor]:
            best, rival = seen.masked_fill(mine, -math.inf).max(-1)
            mistake = self._below(seen.gather(1, own[:, None])[:, 0].double() - best.double(), rival < own)
            step = torch.where(mistake, coefs, 0)[:, None] * (
                mine.to(coefs.dtype) - (every == rival[:, None]).to(coefs.dtype)
            )
            return step, torch.where(mistake, rival, own)

        return sweep

    def _below(self, slack: Tensor, loses_tie: Tensor) -> Tensor:
        """Whether the slack is a mistake."""
        if self.task.tie == "update":
            return slack <= self.task.margin
        below = slack < self.task.margin
        return below | (slack == 0) & loses_tie if self.task.tie == "sign" else below
