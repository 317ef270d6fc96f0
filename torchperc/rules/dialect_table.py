"""The conventions of five lecture notes and three libraries as a table; who only lists them need not load torch."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Row:
    """One set of conventions, see :class:`torchperc.Dialect`."""

    name: str
    tie: str
    bias_step: str
    order: str
    select: str
    lr: float
    remark: str

    @property
    def id(self) -> str:
        """The name as a key.

        Example:
            >>> DIALECTS[0].id
            'note-a'
        """
        return self.name.lower().replace(" ", "-")


DIALECTS = (
    Row("note A", "update", "unit", "given", "last", 1.0, "bias as weight w₀ of a constant x₀ = 1; learning rate η"),
    Row("note B", "update", "unit", "given", "voted", 1.0, "online; averaging as the cheap form of voting"),
    Row("note C", "sign", "unit", "shuffled", "best-validation", 1.0, "sign(0) = +1; validation every epoch"),
    Row("note D", "sign", "unit", "random-mistake", "pocket", 1.0, "any misclassified point; in-sample error"),
    Row("note E", "strict", "radius", "given", "last", 1.0, "never moves from zero weights; learning rate α"),
    Row("scikit-learn", "update", "unit", "given", "last", 1.0, "`Perceptron(shuffle=False, tol=None)`"),
    Row("mlxtend", "sign", "unit", "shuffled", "last", 0.2, "step η·(y − ŷ) = 2η·y, η = 0.1; random start"),
    Row("river", "update", "unit", "given", "last", 1.0, "one sample at a time, as `partial_fit` does"),
)
