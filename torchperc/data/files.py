"""Data sets out of text files: numbers in columns, one column of any words."""

from __future__ import annotations

import csv
import math
from pathlib import Path

import torch

from torchperc.data.dataset import Dataset, is_number, shortest


def read_csv(path: str | Path, target: str | int | None = None) -> Dataset:
    """Read a CSV file with a column of labels. A first line without any number in it is a header.

    Args:
        path: the file, UTF-8, comma-separated.
        target: the column of labels, by name or by position from 1; the last one by default.

    Example:
        >>> import tempfile, pathlib
        >>> file = pathlib.Path(tempfile.mkdtemp()) / "fruit.csv"
        >>> _ = file.write_text("weight,length,fruit\\n120,7,apple\\n110,19,banana\\n")
        >>> table = read_csv(file)
        >>> table.X.tolist(), table.y.tolist(), table.labels
        ([[120.0, 7.0], [110.0, 19.0]], [-1, 1], ('apple', 'banana'))
    """
    path, target = Path(path), None if target is None else str(target)
    lines = _lines(path)
    header = lines[0][1] if _is_header(lines, target) else [str(i + 1) for i in range(len(lines[0][1]))]
    body = lines[1:] if _is_header(lines, target) else lines
    if not body:
        raise ValueError(f"{path} has a header but no rows of data")
    column = _target_column(header, target, path)
    given = [_label(row[column], path, line, header[column]) for line, row in body]
    if len(set(given)) < 2:
        raise ValueError(f"{path} has one label only in column {header[column]!r}: {given[0]!r}; two are needed")
    values = [[_number(cell, path, line, header[j]) for j, cell in enumerate(row) if j != column] for line, row in body]
    names = tuple(name for j, name in enumerate(header) if j != column)
    return Dataset.of(torch.tensor(values, dtype=torch.float64), given, names=names, name=path.name)


def _lines(path: Path) -> list[tuple[int, list[str]]]:
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            reader = csv.reader(file, skipinitialspace=True)
            lines = [(reader.line_num, [cell.strip() for cell in row]) for row in reader if any(map(str.strip, row))]
    except OSError as error:
        raise ValueError(f"cannot read {path}: {error.strerror or error}") from None
    except (UnicodeDecodeError, csv.Error) as error:
        raise ValueError(f"{path} is not a CSV file in UTF-8: {error}") from None
    if not lines:
        raise ValueError(f"{path} is empty")
    width = len(lines[0][1])
    if width < 2:
        raise ValueError(f"{path} has one column; a feature and a label are needed, separated by commas")
    for line, row in lines:
        if len(row) != width:
            raise ValueError(f"{path}, line {line}: {len(row)} columns where the first line has {width}")
    return lines


def _is_header(lines: list[tuple[int, list[str]]], target: str | None) -> bool:
    first = lines[0][1]
    if target is not None and target in first and not is_number(target):
        return True
    return not any(is_number(cell) or not cell for cell in first)  # names are words, and every column has one


def _target_column(header: list[str], target: str | None, path: Path) -> int:
    if target is None:
        return len(header) - 1
    if target in header:
        return header.index(target)
    if target.isascii() and target.isdigit() and 1 <= int(target) <= len(header):
        return int(target) - 1
    raise ValueError(f"{path} has no column {target!r}; it has {', '.join(header)}")


def _label(cell: str, path: Path, line: int, name: str) -> str:
    """The label as written, or in one way of writing if it is a number: 1, 1.0 and +1 are the same label."""
    if not cell or cell.lower() == "nan":
        raise ValueError(f"{path}, line {line}, column {name!r}: the label is missing; fill it in or drop the row")
    return shortest(float(cell)) if is_number(cell) else cell


def _number(cell: str, path: Path, line: int, name: str) -> float:
    if not is_number(cell):
        what = f"{cell!r} is not a number" if cell else "the value is missing"
        raise ValueError(f"{path}, line {line}, column {name!r}: {what}; correct it or drop the row")
    if not math.isfinite(float(cell)):
        raise ValueError(f"{path}, line {line}, column {name!r}: {cell} is not a finite number")
    return float(cell)
