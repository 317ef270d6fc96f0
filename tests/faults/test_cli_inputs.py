"""Bad input of the command line: exit code 2 and one line on standard error, never a traceback.

Words are generated from the parsers: every option of every command gets values of every wrong kind; files are missing,
folders, empty, binary, forbidden or of another kind.
"""

import argparse
import random

import harness
import numpy as np
import pytest

import torchperc as tp
from torchperc.cli import entry

pytestmark = pytest.mark.faults
CASES = 150 if harness.WHOLE else 30
COMMANDS = {
    "learn": ["learn", "t.csv", "--out", "run", "--epochs", "2"],
    "apply": ["apply", "m.safetensors", "t.csv", "-o", "out.csv"],
    "tag fit": ["tag", "fit", "t.conll", "--out", "new.m", "--epochs", "2"],
    "tag eval": ["tag", "eval", "tagger.m", "t.conll"],
    "tag apply": ["tag", "apply", "tagger.m", "t.txt", "-o", "out.conll"],
    "export": ["export", "m.safetensors", "--to", "safetensors", "-o", "copy.safetensors"],
    "report": ["report", "run", "--out", "page.html"],
    "separable": ["separable", "t.csv"],
    "crosscheck": ["crosscheck", "t.csv", "--epochs", "2"],
    "xor": ["xor", "--seeds", "2", "--steps", "3", "--out", "xor"],
}
VALUES = ["nan", "inf", "-1", "0", "1e400", "word", "", "-", "\u202e\x1b[31m", "9" * 400, "../../no/such/folder/x", "."]  # fmt: skip
NO_NUMBERS = ("nan", "1e400", "word", "")
FILES = {
    "missing.csv": None,
    "empty.csv": b"",
    "header.csv": b"a,b,c\n",
    "binary.csv": bytes(range(256)) * 4,
    "ragged.csv": b"a,b,y\n1,2,p\n1,2\n3,4,q,5\n",
    "one-class.csv": b"a,b,y\n1,2,p\n3,4,p\n5,6,p\n",
    "one-row.csv": b"a,b,y\n1,2,p\n",
    "nan.csv": b"a,b,y\n1,nan,p\n3,4,q\n",
    "inf.csv": b"a,b,y\n1,inf,p\n3,4,q\n",
    "huge.csv": b"a,b,y\n1,1e999,p\n3,4,q\n",
    "words.csv": b"a,b,y\nx,2,p\n3,y,q\n4,5,q\n6,7,p\n",
    "bad.npy": b"\x93NUMPY\x01\x00 garbage",
    "bad.npz": b"PK\x03\x04 garbage",
    "bad.parquet": b"PAR1 garbage PAR1",
    "bad.svm": b"1 2:x 3:4\n",
    "falling.svm": b"1 3:1 2:4\n-1 1:1\n",
    "bad.csv.gz": b"\x1f\x8b garbage",
    "bad.json": b"{",
    "bad.safetensors": b"\x08\x00\x00\x00\x00\x00\x00\x00{}garbage",
    "latin.csv": "a,b,y\n1,2,é\n3,4,q\n".encode("latin-1"),
    "ragged.conll": b"a A\nb\n\nc C D\n",
    "no-tags.conll": b"a\nb\n\nc\n",
    "latin.conll": "é A\nb B\n".encode("latin-1"),
    "blank.conll": b"\n\n \n",
    "folder.csv": "a folder",
    "forbidden.csv": b"a,b,y\n1,2,p\n3,4,q\n",
}


def prepare(folder):
    rng = np.random.default_rng(0)
    lines = [f"{a:.3f},{b:.3f},{'p' if a > b else 'q'}" for a, b in rng.normal(size=(30, 2))]
    (folder / "t.csv").write_text("a,b,y\n" + "\n".join(lines) + "\n")
    net = tp.Perceptron(2, init="normal", seed=0)
    tp.FittedModel(net, tp.PerceptronHead(), labels=["p", "q"], names=["a", "b"]).save(folder / "m.safetensors")
    sentences = [[("the", "D"), ("dog", "N")], [("a", "D")]]
    tp.sequences.Tagger.fit(sentences, epochs=1).save(folder / "tagger.m")
    (folder / "t.conll").write_text("the D\ndog N\n\na D\n")
    (folder / "t.txt").write_text("The dog.\n")
    for name, content in FILES.items():
        if content == "a folder":
            (folder / name).mkdir()
        elif content is not None:
            (folder / name).write_bytes(content)
    (folder / "forbidden.csv").chmod(0)


def options(name):
    """The options of a command."""
    parser = entry.parser()
    for word in name.split():
        parser = next(found for found in parser._actions if isinstance(found, argparse._SubParsersAction)).choices[word]
    return [action for action in parser._actions if action.option_strings]


def must_fail(words):
    """Whether a command may not take these words, whatever it is: unknown words, and numbers that are none."""
    if words[-1] in ("--no-such-option", "words"):
        return True
    typed = [each for name in COMMANDS for each in options(name) if each.type and each.dest != "separator"]
    numeric = {each.option_strings[-1] for each in typed}
    return words[-1] in NO_NUMBERS and words[-2] in numeric


def option_cases():
    """Every option of every command with every value of a wrong kind."""
    for name, good in COMMANDS.items():
        for action in options(name):
            if not isinstance(action, argparse._HelpAction):
                yield from ([*good, action.option_strings[-1], value] for value in VALUES)
                yield [*good, action.option_strings[-1]]
        if name != "xor":  # which needs no words
            yield name.split()
        yield [*good, "--no-such-option"]
        yield [*good, "too", "many", "words"]


def file_cases():
    """Every file that is not what it should be, wherever a command takes one."""
    for file in FILES:
        for name in ("learn", "apply", "separable", "crosscheck"):
            good = COMMANDS[name]
            yield [file if word == "t.csv" else word for word in good]
        for name in ("apply", "export", "report"):
            yield [file if word in ("m.safetensors", "run") else word for word in COMMANDS[name]]
        for name in ("tag fit", "tag eval", "tag apply"):
            good = COMMANDS[name]
            yield [file if word in ("t.conll", "t.txt") else word for word in good]
            yield [file if word == "tagger.m" else word for word in good]
        yield ["tag", "fit", "t.conll", "--out", "new.m", "--templates", file]
        yield ["fit", "--config", file]
        yield ["test", "--config", "none.yaml", "--ckpt_path", file]


def cases():
    """A draw that never changes: all kinds of file, and options until there are enough."""
    draw = random.Random(0)
    files = draw.sample(list(file_cases()), CASES // 2)
    return files + draw.sample(list(option_cases()), CASES - len(files))


@pytest.mark.filterwarnings("ignore")
def test_bad_command_lines(tmp_path):
    def work(numbered):
        number, words = numbered
        folder = tmp_path / str(number)
        folder.mkdir()
        prepare(folder)
        child = harness.Child(tmp_path / f"{number}-log", harness.command, words, folder)
        code = child.wait()
        outcome, said = harness.outcome_of_command(code, child.said("stderr")), child.said("stderr")[-250:]
        if outcome == harness.RIGHT and must_fail(words):
            outcome = harness.SILENT
        return " ".join(words), outcome, f"exit {code}: {said}"

    assert not harness.faults(harness.side_by_side(work, list(enumerate(cases()))))
