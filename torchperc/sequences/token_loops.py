"""The compiled loop that cuts text into sentences and tokens; :mod:`torchperc.sequences.tokens` says by which rules."""

from __future__ import annotations

import numpy as np
from numba import njit

from torchperc.sequences.feature_loops import _HIGH, _LOW, _ONE, _hash, _same

SPACE, PUNCTUATION, UPPER, ENDS, CLOSES, OPENS, CURRENCY, DIGIT = (1 << k for k in range(8))
_ABBREVIATION = 64  # bytes up to which a word may be an abbreviation


@njit
def _class(data, at, table):
    """The class of the character that begins at a byte, and where the next one begins."""
    first = np.int64(data[at])
    if first < 0x80:
        return table[first], at + 1
    if first < 0xE0:
        return table[((first & 0x1F) << 6) | (data[at + 1] & 0x3F)], at + 2
    if first < 0xF0:
        return table[((first & 0x0F) << 12) | ((data[at + 1] & 0x3F) << 6) | (data[at + 2] & 0x3F)], at + 3
    return table[0], at + 4  # beyond the table are letters and pictures


@njit
def _last(data, stop, first):
    """Where the last character before a byte begins."""
    at = stop - 1
    while at > first and data[at] & 0xC0 == 0x80:
        at -= 1
    return at


@njit
def _same_character(data, a, b, size):
    same = True
    for k in range(size):
        same &= data[a + k] == data[b + k]
    return same


@njit
def _is_known(data, start, stop, longest, slots, known, ends):
    """Whether a stretch of the text is in a table of strings, whose longest is known."""
    if stop - start > longest:
        return False
    h, mask = _hash(data, start, stop), np.uint64(len(slots) - 1)
    at = h & mask
    while slots[at]:
        if slots[at] & _HIGH == h & _HIGH:
            number = np.int64(slots[at] & _LOW) - 1
            if _same(data, start, stop, known, ends[number], ends[number + 1]):
                return True
        at = (at + _ONE) & mask
    return False


@njit
def _is_minus(data, at, stop, table):
    """Whether a hyphen stands before a digit, as in -5."""
    return data[at] == 45 and at + 1 < stop and _class(data, at + 1, table)[0] & DIGIT != 0


@njit
def _abbreviated(data, start, stop, table):
    """Whether the period that a word ends with belongs to it: as in J. and U.N."""
    if stop - start > _ABBREVIATION:
        return False
    before, at = _class(data, start, table)
    if at == stop - 1:
        return before & UPPER != 0
    while at < stop - 1:
        if data[at] == 46 and not before & (PUNCTUATION | DIGIT):
            return True
        before, at = _class(data, at, table)
    return False


@njit
def _begins_sentence(data, at, stop, table):
    """Whether the text from here on begins a sentence: with a capital letter, behind opening marks and blanks."""
    while at < stop and data[at] != 10:
        kind, after = _class(data, at, table)
        if not kind & (SPACE | OPENS):
            return kind & UPPER != 0
        at = after
    return False


@njit
def _only(data, start, stop, wanted, table):
    at = start
    while at < stop:
        kind, at = _class(data, at, table)
        if not kind & wanted:
            return False
    return True


@njit
def _clitic(data, start, stop, longest, slots, known, ends):
    """Where the ending begins that the vocabulary has as a token of its own, such as 's and n't; else ``stop``."""
    at = stop - 1
    while at > start:
        straight = data[at] == 39
        if straight or (stop - at >= 3 and data[at] == 0xE2 and data[at + 1] == 0x80 and data[at + 2] == 0x99):
            behind = at + (1 if straight else 3)
            if behind == stop:
                return stop
            negated = stop - behind == 1 and data[behind] | 32 == 116 and data[at - 1] | 32 == 110 and at - 1 > start
            begin = at - 1 if negated else at
            return begin if _is_known(data, begin, stop, longest, slots, known, ends) else stop
        if stop - at > 16:
            return stop
        at -= 1
    return stop


@njit
def _put(data, start, stop, out, out_ends, n):
    at = out_ends[n]
    for k in range(stop - start):
        out[at + k] = data[start + k]
    out_ends[n + 1] = at + stop - start
    return n + 1


@njit
def _word_end(data, at, table):
    """Where the next blank is, or the end."""
    while at < len(data):
        kind, after = _class(data, at, table)
        if kind & SPACE:
            break
        at = after
    return at


