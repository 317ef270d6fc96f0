"""The compiled loops of feature extraction: strings to numbers, numbers to features.

Two hash tables with open addressing. Each slot holds 32 bits of the hash above the number of its entry plus one, 0 is
an empty slot; an entry that agrees in those bits is compared as a whole, so both tables are exact.

- strings: entry i is ``data[ends[i] : ends[i + 1]]``;
- features: entry i is the row ``keys[i]``, the number of a pattern and of the strings in it, −1 behind the last.

Hash of a string: 64-bit FNV-1a of its UTF-8 bytes, mixed by the finaliser of SplitMix64. Hash of a feature, whose upper
bits are its bucket: that of the template's text, with a NUL for each macro, then for each value
``h = mix((h ^ hash of value) + 0x9E3779B97F4A7C15)``. Nothing else goes into it, so buckets are the same in all
processes and on all machines.
"""

from __future__ import annotations

import numpy as np
from numba import njit

UNSEEN = -2  # a cell that has not been looked up yet
MISSING = -1  # no such string or feature
BATCH = 64  # tokens whose features are looked up together

_BASIS, _PRIME = np.uint64(0xCBF29CE484222325), np.uint64(0x100000001B3)
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_M1, _M2 = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_LOW = np.uint64(0xFFFFFFFF)
_HIGH = np.uint64(0xFFFFFFFF00000000)
_ONE = np.uint64(1)


@njit
def _mix(h):
    h = (h ^ (h >> np.uint64(30))) * _M1
    h = (h ^ (h >> np.uint64(27))) * _M2
    return h ^ (h >> np.uint64(31))


@njit
def _chained(h, value):
    return _mix((h ^ value) + _GOLDEN)


@njit
def _hash(data, start, stop):
    h = _BASIS
    for i in range(start, stop):
        h = (h ^ np.uint64(data[i])) * _PRIME
    return _mix(h)


@njit
def _same(data, start, stop, others, begin, end):
    if stop - start != end - begin:
        return False
    i = 0
    while start + i < stop and data[start + i] == others[begin + i]:
        i += 1
    return start + i == stop


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
#
# A template with at most one macro has a cell per word: its feature is looked up when it is first met there, and read
# from the cell from then on. Places are the different rows and columns that macros name; parts[f, p] is the place and
# the view of macro p of template f.


@njit
def _look(words, types, places, t, offsets, sentence, left):
    """The word at each place seen from token t: outside of its sentence, what stands at that distance.

    Returns the sentence of t, which is the given one or a later one.
    """
    while t >= offsets[sentence + 1]:
        sentence += 1
    begin, end = offsets[sentence], offsets[sentence + 1]
    for k in range(len(places)):
        position = t + places[k, 0]
        if position < begin:
            words[k] = begin - position - 1
        elif position >= end:
            words[k] = left + position - end
        else:
            words[k] = types[places[k, 1], position]
    return sentence


@njit
def _entry(slot):
    return np.int64(slot & _LOW) - 1


@njit
def _find(pattern, values, h, slots, keys):
    """The number of a feature, −1 if it is unknown, and the slot where it is or belongs."""
    mask = np.uint64(len(slots) - 1)
    at = h & mask
    while slots[at]:
        if slots[at] & _HIGH == h & _HIGH:
            number = _entry(slots[at])
            same = keys[number, 0] == pattern
            for p in range(len(values)):
                same &= keys[number, p + 1] == values[p]
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
        at = h & mask
        while slots[at]:
            at = (at + _ONE) & mask
        slots[at] = (h & _HIGH) | np.uint64(number + 1)


