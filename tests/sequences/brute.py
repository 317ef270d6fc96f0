"""Oracles of chains: all tag sequences one by one, in plain Python."""

from itertools import product

import numpy as np


def score(emission, transition, end, y):
    """s(x, y) term by term."""
    total = transition[-1][y[0]] + end[y[-1]]
    for t, tag in enumerate(y):
        total += emission[t][tag] + (transition[y[t - 1]][tag] if t else 0)
    return total


def hamming(a, b):
    return sum(one != other for one, other in zip(a, b, strict=True))


def ranked(emission, transition, end, y=None, margin=0):
    """All sequences with their scores, best first; of equals the lowest tags from the last position backwards."""
    count, tags = len(emission), len(end)
    found = []
    for each in product(range(tags), repeat=count):
        value = score(emission, transition, end, each) + (margin * hamming(each, y) if y is not None else 0)
        found.append((value, each))
    return sorted(found, key=lambda pair: (-pair[0], pair[1][::-1]))


def weights(generator, features, tags, low=-2, high=3):
    """Small integers, so that there are many ties."""
    draw = lambda *shape: generator.integers(low, high, shape).astype(np.float64)  # noqa: E731
    return draw(tags, features), draw(tags + 1, tags), draw(tags)


def sequences(generator, count, features, longest, low=-1, high=2):
    return [
        generator.integers(low, high, (int(generator.integers(1, longest + 1)), features)).astype(np.float64)
        for _ in range(count)
    ]


def phi(x, y, tags):
    """φ(x, y) as (weight, transition, end)."""
    weight, transition, end = np.zeros((tags, x.shape[1])), np.zeros((tags + 1, tags)), np.zeros(tags)
    for t, tag in enumerate(y):
        weight[tag] += x[t]
        transition[y[t - 1] if t else tags, tag] += 1
    end[y[-1]] += 1
    return weight, transition, end


def learn(X, y, tags, orders, *, margin=0, coefs=None):
    """The rule in plain Python: entries (sequence, step, wrong), and the weights after each presented sequence."""
    w = [np.zeros((tags, X[0].shape[1])), np.zeros((tags + 1, tags)), np.zeros(tags)]
    entries, states, step = [], [], 0
    for order in orders:
        before = len(entries)
        for i in order:
            wrong = ranked(X[i] @ w[0].T, w[1], w[2], y[i], margin)[0][1]
            if wrong != tuple(y[i]):
                entries.append((i, step, wrong))
                for own, plus, minus in zip(w, phi(X[i], y[i], tags), phi(X[i], wrong, tags), strict=True):
                    own += (plus - minus) * (1 if coefs is None else coefs[i])
            step += 1
            states.append([each.copy() for each in w])
        if len(entries) == before:
            break
    return entries, w, states
