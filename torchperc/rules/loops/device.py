"""A pass of the rule as one program on the device, in Triton; a grid of programs makes many runs at once.

A tile of samples is scored with the weights as they are, and the first of them that may be a mistake is looked at;
those behind it are scored again. So a program reads many samples at once, and decides what a loop over single samples
decides. A score within rounding of its limit is added up again in double precision, with all that rounds away counted;
if that leaves the sample open, the program stops there for the host to decide.

Triton decides when a function is decorated whether to compile or to interpret it, so
:func:`torchperc.rules.engines.triton.program` loads this module once for each.
"""

from __future__ import annotations

from torchperc.samples.compiling import TIES

try:
    import triton.language as tl
    from triton import jit, knobs
except ImportError:  # then this can be read, not run

    def jit(function):
        """The function as it is."""
        return function

    called = jit
else:
    # what a program calls: the interpreter takes it as it is, which saves it a millisecond per call
    called = (lambda function: function) if knobs.runtime.interpret else jit

    GOING, OVERFLOW, OPEN, ENDED = map(tl.constexpr, range(4))
    """How a run stands: it goes on, a score is not finite, a sample is for the host to decide, it has its verdict."""
    GAMMA, RADIUS, FLOOR, LEAST, STEP, BIAS_STEP = map(tl.constexpr, range(6))
    """Places in the array of numbers that all runs share, see :mod:`torchperc.rules.engines.rounding`."""
    UPDATE, SIGN = tl.constexpr(TIES["update"]), tl.constexpr(TIES["sign"])
    RENEW = tl.constexpr(64)  # updates after which the size of the weights is computed anew
    TINY = tl.constexpr(2.0**-960)  # a product below may round by less than the type can hold, but by less than LOST
    LOST = tl.constexpr(2.0**-1020)


@called
def _sum(values, axis):
    return tl.reduce(values, axis, tl.standard._sum_combine)


@called
def _largest(values, axis):
    return tl.reduce(values, axis, tl.standard._elementwise_max)


@called
def _smallest(values, axis):
    return tl.reduce(values, axis, tl.standard._elementwise_min)


@called
def _added(a, off_a, b, off_b):
    """a + b, and at most how far it is off: what both were off before, and what is rounded away now."""
    total = a + b
    above = total - a
    return total, off_a + off_b + tl.abs((a - (total - above)) + (b - above))


@jit
def _sum_and_off(a, off_a, b, off_b):
    return _added(a, off_a, b, off_b)


@called
def _read(W, k, d, classes, width):
    """The weights of some features from memory: (K, D)."""
    return tl.load(W + k[:, None] * width + d[None, :], (k < classes)[:, None] & (d < width)[None, :], 0)


@called
def _samples(X, i, live, row, column, d, width):
    """Some features of a tile of samples: (T, D)."""
    there = X + i[:, None] * row + d[None, :].to(tl.int64) * column
    return tl.load(there, live[:, None] & (d < width)[None, :], 0)


@called
def _scores(X, x, i, live, row, column, W, w, b, k, d, classes, width, T, K, D, ON_CHIP):
    """The scores of a tile of samples: (T, K)."""
    total = tl.full((T, K, D), 0, b.dtype)
    for first in range(0, width, D):
        u = x if ON_CHIP else _samples(X, i, live, row, column, first + d, width)
        v = w if ON_CHIP else _read(W, k, first + d, classes, width)
        total = tl.fma(u[:, None, :], v[None, :, :], total)
    return _sum(total, 2) + b[None, :]


@called
def _precise_scores(x_i, column, W, w, b, k, d, classes, width, K, D, ON_CHIP):
    """The scores of one sample in double precision, and at most how far each is off, 0 if nothing is rounded: (K,)."""
    scores, off = b.to(tl.float64), tl.full((K,), 0, tl.float64)
    for first in range(0, width, D):
        here = first + d
        x = tl.load(x_i + here.to(tl.int64) * column, here < width, 0).to(tl.float64)[None, :]
        v = (w if ON_CHIP else _read(W, k, here, classes, width)).to(tl.float64)
        product = x * v
        lost = tl.abs(tl.fma(x, v, -product))
        lost = tl.where((x != 0) & (v != 0) & (tl.abs(product) < TINY), LOST, lost)
        chunk, chunk_off = tl.reduce((product, lost), 1, _sum_and_off)
        scores, off = _added(scores, off, chunk, chunk_off)
    return scores, off


