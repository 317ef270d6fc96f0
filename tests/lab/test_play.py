"""The page as a file and as a widget: what Python puts into it, and what comes back."""

import fnmatch
import html as markup
import importlib.util
import json
import re
import subprocess
import sys
import tempfile
import types
import webbrowser
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import oracles
import pytest
import torch
from node import run_node
from refusals import refusals
from scipy.sparse import csr_array

import torchperc as tp

FOLDER = Path(tp.lab.play.__file__).parent
PAGE = tp.lab.play.Play(tp.lab.play.content()).html
CORE = [f"{name}.js" for name in ("rational", "random", "rule", "log", "proof")]
DATA = re.compile(r'<script type="application/json" id="content">(.*?)</script>', re.DOTALL)


def content_in(html):
    return json.loads(DATA.search(html)[1])


@pytest.fixture
def shown(tmp_path):
    """What the page of these arguments shows."""
    return lambda *data, **options: content_in(tp.play(*data, out=tmp_path / "page.html", **options).html)


def test_the_page_is_one_small_file_that_asks_for_nothing():
    assert len(PAGE.encode()) < 300_000
    assert tp.lab.play.Play(tp.lab.play.content()).html == PAGE
    addresses = set(re.findall(r"""https?://[^\s"'`<>]+""", PAGE))
    assert addresses <= {"http://www.w3.org/2000/svg", "http://www.w3.org/1999/xhtml"}  # names, not places
    assert not re.search(r"<link|<img|src=|@import|url\((?!#|data:)|fetch\(|XMLHttpRequest|WebSocket|sendBeacon", PAGE)
    assert "{{ " not in PAGE
    assert (FOLDER / "style.css").read_text("utf-8") in PAGE
    sources = [path.read_text("utf-8") for path in (FOLDER / "style.css", *(FOLDER / "js").glob("*.js"))]
    assert not re.search("</(?:script|style)|<!--", "".join(sources))  # what ends a block early


def test_every_script_is_in_the_page_with_names_and_texts_of_its_own(request):
    paths = list((FOLDER / "js").glob("*.js"))
    assert [path for path in paths if PAGE.count(f"\n// {path.name}\n") != 1] == []
    scripts = [path.read_text("utf-8") for path in paths]
    # a second function of the same name would take the place of the first, without a word
    declared = re.compile(r"^(?:async )?(?:function|class|const|let) (\w+)", re.MULTILINE)
    names = [found for text in scripts for found in declared.findall(text)]
    assert len(names) > 300
    assert sorted(names) == sorted(set(names))
    known = json.loads((FOLDER / "texts.json").read_text("utf-8"))
    keys = re.findall(r'(?<![\w.])t\("([\w.-]+)"[),]', "\n".join(scripts))
    assert (len(keys) > 100, set(keys) - set(known)) == (True, set())
    tomllib = pytest.importorskip("tomllib" if sys.version_info >= (3, 11) else "tomli")
    project = tomllib.loads((request.config.rootpath / "pyproject.toml").read_text())
    patterns = project["tool"]["setuptools"]["package-data"]["torchperc.lab.play"]
    files = [path.relative_to(FOLDER).as_posix() for path in FOLDER.rglob("*.[jch][st]*")]
    assert len(files) > 20
    assert [name for name in files if not any(fnmatch.fnmatch(name, pattern) for pattern in patterns)] == []


@pytest.mark.parametrize(
    "name", ["</script><script>alert(1)//", "<!-- <script>", "a & b \u2028 é", "]]>", "{{ scripts }}", "\\1"]
)
def test_names_cannot_break_out_of_the_page(name):
    data = {"points": [[0, 0]], "labels": [0], "classes": 2, "classNames": [name, "b"]}
    html = tp.lab.play.Play(tp.lab.play.content({"data": data}, title=name)).html
    assert content_in(html)["start"]["data"]["classNames"] == [name, "b"]
    assert f"<title>{markup.escape(name)}</title>" in html
    for tag in ("<script", "</script", "<!--", "<style", "</style"):
        assert html.count(tag) == PAGE.count(tag), tag


PRESETS = content_in(PAGE)["presets"]


