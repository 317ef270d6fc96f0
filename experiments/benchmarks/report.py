"""What is told of a run: a table for each comparison, one JSON file, one picture."""

from __future__ import annotations

import io
import json
import os
import platform
from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from importlib.metadata import PackageNotFoundError, version
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from benchmarks.timing import Row
from torchperc._files import write_atomically
from torchperc.plots import COLOURS

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from rich.table import Table

LIBRARIES = (
    "torchperc", "torch", "numpy", "scipy", "numba", "scikit-learn", "pytorch-lightning",
    "vowpalwabbit", "mlxtend", "river", "nltk", "python-crfsuite",
)  # fmt: skip
_MET, _MISSED = COLOURS[0], COLOURS[5]


def duration(seconds: float) -> str:
    """Seconds in three digits and a fitting unit.

    Example:
        >>> duration(1.2345), duration(0.0412), duration(3.1e-7)
        ('1.23 s', '41.2 ms', '0.31 µs')
    """
    scale, unit = next((pair for pair in ((1, "s"), (1e3, "ms")) if seconds * pair[0] >= 1), (1e6, "µs"))
    value = seconds * scale
    return f"{value:.{2 if value < 10 else 1 if value < 100 else 0}f} {unit}"


def times(ratio: float) -> str:
    """A ratio in three digits.

    Example:
        >>> times(0.8333), times(12.34), times(1234.5)
        ('0.83×', '12.3×', '1,234×')
    """
    return f"{ratio:,.{2 if ratio < 10 else 1 if ratio < 100 else 0}f}×"


def table(rows: Sequence[Row]) -> Table:
    """The contenders of one comparison.

    Example:
        >>> row = Row("dense", "1,000 × 20", "ours", 1000, (0.25, 0.2), 1.0, None, None, None)
        >>> [column.header for column in table([row]).columns]
        ['contender', 'best', 'median', 'spread', 'per row', 'ratio', 'busy core', 'ratio', 'target', 'results']
    """
    from rich import box
    from rich.table import Table

    first = rows[0]
    title = f"{first.case}: {first.comparison}"
    shown = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
    shown.add_column("contender", max_width=38)
    for heading in ("best", "median", "spread", "per row", "ratio", "busy core", "ratio", "target"):
        shown.add_column(heading, justify="right", no_wrap=True)
    shown.add_column("results")
    for row in rows:
        shown.add_row(
            row.contender,
            duration(row.best),
            duration(row.median),
            f"{100 * row.spread:.0f} %",
            duration(row.best / row.rows),
            "" if row is first else times(row.ratio),
            duration(min(row.busy)) if row.busy else "",
            "" if row is first or row.busy_ratio is None else times(row.busy_ratio),
            _target(row),
            ("DIFFERENT: " if row.differs else "") + ("" if row.finding is None else row.finding.text),
        )
    return shown


def _target(row: Row) -> str:
    if row.goal is None:
        return ""
    return f"{row.goal.text} {'met' if row.met else 'MISSED'}"


def summary(rows: Sequence[Row], absent: Mapping[str, str]) -> list[str]:
    """The run in a few lines: how many targets are met, which are not, what differs, who was left out.

    Example:
        >>> summary([Row("dense", "1,000 × 20", "ours", 1000, (0.25, 0.2), 1.0, None, None, None)], {})
        ['results: none differs', 'targets: none held against these sizes']
    """
    judged = [row for row in rows if row.met is not None]
    different = [row for row in rows if row.differs]
    lines = [f"left out: {name} ({why})" for name, why in absent.items()]
    lines.append(f"results: {len(different) or 'none'} differ{'s' * (len(different) < 2)}")
    lines += [f"  {_name(row)}: {row.finding.text}" for row in different if row.finding is not None]
    met = f"{sum(bool(row.met) for row in judged)} of {len(judged)} met"
    lines.append(f"targets: {met if judged else 'none held against these sizes'}")
    lines += [f"  missed: {_name(row)}: {_reached(row)}" for row in judged if not row.met]
    return lines


