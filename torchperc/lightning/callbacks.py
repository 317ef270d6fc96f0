"""Callbacks for any run: when to stop, which weights to keep, what to do on signals."""

from __future__ import annotations

import math
import signal
import warnings
from itertools import count
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from torch import Tensor

from torchperc._checks import check_choice, check_number
from torchperc.lightning._pl import pl
from torchperc.lightning.checkpoints import LAST
from torchperc.lightning.loader import divergence
from torchperc.samples.process_group import gather


class EpsilonStop(pl.Callback):
    """Stop when the training loss has converged: ``|L_i − L_{i−1}| < epsilon``.

    Example:
        >>> EpsilonStop(1e-6).epsilon
        1e-06
    """

    def __init__(self, epsilon: float = 1e-6) -> None:
        self.epsilon = check_number("epsilon", epsilon, above=0)
        self._last, self._settled = math.nan, False

    def on_fit_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """A run that had converged stops at once when it is resumed."""
        trainer.should_stop = trainer.should_stop or self._settled

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Compare this epoch's loss with the last one's."""
        loss = _metric(trainer, "loss/train")
        if abs(loss - self._last) < self.epsilon:
            trainer.should_stop = self._settled = True
        self._last = loss

    def state_dict(self) -> dict[str, Any]:
        """The last loss, and whether it had converged."""
        return {"last": self._last, "settled": self._settled}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Resume from there."""
        self._last, self._settled = state_dict["last"], state_dict["settled"]


class RestoreBest(pl.Callback):
    """Restore the weights of the epoch with the best value of a metric at the end of the run.

    Args:
        monitor: the metric.
        mode: ``"min"``, or ``"max"`` for a metric such as ``"r2/val"``, of which larger values are better.

    Example:
        >>> RestoreBest("r2/val", mode="max").monitor
        'r2/val'
    """

    def __init__(self, monitor: str = "error/val", mode: str = "min") -> None:
        self.monitor, self.mode = monitor, check_choice("mode", mode, ("min", "max"))
        self.best, self.epoch = math.inf if mode == "min" else -math.inf, -1
        self._weights: dict[str, Tensor] = {}

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Keep the weights if they are the best so far."""
        value = _metric(trainer, self.monitor)
        if value < self.best if self.mode == "min" else value > self.best:
            self.best, self.epoch = value, trainer.current_epoch
            self._weights = _copied(pl_module)

    def on_train_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Restore them."""
        if self._weights:
            pl_module.load_state_dict(self._weights)

    on_fit_end = on_train_end  # a resumed run may have no epoch left to train

    def state_dict(self) -> dict[str, Any]:
        """Return the best so far."""
        return {"best": self.best, "epoch": self.epoch, "weights": self._weights}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Resume from there."""
        self.best, self.epoch, self._weights = state_dict["best"], state_dict["epoch"], state_dict["weights"]


class StopOnDivergence(pl.Callback):
    """Stop when the loss or a weight is not finite, keep the last finite weights, and warn.

    Example:
        >>> StopOnDivergence().diverged
        False
    """

    def __init__(self) -> None:
        self.diverged = False
        self._finite: dict[str, Tensor] = {}

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """The weights to fall back on."""
        self._finite = _copied(pl_module)

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Look at loss and weights once per epoch."""
        finite = all(bool(torch.isfinite(p).all()) for p in pl_module.parameters())
        if finite and math.isfinite(trainer.callback_metrics.get("loss/train", 0.0)):
            self._finite = _copied(pl_module)
            return
        pl_module.load_state_dict(self._finite)
        for optimizer in trainer.optimizers:
            optimizer.state.clear()  # moments of a run that has gone wrong, and would not be saved
        self.diverged = trainer.should_stop = True
        if trainer.is_global_zero:  # all processes see the same, and one says so
            warnings.warn(divergence(trainer.current_epoch + 1, finite), stacklevel=2)


