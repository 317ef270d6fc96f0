"""A new display: how often each sample is part of the weights."""

from dataclasses import dataclass

from torch import Tensor

from torchperc.plots import style


@dataclass(eq=False)
class DualDisplay(style.Display):
    """Bars of the dual coefficients αᵢ, with w = Σ αᵢ·xᵢ. After ``plot``, ``bars_`` are the bars."""

    alpha: Tensor

    @classmethod
    def from_log(cls, log, *, ax=None):
        """Draw the coefficients of a log of two classes."""
        if log.problem.num_classes is not None:
            raise ValueError(
                f"log has {log.problem.num_classes} classes; one coefficient per sample needs labels −1/+1"
            )
        return cls(log.dual()).plot(ax=ax)

    def _draw(self):
        axes, alpha = self.ax_, self.alpha.numpy()
        colours = [style.ORANGE if value > 0 else style.BLUE for value in alpha]
        self.bars_ = axes.bar(range(len(alpha)), alpha, color=colours)
        axes.axhline(0, color="black", linewidth=1)
        axes.set(xlabel="sample", ylabel="coefficient $\\alpha_i$", title="What the weights are made of")
        axes.xaxis.get_major_locator().set_params(integer=True)
