"""Dialects: the conventions of five lecture notes and three libraries by name.

>>> import torchperc as tp
>>> X, y = tp.data.gate("AND")
>>> result = tp.dialects.NOTE_A.trainer(max_epochs=20).fit(tp.Perceptron(2), X, y)
>>> result.mistakes
18
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torchperc.rules.trainer import RuleTrainer


@dataclass(frozen=True)
class Dialect:
    """A named set of conventions, as arguments of :class:`RuleTrainer`, and a remark.

    Example:
        >>> NOTE_E.id, NOTE_E.trainer(max_epochs=5).tie
        ('note-e', 'strict')
    """

    name: str
    tie: str
    bias_step: str
    order: str
    select: str
    lr: float
    remark: str

    @property
    def id(self) -> str:
        """The name as a key."""
        return self.name.lower().replace(" ", "-")

    def trainer(self, **changes: Any) -> RuleTrainer:
        """Return a :class:`RuleTrainer` of the dialect, with the given changes."""
        from torchperc.rules.trainer import RuleTrainer  # who only lists the dialects need not load torch

        conventions = {name: getattr(self, name) for name in ("tie", "bias_step", "order", "select", "lr")}
        return RuleTrainer(**{**conventions, **changes})


ALL = (
    Dialect(
        "note A", "update", "unit", "given", "last", 1.0, "bias as weight w₀ of a constant x₀ = 1; learning rate η"
    ),
    Dialect("note B", "update", "unit", "given", "voted", 1.0, "online; averaging as the cheap form of voting"),
    Dialect("note C", "sign", "unit", "shuffled", "best-validation", 1.0, "sign(0) = +1; validation every epoch"),
    Dialect("note D", "sign", "unit", "random-mistake", "pocket", 1.0, "any misclassified point; in-sample error"),
    Dialect("note E", "strict", "radius", "given", "last", 1.0, "never moves from zero weights; learning rate α"),
    Dialect("scikit-learn", "update", "unit", "given", "last", 1.0, "`Perceptron(shuffle=False, tol=None)`"),
    Dialect("mlxtend", "sign", "unit", "shuffled", "last", 0.2, "step η·(y − ŷ) = 2η·y, η = 0.1; random start"),
    Dialect("river", "update", "unit", "given", "last", 1.0, "one sample at a time, as `partial_fit` does"),
)
NOTE_A, NOTE_B, NOTE_C, NOTE_D, NOTE_E, SCIKIT_LEARN, MLXTEND, RIVER = ALL
