"""Files that are read in shards, and what each of several processes does with them; imported by all of those."""

import bz2
import csv
import gzip
import io
import itertools
from dataclasses import replace

import numpy as np
import processes
import pyarrow as pa
import pyarrow.parquet as pq
import torch

from torchperc.data import load, make_partition, make_scaler, read, split
from torchperc.data.io import cutting, opening, text
from torchperc.lightning import TabularDataModule

ROWS = 47
TOGETHER = ("csv", "dos", "streamed", "bare", "parquets", "fortran", "svms", "text", "messages")


def columns(rows=ROWS, seed=0):
    """Numbers with gaps, words with line ends in quotes, labels and levels that one shard alone has."""
    rng = np.random.default_rng(seed)
    numbers = [f"{x:.17g}" for x in rng.normal(size=rows) * 10.0 ** rng.integers(-9, 9, rows)]
    words = rng.choice(["red", "two\nlines", 'say "hi"', "a,b"], rows).tolist()
    labels = rng.choice(["u", "v"], rows).tolist()
    numbers[3] = numbers[rows - 4] = ""
    words[1], labels[1] = "early", "t"
    words[rows - 2], labels[rows - 3] = "late", "w"
    return {"a": numbers, "word": words, "label": labels}


def as_text(table, header=True, end="\n", quoting=csv.QUOTE_MINIMAL):
    file = io.StringIO(newline="")
    writer = csv.writer(file, lineterminator=end, quoting=quoting)
    writer.writerows([list(table)] * header + list(zip(*table.values(), strict=True)))
    return file.getvalue().encode()


def cut(table, *ends):
    bounds = [0, *ends, len(table["label"])]
    return [{name: cells[a:b] for name, cells in table.items()} for a, b in itertools.pairwise(bounds)]


def save_parquet(path, table, group):
    pq.write_table(pa.table({**table, "a": [float(x) if x else None for x in table["a"]]}), path, row_group_size=group)


