"""A progress bar for runs over data that are read in parts."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from torchperc.rules.run import EpochRecord
from torchperc.samples.parts import PartRows
from torchperc.samples.rows import Rows


@contextmanager
def bar(rows: Rows, wanted: bool | None) -> Iterator[Callable[[EpochRecord], None]]:
    """Show on standard error how far the epoch is; call what it yields after each epoch.

    Args:
        rows: the samples of the run.
        wanted: whether to show it; ``None``: for samples that are read in parts, if standard error is a terminal.

    Example:
        >>> import torch
        >>> from torchperc.samples.rows import DenseRows
        >>> with bar(DenseRows(torch.zeros(2, 2)), None) as after_epoch:
        ...     after_epoch(EpochRecord(1, 0, 0.0, None))
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
            said = f"epoch {record.epoch + 1} (the last made {record.mistakes:,} mistakes)"
            progress.update(task, completed=0, description=said)

        try:
            yield after_epoch
        finally:
            if isinstance(rows, PartRows):
                rows.watch = lambda done, total: None