class SaveOnSignal(pl.Callback):
    """On SIGTERM, Ctrl-C or SIGHUP, save a checkpoint to ``path`` and exit with 143, 130 or 129.

    The checkpoint is written at the end of the current batch, from where a run resumes exactly; a second signal does
    not wait for that. Signals that are ignored, as by ``nohup``, stay so. A signal to one of several processes ends all
    of them.

    Example:
        >>> SaveOnSignal("runs/last.ckpt").path.name
        'last.ckpt'
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self._received = 0
        self._before: dict[int, Any] = {}

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Install the handlers; exit at once if SIGTERM came before."""
        self._received = signal.SIGTERM if trainer.received_sigterm else self._received
        self.on_train_epoch_end(trainer, pl_module)
        for name in ("SIGTERM", "SIGINT", "SIGHUP"):
            number = getattr(signal, name, None)  # Windows has no SIGHUP
            if number is not None and signal.getsignal(number) != signal.SIG_IGN:
                self._before[number] = signal.signal(number, self._note)

    def _note(self, number: int, frame: FrameType | None) -> None:
        """Remember a signal; a second one is for the handler from before."""
        if self._received:
            self.on_train_end()
            signal.raise_signal(number)
        self._received = number

    def on_train_batch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule, *_: Any) -> None:
        """Save and exit if a signal came; at the last batch, at the end of the epoch."""
        if not trainer.is_last_batch:
            self.on_train_epoch_end(trainer, pl_module)

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Save and exit if a signal came to any process: to save a checkpoint is the work of all."""
        if received := max(gather(self._received)):
            trainer.save_checkpoint(self.path)
            self.on_train_end()
            raise SystemExit(128 + received)

    def on_train_end(self, *_: Any) -> None:
        """Restore the handlers, before Lightning restores those from before the run."""
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self._before = {}

    def on_exception(self, trainer: pl.Trainer, pl_module: pl.LightningModule, exception: BaseException) -> None:
        """Restore the handlers; Ctrl-C before the first epoch exits with 130, where Lightning would exit with 1."""
        self.on_train_end()
        if isinstance(exception, KeyboardInterrupt):
            raise SystemExit(130) from None


class RandomState(pl.Callback):
    """Saves torch's random state in checkpoints, so that shuffled loaders and dropout resume exactly.

    It is that of each process, of the CPU and of the device that the process computes on.
    """

    def __init__(self) -> None:
        self.states: list[dict[str, Tensor]] = []

    def on_save_checkpoint(self, trainer: pl.Trainer, _: pl.LightningModule, checkpoint: dict[str, Any]) -> None:
        """Save the states of all processes."""
        devices = {"cpu", trainer.strategy.root_device.type}
        checkpoint["random_state"] = gather({device: _generator(device).get_rng_state().cpu() for device in devices})

    def on_load_checkpoint(self, trainer: pl.Trainer, _: pl.LightningModule, checkpoint: dict[str, Any]) -> None:
        """Keep them for the start of training."""
        self.states = checkpoint.get("random_state", [])

    def on_fit_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Restore the state of the checkpoint, if there is one, before a ``DataLoader`` draws its order by it."""
        own = self.states[trainer.global_rank] if trainer.global_rank < len(self.states) else {}
        for device in own.keys() & {"cpu", trainer.strategy.root_device.type}:
            _generator(device).set_rng_state(own[device].cpu().clone())  # torch may crash on a view
        self.states = []

    on_train_start = on_fit_start  # some strategies load checkpoints in between


def _generator(device: str) -> Any:
    return torch if device == "cpu" else torch.get_device_module(device)


class SetAside(pl.Callback):
    """Move the files of an earlier run in a folder to ``version_0``, ``version_1``, …, unless it is resumed."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        self._earlier = [path for name in (LAST, "hparams.yaml", "events.out.*") for path in self.folder.glob(name)]

    def on_fit_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Move them before anything is written, except the event file that the logger has opened already."""
        resumed = trainer.ckpt_path is not None and Path(trainer.ckpt_path).absolute().parent == self.folder.absolute()
        if trainer.is_global_zero and self._earlier and not resumed:
            versions = (self.folder / f"version_{number}" for number in count())
            target = next(path for path in versions if not path.exists())
            target.mkdir()
            for path in self._earlier:
                path.rename(target / path.name)
        self._earlier = []


def _copied(module: pl.LightningModule) -> dict[str, Tensor]:
    return {name: values.detach().clone() for name, values in module.state_dict().items()}


def _metric(trainer: pl.Trainer, name: str) -> float:
    if name not in trainer.callback_metrics:
        known = ", ".join(sorted(trainer.callback_metrics)) or "none"
        raise ValueError(f"monitor={name!r} was not logged; the metrics are {known}")
    return float(trainer.callback_metrics[name])
