"""A new rule: relaxation, which moves the weights a fraction of the way to where the sample has the required margin."""

from dataclasses import dataclass

import torchperc as tp


@dataclass(frozen=True)
class Relaxation(tp.rules.Rule):
    """w ← w + rate·(reach − m)/‖z‖²·z where m < reach: rate 1 leads to the margin itself, rate 2 as far beyond it."""

    rate: float = 1.0
    reach: float = 1.0
    tie = "strict"  # m < reach; "update" would be m ≤ reach

    @staticmethod
    def step(m, squared, norm, k, parameters):
        """Return the coefficient of z, and 1: old weights are kept. Compiled, too, so plain arithmetic only."""
        rate, reach = parameters[0], parameters[1]
        return rate * (reach - m) / squared, 1.0

    @property
    def margin(self):
        """The required margin."""
        return self.reach

    def bound(self, squared_radius, gamma, lr=1.0):
        """Return the mistake bound of rates below 2: ‖w − w*‖² falls by rate·(2 − rate)·reach²/R² at each one."""
        return squared_radius / gamma**2 / (self.rate * (2 - self.rate))
