"""``torchperc xor``: how often small nets learn XOR, from thousands of seeds at once, and how the others fail."""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torchperc.reports.text import visible

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID
    from rich.table import Table

    from torchperc.lab.xor import LabResult

# written out, as torch is not loaded to print the help; a test holds them to the package's own
_ACTIVATIONS = ("tanh", "relu", "sigmoid", "leaky_relu", "elu", "gelu", "silu", "softplus", "identity")
_LOSSES = ("perceptron", "lms", "logistic")
_INPUTS = ("0/1", "-1/+1")
_WIDTH = 100  # of the table where there is no terminal to fit it to
_WORDS = ("width", "acti-\nvation", "loss")
_FIGURES = ("rate", "solved\n%", "95 %\ninterval")
_FAILURES = {
    "stuck at 75 %": "stuck\n75 %",
    "stuck at 50 %": "stuck\n50 %",
    "dead units": "dead\nunits",
    "saddle": "saddle",
    "diverged": "di-\nverged",
}


@dataclass(frozen=True)
class _Setting:
    """One row of the table."""

    width: int
    activation: str
    loss: str
    rate: float

    @property
    def picture(self) -> str:
        """File name of its curves."""
        return f"curves-{self.width}-{self.activation}-{self.loss}-{self.rate:g}.png"


