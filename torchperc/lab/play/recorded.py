"""A log for the page to replay: as it is if it has two features, else as seen in two of them."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import torch

from torchperc._checks import Option, ParameterError
from torchperc.rules.log import MistakeLog
from torchperc.rules.problem import Problem
from torchperc.rules.run import RuleResult
from torchperc.rules.trainer import RuleTrainer
from torchperc.theory.weights import live_bracket, weights_norm

ENDINGS = ("SEPARATED", "CYCLING", "BUDGET")
MAX_CLASSES, MAX_POINTS, MAX_MISTAKES = 4, 1000, 20_000
_STORED = ("tie", "bias_step", "order", "seed", "lr", "margin", "max_epochs")
_DEFAULTS = {name: getattr(RuleTrainer(), name) for name in _STORED} | {"bias_step": "unit"}
_RENAMED = {"biasStep": "bias_step", "maxEpochs": "max_epochs"}
_PROJECTED = (
    "A run with {count} features, seen in {first} and {second}: the boundary is exact where every other feature is at "
    "the mean of the samples. Mistakes, scores, errors and bounds are those of the run; the proof, and whatever the "
    "page runs itself, see two features only."
)
_UNKNOWN = "The log does not say how ties were decided and in which order the samples came."


def recording(
    log: MistakeLog,
    names: Sequence[str] | None = None,
    features: Sequence[str | int] | None = None,
    *,
    conventions: dict[str, Any] | None = None,
    verdict: str | None = None,
    cycle: tuple[int, int] | None = None,
) -> tuple[dict[str, Any], tuple[str, str]]:
    """The entries of a run to be replayed, and the names of the two features that are shown.

    With features a and b chosen, the page draws the boundary where every other feature is at its mean x̄_j,
    w_a·x_a + w_b·x_b + (b₀ + Σ w_j·x̄_j) = 0. Mistakes, scores, errors and bounds stay those of the run.

    Args:
        log: of a linear net.
        names: of the features.
        features: two of them, by name or by position from 1, where there are more.
        conventions: of the run, as the page has them; those that the log stores by default.
        verdict: how the run ended, if that is known.
        cycle: the epochs between which it went round, if it did.

    Example:
        >>> import torchperc as tp
        >>> X, y = tp.data.separable_blobs(20, features=3, seed=1)
        >>> log = tp.RuleTrainer().fit(tp.Perceptron(3).double(), X, y).log
        >>> entries, shown = recording(log, features=(1, 3))
        >>> shown, entries["index"] == log.sample.tolist()
        (('x1', 'x3'), True)
    """
    _check(log)
    width = log.problem.samples.n_features
    names = [f"x{j + 1}" for j in range(width)] if names is None else list(names)
    if len(names) != width:
        raise ValueError(f"names has {len(names)} entries for {width} features; name every feature once")
    first, second = two_features(names, features)
    entries = json.loads(log.to_json())
    stored = entries.pop("conventions", {})
    stored = {name: value for name, value in stored.items() if name in _DEFAULTS and value != "explicit"}
    given = {_RENAMED.get(name, name): value for name, value in (conventions or {}).items()}
    entries |= {"conventions": _DEFAULTS | stored | given, "verdict": verdict or _verdict(log)}
    entries |= {"cycle": None if cycle is None else list(cycle)}
    told = [] if conventions is not None or "tie" in stored else [_UNKNOWN]
    if (first, second) != (0, 1) or width > 2:
        entries |= _restricted(log, (first, second))
        about = _PROJECTED if width > 2 else "The axes are {first} and {second}."
        told.insert(0, about.format(count=width, first=names[first], second=names[second]))
    if told:
        entries["description"] = " ".join(told)
    return entries, (names[first], names[second])


def _check(log: MistakeLog) -> None:
    if not isinstance(log, MistakeLog):
        raise TypeError(f"log must be a MistakeLog, such as result.log, found {type(log).__name__}")
    if type(log.problem) is not Problem:
        raise ValueError("the page replays linear runs; a run with a kernel or joint features has no line to draw")
    found = {"classes": (log.problem.num_classes or 2, MAX_CLASSES), "samples": (len(log.y), MAX_POINTS)}
    for what, (count, most) in (found | {"mistakes": (len(log), MAX_MISTAKES)}).items():
        if count > most:
            raise ValueError(
                f"the log has {count:,} {what}, and the page replays {most:,} at most; record a smaller run"
            )


def two_features(names: Sequence[str], features: Sequence[str | int] | None) -> tuple[int, int]:
    """Which two features, by name or by position from 1; both if there are two.

    Example:
        >>> two_features(("age", "height", "weight"), ("weight", 1))
        (2, 0)
    """
    listed = ", ".join(map(str, names[:12])) + (", …" if len(names) > 12 else "")
    if features is None and len(names) != 2:
        if len(names) < 2:
            raise ValueError(f"the page needs two features, and the data have {len(names)}: {listed}; add a column")
        why = f"the page shows two features, and the data have {len(names)}: {listed}; choose two by "
        raise ParameterError(why, Option("features", list(names[:2])))
    wanted = tuple(names) if features is None else tuple(features)
    if isinstance(features, str) or len(wanted) != 2:
        raise ParameterError(Option("features", features), " must be two of the features: ", listed)
    first, second = (_feature(list(names), each, listed) for each in wanted)
    if first == second:
        raise ParameterError(Option("features", list(wanted)), " is one feature twice; choose two of ", listed)
    return first, second


def _feature(names: list[str], wanted: str | int, listed: str) -> int:
    text = str(wanted)
    if text in names:
        return names.index(text)
    if text.isascii() and text.isdigit() and 1 <= int(text) <= len(names):
        return int(text) - 1
    raise ParameterError(
        Option("features", wanted), f" is no feature; choose two of {listed}, or their positions from 1"
    )


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
    """The entries of a log that change when all but two features are held at their mean."""
    X, columns, beta = log.problem.samples.double().dense().cpu(), list(chosen), log.problem.bias_step
    rest = [j for j in range(X.shape[1]) if j not in chosen]
    mean = X[:, rest].mean(0)
    start_weight, start_bias = log.start.weight.double().cpu(), log.start.bias.double().cpu()
    weight, bias, total, y = start_weight.clone(), start_bias.clone(), 0.0, log.y.cpu()
    signed = torch.from_numpy(log.problem.signed(log.mistakes)) * log.problem.scale
    scores, lower, upper = [], [], []
    for t in range(len(log) + 1):
        every = X @ weight.T + bias
        plain, moved = every if log.problem.num_classes else every[:, 0], (weight - start_weight, bias - start_bias)
        length = weights_norm(weight, bias, beta)
        bracket = live_bracket(plain, y, length, total, moved=weights_norm(*moved, beta))
        lower.append(bracket.lower)
        upper.append(bracket.upper)
        if t < len(log):
            i = int(log.sample[t])
            scores.append(every[i].tolist())
            weight, bias = weight + signed[t][:, None] * X[i], bias + signed[t] * beta
            total += abs(float(log.coef[t]))
    best = zip(accumulate(lower, max), accumulate(upper, min), strict=True)
    return {
        "points": X[:, columns].tolist(),
        "start": {
            "weight": start_weight[:, columns].tolist(),
            "bias": (start_bias + start_weight[:, rest] @ mean).tolist(),
        },
        "projection": {
            "features": X.shape[1],
            "offsets": (beta + X[:, rest] @ mean).tolist(),
            "scores": scores,
            "errors": log.errors().tolist(),
            "pocket": log.pocket_index(),
            "brackets": [[bound if math.isfinite(bound) else None for bound in pair] for pair in best],
        },
    }
