"""The compiled loops of feature extraction: strings to numbers, numbers to features.

Two hash tables with open addressing. Each slot holds 32 bits of the hash above the number of its entry plus one, 0 is
an empty slot; an entry that agrees in those bits is compared as a whole, so both tables are exact.

- strings: entry i is ``data[ends[i] : ends[i + 1]]``;
- features: entry i is the row ``keys[i]``, the number of a pattern and of the strings in it, −1 behind the last.

Hash of a string: 64-bit FNV-1a of its UTF-8 bytes, mixed by the finaliser of SplitMix64. Hash of a feature, which chooses
its bucket: that of the template's text, then ``h = mix((h ^ value) + 0x9E3779B97F4A7C15)`` for the hash of each value.
Nothing else goes into it, so buckets are the same in all processes and on all machines.
"""

from __future__ import annotations

import numpy as np
from numba import njit

UNSEEN = -2  # a cell that has not been looked up yet
MISSING = -1  # no such string or feature

_BASIS, _PRIME = np.uint64(0xCBF29CE484222325), np.uint64(0x100000001B3)
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_M1, _M2 = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_LOW = np.uint64(0xFFFFFFFF)
_HIGH = np.uint64(0xFFFFFFFF00000000)
_ONE = np.uint64(1)


@njit(inline="always")
def _mix(h):
    h = (h ^ (h >> np.uint64(30))) * _M1
    h = (h ^ (h >> np.uint64(27))) * _M2
    return h ^ (h >> np.uint64(31))


@njit(inline="always")
def _chained(h, value):
    return _mix((h ^ value) + _GOLDEN)


@njit(inline="always")
def _hash(data, start, stop):
    h = _BASIS
    for i in range(start, stop):
        h = (h ^ np.uint64(data[i])) * _PRIME
    return _mix(h)


@njit(inline="always")
def _same(data, start, stop, others, begin, end):
    if stop - start != end - begin:
        return False
    for i in range(stop - start):
        if data[start + i] != others[begin + i]:
            return False
    return True


@njit(cache=True, nogil=True)
def hashes(data, starts, stops, out):
    """The hash of each string."""
    for i in range(len(starts)):
        out[i] = _hash(data, starts[i], stops[i])


@njit(cache=True, nogil=True)
def find_strings(data, starts, stops, slots, known, ends, out):
    """The number of each string in a table, −1 for one that is not there."""
    mask = np.uint64(len(slots) - 1)
    for i in range(len(starts)):
        h = _hash(data, starts[i], stops[i])
        at, found = h & mask, MISSING
        while slots[at]:
            if slots[at] & _HIGH == h & _HIGH:
                number = np.int64(slots[at] & _LOW) - 1
                if _same(data, starts[i], stops[i], known, ends[number], ends[number + 1]):
                    found = number
                    break
            at = (at + _ONE) & mask
        out[i] = found


