"""Data sets by name: gates, synthetic data, scikit-learn's five small classics, tagged sentences; and files."""

from __future__ import annotations

import inspect
import itertools
import math
from collections.abc import Callable
from functools import partial
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import lazy_loader

from torchperc._checks import Option, ParameterError, check_int, check_number, require_packages
from torchperc.data.read import is_frame, read
from torchperc.data.table_files import TASKS, ReadOptions, format_by_name, is_pattern

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from torchperc.data.datasets import Dataset
else:
    torch = lazy_loader.load("torch")  # a bad file is refused before torch is imported

_GATES = {"AND": "0001", "OR": "0111", "NAND": "1110", "NOR": "1000", "XOR": "0110", "XNOR": "1001"}
GATES = (*_GATES, "parity-n")


def gate(name: str, *, dtype: torch.dtype | None = None) -> tuple[Tensor, Tensor]:
    """Inputs 0/1 (2ⁿ, n) in counting order and labels −1/+1 (2ⁿ,) of a Boolean function.

    Args:
        name: AND, OR, NAND, NOR, XOR or XNOR of two inputs, or ``parity-n`` (such as ``parity-3``) of n inputs, +1
            where an odd number of them is 1. Upper or lower case.
        dtype: of the inputs; torch's default type if ``None``.

    Example:
        >>> X, y = gate("AND")
        >>> X.tolist(), y.tolist()
        ([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]], [-1, -1, -1, 1])
        >>> gate("parity-3")[1].tolist()
        [-1, 1, 1, -1, 1, -1, -1, 1]
    """
    if not is_gate(name):
        raise ValueError(f"name={name!r} is not a gate; choose one of {', '.join(GATES)} with n from 1 to 16")
    if dtype is not None and not isinstance(dtype, torch.dtype):
        raise TypeError(f"dtype must be a torch type such as torch.float64, found {dtype!r}")
    truth = _GATES.get(name.upper())
    rows = torch.tensor([*itertools.product((0, 1), repeat=2 if truth else int(name[7:]))])
    labels = torch.tensor([*map(int, truth)]) if truth else rows.sum(1) % 2
    return rows.to(dtype or torch.get_default_dtype()), 2 * labels - 1


def is_gate(name: str) -> bool:
    """Whether :func:`gate` knows the name."""
    return isinstance(name, str) and (name.upper() in _GATES or name.lower() in (f"parity-{n}" for n in range(1, 17)))


