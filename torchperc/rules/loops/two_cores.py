"""A pass of the rule on two cores: the second looks ahead while the first learns."""

from __future__ import annotations

import numpy as np
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic

from torchperc.rules.loops.exact import _moved, light_off, renew
from torchperc.rules.loops.learn import OVERFLOW, _of, _taken_for, learn, update
from torchperc.samples.loops import UNSURE, _look

TURN, LOW, HIGH, DONE, FIRST, TALK = 0, 1, 2, 16, 17, 32
"""Places in the array through which two threads talk; those that one of them writes share no cache line with others."""
_SHIFT = 40
SHARE, LONGEST = 1.0, 32
"""Length of a stretch, in lengths between mistakes and in shortest stretches."""
PATIENCE = 1000
"""Looks at a second core that does not move, before its work is done by the first: some microseconds."""


@intrinsic
def _load(typingctx, array, index):
    def codegen(context, builder, signature, args):
        there = context.make_array(signature.args[0])(context, builder, args[0])
        pointer = cgutils.get_item_pointer(context, builder, signature.args[0], there, [args[1]], wraparound=False)
        return builder.load_atomic(pointer, "acquire", 8)

    return types.int64(array, types.intp), codegen


@intrinsic
def _store(typingctx, array, index, value):
    def codegen(context, builder, signature, args):
        there = context.make_array(signature.args[0])(context, builder, args[0])
        pointer = cgutils.get_item_pointer(context, builder, signature.args[0], there, [args[1]], wraparound=False)
        builder.store_atomic(args[2], pointer, "release", 8)
        return context.get_dummy_value()

    return types.void(array, types.intp, types.int64), codegen


@njit(cache=True, nogil=True)
def scan(rows, at, ids, y, w, b, tie, margin, near, out, low, high):
    """The first mistake at positions low to high under the weights as they are, ``high`` if there is none."""
    off, p = light_off(near), low
    while True:
        p, r = _look(rows, at, ids, y, b, margin, off, p, high, out)
        if p == high:
            return high
        own = y[ids[p]]
        if r != UNSURE or _taken_for(rows, at[p], own, w, b, tie, margin, out, near) != own:
            return p
        p += 1


@njit(cache=True, nogil=True)
def assist(rows, at, ids, y, w, b, tie, margin, near, step, talk):
    """The second core: score the samples it is told to, until the first core calls it to others.

    What it finds is marked with the number of the turn, so that it is ignored if the weights have changed since.
    """
    seen, out = 0, np.empty(len(b) + 8, w.dtype)
    while True:
        turn = _load(talk, TURN)
        if turn < 0:
            return
        if turn == seen:
            continue
        seen = turn
        low, high = _load(talk, LOW), _load(talk, HIGH)
        while low < high and _load(talk, TURN) == turn:
            upto = min(high, low + step)
            p = scan(rows, at, ids, y, w, b, tie, margin, near, out, low, upto)
            low = upto if p == upto else high
            _store(talk, FIRST, p if p < upto else high)
            _store(talk, DONE, (turn << _SHIFT) | low)


@njit(cache=True, nogil=True)
def _second_half(rows, at, ids, y, w, b, tie, margin, near, out, turn, low, high, talk):
    """The first mistake in the second core's half, ``high`` if there is none; what it does not deliver is done here."""
    before, waited = low, 0
    while waited < PATIENCE:
        done = _load(talk, DONE)
        if done >> _SHIFT == turn:
            low = done & ((1 << _SHIFT) - 1)
            if low == high:
                return _load(talk, FIRST)
        waited = 0 if low > before else waited + 1
        before = low
    return scan(rows, at, ids, y, w, b, tie, margin, near, out, low, high)


@njit(cache=True, nogil=True)
def learn_ahead(
    rows, at, ids, y, coefs, w, b, bias_scale, tie, margin, near, step, shortest, gap, talk, position, wrong
):
    """:func:`learn` with a second core that runs :func:`assist`: both halves of a stretch are scored at once.

    If the first half has no mistake, the first of the second half is the next. Stretches are as long as mistakes were
    lately apart; below ``shortest`` the first core goes on alone.
    """
    high, low, found, turn, since = len(at), 0, 0, 0, 0
    out = np.empty(len(b) + 8, w.dtype)
    renew(w, b, near)
    while low < high:
        length = int(max(gap, since) * SHARE)
        if length < shortest:
            break
        stop = min(high, low + min(length, LONGEST * shortest))
        middle = (low + stop) // 2
        turn += 1
        _store(talk, LOW, middle)
        _store(talk, HIGH, stop)
        _store(talk, TURN, turn)
        p = scan(rows, at, ids, y, w, b, tie, margin, near, out, low, middle)
        if p == middle:
            p = _second_half(rows, at, ids, y, w, b, tie, margin, near, out, turn, middle, stop, talk)
        since += min(p + 1, stop) - low
        low = min(p + 1, stop)
        if p == stop:
            continue
        own = y[ids[p]]
        r = _taken_for(rows, at[p], own, w, b, tie, margin, out, near)
        if r == OVERFLOW:
            _store(talk, TURN, -1)
            return -1 - p
        update(rows, at[p], _of(coefs, ids[p]), own, r, w, b, bias_scale)
        _moved(_of(coefs, ids[p]), w, b, near)
        position[found], wrong[found] = p, r
        found += 1
        gap += (since - gap) / 8
        since = 0
    _store(talk, TURN, -1)
    return learn(rows, at, ids, y, coefs, w, b, bias_scale, tie, margin, near, low, position, wrong, found)
