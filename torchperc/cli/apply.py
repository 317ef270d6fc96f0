"""``torchperc apply``: labels and scores, or numbers, for new data by the model of a run, one block at a time."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from torchperc.cli import inputs
from torchperc.reports.text import plural, visible

OPTIONS = {"missing": "missing"}  # of torchperc learn
_SUFFIXES = (".csv", ".csv.gz", ".tsv", ".tsv.gz", ".parquet")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the command."""
    parser.description = (
        "Writes a label and its scores, or the predicted number, for every row of a file, in the order of the rows. "
        "Columns are found by name; unknown ones are ignored. If the target is there, too, the error is counted."
    )
    parser.add_argument("run", metavar="RUN", help="the folder of a run, or its weights.safetensors")
    parser.add_argument("data", nargs="+", help=f"{inputs.FORMATS}; several files or a pattern")
    parser.add_argument("-o", "--out", metavar="FILE", help=f"{', '.join(_SUFFIXES)} (default: CSV on standard output)")
    kinds = "a category that training did not have: refuse it, or let it have no feature"
    parser.add_argument("--unknown", choices=("error", "ignore"), default="error", help=f"{kinds} (default: error)")


def run(arguments: argparse.Namespace) -> None:
    """Label the rows, write them, and say how many there were."""
    from torchperc.data.file_formats import find_files
    from torchperc.model.places import model_file

    model_file(Path(arguments.run))  # what is not there is refused before torch is imported
    find_files(arguments.data)
    from torchperc.model.fitted import FittedModel
    from torchperc.reports.scores import Tally
    from torchperc.workflow.apply import apply

    inputs.one_line_warnings()
    model = FittedModel.load(arguments.run)
    applied = apply(model, arguments.data, arguments.out, arguments.unknown)
    lines = []
    if arguments.out is not None:
        lines.append(f"{plural(applied.rows, 'prediction' if model.regression else 'label')} in {arguments.out}")
    data = ", ".join(arguments.data[:3]) + ", …" * (len(arguments.data) > 3)
    if applied.fit is not None:
        lines.append(f"against {plural(applied.known, 'target')} in {data}: {applied.fit}")
    elif applied.known:
        error = Tally(applied.wrong, applied.known)
        lines.append(f"{error.wrong:,} of {error.samples:,} differ from the labels in {data}: error {error}")
    if applied.strange:
        some = ", ".join(map(repr, sorted(applied.strange)[:5])) + (", …" if len(applied.strange) > 5 else "")
        what = "targets that are no numbers" if model.regression else "labels that did not occur in training"
        lines.append(f"not counted: rows with {what}, {some}")
    if applied.ignored:
        lines.append(f"ignored: {', '.join(applied.ignored)}")
    for line in lines:
        print(visible(line), file=sys.stderr if arguments.out is None else sys.stdout)