@njit(cache=True, nogil=True)
def add_strings(data, starts, stops, first, slots, known, ends, count, out):
    """The number of each string from ``first`` on in a table, into which new ones are put.

    Returns how many strings are done and how many entries there are; fewer than all where the table must grow first.
    """
    mask, limit = np.uint64(len(slots) - 1), min(len(slots) // 2, len(ends) - 1)
    for i in range(first, len(starts)):
        start, stop = starts[i], stops[i]
        h = _hash(data, start, stop)
        at, found = h & mask, MISSING
        while slots[at]:
            if slots[at] & _HIGH == h & _HIGH:
                number = np.int64(slots[at] & _LOW) - 1
                if _same(data, start, stop, known, ends[number], ends[number + 1]):
                    found = number
                    break
            at = (at + _ONE) & mask
        if found == MISSING:
            if count >= limit or ends[count] + stop - start > len(known):
                return i, count
            found = count
            slots[at] = (h & _HIGH) | np.uint64(count + 1)
            for j in range(stop - start):
                known[ends[count] + j] = data[start + j]
            ends[count + 1] = ends[count] + stop - start
            count += 1
        out[i] = found
    return len(starts), count


@njit(cache=True, nogil=True)
def place_strings(slots, known, ends, count):
    """Put all entries of a table into its empty slots."""
    mask = np.uint64(len(slots) - 1)
    for number in range(count):
        h = _hash(known, ends[number], ends[number + 1])
        at = h & mask
        while slots[at]:
            at = (at + _ONE) & mask
        slots[at] = (h & _HIGH) | np.uint64(number + 1)


@njit(cache=True, nogil=True)
def gather_strings(known, ends, chosen, data, bounds):
    """Copy the chosen entries of a table."""
    at = 0
    for i in range(len(chosen)):
        for j in range(ends[chosen[i]], ends[chosen[i] + 1]):
            data[at] = known[j]
            at += 1
        bounds[i + 1] = at


@njit(cache=True, nogil=True)
def affixes(data, starts, stops, length, at_end, begins, ends):
    """Where the first or last ``length`` characters of each string are."""
    for i in range(len(starts)):
        left = length
        begins[i], ends[i] = starts[i], stops[i]
        if at_end:
            for j in range(stops[i] - 1, starts[i] - 1, -1):
                if data[j] & 0xC0 != 0x80:  # the first byte of a character
                    left -= 1
                    if left == 0:
                        begins[i] = j
                        break
        else:
            for j in range(starts[i], stops[i]):
                if data[j] & 0xC0 != 0x80:
                    if left == 0:
                        ends[i] = j
                        break
                    left -= 1


@njit(cache=True, nogil=True)
def ascii_forms(data, starts, stops, shape, out, begins, ends, other):
    """Each string in lower case or as its shape; ``other`` marks those with characters beyond ASCII."""
    at = 0
    for i in range(len(starts)):
        begins[i] = at
        other[i] = False
        for j in range(starts[i], stops[i]):
            letter = data[j]
            if letter >= 128:
                other[i] = True
                break
            if 65 <= letter <= 90:
                letter = 88 if shape else letter + 32
            elif shape and 97 <= letter <= 122:
                letter = 120
            elif shape and 48 <= letter <= 57:
                letter = 100
            if shape and at - begins[i] >= 2 and out[at - 1] == letter and out[at - 2] == letter:
                continue
            out[at] = letter
            at += 1
        ends[i] = at


# --- the features of a token ---


@njit(inline="always")
def _place(position, begin, end, left):
    """The number of the boundary at a position outside of the sentence, −1 inside."""
    if position < begin:
        return begin - position - 1
    if position >= end:
        return left + position - end
    return -1


@njit(inline="always")
def _type(types, column, position, begin, end, left):
    boundary = _place(position, begin, end, left)
    return types[column, position] if boundary < 0 else boundary


@njit(inline="always")
def _key(key, pattern, words, values, parts, f):
    """Write pattern and values of template f into ``key``; return its hash, or 0 if a value is unknown."""
    key[0] = pattern
    h = _mix(np.uint64(pattern) + _GOLDEN)
    for p in range(len(words)):
        key[p + 1] = MISSING
        if words[p] >= 0:
            value = values[words[p], parts[f, p, 2]]
            if value < 0:
                return np.uint64(0)
            key[p + 1] = value
            h = _chained(h, np.uint64(value))
    return h | _ONE


@njit(inline="always")
def _find(key, h, slots, keys):
    """The entry with this key, and the slot where it is or belongs."""
    mask = np.uint64(len(slots) - 1)
    at = (h >> _ONE) & mask
    while slots[at]:
        if slots[at] & _HIGH == h & _HIGH:
            number = np.int64(slots[at] & _LOW) - 1
            same = True
            for p in range(len(key)):
                if keys[number, p] != key[p]:
                    same = False
                    break
            if same:
                return number, at
        at = (at + _ONE) & mask
    return np.int64(MISSING), at


@njit(cache=True, nogil=True)
def place_features(slots, keys, count):
    """Put all entries of a table into its empty slots."""
    mask = np.uint64(len(slots) - 1)
    for number in range(count):
        h = _mix(np.uint64(keys[number, 0]) + _GOLDEN)
        for p in range(1, keys.shape[1]):
            if keys[number, p] >= 0:
                h = _chained(h, np.uint64(keys[number, p]))
        h |= _ONE
        at = (h >> _ONE) & mask
        while slots[at]:
            at = (at + _ONE) & mask
        slots[at] = (h & _HIGH) | np.uint64(number + 1)


@njit(cache=True, nogil=True)
def fill_cells(first, end, patterns, counts, cells, parts, values, slots, keys, rows):
    """Look up the features of templates with one macro, for the words from ``first`` to ``end``."""
    key = np.empty(keys.shape[1], np.int32)
    words = np.full(keys.shape[1] - 1, -1, np.int64)
    for word in range(first, end):
        words[0] = word
        for f in range(len(patterns)):
            if counts[f] == 1:
                h = _key(key, patterns[f], words, values, parts, f)
                rows[word, cells[f]] = MISSING if h == 0 else _find(key, h, slots, keys)[0]


@njit(cache=True, nogil=True)
def learn_features(
    types, offsets, token, sentence, left, patterns, counts, cells, parts, values, rows, slots, keys, seen, count, ids, n, indptr
):  # fmt: skip
    """Number the features of the tokens from ``token`` on, new ones by first occurrence, and count them in ``seen``.

    Returns the token to go on with, how many features there are and how many ids were written; it stops before all
    tokens are done where the table must grow first.
    """
    key = np.empty(keys.shape[1], np.int32)
    words = np.full(keys.shape[1] - 1, -1, np.int64)
    limit, tokens, templates = min(len(slots) // 2, len(keys)), offsets[-1], len(patterns)
    while token < tokens:
        while offsets[sentence + 1] <= token:
            sentence += 1
        begin, end = offsets[sentence], offsets[sentence + 1]
        for t in range(token, end):
            if count + templates > limit:
                return t, count, n
            for f in range(templates):
                number = np.int64(UNSEEN)
                for p in range(len(words)):
                    words[p] = -1
                    if p < counts[f]:
                        words[p] = _type(types, parts[f, p, 1], t + parts[f, p, 0], begin, end, left)
                if counts[f] == 1:
                    number = np.int64(rows[words[0], cells[f]])
                if number == UNSEEN:
                    h = _key(key, patterns[f], words, values, parts, f)
                    number, at = _find(key, h, slots, keys)
                    if number == MISSING:
                        number = count
                        slots[at] = (h & _HIGH) | np.uint64(count + 1)
                        keys[count] = key
                        count += 1
                    if counts[f] == 1:
                        rows[words[0], cells[f]] = number
                if len(seen):
                    seen[number] += 1
                ids[n] = number
                n += 1
            indptr[t + 1] = n
        token = end
    return token, count, n


@njit(cache=True, nogil=True)
def look_up_features(
    types, offsets, token, stop, sentence, left, patterns, counts, cells, parts, values, rows, slots, keys, ids, indptr
):  # fmt: skip
    """The known features of the tokens from ``token`` to ``stop``; ``indptr`` begins behind the first of them."""
    key = np.empty(keys.shape[1], np.int32)
    words = np.full(keys.shape[1] - 1, -1, np.int64)
    n, first = 0, token
    while token < stop:
        while offsets[sentence + 1] <= token:
            sentence += 1
        begin, end = offsets[sentence], offsets[sentence + 1]
        for t in range(token, min(end, stop)):
            for f in range(len(patterns)):
                if counts[f] == 1:
                    word = _type(types, parts[f, 0, 1], t + parts[f, 0, 0], begin, end, left)
                    number = np.int64(rows[word, cells[f]])
                else:
                    for p in range(len(words)):
                        words[p] = -1
                        if p < counts[f]:
                            words[p] = _type(types, parts[f, p, 1], t + parts[f, p, 0], begin, end, left)
                    h = _key(key, patterns[f], words, values, parts, f)
                    number = np.int64(MISSING)
                    if h != 0:
                        number = _find(key, h, slots, keys)[0]
                if number >= 0:
                    ids[n] = number
                    n += 1
            indptr[t - first] = n
        token = end
    return n


@njit(cache=True, nogil=True)
def keep_features(ids, indptr, renumbered):
    """Renumber all ids in place and leave out those that have become −1; returns how many are left."""
    n = start = 0
    for t in range(len(indptr) - 1):
        stop = indptr[t + 1]
        for i in range(start, stop):
            number = renumbered[ids[i]]
            if number >= 0:
                ids[n] = number
                n += 1
        start = stop
        indptr[t + 1] = n
    return n


# --- hashed features ---


@njit(cache=True, nogil=True)
def hash_features(
    types, offsets, token, stop, sentence, left, shift, patterns, counts, cells, parts, values, rows, ids
):  # fmt: skip
    """The buckets of the tokens from ``token`` to ``stop``; ``values`` holds hashes, ``rows`` those of one macro."""
    n = 0
    while token < stop:
        while offsets[sentence + 1] <= token:
            sentence += 1
        begin, end = offsets[sentence], offsets[sentence + 1]
        for t in range(token, min(end, stop)):
            for f in range(len(patterns)):
                if counts[f] == 1:
                    word = _type(types, parts[f, 0, 1], t + parts[f, 0, 0], begin, end, left)
                    h = rows[word, cells[f]]
                else:
                    h = patterns[f]
                    for p in range(counts[f]):
                        word = _type(types, parts[f, p, 1], t + parts[f, p, 0], begin, end, left)
                        h = _chained(h, values[word, parts[f, p, 2]])
                ids[n] = h >> shift
                n += 1
        token = end
    return n


@njit(cache=True, nogil=True)
def hash_cells(first, end, patterns, counts, cells, parts, values, rows):
    """The hashes of templates with one macro, for the words from ``first`` to ``end``."""
    for word in range(first, end):
        for f in range(len(patterns)):
            if counts[f] == 1:
                rows[word, cells[f]] = _chained(patterns[f], values[word, parts[f, 0, 2]])


@njit(cache=True, nogil=True)
def collect_hashes(
    types, offsets, token, sentence, left, patterns, counts, cells, parts, values, rows, used, table, count
):
    """Put the hashes of all features from ``token`` on into a set; returns the token to go on with and its size."""
    mask, limit, tokens = np.uint64(len(table) - 1), len(table) // 2, offsets[-1]
    while token < tokens:
        while offsets[sentence + 1] <= token:
            sentence += 1
        begin, end = offsets[sentence], offsets[sentence + 1]
        for t in range(token, end):
            if count + len(patterns) > limit:
                return t, count
            for f in range(len(patterns)):
                word = np.int64(-1)
                if counts[f] == 1:
                    word = np.int64(_type(types, parts[f, 0, 1], t + parts[f, 0, 0], begin, end, left))
                    if used[word, cells[f]]:
                        continue
                    used[word, cells[f]] = True
                    h = rows[word, cells[f]]
                else:
                    h = patterns[f]
                    for p in range(counts[f]):
                        word = np.int64(_type(types, parts[f, p, 1], t + parts[f, p, 0], begin, end, left))
                        h = _chained(h, values[word, parts[f, p, 2]])
                count += insert_hash(table, mask, h)
        token = end
    return token, count


@njit(inline="always")
def insert_hash(table, mask, h):
    """Put a hash into a set; 0, which is an empty slot, is taken for 1."""
    h = max(h, _ONE)
    at = h & mask
    while table[at]:
        if table[at] == h:
            return 0
        at = (at + _ONE) & mask
    table[at] = h
    return 1


@njit(cache=True, nogil=True)
def place_hashes(old, table):
    """Put all hashes of one set into another, empty one."""
    mask = np.uint64(len(table) - 1)
    for i in range(len(old)):
        if old[i]:
            insert_hash(table, mask, old[i])