@dataclass(frozen=True)
class _Row:
    setting: _Setting
    result: LabResult
    seconds: float


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the command."""
    parser.description = (
        "Trains 2-h-1 nets on XOR by full-batch gradient descent, from many seeds at once, for every combination of "
        "the values given. Prints how many solve it and how the others fail; writes pictures and results.json."
    )
    many: dict[str, Any] = {"nargs": "+", "metavar": "X"}
    parser.add_argument("--seeds", type=int, default=1000, help="how many, 0, 1, 2, … (default: %(default)s)")
    parser.add_argument("--hidden", type=int, default=[2, 4], **many, help="widths of the hidden layer (default: 2 4)")
    parser.add_argument(
        "--activation",
        choices=_ACTIVATIONS,
        default=["tanh", "relu"],
        **many,
        help=f"of {' '.join(_ACTIVATIONS)} (default: tanh relu)",
    )
    parser.add_argument(
        "--loss", choices=_LOSSES, default=["logistic"], **many, help=f"of {' '.join(_LOSSES)} (default: logistic)"
    )
    parser.add_argument("--lr", type=float, default=[1.0], **many, help="rates (default: 1.0)")
    parser.add_argument("--steps", type=int, default=5000, help="full-batch steps (default: %(default)s)")
    parser.add_argument("--inputs", choices=_INPUTS, default="0/1", help="the truth values (default: %(default)s)")
    parser.add_argument("--out", default="runs/xor", help="directory of the pictures (default: %(default)s)")


def run(arguments: argparse.Namespace) -> None:
    """Train every combination, print the table, write the pictures."""
    from rich.console import Console

    from torchperc._atomic import write_whole

    settings = _settings(arguments)
    out = _directory(arguments.out)
    rows = _train(settings, arguments)
    pictures = _draw(rows, out)
    write_whole(out / "results.json", _report(rows, pictures, arguments).encode())
    console = Console(highlight=False, markup=False)  # the directory's name is the user's, brackets and all
    if not console.is_terminal:
        console.width = max(console.width, _WIDTH)
    console.print(_table(rows, arguments))
    console.print(visible(f"pictures and results.json are in {out}"), soft_wrap=True)


def _settings(arguments: argparse.Namespace) -> list[_Setting]:
    """All combinations, every value checked before the first of them is trained."""
    from torchperc import _checks as checks
    from torchperc.lab.xor import check_rate

    checks.whole("--seeds", arguments.seeds, at_least=1)
    checks.whole("--steps", arguments.steps, at_least=1)
    checks.one_of("--inputs", arguments.inputs, _INPUTS)
    widths = [checks.whole("--hidden", width, at_least=1) for width in arguments.hidden]
    activations = [checks.one_of("--activation", name, _ACTIVATIONS) for name in arguments.activation]
    losses = [checks.one_of("--loss", name, _LOSSES) for name in arguments.loss]
    rates = [check_rate("--lr", rate) for rate in arguments.lr]
    return [_Setting(*values) for values in dict.fromkeys(product(widths, activations, losses, rates))]


def _directory(name: str) -> Path:
    out = Path(name)
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ValueError(f"--out={name} cannot be made: {error.strerror or error}; name another directory") from None
    return out


def _train(settings: list[_Setting], arguments: argparse.Namespace) -> list[_Row]:
    from rich.console import Console
    from rich.progress import Progress

    from torchperc.lab.xor import HEADS, train

    errors = Console(stderr=True)
    rows = []
    with Progress(console=errors, transient=True, disable=not errors.is_terminal) as progress:
        task = progress.add_task("", total=len(settings) * arguments.steps)
        for number, setting in enumerate(settings):
            progress.update(task, description=f"2-{setting.width}-1 {setting.activation} {setting.loss}")
            report = partial(_advance, progress, task, number * arguments.steps)
            start = time.perf_counter()
            result = train(
                range(arguments.seeds),
                setting.width,
                setting.activation,
                HEADS[setting.loss],
                lr=setting.rate,
                steps=arguments.steps,
                inputs=arguments.inputs,
                progress=report,
            )
            rows.append(_Row(setting, result, time.perf_counter() - start))
    return rows


def _advance(progress: Progress, task: TaskID, before: int, step: int) -> None:
    progress.update(task, completed=before + step)


def _draw(rows: list[_Row], out: Path) -> list[str]:
    """Save the curves of every row and, of the first row that has any, the boundary of a solved net."""
    from torchperc._atomic import appearing
    from torchperc.lab.xor_figures import plot_boundary, plot_curves

    figures = {row.setting.picture: plot_curves(row.result) for row in rows}
    solved = next((row.result for row in rows if "solved" in row.result.kinds), None)
    if solved is not None:
        net = solved.net(solved.kinds.index("solved"))
        figures["boundary.png"] = plot_boundary(net, inputs=solved.inputs, head=solved.head)
    for name, figure in figures.items():
        with appearing(out / name) as part:
            figure.savefig(part, format="png")
    return list(figures)


def _report(rows: list[_Row], pictures: list[str], arguments: argparse.Namespace) -> str:
    report = {
        "seeds": arguments.seeds,
        "steps": arguments.steps,
        "inputs": arguments.inputs,
        "rows": [_row_report(row) for row in rows],
        "pictures": pictures,
    }
    return json.dumps(report, indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def _row_report(row: _Row) -> dict[str, Any]:
    return {
        "hidden": row.setting.width,
        "activation": row.setting.activation,
        "loss": row.setting.loss,
        "lr": row.setting.rate,
        "success_rate": row.result.success_rate,
        "wilson_95": row.result.interval,
        "counts": row.result.counts,
        "seconds": round(row.seconds, 3),
        "curves": row.setting.picture,
        "kinds": row.result.kinds,  # by seed
    }


def _table(rows: list[_Row], arguments: argparse.Namespace) -> Table:
    from rich import box
    from rich.table import Table

    title = f"XOR from {arguments.seeds:,} seeds, {arguments.steps:,} full-batch steps, inputs {arguments.inputs}"
    table = Table(*_WORDS, title=title, title_justify="left", box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
    for heading in (*_FIGURES, *_FAILURES.values(), "sec"):
        table.add_column(heading, justify="right")
    for row in rows:
        setting, low, high = row.setting, *row.result.interval
        table.add_row(
            str(setting.width),
            setting.activation,
            setting.loss,
            f"{setting.rate:g}",
            f"{100 * row.result.success_rate:.1f}",
            f"{100 * low:.1f}–{100 * high:.1f}",
            *(f"{row.result.counts[kind]:,}" for kind in _FAILURES),
            f"{row.seconds:.1f}",
        )
    return table
