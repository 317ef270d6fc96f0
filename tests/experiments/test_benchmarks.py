"""The benchmarks: the harness against a clock that tells what it is told, every case in its quick form, the command."""

import json
import tarfile
import warnings
from contextlib import contextmanager

import numpy as np
import pytest
import torch
from benchmarks import bench, peers, report, samples, tagged
from benchmarks.cases import CASES, about
from benchmarks.timing import Comparison, Contender, Finding, Goal, Row, measure, neighbour, threads

import torchperc as tp


class Clock:
    """A clock that stands still but for the seconds that calls take."""

    def __init__(self):
        self.now, self.calls = 0.0, []

    def __call__(self):
        return self.now

    def contender(self, name, seconds, result=None, rows=1, **options):
        """A contender that takes these seconds in turn and returns the same each time, or its results in turn."""
        seconds, results = iter(seconds), result if isinstance(result, list) else None

        def call():
            self.calls.append(name)
            self.now += next(seconds)
            return result if results is None else results.pop(0)

        return Contender(name, call, rows, **options)


def nothing(results):
    return {}


def equal(results):
    return {"theirs": Finding(results["ours"] == results["theirs"], f"{results['ours']} and {results['theirs']}")}


# --- the harness ---


def test_best_median_spread_and_ratio():
    clock = Clock()
    ours = clock.contender("ours", [9.0, 0.5, 0.4, 0.6, 0.4, 0.8], rows=100)  # the first is the warm-up
    theirs = clock.contender("theirs", [9.0, 2.0, 3.0, 2.5, 4.0, 2.0], rows=50)
    first, second = measure(Comparison("data", [ours, theirs], nothing), case="name", clock=clock)
    assert (first.case, first.comparison, first.contender, first.ratio) == ("name", "data", "ours", 1.0)
    assert first.times == pytest.approx((0.5, 0.4, 0.6, 0.4, 0.8))
    assert (first.best, first.median, first.spread) == pytest.approx((0.4, 0.5, 1.0))
    assert first.microseconds == pytest.approx(4000)
    assert second.ratio == pytest.approx((2.0 / 50) / (0.4 / 100))
    assert (second.median, second.spread) == pytest.approx((2.5, 1.0))


def test_contenders_take_turns_and_the_first_place_goes_round():
    clock = Clock()
    contenders = [clock.contender(name, [1.0] * 9) for name in "abc"]
    measure(Comparison("data", contenders, nothing), rounds=3, warm_up=False, clock=clock)
    assert "".join(clock.calls) == "abc" + "bca" + "cab"
    clock.calls.clear()
    rows = measure(Comparison("data", contenders, nothing), rounds=1, clock=clock)
    assert "".join(clock.calls) == "cab" + "abc"
    assert [len(row.times) for row in rows] == [1, 1, 1]


def test_a_difference_in_any_round_is_reported():
    for results in ([3, 3, 4, 3], [4, 3, 3, 3], [3, 3, 3, 4]):
        clock = Clock()
        pair = [clock.contender("ours", [1.0] * 4, 3), clock.contender("theirs", [1.0] * 4, list(results))]
        rows = measure(Comparison("data", pair, equal), rounds=3, clock=clock)
        assert [row.differs for row in rows] == [False, True]
        assert rows[1].finding.text == "3 and 4"
        assert report.summary(rows, {})[:2] == ["results: 1 differs", "  , data, theirs: 3 and 4"]
    pair = [clock.contender("ours", [1.0], 3), clock.contender("theirs", [1.0], 3)]
    rows = measure(Comparison("data", pair, equal), rounds=1, warm_up=False, clock=clock)
    assert [row.differs for row in rows] == [False, False]


