"""Apply a model to files: labels and scores, or predicted numbers, block by block."""

from __future__ import annotations

import contextlib
import csv
import io
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

import torchperc as tp
from torchperc._checks import Option, ParameterError, require_packages
from torchperc._files import atomic_path
from torchperc.data.read import Batches
from torchperc.data.table_encoder import Column, TableEncoder
from torchperc.data.table_files import find_files, is_finite
from torchperc.model.model_file import model_file
from torchperc.reports.results import Fit, Tally

if TYPE_CHECKING:
    from torchperc.model.model import FittedModel

SUFFIXES = (".csv", ".csv.gz", ".tsv", ".tsv.gz", ".parquet")  # of the files that are written


@dataclass
class Applied:
    """Result of ``apply``: rows, rows with known labels or targets, and the error on those."""

    labels: tuple[str, ...] = ()  # of the model; none of a regression
    rows: int = 0
    known: int = 0
    wrong: int = 0
    strange: set[str] = field(default_factory=set)  # labels in the file that did not occur in training
    ignored: tuple[str, ...] = ()  # columns of the file that the model does not use
    _sums: tuple[float, float, float] = (0.0, 0.0, 0.0)  # squared residuals; mean of targets, squared deviations

    @property
    def error(self) -> Tally | None:
        """The error of a classifier on rows with known labels."""
        return Tally(self.wrong, self.known) if self.labels and self.known else None

    @property
    def fit(self) -> Fit | None:
        """How the predictions of a regression fit the known targets."""
        if self.labels or not self.known:
            return None
        squares, _, spread = self._sums
        return Fit.of_sums(squares, spread, self.known)

    def compare(self, model: FittedModel, predicted: Any, told: list[str]) -> None:
        """Count what the file itself says of some rows; empty where it says nothing."""
        if model.regression:
            self.strange |= {text for text in told if text and not is_finite(text)}
            y = np.array([float(text) if is_finite(text) else np.nan for text in told])
            self._add(predicted[~np.isnan(y)], y[~np.isnan(y)])
            return
        y, names = np.array(told, dtype=object), model.labels
        rest, one = names[0], names[-1]
        seen = names if model.encoding is None else (*names, *model.encoding.labels)
        learned = np.isin(y, seen)
        if len(names) == 2 and rest == f"not {one}":  # learned against all others together
            learned |= (y != "") & (model.encoding is None)
            y[learned & (y != one)] = rest
        self.strange |= set(y[~learned & (y != "")])
        self.known += int(learned.sum())
        self.wrong += int((learned & (predicted != y)).sum())

    def _add(self, predicted: Any, y: Any) -> None:
        """Merge the sums of further targets, whose mean and squared deviations do not lose digits so."""
        if not len(y):
            return
        squares, mean, spread = self._sums
        step, count = float(y.mean()) - mean, self.known + len(y)
        spread += float(((y - y.mean()) ** 2).sum()) + step**2 * self.known * len(y) / count
        self._sums = squares + float(((y - predicted) ** 2).sum()), mean + step * len(y) / count, spread
        self.known = count


