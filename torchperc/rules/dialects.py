"""Dialects: the conventions of five lecture notes and three libraries by name.

>>> import torchperc as tp
>>> X, y = tp.data.gate("AND")
>>> result = tp.dialects.NOTE_A.trainer(max_epochs=20).fit(tp.Perceptron(2), X, y)
>>> result.mistakes
18
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

from torchperc.rules.trainer import RuleTrainer


@dataclass(frozen=True)
class Dialect:
    """A named set of conventions, as arguments of :class:`RuleTrainer`, and a remark.

    Example:
        >>> NOTE_E.trainer(max_epochs=5).tie
        'strict'
    """

    name: str
    tie: str
    bias_step: str
    order: str
    select: str
    lr: float
    remark: str

    def __post_init__(self) -> None:
        self.trainer()  # checks the conventions

    def trainer(self, **changes: Any) -> RuleTrainer:
        """A :class:`RuleTrainer` that follows the dialect, but for the given changes."""
        conventions = {name: getattr(self, name) for name in ("tie", "bias_step", "order", "select", "lr")}
        return RuleTrainer(**{**conventions, **changes})


NOTE_A = Dialect(
    "note A", "update", "unit", "given", "last", 1.0, "bias as weight w₀ of a constant x₀ = 1; learning rate η"
)
NOTE_B = Dialect("note B", "update", "unit", "given", "voted", 1.0, "online; averaging as the cheap form of voting")
NOTE_C = Dialect("note C", "sign", "unit", "shuffled", "best-validation", 1.0, "sign(0) = +1; validation every epoch")
NOTE_D = Dialect("note D", "sign", "unit", "random-mistake", "pocket", 1.0, "any misclassified point; in-sample error")
NOTE_E = Dialect("note E", "strict", "radius", "given", "last", 1.0, "never moves from zero weights; learning rate α")
SCIKIT_LEARN = Dialect("scikit-learn", "update", "unit", "given", "last", 1.0, "`Perceptron(shuffle=False, tol=None)`")
MLXTEND = Dialect("mlxtend", "sign", "unit", "shuffled", "last", 0.2, "step η·(y − ŷ) = 2η·y, η = 0.1; random start")
RIVER = Dialect("river", "update", "unit", "given", "last", 1.0, "one sample at a time, as `partial_fit` does")

ALL = (NOTE_A, NOTE_B, NOTE_C, NOTE_D, NOTE_E, SCIKIT_LEARN, MLXTEND, RIVER)


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
