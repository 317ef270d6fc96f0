"""Handwritten letters, one by one and as words
============================================

Handwritten letters read one by one, and as words: what the weights between neighbouring letters are worth.

    python experiments/ocr_letters.py letter.data.gz

The file is that of Taskar, Guestrin and Koller (2003), 52,152 letters of 6,877 words in ten folds: one letter a line,
separated by tabs: its number, the letter, the number of the next one or −1, the word's number, the position, the fold,
and 16 × 8 pixels. Without a file, words of generated letters are read. Averaged weights; nothing is tuned.
"""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from _common import BLUE, GREEN, ORANGE, RED, by_rule, command_line, fit, picture, save, show
from matplotlib.figure import Figure

import torchperc as tp

FOLDER = Path("runs/ocr_letters")
PIXELS = 128
LETTERS = "abcdefghijklmnopqrstuvwxyz"
SPELLED = """
about above across after again always animal another answer because before behind between bottle bread bridge
brother candle castle change children circle cloud coffee country dance daughter doctor dream earth evening family
father finger flower forest friend garden green happy height house island jacket journey kitchen knife language
laugh letter light listen machine market middle morning mountain music needle night number ocean orange paper pepper
picture planet quarter question quiet rabbit reason river school season shadow silver sister sleep soldier square
station stone street summer table teacher tower travel under valley village voice water weather window winter wonder
world yellow young zebra expect taxi mixture
""".split()  # noqa: SIM905
EPOCHS = 20


class Words(NamedTuple):
    """Letters of words, of which the last feature is always 1, and the tags of all letters."""

    X: tp.sequences.Sequences
    y: np.ndarray

    @classmethod
    def of(cls, pixels: np.ndarray, y: np.ndarray, lengths: list[int]) -> Words:
        dense = np.concatenate((pixels, np.ones((len(pixels), 1), np.float32)), 1)
        return cls(tp.sequences.Sequences.of(np.split(dense, np.cumsum(lengths)[:-1])), y)

    @property
    def pixels(self) -> torch.Tensor:
        """(letters, 128), without the feature that is always 1."""
        x, lengths = self.X.padded()
        return x[torch.arange(x.shape[1]) < lengths[:, None], :-1]


def main(folder: Path = FOLDER, quick: bool = False, source: str | None = None) -> dict[str, float]:
    figures, curves, rows = {}, {}, []
    for name, train, test in parts(source, quick):
        for way, made in {"letters": letters_alone(train, test), "words": words_whole(train, test)}.items():
            epochs, (net, data) = 3 if quick else EPOCHS, made
            curve = learn(folder / f"{name}-{way}".replace(" ", "-"), net, data, epochs)
            figures[f"{name}, {way}"] = error = curve[-1]
            curves[f"{name}, {way}"] = curve
            rows.append((name, way, len(train.y if way == "letters" else train.X), epochs, f"{error:.1f}"))
        said = net.predict(test.X)
        figures[f"{name}, words, last epoch"] = 100 * float((np.concatenate(said) != test.y).mean())
    letters = list(LETTERS)
    save(folder, transitions=tp.plots.TransitionDisplay.from_model(net, labels=letters).figure_)
    title = "wrong letters of the test set in %, averaged weights"
    show(folder, chart(curves), title, ("trained on", "read as", "letters or words", "epochs", "error (%)"), rows)
    return figures


def parts(source: str | None, quick: bool) -> list[tuple[str, Words, Words]]:
    """Names, training words and test words."""
    if source is None:
        few = ("generated", words_of(150 if quick else 600, seed=0), words_of(60 if quick else 1000, seed=1))
        return [few]
    words, folds = read_letters(source)
    first = np.array(folds) == 0
    if first.all() or not first.any():
        raise ValueError(f"{source} has no fold 0 beside other folds; give the whole file")
    one, nine = some(words, first), some(words, ~first)
    return [("fold 0", one, nine), ("folds 1 to 9", nine, one)]