def sources(folder):
    """By name: what to read, and its options."""
    table = columns()
    (folder / "one.csv").write_bytes(as_text(table))
    (folder / "dos.csv").write_bytes(b"\xef\xbb\xbf" + as_text(table, end="\r\n", quoting=csv.QUOTE_ALL))
    (folder / "old.csv").write_bytes(as_text({**table, "word": ["x", "y"] * 23 + ["x"]}, end="\r"))
    save_parquet(folder / "one.parquet", table, 10)
    for number, part in enumerate(cut(table, 5, 6, 30)):
        (folder / f"headed-{number}.csv").write_bytes(as_text(part))
        (folder / f"bare-{number}.csv").write_bytes(as_text(part, header=not number))
        (folder / f"packed-{number}.csv.gz").write_bytes(gzip.compress(as_text(part)))
        save_parquet(folder / f"part-{number}.parquet", part, 4)
    words = np.random.default_rng(2).choice(["win", "a", "prize", "lunch", "home", "now", "£5!", "e.g."], (ROWS, 9))
    said = {"a": table["a"], "message": [" ".join(row) + "\nwords follow" for row in words], "label": table["label"]}
    (folder / "messages.csv").write_bytes(as_text(said))
    rng = np.random.default_rng(1)
    matrix = np.c_[rng.normal(size=(ROWS, 3)), rng.integers(0, 3, ROWS)]
    np.save(folder / "one.npy", matrix)
    np.save(folder / "columns.npy", np.asfortranarray(matrix))
    np.save(folder / "levels.npy", np.c_[np.arange(ROWS) // 3, np.arange(ROWS) % 2])
    lines = [
        f"{int(row[3])} " + " ".join(f"{j + 1}:{x!r}" for j, x in enumerate(row[:3].tolist()) if x > -0.5) + " # said"
        for row in matrix
    ]
    lines[-1] += " "
    lines[-2] = "7 40:1"
    (folder / "one.svm").write_text("\n".join(lines))
    for number, (a, b) in enumerate(((0, 20), (20, ROWS))):
        (folder / f"part-{number}.svm").write_text("\n".join(lines[a:b]) + "\n")
        (folder / f"packed-{number}.svm.bz2").write_bytes(bz2.compress(("\n".join(lines[a:b]) + "\n").encode()))
    mean, drop = {"missing": "mean"}, {"missing": "drop"}
    return {
        "csv": (folder / "one.csv", mean), "csv dropped": (folder / "one.csv", drop), "dos": (folder / "dos.csv", mean),
        "old": (folder / "old.csv", drop), "streamed": (folder / "one.csv", {**mean, "stream": True}),
        "headed": (folder / "headed-*.csv", mean), "bare": (str(folder / "bare-?.csv"), mean),
        "parquet": (folder / "one.parquet", mean), "parquets": (folder / "part-*.parquet", {**mean, "positive": "w"}),
        "npy": (folder / "one.npy", {}), "fortran": (folder / "columns.npy", {}),
        "npy levels": (folder / "levels.npy", {"categories": 1}),
        "svm": (folder / "one.svm", {}), "svms": ([folder / "part-0.svm", folder / "part-1.svm"], {}),
        "text": (folder / "one.csv", {**mean, "text": "word"}), "messages": (folder / "messages.csv", mean),
        "messages streamed": (folder / "messages.csv", {**drop, "stream": True}),
        "texts": (folder / "part-*.parquet", {**drop, "text": ["word"]}),
        "svm streamed": (folder / "one.svm", {"stream": True}),
    }  # fmt: skip


def read_all(rank, size, folder, shard):
    shard = "auto" if shard == "auto" else (rank, size)
    given = sources(folder / str(rank))
    return {name: held(load(given[name][0], **given[name][1], shard=shard)) for name in TOGETHER}


def held(made):
    """What can be sent to another process: nothing that is mapped from a file of this one."""
    if isinstance(made.X, np.memmap):
        return replace(made, X=np.array(made.X))
    return replace(made, X=made.X.load(0)) if hasattr(made.X, "load") else made


def partitioned(rank, size, folder):
    """The splits of this process, scaled, with what was learned from all processes on the way."""
    given, found = sources(folder / str(rank)), {}
    for (name, scale), stream in (
        (("csv", "standard"), False),
        (("parquets", "minmax"), False),
        (("svms", "maxabs"), False),
        (("csv", "standard"), True),
    ):
        path, options = given[name]
        made = load(path, **{**options, "stream": stream}, shard="auto")
        indices = split(made.y, seed=3, together=True)
        partition = make_partition(made, indices, make_scaler(scale), dtype=torch.float64)
        module = TabularDataModule(path, {**options, "stream": stream, "shard": "auto"}, seed=3)
        found[name, scale, stream] = partition, indices, module.state_dict()
    return found


def counted(rank, size, folder):
    """How many bytes of each file this process reads, and which groups of rows."""
    seen, groups = {}, {}
    reads, batches = opening.Stream.read, pq.ParquetFile.iter_batches

    def counted(self, size):
        data = reads(self, size)
        seen[self.path.name] = seen.get(self.path.name, 0) + len(data)
        return data

    def noted(self, *args, row_groups=None, **options):
        groups.setdefault("all", []).extend(row_groups)
        return batches(self, *args, row_groups=row_groups, **options)

    def from_file(path, dtype, count, offset):
        seen[path.name] = seen.get(path.name, 0) + count * np.dtype(dtype).itemsize
        return fromfile(path, dtype, count, offset=offset)

    fromfile, np.fromfile = np.fromfile, from_file
    opening.Stream.read, pq.ParquetFile.iter_batches = counted, noted
    text.HEAD = cutting.CHUNK = 256
    for name in ("big.csv", "big.svm", "big.npy", "big.parquet"):
        read(folder / name, shard="auto")
    read(folder / "many-*.csv", shard="auto")
    return seen, groups["all"]


def faults(rank, size, folder):
    """What each process says of files that are wrong somewhere."""
    said = {}
    for name in ("late.csv", "one-label.csv", "few.npy", "inch.csv", "gone.csv", "late.svm", "options"):
        path = {"gone.csv": "none.csv" if rank else "gone.csv", "options": "gone.csv"}.get(name, name)
        try:
            read(folder / path, shard="auto", missing="drop" if name == "options" and rank else "error")
        except ValueError as error:
            said[name] = str(error)
    return said


def learned(rank, size, folder, options):
    """What ``learn`` finds in this process, started as by ``torchrun``."""
    import torchperc as tp

    processes.as_launched(rank, size)
    found = []
    for number, (pattern, more) in enumerate(options):
        try:
            made = tp.learn(
                folder / pattern if isinstance(pattern, str) else pattern[0], folder=folder / f"run-{number}", **more
            )
            found.append((summary(made), made.model))
        except ValueError as error:  # noqa: PERF203
            found.append(str(error))
    return found


def summary(learned):
    """All that is not a time or a place."""
    candidates = [(c.name, c.validation, c.training, c.verdict, c.epochs) for c in learned.candidates]
    return candidates, learned.best.name, learned.test, learned.baseline, learned.notes
