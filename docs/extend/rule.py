"""A new rule: passive-aggressive learning, which corrects each sample just enough to have y·s = 1."""

import numpy as np
import torch

import torchperc as tp
from torchperc.rules.problem import Mistake, Mistakes, Problem, Weights
from torchperc.samples.mapped import as_samples


def passive_aggressive(X, y, epochs=5, largest=float("inf")):
    """w ← w + c·(x, 1) where y·s < 1, with c = y·min(largest, (1 − y·s)/‖(x, 1)‖²); returns the log."""
    samples, y = as_samples(X, dtype=torch.float64), np.asarray(y)
    problem = Problem(samples, y, None, np.ones(len(y)), np.ones(len(y)))  # None: labels −1/+1
    start = Weights(torch.zeros(1, samples.n_features, dtype=torch.float64), torch.zeros(1, dtype=torch.float64))
    weights, found = start.clone(), []
    for step in range(epochs * len(y)):
        i = step % len(y)
        label = int(y[i])
        missing = 1 - label * float(samples.take(torch.tensor([i])).scores(*weights))
        if missing > 0:
            _, x = samples.row(i)  # columns and values; all columns of a dense sample
            size = min(largest, missing / float(x @ x + 1))
            problem.update(weights, i, -label, size)
            found.append(Mistake(i, step, label * size, -label))
    ends = torch.arange(1, epochs + 1) * len(y)
    return tp.MistakeLog(problem, start, (Mistakes.of(found),), ends)
