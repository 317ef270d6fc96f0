"""``torchperc crosscheck``: the rule against autograd, on a gate or the samples in a file."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from torchperc.cli import inputs
from torchperc.reports.text import figures, visible, weights

if TYPE_CHECKING:
    from torchperc.data import Dataset
    from torchperc.rules.crosscheck import CrossCheck


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the command."""
    parser.description = (
        "Runs the perceptron rule and autograd with SGD on the same samples and compares every mistake and every "
        "weight. Exit code 0 if they are equal, 1 if not."
    )
    parser.add_argument("data", help=f"AND, OR, NAND, NOR, XOR, XNOR, parity-n, iris, …, or {inputs.FORMATS}")
    inputs.add_arguments(parser)
    default = "(default: %(default)s)"
    parser.add_argument("--lr", type=float, default=1.0, help=f"learning rate η of both sides {default}")
    parser.add_argument("--epochs", type=int, default=20, help=f"maximum number of epochs {default}")
    ties = ("update", "sign", "strict")
    parser.add_argument("--tie", choices=ties, default="update", help=f"what is a mistake {default}")
    parser.add_argument("--bias-step", choices=("unit", "radius", "none"), default="unit", help=default)
    parser.add_argument("--order", choices=("given", "shuffled", "random-mistake"), default="given", help=default)
    parser.add_argument("--seed", type=int, default=0, help=f"of the order {default}")
    parser.add_argument("--dtype", choices=("float32", "float64"), default="float64", help=default)
    parser.add_argument("--mode", choices=("sample", "batch"), default="sample", help=default)


def run(arguments: argparse.Namespace) -> None:
    """Run the comparison and print what it found; exit code 1 if the two sides differ."""
    data = inputs.load_dense(arguments)
    import torch
    from rich.table import Table

    from torchperc.rules.crosscheck import crosscheck
    from torchperc.rules.models import LinearModel

    names = ("lr", "epochs", "tie", "order", "seed", "bias_step", "mode")
    given = {name: getattr(arguments, name) for name in names}
    check = crosscheck(data.X, data.y, dtype=getattr(torch, arguments.dtype), num_classes=data.classes, **given)
    table = Table("", "epochs", "mistakes", "bias; weights")
    for name, log in (("rule", check.rule), ("gradient", check.gradient)):
        last = log.last()
        assert isinstance(last, LinearModel)
        table.add_row(name, str(len(log.epoch_ends)), str(len(log)), weights(last.weight, last.bias))
    console = inputs.console()
    samples, features = data.X.shape
    console.print(visible(f"{arguments.data}: {samples} samples, {features} features, labels {_codes(data)}"))
    console.print(table)
    console.print(_conclusion(check))
    raise SystemExit(0 if check.equal else 1)


def _codes(data: Dataset) -> str:
    codes = ("-1", "+1") if data.classes is None else tuple(map(str, range(data.classes)))
    pairs = zip(data.labels, codes, strict=True)
    return ", ".join(f"{label} → {code}" if label != code else label for label, code in pairs)


def _conclusion(check: CrossCheck) -> str:
    if check.equal:
        how = "to the bit" if check.exact else f"to {check.ulps:.2g} units in the last place"
        return f"equal: the same {len(check.rule)} mistakes, and the same weights {how}"
    first = check.first_difference
    assert first is not None
    return (
        f"different: first in epoch {first.epoch} at sample {first.sample}; scores {figures(first.rule_scores)} by "
        f"rule, {figures(first.gradient_scores)} by gradient; weights "
        f"{weights(first.rule_weights.weight, first.rule_weights.bias)} and "
        f"{weights(first.gradient_weights.weight, first.gradient_weights.bias)}"
    )
