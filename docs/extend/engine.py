"""A new engine: score all samples that follow at once, and go straight to the next mistake."""

from torchperc.rules.engines import LinearEngine, ReferenceEngine
from torchperc.rules.log import Mistakes


class SkippingEngine(LinearEngine):
    """Worth it where mistakes are rare: between two of them, samples are scored by one matrix product."""

    def __init__(self, task, start):
        super().__init__(task, start)
        self.plain = ReferenceEngine.on(task, self.weights)  # the plain loop, on the same weights

    def run(self, order):
        """Present these samples in order; return the mistakes, whose steps count from the first sample."""
        made, at = [], 0
        while True:
            at += self.first(order[at:])  # near ties are decided in exact arithmetic
            if at == len(order):
                return Mistakes.of(made, self.task.y.device)
            made.append(self.plain.decide(int(order[at]))._replace(step=at))  # the update
            at += 1