@njit(cache=True, nogil=True)
def number_features(where, plan, words, slots, keys, count, adding, seen, ids, n, indptr):
    """The known features of the tokens from ``token`` to ``stop``, or all, of which new ones are added to the table.

    Returns the token to go on with, how many features there are and how many ids were written; when adding, it stops
    before all tokens are done where the table must grow first. Tokens are worked on in batches: all that a batch needs
    of the table is fetched at once, so that memory answers many questions at the same time.
    """
    types, offsets, token, stop, sentence, left = where
    places, patterns, counts, cells, parts = plan
    values, rows = words
    F, P, mask = len(patterns), keys.shape[1] - 1, np.uint64(len(slots) - 1)
    at_place = np.zeros(len(places) + 1, np.int64)
    numbers, word_of = np.empty((BATCH, F), np.int64), np.zeros((BATCH, F), np.int64)
    hashed, strings = np.empty((BATCH, F), np.uint64), np.empty((BATCH, F, P), np.int32)
    open_b, open_f = np.empty(BATCH * F, np.int64), np.empty(BATCH * F, np.int64)
    limit = min(len(slots) // 2, len(keys))
    first, touched = token, np.uint64(0)
    while token < stop:
        if adding and count + BATCH * F > limit:
            break
        size, opened = min(BATCH, stop - token), 0
        for b in range(size):
            t = token + b
            sentence = _look(at_place, types, places, t, offsets, sentence, left)
            for f in range(F):
                number = np.int64(UNSEEN)
                if counts[f] < 2:
                    word = at_place[parts[f, 0, 0]]
                    number = np.int64(rows[word, cells[f]])
                    word_of[b, f] = word
                if number == UNSEEN:
                    known, h = True, _mix(np.uint64(patterns[f]) + _GOLDEN)
                    for p in range(P):
                        strings[b, f, p] = MISSING
                        if p < counts[f]:
                            value = values[at_place[parts[f, p, 0]], parts[f, p, 1]]
                            known &= value >= 0
                            strings[b, f, p] = value
                            h = _chained(h, np.uint64(value))
                    if known:
                        hashed[b, f] = h
                        open_b[opened], open_f[opened] = b, f
                        opened += 1
                    else:
                        number = np.int64(MISSING)
                numbers[b, f] = number
        for k in range(opened):
            touched += slots[hashed[open_b[k], open_f[k]] & mask]
        for k in range(opened):
            h = hashed[open_b[k], open_f[k]]
            slot = slots[h & mask]
            if slot and slot & _HIGH == h & _HIGH:
                touched += np.uint64(keys[_entry(slot), 0])
        for k in range(opened):
            b, f = open_b[k], open_f[k]
            number, at = _find(patterns[f], strings[b, f], hashed[b, f], slots, keys)
            if adding and number == MISSING:
                number = count
                slots[at] = (hashed[b, f] & _HIGH) | np.uint64(count + 1)
                keys[count, 0] = patterns[f]
                for p in range(P):
                    keys[count, p + 1] = strings[b, f, p]
                count += 1
            numbers[b, f] = number
            if counts[f] < 2:
                rows[word_of[b, f], cells[f]] = number
        for b in range(size):
            for f in range(F):
                number = numbers[b, f]
                if number >= 0:
                    ids[n] = number
                    n += 1
                    if len(seen):
                        seen[number] += 1
            indptr[token + b - first] = n
        token += size
    return token, count, n, touched


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


@njit
def _bucket_hash(f, patterns, counts, parts, values, at_place):
    h = patterns[f]
    for p in range(counts[f]):
        h = _chained(h, values[at_place[parts[f, p, 0]], parts[f, p, 1]])
    return h


@njit(cache=True, nogil=True)
def hash_features(where, plan, words, shift, ids):
    """The buckets of the tokens from ``token`` to ``stop``; ``values`` and ``rows`` hold hashes."""
    types, offsets, token, stop, sentence, left = where
    places, patterns, counts, cells, parts = plan
    values, rows = words
    at_place = np.zeros(len(places) + 1, np.int64)
    n = 0
    for t in range(token, stop):
        sentence = _look(at_place, types, places, t, offsets, sentence, left)
        for f in range(len(patterns)):
            if counts[f] == 1:
                h = rows[at_place[parts[f, 0, 0]], cells[f]]
            else:
                h = _bucket_hash(f, patterns, counts, parts, values, at_place)
            ids[n] = h >> shift
            n += 1


@njit(cache=True, nogil=True)
def hash_cells(first, end, plan, words):
    """The hashes of templates with one macro, for the words from ``first`` to ``end``."""
    _, patterns, counts, cells, parts = plan
    values, rows = words
    for word in range(first, end):
        for f in range(len(patterns)):
            if counts[f] == 1:
                rows[word, cells[f]] = _chained(patterns[f], values[word, parts[f, 0, 1]])


@njit(cache=True, nogil=True)
def collect_hashes(where, plan, words, used, table, count):
    """Put the hashes of all features from ``token`` on into a set; returns the token to go on with and its size."""
    types, offsets, token, stop, sentence, left = where
    places, patterns, counts, cells, parts = plan
    values, rows = words
    mask, limit = np.uint64(len(table) - 1), len(table) // 2
    at_place = np.zeros(len(places) + 1, np.int64)
    for t in range(token, stop):
        if count + len(patterns) > limit:
            return t, count
        sentence = _look(at_place, types, places, t, offsets, sentence, left)
        for f in range(len(patterns)):
            if counts[f] == 1:
                word = at_place[parts[f, 0, 0]]
                if used[word, cells[f]]:
                    continue
                used[word, cells[f]] = True
                count += insert_hash(table, mask, rows[word, cells[f]])
            else:
                count += insert_hash(table, mask, _bucket_hash(f, patterns, counts, parts, values, at_place))
    return stop, count


@njit
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
