"""A perceptron in your own Lightning script: python experiments/lightning_script.py --head lms --accelerator gpu"""

import argparse

import pytorch_lightning as pl
import torch
from pytorch_lightning.callbacks import EarlyStopping, ModelCheckpoint
from pytorch_lightning.loggers import TensorBoardLogger
from sklearn.datasets import load_breast_cancer
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import StandardScaler
from torch.utils.data import DataLoader, TensorDataset

import torchperc as tp

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.ArgumentDefaultsHelpFormatter)
parser.add_argument("--head", choices=("perceptron", "lms", "logistic"), default="logistic", help="loss and decision")
parser.add_argument("--lr", type=float, default=0.1, help="learning rate of SGD")
parser.add_argument("--batch-size", type=int, default=32, help="samples per step")
parser.add_argument("--epochs", type=int, default=100, help="at most")
parser.add_argument("--accelerator", default="auto", help="cpu, gpu, ...")
parser.add_argument("--devices", type=int, default=1, help="how many of them")
parser.add_argument("--precision", default="32-true", help="32-true, 64-true, bf16-mixed, ...")
parser.add_argument(
    "--out", "--folder", dest="folder", default="runs/lightning-script", help="for checkpoints and event files"
)


def main(options: argparse.Namespace) -> None:
    pl.seed_everything(0)
    X, y = load_breast_cancer(return_X_y=True)
    X, X_test, y, y_test = train_test_split(X, 2 * y - 1, test_size=114, stratify=y, random_state=0)  # labels −1/+1
    X, X_val, y, y_val = train_test_split(X, y, test_size=114, stratify=y, random_state=0)
    scale = StandardScaler().fit(X).transform  # by the training set alone
    sets = [
        TensorDataset(torch.tensor(scale(x)).float(), torch.tensor(t))
        for x, t in ((X, y), (X_val, y_val), (X_test, y_test))
    ]
    train, val, test = (DataLoader(part, options.batch_size, shuffle=part is sets[0]) for part in sets)

    model = tp.lightning.LitClassifier(tp.Perceptron(30), options.head, lr=options.lr)
    trainer = pl.Trainer(
        accelerator=options.accelerator, devices=options.devices, precision=options.precision,
        max_epochs=options.epochs, log_every_n_steps=1,
        logger=TensorBoardLogger(options.folder, name=None, default_hp_metric=False),
        callbacks=[
            EarlyStopping("loss/val", patience=10),
            ModelCheckpoint(monitor="error/val", filename="best"),
            tp.lightning.Board(),  # curves over epochs, train beside validation
        ],
    )  # fmt: skip
    trainer.fit(model, train, val)
    trainer.test(model, test, ckpt_path="best")
    print(f"curves: tensorboard --logdir {options.folder}")


if __name__ == "__main__":
    main(parser.parse_args())
