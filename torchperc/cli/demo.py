"""``torchperc demo``: AND learned twice, side by side; XOR, which one unit cannot learn and two layers can; noise."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from torchperc import data
from torchperc.cli.show import figures, weights
from torchperc.lightning import LitClassifier, LitRule, TabularDataModule, make_trainer
from torchperc.nn.functional import zero_one_loss
from torchperc.nn.modules import MLP, Perceptron
from torchperc.plots import decision_boundary
from torchperc.reports import Report, Text, runs
from torchperc.rules.crosscheck import crosscheck, trace
from torchperc.rules.trainer import RuleTrainer

_EPOCHS = 20


def run(folder: Path = Path("runs/demo")) -> None:
    """Print the tour; leave curves and pictures in the folder."""
    console = Console(highlight=False)
    _and(console)
    _xor(console)
    console.print("\n[bold]The same under a Lightning Trainer[/bold], with curves for TensorBoard")
    with Progress(console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("training", total=len(_RUNS))
        rows = []
        for name in _RUNS:
            progress.update(task, description=name)
            rows.append(_RUNS[name](_below(folder, name)))
            progress.advance(task)
    table = Table("run", "epochs", "result", "train error", "test error")
    for name, row in zip(_RUNS, rows, strict=True):
        table.add_row(name, *row[:-1])
    console.print(table)
    pictures = ", ".join(sorted(path.name for path in folder.glob("*.png")))
    console.print(f"pictures in {folder}: {pictures}")
    console.print(f"curves, boundaries and weights:  [bold].venv/bin/tensorboard --logdir {folder}[/bold]")
    _report(folder, {name: row.report for name, row in zip(_RUNS, rows, strict=True)})
    console.print(f"everything on one page, with proofs:  [bold]{folder / 'report.html'}[/bold]")
    console.print("next: README.md, or data of your own:")
    console.print("      [bold].venv/bin/torchperc learn yours.csv[/bold]")


class _Row(NamedTuple):
    epochs: str
    result: str
    train_error: str
    test_error: str
    report: Report


def _below(folder: Path, name: str) -> Path:
    return folder / name.replace(" ", "-").replace(",", "")


def _report(folder: Path, reports: dict[str, Report]) -> None:
    compared = runs.compared({name: _below(folder, name) for name in reports})
    lead = "AND learned by rule and by gradient, XOR by one layer and by two, noisy data by last and averaged weights."
    Report.joined("torchperc demo", lead, list(reports.values()), compared).save(folder / "report.html")


def _train(lit: LitRule | LitClassifier, data: TabularDataModule, folder: Path, epochs: int) -> _Row:
    trainer = make_trainer(
        folder, epochs, enable_progress_bar=False, accelerator="cpu", picture_every=max(1, epochs // 4)
    )
    trainer.fit(lit, data)
    X, y = data.parts[0]
    errors = [f"{float(zero_one_loss(lit(a), b)):.1%}" if len(b) else "" for a, b in (data.parts[0], data.parts[2])]
    figure = decision_boundary(lit, X, y, title=folder.name)
    figure.savefig(folder.parent / f"{folder.name}.png", dpi=100)
    shown = lit.result.verdict.name if isinstance(lit, LitRule) and lit.result is not None else ""
    if isinstance(lit.net, Perceptron) and lit.net.bias is not None:
        shown = f"{shown} {weights(lit.net.weight, lit.net.bias, 3)}".strip()
    again = [Text("The run is one of those that torchperc demo makes.")]
    report = runs.of_module(folder.name.replace("-", " "), lit, data, folder=folder, again=again)
    return _Row(str(trainer.current_epoch), shown, errors[0], errors[1], report)


def _noisy(select: str, folder: Path) -> _Row:
    data = TabularDataModule("noisy-blobs", {"samples": 600, "noise": 0.1}, split=(0.5, 0.0, 0.5), seed=1)
    lit = LitRule(Perceptron(2), order="shuffled", select=select, seed=1)
    return _train(lit, data, folder, 20)


def _mlp(folder: Path) -> _Row:
    lit = LitClassifier(MLP(2, (4,), init="uniform", seed=0), "logistic", lr=1.0)
    return _train(lit, TabularDataModule("XOR"), folder, 200)._replace(result="2-4-1 tanh, logistic loss")


_RUNS: dict[str, Callable[[Path], _Row]] = {
    "AND by rule": lambda folder: _train(LitRule(Perceptron(2)), TabularDataModule("AND"), folder, 20),
    "AND by gradient": lambda folder: _train(
        LitClassifier(Perceptron(2), lr=1.0), TabularDataModule("AND", batch_size=1), folder, 20
    ),
    "XOR, one layer": lambda folder: _train(LitRule(Perceptron(2)), TabularDataModule("XOR"), folder, 20),
    "XOR, two layers": _mlp,
    "noisy, last": lambda folder: _noisy("last", folder),
    "noisy, averaged": lambda folder: _noisy("averaged", folder),
}


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
