"""``torchperc xor``: how often small nets learn XOR, from thousands of seeds at once, and how the others fail."""

from __future__ import annotations

import argparse
import json
import time
from functools import partial
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from torchperc.cli import inputs
from torchperc.reports.text import visible

if TYPE_CHECKING:
    from rich.table import Table

    from torchperc.lab.xor import LabResult

# written out, as torch is not loaded to print the help; a test holds them to the package's own
_ACTIVATIONS = ("tanh", "relu", "sigmoid", "leaky_relu", "elu", "gelu", "silu", "softplus", "identity")
_LOSSES = ("perceptron", "lms", "logistic")
_INPUTS = ("0/1", "-1/+1")
_FAILURES = {
    "stuck at 75 %": "stuck\n75 %",
    "stuck at 50 %": "stuck\n50 %",
    "dead units": "dead\nunits",
    "saddle": "saddle",
    "diverged": "di-\nverged",
}


class _Row(NamedTuple):
    """One combination of options, and what came of it."""

    hidden: int
    activation: str
    loss: str
    lr: float
    result: LabResult
    seconds: float

    @property
    def picture(self) -> str:
        return f"curves-{self.hidden}-{self.activation}-{self.loss}-{self.lr:g}.png"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the command."""
    parser.description = (
        "Trains 2-h-1 nets on XOR by full-batch gradient descent, from many seeds at once, for every combination of "
        "the values given. Prints how many solve it and how the others fail; writes pictures and results.json."
    )
    many: dict[str, Any] = {"nargs": "+", "metavar": "X"}
    parser.add_argument("--seeds", type=int, default=1000, help="how many, 0, 1, 2, … (default: %(default)s)")
    parser.add_argument("--hidden", type=int, default=[2, 4], **many, help="widths of the hidden layer (default: 2 4)")
    activations = f"of {' '.join(_ACTIVATIONS)} (default: tanh relu)"
    losses = f"of {' '.join(_LOSSES)} (default: logistic)"
    parser.add_argument("--activation", choices=_ACTIVATIONS, default=["tanh", "relu"], **many, help=activations)
    parser.add_argument("--loss", choices=_LOSSES, default=["logistic"], **many, help=losses)
    parser.add_argument("--lr", type=float, default=[1.0], **many, help="learning rates (default: 1.0)")
    parser.add_argument("--steps", type=int, default=5000, help="full-batch steps (default: %(default)s)")
    parser.add_argument("--inputs", choices=_INPUTS, default="0/1", help="the truth values (default: %(default)s)")
    parser.add_argument("--out", default="runs/xor", help="folder of the pictures (default: %(default)s)")


def run(arguments: argparse.Namespace) -> None:
    """Train every combination, print the table, write the pictures."""
    from torchperc._files import write_atomically

    settings = _settings(arguments)
    out = inputs.output_folder(arguments.out)
    rows = _train(settings, arguments)
    report = {
        **{name: getattr(arguments, name) for name in ("seeds", "steps", "inputs")},
        "rows": [_row_report(row) for row in rows],
        "pictures": _draw(rows, out),
    }
    text = json.dumps(report, indent=1, ensure_ascii=False, allow_nan=False) + "\n"
    write_atomically(out / "results.json", text.encode())
    console = inputs.console(width=100)
    console.print(_table(rows, arguments))
    console.print(visible(f"pictures and results.json are in {out}"), soft_wrap=True)


def _settings(arguments: argparse.Namespace) -> list[tuple[int, str, str, float]]:
    """All combinations, every value checked before the first of them is trained."""
    from torchperc._checks import check_int
    from torchperc.lab.xor import check_rate

    for name in ("seeds", "steps"):
        check_int(name, getattr(arguments, name), at_least=1)
    hidden = [check_int("hidden", width, at_least=1) for width in arguments.hidden]
    rates = [check_rate("lr", lr) for lr in arguments.lr]
    return list(dict.fromkeys(product(hidden, arguments.activation, arguments.loss, rates)))


def _train(settings: list[tuple[int, str, str, float]], arguments: argparse.Namespace) -> list[_Row]:
    from rich.console import Console
    from rich.progress import Progress

    from torchperc.lab.xor import HEADS, train

    errors = Console(stderr=True)
    rows = []
    with Progress(console=errors, transient=True, disable=not errors.is_terminal) as progress:
        for hidden, activation, loss, lr in settings:
            task = progress.add_task(f"2-{hidden}-1 {activation} {loss}", total=arguments.steps)
            start = time.perf_counter()
            result = train(
                range(arguments.seeds),
                hidden,
                activation,
                HEADS[loss],
                lr=lr,
                steps=arguments.steps,
                inputs=arguments.inputs,
                progress=partial(_advance, progress, task),
            )
            rows.append(_Row(hidden, activation, loss, lr, result, time.perf_counter() - start))
    return rows


def _advance(progress: Any, task: Any, step: int) -> None:
    progress.update(task, completed=step)


def _draw(rows: list[_Row], out: Path) -> list[str]:
    """Save the curves of every row and, of the first row that has any, the boundary of a solved net."""
    from torchperc._files import atomic_path
    from torchperc.lab.xor_figures import plot_boundary, plot_curves

    figures = {row.picture: plot_curves(row.result) for row in rows}
    solved = next((row.result for row in rows if "solved" in row.result.kinds), None)
    if solved is not None:
        net = solved.net(solved.kinds.index("solved"))
        figures["boundary.png"] = plot_boundary(net, inputs=solved.inputs, head=solved.head)
    for name, figure in figures.items():
        with atomic_path(out / name) as part:
            figure.savefig(part, format="png")
    return list(figures)


def _row_report(row: _Row) -> dict[str, Any]:
    return {
        **{name: getattr(row, name) for name in ("hidden", "activation", "loss", "lr")},
        "success_rate": row.result.success_rate,
        "wilson_95": row.result.interval,
        "counts": row.result.counts,
        "seconds": round(row.seconds, 3),
        "curves": row.picture,
        "kinds": row.result.kinds,  # by seed
    }


def _table(rows: list[_Row], arguments: argparse.Namespace) -> Table:
    from rich import box
    from rich.table import Table

    title = f"XOR from {arguments.seeds:,} seeds, {arguments.steps:,} full-batch steps, inputs {arguments.inputs}"
    look: dict[str, Any] = {"title": title, "title_justify": "left", "box": box.SIMPLE_HEAD, "pad_edge": False}
    table = Table("hidden", "acti-\nvation", "loss", padding=(0, 1, 0, 0), **look)
    for heading in ("learning\nrate", "solved\n%", "95 %\ninterval", *_FAILURES.values(), "sec"):
        table.add_column(heading, justify="right")
    for row in rows:
        low, high = row.result.interval
        solved = f"{100 * row.result.success_rate:.1f}", f"{100 * low:.1f}–{100 * high:.1f}"
        failed = (f"{row.result.counts[kind]:,}" for kind in _FAILURES)
        setting = str(row.hidden), row.activation, row.loss, f"{row.lr:g}"
        table.add_row(*setting, *solved, *failed, f"{row.seconds:.1f}")
    return table