def separable_blobs(samples: int = 200, features: int = 2, margin: float = 0.5, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Two Gaussian blobs X (N, d) whose largest possible margin is known: ``margin``, up to rounding.

    Around a random hyperplane with unit normal u through p, each blob is moved until its point
    nearest to the plane stands at p ± margin·u: these two face each other 2·margin apart, so no other hyperplane
    separates by more. Half of the ``samples`` are in each class, the odd one in +1.

    Example:
        >>> X, y = separable_blobs(101, margin=2.0)
        >>> X.shape, y.sum().item()
        (torch.Size([101, 2]), 1)
    """
    y, margin = _labels(samples), check_number("margin", margin, above=0)
    generator, shape = _generator(seed), (2, check_int("features", features, at_least=1))
    direction, foot = torch.randn(shape, generator=generator, dtype=torch.float64)
    direction = direction / direction.norm()
    X = torch.randn(len(y), features, generator=generator, dtype=torch.float64)
    for sign in (-1, 1):
        blob = X[y == sign]
        nearest = blob[(sign * blob @ direction).argmin()]
        X[y == sign] = blob - nearest + (foot + sign * margin * direction)
    order = torch.randperm(len(y), generator=generator)
    return X[order], y[order]


def noisy_blobs(samples: int = 200, features: int = 2, noise: float = 0.1, seed: int = 0) -> tuple[Tensor, Tensor]:
    """The samples of :func:`separable_blobs` with margin 0.5, a known number of them with the wrong label.

    In each class round(noise·N/2) labels, drawn at random, are turned round (``noise`` is from 0 to 0.5). So the
    classes keep their sizes.

    Example:
        >>> (noisy_blobs(200, noise=0.1, seed=3)[1] != separable_blobs(200, seed=3)[1]).sum().item()
        20
    """
    if check_number("noise", noise, at_least=0) > 0.5:
        raise ParameterError(Option("noise", noise), " must be at most 0.5; it is a fraction")
    X, y = separable_blobs(samples, features, seed=seed)
    order = torch.rand(len(y), generator=_generator(seed)).argsort()
    turned = torch.cat([order[y[order] == sign][: round(noise * len(y) / 2)] for sign in (-1, 1)])
    y[turned] = -y[turned]
    return X, y


def moons(samples: int = 200, noise: float = 0.1, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Two interleaving half circles: no line separates them, but a small net does.

    For t from 0 to π, (cos t, sin t) is −1 and (1 − cos t, ½ − sin t) is +1, each with Gaussian noise of the standard
    deviation ``noise``.

    Example:
        >>> X, y = moons(4, noise=0)
        >>> sorted(zip(X.round(decimals=6).abs().tolist(), y.tolist()))
        [([0.0, 0.5], 1), ([1.0, 0.0], -1), ([1.0, 0.0], -1), ([2.0, 0.5], 1)]
    """
    y = _labels(samples)
    t = torch.cat([torch.linspace(0, math.pi, int((y == sign).sum()), dtype=torch.float64) for sign in (-1, 1)])
    X = torch.stack([t.cos(), t.sin()], dim=1)
    X[y == 1] = torch.tensor([1, 0.5]) - X[y == 1]
    noise, generator = check_number("noise", noise, at_least=0), _generator(seed)
    X += noise * torch.randn(X.shape, generator=generator, dtype=X.dtype)
    order = torch.randperm(len(y), generator=generator)
    return X[order], y[order]


def _labels(samples: int) -> Tensor:
    """The −1 first, then the +1, one more of them if N is odd."""
    samples = check_int("samples", samples, at_least=2)
    return torch.where(torch.arange(samples) < samples // 2, -1, 1)


def _generator(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(check_int("seed", seed, at_least=0))


_SYNTHETIC: dict[str, Callable[..., tuple[Tensor, Tensor]]] = {
    "separable-blobs": separable_blobs,
    "noisy-blobs": noisy_blobs,
    "moons": moons,
}
_CLASSICS = ("iris", "wine", "breast-cancer", "digits", "diabetes")
SOURCES = (*GATES, *_SYNTHETIC, *_CLASSICS)
_OPTIONS = {name: list(inspect.signature(make).parameters) for name, make in _SYNTHETIC.items()}
_OPTIONS |= {name: ["positive"] for name in _CLASSICS}


def _classic(name: str, positive: str | None = None) -> Dataset:
    """A data set that scikit-learn brings; diabetes with its features as they were measured."""
    require_packages(f"the data set {name!r}", "sklearn")
    from sklearn import datasets

    from torchperc.data.datasets import Dataset

    about: dict[str, Any] = {"name": name, "image_shape": (8, 8) if name == "digits" else None}
    if name == "diabetes":
        found = datasets.load_diabetes(scaled=False)
        about |= {"task": "regression", "target": "progression"}
    else:
        found = getattr(datasets, f"load_{name.replace('-', '_')}")()
        found.target = found.target_names.astype(str)[found.target]
    made = Dataset.of(found.data, found.target, names=found.feature_names, **about)
    return made if positive is None else made.against_rest(positive)


def _generated(name: str, **options: Any) -> Dataset:
    """A gate, or synthetic data."""
    from torchperc.data.datasets import Dataset

    X, y = _SYNTHETIC[name](**options) if name in _SYNTHETIC else gate(name, dtype=torch.float64)
    return Dataset(X, y, ("-1", "+1"), tuple(f"x{j + 1}" for j in range(X.shape[1])), name=name)


def load(source: Any, **options: Any) -> Dataset:
    """Return a data set by name, or from files.

    Args:
        source: one of ``SOURCES`` (with a number for the n of ``parity-n``), or the path of a file: any ``Path``, or a
            string that is no such name; a pattern such as ``data/part-*.parquet``, a list of files, or a pandas
            ``DataFrame``. A :class:`~torchperc.data.Dataset` is returned as it is.
        options: of the source: the arguments of the function that makes synthetic data (``samples``, ``seed``, …) or of
            :func:`~torchperc.data.read`; scikit-learn's sets accept ``positive``, a label to be +1 against the rest.
            Each accepts ``task``: ``"regression"`` is that of ``"diabetes"`` and of files with a target of numbers.

    Example:
        >>> load("AND").y.tolist()
        [-1, -1, -1, 1]
        >>> load("moons", samples=10, noise=0).X.shape
        torch.Size([10, 2])
        >>> iris = load("iris")
        >>> iris.classes, iris.decode(iris.y[[0, 149]])
        (3, ['setosa', 'virginica'])
        >>> load("iris", positive="setosa").labels
        ('not setosa', 'setosa')
        >>> load("diabetes").task, load("diabetes").y[:3].tolist()
        ('regression', [151.0, 75.0, 141.0])
    """
    name, make = source if isinstance(source, str) else "", partial[Any](read, source)
    known = ["target", *inspect.signature(ReadOptions).parameters]
    if hasattr(source, "against_rest"):
        make, known = partial(lambda: source), []
    elif name in _OPTIONS or is_gate(name):
        task, own = options.pop("task", None), TASKS[name == "diabetes"]
        if task not in (None, own):
            why = f" is not possible with source {name!r}, which is for {own}; leave it out"
            raise ParameterError(Option("task", task), why)
        make, known = partial(_classic if name in _CLASSICS else _generated, name), _OPTIONS.get(name, [])
    elif not isinstance(source, str | Path | list | tuple) and not is_frame(source):
        raise TypeError(f"source must be a name, a path or a data frame, found {type(source).__name__} {source!r}")
    elif name and not (format_by_name(name) or is_pattern(name) or Path(name).is_file()):
        choice = f"is unknown; choose one of {', '.join(SOURCES)}"
        what = "is a folder; name a table in it" if Path(name).is_dir() else choice
        raise ValueError(f"source={name!r} {what}, or the path of a file (.csv, .tsv, .parquet, .svm, .npy, .npz, …)")
    if strange := [option for option in options if option not in known]:
        why = f" is not an option of source {name or type(source).__name__!r}; it takes {', '.join(known) or 'none'}"
        raise ParameterError(Option(strange[0], options[strange[0]]), why)
    return make(**options)


_BOTH = "play walk watch run cook paint park book visit light"  # nouns and verbs
_GRAMMAR = {  # tags that follow a tag, each as often as it is named; its words; endings of its coined words
    "": ("DET DET DET PRON ADJ NOUN", "", ""),
    "DET": ("NOUN NOUN ADJ", "the the a every that this her", ""),
    "ADJ": ("NOUN NOUN NOUN ADJ", "old happy small red cold open light fast hard", "ous ful ed er"),
    "NOUN": ("VERB VERB PUNCT PREP ADV", f"{_BOTH} dog tree river house cold", "ness tion er s ing"),
    "VERB": ("DET DET PREP PUNCT ADV PRON NOUN", f"{_BOTH} see find keep open", "ize ed s ing"),
    "ADV": ("PUNCT PUNCT VERB DET PREP", "fast hard often never here over near", "ly ly er"),
    "PREP": ("DET DET DET PRON ADJ NOUN", "over near in on with under", ""),
    "PRON": ("VERB VERB VERB ADV PUNCT", "that this her she he it they", ""),
    "PUNCT": ("", ".", ""),
}
_STEM = ("bdfgklmnprtv", "aeiou", "bdfgklmnprtv", "aeiou", "bdfgklmnprtv")  # letters of a coined word, each one of


def tagged_sentences(sentences: int = 1000, seed: int = 0) -> list[list[tuple[str, str]]]:
    """Sentences of a small grammar, each a list of (word, tag).

    Tags follow one another as a Markov chain, and each tag draws a word of its own list. Many words are on several
    lists (*play* is a noun or a verb), so that the tags around them decide. One in ten adjectives, adverbs, nouns and
    verbs is coined: a stem and a suffix such as *-ness* or *-ed*, which says which tags are possible; nearly all of
    these are unknown in a test set of another seed.

    Example:
        >>> print(" ".join(f"{word}/{tag}" for word, tag in tagged_sentences(1, seed=9)[0]))
        he/PRON cook/VERB poraling/NOUN mevovly/ADV ./PUNCT
    """
    random, made = Random(check_int("seed", seed, at_least=0)), list[list[tuple[str, str]]]()
    for _ in range(check_int("sentences", sentences, at_least=1)):
        tag = ""
        made.append([])
        while tag != "PUNCT":
            tag = random.choice(_GRAMMAR[tag][0].split())
            _, words, endings = map(str.split, _GRAMMAR[tag])
            word = random.choice(words)
            if endings and random.random() < 0.1:
                word = "".join(map(random.choice, (*_STEM, endings)))
            made[-1].append((word, tag))
    return made
