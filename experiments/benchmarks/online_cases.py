"""Cases of learning as samples come: one at a time, and from a file of the size of a9a."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks import peers, samples
from benchmarks.peers import Learned
from benchmarks.timing import Comparison, Contender, Finding, Goal, with_folder
from torchperc.data.read import read
from torchperc.nn.modules import Perceptron
from torchperc.rules.trainer import RuleTrainer

Results = Mapping[str, Any]


def online(quick: bool) -> Iterator[Comparison]:
    """``partial_fit`` one sample at a time, × 20, against ``SGDClassifier.partial_fit``: at most 100 µs per call."""
    rows, width = (50, 5) if quick else (20_000, 20)
    X, y = samples.planes(rows, width, flips=0.05)
    few = min(rows, 2_000)
    ours, theirs = "RuleTrainer.partial_fit", "scikit-learn Perceptron.partial_fit"

    def by_rule() -> Learned:
        net, trainer = Perceptron(width, dtype=torch.float64), RuleTrainer()
        for x, label in zip(X[:, None], y[:, None], strict=True):
            trainer.partial_fit(net, x, label)
        return peers.learned(net)

    def scikit_learn() -> Learned:
        model = import_module("sklearn.linear_model").Perceptron(shuffle=False)
        classes = np.array([-1, 1])
        for x, label in zip(X[:few, None], y[:few, None], strict=True):
            model.partial_fit(x, label, classes)
        return Learned(model.coef_, model.intercept_)

    expected = peers.by_rule(X, y, 1)(), peers.by_rule(X[:few], y[:few], 1)()
    contenders = [
        Contender(ours, by_rule, rows, Goal("seconds", 100e-6 * rows)),
        Contender(f"{theirs}, {few:,} rows", scikit_learn, few),
    ]

    def check(results: Results) -> dict[str, Finding]:
        on_all, on_few = expected
        pairs = ((ours, on_all), (contenders[1].name, on_few))
        return {name: peers.same_weights(found, results[name]) for name, found in pairs}

    yield Comparison(f"one sample per call, {rows:,} × {width}", contenders, check)


def census(quick: bool) -> Iterator[Comparison]:
    """From an svmlight file of 32,561 × 123 ones, as a9a has them, to averaged weights: three epochs in 55 ms."""
    rows, epochs = (300, 2) if quick else (32_561, 3)
    X, y = samples.census(rows)
    new = samples.census(max(rows // 2, 100), seed=1)
    folder = tempfile.mkdtemp()
    path = Path(folder, "census.svm")
    import_module("sklearn.datasets").dump_svmlight_file(X, y, str(path), zero_based=False)

    def learn(data: Any, labels: Any) -> Learned:
        net = Perceptron(data.shape[1], dtype=torch.float64)
        start = time.perf_counter()
        result = RuleTrainer(epochs, select="averaged").fit(net, data, labels)
        return peers.learned(net, result)._replace(seconds=time.perf_counter() - start)

    def from_file() -> Learned:
        table = read(path)
        return learn(table.X, table.y)

    averaged = peers.scikit_learn("SGDClassifier", X, y, **_AVERAGED, max_iter=epochs)
    contenders = [
        Contender("fit(select='averaged')", lambda: learn(X, y), epochs * rows, Goal("seconds", 0.055)),
        Contender("with reading the file", from_file, epochs * rows),
        Contender("scikit-learn SGDClassifier(average=True)", averaged, epochs * rows),
    ]

    def check(results: Results) -> dict[str, Finding]:
        ours, read_first, theirs = (contender.name for contender in contenders)
        wrong = {name: 100 * peers.errors(found, *new) for name, found in results.items()}
        same = peers.same_weights(results[ours], results[read_first])
        return {
            ours: Finding(quick or wrong[ours] < 16, f"{wrong[ours]:.1f} % errors on new rows"),
            read_first: same,
            theirs: Finding(None, f"other weights: {wrong[theirs]:.1f} %"),
        }

    yield with_folder(Comparison(f"{rows:,} × 123 ones, {epochs} epochs", contenders, check), folder)


_AVERAGED = {
    "loss": "perceptron",
    "penalty": None,
    "learning_rate": "constant",
    "eta0": 1.0,
    "shuffle": False,
    "tol": None,
    "average": True,
}
