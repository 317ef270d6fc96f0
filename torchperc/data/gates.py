"""Boolean functions as data sets: the smallest problems there are, and the most instructive."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import TYPE_CHECKING

import lazy_loader

if TYPE_CHECKING:
    import torch
    from torch import Tensor
else:
    torch = lazy_loader.load("torch")

_GATES: dict[str, Callable[[int, int], bool]] = {
    "AND": lambda a, b: a + b == 2,
    "OR": lambda a, b: a + b > 0,
    "NAND": lambda a, b: a + b < 2,
    "NOR": lambda a, b: a + b == 0,
    "XOR": lambda a, b: a != b,
    "XNOR": lambda a, b: a == b,
}

GATES = (*_GATES, "parity-n")


def gate(name: str, *, dtype: torch.dtype | None = None) -> tuple[Tensor, Tensor]:
    """Inputs 0/1 (2ⁿ, n) in counting order and labels −1/+1 (2ⁿ,) of a Boolean function.

    Args:
        name: AND, OR, NAND, NOR, XOR or XNOR of two inputs, or ``parity-n`` (such as ``parity-3``) of n inputs, +1
            where an odd number of them is 1. Upper or lower case.
        dtype: of the inputs; torch's default type if ``None``.

    Example:
        >>> X, y = gate("AND")
        >>> X.tolist(), y.tolist()
        ([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]], [-1, -1, -1, 1])
        >>> gate("parity-3")[1].tolist()
        [-1, 1, 1, -1, 1, -1, -1, 1]
    """
    rows, labels = truth_table(name)
    return torch.tensor(rows, dtype=dtype or torch.get_default_dtype()), torch.tensor(labels)


def truth_table(name: str) -> tuple[list[tuple[int, ...]], list[int]]:
    """The same as lists, without torch: inputs 0/1 in counting order, and labels −1/+1.

    Example:
        >>> truth_table("OR")
        ([(0, 0), (0, 1), (1, 0), (1, 1)], [-1, 1, 1, 1])
    """
    inputs = _parity_inputs(name)
    rows = list(itertools.product((0, 1), repeat=inputs or 2))
    truth = [sum(row) % 2 == 1 if inputs else _GATES[name.upper()](row[0], row[1]) for row in rows]
    return rows, [1 if value else -1 for value in truth]


def is_gate(name: str) -> bool:
    """Whether :func:`gate` knows the name.

    Example:
        >>> is_gate("xor"), is_gate("data.csv")
        (True, False)
    """
    try:
        _parity_inputs(name)
    except ValueError:
        return False
    return True


def _parity_inputs(name: str) -> int | None:
    """n for a known ``parity-n``, ``None`` for a known gate of two inputs."""
    if isinstance(name, str):
        if name.upper() in _GATES:
            return None
        word, _, count = name.lower().partition("-")
        if word == "parity" and count.isascii() and count.isdigit() and 1 <= int(count) <= 16:
            return int(count)
    raise ValueError(f"name={name!r} is not a gate; choose one of {', '.join(GATES)} with n from 1 to 16")
