"""A perceptron in your own Lightning script: your data, your loaders, a plain Trainer, and nothing to register.

python experiments/lightning_script.py --head logistic
"""

from __future__ import annotations

import argparse
from pathlib import Path

import pytorch_lightning as pl
import torch
from pytorch_lightning.callbacks import EarlyStopping, ModelCheckpoint
from pytorch_lightning.loggers import TensorBoardLogger
from sklearn.datasets import load_breast_cancer
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import StandardScaler
from torch.utils.data import DataLoader, TensorDataset

import torchperc as tp


def loaders(batch_size: int) -> list[DataLoader]:
    """Breast cancer in three parts, for training, validation and test: 341, 114 and 114 samples."""
    X, y = load_breast_cancer(return_X_y=True)
    y = 2 * y - 1  # labels −1/+1
    X, X_test, y, y_test = train_test_split(X, y, test_size=114, stratify=y, random_state=0)
    X_train, X_val, y_train, y_val = train_test_split(X, y, test_size=114, stratify=y, random_state=0)
    scaler = StandardScaler().fit(X_train)  # mean and deviation of the training part, used for all three
    parts = ((X_train, y_train), (X_val, y_val), (X_test, y_test))
    sets = [TensorDataset(torch.tensor(scaler.transform(X)).float(), torch.tensor(y)) for X, y in parts]
    return [DataLoader(part, batch_size, shuffle=part is sets[0]) for part in sets]


def main(options: argparse.Namespace) -> None:
    pl.seed_everything(0)
    train, val, test = loaders(options.batch_size)
    model = tp.lightning.LitClassifier(tp.Perceptron(30), options.head, lr=options.lr)
    trainer = pl.Trainer(
        accelerator=options.accelerator,
        devices=options.devices,
        precision=options.precision,
        max_epochs=options.epochs,
        log_every_n_steps=1,  # Lightning warns when an epoch has fewer batches than this
        callbacks=[EarlyStopping("loss/val", patience=10), ModelCheckpoint(monitor="error/val", filename="best")],
        logger=TensorBoardLogger(options.folder, name=None, default_hp_metric=False),
    )
    trainer.fit(model, train, val)
    # the weights of the lowest validation error; the file holds tensors and plain types, so no code has to be trusted
    (metrics,) = trainer.test(model, test, ckpt_path="best", weights_only=True, verbose=False)
    if trainer.is_global_zero:
        print(f"test error {100 * metrics['error/test']:.1f} %")
        print(f"curves: tensorboard --logdir {options.folder}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--accelerator", default="auto", help="cpu, gpu, … (%(default)s)")
    parser.add_argument("--devices", type=int, default=1, help="how many of them (%(default)s)")
    parser.add_argument("--precision", default="32-true", help="32-true, 64-true, bf16-mixed, … (%(default)s)")
    parser.add_argument("--epochs", type=int, default=100, help="at most (%(default)s)")
    parser.add_argument("--batch-size", type=int, default=32, help="samples per step (%(default)s)")
    parser.add_argument("--lr", type=float, default=0.1, help="learning rate of SGD (%(default)s)")
    parser.add_argument("--head", choices=("perceptron", "lms", "logistic"), default="logistic", help="(%(default)s)")
    parser.add_argument("--folder", type=Path, default=Path("runs/lightning-script"), help="(%(default)s)")
    main(parser.parse_args())
