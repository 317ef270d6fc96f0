"""What a target is: classes to tell apart, or a quantity to predict."""

from __future__ import annotations

import math
from collections.abc import Collection

from torchperc.data.encoding import is_number

TASKS = ("classification", "regression")
LABELS = 2**16  # different labels above which nobody means classes
_ALONE, _FRACTIONS, _INTEGERS = 10, 20, 50  # different values up to which they are classes
_ROWS = 5  # per value, from which on integers are classes, however many


def is_quantity(labels: Collection[str], rows: int) -> bool:
    """Whether the different values of a target are a quantity rather than classes, if nobody has said.

    They are if all of them are finite numbers and

    - there are more than 10, and more than half as many as rows: most occur once;
    - or there are more than 20, and some are not integers;
    - or there are more than 50 integers, with gaps between them and fewer than five rows for each on average;
    - or there are more than 65,536.

    Args:
        labels: the different values, as words.
        rows: of the table.

    Example:
        >>> is_quantity(["0.5", "1", "2.25"], rows=100), is_quantity([str(k / 8) for k in range(30)], rows=100)
        (False, True)
        >>> is_quantity(map(str, range(100)), rows=5000)
        False
    """
    words = list(labels)
    values = [float(word) for word in words if is_finite(word)]
    count = len(values)
    if count < len(words) or count <= _ALONE:
        return False
    if 2 * count > rows or count > LABELS:
        return True
    if not all(value.is_integer() for value in values):
        return count > _FRACTIONS
    return count > _INTEGERS and rows < _ROWS * count and max(values) - min(values) >= count


def is_regression(task: str | None, labels: Collection[str], rows: int) -> bool:
    """Whether a target is a quantity: as was said, or else by its values.

    Example:
        >>> is_regression("regression", ["1", "2"], 2), is_regression(None, ["1", "2"], 2)
        (True, False)
    """
    return is_quantity(labels, rows) if task is None else task == "regression"


def is_finite(word: str) -> bool:
    """Whether a word is a finite number.

    Example:
        >>> is_finite("-1e3"), is_finite("inf"), is_finite("red")
        (True, False, False)
    """
    return is_number(word) and math.isfinite(float(word))


def guessed(target: str | None, labels: Collection[str], quantity: bool) -> str:
    """What was taken for what, in words; empty where nobody doubts it.

    Example:
        >>> guessed("price", ["1.5"] * 187, True)
        "target 'price' has 187 different numbers: regression"
        >>> guessed("digit", ["0", "1"], False)
        ''
    """
    if not quantity and (len(labels) <= _FRACTIONS or not all(map(is_number, labels))):
        return ""
    named, more = "the target" if target is None else f"target {target!r}", "more than " * (len(labels) > LABELS)
    return f"{named} has {more}{min(len(labels), LABELS):,} different numbers: {TASKS[quantity]}"
