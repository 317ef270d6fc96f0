"""Taggers: from a file to a model, from plain text to tags, and the memory for all of Brown."""

from __future__ import annotations

import atexit
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from benchmarks import tag_peers, tagged
from benchmarks.timing import Comparison, Contender, Finding, Goal
from torchperc.sequences import files
from torchperc.sequences.tagger import Tagger

BROWN: list[Path] = []
"""Where the Brown corpus is, if ``--brown`` says so; else sentences are generated."""
_EPOCHS = 5
_MEMORY = 1500  # MB that learning from all of Brown may take


def tag(quick: bool) -> Iterator[Comparison]:
    """Taggers against python-crfsuite and NLTK, from a file and from plain text."""
    folder = Path(tempfile.mkdtemp())
    atexit.register(shutil.rmtree, folder, ignore_errors=True)  # comparisons may be kept and run later
    source = BROWN[0] if BROWN else None
    split = tagged.split(source, quick)
    train = folder / "train.conll"
    tagged.write_conll(train, split.train)
    tokens = [sum(map(len, part)) for part in (split.train, split.held)]
    title = f"{split.name}: learn from {tokens[0]:,} tokens, {_EPOCHS} epochs"
    yield _learning(title, split, train, folder, tokens[0], quick)
    yield _tagging(f"{split.name}: tag {tokens[1]:,} tokens of plain text", split, train, folder, tokens[1])
    if source is not None and not quick:
        yield _memory(source, folder)


def _ours(train: Path, model: Path) -> Callable[[], Path]:
    """From a file to a file, as ``torchperc tag fit`` does."""

    def call() -> Path:
        Tagger.fit(files.read(train), epochs=_EPOCHS).save(model)
        return model

    return call


def _text_of(model: Path, text: str) -> Callable[[], list[str]]:
    """Plain text to tags, after the model is loaded."""
    tagger = Tagger.load(model)
    return lambda: [tag for sentence in tagger.tag(text) for _, tag in sentence]


def _accuracy(found: list[str], true: list[str]) -> float:
    return sum(a == b for a, b in zip(found, true, strict=True)) / len(true)


def _learning(title: str, split: tagged.Split, train: Path, folder: Path, tokens: int, quick: bool) -> Comparison:
    text, true = split.text(), split.tags()
    crf, nltk = folder / "crf.model", tag_peers.nltk_fit(train, _EPOCHS)
    contenders = [
        Contender("Tagger.fit", _ours(train, folder / "ours.safetensors"), tokens),
        Contender(
            "python-crfsuite, ap",
            tag_peers.crfsuite_fit(train, crf, _EPOCHS),
            tokens,
            Goal("at least", 2),
            needs="pycrfsuite",
        ),
        Contender("NLTK PerceptronTagger", nltk, tokens, Goal("at least", 10), needs="nltk"),
    ]

    def check(results: Mapping[str, Any]) -> dict[str, Finding]:
        found = {name: _accuracy(_tags(name, made, text), true) for name, made in results.items()}
        ours = found["Tagger.fit"]
        least = found.get("NLTK PerceptronTagger", 0.0)
        findings = {name: Finding(None, f"accuracy {100 * value:.2f} %") for name, value in found.items()}
        return {**findings, "Tagger.fit": Finding(quick or ours >= least, f"accuracy {100 * ours:.2f} %")}

    return Comparison(title, contenders, check)


def _tags(name: str, made: Any, text: str) -> list[str]:
    """The tags by what a contender learned."""
    if name == "Tagger.fit":
        return _text_of(made, text)()
    return (tag_peers.crfsuite_tag(made) if "crfsuite" in name else tag_peers.nltk_tag(made))(text)


def _tagging(title: str, split: tagged.Split, train: Path, folder: Path, tokens: int) -> Comparison:
    text, true = split.text(), split.tags()
    model = _ours(train, folder / "ours.safetensors")()
    words = [line.split() for line in text.splitlines()]
    expected = [tag for tags in Tagger.load(model).apply(words) for tag in tags]

    @cache
    def crfsuite() -> tag_peers.Tag:
        return tag_peers.crfsuite_tag(tag_peers.crfsuite_fit(train, folder / "crf.model", _EPOCHS)())

    @cache
    def nltk() -> tag_peers.Tag:
        return tag_peers.nltk_tag(tag_peers.nltk_fit(train, _EPOCHS)())

    contenders = [
        Contender("Tagger, plain text to tags", _text_of(model, text), tokens),
        Contender("python-crfsuite", lambda: crfsuite()(text), tokens, Goal("at least", 3), needs="pycrfsuite"),
        Contender("NLTK PerceptronTagger", lambda: nltk()(text), tokens, Goal("at least", 15), needs="nltk"),
    ]
    for contender, make in zip(contenders[1:], (crfsuite, nltk), strict=True):
        if contender.missing is None:
            make()  # before the clock starts

    def check(results: Mapping[str, list[str]]) -> dict[str, Finding]:
        accuracies = {name: 100 * _accuracy(found, true) for name, found in results.items()}
        found = {name: Finding(None, f"accuracy {value:.2f} %") for name, value in accuracies.items()}
        ours = contenders[0].name
        return {**found, ours: Finding(results[ours] == expected, found[ours].text)}

    return Comparison(title, contenders, check)


def _memory(source: Path, folder: Path) -> Comparison:
    """Learning from all of Brown in a process of its own, and how much memory that takes at most."""
    path = folder / "brown.conll"
    sentences = tagged.whole(source)
    tagged.write_conll(path, sentences)
    tokens = sum(map(len, sentences))
    del sentences

    def check(results: Mapping[str, int]) -> dict[str, Finding]:
        return {name: Finding(peak < _MEMORY, f"peak memory {peak:,} MB") for name, peak in results.items()}

    call = _peak(f"Tagger.fit(files.read({str(path)!r}), epochs={_EPOCHS}).save({str(folder / 'brown.m')!r})")
    return Comparison(f"all of Brown, {tokens:,} tokens", [Contender("from file to file", call, tokens)], check)


def _peak(statement: str) -> Callable[[], int]:
    code = (
        "import resource\n"
        "from torchperc.sequences import files\n"
        "from torchperc.sequences.tagger import Tagger\n"
        f"{statement}\n"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024)\n"
    )
    path = os.pathsep.join([str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", "")])

    def call() -> int:
        environment = {**os.environ, "PYTHONPATH": path.rstrip(os.pathsep)}
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
        return int(done.stdout)

    return call
