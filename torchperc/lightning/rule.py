"""The rule under a Lightning Trainer: its epochs are the Trainer's epochs, with the same loggers and checkpoints."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from typing import Any

import pytorch_lightning as pl
import torch
from torch import Tensor

from torchperc import checks
from torchperc.heads import PerceptronHead
from torchperc.lightning.classifier import Batch, check_same_kind, decided, joined, log_epoch, pieces, scores_of
from torchperc.lightning.loader import Mapped, SliceLoader
from torchperc.lightning.metrics import EpochSums
from torchperc.rules.conventions import Verdict
from torchperc.rules.problem import Net, write
from torchperc.rules.run import RuleResult, RuleRun
from torchperc.rules.trainer import RuleTrainer


class LitRule(pl.LightningModule):
    """Learns by the perceptron rule, an epoch at a time; the run stops by itself at its verdict.

    Logs what :class:`LitClassifier` logs, under the same tags, so that both lie on one chart: ``mistakes`` made in the
    epoch, ``error/train`` as their share of the presented samples, ``loss/train`` (the perceptron criterion) and
    ``margin`` after it, ``norm``, and ``loss/val`` and ``error/val`` where there is validation data. And what the
    theorem says of the run: ``theory/lower`` ≤ γ* ≤ ``theory/upper``, ``theory/mistakes`` and ``theory/bound``.

    Sparse samples stay sparse, and samples that are larger than memory are read in parts, both on the CPU, wherever
    the net is.

    Args:
        net: a linear net, see :class:`~torchperc.rules.trainer.RuleTrainer`.
        lr: the rate η.
        tie: what is a mistake.
        bias_step: how the bias moves.
        order: in which samples are presented; the loader itself must hand out all of them, in the given order.
        select: which weights the net has in the end; ``result`` has the others.
        engine: as for the trainer.
        seed: of the order.
        margin: the slack that every sample must exceed.
        class_weight: a factor for each label's updates.
        prove: whether to find out, if the run ends without separating the data, if that is possible.

    Example:
        >>> import torchperc as tp
        >>> tp.lightning.LitRule(tp.Perceptron(2), order="shuffled").trainer_options["order"]
        'shuffled'
    """

    def __init__(
        self,
        net: Net,
        lr: float = 1.0,
        tie: str = "update",
        bias_step: str | None = None,
        order: str = "given",
        select: str = "last",
        engine: str = "auto",
        seed: int = 0,
        margin: float = 0.0,
        class_weight: Mapping[int, float] | str | None = None,
        prove: bool = False,
    ) -> None:
        super().__init__()
        self.net = net
        self.trainer_options: dict[str, Any] = {
            "lr": lr,
            "tie": tie,
            "bias_step": bias_step,
            "order": order,
            "select": select,
            "engine": engine,
            "seed": seed,
            "margin": margin,
            "class_weight": class_weight,
            "prove": prove,
        }
        RuleTrainer(**self.trainer_options)  # refuses wrong options now rather than at the first epoch
        self.automatic_optimization = False
        self.head = PerceptronHead()
        self.result: RuleResult | None = None
        self.save_hyperparameters(
            {"model": type(net).__name__, "rule": "mistakes", "rate": lr, "ties": tie, "keep": select}
        )
        self._run: RuleRun | None = None
        self._resume: dict[str, Any] | None = None
        self._sums = {stage: EpochSums() for stage in ("val", "test")}

    def forward(self, x: Tensor) -> Tensor:
        """Scores."""
        return scores_of(self.net, x)

    def predict_step(self, batch: Batch | Tensor, batch_idx: int = 0) -> Tensor:
        """Labels −1/+1, or class indices."""
        return decided(self, self.head, batch)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """An optimizer that never sees a gradient: it counts the epochs as steps, for checkpoints and ``max_steps``."""
        return torch.optim.SGD(self.net.parameters(), lr=self.trainer_options["lr"])

    # --- epochs ---

    def on_fit_start(self) -> None:
        """A new run; one that is resumed after its verdict has nothing more to do."""
        self._run = self.result = None
        if self._resume is not None and self._resume["verdict"] not in (None, Verdict.BUDGET.value):
            self.trainer.should_stop = True

    def training_step(self, batch: Batch, batch_idx: int = 0) -> None:
        """One epoch of the rule."""
        if self._run is None:
            self._run = self._begin(*batch)
        record = self._run.epoch()
        write(self.net, self._run.current())
        optimizer = self.optimizers()
        assert isinstance(optimizer, pl.core.optimizer.LightningOptimizer)
        optimizer.step()
        values = {
            "mistakes": float(record.mistakes),
            "error/train": record.mistakes / len(batch[1]),
            "norm": record.norm,
        }
        log_epoch(self, {**values, **self._afterwards(), "lr": self.trainer_options["lr"]})
        if self._run.verdict is not None:
            self.trainer.should_stop = True

    def _begin(self, X: Any, y: Tensor) -> RuleRun:
        if self.trainer.num_training_batches != 1:
            raise ValueError(
                f"LitRule needs all samples in one batch, found {self.trainer.num_training_batches} batches; "
                "use batch_size='full', the order is LitRule's own"
            )
        loader = self.trainer.train_dataloader
        if getattr(loader, "order", "given") != "given":
            raise ValueError("the loader shuffles; use order='given' there and LitRule(order='shuffled')")
        epochs = self.trainer.max_epochs
        budget = epochs if epochs is not None and epochs > 0 else 2**31
        trainer = RuleTrainer(max_epochs=budget, **self.trainer_options)
        X = X.source if isinstance(X, Mapped) else X
        net = self.net
        if not isinstance(X, Tensor) or checks.is_sparse(X):  # which the rule goes through on the CPU
            net, y = deepcopy(net).cpu(), y.cpu()
        run = trainer.start(net, X, y, validation=self._validation())
        if self._resume is not None:
            run.load_state_dict(self._resume)
            self._resume = None
            if run.verdict is Verdict.BUDGET:  # of the run before, which may have had fewer epochs
                run.verdict = None
        return run

    def _validation(self) -> Batch | None:
        if self.trainer_options["select"] != "best-validation":
            return None
        loaders: Any = None
        if self.trainer.enable_validation:
            self.trainer.fit_loop.epoch_loop.val_loop.setup_data()
            loaders = self.trainer.val_dataloaders
        if isinstance(loaders, SliceLoader):
            return self._here(loaders.X), loaders.y
        if not (batches := list(loaders or ())):
            raise ValueError("select='best-validation' needs validation data; give the data module a share for it")
        X, y = joined(batches)
        return self._here(X), y

    def _here(self, X: Any) -> Any:
        return X.to(self.net.weight.device) if isinstance(X, Tensor) else X

    def _afterwards(self) -> dict[str, float]:
        assert self._run is not None
        loss, slack = self._run.survey()
        length = float(torch.linalg.vector_norm(self.net.weight.detach()))
        return {"loss/train": loss, "margin": slack / length if length else 0.0, **self._run.theory(slack)}

    def on_fit_end(self) -> None:
        """A run resumed after its last epoch has none to make, but a result to give."""
        if self.result is None and self._resume is not None:
            ((X, y),) = self.trainer.train_dataloader  # type: ignore[misc]  # one batch, as _begin makes sure
            self._run = self._begin(self._here(X), self._here(y))
            self._run.verdict = self._run.verdict or Verdict.BUDGET
            self.on_train_end()

    def on_train_end(self) -> None:
        """Leave the selected weights in the net, and the result on the module."""
        if self._run is not None and self._run.history:
            self.result = self._run.result()
            write(self.net, self.result.log.averaged() if self.result.select == "voted" else self.result.model)

    # --- validation and test ---

    def _observe(self, batch: Batch, stage: str) -> None:
        for x, y in pieces(*batch):
            scores = self(x)
            self._sums[stage].add(self.head, self.head.loss(scores, y), scores, y, None)

    def _report(self, stage: str) -> None:
        means = self._sums[stage].means()
        log_epoch(self, {f"{name}/{stage}": means[name] for name in ("loss", "error") if name in means})
        self._sums[stage].reset()

    def validation_step(self, batch: Batch, batch_idx: int = 0) -> None:
        """Loss and error on validation data."""
        self._observe(batch, "val")

    def test_step(self, batch: Batch, batch_idx: int = 0) -> None:
        """Loss and error on test data."""
        self._observe(batch, "test")

    def on_validation_epoch_end(self) -> None:
        """Log the validation."""
        self._report("val")

    def on_test_epoch_end(self) -> None:
        """Log the test."""
        self._report("test")

    # --- checkpoints ---

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Take the run along: log, weights, random state."""
        checkpoint["torchperc"] = self._kind()
        checkpoint["rule"] = self._resume if self._run is None else self._run.state_dict()

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Go on from there at the first epoch."""
        check_same_kind(self, checkpoint, self._kind())
        self._resume = checkpoint.get("rule")

    def _kind(self) -> dict[str, str]:
        options = ", ".join(f"{name}={value!r}" for name, value in self.trainer_options.items() if name != "engine")
        return {"run": "rule", "options": options}
