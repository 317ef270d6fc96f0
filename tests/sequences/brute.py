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


def phi(x, y, tags, upto=None):
    """φ(x, y) of a prefix as (weight, transition, end); the end counts if the prefix is all of it."""
    weight, transition, end = np.zeros((tags, x.shape[1])), np.zeros((tags + 1, tags)), np.zeros(tags)
    upto = len(x) if upto is None else upto
    for t in range(upto):
        weight[y[t]] += x[t]
        transition[y[t - 1] if t else tags, y[t]] += 1
    end[y[upto - 1]] += upto == len(x)
    return weight, transition, end


def beam_violation(emission, transition, end, y, width, tie, margin):
    """The wrong prefix at which y falls out of a beam with one hypothesis per last tag, or ``None``."""
    tags, last = len(end), len(y) - 1
    gain = lambda t, k: emission[t][k] + margin * (k != y[t])  # noqa: E731
    beam = {k: (transition[-1][k] + gain(0, k), (k,)) for k in range(tags)}
    history = []  # what the beam has seen, for ties at the end
    for t in range(len(y)):
        if t:
            grown = {}
            for k in range(tags):
                before = min(beam, key=lambda i: (-(beam[i][0] + transition[i][k]), i))
                grown[k] = (beam[before][0] + transition[before][k] + gain(t, k), (*beam[before][1], k))
            beam = grown
        if t < last:
            late = y[t] if tie == "update" else -1
            kept = sorted(beam, key=lambda k: (-beam[k][0], k == late, k))[:width]
            if y[t] not in kept:
                return beam[min(kept, key=lambda k: (-beam[k][0], k))][1]
            beam = {k: beam[k] for k in sorted(kept)}
        history.append(dict(beam))
    top = min(beam, key=lambda k: (-(beam[k][0] + end[k]), k))
    if beam[top][1] != tuple(y):
        return beam[top][1]
    if tie == "update":
        for t, seen in enumerate(history):
            after = lambda k: end[k] if t == last else transition[k][y[t + 1]]  # noqa: B023, E731
            for k in sorted(seen):
                if k != y[t] and seen[k][0] + after(k) == seen[y[t]][0] + after(y[t]):
                    return (*seen[k][1], *y[t + 1 :])
    return None


def violation(emission, transition, end, y, tie, margin):
    """The wrong sequence for which y is mistaken, or ``None``, by looking at all of them."""
    order = ranked(emission, transition, end, y, margin)
    own = score(emission, transition, end, y)
    value, rival = next(pair for pair in order if pair[1] != tuple(y))
    mistake = {"update": value >= own, "sign": order[0][1] != tuple(y), "strict": value > own}[tie]
    return rival if mistake else None


def learn(X, y, tags, orders, *, tie="update", margin=0, coefs=None, width=None, start=None):
    """The rule in plain Python: entries (sequence, step, wrong), and the weights after each presented sequence."""
    w = [each.copy() for each in start or (np.zeros((tags, X[0].shape[1])), np.zeros((tags + 1, tags)), np.zeros(tags))]
    entries, states, step = [], [], 0
    for order in orders:
        before = len(entries)
        for i in order:
            arguments = (X[i] @ w[0].T, w[1], w[2], y[i])
            wrong = (
                violation(*arguments, tie, margin) if width is None else beam_violation(*arguments, width, tie, margin)
            )
            if wrong is not None:
                entries.append((i, step, wrong))
                for own, plus, minus in zip(
                    w, phi(X[i], y[i], tags, len(wrong)), phi(X[i], wrong, tags, len(wrong)), strict=True
                ):
                    own += (plus - minus) * (1 if coefs is None else coefs[i])
            step += 1
            states.append([each.copy() for each in w])
        if len(entries) == before:
            break
    return entries, w, states