@njit(cache=True, nogil=True)
def split_blanks(data, table, out, out_ends, offsets):
    """Tokens between blanks, a sentence per line that has some; how many tokens and sentences there are."""
    n = sentences = at = 0
    size = len(data)
    while at < size:
        kind, after = _class(data, at, table)
        if kind & SPACE:
            if data[at] == 10 and n > offsets[sentences]:
                sentences += 1
                offsets[sentences] = n
            at = after
            continue
        start, at = at, _word_end(data, at, table)
        n = _put(data, start, at, out, out_ends, n)
    if n > offsets[sentences]:
        sentences += 1
        offsets[sentences] = n
    return n, sentences


@njit(cache=True, nogil=True)
def split_text(data, table, longest, slots, known, ends, out, out_ends, offsets):
    """Tokens of plain text, and its sentences; how many of each there are."""
    n = sentences = at = 0
    size = len(data)
    ended = False  # whether the last token ended a sentence, if the next begins one
    while at < size:
        kind, after = _class(data, at, table)
        if kind & SPACE:
            if data[at] == 10:
                if n > offsets[sentences]:
                    sentences += 1
                    offsets[sentences] = n
                ended = False
            at = after
            continue
        start, at = at, _word_end(data, at, table)
        stop = at
        if ended and not _only(data, start, stop, CLOSES, table):
            if _begins_sentence(data, start, size, table):
                sentences += 1
                offsets[sentences] = n
            ended = False
        if _is_known(data, start, stop, longest, slots, known, ends):
            n = _put(data, start, stop, out, out_ends, n)
            ended = ended or _only(data, start, stop, ENDS, table)
            continue
        # marks before the word, each run of one character a token
        while start < stop:
            kind, after = _class(data, start, table)
            if kind & CURRENCY:
                if not _is_known(data, start, after, longest, slots, known, ends):
                    break
            elif not kind & PUNCTUATION or _is_minus(data, start, stop, table):
                break
            width, end = after - start, after
            while end + width <= stop and _same_character(data, start, end, width):
                end += width
            n = _put(data, start, end, out, out_ends, n)
            ended = (kind & ENDS != 0) or (ended and kind & CLOSES != 0)
            start = end
            if _is_known(data, start, stop, longest, slots, known, ends):
                break
        # marks behind it, the last first
        word = stop
        while word > start and not _is_known(data, start, word, longest, slots, known, ends):
            first = _last(data, word, start)
            kind, after = _class(data, first, table)
            if not kind & PUNCTUATION:
                break
            width = word - first
            while first - width >= start and _same_character(data, first - width, first, width):
                first -= width
            if first == start or (data[first] == 46 and word - first == 1 and _abbreviated(data, start, word, table)):
                break
            word = first
        if word > start:
            cut = word
            if not _is_known(data, start, word, longest, slots, known, ends):
                cut = _clitic(data, start, word, longest, slots, known, ends)
            n = _put(data, start, cut, out, out_ends, n)
            if cut < word:
                n = _put(data, cut, word, out, out_ends, n)
            ended = False
        while word < stop:
            kind, after = _class(data, word, table)
            width, end = after - word, after
            while end + width <= stop and _same_character(data, word, end, width):
                end += width
            n = _put(data, word, end, out, out_ends, n)
            ended = (kind & ENDS != 0) or (ended and kind & CLOSES != 0)
            word = end
    if n > offsets[sentences]:
        sentences += 1
        offsets[sentences] = n
    return n, sentences


@njit(cache=True, nogil=True)
def are_known(data, word_ends, longest, slots, known, ends, out):
    """Whether each string of a column is in a table."""
    start = 0
    for i in range(len(word_ends)):
        out[i] = _is_known(data, start, word_ends[i], longest, slots, known, ends)
        start = word_ends[i]


@njit(cache=True, nogil=True)
def join_columns(data, ends, more, more_ends, mark, out, out_ends):
    """Strings of two columns, with a mark between."""
    at = start = begin = 0
    for i in range(len(ends)):
        for k in range(start, ends[i]):
            out[at] = data[k]
            at += 1
        for k in range(len(mark)):
            out[at] = mark[k]
            at += 1
        for k in range(begin, more_ends[i]):
            out[at] = more[k]
            at += 1
        start, begin = ends[i], more_ends[i]
        out_ends[i] = at


@njit(cache=True, nogil=True)
def write_lines(data, ends, tags, tag_ends, codes, mark, offsets, out):
    """A line per token with its tag, and an empty line behind each sentence."""
    at = start = 0
    for i in range(len(offsets) - 1):
        for t in range(offsets[i], offsets[i + 1]):
            for k in range(start, ends[t]):
                out[at] = data[k]
                at += 1
            start = ends[t]
            for k in range(len(mark)):
                out[at] = mark[k]
                at += 1
            code = codes[t]
            for k in range(tag_ends[code - 1] if code > 0 else 0, tag_ends[code]):
                out[at] = tags[k]
                at += 1
            out[at] = 10
            at += 1
        out[at] = 10
        at += 1
