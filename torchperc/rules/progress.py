"""A progress bar for data larger than memory."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from torchperc.rules.run import EpochRecord
from torchperc.samples.parts import PartRows
from torchperc.samples.rows import Rows


@contextmanager
def bar(rows: Rows, wanted: bool | None) -> Iterator[Callable[[EpochRecord], None]]:
    """A progress bar on standard error, by default for data larger than memory if that is a terminal.

    Call what it yields after each epoch.
    """
    if wanted is False or (wanted is None and not (isinstance(rows, PartRows) and sys.stderr.isatty())):
        yield lambda record: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True)) as progress:
        task = progress.add_task("epoch 1", total=len(rows))
        if isinstance(rows, PartRows):
            rows.watch = lambda done, total: progress.update(task, completed=done, total=total)

        def after_epoch(record: EpochRecord) -> None:
            progress.update(task, completed=len(rows))
            said = f"epoch {record.epoch + 1} (last epoch: {record.mistakes:,} mistakes)"
            progress.update(task, completed=0, description=said)

        try:
            yield after_epoch
        finally:
            if isinstance(rows, PartRows):
                rows.watch = lambda done, total: None
