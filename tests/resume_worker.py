"""Runs to interrupt and to resume: ``python resume_worker.py FOLDER KIND EPOCHS [CHECKPOINT]`` trains one.

It prints a line for each batch and leaves the final weights in FOLDER/final.bin. Forked tests call the same functions.
"""

import sys
from functools import partial
from pathlib import Path

import pytorch_lightning as pl
import torch
from pytorch_lightning.callbacks import EarlyStopping
from torch import nn

import torchperc as tp
from torchperc.lightning import EpsilonStop, LitClassifier, LitRule, RestoreBest, TabularDataModule, make_trainer

BATCHES = 5  # 36 training samples by eights, the last batch a half


def noisy(**options):
    usual = {"options": {"samples": 60, "noise": 0.2}, "scale": "standard", "seed": 3}
    return TabularDataModule("noisy-blobs", **(usual | options))


def mlp():
    return tp.MLP(2, hidden=(4,), seed=0)


def linear():
    return tp.Perceptron(2, init="normal", seed=1)


def drawing():
    layers = nn.Linear(2, 6), nn.Tanh(), nn.BatchNorm1d(6), nn.Dropout(0.4), nn.Linear(6, 1), nn.Flatten(0)
    return nn.Sequential(*layers)


def halved(optimizer):
    return torch.optim.lr_scheduler.StepLR(optimizer, step_size=2, gamma=0.5)


def gradient(net=mlp, head="logistic", callbacks=(), batch_size=8, **options):
    data = noisy(order="shuffled", batch_size=batch_size)
    return LitClassifier(net(), head, **options), data, [make() for make in callbacks]


def rule(order, select="averaged", source=None, net_seed=None):
    net = tp.Perceptron(2, init="zeros" if net_seed is None else "normal", seed=net_seed, dtype=torch.float64)
    data = TabularDataModule(source, dtype="float64") if source else noisy(dtype="float64")
    return LitRule(net, order=order, select=select, seed=7), data, []


adam = partial(gradient, optimizer=partial(torch.optim.Adam, lr=0.05))
KINDS = {
    "adam": adam,
    "steps": partial(adam, scheduler=halved),
    "drawing": partial(adam, drawing),
    "sample": partial(gradient, linear, "perceptron", update="sample", lr=0.1),
    "sample full": partial(gradient, linear, "lms", update="sample", lr=0.02, batch_size="full"),
    "sample steps": partial(gradient, linear, update="sample", lr=0.5, scheduler=halved),
    "best": partial(adam, callbacks=[RestoreBest]),
    "best in training": partial(adam, callbacks=[partial(RestoreBest, "error/train")]),
    "epsilon": partial(adam, callbacks=[partial(EpsilonStop, 0.05)]),
    "early": partial(gradient, lr=1.0, callbacks=[partial(EarlyStopping, "loss/val", patience=2)]),
    "separated": partial(rule, "shuffled", source="AND"),
    "cycling": partial(rule, "given", source="XOR", net_seed=0),
    "shuffled averaged": partial(rule, "shuffled", "averaged"),
    "random-mistake best-validation": partial(rule, "random-mistake", "best-validation"),
}


def weights(module):
    return b"".join(value.detach().numpy().tobytes() for value in module.state_dict().values())


def run(folder, kind, epochs, ckpt=None, extra=(), **options):
    """Train; return the module and its Trainer."""
    torch.manual_seed(11)
    module, data, callbacks = KINDS[kind]()
    settings = {"enable_progress_bar": False, "accelerator": "cpu", "picture_every": 0}
    trainer = make_trainer(folder, epochs, callbacks=[*callbacks, *extra], **settings, **options)
    trainer.fit(module, data, ckpt_path=ckpt)
    return module, trainer


class Lines(pl.Callback):
    def on_train_batch_end(self, trainer, *_):
        print(trainer.current_epoch, trainer.global_step, flush=True)


def main(folder, kind, epochs, ckpt=None):
    module, _ = run(folder, kind, int(epochs), ckpt, [Lines()])
    Path(folder, "final.bin").write_bytes(weights(module))


if __name__ == "__main__":
    torch.set_num_threads(1)
    main(*sys.argv[1:])
