"""Many runs of the rule over the same samples, compiled as one program; several cores take some members each."""

from __future__ import annotations

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic, overload

from torchperc.rules.loops.exact import BOUND, GAMMA, STEP, _side
from torchperc.rules.loops.learn import SIGN, STRICT, _mistaken, _taken_for, learn, renew

SEPARATED, CYCLING, BUDGET = 0, 1, 2
EIGHT = 8  # numbers in a vector, to which the rows of few features are padded
RENEW = 1024  # updates after which the bound of rounding is worked out again


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


@njit
def _mixed(high, low, far):
    bits = (high & np.uint32(0x80000000)) | (low & np.uint32(0x7FFFFFFF))
    return far ^ (bits >> np.uint32(1)) ^ (np.uint32(0x9908B0DF) * (bits & np.uint32(1)))


@njit
def _draw(state, out):
    """The next 32 bits into each of ``out``, in loops that the compiler turns into vectors."""
    done = 0
    while done < len(out):
        if state[624] == 624:
            for j in range(227):
                state[j] = _mixed(state[j], state[j + 1], state[j + 397])
            for j in range(227, 623):
                state[j] = _mixed(state[j], state[j + 1], state[j - 227])
            state[623] = _mixed(state[623], state[0], state[396])
            state[624] = 0
        at = np.int64(state[624])
        some = min(624 - at, len(out) - done)
        for j in range(some):
            bits = state[at + j]
            bits ^= bits >> np.uint32(11)
            bits ^= (bits << np.uint32(7)) & np.uint32(0x9D2C5680)
            bits ^= (bits << np.uint32(15)) & np.uint32(0xEFC60000)
            out[done + j] = bits ^ (bits >> np.uint32(18))
        state[624] += np.uint32(some)
        done += some


@njit(cache=True, error_model="numpy")
def _permute(state, order, drawn):
    """A permutation as ``torch.randperm`` draws it: place i changes with one of those from i on."""
    count = len(order)
    _draw(state, drawn)
    for i in range(count):
        order[i] = i
    for i in range(count - 1):
        # the remainder by a division of floats, which is faster, and exact for 32 bits: a quotient is as far from the
        # next integer as 1 over its divisor, and rounds by less
        bits, left = np.int64(drawn[i]), np.int64(count - i)
        other = np.uint64(i + bits - left * np.int64(np.float64(bits) / np.float64(left)))
        order[i], order[other] = order[other], order[i]


@njit(cache=True)
def permutations(seed, count, epochs):
    """The permutations that a seed yields, epoch by epoch."""
    orders, state = np.empty((epochs, count), np.uint64), _seeded(np.uint64(seed))
    drawn = np.empty(count - 1, np.uint32)
    for epoch in range(epochs):
        _permute(state, orders[epoch], drawn)
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


def _eights(context, builder, signature, args):
    """The places of eight numbers each of row i of z and of w, one after the other; how they are read and written."""
    z, w = (context.make_array(signature.args[k])(context, builder, args[k]) for k in (0, 2))
    element = context.get_data_type(signature.args[0].dtype)
    eight, size = ir.VectorType(element, EIGHT), context.get_abi_sizeof(element)
    width = builder.extract_value(w.shape, 0)
    row = builder.gep(z.data, [builder.mul(args[1], width)])

    def load(start, j):
        return builder.load(builder.bitcast(builder.gep(start, [j]), eight.as_pointer()), align=size)

    def store(value, start, j):
        builder.store(value, builder.bitcast(builder.gep(start, [j]), eight.as_pointer()), align=size)

    steps = cgutils.for_range_slice(builder, width.type(0), width, width.type(EIGHT), intp=width.type)
    return eight, row, w.data, load, store, steps


@intrinsic
def _dot(typingctx, z, i, w):
    """z_i·w, whose widths are a multiple of eight; numba leaves so short a loop to scalars."""

    def codegen(context, builder, signature, args):
        eight, row, weights, load, _, steps = _eights(context, builder, signature, args)
        total, number = cgutils.alloca_once_value(builder, ir.Constant(eight, None)), ir.IntType(32)
        with steps as (j, _):
            product = builder.fmul(load(row, j), load(weights, j), flags=("contract",))
            builder.store(builder.fadd(builder.load(total), product, flags=("contract",)), total)
        value = builder.load(total)
        for half in (4, 2, 1):
            parts = []
            for first in (0, half):
                lanes = ir.Constant(ir.VectorType(number, half), list(range(first, first + half)))
                parts.append(builder.shuffle_vector(value, ir.Constant(value.type, ir.Undefined), lanes))
            value = builder.fadd(*parts)
        return builder.extract_element(value, number(0))

    return z.dtype(z, types.uint64, w), codegen


@intrinsic
def _plus(typingctx, z, i, w):
    """w += z_i."""

    def codegen(context, builder, signature, args):
        _, row, weights, load, store, steps = _eights(context, builder, signature, args)
        with steps as (j, _):
            store(builder.fadd(load(weights, j), load(row, j)), weights, j)
        return context.get_dummy_value()

    return types.void(z, types.uint64, w), codegen


