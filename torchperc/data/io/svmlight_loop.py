"""The loop over the bytes of svmlight text that numba compiles."""
# mypy: ignore-errors
# numba reads these functions; their types are what the loop is compiled for

from __future__ import annotations

import numpy as np
from numba import njit

SPACE, TAB, RETURN, NEWLINE, HASH, COMMA, COLON, DOT = 32, 9, 13, 10, 35, 44, 58, 46
PLUS, MINUS, ZERO, NINE, LOWER_E, UPPER_E = 43, 45, 48, 57, 101, 69
MOST = 2**31 - 2
"""The largest index that a CSR array of int32 can have."""

_TENS = np.array([10.0**k for k in range(23)])  # every one of them exact


@njit(cache=True, nogil=True)
def _ends(c):
    return c in (SPACE, TAB, RETURN, NEWLINE, HASH)


@njit(cache=True, nogil=True)
def parse(text, labelled, labels, starts, columns, values, spans):
    """Go through lines of ``label index:value …`` and note what is there.

    Numbers of up to 15 or 16 digits are exact at once: both the digits and the power of ten are floats, and one
    product or quotient of them is rounded once. The places of longer ones are noted in ``spans``.

    Args:
        text: bytes, whole lines.
        labelled: whether lines begin with a label.
        labels: room for begin and end of each label.
        starts: room for the place of each row's first entry, and of the end.
        columns: room for indices.
        values: room for values.
        spans: room for entry, begin and end of each value that is still to be read.

    Returns:
        Numbers of rows, entries and spans; minus one three times if anything is not as it should be.
    """
    size = len(text)
    position = row = entry = span = 0
    while position < size:
        c = text[position]
        if c in (SPACE, TAB, RETURN, NEWLINE):
            position += 1
            continue
        if c == HASH:
            while position < size and text[position] != NEWLINE:
                position += 1
            continue
        if labelled:
            labels[row, 0] = position
            while position < size and not _ends(text[position]):
                if text[position] == COLON or text[position] == COMMA:
                    return -1, -1, -1
                position += 1
            labels[row, 1] = position
        previous = -1
        may_be_query = labelled
        while True:
            while position < size and (text[position] == SPACE or text[position] == TAB or text[position] == RETURN):
                position += 1
            if position >= size or text[position] == NEWLINE:
                break
            if text[position] == HASH:
                while position < size and text[position] != NEWLINE:
                    position += 1
                break
            if may_be_query and position + 3 < size and text[position] == 113 and text[position + 3] == COLON:
                if text[position + 1] != 105 or text[position + 2] != 100:
                    return -1, -1, -1
                while position < size and not _ends(text[position]):  # qid:…
                    position += 1
                may_be_query = False
                continue
            may_be_query = False
            index = 0
            begin = position
            while position < size and ZERO <= text[position] <= NINE and index <= MOST:
                index = index * 10 + (text[position] - ZERO)
                position += 1
            if position == begin or position >= size or text[position] != COLON or index <= previous or index > MOST:
                return -1, -1, -1
            previous = index
            position += 1
            begin = position
            negative = False
            if position < size and (text[position] == PLUS or text[position] == MINUS):
                negative = text[position] == MINUS
                position += 1
            mantissa = np.uint64(0)
            digits = significant = 0
            power = 0
            while position < size and ZERO <= text[position] <= NINE:
                digits += 1
                if significant or text[position] != ZERO:
                    significant += 1
                if significant <= 19:
                    mantissa = mantissa * np.uint64(10) + np.uint64(text[position] - ZERO)
                else:
                    power += 1
                position += 1
            if position < size and text[position] == DOT:
                position += 1
                while position < size and ZERO <= text[position] <= NINE:
                    digits += 1
                    if significant or text[position] != ZERO:
                        significant += 1
                    if significant <= 19:
                        mantissa = mantissa * np.uint64(10) + np.uint64(text[position] - ZERO)
                        power -= 1
                    position += 1
            if digits == 0:
                return -1, -1, -1
            if position < size and (text[position] == LOWER_E or text[position] == UPPER_E):
                position += 1
                down = False
                if position < size and (text[position] == PLUS or text[position] == MINUS):
                    down = text[position] == MINUS
                    position += 1
                exponent = 0
                first = position
                while position < size and ZERO <= text[position] <= NINE:
                    if exponent < 100000:
                        exponent = exponent * 10 + (text[position] - ZERO)
                    position += 1
                if position == first:
                    return -1, -1, -1
                power += -exponent if down else exponent
            if position < size and not _ends(text[position]):
                return -1, -1, -1
            number = 0.0
            if significant > 19 or mantissa > np.uint64(2**53) or power > 22 or power < -22:
                spans[span, 0] = entry
                spans[span, 1] = begin
                spans[span, 2] = position
                span += 1
            elif power >= 0:
                number = float(mantissa) * _TENS[power]
            else:
                number = float(mantissa) / _TENS[-power]
            columns[entry] = index
            values[entry] = -number if negative else number
            entry += 1
        row += 1
        starts[row] = entry
    return row, entry, span


@njit(cache=True, nogil=True)
def gather(text, begins, ends, out, offsets):
    """Lay stretches of the text one behind the other."""
    at = 0
    for k in range(len(begins)):
        offsets[k] = at
        for i in range(begins[k], ends[k]):
            out[at] = text[i]
            at += 1
    offsets[len(begins)] = at
