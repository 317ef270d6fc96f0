"""The examples and dialects that the page offers, as plain tables: neither torch nor numpy is needed to write it.

Points lie on a grid of 1/64, so that every sum of the rule is exact.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

from torchperc.data.example_data import truth_table
from torchperc.rules.dialect_table import DIALECTS

Point: TypeAlias = tuple[float, float]

GRID = 64
"""Steps of the grid from 0 to 1."""

_GATES = ("AND", "OR", "NAND", "NOR", "XOR", "XNOR")
_CUBE = (0.5, 0.375)  # where the third edge of a cube is drawn


class Preset(NamedTuple):
    """An example: its key, where it is listed, a name, a sentence, points with their classes, and conventions.

    Example:
        >>> preset("AND").labels
        [0, 0, 0, 1]
    """

    id: str
    group: str
    name: str
    remark: str
    points: list[list[float]]
    labels: list[int]
    conventions: dict[str, Any]

    def entry(self) -> dict[str, Any]:
        """The example as the page reads it."""
        entry = {**self._asdict(), "group": _GROUPS[self.group], "classes": max(self.labels) + 1}
        return entry if self.conventions else {name: entry[name] for name in entry if name != "conventions"}


def preset(id: str) -> Preset:
    """An example by its key."""
    return next(each for each in PRESETS if each.id == id)


def presets() -> list[dict[str, Any]]:
    """All examples as the page reads them."""
    return [each.entry() for each in PRESETS]


def dialects() -> list[dict[str, Any]]:
    """All dialects as the page reads them."""
    return [
        {
            "id": row.id,
            "name": row.name,
            "remark": row.remark,
            "conventions": {"tie": row.tie, "biasStep": row.bias_step, "order": row.order, "lr": row.lr},
            "select": row.select,
        }
        for row in DIALECTS
    ]


# --- points -------------------------------------------------------------------------------------------------------


def moons(each: int = 20, noise: float = 0.09, seed: int = 1) -> tuple[list[list[float]], list[int]]:
    """Two half circles that reach into each other, as in :func:`torchperc.data.moons`, around (0, 0) and smaller."""
    turns = [math.pi * k / (each - 1) for k in range(each)]
    upper = [(math.cos(t), math.sin(t)) for t in turns]
    lower = [(1 - math.cos(t), 0.5 - math.sin(t)) for t in turns]
    draw = random.Random(seed)
    points = [
        (0.8 * (x - 0.5 + draw.gauss(0, noise)), 0.8 * (y - 0.25 + draw.gauss(0, noise))) for x, y in upper + lower
    ]
    return _shuffled(points, [0] * each + [1] * each, draw)


def circles(each: int = 18, noise: float = 0.05, seed: int = 2) -> tuple[list[list[float]], list[int]]:
    """A ring around another."""
    draw = random.Random(seed)
    turns = [2 * math.pi * k / each for k in range(each)]
    points = [(r * math.cos(t) + draw.gauss(0, noise), r * math.sin(t) + draw.gauss(0, noise))
              for r in (1.15, 0.5) for t in turns]  # fmt: skip
    return _shuffled(points, [0] * each + [1] * each, draw)


def blobs(
    centres: Sequence[Point], each: int, spread: float, seed: int, wrong: int = 0
) -> tuple[list[list[float]], list[int]]:
    """A Gaussian blob around each centre; so many points of each class get the label of the next class."""
    draw, classes = random.Random(seed), len(centres)
    points = [(x + draw.gauss(0, spread), y + draw.gauss(0, spread)) for x, y in centres for _ in range(each)]
    labels = [(c + (k < wrong)) % classes for c in range(classes) for k in range(each)]
    return _shuffled(points, labels, draw)


def board(side: int = 4) -> tuple[list[list[float]], list[int]]:
    """A chessboard's squares: the class is the parity of row + column."""
    cells = [(i, j) for j in range(side) for i in range(side)]
    points = [(-1.125 + 0.75 * i, -1.125 + 0.75 * j) for i, j in cells]
    return _on_grid(points), [(i + j) % 2 for i, j in cells]


def gate(name: str) -> tuple[list[list[float]], list[int]]:
    """A Boolean function of two inputs, or of three with the cube of its inputs drawn in the plane."""
    rows, labels = truth_table(name)
    points = [(a + sum(c) * _CUBE[0] - len(c) * 0.75, b + sum(c) * _CUBE[1] - len(c) * 0.6875) for a, b, *c in rows]
    return _on_grid(points), [int(label > 0) for label in labels]


def _shuffled(points: Sequence[Point], labels: list[int], draw: random.Random) -> tuple[list[list[float]], list[int]]:
    order = sorted(range(len(points)), key=[draw.random() for _ in points].__getitem__)  # as every Python draws it
    return _on_grid(points[k] for k in order), [labels[k] for k in order]


def _on_grid(points: Iterable[Point]) -> list[list[float]]:
    return [[round(GRID * value) / GRID for value in point] for point in points]


# --- the list -----------------------------------------------------------------------------------------------------

