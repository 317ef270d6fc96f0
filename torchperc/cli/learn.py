"""``torchperc learn``: from a file of samples to the best of several linear models, in one command."""

from __future__ import annotations

import argparse
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from torchperc.cli import inputs
from torchperc.reports.text import visible

if TYPE_CHECKING:
    from rich.console import Console

    from torchperc.workflow.learn import LearnResult

OPTIONS = {"folder": "out", "fractions": "split", "max_epochs": "epochs"}
_STEPS = {
    "reading": "reading the data",
    "least squares": "the minimum of the squared error",
    "ridge": "the minimum with a penalty",
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
        "error. A target of many different numbers is a quantity: then least squares, ridge regression and gradient "
        "descent on the squared error are compared by their validation RMSE. The run's folder has the model for "
        "`torchperc apply` and `torchperc export`, results.json, a report, and each model's weights and metrics.csv. "
        "Whether a hyperplane separates the training samples is proved for up to 400,000 numbers, and 1,000,000 "
        "numbers times classes; `torchperc separable` has no such limit."
    )
    files = "; several files or a pattern such as 'data/part-*.parquet'; or a data set by name, such as iris"
    parser.add_argument("data", nargs="+", help=f"{inputs.FORMATS}{files}")
    inputs.add_arguments(parser)
    task = "whether the target is one of classes or a quantity (default: by its values; the command says which)"
    parser.add_argument("--task", choices=("classification", "regression"), help=task)
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
    report = "write report.html and card.md, with pictures (default: %(default)s)"
    parser.add_argument("--report", choices=("yes", "no"), default="yes", help=report)


def run(arguments: argparse.Namespace) -> None:
    """Learn, and show what came of it."""
    from rich.console import Console

    from torchperc.workflow.learn import learn

    inputs.one_line_warnings()
    source = arguments.data[0] if len(arguments.data) == 1 else arguments.data
    names = ("overwrite", "scale", "seed", "dtype", "stream", "task")
    with Console(stderr=True, highlight=False, markup=False).status("") as status:
        learned = learn(
            source,
            folder=arguments.out,
            split=tuple(arguments.split),
            max_epochs=arguments.epochs,
            report=arguments.report == "yes",
            watch=lambda what: status.update(_STEPS[what]),
            **{name: getattr(arguments, name) for name in names},
            **inputs.options(arguments),
        )
    _show(learned, arguments.data)
    sys.stdout.flush()


def _show(learned: LearnResult, data: list[str]) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    from torchperc.reports.scores import comparison

    model, best, console = learned.model, learned.best, inputs.console()
    count = sum(score.samples for score in (best.training, best.validation, *filter(None, [learned.test])))
    if model.regression:
        what = "the target" if model.target is None else f"target {model.target}"
    else:
        what = f"labels {', '.join(model.labels) if len(model.labels) <= 12 else f'{len(model.labels)} of them'}"
    source = data[0] if len(data) == 1 else f"{data[0]} and {len(data) - 1} more"
    console.print(visible(f"{source}: {count:,} samples, {len(model.names):,} features, {what}"))
    _say_taken(console, learned.taken)
    heads, (*rows, last) = comparison(learned.candidates, learned.baseline)
    table = Table(*heads, box=SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
    for column in table.columns:
        column.no_wrap = True
    for name, *cells in rows:
        table.add_row(f"{name} ◂" if name == best.name else name, *cells)
    table.add_section()
    table.add_row(*last)
    console.print(table)
    console.print(_legend(learned))
    for note in learned.notes:
        console.print(visible(f"Note: {note}."))
    if learned.test is not None:
        said = learned.test if model.regression else f"an error of {learned.test}"
        console.print(f"On the held-out test set, {best.name} has {said}.")
    if model.regression:
        _say_next(console, learned, data, "predict new data", "predictions.csv")
    else:
        _say_next(console, learned, data, "label new data", "labels.csv")


def _legend(learned: LearnResult) -> str:
    if learned.model.regression:
        return (
            f"◂ kept: {learned.best.name}, the first with the lowest validation RMSE, in the units of the target. R²: "
            "the fraction of the variance that is explained. Mean: the baseline that always predicts the mean of the "
            f"training targets. Learned by {'; '.join(f'{each.name}: {each.how}' for each in learned.candidates)}."
        )
    verdicts = dict.fromkeys(each.verdict for each in learned.candidates)
    return (
        f"◂ kept: {learned.best.name}, the first with the lowest validation error. In brackets: 95 % intervals. "
        "Majority class: the baseline that always predicts the most frequent label. The rule learns by mistakes; the "
        "others by gradient: perceptron criterion, least mean squares, logistic loss. The rule's verdict is that of "
        "its last epoch, its errors are those of the averaged weights. "
        + " ".join(f"{verdict}: {_VERDICTS[verdict]}." for verdict in verdicts)
    )


def _say_taken(console: Console, taken: str) -> None:
    """What the target was taken for, and how to change that."""
    if taken:
        other = {"regression": "classification treats them as classes", "classification": "regression predicts numbers"}
        console.print(visible(f"{taken} (--task {other[taken.rpartition(' ')[2]]})"), soft_wrap=True)


def _say_next(console: Console, learned: LearnResult, data: list[str], what: str, out: str) -> None:
    folder, encoding = learned.folder, learned.model.encoding
    kind = "safetensors" if encoding is not None and encoding.text_columns else "onnx"  # which takes numbers only
    console.print(visible(f"The run is in {folder}. Next steps:"), soft_wrap=True)
    named = shlex.quote(str(folder))
    new = f"new{Path(data[0]).suffix or '.csv'}"
    page = folder / "report.html"
    look = f"open {shlex.quote(str(page))}" if page.is_file() else f"torchperc report {named}"
    for aim, command in (
        (what, f"torchperc apply {named} {new} -o {out}"),
        ("look at it", look),
        ("export it", f"torchperc export {named} --to {kind}"),
    ):
        console.print(visible(f"  {aim:18} {command}"), soft_wrap=True)
