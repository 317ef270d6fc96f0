"""Shards of files: one after the other they are what one process reads, and each process reads its own bytes only."""

from fractions import Fraction
from functools import partial

import numpy as np
import processes
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import shard_files
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array, vstack

from torchperc.data import load, make_partition, make_scaler, read, split
from torchperc.data.io import survey
from torchperc.lightning import TabularDataModule
from torchperc.samples import digest
from torchperc.samples.sums import column_means


def joined(shards):
    """Data sets one after the other, as samples, labels and gaps; what they must agree in is checked."""
    first = shards[0]
    for made in shards:
        assert (made.labels, made.names, made.encoding) == (first.labels, first.names, first.encoding)
    pieces = (
        [made.X.load(k) for made in shards for k in range(len(made.X.pieces))] if hasattr(first.X, "load") else None
    )
    sparse = pieces or [made.X for made in shards]
    X = vstack(sparse).toarray() if hasattr(sparse[0], "tocsr") else np.concatenate([np.asarray(x) for x in sparse])
    starts = np.cumsum([0, *(len(made.y) for made in shards)])
    gaps = None
    if first.gaps is not None:
        gaps = torch.cat([made.gaps + torch.tensor([start, 0]) for made, start in zip(shards, starts, strict=False)])
        gaps = gaps.tolist()
    return X, torch.cat([made.y for made in shards]).tolist(), gaps, sum(made.dropped for made in shards)


def assert_same(shards, whole):
    for one, other in zip(joined(shards), joined([whole]), strict=True):
        assert np.array_equal(one, other)  # to the bit, means included
    assert (shards[0].labels, shards[0].encoding) == (whole.labels, whole.encoding)


@pytest.mark.parametrize("size", [1, 2, 3, 5])
def test_shards_are_the_whole(tmp_path, size):
    for name, (path, options) in shard_files.sources(tmp_path).items():
        shards = [read(path, **options, shard=(rank, size)) for rank in range(size)]
        assert_same(shards, read(path, **options))
        assert size == 1 or [made.shard for made in shards] == [(rank, size) for rank in range(size)], name
        assert len({len(made.y) for made in shards}) <= 2 or "npy" not in name, name


@pytest.mark.parametrize(("size", "shard"), [(2, "auto"), (3, "given")])
@pytest.mark.processes
def test_processes_read_what_one_does(tmp_path, size, shard):
    for rank in range(size):
        (tmp_path / str(rank)).mkdir()
    results = processes.run(size, shard_files.read_all, tmp_path, shard)
    given = shard_files.sources(tmp_path / "0")
    for name in shard_files.TOGETHER:
        path, options = given[name]
        assert_same([result[name] for result in results], shard_files.held(read(path, **options)))


@pytest.mark.processes
def test_each_process_reads_its_own_bytes_and_row_groups_only(tmp_path):
    rng = np.random.default_rng(0)
    matrix = np.c_[rng.normal(size=(4000, 2)), rng.integers(0, 2, 4000)]
    lines = [f"{a!r},{b!r},{int(c)}\n" for a, b, c in matrix.tolist()]
    (tmp_path / "big.csv").write_text("a,b,c\n" + "".join(lines))
    for number in range(4):
        (tmp_path / f"many-{number}.csv").write_text("a,b,c\n" + "".join(lines[number::4]))
    (tmp_path / "big.svm").write_text("".join(f"{int(c)} 1:{a!r} 2:{b!r}\n" for a, b, c in matrix.tolist()))
    np.save(tmp_path / "big.npy", matrix)
    pq.write_table(
        pa.table({"a": matrix[:, 0], "b": matrix[:, 1], "c": matrix[:, 2]}),
        tmp_path / "big.parquet",
        row_group_size=500,
    )
    results = processes.run(2, shard_files.counted, tmp_path)
    for rank, (seen, groups) in enumerate(results):
        assert sorted(set(groups)) == [[0, 1, 2, 3], [4, 5, 6, 7]][rank]
        assert seen["big.npy"] == 2000 * 3 * 8
        half, few = (tmp_path / "big.csv").stat().st_size / 2, 2000
        assert abs(seen["big.csv"] - 2 * half) < few  # once for the quotes, once for the rows
        assert abs(seen["big.svm"] - (tmp_path / "big.svm").stat().st_size / 2) < 2**16 + few  # and its first bytes
        own = {f"many-{number}.csv" for number in ((0, 1), (2, 3))[rank]}
        for number in range(4):
            name = f"many-{number}.csv"
            assert (seen.get(name, 0) > half / 4) == (name in own)


