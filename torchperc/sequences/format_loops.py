"""The compiled loops of the text formats: from the bytes of whole lines to columns."""

from __future__ import annotations

import numpy as np
from numba import njit

WIDTH, EMPTY, RETURN, NO_MARK, NO_WORD, NO_TAG, NO_NUMBER = 1, 2, 3, 4, 5, 6, 7  # what is wrong with a line
NEVER, ALWAYS, BY_WIDTH = 0, 1, 2  # whether lines that begin with # are comments

_TAB, _LF, _CR, _BLANK, _HASH = 9, 10, 13, 32, 35
_DOCSTART = np.frombuffer(b"-DOCSTART-", np.uint8)


@njit
def _copied(data, start, stop, out, at):
    for j in range(start, stop):
        out[at] = data[j]
        at += 1
    return at


@njit
def _begins(data, start, stop, text):
    if stop - start < len(text):
        return False
    i = 0
    while i < len(text) and data[start + i] == text[i]:
        i += 1
    return i == len(text)


@njit(cache=True, nogil=True)
def last_boundary(data, by_line):
    """How many bytes there are up to the end of the last empty line, or of the last line; 0 if there is none."""
    newline = -1  # the nearest line feed with only blanks between it and here
    for i in range(len(data) - 1, -1, -1):
        letter = data[i]
        if letter == _LF:
            if by_line:
                return i + 1
            if newline >= 0:
                return newline + 1
            newline = i
        elif letter != _BLANK and letter != _TAB and letter != _CR:
            newline = -1
    return newline + 1  # the first line of all is empty


@njit
def _line(data, i, kept):
    """Where the line that begins at i ends, and where its text does: before blanks, except one that is ``kept``."""
    end = i
    while end < len(data) and data[end] != _LF:
        end += 1
    stop = end
    while stop > i:
        letter = data[stop - 1]
        if letter == kept or (letter != _BLANK and letter != _TAB and letter != _CR):
            break
        stop -= 1
    return end, stop


@njit
def _is_blank(data, start, stop):
    while start < stop and (data[start] == _BLANK or data[start] == _TAB):
        start += 1
    return start == stop


@njit(cache=True, nogil=True)
def split_fields(data, start, stop, separator, begins, ends):
    """Where the fields of a line are; returns how many there are, of which only as many as fit are written."""
    found, i = 0, start
    if len(separator) == 0:
        while i < stop:
            while i < stop and (data[i] == _BLANK or data[i] == _TAB):
                i += 1
            if i == stop:
                break
            first = i
            while i < stop and data[i] != _BLANK and data[i] != _TAB:
                i += 1
            if found < len(begins):
                begins[found], ends[found] = first, i
            found += 1
        return found
    first = i
    while i < stop:
        if data[i] == separator[0] and _begins(data, i, stop, separator):
            if found < len(begins):
                begins[found], ends[found] = first, i
            found += 1
            i += len(separator)
            first = i
        else:
            i += 1
    if found < len(begins):
        begins[found], ends[found] = first, stop
    return found + 1


@njit(cache=True, nogil=True)
def parse_columns(data, separator, slots, comments, numbered, line, out, ends, offsets, lines):
    """Tokens one per line, sentences separated by empty lines.

    ``slots`` says for each column of the file where it goes, −1 for nowhere; ``numbered``: column 0 is the number of
    the token, of which 3-4 and 3.1 are left out. Returns the numbers of tokens and sentences, and what is wrong: kind,
    line, column and count of columns.
    """
    width = len(slots)
    begins, stops = np.empty(width, np.int64), np.empty(width, np.int64)
    at = np.zeros(len(out), np.int64)
    tokens = sentences = i = 0
    kept = separator[-1] if len(separator) else 0  # at the end of a line it is an empty field
    quiet = True  # no token in this sentence yet
    while i < len(data):
        line += 1
        end, stop = _line(data, i, kept)
        start, i = i, end + 1
        if _is_blank(data, start, stop):
            if not quiet:
                sentences += 1
                offsets[sentences] = tokens
                quiet = True
            continue
        hashed = data[start] == _HASH
        if hashed and comments == ALWAYS:
            continue
        found = split_fields(data, start, stop, separator, begins, stops)
        if _begins(data, begins[0], stops[0], _DOCSTART) and stops[0] - begins[0] == len(_DOCSTART):
            if not quiet:
                sentences += 1
                offsets[sentences] = tokens
                quiet = True
            continue
        if found != width:
            if hashed and quiet and comments == BY_WIDTH:
                continue
            return tokens, sentences, WIDTH, line, 0, found
        if numbered:
            part = digit = False
            for j in range(begins[0], stops[0]):
                letter = data[j]
                if letter == 45 or letter == 46:
                    part = True
                elif letter < 48 or letter > 57:
                    return tokens, sentences, NO_NUMBER, line, 1, found
                else:
                    digit = True
            if part and not digit:
                return tokens, sentences, NO_NUMBER, line, 1, found
            if part:
                continue
        for field in range(width):
            if begins[field] == stops[field]:
                return tokens, sentences, EMPTY, line, field + 1, found
            slot = slots[field]
            if slot >= 0:
                to = at[slot]
                for j in range(begins[field], stops[field]):
                    if data[j] == _CR:
                        return tokens, sentences, RETURN, line, field + 1, found
                    out[slot, to] = data[j]
                    to += 1
                at[slot] = to
                ends[slot, tokens] = to
        lines[tokens] = line
        tokens += 1
        quiet = False
    if not quiet:
        sentences += 1
        offsets[sentences] = tokens
    return tokens, sentences, 0, line, 0, 0


@njit(cache=True, nogil=True)
def parse_slashes(data, mark, line, out, ends, offsets, lines):
    """One sentence per line, tokens word/TAG separated by blanks; the last mark counts. Returns as parse_columns."""
    at0 = at1 = 0
    tokens = sentences = i = 0
    while i < len(data):
        line += 1
        end, stop = _line(data, i, 0)
        field, before = 0, tokens
        while i < stop:
            while data[i] == _BLANK or data[i] == _TAB:
                i += 1
            start, last = i, -1
            while i < stop and data[i] != _BLANK and data[i] != _TAB:
                if data[i] == mark[0] and _begins(data, i, stop, mark):
                    last = i
                elif data[i] == _CR:
                    return tokens, sentences, RETURN, line, field + 1, 0
                i += 1
            field += 1
            if last < 0:
                return tokens, sentences, NO_MARK, line, field, 0
            if last == start:
                return tokens, sentences, NO_WORD, line, field, 0
            if last + len(mark) == i:
                return tokens, sentences, NO_TAG, line, field, 0
            at0 = _copied(data, start, last, out[0], at0)
            at1 = _copied(data, last + len(mark), i, out[1], at1)
            ends[0, tokens], ends[1, tokens] = at0, at1
            lines[tokens] = line
            tokens += 1
        if tokens > before:
            sentences += 1
            offsets[sentences] = tokens
        i = end + 1
    return tokens, sentences, 0, line, 0, 0