def _name(row: Row) -> str:
    return f"{row.case}, {row.comparison}, {row.contender}"


def _reached(row: Row) -> str:
    assert row.goal is not None
    if row.goal.kind == "seconds":
        return f"{duration(row.best)}, target {row.goal.text}"
    cost = row.goal.kind != "at least"
    reached = [times(1 / ratio if cost else ratio) for ratio in (row.ratio, row.busy_ratio) if ratio is not None]
    busy = f" ({reached[1]} with a busy core)" if len(reached) > 1 else ""
    return f"{'cost ' if cost else ''}{reached[0]}{busy}, target {row.goal.text}"


# --- files --------------------------------------------------------------------------------------------------------


def write(folder: Path, rows: Sequence[Row], absent: Mapping[str, str], *, rounds: int, quick: bool) -> list[Path]:
    """Write ``bench.json`` and ``bench.md``, and ``bench.png`` if there is a ratio to draw; each atomically.

    Example:
        >>> import tempfile
        >>> row = Row("dense", "1,000 × 20", "ours", 1000, (0.25, 0.2), 1.0, None, None, None)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     [path.name for path in write(Path(folder), [row], {}, rounds=2, quick=True)]
        ['bench.json', 'bench.md']
    """
    found = report(rows, absent, rounds=rounds, quick=quick)
    text = json.dumps(found, indent=1, ensure_ascii=False, allow_nan=False)
    files = {"bench.json": f"{text}\n".encode(), "bench.md": markdown(rows).encode()}
    figure = chart(rows)
    if figure is not None:
        picture = io.BytesIO()
        figure.savefig(picture, format="png")
        files["bench.png"] = picture.getvalue()
    for name, content in files.items():
        write_atomically(folder / name, content, make_folder=True)
    return [folder / name for name in files]


def markdown(rows: Sequence[Row]) -> str:
    """The ratios as a table for a page: what was compared, with whom, idle and with a busy core.

    Example:
        >>> ours = Row("dense", "1,000 × 20", "ours", 1000, (0.2,), 1.0, None, None, None, (0.3,), 1.0)
        >>> peer = Row("dense", "1,000 × 20", "peer", 1000, (0.8,), 4.0, None, None, None, (0.9,), 3.0)
        >>> print(markdown([ours, peer]), end="")
        | | against | times as fast | with a busy core |
        |---|---|---|---|
        | dense: 1,000 × 20 | peer | 4.00 | 3.00 |
    """
    lines = ["| | against | times as fast | with a busy core |", "|---|---|---|---|"]
    for before, row in pairwise(rows):
        if (row.case, row.comparison) == (before.case, before.comparison):  # else it is ours, and the first
            ratios = ("" if ratio is None else times(ratio)[:-1] for ratio in (row.ratio, row.busy_ratio))
            lines.append(f"| {row.case}: {row.comparison} | {row.contender} | {' | '.join(ratios)} |")
    return "\n".join(lines) + "\n"


def report(rows: Sequence[Row], absent: Mapping[str, str], *, rounds: int, quick: bool) -> dict[str, Any]:
    """All that was measured, and where, in plain types.

    Example:
        >>> row = Row("dense", "1,000 × 20", "ours", 1000, (0.25, 0.2), 1.0, None, None, None)
        >>> found = report([row], {}, rounds=2, quick=True)
        >>> found["rows"][0]["best"], found["rounds"]
        (0.2, 2)
    """
    return {
        "date": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "rounds": rounds,
        "quick": quick,
        "machine": {
            "cpus": os.cpu_count(),
            "torch_threads": torch.get_num_threads(),
            "processor": platform.processor() or platform.machine(),
            "system": platform.system(),
        },
        "versions": {"python": platform.python_version(), **_versions()},
        "left_out": dict(absent),
        "rows": [_plain(row) for row in rows],
    }