@pytest.mark.parametrize(
    ("kind", "value", "seconds", "met"),
    [
        ("at least", 3, 3.0, True), ("at least", 3, 2.9, False),
        ("at most", 1.25, 0.8, True), ("at most", 1.25, 0.79, False), ("at most", 1.25, 50.0, True),
        ("within", 1.25, 1.25, True), ("within", 1.25, 0.8, True), ("within", 1.25, 1.3, False), ("within", 1.25, 0.7, False),
        ("seconds", 1.0, 9.0, True), ("seconds", 0.9, 9.0, False),
    ],
)  # fmt: skip
def test_goals(kind, value, seconds, met):
    """Ours takes a second, theirs the seconds given."""
    clock = Clock()
    pair = [clock.contender("ours", [1.0]), clock.contender("theirs", [seconds], goal=Goal(kind, value))]
    rows = measure(Comparison("data", pair, nothing), rounds=1, warm_up=False, clock=clock)
    assert [row.met for row in rows] == [None, met]
    assert (report.summary(rows, {})[-1] == "targets: 1 of 1 met") == met


def test_a_goal_is_not_held_against_quick_sizes():
    clock = Clock()
    pair = [clock.contender("ours", [1.0]), clock.contender("theirs", [1.0], goal=Goal("at least", 3))]
    rows = measure(Comparison("data", pair, nothing), rounds=1, warm_up=False, judge=False, clock=clock)
    assert [row.met for row in rows] == [None, None]
    assert report.chart(rows) is None


def test_a_goal_must_be_one():
    with pytest.raises(ValueError, match="kind='more' is unknown"):
        Goal("more", 3)
    with pytest.raises(ValueError, match="value=0 must be a finite number > 0"):
        Goal("at least", 0)


def test_a_library_that_is_not_there_is_left_out():
    clock = Clock()
    ours, theirs = clock.contender("ours", [1.0]), clock.contender("theirs", [], needs="a_library_of_nobody")
    comparison = Comparison("data", [ours, theirs], nothing)
    assert [row.contender for row in measure(comparison, rounds=1, warm_up=False, clock=clock)] == ["ours"]
    assert comparison.absent == {"theirs": "a_library_of_nobody is not installed"}
    assert report.summary([], comparison.absent)[0] == "left out: theirs (a_library_of_nobody is not installed)"


def test_calls_that_bring_their_own_time():
    contender = Contender("import", lambda: 0.125, 1, seconds=lambda found: found)
    (row,) = measure(Comparison("data", [contender], nothing), rounds=2)
    assert row.times == (0.125, 0.125)


def test_every_round_is_made_again_with_a_busy_core(monkeypatch):
    """With one, ours takes four times as long and theirs twice."""
    clock, neighbours = Clock(), []

    @contextmanager
    def beside():
        neighbours.append(len(clock.calls))
        yield

    monkeypatch.setattr("benchmarks.timing.neighbour", beside)
    ours = clock.contender("ours", [9.0, 1.0, 4.0, 1.5, 5.0])
    theirs = clock.contender("theirs", [9.0, 3.0, 6.0, 3.0, 6.0], goal=Goal("at least", 3))
    slow = clock.contender("slow", [9.0, 3.0, 2.0, 3.0, 2.0], goal=Goal("at most", 1.25))
    rows = measure(Comparison("data", [ours, theirs, slow], nothing), rounds=2, busy=True, clock=clock)
    assert neighbours == [6, 12]  # after the warm-up and the first idle round, and so on
    assert [row.times for row in rows] == [(1.0, 1.5), (3.0, 3.0), (3.0, 3.0)]
    assert [row.busy for row in rows] == [(4.0, 5.0), (6.0, 6.0), (2.0, 2.0)]
    assert [row.busy_ratio for row in rows] == [1.0, 1.5, 0.5]
    assert [row.met for row in rows] == [None, True, False]  # a cost counts with a busy core, too
    assert report.summary(rows, {})[-1].endswith("slow: cost 0.33× (2.00× with a busy core), target cost ≤ 1.25×")
    assert report.markdown(rows).splitlines()[2:] == [
        "| : data | theirs | 3.00 | 1.50 |",
        "| : data | slow | 3.00 | 0.50 |",
    ]


def test_a_neighbour_ends_even_if_what_it_is_beside_fails():
    started = []

    def failing():
        with neighbour() as process:
            started.append((process, process.poll()))
            raise RuntimeError

    with pytest.raises(RuntimeError):
        failing()
    ((process, at_first),) = started
    assert at_first is None
    assert process.poll() is not None


