"""``torchperc play``: a page to play with, the perceptron rule step by step, in the browser."""

from __future__ import annotations

import argparse
import json
import shlex
import tempfile
import webbrowser
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
    parser.add_argument("--out", metavar="FILE", help="write the page there and open nothing")


def run(arguments: argparse.Namespace) -> None:
    """Write the page, and open it unless it has a place of its own."""
    from torchperc.lab.play.page import make_page

    html = make_page()
    if arguments.out is not None:
        from torchperc._atomic import write_whole

        path = inputs.output_file(arguments.out)
        write_whole(path, html.encode())
        inputs.say(f"the page: {path}")
