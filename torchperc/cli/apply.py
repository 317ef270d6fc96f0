"""``torchperc apply``: labels and scores for new data, by the model of a run, a part of the file at a time."""

from __future__ import annotations

import argparse
import contextlib
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torchperc._lazy import requires
from torchperc.cli import inputs
from torchperc.reports.text import visible

if TYPE_CHECKING:
    from torchperc.data.encoding import Encoding
    from torchperc.model.fitted import FittedModel, Outputs

_ENDINGS = (".csv", ".csv.gz", ".tsv", ".tsv.gz", ".parquet")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the command."""
    parser.description = (
        "Writes a label and its scores for every row of a file, in the order of the rows. Columns are found by name; "
        "those the model does not know are left aside. If the column of labels is there, too, the error is counted."
    )
    parser.add_argument("run", metavar="RUN", help="the folder of a run, or its weights.safetensors")
    parser.add_argument("data", help=inputs.FORMATS)
    parser.add_argument("-o", "--out", metavar="FILE", help=f"{', '.join(_ENDINGS)} (default: CSV on standard output)")
    parser.add_argument(
        "--spreadsheet-safe",
        action="store_true",
        help="put ' before labels that a spreadsheet would run as formulas: those that begin with = + - @ and are no "
        "numbers (default: labels as they are)",
    )
    inputs.add_limit(parser)


def run(arguments: argparse.Namespace) -> None:
    """Label the rows, write them, and say how many there were."""
    import numpy as np

    from torchperc.data import batches
    from torchperc.model.fitted import FittedModel

    inputs.one_line_warnings()
    model = FittedModel.load(arguments.run)
    out = None if arguments.out is None else _check_out(Path(arguments.out), Path(arguments.data))
    if arguments.spreadsheet_safe and out is not None and out.suffix.lower() == ".parquet":
        raise ValueError(f"--spreadsheet-safe goes with CSV and TSV, but --out={out} is read by no spreadsheet as text")
    with inputs.as_options():
        stream = batches(arguments.data, _encoding(model), max_unpacked=arguments.max_unpacked)
    count = known = wrong = 0
    strange: set[str] = set()
    with inputs.as_options(), _writer(out, model.labels) as write:
        for batch in stream:
            columns = _columns(model, model.outputs(batch.X))
            shown = np.vectorize(_safe, [object]) if arguments.spreadsheet_safe else np.asarray
            write({**columns, "label": shown(columns["label"])})
            count += len(columns["label"])
            if batch.labels is not None:
                told = _told(model, batch.labels)
                learned = np.isin(told, model.labels)
                strange |= set(told[~learned & (told != "")])
                known += int(learned.sum())
                wrong += int((learned & (columns["label"] != told)).sum())
        if not count:  # the names of the columns alone
            write({name: values[:0] for name, values in _columns(model, model.outputs(_nothing(model))).items()})
    _conclude(arguments, stream.extra, strange, count, known, wrong)


def _encoding(model: FittedModel) -> Encoding:
    """How columns become features: as in the file that was learned from, or one number each."""
    from torchperc.data.encoding import Column, Encoding

    return model.encoding or Encoding(tuple(map(Column, model.names)), None, model.labels)


def _nothing(model: FittedModel) -> Any:
    """A sample of zeros, which tells what columns the answers have."""
    import numpy as np

    return np.zeros((1, model.width))


def _columns(model: FittedModel, said: Outputs) -> dict[str, Any]:
    """The columns of the output: label, scores, and probabilities where the model has them."""
    import numpy as np

    columns: dict[str, Any] = {"label": np.array(model.labels, dtype=object)[said.label.numpy()]}
    for kind, values in (("score", said.scores), ("probability", said.probabilities)):
        if values is None:
            continue
        table = values.double().numpy()
        if len(model.labels) == 2:
            columns[kind] = table if table.ndim == 1 else table[:, 1]
        else:
            columns.update({f"{kind}_{name}": table[:, k] for k, name in enumerate(model.labels)})
    return columns


def _told(model: FittedModel, labels: list[str]) -> Any:
    """What the file itself says, in the labels of the model; empty where it says nothing."""
    import numpy as np

    told = np.array(labels, dtype=object)
    rest, one = model.labels[0], model.labels[-1]
    if len(model.labels) == 2 and rest == f"not {one}":  # learned against all others together
        told[(told != one) & (told != "")] = rest
    return told


def _safe(label: str) -> str:
    """The label as a spreadsheet shows it and does not run it."""
    from torchperc.data.dataset import is_number

    return f"'{label}" if label.startswith(("=", "+", "-", "@", "\t", "\r")) and not is_number(label) else label


def _check_out(out: Path, data: Path) -> Path:
    if not out.name.lower().endswith(_ENDINGS):
        raise ValueError(f"--out={out} must end in {', '.join(_ENDINGS)}")
    if out.is_dir() or not out.absolute().parent.is_dir():
        raise ValueError(f"--out={out} is not a file in a folder that exists; make the folder first")
    if out.exists() and out.samefile(data):
        raise ValueError(f"--out={out} is the file that is read; name another")
    return out


@contextlib.contextmanager
def _writer(out: Path | None, labels: Sequence[str]) -> Iterator[Callable[[dict[str, Any]], None]]:
    """A function that writes columns; what it wrote takes the file's name when all of it is there."""
    requires("torchperc apply", "pyarrow")
    import pyarrow as pa

    from torchperc._atomic import appearing

    with contextlib.ExitStack() as stack:
        part = None if out is None else stack.enter_context(appearing(out))
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
    from pyarrow import csv, parquet

    if out is not None and out.suffix.lower() == ".parquet":
        with parquet.ParquetWriter(part, schema) as writer:
            yield writer
        return
    endings = [] if out is None else [suffix.lower() for suffix in out.suffixes[-2:]]
    delimiter = "\t" if ".tsv" in endings else ","
    quotes = "none" if not any(set(label) & {delimiter, '"', "\n", "\r"} for label in labels) else "needed"
    options = csv.WriteOptions(include_header=False, delimiter=delimiter, quoting_style=quotes)
    with contextlib.ExitStack() as stack:
        if part is None:
            file: Any = pa.PythonFile(sys.stdout.buffer, mode="w")
        else:
            file = stack.enter_context(pa.output_stream(part, compression="gzip" if ".gz" in endings else None))
        file.write(_header(schema.names, delimiter).encode())
        yield stack.enter_context(csv.CSVWriter(file, schema, write_options=options))


def _header(names: Sequence[str], delimiter: str) -> str:
    import csv
    import io

    text = io.StringIO()
    csv.writer(text, delimiter=delimiter, lineterminator="\n").writerow(names)
    return text.getvalue()


def _conclude(
    arguments: argparse.Namespace, extra: tuple[str, ...], strange: set[str], count: int, known: int, wrong: int
) -> None:
    from torchperc.reports.learned import Tally

    def say(text: str) -> None:
        print(visible(text), file=sys.stderr if arguments.out is None else sys.stdout)

    if arguments.out is not None:
        say(f"{count:,} label{'s' * (count != 1)} in {arguments.out}")
    if known:
        say(f"{wrong:,} of {known:,} differ from the labels in {arguments.data}: an error of {Tally(wrong, known)}")
    if strange:
        some = ", ".join(map(repr, sorted(strange)[:5])) + (", …" if len(strange) > 5 else "")
        say(f"not counted: rows with labels that did not occur in training, {some}")
    if extra:
        say(f"left aside: {', '.join(extra)}")