@njit
def _narrow(rows, z, signs, at, w, b, bias_scale, tie, margin, near):
    """A pass of the rule over few features, ``z`` being the rows times their labels, padded: how many mistakes, or −1.

    The same mistakes and weights as by :func:`learn`: a product with −1 rounds nothing, and whatever is closer to the
    margin than rounding is decided as there.
    """
    renew(w, b, near)
    bias, apart, found = b[0], 2.0 * near[BOUND], 0
    grows = 2.0 * near[GAMMA] * near[STEP]
    for p in range(np.uint64(len(at))):
        i = np.uint64(at[p])
        slack = _dot(z, i, w) + signs[i] * bias
        if slack > margin + apart and slack < np.inf:
            continue
        if not (slack < margin - apart and slack > -np.inf):
            if not np.isfinite(slack):
                return np.int64(-1)
            own = np.int64(signs[i])
            b[0], near[BOUND] = bias, apart / 2.0
            side = _side(rows, i, w, b, 0, -1, own, margin, np.float64(slack), near)
            if not _mistaken(np.float64(side), own, tie, 0.0):
                continue
        _plus(z, i, w)
        bias += w.dtype.type(signs[i] * bias_scale)
        apart += grows
        found += 1
        if found % RENEW == 0:
            b[0] = bias
            renew(w, b, near)
            apart = 2.0 * near[BOUND]
    b[0] = bias
    return np.int64(found)


def _pass(rows, z, signs, at, y, w, b, bias_scale, tie, margin, near, position, wrong):  # pragma: no cover - compiled
    """The number of mistakes of a pass, or less than 0 if a score is not finite."""


@overload(_pass)
def _pass_of(rows, z, signs, at, y, w, b, bias_scale, tie, margin, near, position, wrong):
    def many(rows, z, signs, at, y, w, b, bias_scale, tie, margin, near, position, wrong):
        none = np.int64(0)  # a plain 0 would compile a loop of its own
        return learn(rows, at, at, y, np.ones(1), w, b, bias_scale, tie, margin, near, none, position, wrong, none)

    def one(rows, z, signs, at, y, w, b, bias_scale, tie, margin, near, position, wrong):
        none = np.int64(0)
        if len(z):
            return _narrow(rows, z, signs, at, w, b, bias_scale, tie, margin, near)
        return learn(rows, at, at, y, np.ones(1), w, b, bias_scale, tie, margin, near, none, position, wrong, none)

    return one if w.ndim == 1 else many


@njit(cache=True)
def _member(rows, z, signs, y, order, seed, margin, tie, bias_scale, epochs, near, w, b, state):
    """One run to its verdict: (mistakes, epochs, verdict), or −1 mistakes if a score is not finite."""
    count, shuffled = len(y), len(order) == 0
    at = np.empty(count, np.uint64) if shuffled else order
    random, drawn = _seeded(np.uint64(seed)), np.empty(count - 1, np.uint32)
    position, wrong = np.empty(len(at), np.int64), np.empty(len(at), np.int64)
    states = np.empty((epochs + 1, state.size), w.dtype)
    _keep(states, 0, state)
    kept, mistakes = 1, 0
    for epoch in range(epochs):
        if shuffled:
            _permute(random, at, drawn)
        found = _pass(rows, z, signs, at, y, w, b, bias_scale, tie, margin, near, position, wrong)
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
def sweep_one(
    rows, z, signs, y, orders, which, seeds, margins, tie, bias_scale, epochs, near, states, results, first, end
):
    """Runs of one score each: member m takes order ``which[m]``, or with no orders shuffles by ``seeds[m]``.

    ``states`` (M, d + 1) holds the weights before and after, the bias last; ``results`` (M, 3) mistakes, epochs and
    verdict. Members from ``first`` to ``end``. If ``z`` has rows, they are the samples times their labels, padded as
    the states are.
    """
    width = states.shape[1] - 1
    for m in range(first, end):
        state = states[m]
        results[m, 0], results[m, 1], results[m, 2] = _member(
            rows, z, signs, y, orders[which[m]], seeds[m], margins[m], tie, bias_scale, epochs, near.copy(),
            state[:width], state[width:], state,
        )  # fmt: skip


@njit(cache=True, nogil=True)
def sweep_many(
    rows, z, signs, y, orders, which, seeds, margins, tie, bias_scale, epochs, near, shape, states, results, first, end
):
    """Runs of K scores each: as above, with weights of the given shape laid flat before the K biases."""
    size = shape[0] * shape[1]
    for m in range(first, end):
        state = states[m]
        results[m, 0], results[m, 1], results[m, 2] = _member(
            rows, z, signs, y, orders[which[m]], seeds[m], margins[m], tie, bias_scale, epochs, near.copy(),
            state[:size].reshape(shape), state[size:], state,
        )  # fmt: skip
