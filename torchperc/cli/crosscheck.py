"""``torchperc crosscheck``: the rule against autograd, on a gate or a CSV file."""

from __future__ import annotations

import argparse

import torch
from rich.console import Console
from rich.table import Table

from torchperc import data
from torchperc.cli.show import figures, weights
from torchperc.crosschecking import CrossCheck, crosscheck
from torchperc.rules.models import LinearModel


def run(arguments: argparse.Namespace) -> None:
    """Run the comparison and print what it found; exit code 1 if the two sides differ."""
    X, y, classes, labels = _load(arguments)
    check = crosscheck(
        X,
        y,
        lr=arguments.lr,
        epochs=arguments.epochs,
        tie=arguments.tie,
        dtype=getattr(torch, arguments.dtype),
        order=arguments.order,
        seed=arguments.seed,
        bias_step=arguments.bias_step,
        num_classes=classes,
        mode=arguments.mode,
    )
    console = Console(highlight=False, markup=False)  # names and labels are the user's, brackets and all
    console.print(f"{arguments.data}: {len(X)} samples, {X.shape[1]} features, labels {labels}")
    console.print(_table(check))
    console.print(_conclusion(check))
    raise SystemExit(0 if check.equal else 1)


def _load(arguments: argparse.Namespace) -> tuple[torch.Tensor, torch.Tensor, int | None, str]:
    if data.is_gate(arguments.data):
        if arguments.target is not None:
            raise ValueError(f"--target={arguments.target} goes with a file; {arguments.data} is a gate")
        X, y = data.gate(arguments.data)
        return X, y, None, "-1 and +1"
    table = data.read_csv(arguments.data, arguments.target)
    codes = ("-1", "+1") if table.classes is None else tuple(map(str, range(table.classes)))
    return table.X, table.y, table.classes, ", ".join(f"{a} → {b}" for a, b in zip(table.labels, codes, strict=True))


def _table(check: CrossCheck) -> Table:
    table = Table("", "epochs", "mistakes", "bias; weights")
    for name, log in (("rule", check.rule), ("gradient", check.gradient)):
        last = log.last()
        assert isinstance(last, LinearModel)
        table.add_row(name, str(len(log.epoch_ends)), str(len(log)), weights(last.weight, last.bias))
    return table


def _conclusion(check: CrossCheck) -> str:
    if check.equal:
        how = "to the bit" if check.exact else f"to {check.ulps:.2g} units in the last place"
        return f"equal: the same {len(check.rule)} mistakes, and the same weights {how}"
    part = check.first_difference
    assert part is not None
    return (
        f"different: first in epoch {part.epoch} at sample {part.sample}; scores {figures(part.rule_scores)} by rule, "
        f"{figures(part.gradient_scores)} by gradient; weights "
        f"{weights(part.rule_weights.weight, part.rule_weights.bias)} and "
        f"{weights(part.gradient_weights.weight, part.gradient_weights.bias)}"
    )
