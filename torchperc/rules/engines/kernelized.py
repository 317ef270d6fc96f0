"""The engine of the kernel perceptron."""

from __future__ import annotations

import math
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor

from torchperc.nn import functional as tpf
from torchperc.rules.engines.reference import Engine, Task, shaped
from torchperc.rules.log import Mistake, Mistakes
from torchperc.rules.models import Model
from torchperc.rules.spaces import Entries, KernelSpace, Weights
from torchperc.rules.states import tiled
from torchperc.samples import compiling
from torchperc.samples.rows import DenseRows, Rows

_Array: TypeAlias = "np.ndarray[Any, Any]"
_ENTRIES = 1024  # that are brought into the scores at a time


class KernelEngine(Engine):
    """The rule in a kernel's space.

    Every sample's scores are kept with the number of log entries they include. A block is brought up to date by one
    matrix product with the support vectors that are new to it; then a mistake costs one Gram row.
    """

    block = 512
    _at_once = 512  # samples whose scores are brought up to date together

    def __init__(self, task: Task) -> None:
        assert isinstance(task.space, KernelSpace)
        self.task, self.space = task, task.space
        rows = self.space.rows
        self._scores = torch.zeros(len(rows), self.space.outputs, dtype=rows.dtype, device=rows.device)
        self._included = torch.zeros(len(rows), dtype=torch.int64, device=rows.device)
        self._found: list[Mistake] = []
        self._squared_norm = 0.0

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
        scores, rows = self._up_to_date(ids), self.space.rows.take(ids)
        y, at = self.task.y[ids], 0
        while True:
            if not torch.isfinite(scores[at:]).all():
                raise _infinite()
            now = shaped(scores[at:], self.space)
            ahead = tpf.mistakes(now, y[at:], tie=self.task.tie, margin=self.task.margin).nonzero()
            if not len(ahead):
                break
            at += int(ahead[0])
            self._update(int(ids[at]), first + at, scores[at].clone())
            scores += self._effect(rows, len(self._found) - 1)
            at += 1
        self._scores[ids] = scores
        self._included[ids] = len(self._found)

    def _update(self, i: int, position: int, scores: Tensor) -> None:
        own = int(self.task.y[i])
        wrong = -own if self.space.classes is None else int(tpf.rival_scores(scores, self.task.y[i])[1])
        coef = self.task.coef(i, own)
        self._found.append(Mistake(i, position, coef, wrong))
        signed = self._columns(len(self._found) - 1).signed(self.space.classes)[0]
        row = self.space.rows.take(torch.tensor([i], device=self.task.y.device))
        length = float(self.space.kernel.gram(row, row)) + self.space.bias_scale
        self._squared_norm += float(2 * signed @ scores.double() + signed.square().sum() * length)

    def _up_to_date(self, ids: Tensor) -> Tensor:
        scores, included = self._scores[ids], self._included[ids]
        oldest = int(included.min())
        if oldest == len(self._found):
            return scores
        return scores + self._effect(self.space.rows.take(ids), oldest, included)

    def _effect(self, rows: Rows, since: int, included: Tensor | None = None) -> Tensor:
        """What the mistakes from ``since`` on add to the scores, less those that are included already: (N, K)."""
        entries = self._columns(since)
        products = self.space.products(rows, entries).add_(self.space.bias_scale)
        if included is not None and bool((included > since).any()):
            products *= torch.arange(since, len(self._found), device=included.device) >= included[:, None]
        return products @ entries.signed(self.space.classes).to(products.dtype)

    def _columns(self, since: int, end: int | None = None) -> Entries:
        found = Mistakes.of(self._found[since:end], self.task.y.device)
        return Entries(found.sample, found.coef, self.task.y[found.sample], found.wrong)

    def training_scores(self) -> Tensor:
        """Every sample's scores, brought up to date."""
        for ids in torch.arange(len(self.space.rows), device=self._scores.device).split(self._at_once):
            self._scores[ids] = self._up_to_date(ids)
            self._included[ids] = len(self._found)
        return self._scores

    def scores(self, rows: Rows) -> Tensor:
        """Σ α·k(x_i, x) over the support vectors so far."""
        return self.model().row_scores(rows)

    def model(self) -> Model:
        """The current support vectors and coefficients."""
        nothing = torch.zeros(0, device=self._scores.device)
        return self.space.replay(Weights(nothing, nothing), self._columns(0))

    def norm(self) -> float:
        """√(Σ Σ α_i·α_j·k(x_i, x_j))."""
        return math.sqrt(max(self._squared_norm, 0.0))

    def state_dict(self) -> dict[str, Any]:
        """The mistakes so far, and every sample's scores with the number of mistakes they include."""
        kept = {"scores": self._scores.clone(), "included": self._included.clone(), "norm": self._squared_norm}
        return {"found": [tuple(mistake) for mistake in self._found], **kept}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Resume from there."""
        self._found = [Mistake(*mistake) for mistake in state["found"]]
        self._scores.copy_(state["scores"])
        self._included.copy_(state["included"])
        self._squared_norm = state["norm"]

    def _numbers(self) -> list[Tensor]:
        # not the coefficients: different ones may stand for the same weights; the future depends on the scores alone
        return [self.training_scores()]


class CompiledKernelEngine(KernelEngine):
    """The same by compiled loops on threads of our own: no small operation waits for another core.

    For dense samples in float32 and float64 on the CPU, and the kernels that have a name. Every inner product of a
    sample with a log entry is computed once, so that there is nothing to keep but the scores.
    """

    block = 1024
    _at_once = 2**14

    def __init__(self, task: Task) -> None:
        super().__init__(task)
        from torchperc.rules.loops import dual

        kernel, rows = self.space.kernel, self.space.rows
        assert isinstance(rows, DenseRows)
        self._X = rows.X.numpy()
        self._how = (("linear", "poly", "rbf").index(str(kernel.name)), kernel.degree, kernel.gamma)
        rbf = self._how[0] == dual.RBF
        self._precise = np.empty(0, np.float64 if rbf else self._X.dtype)  # the type of inner products
        self._squares = rows.double().squared_norms().numpy() if rbf else np.zeros(len(rows))
        coefs = task.coefs[:1] if task.coefs.stride(0) == 0 else task.coefs
        self._y, self._coefs = task.y.numpy(), coefs.contiguous().numpy()

    @staticmethod
    def can(space: KernelSpace) -> bool:
        """Whether this engine can run a task in this space, and loading it pays."""
        rows = space.rows
        named = isinstance(space.kernel.name, str) and isinstance(rows, DenseRows)
        return named and compiling.pays(rows.dtype, rows.device, len(rows))

    def _run_block(self, ids: Tensor, first: int) -> None:
        from torchperc.rules.loops.dual import learn_block

        scores, numbers = self._up_to_date(ids).numpy(), ids.numpy()
        position, wrong = np.empty((2, len(ids)), np.int64)
        norm = np.array([self._squared_norm])
        found = learn_block(
            self._X, self._squares, numbers, self._y, self._coefs, scores, self._how, float(self.space.bias_scale),
            compiling.TIES[self.task.tie], float(self.task.margin), self._precise, position, wrong, norm,
        )  # fmt: skip
        if found < 0:
            raise _infinite()
        for at, taken in zip(position[:found].tolist(), wrong[:found].tolist(), strict=True):
            i = int(numbers[at])
            self._found.append(Mistake(i, first + at, self.task.coef(i, int(self._y[i])), taken))
        self._squared_norm = float(norm[0])
        self._scores.numpy()[numbers] = scores
        self._included.numpy()[numbers] = len(self._found)

    def _up_to_date(self, ids: Tensor) -> Tensor:
        from torchperc.rules.loops.dual import add_entries

        numbers = ids.numpy()
        scores, included = self._scores.numpy()[numbers], self._included.numpy()[numbers]
        for since in range(int(included.min()), len(self._found), _ENTRIES):
            entries = self._columns(since, since + _ENTRIES)
            samples = entries.sample.numpy()
            tiles, others = tiled(self._X[samples].astype(self._precise.dtype)), self._squares[samples]
            signed = entries.signed(self.space.classes).numpy().astype(scores.dtype)

            def add(
                begin: int, end: int, tiles: _Array = tiles, others: _Array = others, signed: _Array = signed,
                since: int = since,
            ) -> None:  # fmt: skip
                add_entries(
                    self._X, self._squares, numbers, begin, end, included, scores, tiles, others, signed, since,
                    self._how, float(self.space.bias_scale),
                )  # fmt: skip

            compiling.on_all_cores(add, len(numbers))
        return torch.from_numpy(scores)


def _infinite() -> ValueError:
    return ValueError("a score became infinite: the kernel's values are too large; scale X down")
