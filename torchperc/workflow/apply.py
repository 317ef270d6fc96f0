"""From a model and a file to labels and scores, or to predicted numbers, one block of the file at a time."""

from __future__ import annotations

import contextlib
import csv
import io
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from torchperc._checks import Option, ParameterError, require_packages
from torchperc._files import atomic_path
from torchperc.data.file_formats import find_files
from torchperc.data.read import Batches
from torchperc.data.table_encoder import Column, TableEncoder, is_finite
from torchperc.model.fitted import FittedModel
from torchperc.reports.scores import Fit

SUFFIXES = (".csv", ".csv.gz", ".tsv", ".tsv.gz", ".parquet")  # of the files that are written


@dataclass
class Applied:
    """What :func:`apply` found: how many rows, how many with known labels or targets, and how wrong it is on those."""

    rows: int = 0
    known: int = 0
    wrong: int = 0
    fit: Fit | None = None  # of a regression, if there are known targets
    strange: set[str] = field(default_factory=set)  # labels in the file that did not occur in training
    ignored: tuple[str, ...] = ()  # columns of the file that the model does not use


def apply(
    model: FittedModel,
    source: str | Path | Sequence[str | Path],
    out: str | Path | None = None,
    unknown: str = "error",
) -> Applied:
    """Write a label and its scores, or the predicted number, for every row of a file, in the order of the rows.

    Args:
        model: of :func:`learn`, or :meth:`FittedModel.load`.
        source: a file with the columns of training, found by name; with that of the target the error is counted, too.
            A pattern such as ``new/*.csv`` or a list of files: their rows one after the other.
        out: a file that ends in one of :data:`SUFFIXES`, written atomically; CSV on standard output by default.
        unknown: ``"ignore"`` encodes a category that training did not have as zeros; ``"error"`` names its place.

    Example:
        >>> import tempfile, torchperc as tp
        >>> folder = Path(tempfile.mkdtemp())
        >>> _ = (folder / "new.csv").write_text("x1,x2\\n0,1\\n")
        >>> apply(FittedModel.of(tp.Perceptron(2)), folder / "new.csv", folder / "labels.csv").rows
        1
        >>> (folder / "labels.csv").read_text()
        'label,score\\n+1,0\\n'
    """
    paths = find_files(source)
    out = None if out is None else _check_out(Path(out), paths)
    encoding = model.encoding or TableEncoder(tuple(map(Column, model.names)), None, model.labels)
    streams = [Batches(path, encoding, unknown=unknown) for path in paths]
    applied = Applied(ignored=tuple(dict.fromkeys(name for stream in streams for name in stream.extra)))
    first, known = "prediction" if model.regression else "label", list[tuple[Any, Any]]()
    with _writer(out, model.labels) as write:
        for batch in chain.from_iterable(streams):
            columns = _columns(model, batch.X)
            if batch.labels is not None and model.regression:
                known.append(_known(applied, columns[first], batch.labels))
            elif batch.labels is not None:
                _compare(applied, model, columns[first], batch.labels)
            write(columns)
            applied.rows += len(columns[first])
        if not applied.rows:  # the names of the columns alone
            write({name: values[:0] for name, values in _columns(model, np.zeros((1, model.width))).items()})
    if applied.known and model.regression:
        applied.fit = Fit.of(*(np.concatenate(each) for each in zip(*known, strict=True)))
    return applied


def _columns(model: FittedModel, X: Any) -> dict[str, Any]:
    """The columns of the output: label, scores, and probabilities where the model has them; or the prediction."""
    outputs = model.outputs(X)
    if outputs.label is None:
        return {"prediction": outputs.scores.numpy()}
    columns: dict[str, Any] = {"label": np.array(model.labels, dtype=object)[outputs.label.numpy()]}
    for kind, values in (("score", outputs.scores), ("probability", outputs.probabilities)):
        if values is None:
            continue
        table = values.double().numpy()
        if len(model.labels) == 2:
            columns[kind] = table if table.ndim == 1 else table[:, 1]
        else:
            columns.update({f"{kind}_{name}": table[:, k] for k, name in enumerate(model.labels)})
    return columns


