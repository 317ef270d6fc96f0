"""Cases of descent: a sample at a time, under a Trainer, in one batch, to the optimum."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from benchmarks import peers, samples
from benchmarks.peers import Call, Learned
from benchmarks.timing import Comparison, Contender, Finding, Goal
from torchperc._checks import check_labels
from torchperc.descent.minimise import minimise
from torchperc.descent.sgd import descend
from torchperc.nn.heads import Head, LMSHead, LogisticHead, PerceptronHead
from torchperc.nn.modules import MulticlassPerceptron, Perceptron
from torchperc.samples import convert

Array = npt.NDArray[Any]
Results = Mapping[str, Any]

_FEW, _SOME = 2_000, 10_000
_RATE = 0.1


# --- a sample at a time -------------------------------------------------------------------------------------------


def descent(quick: bool) -> Iterator[Comparison]:
    """One step a sample, logistic and LMS, on 100,000 × 100 float64: weights equal to 1e-9."""
    rows, width, epochs = (500, 10, 2) if quick else (100_000, 100, 5)
    X, y = samples.bell(rows, width, flips=0.05)
    for head, estimator, loss in (
        (LogisticHead(), "SGDClassifier", "log_loss"),
        (LMSHead(), "SGDRegressor", "squared_error"),
    ):
        yield _descent(f"{rows:,} × {width} float64, {epochs} epochs", X, y, epochs, head, estimator, loss)


def _descent(size: str, X: Array, y: Array, epochs: int, head: Head, estimator: str, loss: str) -> Comparison:
    logistic = isinstance(head, LogisticHead)
    few, some = (X[:_FEW], y[:_FEW]), (X[:_SOME], y[:_SOME])
    options = {"loss": loss, "penalty": None, "learning_rate": "constant", "eta0": _RATE, "shuffle": False, "tol": None}
    sklearn = f"scikit-learn {estimator}"
    vw = f"Vowpal Wabbit, {len(some[1]):,} rows, float32"
    river = f"river, {len(few[1]):,} rows, one epoch"
    vw_call = peers.vowpal_wabbit("logistic" if logistic else "squared", *some, epochs, _RATE)
    river_call = peers.river("LogisticRegression" if logistic else "LinearRegression", *few, 1, _RATE)
    total = epochs * len(y)
    contenders = [
        Contender("descend", _descend(head, X, y, epochs), total),
        Contender(
            sklearn,
            peers.scikit_learn(estimator, X, y, max_iter=epochs, **options),
            total,
            Goal("at least", 3),
        ),
        Contender(vw, vw_call, epochs * len(some[1]), seconds=lambda found: found.seconds, needs="vowpalwabbit"),
        Contender(river, river_call, len(few[1]), needs="river"),
    ]
    on_some, on_few = _descend(head, *some, epochs)(), _descend(head, *few, 1)()

    def check(results: Results) -> dict[str, Finding]:
        pairs = {sklearn: (results["descend"], 1e-9), vw: (on_some, 1e-4), river: (on_few, 1e-9)}
        return {
            name: peers.same_weights(pairs[name][0], results[name], pairs[name][1]) for name in pairs & results.keys()
        }

    return Comparison(f"{'logistic' if logistic else 'LMS'}, {size}", contenders, check)


def _descend(head: Head, X: Array, y: Array, epochs: int, rate: float = _RATE) -> Call:
    """The bare engine, the checks of the data included."""

    def call() -> Learned:
        data = convert.features(X, dtype=torch.float64)
        labels = check_labels(y, len(data), None)
        net = Perceptron(data.shape[1], dtype=torch.float64)
        for _ in range(epochs):
            descend(net, head, data, labels, rate)
        return peers.learned(net)

    return call


# --- under a Trainer ----------------------------------------------------------------------------------------------


def trainer(quick: bool) -> Iterator[Comparison]:
    """``LitRule`` and ``LitClassifier(update="sample")``, 20 epochs, against the bare engine and ``batch_size=1``."""
    rows, width, epochs = (300, 10, 2) if quick else (100_000, 100, 20)
    few = 30 if quick else _FEW
    size = f"{rows:,} × {width} float64, {epochs} epochs, logging on"
    X, y = samples.planes(rows, width, flips=0.003, gap=60)
    bare = peers.by_rule(X, y, epochs)
    yield _trainer("LitRule", size, X, y, epochs, few, bare, PerceptronHead(), 1.0)
    X, y = samples.bell(rows, width, flips=0.05)
    bare = _descend(LogisticHead(), X, y, epochs)
    yield _trainer('LitClassifier(update="sample")', size, X, y, epochs, few, bare, LogisticHead(), _RATE)


def _trainer(
    name: str, size: str, X: Array, y: Array, epochs: int, few: int, bare: Call, head: Head, rate: float
) -> Comparison:
    import torchperc.lightning as lit

    def module() -> Any:
        net = Perceptron(X.shape[1], dtype=torch.float64)
        return lit.LitRule(net) if name == "LitRule" else lit.LitClassifier(net, head, lr=rate, update="sample")

    def single() -> Any:
        return lit.LitClassifier(Perceptron(X.shape[1], dtype=torch.float64), head, lr=rate)

    data = torch.from_numpy(X), torch.from_numpy(y)
    start = tuple(part[:few] for part in data)
    one = f"batch_size=1, {few:,} rows, one epoch"
    contenders = [
        Contender(name, _under_trainer(module, data, epochs), epochs * len(y)),
        Contender("the bare engine", bare, epochs * len(y), Goal("at most", 2)),
        Contender(one, _under_trainer(single, start, 1, batch_size=1), few, Goal("at least", 1000)),
    ]
    on_few = _descend(head, X[:few], y[:few], 1, rate)()

    def check(results: Results) -> dict[str, Finding]:
        return {
            "the bare engine": peers.same_weights(results["the bare engine"], results[name]),
            one: peers.same_weights(on_few, results[one], 1e-9),
        }

    return Comparison(f"{name}, {size}", contenders, check)


def _under_trainer(
    make: Callable[[], Any], data: tuple[torch.Tensor, ...], epochs: int, batch_size: int | str = "full"
) -> Call:
    """A run under a plain Lightning Trainer that logs for TensorBoard, in a folder that is gone afterwards."""
    import pytorch_lightning as pl
    from pytorch_lightning.loggers import TensorBoardLogger

    import torchperc.lightning as lit

    options: dict[str, Any] = {
        "accelerator": "cpu",
        "devices": 1,
        "enable_checkpointing": False,
        "enable_model_summary": False,
        "enable_progress_bar": False,
        "log_every_n_steps": 1,
    }

    def call() -> Learned:
        lit.quiet()
        module = make()
        with tempfile.TemporaryDirectory() as folder:
            logger = TensorBoardLogger(folder, name="run", version="", default_hp_metric=False)
            trainer = pl.Trainer(max_epochs=epochs, logger=logger, **options)
            trainer.fit(module, lit.SliceLoader(data[0], data[1], batch_size))
        return peers.learned(module.net)

    return call


# --- in one batch, and to the optimum -----------------------------------------------------------------------------


def full_batch(quick: bool) -> Iterator[Comparison]:
    """``LitClassifier`` on 1,000,000 × 100 float32 in one batch, an epoch of it, against a bare torch loop."""
    import torchperc.lightning as lit

    rows, width, epochs = (1_000, 10, 3) if quick else (1_000_000, 100, 20)
    X, y = (torch.from_numpy(part) for part in samples.bell(rows, width, flips=0.05, dtype="float32"))
    head = LogisticHead()

    def module() -> Any:
        return lit.LitClassifier(Perceptron(width), head, lr=1.0)

    ours, loop = "LitClassifier, logging on", "bare torch loop"
    contenders = [
        Contender(ours, _under_trainer(module, (X, y), epochs), epochs * rows),
        Contender(loop, _batch_loop(X, y, epochs, 1.0), epochs * rows, Goal("at most", 1.2)),
    ]

    def check(results: Results) -> dict[str, Finding]:
        return {loop: peers.same_weights(results[ours], results[loop], 1e-4)}

    yield Comparison(f"full batch, {rows:,} × {width} float32, {epochs} epochs", contenders, check)


def _batch_loop(X: torch.Tensor, y: torch.Tensor, epochs: int, rate: float) -> Call:
    def call() -> Learned:
        net = nn.Linear(X.shape[1], 1)
        nn.init.zeros_(net.weight)
        nn.init.zeros_(net.bias)
        optimizer = torch.optim.SGD(net.parameters(), lr=rate)
        target = y.to(X.dtype)
        for _ in range(epochs):
            optimizer.zero_grad()
            loss = nn.functional.softplus(-target * net(X).squeeze(-1)).mean()
            loss.backward()
            optimizer.step()
        return Learned(net.weight.detach().numpy(), net.bias.detach().numpy())

    return call


def optimum(quick: bool) -> Iterator[Comparison]:
    """The logistic head to its optimum, relative gap 1e-6, dense and CSR, 2 and 10 classes: ``LogisticRegression``."""
    rows, width = (500, 10) if quick else (200_000, 100)
    X, y = samples.bell(rows, width, flips=0.05)
    some = min(2 * _SOME, rows)
    liblinear = peers.scikit_learn("LogisticRegression", X[:some], y[:some], solver="liblinear")
    fewer = Contender(f"LIBLINEAR, liblinear, {some:,} rows", liblinear, some)
    yield _optimum(f"{rows:,} × {width} float64", X, y, 1.0, 2, fewer)
    rows, width = (300, 20) if quick else (20_000, 784)
    X, y = samples.pictures(rows, width, 10, dtype="float64")
    yield _optimum(f"{rows:,} × {width} float64, 10 classes", X / 12, y, 1.0, 1)
    rows, width, filled = (300, 100, 10) if quick else (20_000, 20_000, 50)
    for classes in (2, 10):
        X, y = samples.words(rows, width, filled, classes, flips=0.1)
        for strength in (1.0, 100.0):
            title = f"CSR {rows:,} × {width:,}, {filled} per row, {classes} classes, C = {strength:g}"
            yield _optimum(title, X, y, strength, 1)


def _optimum(title: str, X: Any, y: Array, strength: float, factor: float, *others: Contender) -> Comparison:
    """``minimise`` and L-BFGS with the loosest tolerance that gets it as low; ``strength`` is scikit-learn's C."""
    gap, rows, width = 1e-6, X.shape[0], X.shape[1]
    l2, classes = 1 / (strength * rows), None if y.min() < 0 else int(y.max()) + 1

    def ours(tolerance: float = gap) -> Learned:
        net: Perceptron | MulticlassPerceptron = Perceptron(width, dtype=torch.float64)
        if classes is not None:
            net = MulticlassPerceptron(width, classes, dtype=torch.float64)
        minimise(net, LogisticHead(), X, y, l2=l2, tol=tolerance)
        return peers.learned(net)

    def objective(found: Learned) -> float:
        s = X @ found.weight.T + found.bias
        own = -y * s[:, 0] if classes is None else s[np.arange(rows), y]
        losses = np.logaddexp(0, own) if classes is None else np.logaddexp.reduce(s, 1) - own
        return float(losses.mean() + l2 / 2 * np.square(found.weight).sum())

    exact = objective(ours(1e-9))
    tolerance, theirs = _loosest(X, y, strength, lambda found: objective(found) <= exact * (1 + gap))
    names = ("minimise", f"LogisticRegression(lbfgs, tol={tolerance:.0e})")
    contenders = [Contender(names[0], ours, rows), Contender(names[1], theirs, rows, Goal("at least", factor)), *others]

    def check(results: Results) -> dict[str, Finding]:
        far = {name: objective(results[name]) / exact - 1 for name in names}
        findings = {name: Finding(far[name] <= gap, f"relative gap {max(far[name], 0):.0e}") for name in names}
        different = Finding(None, "another minimum: the bias is penalised, the rows are fewer")
        return {**findings, **{other.name: different for other in others}}

    return Comparison(f"logistic to the optimum, {title}", contenders, check)


def _loosest(X: Any, y: Array, strength: float, good: Callable[[Learned], bool]) -> tuple[float, Call]:
    """The loosest tolerance with which the peer gets where it should, so that it does no more work than it must."""
    options = {"C": strength, "solver": "lbfgs", "max_iter": 10_000}
    for exponent in range(2, 11):
        tolerance = 10.0**-exponent
        call = peers.scikit_learn("LogisticRegression", X, y, tol=tolerance, **options)
        if good(call()):
            break
    return tolerance, call
