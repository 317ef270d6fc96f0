"""The rule on dense data: time for a pass, and the ratio to scikit-learn's compiled loop in the same run.

Both learn from the same integer-valued data in the same order, and their weights are compared before any time is told.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
from sklearn.linear_model import Perceptron as SklearnPerceptron

import torchperc as tp

ROWS, WIDTH, EPOCHS, ROUNDS = 20_000, 100, 2, 5


def integers(noise: float) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    X = rng.integers(-5, 6, size=(ROWS, WIDTH)).astype(np.float64)
    flip = rng.random(ROWS) < noise
    return X, np.where((X @ rng.integers(-3, 4, size=WIDTH) >= 0) ^ flip, 1, -1)


def timed(call: Callable[[], object]) -> tuple[float, object]:
    start = time.perf_counter()
    result = call()
    return time.perf_counter() - start, result


def main() -> None:
    print(f"{ROWS:,} × {WIDTH} float64, {EPOCHS} epochs, best of {ROUNDS}, interleaved")
    for name, noise in (("clean", 0.0), ("10 % noise", 0.1)):
        X, y = integers(noise)
        ours, theirs = [], []
        for _ in range(ROUNDS):
            net = tp.Perceptron(WIDTH).double()
            seconds, _ = timed(lambda: tp.RuleTrainer(max_epochs=EPOCHS).fit(net, X, y))  # noqa: B023  called at once
            ours.append(seconds)
            peer = SklearnPerceptron(shuffle=False, tol=None, max_iter=EPOCHS)
            seconds, _ = timed(lambda: peer.fit(X, y))  # noqa: B023  called at once
            theirs.append(seconds)
        same = np.array_equal(net.weight.detach().numpy(), peer.coef_)
        per_row = 1e6 * min(ours) / (ROWS * EPOCHS)
        print(
            f"{name:10}  reference engine {per_row:5.1f} µs a sample, scikit-learn "
            f"{1e6 * min(theirs) / (ROWS * EPOCHS):5.2f} µs; ratio {min(theirs) / min(ours):.3f}; same weights: {same}"
        )


if __name__ == "__main__":
    main()
