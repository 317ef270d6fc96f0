"""A new rule: passive-aggressive learning, which corrects each sample just enough to have y·s = 1."""

import torch

import torchperc as tp
from torchperc.rules.log import Mistake, Mistakes
from torchperc.rules.problem import Problem, Weights
from torchperc.samples.parts import as_rows


def passive_aggressive(X, y, epochs=5, largest=float("inf")):
    """w ← w + c·(x, 1) where y·s < 1, with c = y·min(largest, (1 − y·s)/‖(x, 1)‖²); returns the log."""
    rows, y = as_rows(X, dtype=torch.float64), torch.as_tensor(y)
    space = LinearSpace(rows, None, 1.0)  # None: labels −1/+1; 1.0: the bias moves as the weight of a constant 1 does
    start = Weights(torch.zeros(1, rows.width, dtype=torch.float64), torch.zeros(1, dtype=torch.float64))
    weights, entries = start.clone(), []
    for step in range(epochs * len(y)):
        i = step % len(y)
        label = int(y[i])
        missing = 1 - label * space.score(weights, i)[0]
        if missing > 0:
            _, x = rows.row(i)  # columns and values; all columns of a dense sample
            coef = label * min(largest, missing / float(x @ x + 1))
            space.update(weights, i, coef, label, -label)
            entries.append(Mistake(i, step, coef, -label))
    ends = [(epoch + 1) * len(y) for epoch in range(epochs)]
    return tp.MistakeLog.of(space, y, start, Mistakes.of(entries), ends)