@called
def _slacks(scores, own, k, classes):
    """y·s, or s_y − s_r against the strongest wrong class, of a tile of samples, in double precision: (T,)."""
    if classes == 1:
        return _sum(scores, 1).to(tl.float64) * own
    else:  # noqa: RET505  Triton compiles one of the branches
        mine = k[None, :] == own[:, None]
        others = tl.where(mine | (k >= classes)[None, :], float("-inf"), scores)
        return _sum(tl.where(mine, scores, 0), 1).to(tl.float64) - _largest(others, 1).to(tl.float64)


@called
def _judged(scores, off, own, margin, k, classes, K):
    """slack − margin of one sample, the class it is taken for if that is a mistake, and whether either is open.

    ``scores`` (K,) are in double precision, ``off`` by so much at most.
    """
    if classes == 1:
        slack, doubt, rival = _sum(scores, 0) * own, _sum(off, 0), -own
        several = own == 0
    else:
        others = tl.where((k < classes) & (k != own), scores, float("-inf"))
        best = _largest(others, 0)
        rival = _smallest(tl.where(others == best, k, K), 0).to(tl.int64)  # the first of equal scores
        off_own, off_rival = _sum(tl.where(k == own, off, 0), 0), _sum(tl.where(k == rival, off, 0), 0)
        slack, doubt = _added(_sum(tl.where(k == own, scores, 0), 0), off_own, -best, off_rival)
        both = off + off_rival
        near = (k != rival) & (both > 0) & (best - others <= 1.01 * both)
        several = (_largest(near.to(tl.int32), 0) > 0) & (slack - margin <= 2.02 * _largest(both, 0))
    slack, doubt = _added(slack, doubt, -margin, 0 * margin)
    known = (doubt == 0) | (tl.abs(slack) > 1.01 * doubt)
    return slack, rival, (known == 0) | several


@called
def _mistaken(slack, own, rival, classes, tie):
    """Whether a slack from which the margin was taken is a mistake."""
    if tie == UPDATE:
        return slack <= 0
    elif tie == SIGN:  # noqa: RET505  Triton compiles one of the branches
        loses = (own < 0) if classes == 1 else (rival < own)
        return (slack < 0) | (slack == 0) & loses
    else:
        return slack < 0


@called
def _updated(W, w, x_i, column, move, k, d, classes, width, D, ON_CHIP):
    """w_k += move_k·x, on the chip or in memory."""
    if ON_CHIP:
        x = tl.load(x_i + d.to(tl.int64) * column, d < width, 0)
        return tl.fma(move[:, None], x[None, :], w)
    else:  # noqa: RET505  Triton compiles one of the branches
        tl.debug_barrier()  # all have read the weights
        for first in range(0, width, D):
            here = first + d
            x = tl.load(x_i + here.to(tl.int64) * column, here < width, 0)
            touched = (move != 0)[:, None] & (here < width)[None, :]
            there = W + k[:, None] * width + here[None, :]
            tl.store(there, tl.fma(move[:, None], x[None, :], tl.load(there, touched, 0)), touched)
        tl.debug_barrier()  # all see them as they are now
        return w


@called
def _size(W, w, b, numbers, k, d, classes, width, K, D, ON_CHIP):
    """At least Σ|w_j·x_j| + |b| of any sample and class."""
    squares = tl.full((K, D), 0, tl.float64)
    for first in range(0, width, D):
        v = (w if ON_CHIP else _read(W, k, first + d, classes, width)).to(tl.float64)
        squares += v * v
    length = tl.sqrt(_sum(_sum(squares, 1), 0)) + tl.load(numbers + LEAST)
    return length * tl.load(numbers + RADIUS) + _largest(tl.abs(b.to(tl.float64)), 0)


