"""Dialects: the conventions of five lecture notes and three libraries by name.

>>> import torchperc as tp
>>> X, y = tp.data.gate("AND")
>>> result = tp.dialects.NOTE_A.trainer(max_epochs=20).fit(tp.Perceptron(2), X, y)
>>> result.mistakes
18
"""

from __future__ import annotations

from dataclasses import astuple, dataclass, fields
from typing import Any

from torchperc.rules.dialect_table import DIALECTS, Row
from torchperc.rules.trainer import RuleTrainer


@dataclass(frozen=True)
class Dialect(Row):
    """A named set of conventions, as arguments of :class:`RuleTrainer`, and a remark.

    Example:
        >>> NOTE_E.trainer(max_epochs=5).tie
        'strict'
    """

    def __post_init__(self) -> None:
        self.trainer()  # checks the conventions

    def trainer(self, **changes: Any) -> RuleTrainer:
        """A :class:`RuleTrainer` that follows the dialect, but for the given changes."""
        conventions = {name: getattr(self, name) for name in ("tie", "bias_step", "order", "select", "lr")}
        return RuleTrainer(**{**conventions, **changes})


ALL = tuple(Dialect(*astuple(row)) for row in DIALECTS)
NOTE_A, NOTE_B, NOTE_C, NOTE_D, NOTE_E, SCIKIT_LEARN, MLXTEND, RIVER = ALL


def table() -> str:
    """All dialects as a Markdown table.

    Example:
        >>> print(table().splitlines()[2])
        | note A | update | unit | given | last | 1 | bias as weight w₀ of a constant x₀ = 1; learning rate η |
    """
    names = [field.name for field in fields(Dialect)]
    rows = [names, ["---"] * len(names)]
    for dialect in ALL:
        values = (getattr(dialect, name) for name in names)
        rows.append([f"{value:g}" if isinstance(value, float) else value for value in values])
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)