def words_of(count: int, seed: int) -> Words:
    """Made-up words: a letter is one of 26 patterns of pixels, of which a third is turned round."""
    patterns, draw = np.random.default_rng(0).random((26, PIXELS)) < 0.5, np.random.default_rng([1, seed])
    words = [[LETTERS.index(letter) for letter in word] for word in draw.choice(SPELLED, count)]
    y = np.concatenate(words)
    pixels = patterns[y] ^ (draw.random((len(y), PIXELS)) < 0.36)
    return Words.of(pixels.astype(np.float32), y, [len(word) for word in words])


def some(words: Words, index: np.ndarray) -> Words:
    letters = np.repeat(index, words.X.lengths)
    return Words.of(words.pixels.numpy()[letters], words.y[letters], words.X.lengths[index].tolist())


def letters_alone(train: Words, test: Words) -> tuple[torch.nn.Module, tuple[Any, Any]]:
    """A perceptron of 26 classes, which has a bias of its own, and the letters of all words."""
    loaders = (tp.lightning.SliceLoader(words.pixels, torch.from_numpy(words.y)) for words in (train, test))
    return tp.MulticlassPerceptron(train.X.n_features - 1, len(LETTERS)), tuple(loaders)


def words_whole(train: Words, test: Words) -> tuple[torch.nn.Module, Any]:
    """A perceptron over the letters of a word, and the words."""
    return tp.sequences.ChainPerceptron(train.X.n_features, len(LETTERS)), (train, test)


def read_letters(path: str) -> tuple[Words, list[int]]:
    """Words and their folds."""
    opened = gzip.open if str(path).endswith(".gz") else open
    X, y, folds, lengths, begins = [], [], [], [], True
    with opened(path, "rt", encoding="ascii") as lines:
        for number, line in enumerate(lines, 1):
            cells = line.rstrip("\n").rstrip("\t").split("\t")
            try:
                letter, following, fold = LETTERS.index(cells[1]), int(cells[2]), int(cells[5])
                pixels = np.array(cells[6:], np.float32)
                if len(pixels) != PIXELS or not np.isin(pixels, (0, 1)).all():
                    raise ValueError(f"{len(pixels)} pixels")
            except (IndexError, ValueError):
                raise ValueError(
                    f"{path}, line {number}: found {line[:40]!r}…; a line has number, letter, next, word, position, "
                    f"fold and {PIXELS} pixels of 0 and 1, separated by tabs"
                ) from None
            if begins:
                folds.append(fold)
                lengths.append(0)
            X.append(pixels)
            y.append(letter)
            lengths[-1] += 1
            begins = following == -1
    if not X:
        raise ValueError(f"{path} is empty; give the file letter.data")
    return Words.of(np.stack(X), np.array(y), lengths), folds


def learn(folder: Path, net: torch.nn.Module, data: Any, epochs: int) -> list[float]:
    """By rule, in a new order every epoch; the test error in % of the averaged weights after each epoch."""
    if isinstance(net, tp.sequences.ChainPerceptron):
        return by_rule(tp.RuleTrainer(epochs, order="shuffled", select="averaged"), net, *data)[1]
    lit = tp.lightning.LitRule(net, order="shuffled", select="averaged")
    return [100 * value for value in fit(lit, data, folder, epochs)["error/val"]]


def chart(curves: dict[str, list[float]]) -> Figure:
    figure = picture()
    axes = figure.add_subplot()
    looks = zip((ORANGE, BLUE, RED, GREEN), ("o", "s", "^", "D"), ("--", "-", "--", "-"), strict=True)
    for (name, curve), (colour, marker, dashes) in zip(curves.items(), looks, strict=False):
        epochs = range(1, len(curve) + 1)
        axes.plot(epochs, curve, dashes, color=colour, marker=marker, markersize=5, label=f"{name}: {curve[-1]:.1f} %")
    axes.set(xlabel="epoch", ylabel="wrong letters of the test set (%)", ylim=(0, None))
    axes.xaxis.get_major_locator().set_params(integer=True)
    axes.set_title("Letters read one by one and as words, averaged weights")
    axes.grid(alpha=0.3)
    figure.legend(loc="outside lower center", ncols=2)
    return figure


if __name__ == "__main__":
    command_line(main, FOLDER, __doc__, "letter.data or letter.data.gz (generated letters without)")
