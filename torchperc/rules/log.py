"""The mistake log is the model: weights are the start plus Σ cⱼ·x_{iⱼ} over the mistakes made so far.

Last, averaged, voted and pocket weights, the weights at any moment, the dual form and the learning curve are functions
of the log and the data.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import lazy_loader
import numpy as np
import torch
from torch import Tensor

from torchperc._checks import Data, check_choice, check_int
from torchperc.rules.conventions import RATCHETS
from torchperc.rules.decision import PerceptronRule
from torchperc.rules.models import Model
from torchperc.rules.problem import PER_SAMPLE, Mistake, Mistakes, Problem
from torchperc.samples.rows import Samples

log_files: Any = lazy_loader.load("torchperc.rules.log_files", suppress_warning=True)  # when a log is saved or read


@dataclass(frozen=True, eq=False, repr=False)
class MistakeLog:
    """The mistakes of a run in order, bound to the data they were made on.

    Args:
        problem: the training samples, which are not copied, their labels, and what an update is.
        start: the weights before the first sample.
        parts: the mistakes in one or several parts: columns ``sample``, ``step`` (how many samples were presented
            before it), ``coef`` (η·y·(sample weight), or η·(sample weight) with K classes, without the problem's scale)
            and ``predicted`` (the strongest wrong class).
        epoch_ends: how many samples had been presented by the end of each epoch.
        conventions: the names of the choices that were made: tie, bias step, order, selection.

    Example:
        >>> import torchperc as tp
        >>> X, y = tp.data.gate("AND")
        >>> log = tp.RuleTrainer().fit(tp.Perceptron(2), X, y).log
        >>> len(log), log[0]
        (18, Mistake(sample=0, step=0, coef=-1.0, predicted=1))
        >>> log.last().bias, log.last().weight
        (tensor([-4.]), tensor([[3., 2.]]))
    """

    problem: Problem
    start: Any
    parts: tuple[Mistakes, ...]
    epoch_ends: Tensor
    conventions: dict[str, Any] = field(default_factory=dict)

    @cached_property
    def mistakes(self) -> Mistakes:
        """All mistakes as columns."""
        return Mistakes.joined(self.parts)

    def __len__(self) -> int:
        return sum(len(part.step) for part in self.parts)

    def __repr__(self) -> str:
        return f"MistakeLog({len(self)} mistakes in {self.steps} steps, {len(self.epoch_ends)} epochs)"

    def __getitem__(self, j: int) -> Mistake:
        found: Mistake = self.mistakes.entry(*(column.take([j]).tolist()[0] for column in self.mistakes))
        return found._replace(coef=found.coef * self.problem.scale)

    def __iter__(self) -> Iterator[Mistake]:
        return self.mistakes._replace(coef=self.mistakes.coef * self.problem.scale).rows()

    @property
    def steps(self) -> int:
        """The number of samples presented in all."""
        return int(self.epoch_ends[-1]) if len(self.epoch_ends) else 0

    @property
    def y(self) -> Tensor:
        """The labels of all training samples."""
        return torch.from_numpy(self.problem.y)

    @property
    def sample_weight(self) -> Tensor:
        """The weight of all training samples, class weights included."""
        return torch.from_numpy(self.problem.sample_weight)

    @property
    def sample(self) -> Tensor:
        """The number of the sample, per mistake."""
        return torch.from_numpy(self.mistakes.sample)

    @property
    def step(self) -> Tensor:
        """How many samples were presented before each mistake."""
        return torch.from_numpy(self.mistakes.step)

    @property
    def coef(self) -> Tensor:
        """η·y·(sample weight), or η·(sample weight) with K classes, per mistake."""
        return torch.from_numpy(self.mistakes.coef * self.problem.scale)

    @property
    def predicted(self) -> Tensor:
        """The strongest wrong class, per mistake."""
        return torch.from_numpy(self.mistakes.predicted)

    def weights_at(self, t: int) -> Any:
        """Return the weights after the first ``t`` mistakes, before scaling."""
        if check_int("t", t, at_least=0) > len(self):
            raise ValueError(f"t={t} is beyond the log, which has {len(self)} mistakes")
        weights = self.start.clone()
        self.problem.replay(weights, self.mistakes.part(0, t))
        return weights

    def state_at(self, t: int) -> Model:
        """Return the model after the first ``t`` mistakes; ``state_at(0)`` is the start."""
        return self.problem.model(self.weights_at(t))

    def last(self) -> Model:
        """Return the model at the end of training, bit for bit."""
        return self.state_at(len(self))

    def averaged(self) -> Model:
        """Return the mean of the weights after each presented sample: start + Σ cⱼ·(T − tⱼ)/T·x_{iⱼ}."""
        if not self.steps:  # no sample was presented, because none was a mistake: the start is all there is
            return self.state_at(0)
        return self.problem.mean(self.problem.total(self.start, self.mistakes, self.steps), self.steps)

    def voted(self) -> VotedModel:
        """Return the vote of all states, each counted as often as the number of samples it survived."""
        return VotedModel(self)

    def pocket(self, ratchet: str = "runs") -> Model:
        """Return the weights that Gallant's pocket algorithm with ratchet keeps.

        A run of weights is the number of samples in a row that they decided without a mistake. The pocket begins with
        the start; weights whose run is longer than that of the pocket replace it if they have fewer errors on all
        training samples. Of zero weights, every sample counts as an error.

        Args:
            ratchet: ``"runs"`` as above, which looks at all samples a few times in a whole run; or ``"every"``: the
                weights with the lowest training error that occurred, the earliest of equals. Where every sample that
                was presented was a mistake (``order="random-mistake"``) there are no runs, and both mean the latter.
        """
        return self.state_at(self.pocket_index(ratchet))

    def pocket_index(self, ratchet: str = "runs") -> int:
        """Return the number of mistakes before the :meth:`pocket` weights."""
        if check_choice("ratchet", ratchet, RATCHETS) == "every" or self.steps == len(self):
            return int(self.errors().argmin())
        runs = self.survivals().numpy()
        runs[1:] -= 1  # without the sample that the weights were learned from
        cost, decision = self.problem.sample_weight, PerceptronRule("sign")
        weights, replayed = self.start.clone(), 0
        pocket, longest, fewest = (0, -1, np.inf) if self.start.any_nonzero else (0, 0, float(cost.sum()))
        for t in np.flatnonzero(runs > longest).tolist():
            if runs[t] > longest:
                self.problem.replay(weights, self.mistakes.part(replayed, t))
                replayed, errors = t, float(cost @ self.problem.mistakes(weights, decision))
                if errors < fewest:
                    pocket, longest, fewest = t, int(runs[t]), errors
        return pocket

    def best_validation(self, X: Data, y: Data) -> Model:
        """Return the weights at the end of the epoch with the lowest validation error (first on ties)."""
        ends = self.mistakes_by_epoch().cumsum(0) if len(self.epoch_ends) else torch.zeros(1, dtype=torch.int64)
        return self.state_at(int(ends[self.errors(X, y)[ends].argmin()]))

    def dual(self) -> Tensor:
        """Return the sum of coefficients per training sample: (N,), or (N, K) with K classes."""
        total = torch.from_numpy(self.problem.dual(self.mistakes) * self.problem.scale)
        return total.squeeze(-1) if self.problem.num_classes is None else total

    def survivals(self) -> Tensor:
        """Return the number of samples that each state survived, from the start to the last: (len + 1,)."""
        return torch.from_numpy(np.diff(self.mistakes.step, prepend=0, append=self.steps))

    def mistakes_by_epoch(self) -> Tensor:
        """Return the number of mistakes of each epoch: the learning curve."""
        return torch.from_numpy(np.diff(np.searchsorted(self.mistakes.step, self.epoch_ends.numpy()), prepend=0))

    def errors(self, X: Data | None = None, y: Data | None = None) -> Tensor:
        """Return the number of wrong decisions of every state, from the start to the last: (len + 1,) in float64.

        On the training data, which is the default, an error counts its sample's weight. ``errors().cummin(0).values``
        is the training error of ``pocket("every")``.
        """
        problem = self.problem
        samples, labels, cost = problem.samples, problem.y, problem.sample_weight
        if X is not None or y is not None:
            samples, given = problem.labelled(X, y)
            labels = np.asarray(given)
            cost = np.ones(len(labels))
        total = np.zeros(len(self) + 1)
        for block, first, decided in problem.decisions(self.start, self.mistakes, samples):
            total[first : first + decided.shape[1]] += cost[block] @ (decided != labels[block, None])
        return torch.from_numpy(total)

    def equals(self, other: MistakeLog) -> bool:
        """Return whether two runs made the same mistakes at the same moments with the same coefficients."""
        same = (np.array_equal(*pair) for pair in zip(self.mistakes, other.mistakes, strict=True))
        return self.steps == other.steps and self.problem.scale == other.problem.scale and all(same)

    def compact(self) -> MistakeLog:
        """Return the log with a copy of the samples that made mistakes, and no others."""
        index, place = np.unique(self.mistakes.sample, return_inverse=True)
        columns = {name: getattr(self.problem, name)[index] for name in PER_SAMPLE}
        few = replace(self.problem, samples=self.problem.samples.take(torch.from_numpy(index)), **columns)
        return replace(self, problem=few, parts=(self.mistakes._replace(sample=place),))

    def bind(self, X: Data, y: Data) -> MistakeLog:
        """Return the log of a distributed run, bound to the samples of all processes in rank order.

        Args:
            X: the samples of all processes.
            y: their labels.
        """
        samples, labels = self.problem.labelled(X, y)
        if not np.array_equal(labels, self.problem.y):
            raise ValueError("y are not the labels of this log; pass the samples of all processes in rank order")
        return replace(self, problem=replace(self.problem, samples=samples))

    def save(self, path: str | Path) -> None:
        """Write the log atomically to one file.

        ``.npz``: without pickle; of the data it holds a hash. ``.json``: a log of a linear net with its data, which
        ``torchperc play --log`` shows, see :meth:`to_json`.
        """
        log_files.save(self, Path(path))

    @classmethod
    def load(
        cls, path: str | Path, X: Data = None, y: Data = None, *, kernel: Any = None, features: Any = None
    ) -> MistakeLog:
        """Read a log and bind it to its data; other data are refused.

        Args:
            path: a file that :meth:`save` wrote, or JSON that the interactive page downloaded.
            X: the samples the log was made on; JSON holds them itself, so they may be left out.
            y: their labels.
            kernel: your kernel function, if the run used one.
            features: your joint features φ, if the run used any.
        """
        return cls(*log_files.load(Path(path), X, y, kernel, features))

    def to_json(self) -> str:
        """Return the log of a linear net with its data as JSON, described in ``torchperc/lab/play/js/log.js``.

        Example:
            >>> import torchperc as tp
            >>> X, y = tp.data.gate("AND")
            >>> log = tp.RuleTrainer().fit(tp.Perceptron(2), X, y).log
            >>> MistakeLog.from_json(log.to_json()).last().weight
            tensor([[3., 2.]])
        """
        text: str = log_files.to_json(self)
        return text

    @classmethod
    def from_json(cls, text: str | bytes) -> MistakeLog:
        """Return a log from the JSON of :meth:`to_json` or of the interactive page; invalid entries raise."""
        return cls(*log_files.from_json(text, "text"))


@dataclass(frozen=True, eq=False)
class VotedModel(Model):
    """The vote of all states, weighted by the samples each survived: Σ count·sign(s), or votes per class."""

    log: MistakeLog

    @property
    def num_classes(self) -> int | None:  # type: ignore[override]  # read-only here
        """As in the log."""
        return self.log.problem.num_classes

    def _samples(self, X: Data) -> Samples:
        return self.log.problem.samples_like(X)

    def row_scores(self, samples: Samples) -> Tensor:
        """Return the votes: (N, 1) or (N, K)."""
        log, votes = self.log, np.zeros((len(samples), self.num_classes or 1))
        counts = log.survivals().numpy() if log.steps else np.ones(1, np.int64)
        for block, first, decided in log.problem.decisions(log.start, log.mistakes, samples):
            weight = counts[first : first + decided.shape[1]]
            if self.num_classes is None:
                votes[block, 0] += decided @ weight
            for k in range(self.num_classes or 0):
                votes[block, k] += (decided == k) @ weight
        return torch.from_numpy(votes).to(samples.device)