words = st.lists(st.sampled_from(['"', "\n", ",", "a", '""', "é"]), max_size=6).map("".join)


@settings(max_examples=60, deadline=None)
@given(st.lists(words, min_size=4, max_size=12), st.integers(2, 4), st.sampled_from(["\n", "\r\n"]))
def test_line_ends_within_quotes_end_no_line(tmp_path_factory, cells, size, end):
    path = tmp_path_factory.mktemp("q") / "data.csv"
    table = {"k": [f"{'q' * 9}{cell}" for cell in cells], "y": [str(i % 2) for i in range(len(cells))]}
    path.write_bytes(shard_files.as_text(table, end=end))
    whole = read(path, categories="k")
    assert_same([made for rank in range(size) for made in some_rows(path, rank, size)], whole)


def some_rows(path, rank, size):
    """The shard, or nothing if it has no rows."""
    try:
        return [read(path, categories="k", shard=(rank, size))]
    except ValueError as error:
        if "has no rows; use fewer shards" not in str(error):
            raise
        return []


def test_compressed_files_go_to_shards_as_a_whole(tmp_path):
    shard_files.sources(tmp_path)
    for pattern, most in (("packed-*.csv.gz", 4), ("packed-*.svm.bz2", 2)):
        options = {"missing": "mean"} if "csv" in pattern else {}
        whole = read(tmp_path / pattern, **options)
        assert_same([read(tmp_path / pattern, **options, shard=(rank, 2)) for rank in range(2)], whole)
        shards = [partial(read, tmp_path / pattern, **options, shard=(rank, most + 1)) for rank in range(most + 1)]
        with pytest.raises(ValueError, match="compressed files are not cut; give fewer shards than files"):
            list(map(partial.__call__, shards))


def test_several_files_are_one_table(tmp_path):
    shard_files.sources(tmp_path)
    one = read(tmp_path / "one.csv", missing="mean")
    for pattern in ("headed-*.csv", "bare-*.csv", "packed-*.csv.gz", "part-*.parquet"):
        assert_same([read(tmp_path / pattern, missing="mean")], one)
        assert_same([load(str(tmp_path / pattern), missing="mean")], one)
    assert_same([read(sorted(map(str, tmp_path.glob("headed-*"))), missing="mean")], one)
    assert_same([read(tmp_path / "part-*.svm")], read(tmp_path / "one.svm"))
    assert read(tmp_path / "headed-*.csv", missing="mean").name == "headed-0.csv and 3 more"
    swapped = read([tmp_path / "headed-3.csv", tmp_path / "headed-0.csv"], missing="drop")
    assert swapped.decode(swapped.y[-1:]) == [shard_files.columns()["label"][4]]
    (tmp_path / "odd[1].csv").write_text("a,y\n1,u\n2,v\n")
    assert read(tmp_path / "odd[1].csv").X.tolist() == [[1], [2]]  # a name that could be a pattern