@jit
def learn(
    X, at, ids, y, coefs, W, B, which, margins, numbers, state, log,
    row, column, coef_step, count,
    classes: tl.constexpr, width: tl.constexpr, tie: tl.constexpr, LOGGED: tl.constexpr,
    T: tl.constexpr, K: tl.constexpr, D: tl.constexpr, ON_CHIP: tl.constexpr,
):  # fmt: skip
    """Program m takes run m on, from the position and the mistakes in ``state[m]``, in order ``which[m]``.

    Args:
        X: samples; sample i begins at ``i·row``, its features are ``column`` apart.
        at, ids: orders (P, count): the places of the samples in X, and their numbers in ``y`` and ``coefs``.
        coefs: in float64, ``coef_step`` apart, which is 0 if one stands for all.
        W, B: the weights of all runs (M, classes, width) and (M, classes), changed in place.
        margins: one per run, in float64.
        numbers: what all runs share; Triton would pass plain floats in single precision.
        state: (M, 4) how a run stands, the position of its next sample, its mistakes so far and their Σ|c|, in float64.
        log: of a single run, if ``LOGGED``: (2, count) the positions of the mistakes, and the classes taken for.
        T, K, D: samples, classes and features at a time, as powers of 2.
        ON_CHIP: whether all weights stay in registers from the first sample to the last.
    """
    m = tl.program_id(0).to(tl.int64)
    state += 4 * m
    status, p = tl.load(state).to(tl.int32), tl.load(state + 1).to(tl.int64)
    found, total = tl.load(state + 2).to(tl.int64), tl.load(state + 3)
    begin = tl.load(which + m) * count
    at += begin
    ids += begin
    W += m * classes * width
    B += m * classes
    margin, bias_step = tl.load(margins + m), tl.load(numbers + BIAS_STEP)
    gamma, floor, step = tl.load(numbers + GAMMA), tl.load(numbers + FLOOR), tl.load(numbers + STEP)
    t, k, d = tl.arange(0, T), tl.arange(0, K), tl.arange(0, D)
    b = tl.load(B + k, k < classes, 0)
    w = _read(W, k, d, classes, width) if ON_CHIP else b
    size, moved = _size(W, w, b, numbers, k, d, classes, width, K, D, ON_CHIP), 0
    while (p < count) & (status == GOING):
        place, end = p + t, tl.minimum(p + T, count)
        live = place < end
        i, own = tl.load(at + place, live, 0), tl.load(y + tl.load(ids + place, live, 0))
        x = _samples(X, i, live, row, column, d, width) if ON_CHIP else b
        while (p < end) & (status == GOING):
            bound = gamma * size + floor
            scores = _scores(X, x, i, live, row, column, W, w, b, k, d, classes, width, T, K, D, ON_CHIP)
            finite = _smallest((tl.abs(scores) < float("inf")).to(tl.int32), 1)
            clear = (_slacks(scores, own, k, classes) > margin + 2.02 * bound) & (finite > 0)
            first = _smallest(tl.where(live & (place >= p) & (clear == 0), place, end), 0)
            p = first
            if first < end:
                here, number = place == first, tl.load(ids + first)
                label, x_i = tl.load(y + number), X + tl.load(at + first) * row
                rounded = _sum(tl.where(here[:, None], scores, 0), 0).to(tl.float64)
                off = tl.where(k < classes, bound, 0)
                slack, rival, doubtful = _judged(rounded, off, label, margin, k, classes, K)
                if doubtful:
                    rounded, off = _precise_scores(x_i, column, W, w, b, k, d, classes, width, K, D, ON_CHIP)
                    slack, rival, doubtful = _judged(rounded, off, label, margin, k, classes, K)
                status = tl.where(doubtful, OPEN, status)
                status = tl.where(_sum(tl.where(here, finite, 0), 0) == 0, OVERFLOW, status)
                if status == GOING:
                    p += 1
                    if _mistaken(slack, label, rival, classes, tie):
                        coef = tl.load(coefs + number * coef_step)
                        if classes == 1:
                            steps = tl.where(k == 0, coef * label, 0)
                        else:
                            steps = tl.where(k == label, coef, tl.where(k == rival, -coef, 0))
                        w = _updated(W, w, x_i, column, steps.to(b.dtype), k, d, classes, width, D, ON_CHIP)
                        b += (steps * bias_step).to(b.dtype)
                        if LOGGED:
                            tl.store(log + found, first)
                            tl.store(log + count + found, rival)
                        found += 1
                        total += tl.abs(coef)
                        moved += 1
                        size += tl.abs(coef) * step
                        if moved == RENEW:
                            size, moved = _size(W, w, b, numbers, k, d, classes, width, K, D, ON_CHIP), 0
    tl.store(state, status.to(tl.float64))
    tl.store(state + 1, p.to(tl.float64))
    tl.store(state + 2, found.to(tl.float64))
    tl.store(state + 3, total)
    tl.store(B + k, b, k < classes)
    if ON_CHIP:
        tl.store(W + k[:, None] * width + d[None, :], w, (k < classes)[:, None] & (d < width)[None, :])
