"""``torchperc play``: a page to play with, the perceptron rule step by step, in the browser."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from torchperc.cli import inputs


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the command."""
    parser.description = (
        "Writes one self-contained HTML page and opens it in the browser: put down points, step through the mistakes "
        "of the perceptron rule, switch conventions, see the proof, the gradient and a two-layer net. It needs no "
        "network and sends nothing."
    )
    parser.add_argument("--out", metavar="FILE", help="write the page to this file, and open nothing")
    data = f"begin with these points: {inputs.FORMATS}; or AND, XOR, iris, …; two features, up to four classes"
    parser.add_argument("--data", metavar="FILE", help=data)
    log = "replay a recorded run: a log that MistakeLog.save wrote (.npz, with --data for its data) or JSON"
    parser.add_argument("--log", metavar="FILE", help=log)
    two = "the two features to be shown, by name or position from 1, where there are more"
    parser.add_argument("--features", nargs=2, metavar=("A", "B"), help=two)
    parser.add_argument("--samples", type=int, metavar="N", help="draw so many samples at random")
    inputs.add_arguments(parser)


def run(arguments: argparse.Namespace) -> None:
    """Write the page, and open it unless it was to be written somewhere."""
    from torchperc.lab.play.page import Play

    _check(arguments)
    out = None if arguments.out is None else inputs.output_file(arguments.out)
    page = Play(_content(arguments))
    inputs.say(f"the page: {page.open() if out is None else page.save(out)}")


def _check(arguments: argparse.Namespace) -> None:
    """Refuse options that would have no effect, and files that are none."""
    if arguments.log is not None and not Path(arguments.log).is_file():
        found = "a folder" if Path(arguments.log).is_dir() else "no file"
        remedy = 'name the log itself, such as run.npz, which result.log.save("run.npz") writes'
        raise ValueError(f"--log {arguments.log} is {found}; {remedy}")
    given = inputs.options(arguments)
    if arguments.data is None and given:
        raise ValueError(f"--{next(iter(given)).replace('_', '-')} is about a file of samples; name it by --data FILE")
    if arguments.data is None and arguments.log is None and arguments.features is not None:
        raise ValueError("--features chooses features of data; name them by --data FILE or --log FILE")
    if arguments.data is None and arguments.log is not None and Path(arguments.log).suffix.lower() != ".json":
        raise ValueError(f"{arguments.log} holds no data; name the file that it was made on by --data FILE")
    if arguments.samples is not None and (arguments.data is None or arguments.log is not None):
        raise ValueError(
            f"--samples {arguments.samples} draws from --data FILE; a log is replayed with all of its samples"
        )


def _content(arguments: argparse.Namespace) -> dict[str, Any]:
    if arguments.data is None and arguments.log is None:  # torch is not needed
        from torchperc.lab.play.page import content

        return content()
    from torchperc.lab.play import data

    table = None if arguments.data is None else inputs.load(arguments)
    if arguments.log is not None:
        log, told = data.load_log(Path(arguments.log), table)
        return data.content_of_log(log, table=table, features=arguments.features, **told)
    assert table is not None
    return data.content_of_data(table, features=arguments.features, samples=arguments.samples)
