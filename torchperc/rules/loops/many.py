"""Many runs of the rule over the same samples, compiled as one program; several cores take some members each."""

from __future__ import annotations

import numpy as np
from numba import njit

from torchperc.rules.loops.learn import SIGN, STRICT, _taken_for, learn, renew

SEPARATED, CYCLING, BUDGET = 0, 1, 2


@njit(cache=True)
def _seeded(seed):
    """The state of a Mersenne Twister (MT19937) as ``torch.Generator.manual_seed`` sets it."""
    state = np.empty(625, np.uint32)
    state[0] = np.uint32(seed & np.uint64(0xFFFFFFFF))
    for j in range(1, 624):
        before = state[j - 1]
        state[j] = np.uint32(np.uint64(1812433253) * np.uint64(before ^ (before >> np.uint32(30))) + np.uint64(j))
    state[624] = 624
    return state


@njit(cache=True)
def _draw(state):
    """The next 32 bits."""
    if state[624] == 624:
        for j in range(624):
            bits = (state[j] & np.uint32(0x80000000)) | (state[(j + 1) % 624] & np.uint32(0x7FFFFFFF))
            state[j] = state[(j + 397) % 624] ^ (bits >> np.uint32(1)) ^ (np.uint32(0x9908B0DF) * (bits & np.uint32(1)))
        state[624] = 0
    bits = state[state[624]]
    state[624] += np.uint32(1)
    bits ^= bits >> np.uint32(11)
    bits ^= (bits << np.uint32(7)) & np.uint32(0x9D2C5680)
    bits ^= (bits << np.uint32(15)) & np.uint32(0xEFC60000)
    return bits ^ (bits >> np.uint32(18))


@njit(cache=True)
def _permute(state, order):
    """A permutation as ``torch.randperm`` draws it: place i changes with one of those from i on."""
    count = len(order)
    for i in range(count):
        order[i] = i
    for i in range(count - 1):
        other = i + _draw(state) % np.uint32(count - i)
        order[i], order[other] = order[other], order[i]


@njit(cache=True)
def permutations(seed, count, epochs):
    """The permutations that a seed yields, epoch by epoch."""
    orders, state = np.empty((epochs, count), np.uint64), _seeded(np.uint64(seed))
    for epoch in range(epochs):
        _permute(state, orders[epoch])
    return orders


@njit(cache=True)
def _errs(rows, y, w, b, near):
    """Whether any decision is wrong."""
    out = np.empty(len(b) + 8, w.dtype)
    renew(w, b, near)
    for i in range(np.uint64(len(y))):  # noqa: SIM110  numba compiles loops
        if _taken_for(rows, i, y[i], w, b, SIGN, 0.0, out, near) != y[i]:
            return True
    return False


@njit(cache=True)
def _keep(states, row, now):
    for j in range(len(now)):  # an assignment of arrays would compile the words of an error about their shapes
        states[row, j] = now[j]


@njit(cache=True)
def _came_back(states, kept, now):
    """Whether a state is among those that were kept."""
    for row in range(kept):
        j = 0
        while j < len(now) and states[row, j] == now[j]:
            j += 1
        if j == len(now):
            return True
    return False


@njit(cache=True)
def _member(rows, y, order, seed, margin, tie, bias_scale, epochs, near, w, b, state):
    """One run to its verdict: (mistakes, epochs, verdict), or −1 mistakes if a score is not finite."""
    count, shuffled = len(y), len(order) == 0
    at = np.empty(count, np.uint64) if shuffled else order
    random = _seeded(np.uint64(seed))
    coefs = np.ones(1)
    position, wrong = np.empty(len(at), np.int64), np.empty(len(at), np.int64)
    states = np.empty((epochs + 1, state.size), w.dtype)
    _keep(states, 0, state)
    kept, mistakes, none = 1, 0, np.int64(0)  # a plain 0 would compile a loop of its own
    for epoch in range(epochs):
        if shuffled:
            _permute(random, at)
        found = learn(rows, at, at, y, coefs, w, b, bias_scale, tie, margin, near, none, position, wrong, none)
        if found < 0:
            return -1, epoch + 1, BUDGET
        mistakes += found
        if found == 0 and (tie != STRICT or not _errs(rows, y, w, b, near)):
            return mistakes, epoch + 1, SEPARATED
        if not shuffled or found == 0:
            if _came_back(states, kept, state):
                return mistakes, epoch + 1, CYCLING
            _keep(states, kept, state)
            kept += 1
    return mistakes, epochs, BUDGET


@njit(cache=True, nogil=True)
def sweep_one(rows, y, orders, which, seeds, margins, tie, bias_scale, epochs, near, states, results, first, end):
    """Runs of one score each: member m takes order ``which[m]``, or with no orders shuffles by ``seeds[m]``.

    ``states`` (M, d + 1) holds the weights before and after, the bias last; ``results`` (M, 3) mistakes, epochs and
    verdict. Members from ``first`` to ``end``.
    """
    width = states.shape[1] - 1
    for m in range(first, end):
        state = states[m]
        results[m, 0], results[m, 1], results[m, 2] = _member(
            rows, y, orders[which[m]], seeds[m], margins[m], tie, bias_scale, epochs, near.copy(),
            state[:width], state[width:], state,
        )  # fmt: skip


@njit(cache=True, nogil=True)
def sweep_many(
    rows, y, orders, which, seeds, margins, tie, bias_scale, epochs, near, shape, states, results, first, end
):
    """Runs of K scores each: as above, with weights of the given shape laid flat before the K biases."""
    size = shape[0] * shape[1]
    for m in range(first, end):
        state = states[m]
        results[m, 0], results[m, 1], results[m, 2] = _member(
            rows, y, orders[which[m]], seeds[m], margins[m], tie, bias_scale, epochs, near.copy(),
            state[:size].reshape(shape), state[size:], state,
        )  # fmt: skip
