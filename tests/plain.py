"""A user's own script: a plain Trainer, plain loaders, stock loggers; and what they are to show, by a plain loop."""

import csv

import pytorch_lightning as pl
import torch
from pytorch_lightning.loggers import CSVLogger, TensorBoardLogger
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from torch.utils.data import DataLoader, TensorDataset

import torchperc as tp

CHATTER = (
    "ignore:.*LeafSpec.*",
    "ignore:The number of training batches",
    "ignore:.*does not have many workers",
    "ignore:You defined a `validation_step` but have no `val_dataloader`",
    "ignore:.*exists and is not empty",
    "ignore:.*smaller than the logging interval",
    "ignore:Using ModelCheckpoint with manual optimization and every_n_train_steps",
    "ignore:Total length of `list` across ranks is zero",
    "ignore:You called `self.log",
)


def blobs(count, seed=0, width=3, dtype=torch.float32):
    generator = torch.Generator().manual_seed(seed)
    X = torch.randn(count, width, generator=generator, dtype=torch.float64)
    y = torch.where(X[:, 0] - X[:, 1] + 0.5 * torch.randn(count, generator=generator, dtype=torch.float64) > 0, 1, -1)
    return X.to(dtype), y


def loader(data, batch_size=None, shuffle=False, seed=0, **options):
    generator = torch.Generator().manual_seed(seed) if shuffle else None
    size = len(data[1]) if batch_size is None else batch_size
    return DataLoader(TensorDataset(*data), size, shuffle=shuffle, generator=generator, **options)


TRAIN, VAL = blobs(60), blobs(30, seed=1)


def fit(folder, lit, train=None, val=None, epochs=3, callbacks=(), ckpt_path=None, **options):
    """Train as a script would, with TensorBoard and CSV; no option of torchperc's own."""
    loggers = [TensorBoardLogger(folder, name="tb", version=""), CSVLogger(folder, name="csv", version="")]
    quiet = dict.fromkeys(("enable_progress_bar", "enable_model_summary", "enable_checkpointing"), False)
    settings = {"accelerator": "cpu", "logger": loggers, "max_epochs": epochs, **quiet, **options}
    trainer = pl.Trainer(callbacks=list(callbacks), **settings)
    trainer.fit(lit, loader(TRAIN, 20) if train is None else train, val, ckpt_path=ckpt_path, weights_only=True)
    return trainer


QUIET = {"accelerator": "cpu", "logger": False, "enable_progress_bar": False, "enable_model_summary": False}
QUIET |= {"enable_checkpointing": False, "num_sanity_val_steps": 0}


def trained(lit, train, val=None, epochs=3, callbacks=(), **options):
    """Train without loggers."""
    trainer = pl.Trainer(max_epochs=epochs, callbacks=list(callbacks), **QUIET | options)
    trainer.fit(lit, train, val)
    return trainer


class History(pl.Callback):
    """Metrics and weights that a callback of the user's finds at the end of each epoch."""

    def __init__(self):
        self.epochs, self.weights = [], []

    def on_train_epoch_end(self, trainer, pl_module):
        self.epochs.append({name: float(value) for name, value in trainer.callback_metrics.items()})
        self.weights.append(torch.cat([p.detach().flatten() for p in pl_module.net.parameters()]))


def board(folder):
    """Every curve in the event files: tag → [(step, value)]."""
    events = EventAccumulator(str(folder / "tb"), size_guidance={"scalars": 0})
    events.Reload()
    return {tag: [(e.step, e.value) for e in events.Scalars(tag)] for tag in events.Tags()["scalars"]}


def table(folder):
    """Every column of the CSV file, without its gaps: name → values in order."""
    with (folder / "csv" / "metrics.csv").open() as lines:
        rows = list(csv.DictReader(lines))
    return {name: [float(row[name]) for row in rows if row[name] != ""] for name in rows[0]}


def descent(batches, epochs, lr, loss, width=3, dtype=torch.float32):
    """What an epoch of gradient descent is to log, by autograd and arithmetic alone; yields a dict for each."""
    w, b = torch.zeros(1, width, dtype=dtype, requires_grad=True), torch.zeros(1, dtype=dtype, requires_grad=True)
    for _ in range(epochs):
        total = wrong = seen = 0
        margin = float("inf")
        for x, y in batches:
            s = (x @ w.T + b)[:, 0]
            value = loss(s, y)
            length = float(w.detach().norm())
            margin = min(margin, float((y * s.detach()).min()) / length if length else 0.0)
            total, seen = total + float(value.detach()) * len(y), seen + len(y)
            wrong += int(((s >= 0) * 2 - 1 != y).sum())
            gw, gb = torch.autograd.grad(value, (w, b))
            with torch.no_grad():
                w -= lr * gw
                b -= lr * gb
        norm = float((w.detach().double().square().sum() + b.detach().double().square().sum()).sqrt())
        weights = {"w": w.detach().clone(), "b": b.detach().clone()}
        yield {"loss/train": total / seen, "error/train": wrong / seen, "norm": norm, "margin": margin, **weights}


def evaluation(net, data, loss):
    s = net(data[0]).detach()
    return float(loss(s, data[1])), float((((s >= 0) * 2 - 1) != data[1]).double().mean())


perceptron_criterion = tp.PerceptronLoss()
