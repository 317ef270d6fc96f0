"""Other taggers, called as their users call them: from a file of word and tag to a model, from text to tags."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

from benchmarks.tagged import read_conll

Tag = Callable[[str], list[str]]
"""From plain text, a sentence per line with words between blanks, to tags."""


def features(words: list[str], place: int) -> list[str]:
    """The features of a word as the tutorials of python-crfsuite write them, with affixes and neighbours.

    Example:
        >>> features(["The", "dog"], 0)[:4]
        ['bias', 'word=The', 'lower=the', 'suffix3=The']
    """
    word = words[place]
    found = [
        "bias",
        f"word={word}",
        f"lower={word.lower()}",
        f"suffix3={word[-3:]}",
        f"suffix2={word[-2:]}",
        f"suffix1={word[-1:]}",
        f"prefix1={word[:1]}",
        f"prefix2={word[:2]}",
        f"prefix3={word[:3]}",
        f"upper={word.isupper()}",
        f"title={word.istitle()}",
        f"digit={word.isdigit()}",
        f"hyphen={'-' in word}",
    ]
    if place > 0:
        before = words[place - 1]
        found += [f"-1:lower={before.lower()}", f"-1:suffix3={before[-3:]}", f"-1:title={before.istitle()}"]
        found.append(f"-1:0={before.lower()}|{word.lower()}")
    else:
        found.append("BOS")
    if place > 1:
        found.append(f"-2:lower={words[place - 2].lower()}")
    if place < len(words) - 1:
        after = words[place + 1]
        found += [f"+1:lower={after.lower()}", f"+1:suffix3={after[-3:]}", f"+1:title={after.istitle()}"]
    else:
        found.append("EOS")
    if place < len(words) - 2:
        found.append(f"+2:lower={words[place + 2].lower()}")
    return found


def crfsuite_fit(path: Path, model: Path, epochs: int) -> Callable[[], Path]:
    """python-crfsuite by its averaged perceptron, feature extraction in Python included."""

    def call() -> Path:
        trainer = import_module("pycrfsuite").Trainer(algorithm="ap", verbose=False)
        trainer.set_params({"max_iterations": epochs, "epsilon": 0.0})
        for sentence in read_conll(path):
            words = [word for word, _ in sentence]
            trainer.append([features(words, place) for place in range(len(words))], [tag for _, tag in sentence])
        trainer.train(str(model))
        return model

    return call


def crfsuite_tag(model: Path) -> Tag:
    """Its tagger."""
    tagger = import_module("pycrfsuite").Tagger()
    tagger.open(str(model))

    def tag(text: str) -> list[str]:
        found = []
        for line in text.splitlines():
            words = line.split()
            found += tagger.tag([features(words, place) for place in range(len(words))])
        return found

    return tag


def nltk_fit(path: Path, epochs: int) -> Callable[[], Any]:
    """NLTK's averaged perceptron tagger."""

    def call() -> Any:
        tagger = import_module("nltk.tag.perceptron").PerceptronTagger(load=False)
        tagger.train(read_conll(path), nr_iter=epochs)
        return tagger

    return call


def nltk_tag(tagger: Any) -> Tag:
    """The tagger, given words between blanks."""

    def tag(text: str) -> list[str]:
        return [found for line in text.splitlines() for _, found in tagger.tag(line.split())]

    return tag