def test_examples_are_on_the_grid_and_separable_if_they_say_so():
    assert len({preset["id"] for preset in PRESETS}) == len({preset["name"] for preset in PRESETS}) == 25
    listed = {preset["id"]: preset for preset in PRESETS}
    for name in ("AND", "OR", "NAND", "NOR", "XOR", "XNOR"):
        X, y = tp.data.gate(name)
        assert (listed[name]["points"], [2 * label - 1 for label in listed[name]["labels"]]) == (X.tolist(), y.tolist())
    for name, preset in listed.items():
        points, labels, classes = preset["points"], preset["labels"], preset["classes"]
        assert all((Fraction(value) * 64).denominator == 1 for point in points for value in point)
        assert set(labels) == set(range(classes)), name
        assert len(points) == len(labels) == len(set(map(tuple, points))), name
        assert "notes" in preset["group"] or np.abs(points).max() <= 1.5, name
        y, many = (labels, classes) if classes > 2 else ([2 * label - 1 for label in labels], None)
        certificate = tp.theory.separability(torch.tensor(points, dtype=torch.float64), y, num_classes=many)
        no_line = re.search("no line|cube|XOR", f"{preset['remark']} {preset['name']}")
        assert certificate.separable is not bool(no_line), name


def test_dialects_are_those_of_the_rules():
    for each, dialect in zip(content_in(PAGE)["dialects"], tp.dialects.ALL, strict=True):
        conventions = {"biasStep": dialect.bias_step, **{n: getattr(dialect, n) for n in ("tie", "order", "lr")}}
        about = {name: getattr(dialect, name) for name in ("id", "name", "remark", "select")}
        assert each == {**about, "conventions": conventions}


def test_labels_of_any_kind_are_shown_by_their_names(shown):
    made = shown([[0, 1], [1, 0.5], [2, 2]], ["pear", "apple", "fig"])["start"]["data"]
    points, names = [[0.0, 1.0], [1.0, 0.5], [2.0, 2.0]], ["apple", "fig", "pear"]
    assert made == {"points": points, "labels": [2, 0, 1], "classes": 3, "classNames": names}
    made = shown(torch.tensor([[0.1, 1], [1, 0]]), torch.tensor([1, -1]))["start"]["data"]
    assert made["labels"] == [1, 0]
    assert set(made) == {"points", "labels", "classes"}  # the page has its own signs for −1 and +1, x1 and x2
    assert made["points"][0][0] == float(torch.tensor(0.1))


def test_samples_are_drawn_in_their_order(shown):
    X, y = tp.data.separable_blobs(samples=300)
    drawn = shown(X, y, samples=50)["start"]["data"]
    rows = [X.tolist().index(point) for point in drawn["points"]]
    assert len(rows) == 50
    assert rows == sorted(rows) != list(range(50))
    assert drawn["description"] == "50 of 300 samples were drawn at random."
    assert "description" not in shown(X, y, samples=400)["start"]["data"]


LOG = object()  # stands for a small log
TRAINER = tp.RuleTrainer


