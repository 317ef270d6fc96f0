"""Numbers, tables and names from data as text that is safe to show."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor

# what moves the cursor, changes the terminal or turns the line round, and halves of characters that cannot be printed
_UNSEEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def visible(text: str) -> str:
    r"""Write out the characters that a terminal or a browser would act on instead of showing them.

    Example:
        >>> print(visible("age\x1b[2J \r of 3"))
        age\x1b[2J \r of 3
    """
    return _UNSEEN.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def plural(count: int, noun: str) -> str:
    """A count with its noun.

    Example:
        >>> plural(1, "epoch"), plural(1200, "mistake")
        ('1 epoch', '1,200 mistakes')
    """
    return f"{count:,} {noun}{'s' * (count != 1)}"


def number(value: Any) -> str:
    """Six figures at most, with a true minus; −0 is 0.

    Example:
        >>> number(-0.25), number(51.0000000001), number(1e-9), number(-0.0)
        ('−0.25', '51', '1e−09', '0')
    """
    return f"{float(value) + 0.0:.6g}".replace("-", "−")


def short(value: float) -> str:
    """Four figures, such as 1,235 and 0.01235."""
    return (f"{value:,.0f}" if 999.5 <= abs(value) < 1e9 else f"{value:#.4g}").replace("-", "−")


def percent(fraction: Any, form: str = ".4g") -> str:
    """A fraction as a percentage, of four figures at most unless another form is asked for."""
    return f"{100 * float(fraction):{form}} %"


def figures(values: Sequence[float], most: int = 4, digits: int = 6) -> str:
    """The first of some numbers, rounded."""
    shown = [f"{value + 0.0:.{digits}g}" for value in values[:most]]  # + 0.0 turns −0 into 0
    return ", ".join([*shown, "…"] if len(values) > most else shown)


def weights(weight: Tensor, bias: Tensor, digits: int = 6) -> str:
    """Bias and weights of each unit, such as (-4; 3, 2)."""
    rows = zip(bias.tolist(), weight.tolist(), strict=True)
    return " ".join(f"({figures([b], digits=digits)}; {figures(w, digits=digits)})" for b, w in rows)


def columns(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """The lines of a table on a terminal: cells in columns under a head.

    Example:
        >>> columns(("run", "epochs"), [("AND", "9")])
        ['run  epochs', '───  ──────', 'AND  9']
    """
    widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
    table = (head, ["─" * width for width in widths], *rows)
    return ["  ".join(map(str.ljust, row, widths)).rstrip() for row in table]
