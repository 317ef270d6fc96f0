"""A new format: ARFF, the table of Weka, as a data set."""

import csv
from pathlib import Path

import torchperc as tp


def read_arff(path):
    """Numeric attributes stay as they are, nominal ones become one feature per value; the last one is the label."""
    columns, rows = [], []
    lines = iter(Path(path).read_text(encoding="utf-8").splitlines())
    for line in lines:
        words = line.split(None, 2)
        if words and words[0].lower() == "@attribute":
            kind = words[2].strip()
            values = [value.strip() for value in kind.strip("{}").split(",")] if kind.startswith("{") else None
            columns.append((words[1], values))
        elif words and words[0].lower() == "@data":
            break
    for row in csv.reader(line for line in lines if line.strip() and not line.startswith("%")):
        cells = [cell.strip() for cell in row]
        pairs = zip(cells[:-1], columns[:-1], strict=True)
        rows.append(([number for cell, (_, values) in pairs for number in _numbers(cell, values)], cells[-1]))
    names = [name if values is None else f"{name}={value}" for name, values in columns[:-1] for value in values or [""]]
    X, y = zip(*rows, strict=True)
    return tp.data.Dataset.of(list(X), list(y), names=names, name=Path(path).name, target=columns[-1][0])


def _numbers(cell, values):
    return [float(cell)] if values is None else [float(cell == value) for value in values]
