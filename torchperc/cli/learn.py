"""``torchperc learn``: from a file of samples to the best of four linear classifiers, in one command."""

from __future__ import annotations

import argparse
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from torchperc.cli import inputs
from torchperc.reports.text import percent, visible

if TYPE_CHECKING:
    from torchperc.workflow.learn import Learned

OPTIONS = {"folder": "out", "fractions": "split", "max_epochs": "epochs"}
_STEPS = {
    "reading": "reading the data",
    "rule": "learning by rule",
    "perceptron": "gradient descent on the perceptron criterion",
    "lms": "gradient descent on the squared error",
    "logistic": "gradient descent on the logistic loss",
    "writing": "writing the run",
}
_VERDICTS = {
    "SEPARATED": "every training sample is on the right side",
    "NOT_SEPARABLE": "proved that no hyperplane separates the training samples",
    "CYCLING": "the same weights came back",
    "BUDGET": "reached max_epochs",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the command."""
    parser.description = (
        "Learns to classify the samples of a table: splits it, scales it, trains by the perceptron rule and by "
        "gradient on the perceptron, squared and logistic losses, and keeps the classifier with the lowest validation "
        "error. The run's folder has the model for `torchperc apply` and `torchperc export`, a report, and curves for "
        "TensorBoard."
    )
    files = "; several files or a pattern such as 'data/part-*.parquet'; or a data set by name, such as iris"
    parser.add_argument("data", nargs="+", help=f"{inputs.FORMATS}{files}")
    inputs.add_arguments(parser)
    parser.add_argument("--out", help="folder of the run (default: runs/ and the name of the file, numbered if taken)")
    parser.add_argument("--overwrite", action="store_true", help="replace the run that is in the folder")
    parser.add_argument(
        "--split",
        nargs=3,
        type=float,
        default=(0.6, 0.2, 0.2),
        metavar=("TRAIN", "VAL", "TEST"),
        help="fractions of the training, validation and test sets (default: 0.6 0.2 0.2)",
    )
    scale, scales = "of the features (default: standard, for sparse data maxabs)", "auto standard minmax maxabs none"
    parser.add_argument("--scale", choices=scales.split(), default="auto", help=scale)
    epochs = "maximum number of epochs (default: 30 by rule, 200 by gradient; fewer with many samples)"
    parser.add_argument("--epochs", type=int, help=epochs)
    parser.add_argument("--seed", type=int, default=0, help="of split and order (default: %(default)s)")
    parser.add_argument("--dtype", choices=("float32", "float64"), default="float32", help="(default: %(default)s)")
    stream = "read in blocks (default: if too large for memory)"
    parser.add_argument("--stream", action="store_true", default=None, help=stream)
    processes = "learn in so many processes on this machine, of which each reads its own shard of the files"
    modes = "how processes learn by rule: the mistakes of one process, or mixed weights (default: %(default)s)"
    parser.add_argument("--distributed", choices=("exact", "mix"), default="exact", help=modes)
    parser.add_argument("--processes", type=int, metavar="N", help=processes)


def run(arguments: argparse.Namespace) -> None:
    """Learn, and show what came of it."""
    from torchperc.cli import launching

    if arguments.processes is not None and launching.starts(arguments.processes):
        return
    from rich.console import Console

    from torchperc.workflow.learn import learn

    inputs.one_line_warnings()
    launching.join()
    first = launching.is_first()
    source = arguments.data[0] if len(arguments.data) == 1 else arguments.data
    with Console(stderr=True, highlight=False, markup=False, quiet=not first).status("") as status:
        learned = learn(
            source,
            folder=arguments.out,
            split=tuple(arguments.split),
            max_epochs=arguments.epochs,
            watch=lambda what: status.update(_STEPS[what]),
            **{
                name: getattr(arguments, name)
                for name in ("overwrite", "scale", "seed", "dtype", "stream", "distributed")
            },
            **inputs.options(arguments),
        )
    if first:
        _show(learned, arguments.data)
        sys.stdout.flush()


def _show(learned: Learned, data: list[str]) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    model, best, console = learned.model, learned.best, inputs.console()
    count = sum(tally.samples for tally in (best.training, best.validation, *filter(None, [learned.test])))
    labels = ", ".join(model.labels) if len(model.labels) <= 12 else f"{len(model.labels)} of them"
    source = data[0] if len(data) == 1 else f"{data[0]} and {len(data) - 1} more"
    console.print(visible(f"{source}: {count:,} samples, {len(model.names):,} features, labels {labels}"))
    heads = ("learned by", "validation error", "training", "verdict", "epochs", "time")
    table = Table(*heads, box=SIMPLE_HEAD, pad_edge=False)
    table.columns[1].no_wrap = True
    for each in learned.candidates:
        name = f"{each.name} ◂" if each is best else each.name
        errors = str(each.validation), percent(each.training.error, ".1f")
        table.add_row(name, *errors, each.verdict, str(each.epochs), f"{each.seconds:.1f} s")
    table.add_section()
    table.add_row("majority class", str(learned.baseline), "", "", "", "")
    console.print(table)
    verdicts = dict.fromkeys(each.verdict for each in learned.candidates)
    console.print(
        f"◂ kept: {best.name}, the first with the lowest validation error. In brackets: 95 % intervals. "
        "Majority class: the baseline that always predicts the most frequent label. The rule learns by mistakes; the "
        "others by gradient: perceptron criterion, least mean squares, logistic loss. "
        + " ".join(f"{verdict}: {_VERDICTS[verdict]}." for verdict in verdicts)
    )
    for note in learned.notes:
        console.print(visible(f"Note: {note}."))
    if learned.test is not None:
        console.print(f"On the held-out test set, {best.name} has an error of {learned.test}.")
    folder = learned.folder
    console.print(visible(f"The run is in {folder}. Next steps:"), soft_wrap=True)
    named = shlex.quote(str(folder))
    new = f"new{Path(data[0]).suffix or '.csv'}"
    kind = "safetensors" if model.encoding is not None and model.encoding.texts else "onnx"  # which takes numbers only
    for what, command in (
        ("label new data", f"torchperc apply {named} {new} -o labels.csv"),
        ("look at it", f"open {shlex.quote(str(folder / 'report.html'))}, or tensorboard --logdir {named}"),
        ("export it", f"torchperc export {named} --to {kind}"),
    ):
        console.print(visible(f"  {what:18} {command}"), soft_wrap=True)
