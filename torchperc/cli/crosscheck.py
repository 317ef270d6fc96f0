"""``torchperc crosscheck``: the rule against autograd, on a gate or the samples in a file."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from torchperc.cli import inputs
from torchperc.reports.text import visible

if TYPE_CHECKING:
    from rich.table import Table

    from torchperc.data import Dataset
    from torchperc.rules.crosscheck import CrossCheck

_TIES = ("update", "sign", "strict")
_BIAS_STEPS = ("unit", "radius", "none")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the command."""
    parser.description = (
        "Runs the perceptron rule and autograd with SGD on the same samples and compares every mistake and every "
        "weight. Exit code 0 if they are equal, 1 if not."
    )
    parser.add_argument("data", help=f"AND, OR, NAND, NOR, XOR, XNOR, parity-n, iris, …, or {inputs.FORMATS}")
    inputs.add_arguments(parser)
    parser.add_argument("--lr", type=float, default=1.0, help="rate η of both sides (default: %(default)s)")
    parser.add_argument("--epochs", type=int, default=20, help="passes at most (default: %(default)s)")
    parser.add_argument("--tie", choices=_TIES, default="update", help="what is a mistake (default: %(default)s)")
    parser.add_argument("--bias-step", choices=_BIAS_STEPS, default="unit", help="(default: %(default)s)")
    parser.add_argument("--order", choices=("given", "shuffled", "random-mistake"), default="given")
    parser.add_argument("--seed", type=int, default=0, help="of the order (default: %(default)s)")
    parser.add_argument("--dtype", choices=("float32", "float64"), default="float64", help="(default: %(default)s)")
    parser.add_argument("--mode", choices=("sample", "batch"), default="sample", help="(default: %(default)s)")


def run(arguments: argparse.Namespace) -> None:
    """Run the comparison and print what it found; exit code 1 if the two sides differ."""
    import torch
    from rich.console import Console

    from torchperc.rules.crosscheck import crosscheck

    table = inputs.load_dense(arguments)
    check = crosscheck(
        table.X,
        table.y,
        lr=arguments.lr,
        epochs=arguments.epochs,
        tie=arguments.tie,
        dtype=getattr(torch, arguments.dtype),
        order=arguments.order,
        seed=arguments.seed,
        bias_step=arguments.bias_step,
        num_classes=table.classes,
        mode=arguments.mode,
    )
    console = Console(highlight=False, markup=False)  # names and labels are the user's, brackets and all
    samples, features = table.X.shape
    console.print(visible(f"{arguments.data}: {samples} samples, {features} features, labels {_codes(table)}"))
    console.print(_table(check))
    console.print(_conclusion(check))
    raise SystemExit(0 if check.equal else 1)


def _codes(table: Dataset) -> str:
    codes = ("-1", "+1") if table.classes is None else tuple(map(str, range(table.classes)))
    pairs = zip(table.labels, codes, strict=True)
    return ", ".join(f"{label} → {code}" if label != code else label for label, code in pairs)


def _table(check: CrossCheck) -> Table:
    from rich.table import Table

    from torchperc.cli.show import weights
    from torchperc.rules.models import LinearModel

    table = Table("", "epochs", "mistakes", "bias; weights")
    for name, log in (("rule", check.rule), ("gradient", check.gradient)):
        last = log.last()
        assert isinstance(last, LinearModel)
        table.add_row(name, str(len(log.epoch_ends)), str(len(log)), weights(last.weight, last.bias))
    return table


def _conclusion(check: CrossCheck) -> str:
    from torchperc.cli.show import figures, weights

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