_GROUPS = {"gates": "gates", "parity": "parity", "clouds": "clouds", "classes": "several classes", "notes": "notes A–E"}
_A = {"tie": "update", "biasStep": "unit", "order": "given"}
_C = {"tie": "sign", "biasStep": "unit", "order": "given"}
_D = {"tie": "sign", "biasStep": "unit", "order": "random-mistake"}
_TWO = ((-0.55, -0.45), (0.55, 0.45))
_NEAR = ((-0.3, -0.25), (0.4, 0.35))
_THREE = ((-0.75, -0.5), (0.75, -0.5), (0.0, 0.8))
_FOUR = ((-0.5, -0.6), (0.6, -0.5), (0.5, 0.6), (-0.6, 0.5))
_TABLE = dict.fromkeys(_GATES, "−1 for false, +1 for true; a line separates them")
_TABLE |= dict.fromkeys(("XOR", "XNOR"), "no line separates it: (½, ½) lies in the hulls of both classes")


def _of(
    id: str,
    group: str,
    name: str,
    remark: str,
    data: tuple[list[list[float]], list[int]],
    conventions: Mapping[str, Any] | None = None,
) -> Preset:
    return Preset(id, group, name, remark, *data, dict(conventions or {}))


def _given(*samples: tuple[float, float, int]) -> tuple[list[list[float]], list[int]]:
    return _on_grid((x, y) for x, y, _ in samples), [label for *_, label in samples]


_CLOUDS = (
    _of(
        "blobs",
        "clouds",
        "separable blobs",
        "two clouds with a narrow gap between them",
        blobs(_NEAR, 20, 0.26, seed=11),
    ),
    _of(
        "noisy-blobs",
        "clouds",
        "noisy blobs",
        "two clouds, 3 labels of each turned round: no line separates them",
        blobs(_TWO, 20, 0.25, seed=4, wrong=3),
    ),
    _of("moons", "clouds", "two moons", "no line separates them, a small net does", moons()),
    _of("circles", "clouds", "two circles", "a ring around another; no line separates them", circles()),
    _of("three", "classes", "three classes", "the class with the largest score wins", blobs(_THREE, 12, 0.33, seed=3)),
    _of("four", "classes", "four classes", "one cloud in each corner", blobs(_FOUR, 9, 0.25, seed=9)),
)
_NOTES = (
    _of("note-a", "notes", "A: AND", "w = (−4, 3, 2) after 18 mistakes; the 9th epoch is clean", gate("AND"), _A),
    _of("note-a-xor", "notes", "A: XOR", "the weights come back after one epoch, again and again", gate("XOR"), _A),
    _of(
        "note-b",
        "notes",
        "B: x = 4 and 6",
        "two points on a line; R and γ of the bound count the bias as a feature",
        _given((4, 0, 0), (6, 0, 1)),
        _A,
    ),
    _of(
        "note-b-vote",
        "notes",
        "B: votes",
        "x = −3, −2, −1: the vote by survival is right, with one vote per state it is not",
        _given((-3, 0, 0), (-2, 0, 1), (-1, 0, 1)),
        _A,
    ),
    _of("note-c", "notes", "C: AND", "sign(0) = +1: w = (−3, 2, 1) after 11 mistakes", gate("AND"), _C),
    _of(
        "note-c-vote",
        "notes",
        "C: the vote",
        "x = −3, −2, −1: here the last weights have fewer errors than the vote",
        _given((-3, 0, 0), (-2, 0, 0), (-1, 0, 1)),
        _C,
    ),
    _of(
        "note-c-classes",
        "notes",
        "C: three classes",
        "six points; the number of mistakes depends on who wins a tie",
        _given((0, 0, 0), (1, 0, 0), (4, 0, 1), (5, 1, 1), (0, 4, 2), (1, 5, 2)),
        _C,
    ),
    _of("note-d", "notes", "D: AND", "any misclassified point may be picked; here at random", gate("AND"), _D),
    _of("note-d-pocket", "notes", "D: XOR", "the pocket keeps the best weights: 1 error of 4", gate("XOR"), _D),
    _of(
        "note-e",
        "notes",
        "E: bias step R²",
        "AND with inputs 0/3 and 0/4, so that R² = 25",
        _given((0, 0, 0), (0, 4, 0), (3, 0, 0), (3, 4, 1)),
        {**_A, "biasStep": "radius"},
    ),
    _of(
        "note-e-strict",
        "notes",
        "E: AND",
        "y·s < 0 never holds at zero weights, so nothing is learned",
        gate("AND"),
        {"tie": "strict", "biasStep": "radius", "order": "given"},
    ),
)

PRESETS: tuple[Preset, ...] = (
    *(_of(name, "gates", name, _TABLE[name], gate(name)) for name in _GATES),
    _of("parity-3", "parity", "parity of 3 inputs", "the cube of inputs, drawn in the plane", gate("parity-3")),
    _of("parity-board", "parity", "parity of row + column", "a board of 4 × 4; no line separates it", board()),
    *_CLOUDS,
    *_NOTES,
)
"""All examples, in the order in which they are listed."""
