"""A mistake log as JSON with its data inside: what the interactive page downloads and shows, for linear nets.

The entries are described at the top of ``torchperc/lab/play/js/log.js``, which reads and writes the same. Numbers have
all their digits, so that a log of dense samples comes back with the same weights to the bit; sparse ones become dense.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, NoReturn, TypeAlias

import numpy as np

FORMAT, VERSION = "torchperc mistake log", 1
LARGEST = {"float32": 3.4028234663852886e38, "float64": np.inf, "float16": 65504.0, "bfloat16": 3.3895313892515355e38}
"""Types of samples and weights, with the largest number of each."""
_Array: TypeAlias = "np.ndarray[Any, Any]"
_NUMBERS, _INTEGERS = (int, float), (int,)


class FormatError(ValueError):
    """What is wrong with the JSON of a log."""


@dataclass(frozen=True)
class Content:
    """What the JSON of a log holds; columns as in :class:`torchperc.MistakeLog`, numbers in float64."""

    points: _Array
    labels: _Array
    classes: int | None
    bias_scale: float
    scale: float
    weight: _Array
    bias: _Array
    index: _Array
    step: _Array
    coef: _Array
    wrong: _Array
    steps: int
    epoch_ends: _Array
    cost: _Array
    dtype: str = "float64"

    def entries(self) -> dict[str, Any]:
        """The object to be written; what has its usual value is left out where the page leaves it out, too."""
        columns = ("index", "step", "coef", "wrong", "epoch_ends")
        entries: dict[str, Any] = {"format": FORMAT, "version": VERSION}
        entries |= {name: getattr(self, name).tolist() for name in ("points", "labels")}
        entries |= {name: getattr(self, name) for name in ("classes", "bias_scale", "scale")}
        entries["start"] = {name: getattr(self, name).tolist() for name in ("weight", "bias")}
        entries |= {name: getattr(self, name).tolist() for name in columns} | {"steps": self.steps}
        if self.dtype != "float64":
            entries["dtype"] = self.dtype
        if (self.cost != 1).any():
            entries["cost"] = self.cost.tolist()
        return entries


def parse(text: str | bytes) -> Content:
    """Read JSON and check every entry: kinds, sizes, ranges, finite numbers.

    Example:
        >>> parse('{"format": "torchperc mistake log", "version": 2}')
        Traceback (most recent call last):
        ...
        torchperc.rules.log_json.FormatError: it has version 2; this torchperc reads version 1
    """
    try:
        found = json.loads(text, parse_constant=_refuse_constant)
    except FormatError:
        raise
    except (ValueError, RecursionError) as error:  # also bytes that are no text
        raise FormatError(f"it is not JSON ({error})") from None
    if not isinstance(found, dict) or found.get("format") != FORMAT:
        raise FormatError(f'it does not have "format": "{FORMAT}"')
    if found.get("version") != VERSION:
        raise FormatError(f"it has version {found.get('version')!r}; this torchperc reads version {VERSION}")
    if found.get("projection") is not None:
        raise FormatError("it shows a run with more features in two of them, without the others")
    return _Reader(found).content()


class _Reader:
    """Takes the entries out of the object, one check for each."""

    def __init__(self, found: dict[str, Any]) -> None:
        self.found = found

    def content(self) -> Content:
        points = self.table("points", self.entry("points"))
        count, width = points.shape
        classes = None if self.entry("classes") is None else self.whole("classes", 2, 2**31)
        rows = classes or 1
        labels = self.labels("labels", count, classes)
        steps, mistakes = self.whole("steps", 0, 2**63), len(self.column("index", _INTEGERS))
        start = self.entry("start")
        if not isinstance(start, dict) or set(start) < {"weight", "bias"}:
            self.fail("start", "must have weight and bias")
        dtype = self.found.get("dtype", "float64")
        if dtype not in tuple(LARGEST):
            self.fail("dtype", f"is {dtype!r}; choose one of {', '.join(LARGEST)}")
        content = Content(
            points,
            labels,
            classes,
            self.number("bias_scale", 0),
            self.number("scale", 0),
            self.table("start.weight", start["weight"], (rows, width)),
            self.numbers("start.bias", start["bias"], rows),
            self.integers("index", mistakes, 0, count),
            self.rising("step", self.integers("step", mistakes, 0, steps)),
            self.numbers("coef", self.entry("coef"), mistakes),
            self.labels("wrong", mistakes, classes),
            steps,
            self.ends(steps),
            self.costs(count),
            dtype,
        )
        for name, array in (("points", points), ("start.weight", content.weight), ("start.bias", content.bias)):
            if (abs(array) > LARGEST[dtype]).any():
                self.fail(name, f"holds a number too large for {dtype}")
        own = labels[content.index]
        if (content.wrong == own).any():
            self.fail("wrong", "names a sample's own label")
        if (content.coef * (own if classes is None else 1) < 0).any():
            self.fail("coef", "moves a sample away from its label")
        return content

    def fail(self, name: str, what: str) -> NoReturn:
        raise FormatError(f'"{name}" {what}')

    def entry(self, name: str) -> Any:
        if name not in self.found:
            raise FormatError(f'"{name}" is missing')
        return self.found[name]

    def column(self, name: str, kinds: tuple[type, ...], values: Any = None) -> list[Any]:
        values = self.entry(name) if values is None else values
        if not isinstance(values, list):
            self.fail(name, f"must be a list, found {type(values).__name__}")
        wrong = next((value for value in values if type(value) not in kinds), None)
        if wrong is not None or None in values:
            self.fail(name, f"must hold {'integers' if kinds is _INTEGERS else 'numbers'}, found {wrong!r}")
        return list(values)

    def numbers(self, name: str, values: Any, count: int) -> _Array:
        try:
            array = np.array(self.column(name, _NUMBERS, values), dtype=np.float64)
        except OverflowError:
            array = np.array([np.inf])
        if not np.isfinite(array).all():
            self.fail(name, "must hold finite numbers")
        if array.shape != (count,):
            self.fail(name, f"has {len(array)} numbers where {count} are needed")
        return array

    def table(self, name: str, values: Any, shape: tuple[int, int] | None = None) -> _Array:
        if not isinstance(values, list) or not values or not isinstance(values[0], list) or not values[0]:
            self.fail(name, "must be a list of rows of numbers")
        width = len(values[0]) if shape is None else shape[1]
        rows = np.array([self.numbers(name, row, width) for row in values])
        if shape is not None and rows.shape != shape:
            self.fail(name, f"has {len(rows)} rows where {shape[0]} are needed")
        return rows

    def integers(self, name: str, count: int, low: int, stop: int) -> _Array:
        values = self.column(name, _INTEGERS)
        if len(values) != count:
            self.fail(name, f"has {len(values)} entries where {count} are needed")
        if values and not (low <= min(values) and max(values) < stop):
            self.fail(name, f"must hold integers from {low} to {stop - 1}, found {min(values)} to {max(values)}")
        return np.array(values, dtype=np.int64)

    def labels(self, name: str, count: int, classes: int | None) -> _Array:
        if classes is not None:
            return self.integers(name, count, 0, classes)
        values = self.integers(name, count, -1, 2)
        if (values == 0).any():
            self.fail(name, "must hold -1 and 1, found 0")
        return values

    def rising(self, name: str, values: _Array) -> _Array:
        if (np.diff(values) < 0).any():
            self.fail(name, "must not fall")
        return values

    def ends(self, steps: int) -> _Array:
        count = len(self.column("epoch_ends", _INTEGERS))
        values = self.rising("epoch_ends", self.integers("epoch_ends", count, 0, steps + 1))
        if len(values) and values[-1] != steps:
            self.fail("epoch_ends", f"ends at {values[-1]}, and there are {steps} steps")
        return values

    def costs(self, count: int) -> _Array:
        values = self.numbers("cost", self.found.get("cost", [1] * count), count)
        if (values < 0).any():
            self.fail("cost", "must hold numbers >= 0")
        return values

    def whole(self, name: str, low: int, stop: int) -> int:
        value = self.entry(name)
        if type(value) is not int or not low <= value < stop:
            self.fail(name, f"must be an integer of at least {low}, found {value!r}")
        return int(value)

    def number(self, name: str, low: float) -> float:
        value = self.numbers(name, [self.entry(name)], 1)[0]
        if value < low:
            self.fail(name, f"must be at least {low:g}, found {value:g}")
        return float(value)


def _refuse_constant(name: str) -> NoReturn:
    raise FormatError(f"it holds {name}, which is no finite number")