def _versions() -> dict[str, str]:
    found = {name: _version(name) for name in LIBRARIES}
    return {name: number for name, number in found.items() if number is not None}


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _plain(row: Row) -> dict[str, Any]:
    return {
        "case": row.case,
        "comparison": row.comparison,
        "contender": row.contender,
        "rows": row.rows,
        "seconds": list(row.times),
        "best": row.best,
        "median": row.median,
        "spread": row.spread,
        "microseconds_a_row": row.microseconds,
        "ratio_to_ours": row.ratio,
        "seconds_with_a_busy_core": list(row.busy),
        "ratio_with_a_busy_core": row.busy_ratio,
        "results_ok": None if row.finding is None else row.finding.ok,
        "results": None if row.finding is None else row.finding.text,
        "target": None if row.goal is None else row.goal.text,
        "target_met": row.met,
    }


# --- the picture --------------------------------------------------------------------------------------------------


def chart(rows: Sequence[Row]) -> Figure | None:
    """Draw the ratios that have a target as bars on a logarithmic axis, the targets as ticks; ``None`` if none has.

    Example:
        >>> from benchmarks.timing import Goal
        >>> goal = Goal("at least", 3)
        >>> figure = chart([Row("dense", "1,000 × 20", "peer", 1000, (0.8,), 4.0, None, goal, True)])
        >>> figure.axes[0].get_xscale(), len(figure.axes[0].get_yticklabels())
        ('log', 1)
    """
    drawn = [row for row in rows if row.goal is not None and row.goal.kind != "seconds"]
    if not drawn:
        return None
    from matplotlib.figure import Figure  # without pyplot, so no display is looked for and none is left open

    figure = Figure(figsize=(9, 1.0 + 0.38 * len(drawn)), dpi=100, layout="constrained")
    axes = figure.add_subplot()
    for place, row in enumerate(drawn):
        _bar(axes, place, row)
    ratios = [row.ratio for row in drawn] + [tick for row in drawn if (tick := _ticks(row)[0])]
    axes.set_xscale("log")
    axes.set_xlim(min(0.5, *ratios) / 1.3, max(2.0, *ratios) * 2.2)  # room for the numbers beside the bars
    axes.set_yticks(range(len(drawn)), [f"{row.case}: {row.comparison}\nagainst {row.contender}" for row in drawn])
    axes.tick_params(axis="y", labelsize=7.5, length=0)
    axes.set_ylim(len(drawn) - 0.4, -0.6)  # the first on top
    axes.axvline(1, color="black", lw=0.8)
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}×" if value < 1000 else f"{value:,.0f}×")
    axes.set_xlabel("their time for a row / ours; right of 1× torchperc is faster")
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.grid(axis="x", alpha=0.25)
    _legend(figure, axes, drawn)
    return figure


def _bar(axes: Axes, place: int, row: Row) -> None:
    """A bar from 1× to the ratio, its number beside it, and the target."""
    axes.barh(place, row.ratio - 1, left=1, height=0.55, color=_MET if row.met else _MISSED, zorder=2)
    axes.plot(_ticks(row), [place] * len(_ticks(row)), "|", color="black", ms=15, mew=1.8, zorder=3)
    right = max(row.ratio, 1.0, *_ticks(row))
    axes.text(right * 1.12, place, times(row.ratio), va="center", fontsize=8.5)


def _ticks(row: Row) -> list[float]:
    assert row.goal is not None
    return [1 / row.goal.value, row.goal.value] if row.goal.tick is None else [row.goal.tick]


def _legend(figure: Figure, axes: Axes, drawn: Sequence[Row]) -> None:
    from matplotlib.patches import Patch

    kinds = ((_MET, True, "target met"), (_MISSED, False, "target missed"))
    bars = [Patch(color=colour, label=name) for colour, met, name in kinds if any(row.met is met for row in drawn)]
    (tick,) = axes.plot([], [], "|", color="black", ms=12, mew=1.8, ls="none", label="target")
    figure.legend(handles=[*bars, tick], loc="outside lower center", ncols=3, frameon=False, fontsize=9)