def test_threads_are_set_and_given_back():
    before = torch.get_num_threads()
    seen = []
    alone = Contender("alone", lambda: seen.append(torch.get_num_threads()), 1, threads=before + 1)
    measure(Comparison("data", [alone], nothing), rounds=1)
    assert seen == [before + 1, before + 1]
    assert torch.get_num_threads() == before
    with pytest.raises(RuntimeError), threads(before + 1):
        raise RuntimeError
    assert torch.get_num_threads() == before
    with pytest.raises(ValueError, match="threads=0 must be at least 1"), threads(0):
        pass


# --- what is compared ---


def test_weights_that_differ_are_found():
    X, y = samples.planes(200, 5, flips=0.1)
    ours = peers.by_rule(X, y, 2)()
    assert peers.same_weights(ours, peers.scikit_learn("Perceptron", X, y, shuffle=False, tol=None, max_iter=2)()).ok
    assert not peers.same_weights(
        ours, peers.scikit_learn("Perceptron", X, y, shuffle=False, tol=None, max_iter=1)()
    ).ok
    assert not peers.same_weights(ours, ours._replace(bias=ours.bias + 1)).ok
    assert not peers.same_weights(ours, ours._replace(weight=ours.weight * np.nan)).ok
    assert not peers.same_weights(ours, ours._replace(weight=ours.weight.repeat(2, 0))).ok


def test_other_mistakes_and_missing_epochs_are_found():
    X, y = samples.planes(200, 5, flips=0.1)
    reference = peers.by_rule(X[:50], y[:50], 1, engine="reference")()
    assert peers.same_mistakes(peers.by_rule(X, y, 2)(), reference, 2).ok
    assert "stopped after 2 of 3 epochs" in peers.same_mistakes(peers.by_rule(X, y, 2)(), reference, 3).text
    y[3] = -y[3]
    assert "not the mistakes" in peers.same_mistakes(peers.by_rule(X, y, 2)(), reference, 2).text


def test_made_data_are_what_they_say():
    X, y = samples.planes(4000, 30, flips=0.0, gap=30)
    assert np.array_equal(X, np.round(X))
    assert np.abs(X).max() == 6
    result = peers.by_rule(X, y, 100)().result
    assert result.verdict.name == "SEPARATED"
    assert (samples.planes(4000, 30, flips=0.25, gap=30)[1] != y).mean() == pytest.approx(0.25, abs=0.03)
    X, y = samples.words(300, 2000, 20, 10, flips=0.0)
    assert X.has_canonical_format
    assert set(np.diff(X.indptr)) == {20}
    X, y = samples.pictures(300, 40, 10, seed=1)
    assert np.array_equal(X, samples.pictures(300, 40, 10, seed=1)[0])
    assert not np.array_equal(X, samples.pictures(300, 40, 10, seed=2)[0])


# --- the cases ---


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
        assert (
            any(contender.goal for comparison in comparisons for contender in comparison.contenders) or name == "growth"
        )


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


def test_every_case_says_what_it_is():
    for name, case in CASES.items():
        assert about(case).endswith("."), name
        assert len(about(case)) < 125, name


# --- the report ---


def made(ratio, goal=None, finding=None, contender="theirs"):
    met = None if goal is None else goal.met(ratio, 0.1)
    return Row("case", "data", contender, 10, (0.1, 0.15), ratio, finding, goal, met)


def test_the_report_has_all_that_was_measured(tmp_path):
    rows = [made(1.0, contender="ours"), made(4.0, Goal("at least", 3), Finding(True, "same weights"))]
    files = report.write(tmp_path / "new", rows, {"vw": "not installed"}, rounds=2, quick=False)
    assert sorted(path.name for path in (tmp_path / "new").iterdir()) == ["bench.json", "bench.md", "bench.png"]
    found = json.loads(files[0].read_text())
    assert found["versions"]["torchperc"] == tp.__version__
    assert found["machine"]["cpus"] >= 1
    assert found["left_out"] == {"vw": "not installed"}
    assert found["date"].endswith("+00:00")
    assert found["rows"][1] == {
        "case": "case", "comparison": "data", "contender": "theirs", "rows": 10, "seconds": [0.1, 0.15], "best": 0.1,
        "median": 0.125, "spread": pytest.approx(0.5), "microseconds_a_row": pytest.approx(1e4), "ratio_to_ours": 4.0,
        "seconds_with_a_busy_core": [], "ratio_with_a_busy_core": None,
        "results_ok": True, "results": "same weights", "target": "≥ 3×", "target_met": True,
    }  # fmt: skip


