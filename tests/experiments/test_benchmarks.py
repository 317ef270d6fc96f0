"""The benchmarks: differences are reported, every case runs in its quick form, and so does the command."""

import json
import tarfile
import warnings

import pytest
from benchmarks import bench, report, tagged
from benchmarks.cases import CASES
from benchmarks.timing import Comparison, Contender, Finding, measure

import torchperc as tp


def equal(results):
    return {"theirs": Finding(results["ours"] == results["theirs"], f"{results['ours']} and {results['theirs']}")}


def test_a_difference_in_any_round_is_reported():
    for results in ([3, 3, 4, 3], [4, 3, 3, 3], [3, 3, 3, 4], [3, 3, 3, 3]):
        pair = [Contender("ours", lambda: 3, 1), Contender("theirs", iter(results).__next__, 1)]
        rows = measure(Comparison("data", pair, equal), rounds=3)
        assert [row.differs for row in rows] == [False, 4 in results]
        summary = report.summary(rows, {})
        assert 4 not in results or summary[:2] == ["results: 1 differs", "  , data, theirs: 3 and 4"]


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_every_case_runs_and_its_results_are_as_they_should_be(name):
    with warnings.catch_warnings():
        tp.lightning.quiet()
        comparisons = list(CASES[name](True))
        assert comparisons
        for comparison in comparisons:
            rows = measure(comparison, case=name, rounds=1, warm_up=False, judge=False)
            assert [row.contender for row in rows] == [contender.name for contender in comparison.present]
            assert [(row.contender, row.finding.text) for row in rows if row.differs] == []
            assert any(row.finding is not None and row.finding.ok for row in rows), comparison
        goals = [contender.goal for comparison in comparisons for contender in comparison.contenders]
        assert any(goals) or name == "growth"


def test_brown_is_read_from_a_folder_and_from_an_archive(tmp_path):
    folder = tmp_path / "brown"
    folder.mkdir()
    for number in range(28):
        (folder / f"ca{number:02}").write_text(f"\n\tThe/at w{number}/nn-tl and/or/cc ./.\n\n\tIt's/pps+bez\n")
    (folder / "README").write_text("no/document")
    found = tagged.split(tagged.checked(folder), False)
    assert found.train[0] == [("The", "at"), ("w0", "nn"), ("and/or", "cc"), (".", ".")]
    assert found.train[1] == [("It's", "pps")]
    assert (len(found.train), [sentence[1][0] for sentence in found.held[::2]]) == (10, ["w5"])
    with tarfile.open(tmp_path / "brown.tgz", "w:gz") as archive:
        archive.add(folder, "package")
    assert tagged.split(tmp_path / "brown.tgz", False) == found
    tagged.write_conll(tmp_path / "x", found.train)
    assert tagged.read_conll(tmp_path / "x") == found.train


def test_the_command(run_main, tmp_path):
    code, out, err = run_main(
        bench.main, "dense-784", "dense-784", "--quick", "--rounds", "2", "--out", str(tmp_path / "a/b")
    )
    assert (code, err) == (0, "")
    assert out.count("dense-784: noisy") == 2  # two dtypes, the case once
    assert "scikit-learn Perceptron" in out
    assert "same weights" in out
    assert "results: none differs" in out
    found = json.loads((tmp_path / "a/b/bench.json").read_text())
    assert {len(row[times]) for row in found["rows"] for times in ("seconds", "seconds_with_a_busy_core")} == {2}
    assert len(found["rows"]) == 3 * 3 * 2  # contenders, kinds of data, types
    assert found["quick"]


def test_the_command_fails_when_results_differ(run_main, tmp_path, monkeypatch):
    pair = [Contender("ours", lambda: 3, 1), Contender("theirs", lambda: 4, 1)]
    monkeypatch.setitem(CASES, "limit", lambda quick: iter([Comparison("data", pair, equal)]))
    code, out, _ = run_main(bench.main, "limit", "--quick", "--out", str(tmp_path))
    assert code == 1
    assert "DIFFERENT: 3 and 4" in out