def apply(
    model: FittedModel | str | Path,
    source: str | Path | Sequence[str | Path],
    out: str | Path | None = None,
    *,
    unknown: Literal["error", "ignore"] = "error",
    keep: str | Sequence[str] = (),
) -> Applied:
    """Write a label and its scores, or the predicted number, for every row of a file, in the order of the rows.

    Columns are found by name; unknown ones are ignored. If the target is there, too, the error is counted.

    Args:
        model: the folder of a run, or its ``weights.safetensors``; from Python also a :class:`FittedModel`.
        source: a file with the columns of training, found by name; several files, or a pattern such as ``new/*.csv``:
            their rows one after the other.
        out: a file that ends in .csv, .csv.gz, .tsv, .tsv.gz or .parquet, written atomically; CSV on standard output by
            default.
        unknown: ``"ignore"`` encodes a category that training did not have as zeros; ``"error"`` names its place.
        keep: columns of the file to write before the predictions, such as an identifier; ``"all"``, or on the command
            line no name at all, keeps every one.

    Example:
        >>> import tempfile, torchperc as tp
        >>> folder = Path(tempfile.mkdtemp())
        >>> _ = (folder / "new.csv").write_text("id,x1,x2\\na7,0,1\\n")
        >>> apply(tp.FittedModel(tp.Perceptron(2)), folder / "new.csv", folder / "labels.csv", keep="id").rows
        1
        >>> (folder / "labels.csv").read_text()
        'id,label,score\\n"a7","+1",0\\n'
    """
    paths = find_files(source)
    out = None if out is None else _check_out(Path(out), paths)
    loaded: Any = model
    if isinstance(model, str | Path):
        model_file(Path(model))  # what is not there is refused before torch is imported
        loaded = tp.FittedModel.load(model)
    encoding = loaded.encoding or TableEncoder(tuple(map(Column, loaded.names)), None, loaded.labels)
    streams = [Batches(path, encoding, unknown=unknown, keep=keep) for path in paths]
    kept = () if keep == "all" else (keep,) if isinstance(keep, str) else tuple(keep)
    extra = dict.fromkeys(name for stream in streams for name in stream.extra if keep != "all" and name not in kept)
    applied = Applied(loaded.labels, ignored=tuple(extra))
    with _writer(out, None if keep else loaded.labels) as write:
        for batch in chain.from_iterable(streams):
            columns = _columns(loaded, batch.X)
            predicted = next(iter(columns.values()))
            if batch.labels is not None:
                applied.compare(loaded, predicted, batch.labels)
            texts = {name: np.array(values, dtype=object) for name, values in batch.kept.items()}
            write(_joined(texts, columns))
            applied.rows += len(predicted)
        if not applied.rows:  # the names of the columns alone
            nothing = {name: values[:0] for name, values in _columns(loaded, np.zeros((1, loaded.width))).items()}
            names = [*(column.name for column in encoding.columns), *streams[0].extra] if keep == "all" else kept
            write(_joined({name: np.empty(0, dtype=object) for name in names}, nothing))
    return applied


def _joined(kept: dict[str, Any], columns: dict[str, Any]) -> dict[str, Any]:
    """Join kept columns and the model's; a name that occurs twice gets a suffix."""
    for name, values in columns.items():
        while name in kept:
            name += "_2"
        kept[name] = values
    return kept


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
def _writer(out: Path | None, texts: Sequence[str] | None) -> Iterator[Callable[[dict[str, Any]], None]]:
    """A function that writes columns; what it wrote takes the file's name when all of it is there.

    ``texts`` are all that may occur in the columns, if that is known.
    """
    require_packages("torchperc apply", "pyarrow")
    import pyarrow as pa
    from pyarrow import csv as arrow_csv
    from pyarrow import parquet

    suffixes = [] if out is None else [suffix.lower() for suffix in out.suffixes[-2:]]
    delimiter = "\t" if ".tsv" in suffixes else ","
    plain = texts is not None and not any(set(text) & {delimiter, '"', "\n", "\r"} for text in texts)
    quotes = "none" if plain else "needed"
    options = arrow_csv.WriteOptions(include_header=False, delimiter=delimiter, quoting_style=quotes)
    with contextlib.ExitStack() as stack:
        part = None if out is None else stack.enter_context(atomic_path(out))
        sinks: list[Any] = []

        def open_sink(schema: Any) -> Any:
            if suffixes[-1:] == [".parquet"]:
                return stack.enter_context(parquet.ParquetWriter(part, schema))
            header = io.StringIO()
            csv.writer(header, delimiter=delimiter, lineterminator="\n").writerow(schema.names)
            if part is None:
                file: Any = pa.PythonFile(sys.stdout.buffer, mode="w")
            else:
                file = stack.enter_context(pa.output_stream(part, compression="gzip" if ".gz" in suffixes else None))
            file.write(header.getvalue().encode())
            return stack.enter_context(arrow_csv.CSVWriter(file, schema, write_options=options))

        def write(columns: dict[str, Any]) -> None:
            kinds = {name: pa.string() if values.dtype == object else pa.float64() for name, values in columns.items()}
            table = pa.table(columns, schema=pa.schema(kinds))
            if not sinks:
                sinks.append(open_sink(table.schema))
            sinks[0].write_table(table)

        yield write
