"""``torchperc learn``: from a file of samples to the best of four linear classifiers, in one command."""

from __future__ import annotations

import argparse
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from torchperc.cli import inputs
from torchperc.reports.text import visible

if TYPE_CHECKING:
    from torchperc.workflow.learn import Learned

_WHAT = {
    "reading": "reading the data",
    "rule": "learning by rule",
    "perceptron": "gradient descent on the perceptron criterion",
    "lms": "gradient descent on the squared error",
    "logistic": "gradient descent on the logistic loss",
    "writing": "writing the run",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the command."""
    parser.description = (
        "Learns to tell the labels in a table apart: splits it, scales it, trains by the perceptron rule and by "
        "gradient on the perceptron, squared and logistic losses, and keeps what errs least on the validation part. "
        "The run's folder has the model for `torchperc apply` and `torchperc export`, a report, and curves for "
        "TensorBoard."
    )
    parser.add_argument(
        "data", help="CSV, TSV (also .gz), Parquet, svmlight, .npy or .npz; or a data set by name, such as iris"
    )
    inputs.add_arguments(parser)
    parser.add_argument("--folder", help="of the run (default: runs/ and the name of the file, numbered if taken)")
    parser.add_argument("--overwrite", action="store_true", help="replace the run that is in the folder")
    parser.add_argument(
        "--split",
        nargs=3,
        type=float,
        default=(0.6, 0.2, 0.2),
        metavar=("TRAIN", "VAL", "TEST"),
        help="shares of training, validation and test (default: 0.6 0.2 0.2)",
    )
    parser.add_argument(
        "--scale",
        choices=("auto", "standard", "minmax", "maxabs", "none"),
        default="auto",
        help="of the features (default: standard, for sparse data maxabs)",
    )
    parser.add_argument(
        "--epochs", type=int, help="passes at most (default: 30 by rule, 200 by gradient; fewer if samples are many)"
    )
    parser.add_argument("--seed", type=int, default=0, help="of split and order (default: %(default)s)")
    parser.add_argument("--dtype", choices=("float32", "float64"), default="float32", help="(default: %(default)s)")
    parser.add_argument(
        "--stream", action="store_true", default=None, help="read in parts (default: if too large for memory)"
    )


def run(arguments: argparse.Namespace) -> None:
    """Learn, and show what came of it."""
    from rich.console import Console

    from torchperc.workflow.learn import learn

    inputs.one_line_warnings()
    notes = Console(stderr=True, highlight=False, markup=False)
    with inputs.as_options(), notes.status("") as status:
        learned = learn(
            arguments.data,
            folder=arguments.folder,
            overwrite=arguments.overwrite,
            split=tuple(arguments.split),
            scale=arguments.scale,
            max_epochs=arguments.epochs,
            seed=arguments.seed,
            dtype=arguments.dtype,
            stream=arguments.stream,
            watch=lambda what: status.update(_WHAT[what]),
            **inputs.options(arguments),
        )
    _show(learned, arguments.data)
    sys.stdout.flush()


def _show(learned: Learned, source: str) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table

    model = learned.model
    console = Console(highlight=False, markup=False)
    count = sum(
        part.samples for part in (learned.best.training, learned.best.validation, *filter(None, [learned.test]))
    )
    labels = ", ".join(model.labels) if len(model.labels) <= 12 else f"{len(model.labels)} of them"
    console.print(visible(f"{source}: {count:,} samples, {len(model.names):,} features, labels {labels}"))
    table = Table(
        "learned by", "validation error", "training", "verdict", "epochs", "time", box=SIMPLE_HEAD, pad_edge=False
    )
    table.columns[1].no_wrap = True
    for each in learned.candidates:
        table.add_row(
            f"{each.name} ◂" if each is learned.best else each.name,
            str(each.validation),
            f"{each.training.error:.1%}".replace("%", " %"),
            each.verdict,
            str(each.epochs),
            f"{each.seconds:.1f} s",
        )
    table.add_section()
    table.add_row("a guess", str(learned.guess), "", "", "", "")
    console.print(table)
    console.print(
        f"◂ kept: {learned.best.name}, the first of those that err least on the validation part. In brackets: 95 % "
        "intervals. A guess is always the most frequent label. The rule learns by mistakes; the others by gradient: "
        f"perceptron criterion, least mean squares, logistic loss. {_legend(learned)}"
    )
    for note in learned.notes:
        console.print(visible(f"Note: {note}."))
    if learned.test is not None:
        console.print(f"On the test part, which chose nothing, {learned.best.name} errs in {learned.test}.")
    folder = learned.folder
    console.print(visible(f"The run is in {folder}. What now:"), soft_wrap=True)
    named = shlex.quote(str(folder))
    new = f"new{Path(source).suffix or '.csv'}"
    for what, command in (
        ("label new data", f"torchperc apply {named} {new} -o labels.csv"),
        ("look at it", f"open {shlex.quote(str(folder / 'report.html'))}, or tensorboard --logdir {named}"),
        ("take it elsewhere", f"torchperc export {named} --to onnx"),
    ):
        console.print(visible(f"  {what:18} {command}"), soft_wrap=True)


def _legend(learned: Learned) -> str:
    """What the verdicts in the table mean."""
    said = {
        "SEPARATED": "SEPARATED: no training sample is on the wrong side.",
        "NOT_SEPARABLE": "NOT_SEPARABLE: proved that no hyperplane separates the training samples.",
        "CYCLING": "CYCLING: the same weights came back.",
        "BUDGET": "BUDGET: all epochs were used.",
    }
    return " ".join(said[verdict] for verdict in dict.fromkeys(each.verdict for each in learned.candidates))
