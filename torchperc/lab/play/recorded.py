"""A recorded run for the page to replay: as it was if it has two features, else what it looks like in two of them."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import torch
from torch import Tensor

from torchperc.lab.play.points import MOST_CLASSES, MOST_POINTS, two_features
from torchperc.rules.log import MistakeLog
from torchperc.rules.problem import Problem, Weights
from torchperc.rules.run import RuleResult
from torchperc.theory.weights import live_bracket, weights_norm

ENDINGS = ("SEPARATED", "CYCLING", "BUDGET")
MOST_MISTAKES = 20_000
_RENAMED = {"biasStep": "bias_step", "maxEpochs": "max_epochs"}
_PROJECTED = (
    "A run with {count} features, seen in {first} and {second}: the boundary is exact where every other feature is at "
    "the mean of the samples. A point off that plane may lie on another side of the line than of the boundary. "
    "Mistakes, scores, errors and bounds are those of the run; the proof, and whatever the page runs itself, see two "
    "features only."
)
_UNKNOWN = "The log does not say how ties were decided and in which order the samples came."


@dataclass(frozen=True)
class Recording:
    """A log as the page reads it, and the two features it is shown in."""

    entries: dict[str, Any]
    feature_names: tuple[str, str]

    @property
    def data(self) -> dict[str, Any]:
        """The points of the log, as data to begin with."""
        labels, classes = self.entries["labels"], self.entries["classes"]
        indices = labels if classes else [(label + 1) // 2 for label in labels]
        return {"points": self.entries["points"], "labels": indices, "classes": classes or 2}


def recording(
    log: MistakeLog,
    names: Sequence[str] | None = None,
    features: Sequence[str | int] | None = None,
    *,
    conventions: dict[str, Any] | None = None,
    verdict: str | None = None,
    cycle: tuple[int, int] | None = None,
) -> Recording:
    """A run to be replayed; one with more than two features is shown where the others are at their mean.

    With features a and b chosen, x̄ the mean of the samples and w, b₀ a state of the run, the page draws

        w_a·x_a + w_b·x_b + (b₀ + Σ_{j≠a,b} w_j·x̄_j) = 0,

    the exact boundary in that plane. Mistakes, scores, errors and bounds stay those of the run in all features.

    Args:
        log: of a linear net.
        names: of the features.
        features: two of them, by name or by position from 1, where there are more.
        conventions: of the run, as the page has them; if ``None``, the page says that they are unknown.
        verdict: how the run ended, if that is known.
        cycle: the epochs between which it went round, if it did.

    Example:
        >>> import torchperc as tp
        >>> X, y = tp.data.separable_blobs(20, features=3, seed=1)
        >>> log = tp.RuleTrainer().fit(tp.Perceptron(3).double(), X, y).log
        >>> shown = recording(log, features=(1, 3))
        >>> shown.feature_names, shown.entries["index"] == log.sample.tolist()
        (('x1', 'x3'), True)
    """
    _check(log)
    width = log.problem.samples.n_features
    names = [f"x{j + 1}" for j in range(width)] if names is None else list(names)
    if len(names) != width:
        raise ValueError(f"names has {len(names)} entries for {width} features; name every feature once")
    chosen = two_features(names, features)
    entries = json.loads(log.to_json())
    entries |= {"conventions": _conventions(log, conventions), "verdict": verdict or _verdict(log)}
    entries |= {"cycle": None if cycle is None else list(cycle)}
    told = [] if conventions is not None else [_UNKNOWN]
    if chosen != tuple(range(len(names))):
        entries |= _restricted(log, chosen)
        first, second = (names[j] for j in chosen)
        about = _PROJECTED if len(names) > 2 else "The axes are {first} and {second}."
        told.insert(0, about.format(count=len(names), first=first, second=second))
    if told:
        entries["description"] = " ".join(told)
    return Recording(entries, (names[chosen[0]], names[chosen[1]]))


def _check(log: MistakeLog) -> None:
    if not isinstance(log, MistakeLog):
        raise TypeError(f"log must be a MistakeLog, such as result.log, found {type(log).__name__}")
    if type(log.problem) is not Problem:
        raise ValueError("the page replays linear runs; a run with a kernel or joint features has no line to draw")
    if (log.problem.num_classes or 2) > MOST_CLASSES:
        raise ValueError(f"the log has {log.problem.num_classes} classes, and the page shows {MOST_CLASSES} at most")
    for what, count, most in (("samples", len(log.y), MOST_POINTS), ("mistakes", len(log), MOST_MISTAKES)):
        if count > most:
            raise ValueError(
                f"the log has {count:,} {what}, and the page replays {most:,} at most; record a smaller run"
            )


def _conventions(log: MistakeLog, given: dict[str, Any] | None) -> dict[str, Any]:
    """As arguments of ``RuleTrainer``, which is how a log in JSON has them."""
    step, sizes = {0.0: "none", 1.0: "unit"}.get(log.problem.bias_step, "radius"), log.coef.abs().unique().tolist()
    known: dict[str, Any] = {"tie": "update", "bias_step": step, "order": "given", "seed": 0, "margin": 0}
    known |= {"lr": sizes[0] if len(sizes) == 1 else 1.0, "max_epochs": max(len(log.epoch_ends), 1)}
    return known | {_RENAMED.get(name, name): value for name, value in (given or {}).items()}


def ending_of(result: RuleResult) -> str:
    """How a run ended, among the endings of the page; a proof that came later is left to the page."""
    name = result.verdict.name
    return name if name in ENDINGS else "BUDGET" if result.cycle is None else "CYCLING"


def _verdict(log: MistakeLog) -> str | None:
    """The one ending that a log shows: a last epoch without a mistake, in which every decision is right."""
    by_epoch = log.mistakes_by_epoch()
    clean = len(by_epoch) > 0 and int(by_epoch[-1]) == 0 and float(log.errors()[-1]) == 0
    return "SEPARATED" if clean else None


def _restricted(log: MistakeLog, chosen: tuple[int, int]) -> dict[str, Any]:
    """What changes in the entries of a log when all but two features are held at their mean."""
    X = log.problem.samples.double().dense().cpu()
    rest = [j for j in range(X.shape[1]) if j not in chosen]
    mean, columns = X[:, rest].mean(0), list(chosen)
    start = Weights(log.start.weight.double().cpu(), log.start.bias.double().cpu())
    scores, brackets = [], []
    for t, (state, total) in enumerate(_states(log, start, X)):
        every = X @ state.weight.T + state.bias
        if t < len(log):
            scores.append(every[int(log.sample[t])].tolist())
        brackets.append(_bracket(log, start, state, every, total))
    return {
        "points": X[:, columns].tolist(),
        "start": {
            "weight": start.weight[:, columns].tolist(),
            "bias": (start.bias + start.weight[:, rest] @ mean).tolist(),
        },
        "projection": {
            "features": X.shape[1],
            "offsets": (log.problem.bias_step + X[:, rest] @ mean).tolist(),
            "scores": scores,
            "errors": log.errors().tolist(),
            "pocket": log.pocket_index(),
            "brackets": _best(brackets),
        },
    }


def _states(log: MistakeLog, start: Weights, X: Tensor) -> Iterator[tuple[Weights, float]]:
    """The weights of every state, in double precision, with the sum of coefficients so far; one after the other."""
    state, total, signed = start.clone(), 0.0, torch.from_numpy(log.problem.signed(log.mistakes))
    yield state, total
    for j, entry in enumerate(log):
        coefs = signed[j] * log.problem.scale
        state.weight.add_(coefs[:, None] * X[entry.sample])
        state.bias.add_(coefs * log.problem.bias_step)
        total += abs(entry.coef)
        yield state, total


def _bracket(log: MistakeLog, start: Weights, state: Weights, scores: Tensor, total: float) -> tuple[float, float]:
    """What the weights say of the largest margin in all features, see :func:`torchperc.theory.bracket`."""
    beta = log.problem.bias_step
    moved = weights_norm(state.weight - start.weight, state.bias - start.bias, beta)
    plain = scores.squeeze(-1) if log.problem.num_classes is None else scores
    found = live_bracket(plain, log.y.cpu(), weights_norm(state.weight, state.bias, beta), total, moved=moved)
    return found.lower, found.upper


def _best(brackets: Sequence[tuple[float, float]]) -> list[list[float | None]]:
    """The largest lower and the smallest upper bound so far; ``None`` where there is none."""
    lower, upper = (
        list(accumulate(side, best)) for side, best in zip(zip(*brackets, strict=True), (max, min), strict=True)
    )
    return [[bound if math.isfinite(bound) else None for bound in pair] for pair in zip(lower, upper, strict=True)]
