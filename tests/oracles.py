"""The algorithms once more, as plain loops over Python numbers: what the package is compared with.

Nothing here imports torchperc. Integers stay integers, so results are exact.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from fractions import Fraction


@dataclass
class Run:
    """What the plain loop saw: entries (sample, step, coef, wrong), every state after every step."""

    entries: list = field(default_factory=list)
    after_step: list = field(default_factory=list)
    states: list = field(default_factory=list)

    @property
    def last(self):
        return self.states[-1]


def score(state, x):
    """One score for each unit: b + w·x."""
    return [b + sum(wi * xi for wi, xi in zip(w, x, strict=False)) for b, w in state]


def decide(scores):
    if len(scores) == 1:
        return 1 if scores[0] >= 0 else -1
    return max(range(len(scores)), key=lambda k: (scores[k], -k))


def taken_for(scores, y, tie, margin=0):
    """The wrong label a sample is taken for, or None."""
    if len(scores) == 1:
        value, other = y * scores[0], -y
    else:
        other = max((k for k in range(len(scores)) if k != y), key=lambda k: (scores[k], -k))
        value = scores[y] - scores[other]
    if tie == "sign":
        return other if decide(scores) != y else None
    return other if (value <= margin if tie == "update" else value < margin) else None


def perceptron(
    X, y, *, classes=None, tie="update", beta=1, lr=1, margin=0, passes=20, order=None, start=None, weights=None
):
    """The rule. ``order`` is a list of passes; a pass is a list of sample numbers. States are ((b, (w…)), …)."""
    state = start or tuple((0, (0,) * len(X[0])) for _ in range(classes or 1))
    run = Run(states=[state])
    step = 0
    for number in range(passes):
        mistakes = 0
        for i in order[number % len(order)] if order else range(len(X)):
            wrong = taken_for(score(state, X[i]), y[i], tie, margin)
            if wrong is not None:
                mistakes += 1
                size = lr * (1 if weights is None else weights[i])
                changes = {0: size * y[i]} if classes is None else {y[i]: size, wrong: -size}
                state = updated(state, X[i], changes, beta)
                run.entries.append((i, step, changes[0] if classes is None else size, wrong))
                run.states.append(state)
            run.after_step.append(state)
            step += 1
        if not mistakes:
            break
    return run


def mean_state(run):
    """The exact mean of the weights after each step."""

    def mean(values):
        return Fraction(sum(values)) / len(run.after_step)

    units = (list(zip(*unit, strict=True)) for unit in zip(*run.after_step, strict=True))  # biases and weights of each
    return tuple((mean(biases), tuple(map(mean, zip(*weights, strict=True)))) for biases, weights in units)


def votes(run, x, classes=None):
    """Ballots of the weights after each step: Σ sign, or a count for each class."""
    ballots = [decide(score(state, x)) for state in run.after_step]
    return [sum(ballots)] if classes is None else [ballots.count(k) for k in range(classes)]


def errors(state, X, y):
    return sum(decide(score(state, x)) != t for x, t in zip(X, y, strict=False))


def updated(state, x, changes, beta):
    """The weights after a step of changes[k] with each unit k."""
    return tuple(
        (b + changes.get(k, 0) * beta, tuple(w + changes.get(k, 0) * v for w, v in zip(each, x, strict=True)))
        for k, (b, each) in enumerate(state)
    )


def pocket(X, y, order, *, classes=None, tie="update", beta=1, margin=0, weights=None):
    """Gallant's pocket algorithm with ratchet, a sample at a time: the mistakes made before the pocket's weights.

    π are the weights that learn, W those in the pocket. A run is counted for as long as its weights are in use.
    """
    cost = weights or [1] * len(X)
    pi = tuple((0, (0,) * len(X[0])) for _ in range(classes or 1))
    made = run_pi = run_w = num_ok_w = in_pocket = 0
    looked = False
    for i in order:
        wrong = taken_for(score(pi, X[i]), y[i], tie, margin)
        if wrong is not None:
            changes = {0: cost[i] * y[i]} if classes is None else {y[i]: cost[i], wrong: -cost[i]}
            pi, made, run_pi, looked = updated(pi, X[i], changes, beta), made + 1, 0, False
            continue
        run_pi += 1
        if run_pi > run_w and not looked:
            looked = True
            num_ok_pi = sum(c for x, t, c in zip(X, y, cost, strict=True) if decide(score(pi, x)) == t)
            if num_ok_pi > num_ok_w:
                in_pocket, num_ok_w = made, num_ok_pi
                run_w = run_pi
        elif looked and in_pocket == made:
            run_w = run_pi  # the weights in the pocket are in use, and their run goes on
    return in_pocket


def kernel_perceptron(X, y, k, *, passes=20, tie="update", beta=0, classes=None):
    """The dual rule: a coefficient for each sample and class. Returns entries and coefficients."""
    units = classes or 1
    alpha = [[0] * units for _ in X]
    entries, step = [], 0
    for _ in range(passes):
        mistakes = 0
        for i in range(len(X)):
            s = [sum(alpha[j][u] * (k(X[j], X[i]) + beta) for j in range(len(X)) if alpha[j][u]) for u in range(units)]
            wrong = taken_for(s, y[i], tie)
            if wrong is not None:
                mistakes += 1
                if classes is None:
                    alpha[i][0] += y[i]
                else:
                    alpha[i][y[i]] += 1
                    alpha[i][wrong] -= 1
                entries.append((i, step, y[i] if classes is None else 1, wrong))
            step += 1
        if not mistakes:
            break
    return entries, alpha


def integers(seed, count=12, width=3, classes=None, spread=4):
    """Small integer data with every class in it."""
    rng = random.Random(seed)
    X = [[rng.randint(-spread, spread) for _ in range(width)] for _ in range(count)]
    labels = [-1, 1] if classes is None else list(range(classes))
    y = [labels[i % len(labels)] for i in range(count)]
    rng.shuffle(y)
    return X, y