BAD = {
    "no match": ("none-*.csv", {}, r"no file matches '.*none-\*.csv'; look for a slip"),
    "two kinds": (["a.csv", "a.npy"], {}, r"a.npy is npy, but .*a.csv is text"),
    "named twice": (["a.csv", "a.csv"], {}, "a.csv is named twice"),
    "other names": (["a.csv", "other.csv"], {}, r"other.csv has the columns 'a', 'z', but .*a.csv has 'a', 'y'; several files need the same"),
    "other width": (["a.csv", "wide.csv"], {}, "wide.csv has the columns '1', '2', '3', but"),
    "a line of the second": (["a.csv", "bad.csv"], {}, r"bad.csv, line 3, column 'a': 'x' is not a number"),
    "archives": (["a.npz", "b.npz"], {}, "several files is not possible with .*a.npz"),
    "shard of an archive": ("a.npz", {"shard": (0, 2)}, "shard is not possible with .*a.npz"),
    "no such shard": ("a.csv", {"shard": (2, 2)}, r"shard=\(2, 2\) must be a number from 0 to 1"),
    "no shard": ("a.csv", {"shard": "all"}, "shard='all' is unknown; choose one of 'auto'"),
    "too many": ("a.csv", {"shard": (0, 9)}, "shard 0 of 9 of .*a.csv has no rows; use fewer shards"),
    "too many rows": ("a.npy", {"shard": (4, 5)}, "shard 4 of 5 of .*a.npy has no rows; use fewer shards"),
    "inches": ("inch.csv", {"shard": (0, 2)}, "inch.csv has quotes in the middle of cells"),
    "folder": (".", {}, r"Is a directory; name its files by a pattern"),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_bad_input(tmp_path, name):
    files = {"a": "a,y\n1,u\n2,v\n3,u\n4,u\n", "other": "a,z\n1,u\n", "wide": "1,2,u\n", "bad": "a,y\n1,u\nx,v\n3,u\n"}
    files["inch"] = 'size,n,c\n5" pipe,1,x\n6" pipe,2,y\n5" pipe,3,x\n'
    for stem, content in files.items():
        (tmp_path / f"{stem}.csv").write_text(content)
    np.save(tmp_path / "a.npy", [[1, 0], [2, 1], [3, 0], [4, 0]])
    for stem in "ab":
        np.savez(tmp_path / f"{stem}.npz", X=[[1.0], [2.0]], y=[0, 1])
    path, options, message = BAD[name]
    path = [tmp_path / each for each in path] if isinstance(path, list) else tmp_path / path
    with pytest.raises(ValueError, match=message):
        read(path, **options)


@pytest.mark.parametrize(
    ("path", "shard"),
    [(b"a.csv", None), ([], None), ([3], None), ("a.csv", 2), ("a.csv", (1, 2, 3)), ("a.csv", (0, 2.0))],
)
def test_bad_types(path, shard):
    with pytest.raises(TypeError, match=r"path must be|shard must be|shard\[1\] must be an integer"):
        read(path, shard=shard)


def test_auto_needs_the_group_that_was_promised(tmp_path, monkeypatch):
    (tmp_path / "a.csv").write_text("a,y\n1,u\n2,v\n")
    assert read(tmp_path / "a.csv", shard="auto").shard is None
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(ValueError, match=r"although WORLD_SIZE=2; call torch.distributed.init_process_group first"):
        read(tmp_path / "a.csv", shard="auto")


@pytest.mark.processes
def test_what_is_wrong_in_one_shard_is_told_by_all(tmp_path):
    good = "".join(f"{i},{'uv'[i % 2]}\n" for i in range(40))
    (tmp_path / "late.csv").write_text(f"a,y\n{good}x,u\n1,v\n")
    (tmp_path / "one-label.csv").write_text("a,y\n" + "1,u\n" * 40)
    pipes = ["p"] * 35 + ['5" pipe'] + ["p"] * 4
    (tmp_path / "inch.csv").write_text("n,t,y\n" + "".join(f"1,{p},{'uv'[i % 2]}\n" for i, p in enumerate(pipes)))
    (tmp_path / "gone.csv").write_text("a,y\n" + good)
    (tmp_path / "late.svm").write_text("1 1:1\n2 1:2\n" * 20 + "1 1:x\n")
    np.save(tmp_path / "few.npy", [[1, 0], [2, 1]])
    results = processes.run(3, shard_files.faults, tmp_path)
    assert results[0] == results[1] == results[2]
    expected = {
        "late.csv": "line 42, column 'a': 'x' is not a number",
        "one-label.csv": "column 'y' has one label only: 'u'",
        "few.npy": "shard 2 of 3 of",
        "inch.csv": "process 2 of 3: ",
        "gone.csv": "none.csv: No such file or directory",
        "late.svm": "process 2 of 3: ",
        "options": "the way to read it differs between processes",
    }
    for name, message in expected.items():
        assert message in results[0][name]


def test_sums_are_exact():
    rng = np.random.default_rng(0)
    values = rng.normal(size=500) * 10.0 ** rng.integers(-300, 300, 500)
    values = np.r_[values, 5e-324, -5e-324, 1.7e308, 1.7e308, 0.0, -0.0]
    exact = sum(map(Fraction, values.tolist()))
    assert Fraction(survey.exact_sum(values), 2**1126) == exact
    assert survey.exact_sum(values[:100]) + survey.exact_sum(values[100:]) == survey.exact_sum(values)
    assert survey.exact_sum(values[:0]) == 0


@pytest.mark.parametrize("size", [2, 3])
@pytest.mark.processes
def test_split_means_and_scaling_are_those_of_one_process(tmp_path, size):
    for rank in range(size):
        (tmp_path / str(rank)).mkdir()
    results = processes.run(size, shard_files.partitioned, tmp_path)
    given = shard_files.sources(tmp_path / "0")
    for name, scale, stream in results[0]:
        path, options = given[name]
        one = load(path, **{**options, "stream": stream})
        indices = split(one.y, seed=3)
        made = make_partition(one, indices, make_scaler(scale), dtype=torch.float64)
        theirs = [result[name, scale, stream] for result in results]
        starts = np.cumsum([0, *(sum(map(len, indices)) for _, indices, _ in theirs)]).tolist()
        for number, (X, y) in enumerate(made.parts):
            numbers = [each[number] + start for (_, each, _), start in zip(theirs, starts, strict=False)]
            assert torch.equal(torch.cat(numbers), indices[number])
            pieces = [other.parts[number] for other, _, _ in theirs]
            rows = vstack([x for x, _ in pieces]).toarray() if name == "svms" else torch.cat([x for x, _ in pieces])
            assert np.array_equal(rows, X.toarray() if name == "svms" else X)  # to the bit
            assert torch.equal(torch.cat([codes for _, codes in pieces]), y)
        module = TabularDataModule(path, {**options, "stream": stream}, seed=3)
        for other, _, state in theirs:
            assert (other.scaler.state(), other.encoding) == (made.scaler.state(), made.encoding)
            module.load_state_dict(state)  # a run of several processes can be resumed by one
        other = TabularDataModule(path, {**options, "stream": stream}, seed=4)
        with pytest.raises(ValueError, match="is not the data the checkpoint was made on, or its split differs"):
            other.load_state_dict({**state, "seed": 4})


def test_a_shard_read_alone_is_not_scaled_alone(tmp_path):
    path, options = shard_files.sources(tmp_path)["csv"]
    made = read(path, **options, shard=(0, 2))
    with pytest.raises(ValueError, match=r"dataset is shard \(0, 2\), which was read by itself"):
        make_partition(made, split(made.y))


def test_means_do_not_depend_on_the_order():
    rng = np.random.default_rng(0)
    X = torch.from_numpy(rng.normal(size=(3000, 4)) * 10.0 ** rng.integers(-5, 5, (3000, 4)) + [0, 1e9, -3, 0])
    X[:, 3] = 1e308
    exact = [float(sum(map(Fraction, column)) / len(column)) for column in X.T.tolist()]
    bound = X.abs().amax(0)
    whole = column_means([X], bound, len(X))
    assert whole.tolist() == pytest.approx(exact, rel=1e-14)
    for seed in range(5):
        pieces = X[torch.randperm(len(X), generator=torch.Generator().manual_seed(seed))].split(700 + seed)
        assert torch.equal(column_means(pieces, bound, len(X)), whole)
        sparse = [csr_array(piece.numpy()) for piece in pieces]
        assert torch.equal(column_means(sparse, bound, len(X)), whole)


def test_checksums_of_shards_add_up():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(50, 7)) * (rng.random((50, 7)) > 0.5)
    for made in (X, csr_array(X)):
        whole = digest.of_cells(made)
        for cut in (0, 1, 17, 50):
            assert (digest.of_cells(made[:cut]) + digest.of_cells(made[cut:], cut)) % 2**64 == whole
        assert digest.of_cells(made[::-1]) != whole
        assert digest.of_cells(made[:, ::-1]) != whole
    changed = X.copy()
    changed[3, 4] = np.nextafter(X[3, 4], 9)
    assert digest.of_cells(changed) != digest.of_cells(X)
