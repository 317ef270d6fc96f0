"""``torchperc learn``: from a file of samples to the best of several linear models, in one command."""

from __future__ import annotations

import argparse
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from torchperc.cli import inputs
from torchperc.reports.text import percent, visible

if TYPE_CHECKING:
    from rich.console import Console

    from torchperc.workflow.learn import Learned, LearnedRegression

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
        "`torchperc apply` and `torchperc export`, a report, and each model's config, weights and metrics.csv; with "
        "--curves event files for TensorBoard and a checkpoint in place of the last. Whether a hyperplane separates "
        "the training samples is proved for up to 400,000 numbers, and 1,000,000 numbers times classes; `torchperc "
        "separable` has no such limit."
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
    processes = "learn in so many processes on this machine, of which each reads its own shard of the files"
    modes = "how processes learn by rule: the mistakes of one process, or mixed weights (default: %(default)s)"
    parser.add_argument("--distributed", choices=("exact", "mix"), default="exact", help=modes)
    parser.add_argument("--processes", type=int, metavar="N", help=processes)
    report = "write report.html and card.md, with pictures (default: %(default)s)"
    parser.add_argument("--report", choices=("yes", "no"), default="yes", help=report)
    curves = "train under a Lightning Trainer, by the same steps but more slowly: writes event files for TensorBoard "
    parser.add_argument("--curves", action="store_true", help=f"{curves}and a checkpoint for each model")


def run(arguments: argparse.Namespace) -> None:
    """Learn, and show what came of it."""
    from torchperc.cli import launching

    if arguments.processes is not None and launching.starts(arguments.processes):
        return
    from rich.console import Console

    from torchperc.workflow.learn import LearnedRegression, learn

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
            report=arguments.report == "yes",
            watch=lambda what: status.update(_STEPS[what]),
            **{
                name: getattr(arguments, name)
                for name in ("overwrite", "scale", "seed", "dtype", "stream", "distributed", "task", "curves")
            },
            **inputs.options(arguments),
        )
    if first and isinstance(learned, LearnedRegression):
        _show_regression(learned, arguments.data)
    elif first:
        _show(learned, arguments.data)
    if first:
        sys.stdout.flush()


def _show(learned: Learned, data: list[str]) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    model, best, console = learned.model, learned.best, inputs.console()
    count = sum(tally.samples for tally in (best.training, best.validation, *filter(None, [learned.test])))
    labels = ", ".join(model.labels) if len(model.labels) <= 12 else f"{len(model.labels)} of them"
    _say_data(console, data, f"{count:,} samples, {len(model.names):,} features, labels {labels}")
    _say_taken(console, learned.taken)
    heads = ("learned by", "validation error", "training", "verdict", "epochs", "time")
    table = Table(*heads, box=SIMPLE_HEAD, pad_edge=False)
    widths = {0: len("majority class"), 3: max(len(each.verdict) for each in learned.candidates)}
    for column, width in widths.items():
        table.columns[column].min_width = width
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
        "others by gradient: perceptron criterion, least mean squares, logistic loss. The rule's verdict is that of "
        "its last epoch, its errors are those of the averaged weights. "
        + " ".join(f"{verdict}: {_VERDICTS[verdict]}." for verdict in verdicts)
    )
    _say_notes(console, learned.notes)
    if learned.test is not None:
        console.print(f"On the held-out test set, {best.name} has an error of {learned.test}.")
    _say_next(console, learned, data, "label new data", "labels.csv")


def _show_regression(learned: LearnedRegression, data: list[str]) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    from torchperc.reports.regression import share, short

    model, best, console = learned.model, learned.best, inputs.console()
    count = sum(fit.count for fit in (best.training, best.validation, *filter(None, [learned.test])))
    target = "the target" if model.target is None else f"target {model.target}"
    _say_data(console, data, f"{count:,} samples, {len(model.names):,} features, {target}")
    _say_taken(console, learned.taken)
    heads = ("learned by", "validation RMSE", "R²", "training RMSE", "R²", "epochs", "time")
    table = Table(*heads, box=SIMPLE_HEAD, pad_edge=False)
    table.columns[0].no_wrap = True
    for column in table.columns[1:]:
        column.justify = "right"
    for each in learned.candidates:
        name = f"{each.name} ◂" if each is best else each.name
        fits = (text for fit in (each.validation, each.training) for text in (short(fit.rmse), share(fit.r2)))
        table.add_row(name, *fits, str(each.epochs), f"{each.seconds:.1f} s")
    table.add_section()
    table.add_row("mean", short(learned.baseline.rmse), share(learned.baseline.r2), "", "", "", "")
    console.print(table)
    console.print(
        f"◂ kept: {best.name}, the first with the lowest validation RMSE, in the units of the target. R²: the fraction "
        "of the variance that is explained. Mean: the baseline that always predicts the mean of the training targets. "
        f"Learned by {'; '.join(f'{each.name}: {each.how}' for each in learned.candidates)}."
    )
    _say_notes(console, learned.notes)
    if learned.test is not None:
        console.print(f"On the held-out test set, {best.name} has {learned.test}.")
    _say_next(console, learned, data, "predict new data", "predictions.csv")


def _say_data(console: Console, data: list[str], what: str) -> None:
    source = data[0] if len(data) == 1 else f"{data[0]} and {len(data) - 1} more"
    console.print(visible(f"{source}: {what}"))


def _say_taken(console: Console, taken: str) -> None:
    """What the target was taken for, and how to change that."""
    if taken:
        other = {"regression": "classification treats them as classes", "classification": "regression predicts numbers"}
        console.print(visible(f"{taken} (--task {other[taken.rpartition(' ')[2]]})"), soft_wrap=True)


def _say_notes(console: Console, notes: tuple[str, ...]) -> None:
    for note in notes:
        console.print(visible(f"Note: {note}."))


def _say_next(console: Console, learned: Learned, data: list[str], what: str, out: str) -> None:
    folder, encoding = learned.folder, learned.model.encoding
    kind = "safetensors" if encoding is not None and encoding.texts else "onnx"  # which takes numbers only
    console.print(visible(f"The run is in {folder}. Next steps:"), soft_wrap=True)
    named = shlex.quote(str(folder))
    new = f"new{Path(data[0]).suffix or '.csv'}"
    page, curves = folder / "report.html", next(folder.glob("*/events.out.tfevents.*"), None) is not None
    looks = [f"open {shlex.quote(str(page))}"] if page.is_file() else []
    looks += [f"tensorboard --logdir {named}"] if curves else []
    for aim, command in (
        (what, f"torchperc apply {named} {new} -o {out}"),
        ("look at it", ", or ".join(looks) or f"torchperc report {named}"),
        ("export it", f"torchperc export {named} --to {kind}"),
    ):
        console.print(visible(f"  {aim:18} {command}"), soft_wrap=True)
