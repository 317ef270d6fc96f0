"""Which conventions a log was made by: those that make the same mistakes again."""

from __future__ import annotations

import warnings
from itertools import product
from typing import Any

import torch

from torchperc.nn.modules import MulticlassPerceptron, Perceptron
from torchperc.rules.conventions import ORDERS, TIES
from torchperc.rules.log import MistakeLog
from torchperc.rules.run import RuleResult
from torchperc.rules.trainer import RuleTrainer


def retraced(log: MistakeLog) -> tuple[RuleTrainer, RuleResult] | None:
    """The first trainer without a margin, of every tie and order with seed 0, whose run has the same log; and that run.

    Example:
        >>> import torchperc as tp
        >>> X, y = tp.data.gate("AND")
        >>> log = tp.RuleTrainer(tie="sign").fit(tp.Perceptron(2), X, y).log
        >>> trainer, result = retraced(log)
        >>> trainer.tie, trainer.order, result.verdict.name
        ('sign', 'given', 'SEPARATED')
    """
    if bool((log.cost != 1).any()):  # weights of samples are not among the conventions
        return None
    sizes = log.coef.abs().unique().tolist() or [1.0]
    beta = log.space.bias_scale
    known: dict[str, Any] = {"lr": sizes[0], "bias_step": bias_step_of(beta), "max_epochs": max(len(log.epoch_ends), 1)}
    for order, tie in product(ORDERS, TIES):
        trainer = RuleTrainer(tie=tie, order=order, **known)
        result = _again(log, trainer)
        if result.log.equals(log) and torch.equal(result.log.epoch_ends, log.epoch_ends.cpu()):
            return trainer, result
    return None


def bias_step_of(scale: float) -> str:
    """The name of a bias step by what it adds for a coefficient of 1."""
    return "none" if scale == 0 else "unit" if scale == 1 else "radius"


def _again(log: MistakeLog, trainer: RuleTrainer) -> RuleResult:
    rows, classes = log.space.rows, log.space.classes
    like: dict[str, Any] = {"dtype": rows.dtype, "bias": log.space.bias_scale != 0 or bool(log.start.bias.any())}
    net = Perceptron(rows.width, **like) if classes is None else MulticlassPerceptron(rows.width, classes, **like)
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of a strict tie that starts at zero
        net.weight.copy_(log.start.weight)
        if net.bias is not None:
            net.bias.copy_(log.start.bias)
        return trainer.fit(net, rows.dense().cpu(), log.y.cpu())
