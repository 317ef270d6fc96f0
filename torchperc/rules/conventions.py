"""What the authors of perceptrons disagree about, by name: ties, bias steps, orders, selections, verdicts."""

from __future__ import annotations

from enum import Enum

from torchperc.nn.functional import TIES

BIAS_STEPS = ("unit", "radius", "none")
ORDERS = ("given", "shuffled", "random-mistake")
SELECTS = ("last", "averaged", "voted", "pocket", "best-validation")
RATCHETS = ("runs", "every")
DISTRIBUTED = ("mix",)
MIXINGS = ("uniform", "mistakes")
ENGINES = ("auto", "reference", "compiled")

__all__ = ["BIAS_STEPS", "DISTRIBUTED", "ENGINES", "MIXINGS", "ORDERS", "RATCHETS", "SELECTS", "TIES", "Verdict"]


class Verdict(Enum):
    """How training ended; a result in every case, not an exception.

    Example:
        >>> Verdict.SEPARATED.sentence
        'an epoch without a mistake: these weights separate the training data'
    """

    SEPARATED = "separated"
    NOT_SEPARABLE = "not separable"
    CYCLING = "cycling"
    BUDGET = "budget"
    CONVERGED = "converged"
    STOPPED_EARLY = "stopped early"
    UNBOUNDED = "unbounded"

    @property
    def sentence(self) -> str:
        """What the verdict means."""
        return {
            Verdict.SEPARATED: "an epoch without a mistake: these weights separate the training data",
            Verdict.NOT_SEPARABLE: "it is proved that no hyperplane separates the training data",
            Verdict.CYCLING: "the weights of an earlier epoch recurred: in this order the run repeats forever",
            Verdict.BUDGET: "reached max_epochs with mistakes left: try more epochs, or select averaged or pocket",
            Verdict.CONVERGED: "the gradient is below tol, or the loss has stopped falling",
            Verdict.STOPPED_EARLY: "the loss on the validation samples has stopped falling",
            Verdict.UNBOUNDED: "the loss has no minimum: a hyperplane separates the samples, so it falls forever",
        }[self]
