"""How the command line writes numbers."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor


def figures(values: Sequence[float], most: int = 4, digits: int = 6) -> str:
    """A few numbers, shortly.

    Example:
        >>> figures([3.0, -0.5, 1, 2, 3])
        '3, -0.5, 1, 2, …'
    """
    shown = [f"{value + 0.0:.{digits}g}" for value in values[:most]]  # + 0.0 turns −0 into 0
    return ", ".join([*shown, "…"] if len(values) > most else shown)


def weights(weight: Tensor, bias: Tensor, digits: int = 6) -> str:
    """Bias and weights of each unit: ``(-4; 3, 2)``.

    Example:
        >>> import torch
        >>> weights(torch.tensor([[3.0, 2.0]]), torch.tensor([-4.0]))
        '(-4; 3, 2)'
    """
    rows = zip(bias.tolist(), weight.tolist(), strict=True)
    return " ".join(f"({figures([b], digits=digits)}; {figures(w, digits=digits)})" for b, w in rows)