def _compare(applied: Applied, model: FittedModel, predicted: Any, labels: list[str]) -> None:
    """Count what the file itself says, in the labels of the model; empty where it says nothing."""
    told = np.array(labels, dtype=object)
    rest, one = model.labels[0], model.labels[-1]
    if len(model.labels) == 2 and rest == f"not {one}":  # learned against all others together
        told[(told != one) & (told != "")] = rest
    learned = np.isin(told, model.labels)
    applied.strange |= set(told[~learned & (told != "")])
    applied.known += int(learned.sum())
    applied.wrong += int((learned & (predicted != told)).sum())


def _known(applied: Applied, predicted: Any, targets: list[str]) -> tuple[Any, Any]:
    """Predictions and targets where the file itself has numbers."""
    told = np.array([float(text) if is_finite(text) else np.nan for text in targets])
    applied.strange |= {text for text in targets if text and not is_finite(text)}
    there = ~np.isnan(told)
    applied.known += int(there.sum())
    return predicted[there], told[there]


def _check_out(out: Path, sources: Sequence[Path]) -> Path:
    given = Option("out", out)
    if not out.name.lower().endswith(SUFFIXES):
        raise ParameterError(given, f" must end in {', '.join(SUFFIXES)}")
    if out.is_dir() or not out.absolute().parent.is_dir():
        raise ParameterError(given, " is not a file in a folder that exists; make the folder first")
    if out.exists() and any(out.samefile(source) for source in sources if source.exists()):
        raise ParameterError(given, " is the file that is read; choose another")
    return out


@contextlib.contextmanager
def _writer(out: Path | None, labels: Sequence[str]) -> Iterator[Callable[[dict[str, Any]], None]]:
    """A function that writes columns; what it wrote takes the file's name when all of it is there."""
    require_packages("torchperc apply", "pyarrow")
    import pyarrow as pa

    with contextlib.ExitStack() as stack:
        part = None if out is None else stack.enter_context(atomic_path(out))
        opened: list[Any] = []

        def write(columns: dict[str, Any]) -> None:
            kinds = {name: pa.string() if values.dtype == object else pa.float64() for name, values in columns.items()}
            table = pa.table(columns, schema=pa.schema(kinds))
            if not opened:
                opened.append(stack.enter_context(_sink(out, part, table.schema, labels)))
            opened[0].write_table(table)

        yield write


@contextlib.contextmanager
def _sink(out: Path | None, part: Path | None, schema: Any, labels: Sequence[str]) -> Iterator[Any]:
    import pyarrow as pa
    from pyarrow import csv as arrow_csv
    from pyarrow import parquet

    if out is not None and out.suffix.lower() == ".parquet":
        with parquet.ParquetWriter(part, schema) as writer:
            yield writer
        return
    suffixes = [] if out is None else [suffix.lower() for suffix in out.suffixes[-2:]]
    delimiter = "\t" if ".tsv" in suffixes else ","
    quotes = "none" if not any(set(label) & {delimiter, '"', "\n", "\r"} for label in labels) else "needed"
    options = arrow_csv.WriteOptions(include_header=False, delimiter=delimiter, quoting_style=quotes)
    header = io.StringIO()
    csv.writer(header, delimiter=delimiter, lineterminator="\n").writerow(schema.names)
    with contextlib.ExitStack() as stack:
        if part is None:
            file: Any = pa.PythonFile(sys.stdout.buffer, mode="w")
        else:
            file = stack.enter_context(pa.output_stream(part, compression="gzip" if ".gz" in suffixes else None))
        file.write(header.getvalue().encode())
        yield stack.enter_context(arrow_csv.CSVWriter(file, schema, write_options=options))
