"""The blocked engine: exact sequential learning by matrix products, for GPUs.

Within a block of B samples with Gram matrix K, the score of sample i is s_i = S_i + Σ_{j<i} m_j·c_j·K_ij, and the
mistakes m solve m_i = [y_i·s_i ≤ 0], where each depends on earlier ones only. Every sweep settles at least one more, so
a sweep that changes nothing has found the one solution: in practice after about as many sweeps as there are mistakes.

A GPU works through a queue, and asking it anything means to wait until the queue is empty. So blocks are learned on
trust, many in a row: the device itself keeps a flag that all of them were solved beyond doubt, and as soon as one was
not, it and all after it change nothing. One look after a long stretch, at best after the epoch, tells how far it got.
The block where it stopped is learned on the host by the plain loop, and so are stretches with too many mistakes.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor

from torchperc.rules.engines.compiled import CompiledEngine, obstacle
from torchperc.rules.engines.reference import LinearEngine, ReferenceEngine, Task
from torchperc.rules.log import Mistakes
from torchperc.rules.spaces import Weights
from torchperc.samples import compiling
from torchperc.samples.rows import DenseRows, Rows

_LARGEST = 1024  # samples in a block
_GROWTH = 8  # of the stretch between two looks, after one without a flag
_FEW = 3  # mistakes in a block, by which its size is chosen
_IN_TURN = 8  # updates that a device makes one after the other, where sums round
_SWEEPS = 32  # at most, before the plain loop is faster
_ON_HOST = 2**24  # numbers that are copied to the host at a time


class _Part(NamedTuple):
    """Samples in memory and their numbers in order, there and in all data; label, coefficient, class taken for."""

    rows: Rows
    at: Tensor
    ids: Tensor
    own: Tensor
    coefs: Tensor
    wrong: Tensor


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
        self._whole = torch.equal(different, different.trunc()) and float(self.space.bias_scale).is_integer()
        self._largest = float(different.abs().max())
        # c·x is exact, so that a product and a sum round as the one operation of the plain loop does
        self._shifts = task.common is not None and math.frexp(task.common)[0] in (0.5, -0.5)
        self._waits = self.space.rows.device.type != "cpu"
        self._exact = False
        self._rate, self._ahead = 0.5, 8  # mistakes per sample lately; blocks to learn before the next look

    def run(self, order: Tensor) -> Mistakes:
        """Present these samples in order, a block at a time."""
        assert self.rounding is not None
        numbers, most = Weights(*self._numbers()), len(order) * self._largest
        self._exact = self._whole and not self.rounding.bound(numbers, most, abs(self.space.bias_scale))
        own, coefs = self.task.y[order], self.task.coefs[order]
        wrong, made, self._total = own.clone(), 0, 0.0 if self._waits else None
        before = 0
        for rows, at in self.space.rows.parts(order):
            here = slice(before, before + len(at))
            part = _Part(rows, at, order[here], own[here], coefs[here], wrong[here])
            first = 0
            while first < len(at):
                learned, found = self._stretch(part, first)
                first, made = first + learned, made + found
            before += len(at)
        if self.wanted is not None and not self.told:
            self.told = self.wanted().tolist()
        step = _first(wrong != own, made)
        coef = coefs[step] * (own[step] if self.space.classes is None else 1)
        return Mistakes(order[step], step, coef, wrong[step])

    def _stretch(self, part: _Part, first: int) -> tuple[int, int]:
        """Learn some samples from the first on: how many they were, and how many mistakes."""
        size = self.block
        while self._waits and 2 * size <= _LARGEST and 2 * size * self._rate <= _FEW:
            size *= 2
        if self._waits and not self._exact and (self.block * self._rate > _IN_TURN / 2 or not self._shifts):
            blocks = max(1, min(self._ahead, _ON_HOST // (size * self.space.rows.width)))
            learned, made = self._by_plain_loop(part, first, first + blocks * size)
            self._ahead = _GROWTH * blocks
        else:
            blocks = self._ahead if self._waits else 1
            solved, made = self._on_trust(part, first, blocks, size)
            learned = min(solved * size, len(part.at) - first)
            if learned < min(blocks * size, len(part.at) - first):
                self._ahead = max(1, min(blocks, 2 * solved))
                more, found = self._by_plain_loop(part, first + learned, first + learned + size)
                learned, made = learned + more, made + found
            else:
                self._ahead = _GROWTH * min(blocks, len(part.at))
        self._rate = (made + 1) / (learned + 1)
        return learned, made

    def _on_trust(self, part: _Part, first: int, blocks: int, size: int) -> tuple[int, int]:
        """Learn blocks without looking: how many were solved before the first that was not, and their mistakes."""
        trusted = torch.ones((), dtype=torch.bool, device=part.own.device)
        solved = torch.zeros((), dtype=torch.int64, device=part.own.device)
        last = min(first + blocks * size, len(part.at))
        for start in range(first, last, size):
            here = slice(start, min(start + size, last))
            own, rows = part.own[here], part.rows.take(part.at[here])
            moves, found, sure = self._solve(rows, own, part.coefs[here].to(rows.dtype))
            trusted = trusted & sure
            solved += trusted
            part.wrong[here] = found = torch.where(trusted, found, own)
            self._update(rows, torch.where(trusted, moves, 0), own, found, part.ids[here])
        mistakes = part.wrong[first:last] != part.own[first:last]
        weight = (part.coefs[first:last] * mistakes).abs().sum() if self.task.common is None else solved
        wanted = [self.wanted()] if self.wanted is not None and last == len(part.at) else []
        count, made, total, *self.told = self.look(solved, mistakes.sum(), weight, *wanted)
        if self._total is not None:
            self._total += total if self.task.common is None else made * abs(self.task.common)
        return int(count), int(made)

    def _solve(self, rows: Rows, own: Tensor, coefs: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Updates of a block, the class each sample was taken for, and whether both are beyond doubt."""
        scores = rows.scores(self.weights.weight, self.weights.bias)
        earlier = rows.dots(rows).add_(self.space.bias_scale).tril_(-1)
        sweep = self._two(own, coefs) if self.space.classes is None else self._many(own, coefs)
        if self.space.classes is None:  # a sweep sees y·s
            scores, earlier = scores * own[:, None], earlier.mul_(own[:, None])
        moves = torch.zeros_like(scores)
        sweeps = min(_SWEEPS, 6 + math.ceil(2 * self._rate * len(own))) if self._waits else len(own) + 1
        for _ in range(sweeps):
            before, seen = moves, torch.addmm(scores, earlier, moves)
            moves, wrong = sweep(seen)
            if not self._waits and torch.equal(moves, before):
                break
        mistake = (moves != 0).any(1)
        found = torch.where(mistake, -own, own) if self.space.classes is None else wrong
        sure = torch.eq(moves, before).all() & torch.isfinite(seen).all()
        if self._exact:
            return moves, found, sure
        assert self.rounding is not None
        steps = moves.abs().amax(1)
        bound = self.rounding.bound_of_block(self.weights, steps, self.space.bias_scale, whole=self._whole)
        sure = sure & ~((bound > 0) & self._open(seen, own, bound))
        return moves, found, sure & (mistake.sum() <= _IN_TURN) if self._waits else sure

    def _update(self, rows: Rows, moves: Tensor, own: Tensor, found: Tensor, ids: Tensor) -> None:
        """Make the updates of a block: together where that is exact, else in turn."""
        weights, scale = self.weights, self.space.bias_scale
        if self._exact:
            weights.weight += rows.mix(moves)
            weights.bias += moves.sum(0) * scale
        elif self._waits:
            at = _first(found != own, _IN_TURN)  # what comes after the mistakes moves nothing
            steps, x = moves[at], rows.take(at).dense()
            for step, bias in zip(steps[:, :, None] * x[:, None], steps * scale, strict=True):
                weights.weight += step
                weights.bias += bias
        else:
            at = (found != own).nonzero().squeeze(-1)
            for i, y, wrong in zip(ids[at].tolist(), own[at].tolist(), found[at].tolist(), strict=True):
                self.space.update(weights, i, self.task.coef(i, y), y, wrong)

    def _by_plain_loop(self, part: _Part, first: int, last: int) -> tuple[int, int]:
        """Learn some samples on the host: how many they were, and how many mistakes."""
        here, self.told = slice(first, min(last, len(part.at))), None
        own = part.own[here]
        if not self._waits:
            mistakes = self._plain.run(part.ids[here])
            part.wrong[here] = own.index_put((mistakes.step,), mistakes.wrong)
            return len(own), len(mistakes.step)
        columns = part.rows.take(part.at[here]).dense(), own[:, None], part.coefs[here, None]
        numbers = torch.cat([column.double() for column in columns], 1).cpu()  # one wait
        x, own, coefs = numbers[:, :-2].to(self.space.rows.dtype), numbers[:, -2].long(), numbers[:, -1]
        if self.task.common is not None:
            coefs = coefs[:1].expand(len(own))
        task = replace(self.task, space=replace(self.space, rows=DenseRows(x)), y=own, coefs=coefs)
        compiles = len(own) >= compiling.WORTH_IT and obstacle(task.space) is None
        weights = Weights(*(values.to(x.dtype) for values in self._numbers()))
        engine = (CompiledEngine if compiles else ReferenceEngine)(task, weights)
        mistakes = engine.run(torch.arange(len(own)))
        part.wrong[here].copy_(own.index_put((mistakes.step,), mistakes.wrong), non_blocking=True)
        self.weights.weight.copy_(engine.weights.weight, non_blocking=True)
        self.weights.bias.copy_(engine.weights.bias, non_blocking=True)
        self._seen = self._version(), [engine.weights.weight.double(), engine.weights.bias.double()]
        if self._total is not None:
            self._total += engine.total(mistakes)
        return len(own), len(mistakes.step)

    @cached_property
    def _plain(self) -> ReferenceEngine:
        """The plain loop on the same weights."""
        return ReferenceEngine.on(self.task, self.weights)

    def _open(self, seen: Tensor, own: Tensor, bound: Tensor) -> Tensor:
        """Whether rounding leaves any mistake of the block open, or which class a sample was taken for."""
        near = 2 * bound
        if self.space.classes is None:
            return ((seen[:, 0] - self.task.margin).abs() <= near).any()
        best = seen.scatter(1, own[:, None], -math.inf).topk(min(2, self.space.outputs - 1), -1).values.double()
        slack = seen.gather(1, own[:, None])[:, 0].double() - best[:, 0] - self.task.margin
        several = (best[:, 0] - best[:, -1] <= near) & (slack <= near) & (best.shape[1] > 1)
        return ((slack.abs() <= near) | several).any()

    def _two(self, own: Tensor, coefs: Tensor) -> Callable[[Tensor], tuple[Tensor, Tensor]]:
        """A sweep with one score: from y·s to updates; the second result is not used."""
        step, negative, nothing = (coefs * own)[:, None], own[:, None] < 0, coefs.new_zeros(())
        return lambda slack: (torch.where(self._below(slack, negative), step, nothing), own)

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


def _first(mistake: Tensor, count: int) -> Tensor:
    """The numbers of the first mistakes; on a device as many as asked for, since nonzero would wait for the number."""
    if mistake.device.type == "cpu":
        return mistake.nonzero().squeeze(-1)
    return mistake.byte().sort(descending=True, stable=True).indices[:count]
