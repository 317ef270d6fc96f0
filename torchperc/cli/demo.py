"""``torchperc demo``: AND learned twice, side by side; then XOR, which one unit cannot learn."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table

from torchperc import data
from torchperc.cli.show import figures, weights
from torchperc.crosschecking import crosscheck, trace
from torchperc.modules import Perceptron
from torchperc.rules.trainer import RuleTrainer

_EPOCHS = 20


def run() -> None:
    """Print the tour."""
    console = Console(highlight=False)
    _and(console)
    _xor(console)
    console.print("\nNext: the examples in README.md, or the same comparison on data of your own:")
    console.print("      [bold].venv/bin/torchperc crosscheck yours.csv[/bold]")


def _and(console: Console) -> None:
    X, y = data.gate("AND")
    console.print("[bold]AND, learned twice[/bold]: by the rule, where a mistake adds y·x to the weights, and")
    console.print("by gradient, autograd and SGD on max(0, −y·s), one sample at a time. A sample is a")
    console.print("mistake if y·s ≤ 0, with the score s = w·x + b. Weights are shown as (b; w₁, w₂).\n")
    table = Table("epoch", "sample", "y", "score", "mistake?", "by rule", "by gradient", "same")
    epoch = 1
    for step in trace(X, y, epochs=_EPOCHS):
        if step.epoch > epoch:
            table.add_section()
            epoch = step.epoch
        rule, gradient = (weights(w.weight, w.bias) for w in (step.rule_weights, step.gradient_weights))
        table.add_row(
            str(step.epoch),
            f"({figures(X[step.sample].tolist())})",
            f"{int(y[step.sample]):+d}",
            figures(step.rule.scores),
            "mistake" if step.rule.wrong is not None else "",
            rule,
            gradient,
            "yes" if step.rule == step.gradient and rule == gradient else "NO",
        )
    console.print(table)
    net = Perceptron(2)
    result = RuleTrainer(max_epochs=_EPOCHS).fit(net, X, y)
    check = crosscheck(X, y, epochs=_EPOCHS)
    assert net.bias is not None
    console.print(f"weights      {weights(net.weight, net.bias)}")
    console.print(f"verdict      {result.sentence}")
    agree = "equal to the bit" if check.equal and check.exact else "DIFFERENT"
    console.print(f"cross-check  {len(check.rule)} mistakes by rule, {len(check.gradient)} by gradient: {agree}")


def _xor(console: Console) -> None:
    X, y = data.gate("XOR")
    net = Perceptron(2)
    result = RuleTrainer().fit(net, X, y)
    assert net.bias is not None
    console.print("\n[bold]XOR[/bold]: no line separates it, and the run notices.")
    console.print(f"weights      {weights(net.weight, net.bias)}")
    console.print(f"verdict      {result.sentence}")
