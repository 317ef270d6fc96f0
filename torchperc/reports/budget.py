"""How large training data may be for a proof on the way, of a report or of ``torchperc learn``."""

from __future__ import annotations

import math
from collections.abc import Sequence

ENTRIES = 400_000
"""Numbers in the training data up to which they are proved separable, or not, on the way."""
COMPARED = 1_000_000
"""The same for numbers times classes: with K classes every sample is compared with K − 1 others."""


def moderate(shape: Sequence[int], classes: int | None) -> bool:
    """Whether training data (N, d) are within the budget of a proof on the way: of seconds, not of minutes.

    Example:
        >>> moderate((1078, 64), 10), moderate((3600, 20), 157), moderate((60_000, 30), None)
        (True, False, False)
    """
    numbers = math.prod(shape)
    return numbers <= ENTRIES and numbers * (classes or 1) <= COMPARED
