"""The demo: AND learned twice, side by side; XOR, which one layer cannot learn and two can; noisy data."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

from rich.console import Console
from rich.progress import Progress

from torchperc import data
from torchperc.lightning import LitClassifier, LitRule, TabularDataModule, make_trainer
from torchperc.lightning.loader import wrong_decisions
from torchperc.nn.modules import MLP, Perceptron
from torchperc.plots import DecisionRegionDisplay
from torchperc.reports import runs
from torchperc.reports.text import columns, figures, percent, weights
from torchperc.rules.crosscheck import crosscheck, trace
from torchperc.rules.trainer import RuleTrainer

_EPOCHS = 20


class _Run(NamedTuple):
    lit: LitRule | LitClassifier
    data: TabularDataModule
    epochs: int = _EPOCHS
    shown: str = ""


def demo(folder: Path) -> None:
    """Print the tour; leave curves, pictures and a report of each run in the folder."""
    _and()
    print("\nXOR: no line separates it, and the run notices.")
    _verdict("XOR")
    print("\nThe same under a Lightning Trainer, with curves for TensorBoard")
    rows = []
    with Progress(console=Console(stderr=True), transient=True) as progress:
        for name, run in progress.track(_runs().items(), description="training"):
            rows.append([name, *_train(run, folder / name.replace(" ", "-").replace(",", ""))])
    print(*columns(("run", "epochs", "result", "train error", "test error"), rows), sep="\n")
    print(f"pictures in {folder}: {', '.join(sorted(path.name for path in folder.glob('*.png')))}")
    print(f"curves and boundaries:  tensorboard --logdir {folder}")
    print(f"each run on a page, with proofs:  {folder / '*' / 'report.html'}")
    print("next: README.md, or data of your own:  torchperc learn yours.csv")


def _runs() -> dict[str, _Run]:
    blobs = {"samples": 600, "noise": 0.1}
    noisy = {
        f"noisy, {select}": _Run(
            LitRule(Perceptron(2), order="shuffled", select=select, seed=1),
            TabularDataModule("noisy-blobs", blobs, split=(0.5, 0.0, 0.5), seed=1),
        )
        for select in ("last", "averaged")
    }
    mlp = LitClassifier(MLP(2, (4,), init="uniform", seed=0), "logistic", lr=1.0)
    return {
        "AND by rule": _Run(LitRule(Perceptron(2)), TabularDataModule("AND")),
        "AND by gradient": _Run(LitClassifier(Perceptron(2), lr=1.0), TabularDataModule("AND", batch_size=1)),
        "XOR, one layer": _Run(LitRule(Perceptron(2)), TabularDataModule("XOR")),
        "XOR, two layers": _Run(mlp, TabularDataModule("XOR"), 200, "2-4-1 tanh, logistic loss"),
        **noisy,
    }


def _train(run: _Run, folder: Path) -> list[str]:
    """Train, write the pictures and the report, and return the row of the table."""
    lit, data = run.lit, run.data
    quiet: dict[str, Any] = {"enable_progress_bar": False, "accelerator": "cpu"}
    trainer = make_trainer(folder, run.epochs, picture_every=run.epochs // 2, **quiet)
    trainer.fit(lit, data)
    train, _, test = (percent(wrong_decisions(lit, X, y) / len(y), ".1f") if len(y) else "" for X, y in data.parts)
    display = DecisionRegionDisplay.from_model(lit, *data.parts[0], title=folder.name)
    display.figure_.get_figure(root=True).savefig(folder.parent / f"{folder.name}.png", dpi=100)
    shown = lit.result.verdict.name if isinstance(lit, LitRule) and lit.result is not None else run.shown
    if isinstance(lit.net, Perceptron) and lit.net.bias is not None:
        shown = f"{shown} {weights(lit.net.weight, lit.net.bias, 3)}".strip()
    runs.of_module(lit, data, folder).save(folder / "report.html")
    return [str(trainer.current_epoch), shown, train, test]


def _and() -> None:
    X, y = data.gate("AND")
    print(
        "AND, learned twice: by the rule, where a mistake adds y·x to the weights, and by gradient, autograd and SGD\n"
        "on max(0, −y·s), one sample at a time. A sample is a mistake if y·s ≤ 0, with the score s = w·x + b.\n"
        "Weights are shown as (b; w₁, w₂).\n"
    )
    rows = []
    for step in trace(X, y, epochs=_EPOCHS):
        rule, gradient = (weights(w.weight, w.bias) for w in (step.rule_weights, step.gradient_weights))
        sample = f"({figures(X[step.sample].tolist())})", f"{int(y[step.sample]):+d}", figures(step.rule.scores)
        mistake = "" if step.rule.predicted is None else "mistake"
        same = "yes" if step.rule == step.gradient and rule == gradient else "NO"
        rows.append((str(step.epoch), *sample, mistake, rule, gradient, same))
    heads = ("epoch", "sample", "y", "score", "mistake?", "by rule", "by gradient", "same")
    print(*columns(heads, rows), sep="\n")
    _verdict("AND")
    check = crosscheck(X, y, epochs=_EPOCHS)
    agree = "equal to the bit" if check.equal and check.exact else "DIFFERENT"
    print(f"cross-check  {len(check.rule)} mistakes by rule, {len(check.gradient)} by gradient: {agree}")


def _verdict(gate: str) -> None:
    net = Perceptron(2)
    result = RuleTrainer(max_epochs=_EPOCHS).fit(net, *data.gate(gate))
    assert net.bias is not None
    print(f"weights      {weights(net.weight, net.bias)}")
    print(f"verdict      {result.sentence}")