@pytest.mark.parametrize(
    ("arguments", "found"),
    [
        ({"X": [[0, 1, 2], [1, 2, 0]], "y": [0, 1]}, r"3.*features=\['x1', 'x2'\]"),
        ({"X": [[0], [1]], "y": [0, 1]}, "features.* 1: x1"),
        ({"X": np.zeros((5, 2)), "y": range(5)}, "y has 5 classes"),
        ({"X": np.zeros((1001, 2)), "y": [0, 1] * 500 + [0]}, "1,001 samples.*samples=500"),
        ({"X": [[0, 1], [1, 2]], "y": [1, 1]}, "two classes"),
        ({"X": [[0, 1]]}, "y is missing"),
        ({"y": [1]}, "X is missing"),
        ({"names": ["a", "b"]}, r"names=\['a', 'b'\]"),
        ({"features": [1, 2]}, r"features=\[1, 2\]"),
        ({"samples": 5}, "samples=5"),
        ({"samples": 5, "log": LOG}, "samples=5"),
        ({"names": ["a", "b", "c"], "features": ["a", "c"], "log": LOG}, "names has 3 entries"),
        ({"trainer": TRAINER(kernel="poly")}, "kernel"),
        ({"trainer": TRAINER(class_weight="balanced")}, "class_weight"),
        ({"trainer": TRAINER(select="best-validation")}, "best-validation"),
        ({"trainer": TRAINER(seed=2**53)}, "seed=9007199254740992"),
        ({"trainer": TRAINER(order=[1, 0])}, "order"),
        ({"trainer": "sign"}, "trainer must be a RuleTrainer, found str"),
        ({"log": 3}, "log must be a MistakeLog.*int"),
        ({"X": [[0, 1], [1, 2]], "y": [0, 1], "log": LOG}, "X and y were given beside a log"),
        *(({"X": np.eye(4), "y": [0, 1, 1, 0], "names": tuple("abcd"), "features": features}, f"features={found}.*a, b, c, d")
          for features, found in ((("a", "e"), "'e'"), ((1, 5), "5"), ((2, "b"), r"\[2, 'b'\]"), (("a",), r"\('a',\)"), ("ab", "'ab'"))),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)  # fmt: skip
def test_what_the_page_cannot_show_or_would_ignore_is_refused(arguments, found, shown):
    given = {name: a_run(1)[0] if value is LOG else value for name, value in arguments.items()}
    with pytest.raises((ValueError, TypeError), match=found):
        shown(**given)


def test_conventions_of_a_trainer(shown):
    given = {"tie": "strict", "order": "shuffled", "seed": 3, "lr": 0.5, "margin": 0.25}
    made = shown(trainer=tp.RuleTrainer(max_epochs=7, bias_step="radius", select="pocket", **given))
    assert (made["start"]["preset"], made["start"]["overlays"]) == ("AND", {"pocket": True})
    assert made["start"]["conventions"] == {**given, "biasStep": "radius", "maxEpochs": 7}


def a_run(draw, classes=None, features=2, count=16, **options):
    X, y = oracles.integers(draw, count=count, width=features, classes=classes)
    net = tp.Perceptron(features) if classes is None else tp.MulticlassPerceptron(features, classes)
    net = net.double()
    return tp.RuleTrainer(**{"max_epochs": 5, **options}).fit(net, torch.tensor(X, dtype=torch.float64) / 8, y), net


def test_a_log_of_sparse_samples_comes_back_bound_to_them(tmp_path):
    generator = torch.Generator().manual_seed(0)
    X = csr_array(torch.randn(20, 3, generator=generator, dtype=torch.float64).numpy())
    y = torch.randint(0, 2, (20,), generator=generator) * 2 - 1
    net = tp.Perceptron(3, dtype=torch.float64)
    tp.RuleTrainer(5).fit(net, X, y, sample_weight=torch.rand(20, generator=generator)).log.save(tmp_path / "log.json")
    again = tp.MistakeLog.load(tmp_path / "log.json", X, y)
    assert torch.equal(again.last().weight, net.weight)
    torch.testing.assert_close(tp.MistakeLog.load(tmp_path / "log.json").last().weight, net.weight)


def test_a_log_without_weights_for_each_feature_has_no_json(tmp_path):
    X, y = tp.data.gate("XOR")
    log = tp.RuleTrainer(kernel="poly", degree=2).fit(None, X, y).log
    with pytest.raises(ValueError, match=r"kernel.*npz"):
        log.save(tmp_path / "log.json")
    assert list(tmp_path.iterdir()) == []


def changed(**changes):
    entries = json.loads(a_run(1)[0].log.to_json())
    return entries | {name: change(entries[name]) if callable(change) else change for name, change in changes.items()}


test_json_that_is_no_log_is_refused = refusals(
    ({"format": "log"}, '"format"'),
    ({"version": 2}, "version 2"),
    ({"index": lambda a: [99, *a[1:]]}, '"index".*from 0 to 15'),
    ({"index": lambda a: [0.5, *a[1:]]}, '"index".*float64'),
    ({"index": lambda a: [None, *a[1:]]}, '"index".*object'),
    ({"index": 3}, '"index".*int'),
    ({"step": lambda a: a[:-1]}, '"step"'),
    ({"step": lambda a: a[::-1]}, '"step"'),
    ({"coef": lambda a: [-c for c in a]}, '"coef"'),
    ({"coef": lambda a: [1e400, *a[1:]]}, "Infinity"),
    ({"coef": lambda a: [10**400, *a[1:]]}, '"coef"'),
    ({"wrong": lambda a: [-w for w in a]}, '"wrong"'),
    ({"wrong": lambda a: [0, *a[1:]]}, '"wrong".*0'),
    ({"labels": lambda a: a[:-1]}, 'labels has 15'),
    ({"points": lambda a: [a[0][:1], *a[1:]]}, '"points"'),
    ({"points": lambda a: [[float("nan"), 0], *a[1:]]}, "NaN"),
    ({"start": {"weight": [[0, 0]]}}, "'bias'"),
    ({"start": {"weight": [[0, 0], [0, 0]], "bias": [0]}}, '"weight".*2, 2'),
    ({"classes": 1}, 'classes=1'),
    ({"steps": lambda a: a + 1}, '"epoch_ends" ends at 48'),
    ({"bias_scale": -1}, 'bias_scale=-1'),
    ({"scale": "1"}, "scale.*'1'"),
    ({"dtype": "int8"}, "dtype='int8'"),
    ({"dtype": "float32", "points": lambda a: [[1e39, 0], *a[1:]]}, '"points".*float32'),
    ({"cost": [-1.0] * 16}, '"cost"'),
    ({"projection": {}}, "more features"),
    by=lambda changes: tp.MistakeLog.from_json(json.dumps(changed(**changes))),
    error=ValueError,
)  # fmt: skip


def test_what_is_no_json_or_lacks_an_entry_is_refused():
    entries = changed()
    short = [{key: entries[key] for key in entries if key != name} for name in entries.keys() - {"conventions"}]
    for text in ("", "[]", "null", '{"format"', "[" * 100_000, "\udcff", *map(json.dumps, short)):
        with pytest.raises(ValueError, match="is not a mistake log, or is damaged"):
            tp.MistakeLog.from_json(text.encode(errors="surrogateescape"))


EXPORT = "answer = questions.map((data) => logToJson(runRule(data, {maxEpochs: 6})));"
REPLAY = """
answer = questions.map((entries) => {
  const log = logFromJson(entries);
  return {
    states: [...log.index.keys(), log.index.length].map((t) => stateAt(log, t)), averaged: averaged(log), scores: log.scores,
    errors: errorsOfStates(log), pocket: pocketIndex(log), brackets: bestBrackets(log).map(({lower, upper}) => [lower, upper]),
    json: logToJson(log), voted: log.data.points.map(voted(log)),
  };
});
"""


@pytest.mark.parametrize("classes", [None, 3])
@pytest.mark.browser  # Node
def test_a_run_with_more_features_is_shown_where_the_others_are_at_their_mean(classes, shown):
    result, _ = a_run(3, classes=classes, features=4, count=16)  # a mean of 16 samples on a grid is exact
    log = result.log
    made = shown(log=log, names=("a", "b", "c", "d"), features=("d", 2))
    entries = made["recorded"]
    assert made["start"]["data"]["names"] == ["d", "b"]
    X = log.problem.samples.dense()
    assert entries["points"] == X[:, [3, 1]].tolist()
    assert "4 features, seen in d and b: the boundary is exact where every other feature" in entries["description"]
    (answer,) = run_node(CORE, REPLAY, [entries])
    mean = X[:, [0, 2]].mean(0)
    plane = torch.stack([mean[0].expand(16), X[:, 1], mean[1].expand(16), X[:, 3]], 1)
    for t, state in enumerate(answer["states"]):
        there = log.state_at(t)
        assert state["weight"] == there.weight[:, [3, 1]].tolist()
        assert state["bias"] == (there.bias + there.weight[:, [0, 2]] @ mean).tolist()
    weight, bias = (torch.tensor(answer["averaged"][name], dtype=torch.float64) for name in ("weight", "bias"))
    average = log.averaged()
    torch.testing.assert_close(weight, average.weight[:, [3, 1]])
    torch.testing.assert_close(bias, average.bias + average.weight[:, [0, 2]] @ mean)
    for j, entry in enumerate(log):
        assert answer["scores"][j] == torch.atleast_1d(log.state_at(j).scores(X[entry.sample][None])[0]).tolist()
    assert answer["errors"] == log.errors().tolist()
    assert answer["pocket"] == log.pocket_index()
    voted = log.voted().predict(plane)
    assert answer["voted"] == (voted if classes else (voted + 1) // 2).tolist()
    state = log.last()
    bracket = tp.theory.bracket((state.weight, state.bias), X, log.y, t=len(log))
    assert answer["brackets"][-1][1] <= bracket.upper * (1 + 1e-12)
    assert answer["brackets"][-1][0] >= bracket.lower * (1 - 1e-12) - 1e-12
    with pytest.raises(ValueError, match="it is a two-feature view of a run with more features"):
        tp.MistakeLog.from_json(json.dumps(answer["json"]))


def test_conventions_that_a_log_stores_are_told_and_without_any_it_says_so(shown):
    chosen = {"tie": "sign", "bias_step": "radius", "order": "shuffled", "seed": 7, "max_epochs": 5}
    result = a_run(2, **chosen)[0]
    made = shown(log=result.log)["recorded"]
    assert "description" not in made
    assert made["conventions"] == {**chosen, "lr": 1.0, "margin": 0.0}
    bare = shown(log=replace(result.log, conventions={}))["recorded"]
    assert "does not say how ties were decided" in bare["description"]
    assert (bare["verdict"], bare["conventions"]["bias_step"]) == (None, "unit")
    told = shown(log=replace(result, log=replace(result.log, conventions={})), trainer=tp.RuleTrainer(seed=5))
    assert "description" not in told["recorded"]
    assert (told["recorded"]["conventions"]["seed"], told["recorded"]["verdict"]) == (5, "BUDGET")


LONG = """
globalThis.document = {createElementNS: () => ({setAttribute() {}, append() {}})};
const points = Array.from({length: 400}, (_, k) => [(k % 20) / 16, Math.floor(k / 20) / 16]);
const labels = points.map((_, k) => (k * k + (k >> 3)) % 2);
const conventions = {tie: "update", biasStep: "unit", order: "shuffled", seed: 0, lr: 1, margin: 0, start: null, maxEpochs: 800};
const log = runRule({points, labels, classes: 2}, conventions);
const drawn = bracketChart(log, log.index.length, null);
answer = [log.index.length, bestBrackets(log).length];
"""


@pytest.mark.browser  # Node
def test_a_long_run_has_its_chart_of_bounds():
    scripts = ["elements.js", *CORE, "plane.js", "charts.js"]
    mistakes, shown = run_node(scripts, LONG, None)
    assert shown - 1 == mistakes > 125_000


@pytest.mark.browser  # Node
def test_a_log_of_the_page_brings_its_conventions(shown, tmp_path):
    data = {"points": [[0, 0], [0, 1], [1, 0], [1, 1]], "labels": [0, 1, 1, 0], "classes": 2}
    (entries,) = run_node(CORE, EXPORT, [data])
    path = tmp_path / "xor.json"
    path.write_text(json.dumps(entries))
    made = shown(log=path)
    assert (made["recorded"]["verdict"], made["recorded"]["cycle"]) == ("CYCLING", [0, 1])
    assert made["recorded"]["conventions"]["max_epochs"] == 6
    assert made["start"]["data"] == data
    for change, found in (
        ({"verdict": "WON"}, "verdict='WON'"),
        ({"conventions": {"tie": "x"}}, "tie='x'"),
        ({"cycle": [0, "a"]}, "cycle"),
    ):
        path.write_text(json.dumps({**entries, **change}))
        with pytest.raises(ValueError, match=f"xor.json .*{found}"):
            shown(log=path)


def test_logs_that_the_page_cannot_replay_are_refused(shown, tmp_path):
    a_run(1)[0].log.save(tmp_path / "log.npz")
    for found, log in {
        "kernel": tp.RuleTrainer(kernel="poly", degree=2).fit(None, *tp.data.gate("XOR")),
        "5 classes": a_run(1, classes=5)[0],
        "have 3: x1, x2, x3": a_run(1, features=3)[0],
        "mistakes; at most 20,000": a_run(1, max_epochs=1500, order="shuffled", count=64)[0].log,
        "log.npz holds a hash": tmp_path / "log.npz",
    }.items():
        with pytest.raises(ValueError, match=found):
            shown(log=log)


def test_a_log_in_a_file_is_bound_to_its_data(shown, tmp_path):
    X, y = tp.data.noisy_blobs(20, seed=2)
    names = ["no" if label < 0 else "yes" for label in y.tolist()]
    tp.RuleTrainer(max_epochs=3).fit(tp.Perceptron(2), X.float(), y).log.save(tmp_path / "run.npz")
    made = shown(X.float(), names, log=str(tmp_path / "run.npz"))
    assert made["start"]["data"]["classNames"] == ["no", "yes"]
    assert made["recorded"]["points"] == X.float().tolist()
    with pytest.raises(ValueError, match="belongs to other data"):
        shown(X.float() + 1, names, log=tmp_path / "run.npz")


def test_play_writes_the_page_and_opens_it_unless_out_is_given(tmp_path, monkeypatch, capsys):
    opened = []
    monkeypatch.setattr(webbrowser, "open", opened.append)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    made = tp.play(*tp.data.gate("OR"))
    (path,) = tmp_path.rglob("play.html")
    assert opened == [path.as_uri()]
    assert capsys.readouterr().out == f"the page: {path}\n"
    assert path.read_text("utf-8") == made.html
    assert content_in(made.html)["start"]["data"]["labels"] == [0, 1, 1, 1]
    made = tp.play(trainer=tp.RuleTrainer(tie="sign"), out=tmp_path / "a.html")
    assert (tmp_path / "a.html").read_text("utf-8") == made.html
    assert content_in(made.html)["start"]["conventions"]["tie"] == "sign"
    assert len(opened) == 1


@pytest.fixture
def notebook(monkeypatch):
    assert tp.lab.play.PlayWidget  # which imports the real IPython
    shell = types.SimpleNamespace(kernel=True)
    monkeypatch.setitem(sys.modules, "IPython", types.SimpleNamespace(get_ipython=lambda: shell))


def test_a_notebook_without_anywidget_shows_the_page(notebook, monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.warns(UserWarning, match=r"pip install 'torchperc\[notebook\]'"):
        made = tp.play(height=400)
    frame = made._repr_html_()
    assert markup.unescape(re.search('srcdoc="(.*?)"', frame, re.DOTALL)[1]) == made.html
    assert 'sandbox="allow-scripts allow-downloads"' in frame
    assert "height: 400px" in frame


def test_a_notebook_gets_a_widget_that_hands_points_back(notebook, tmp_path):
    X, y = torch.tensor([[0.0, 0.25], [1.0, 0.5]]), torch.tensor([7, 3], dtype=torch.int32)
    widget = tp.play(X, y, height=500)
    assert isinstance(widget, tp.lab.play.PlayWidget)
    assert widget.content["widget"] is True
    assert widget.height == 500
    assert torch.equal(widget.X, X)
    assert torch.equal(widget.y, y)
    assert widget.y.dtype == y.dtype
    seen = []
    widget.observe(lambda change: seen.append(change.new), "points")
    widget.set_state({"points": [[0.5, 0.5], [1, 2], [0, 0]], "labels": [1, 0, 0], "edited": True})
    assert seen == [[[0.5, 0.5], [1, 2], [0, 0]]]
    assert torch.equal(widget.X, torch.tensor([[0.5, 0.5], [1.0, 2.0], [0.0, 0.0]]))
    assert widget.y.tolist() == [7, 3, 3]
    saved = content_in(widget.save(tmp_path / "page.html").read_text("utf-8"))
    assert saved["start"]["data"]["points"] == widget.points
    assert saved["widget"] is False
    assert content_in(PAGE)["start"] == {"preset": "AND"}


@pytest.mark.parametrize(
    ("y", "classes", "expected"),
    [
        ([-1, 1], [0, 1, 1], [-1, 1, 1]),
        ([-1, 1], [0, 1, 2], [0, 1, 2]),
        ([0, 1], [0, 1, 3], [0, 1, 3]),
        ([2.5, 0.5], [0, 1, 2], [0.5, 2.5, 3.5]),
        (["b", "a"], [0, 1], ["a", "b"]),
        (["b", "a"], [3, 1, 2], ["class 4", "b", "class 3"]),
        ([True, False], [0, 1], [False, True]),
    ],
)
def test_labels_come_back_in_the_coding_of_the_user(y, classes, expected, notebook):
    widget = tp.play([[0, 0], [1, 1]], y)
    widget.set_state({"points": [[0, 0]] * len(classes), "labels": classes, "edited": True})
    assert widget.y.tolist() == expected


def test_the_command_line_needs_no_torch(tmp_path):
    code = "import sys; from torchperc.cli import main; main(['play', '--out', 'p.html']); print(sorted({'torch.nn', 'sklearn', 'pytorch_lightning', 'scipy', 'numba', 'anywidget'} & set(sys.modules)))"
    run = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert run.stdout.splitlines() == ["the page: p.html", "[]"]
