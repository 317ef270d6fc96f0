"""Tables of strings and of features, numbered by first occurrence, and how they lie in a model file."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np

from torchperc.sequences import feature_loops as loops
from torchperc.sequences.corpus import Array

LARGEST = 2**31 - 1  # number of a feature: ids are int32
VERSION = 1  # of the state of a feature map


def grown(array: Array, length: int) -> Array:
    """The same rows in a longer array, at least doubled so that growing costs little in the end."""
    if length <= len(array):
        return array
    larger = np.zeros((max(length, 2 * len(array)), *array.shape[1:]), array.dtype)
    larger[: len(array)] = array
    return larger


def _slots(entries: int) -> Array:
    return np.zeros(2 ** max(10, (2 * entries + 1).bit_length()), np.uint64)


class Strings:
    """Different strings, numbered by first occurrence."""

    def __init__(self, data: Array | None = None, ends: Array | None = None) -> None:
        self.count = 0 if ends is None else len(ends) - 1
        self.data = np.zeros(2**12, np.uint8) if data is None else data
        self.ends = np.zeros(2**8, np.int64) if ends is None else ends
        self.slots = _slots(self.count)
        loops.place_strings(self.slots, self.data, self.ends, self.count)

    def find(self, data: Array, starts: Array, stops: Array) -> Array:
        """The number of each string, −1 for one that is unknown."""
        out = np.empty(len(starts), np.int32)
        loops.find_strings(data, starts, stops, self.slots, self.data, self.ends, out)
        return out

    def add(self, data: Array, starts: Array, stops: Array) -> Array:
        """The number of each string; those that are unknown become known."""
        out, done, data = np.empty(len(starts), np.int32), 0, np.require(data, requirements="W")  # one compiled loop
        while done < len(starts):
            table = (self.slots, self.data, self.ends, self.count)
            done, self.count = loops.add_strings(data, starts, stops, done, *table, out)
            if done < len(starts):
                self._grow(int(stops[done] - starts[done]))
        return out

    def _grow(self, size: int) -> None:
        if self.count == LARGEST:
            raise ValueError(f"the corpus has more than {LARGEST:,} different strings; read it in pieces")
        self.data = grown(self.data, int(self.ends[self.count]) + size)
        self.ends = grown(self.ends, self.count + 2)
        if 2 * self.count >= len(self.slots):
            self.slots = _slots(2 * self.count)
            loops.place_strings(self.slots, self.data, self.ends, self.count)

    def chosen(self, numbers: Array) -> tuple[Array, Array]:
        """Bytes and bounds of some strings."""
        bounds = np.zeros(len(numbers) + 1, np.int64)
        data = np.empty(int((self.ends[numbers + 1] - self.ends[numbers]).sum()), np.uint8)
        loops.gather_strings(self.data, self.ends, numbers, data, bounds)
        return data, bounds

    def text(self, number: int) -> str:
        """One string."""
        return self.data[self.ends[number] : self.ends[number + 1]].tobytes().decode(errors="replace")


class Dictionary:
    """Features and the strings in them, each numbered by first occurrence."""

    def __init__(self, parts: int, strings: Strings | None = None, keys: Array | None = None) -> None:
        self.strings = strings or Strings()
        self.keys = np.zeros((2**8, parts + 1), np.int32) if keys is None else keys
        self.count = 0 if keys is None else len(keys)
        self._place(self.count)

    def _place(self, entries: int) -> None:
        self.slots = _slots(entries)
        loops.place_features(self.slots, self.keys, self.count)

    def grow(self, entries: int) -> None:
        """Make room for so many more features."""
        if self.count + entries > LARGEST:
            raise ValueError(f"there are more than {LARGEST:,} features; use buckets= to hash them")
        self.keys = grown(self.keys, self.count + entries)
        if 2 * (self.count + entries) > len(self.slots):
            self._place(self.count + entries)

    def copy(self) -> Dictionary:
        """One that can grow without this one."""
        strings = Strings(*self.strings.chosen(np.arange(self.strings.count)))
        return Dictionary(self.keys.shape[1] - 1, strings, self.keys[: self.count].copy())

    def reduced(self, kept: Array) -> Dictionary:
        """Only the features with these numbers, in that order, and the strings that they need."""
        keys = self.keys[kept]
        named = keys[:, 1:]
        used = np.zeros(self.strings.count, bool)
        used[named[named >= 0]] = True
        renumbered = np.append(np.where(used, np.cumsum(used) - 1, -1), -1).astype(np.int32)  # −1 stays −1
        keys[:, 1:] = renumbered[named]
        return Dictionary(keys.shape[1] - 1, Strings(*self.strings.chosen(np.flatnonzero(used))), keys)


# --- state ---


def checked_ids(ids: Sequence[int] | Array, width: int) -> Array:
    """Numbers of features, each of which is there."""
    numbers = np.asarray(ids, np.int64).reshape(-1)
    if not within(numbers, 0, width):
        raise ValueError(f"ids must be from 0 to {width - 1}, found {numbers.min()} to {numbers.max()}")
    return numbers


def different_ids(ids: Sequence[int] | Array, width: int) -> Array:
    """Numbers of features, at least one and none twice."""
    numbers = checked_ids(ids, width)
    if not len(numbers) or len(np.unique(numbers)) < len(numbers):
        raise ValueError("numbers must name at least one feature, and none twice")
    return numbers


def known_state(text: str, kind: str) -> dict[str, Any]:
    """What the JSON of a state says, if it is of that kind and of a version that is known."""
    try:
        known = json.loads(text)
        if known["kind"] == kind and known["version"] == VERSION:
            return dict(known)
    except (ValueError, KeyError, TypeError):
        pass
    raise ValueError(f"the state is not one of {kind} features, version {VERSION}: the file is damaged or too new")


def state_array(arrays: dict[str, Array], name: str, dtype: Any, dimensions: int) -> Array:
    """An array of a state, if it is there and of that type."""
    array = arrays.get(name)
    if array is None or array.dtype != dtype or array.ndim != dimensions:
        raise ValueError(f"array {name!r} is missing or has another type: the file is damaged; train again")
    return np.ascontiguousarray(array)


def within(numbers: Array, low: int, end: int) -> bool:
    """Whether all numbers are at least ``low`` and below ``end``."""
    return not numbers.size or bool(numbers.min() >= low and numbers.max() < end)


def state_strings(arrays: dict[str, Array]) -> tuple[Array, Array]:
    """Bytes and bounds of the strings of a state."""
    data, bounds = state_array(arrays, "strings", np.uint8, 1), state_array(arrays, "bounds", np.int64, 1)
    if not len(bounds) or bounds[0] != 0 or bounds[-1] != len(data) or bool((np.diff(bounds) < 0).any()):
        raise ValueError("array 'bounds' does not rise over its strings: the file is damaged; train again")
    return data, bounds