def test_the_picture_has_a_bar_and_a_tick_for_every_target():
    rows = [made(4.0, Goal("at least", 3)), made(0.5, Goal("at most", 1.25)), made(1.1, Goal("within", 1.3)), made(9.0)]
    axes = report.chart([*rows, made(1.0, Goal("seconds", 0.2))]).axes[0]
    assert [round(bar.get_x() + bar.get_width(), 6) for bar in axes.patches] == [4.0, 0.5, 1.1]
    assert len({bar.get_facecolor() for bar in axes.patches}) == 2
    ticks = [
        line.get_xdata().tolist() if hasattr(line.get_xdata(), "tolist") else line.get_xdata() for line in axes.lines
    ]
    assert [3] in ticks
    assert [0.8] in ticks
    assert [pytest.approx(1 / 1.3), 1.3] in ticks


def test_missed_targets_are_named():
    lines = report.summary(
        [made(2.5, Goal("at least", 3)), made(0.5, Goal("at most", 1.25)), made(1, Goal("seconds", 0.05))], {}
    )
    assert lines == [
        "results: none differs",
        "targets: 0 of 3 met",
        "  missed: case, data, theirs: 2.50×, target ≥ 3×",
        "  missed: case, data, theirs: cost 2.00×, target cost ≤ 1.25×",
        "  missed: case, data, theirs: 100 ms, target ≤ 0.05 s",
    ]


# --- the command ---


@pytest.fixture
def run(capsys):
    """The exit code of the benchmarks and what they printed."""

    def called(*words):
        code = 0
        try:
            bench.main(list(words))
        except SystemExit as left:
            code = left.code
        return code, *capsys.readouterr()

    return called


def test_the_command(run, tmp_path):
    code, out, err = run("dense-784", "dense-784", "--quick", "--rounds", "2", "--out", str(tmp_path / "a/b"))
    assert (code, err) == (0, "")
    assert out.count("dense-784: noisy") == 2  # two dtypes, the case once
    assert "scikit-learn Perceptron" in out
    assert "same weights" in out
    assert "results: none differs" in out
    found = json.loads((tmp_path / "a/b/bench.json").read_text())
    assert {len(row[times]) for row in found["rows"] for times in ("seconds", "seconds_with_a_busy_core")} == {2}
    assert len(found["rows"]) == 3 * 3 * 2  # contenders, kinds of data, types
    assert found["quick"]


def test_the_command_fails_when_results_differ(run, tmp_path, monkeypatch):
    pair = [Contender("ours", lambda: 3, 1), Contender("theirs", lambda: 4, 1)]
    monkeypatch.setitem(CASES, "limit", lambda quick: iter([Comparison("data", pair, equal)]))
    code, out, _ = run("limit", "--quick", "--out", str(tmp_path))
    assert code == 1
    assert "DIFFERENT: 3 and 4" in out


def test_the_list(run):
    code, out, _ = run("--list")
    assert code == 0
    assert [line.split()[0] for line in out.splitlines()] == list(CASES)
    assert "`" not in out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["dense"], "CASE='dense' is unknown; choose one of 'dense-100'"),
        (["--rounds", "4"], "--rounds 4 must be at least 5, as fewer say little; add --quick"),
        (["--rounds", "0", "--quick"], "--rounds 0 must be at least 1"),
        (["--rounds", "many"], "invalid int value: 'many'"),
        (["--out", "FILE/x"], "cannot be made"),
        (["tag", "--brown", "FILE"], "is neither a folder nor an archive of the Brown corpus"),
    ],
)
def test_wrong_words(run, tmp_path, monkeypatch, words, message):
    monkeypatch.setattr("benchmarks.bench._measure", lambda *_: pytest.fail("it ran"))
    (tmp_path / "file").write_text("")
    code, out, err = run(*(word.replace("FILE", str(tmp_path / "file")) for word in words))
    assert (code, out) == (2, "")
    assert message in err.splitlines()[-1]
