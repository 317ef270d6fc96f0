"""The page as a file and as a widget: what Python puts into it, and what comes back."""

import fnmatch
import html as markup
import json
import re
import subprocess
import sys
import tempfile
import types
import webbrowser
from fractions import Fraction
from pathlib import Path

import numpy as np
import oracles
import pandas
import pytest
import torch
from node import run_node
from scipy.sparse import csr_array

import torchperc as tp
from torchperc.lab.play import coding, contents, page, points, presets, recorded, retrace, show
from torchperc.lab.play.widget import PlayWidget

FOLDER = Path(page.__file__).parent
CORE = [f"{name}.js" for name in ("rational", "random", "rule", "log", "proof")]
DATA = re.compile(r'<script type="application/json" id="content">(.*?)</script>', re.DOTALL)


def content_in(html):
    return json.loads(DATA.search(html)[1])


# --- one file -----------------------------------------------------------------------------------------------------


def test_the_page_is_one_small_file_that_asks_for_nothing():
    html = page.make_page()
    assert len(html.encode()) < 300_000
    assert html == page.make_page()
    addresses = set(re.findall(r"""https?://[^\s"'`<>]+""", html))
    assert addresses <= {"http://www.w3.org/2000/svg", "http://www.w3.org/1999/xhtml"}  # names, not places
    assert not re.search(r"<link|<img|src=|@import|url\((?!#|data:)|fetch\(|XMLHttpRequest|WebSocket|sendBeacon", html)
    assert "{{ " not in html


def test_all_scripts_and_styles_are_in_the_page():
    assert {path.stem for path in (FOLDER / "js").glob("*.js")} == set(page.SCRIPTS)
    assert {path.name for path in FOLDER.glob("*.css")} == set(page.STYLES)
    places = [page.script().index(f"// {name}.js\n") for name in page.SCRIPTS]
    assert places == sorted(places)
    with pytest.raises(FileNotFoundError):
        page.source("js/nothing.js")


def test_no_script_takes_a_name_of_another():
    """A second function of the same name would take the place of the first, without a word."""
    declared = re.compile(r"^(?:async )?(?:function|class|const|let) (\w+)", re.MULTILINE)
    names = [found for name in page.SCRIPTS for found in declared.findall(page.source(f"js/{name}.js"))]
    assert len(names) > 400
    assert sorted(names) == sorted(set(names))


def test_only_comments_are_left_out_of_the_scripts():
    """No line that looks like a comment lies inside a text over several lines."""
    for name in page.SCRIPTS:
        source = page.source(f"js/{name}.js")
        code = page._code(source)
        kept = [line for line in source.splitlines() if not line.lstrip().startswith("//")]
        assert code.splitlines() == kept
        assert all(line.count("`") % 2 == 0 for line in kept), f"{name}.js has a text over several lines"


def test_every_file_is_packaged(request):
    tomllib = pytest.importorskip("tomllib" if sys.version_info >= (3, 11) else "tomli")
    project = tomllib.loads((request.config.rootpath / "pyproject.toml").read_text())
    patterns = project["tool"]["setuptools"]["package-data"]["torchperc.lab.play"]
    files = [
        path.relative_to(FOLDER).as_posix() for path in FOLDER.rglob("*") if path.suffix in (".js", ".css", ".html")
    ]
    assert len(files) > 20
    assert [name for name in files if not any(fnmatch.fnmatch(name, pattern) for pattern in patterns)] == []


@pytest.mark.parametrize(
    "name", ["</script><script>alert(1)//", "<!-- <script>", "a & b \u2028 é", "]]>", "{{ scripts }}", "\\1"]
)
def test_names_cannot_break_out_of_the_page(name):
    plain = page.make_page()
    html = page.make_page(
        {"data": {"points": [[0, 0]], "labels": [0], "classes": 2, "classNames": [name, "b"]}}, title=name
    )
    assert content_in(html)["start"]["data"]["classNames"] == [name, "b"]
    assert f"<title>{markup.escape(name)}</title>" in html
    for tag in ("<script", "</script", "<!--", "<style", "</style"):
        assert html.count(tag) == plain.count(tag), tag


def test_numbers_must_be_finite():
    with pytest.raises(ValueError, match="JSON"):
        page.as_block([float("nan")])


def test_a_part_that_would_end_its_element_is_refused():
    with pytest.raises(ValueError, match="has '</Script', which ends its element"):
        page._whole('const s = "</Script>"')


# --- texts --------------------------------------------------------------------------------------------------------


def test_the_english_texts_are_those_of_the_scripts():
    scripts = ["texts.js", "texts_gradient.js"]
    own = run_node(scripts, "answer = TEXTS.en;", None)
    assert own == {key: text for key, text in page.english().items() if key in own}
    rest = set(page.english()) - set(own)
    assert {key.split(".")[0] for key in rest} == {"lang", "preset", "dialect", "about"}


def test_every_key_that_the_scripts_use_is_there():
    known = page.english()
    for name in page.SCRIPTS:
        for key in re.findall(r'(?<![\w.])t\("([\w.-]+)"[),]', page.source(f"js/{name}.js")):
            assert key in known, (name, key)


def test_a_translation():
    texts = {
        "lang": "de",
        "title": "Das Perzeptron",
        "preset.AND.name": "UND",
        "preset.group.gates": "Gatter",
        "dialect.note-a": "wie Skript A",
    }
    html = page.make_page(texts=texts)
    made = content_in(html)
    assert "<title>Das Perzeptron</title>" in html
    assert made["language"] == "de"
    assert made["texts"] == {"de": texts}
    assert made["presets"][0]["name"] == "UND"
    assert made["presets"][0]["group"] == "Gatter"
    assert made["presets"][1]["name"] == "OR"
    assert made["dialects"][0]["remark"] == "wie Skript A"


def test_what_is_said_about_data_is_translated_too():
    X, y = np.arange(12.0).reshape(3, 4), [0, 1, 1]
    texts = {"about.features": "Zwei von {count} Merkmalen: {first}, {second}. {"}
    made = contents.content_of(X, y, features=(2, 1), texts=texts)["start"]["data"]
    assert made["description"] == "Zwei von 4 Merkmalen: x2, x1. {"


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        (
            {"titel": "Das Perzeptron"},
            "texts has the key 'titel', which the page does not know; see torchperc play --texts",
        ),
        ({"title": 3}, "texts has 3 for 'title'; give a text"),
        (
            {"status.points.many": "{n} Punkte"},
            r"texts names \{n\} in 'status.points.many', where the page has no such value",
        ),
        (["title"], "texts must be a dictionary of texts, found list"),
    ],
)
def test_wrong_translations_are_refused(texts, message):
    with pytest.raises((ValueError, TypeError), match=message):
        page.content(texts=texts)


# --- examples and dialects ----------------------------------------------------------------------------------------


def trained(preset, **changes):
    conventions = {"tie": "update", "biasStep": "unit", "order": "given"} | preset.conventions | changes
    options = {
        {"biasStep": "bias_step", "maxEpochs": "max_epochs"}.get(name, name): conventions[name] for name in conventions
    }
    X, labels = torch.tensor(preset.points, dtype=torch.float64), torch.tensor(preset.labels)
    several = max(preset.labels) > 1
    net = (
        tp.MulticlassPerceptron(2, max(preset.labels) + 1, dtype=torch.float64)
        if several
        else tp.Perceptron(2, dtype=torch.float64)
    )
    y = labels if several else 2 * labels - 1
    return X, y, tp.RuleTrainer(**options).fit(net, X, y)


@pytest.mark.parametrize("name", ["AND", "OR", "NAND", "NOR", "XOR", "XNOR"])
def test_gates_are_those_of_the_data_package(name):
    X, y = tp.data.gate(name)
    preset = presets.preset(name)
    assert preset.points == X.tolist()
    assert [2 * label - 1 for label in preset.labels] == y.tolist()


def test_parity_is_the_cube_of_inputs():
    X, y = tp.data.gate("parity-3", dtype=torch.float64)
    preset = presets.preset("parity-3")
    assert [2 * label - 1 for label in preset.labels] == y.tolist()
    drawn = X[:, :2] + X[:, 2:] * torch.tensor(presets._CUBE) - torch.tensor([0.75, 0.6875])
    assert preset.points == drawn.tolist()


def test_examples_lie_on_the_grid_and_have_names_of_their_own():
    assert len({preset.id for preset in presets.PRESETS}) == len(presets.PRESETS) >= 20
    assert len({preset.name for preset in presets.PRESETS}) == len(presets.PRESETS)
    for preset in presets.PRESETS:
        assert all((Fraction(value) * 64).denominator == 1 for point in preset.points for value in point)
        assert set(preset.labels) == set(range(max(preset.labels) + 1)), preset.id
        assert len(preset.points) == len(preset.labels) == len(set(map(tuple, preset.points))), preset.id
        if preset.group != "notes":
            assert np.abs(preset.points).max() <= 1.5, preset.id


@pytest.mark.parametrize("preset", presets.PRESETS, ids=lambda preset: preset.id)
def test_whether_a_line_separates_an_example_is_what_its_sentence_says(preset):
    X, y, _ = trained(preset, maxEpochs=1, tie="update", biasStep="unit", order="given")
    classes = max(preset.labels) + 1
    certificate = tp.theory.separability(X, y, num_classes=classes if classes > 2 else None)
    no_line = re.search("no line|cube|XOR", f"{preset.remark} {preset.name}")
    assert certificate.separable is not bool(no_line)


def test_the_examples_of_the_notes_come_out_as_they_say():
    runs = {
        preset.id: trained(preset)
        for preset in presets.PRESETS
        if preset.group == "notes" and preset.id != "note-e-strict"
    }
    result = {name: run[2] for name, run in runs.items()}
    last = result["note-a"].log.last()
    assert (last.bias.tolist(), last.weight.tolist(), result["note-a"].mistakes, result["note-a"].epochs) == (
        [-4.0],
        [[3.0, 2.0]],
        18,
        9,
    )
    assert result["note-a-xor"].verdict.name == "CYCLING"
    assert result["note-a-xor"].period == 1
    last = result["note-c"].log.last()
    assert (last.bias.tolist(), last.weight.tolist(), result["note-c"].mistakes) == ([-3.0], [[2.0, 1.0]], 11)
    X, y, run = runs["note-b-vote"]
    assert torch.equal(run.log.voted().predict(X), y)
    once = torch.stack([run.log.state_at(t).scores(X).sign() for t in range(len(run.log) + 1)]).sum(0)
    assert not torch.equal(tp.functional.decide(once), y)
    X, y, run = runs["note-c-vote"]
    assert (run.log.voted().predict(X) != y).sum() > (run.log.last().predict(X) != y).sum()
    mistakes = [trained(presets.preset("note-c-classes"), tie=tie)[2].mistakes for tie in ("sign", "update")]
    assert mistakes[0] != mistakes[1]
    assert result["note-d"].verdict.name == "SEPARATED"
    log = result["note-d-pocket"].log
    assert log.errors()[log.pocket_index()] == 1
    assert runs["note-e"][0].square().sum(1).max() == 25
    with pytest.warns(UserWarning, match="strict"):
        stuck = trained(presets.preset("note-e-strict"))[2]
    assert stuck.mistakes == 0


def test_dialects_are_those_of_the_rules():
    listed = page.content()["dialects"]
    assert [each["name"] for each in listed] == [dialect.name for dialect in tp.dialects.ALL]
    for each, dialect in zip(listed, tp.dialects.ALL, strict=True):
        conventions = each["conventions"]
        assert (conventions["tie"], conventions["biasStep"], conventions["order"]) == (
            dialect.tie,
            dialect.bias_step,
            dialect.order,
        )
        assert (conventions["lr"], each["select"], each["remark"]) == (dialect.lr, dialect.select, dialect.remark)


# --- data of the user ---------------------------------------------------------------------------------------------


def test_labels_of_any_kind_are_shown_by_their_names():
    made = contents.content_of([[0, 1], [1, 0.5], [2, 2]], ["pear", "apple", "fig"])["start"]["data"]
    assert made == {
        "points": [[0.0, 1.0], [1.0, 0.5], [2.0, 2.0]],
        "labels": [2, 0, 1],
        "classes": 3,
        "classNames": ["apple", "fig", "pear"],
    }
    made = contents.content_of(torch.tensor([[0.1, 1], [1, 0]]), torch.tensor([1, -1]))["start"]["data"]
    assert made["labels"] == [1, 0]
    assert set(made) == {"points", "labels", "classes"}  # the page has its own signs for −1 and +1, x1 and x2
    assert made["points"][0][0] == float(torch.tensor(0.1))


def test_two_features_of_more():
    X, y = np.arange(12.0).reshape(3, 4), [0, 1, 1]
    made = contents.content_of(X, y, names=("a", "b", "c", "d"), features=("d", 2))["start"]["data"]
    assert made["points"] == X[:, [3, 1]].tolist()
    assert made["names"] == ["d", "b"]
    assert made["description"] == "The plane shows 2 of 4 features: d and b."


def test_samples_are_drawn_in_their_order():
    table = tp.data.load("separable-blobs", samples=300)
    drawn = points.of_table(table, samples=50)
    rows = [table.X.tolist().index(point) for point in drawn.X.tolist()]
    assert len(rows) == 50
    assert rows == sorted(rows) != list(range(50))
    assert drawn.about == "50 of 300 samples were drawn at random."
    assert points.of_table(table, samples=400).about == ""


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ([[0, 1, 2], [1, 2, 0]], [0, 1]),
            r"the page shows two features, and the data have 3: x1, x2, x3; choose two by features=\['x1', 'x2'\]",
        ),
        (([[0], [1]], [0, 1]), "the page needs two features, and the data have 1: x1; add a column"),
        (
            (np.zeros((5, 2)), range(5)),
            "y has 5 classes, and the page shows 4 at most; compare one of them with the rest",
        ),
        (
            (np.zeros((1001, 2)), [0, 1] * 500 + [0]),
            "1,001 samples are more than the page can show, 1,000; draw some at random by samples=500",
        ),
        (([[0, 1], [1, 2]], [1, 1]), "at least two classes are required"),
        (([[0, 1]], None), "y is missing; give samples X and labels y, or neither"),
        ((None, [1]), "X is missing"),
    ],
)
def test_data_that_the_page_cannot_show_are_refused(arguments, message):
    with pytest.raises((ValueError, TypeError), match=message):
        contents.content_of(*arguments)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"names": ["a", "b"]}, r"names=\['a', 'b'\] is about features of data; give X and y, or a log"),
        ({"features": [1, 2]}, r"features=\[1, 2\] is about features of data"),
        ({"samples": 5}, "samples=5 draws from X and y; a log is replayed with all of its samples"),
        ({"samples": 5, "log": True}, "samples=5 draws from X and y"),
        ({"names": ["a", "b", "c"], "features": ["a", "c"], "log": True}, "names has 3 entries for 2 features"),
    ],
    ids=str,
)
def test_what_would_have_no_effect_is_refused(options, message):
    given = {**options, **({"log": a_run(1)[0]} if "log" in options else {})}
    with pytest.raises(ValueError, match=message):
        contents.content_of(**given)


def test_a_data_frame_names_its_features_and_samples_can_be_drawn():
    frame = pandas.DataFrame({"age": range(1200), "height": range(1200)})
    data = contents.content_of(frame, [0, 1] * 600, samples=50)["start"]["data"]
    assert (data["names"], len(data["points"])) == (["age", "height"], 50)


@pytest.mark.parametrize(
    ("features", "message"),
    [
        (("a", "e"), "features='e' is no feature; choose two of a, b, c, d, or their positions from 1"),
        ((1, 5), "features=5 is no feature"),
        ((2, "b"), r"features=\[2, 'b'\] is one feature twice"),
        (("a",), r"features=\('a',\) must be two of the features: a, b, c, d"),
        ("ab", "features='ab' must be two of the features"),
    ],
)
def test_wrong_features_are_refused(features, message):
    with pytest.raises(ValueError, match=message):
        points.two_features(("a", "b", "c", "d"), features)


def test_conventions_of_a_trainer():
    trainer = tp.RuleTrainer(
        max_epochs=7, lr=0.5, tie="strict", bias_step="radius", order="shuffled", seed=3, margin=0.25
    )
    made = contents.content_of(trainer=trainer)["start"]
    assert made["preset"] == "AND"
    assert made["conventions"] == {
        "tie": "strict",
        "order": "shuffled",
        "seed": 3,
        "lr": 0.5,
        "margin": 0.25,
        "biasStep": "radius",
        "maxEpochs": 7,
    }


@pytest.mark.parametrize(
    ("trainer", "message"),
    [
        (tp.RuleTrainer(kernel="poly"), "the page has no kernel; leave it out of the trainer"),
        (tp.RuleTrainer(class_weight="balanced"), "the page has no class_weight"),
        (tp.RuleTrainer(select="best-validation"), "the page has no validation set"),
        (tp.RuleTrainer(seed=2**53), "seed=9007199254740992 is beyond the integers of a page; use one below"),
        (tp.RuleTrainer(order=[1, 0]), "the page has no order of sample numbers; use order='given'"),
        ("sign", "trainer must be a RuleTrainer, found str"),
    ],
)
def test_conventions_that_the_page_does_not_have_are_refused(trainer, message):
    with pytest.raises((ValueError, TypeError), match=message):
        contents.content_of(trainer=trainer)


# --- logs ---------------------------------------------------------------------------------------------------------


def a_run(draw, classes=None, features=2, count=16, **options):
    X, y = oracles.integers(draw, count=count, width=features, classes=classes)
    net = (
        tp.Perceptron(features, dtype=torch.float64)
        if classes is None
        else tp.MulticlassPerceptron(features, classes, dtype=torch.float64)
    )
    return tp.RuleTrainer(**{"max_epochs": 5, **options}).fit(net, torch.tensor(X, dtype=torch.float64) / 8, y), net


RUNS = [
    {}, {"tie": "sign", "order": "shuffled"}, {"lr": 0.3}, {"bias_step": "radius"}, {"bias_step": "none", "margin": 0.5},
    {"classes": 3}, {"classes": 4, "order": "random-mistake", "tie": "sign"}, {"features": 5},
]  # fmt: skip


@pytest.mark.parametrize("options", RUNS, ids=str)
def test_a_log_comes_back_from_json(options, tmp_path):
    result, net = a_run(1, **options)
    result.log.save(tmp_path / "log.json")
    assert [path.name for path in tmp_path.iterdir()] == ["log.json"]
    again = tp.MistakeLog.load(tmp_path / "log.json")
    assert again.equals(result.log)
    assert torch.equal(again.last().weight, net.weight)
    assert torch.equal(again.last().bias, net.bias)
    for model in ("averaged", "pocket"):
        assert torch.equal(getattr(again, model)().weight, getattr(result.log, model)().weight)
    X = result.log.space.rows.dense()
    assert torch.equal(again.voted().scores(X), result.log.voted().scores(X))
    assert torch.equal(again.errors(), result.log.errors())
    assert again.to_json() == result.log.to_json()
    tp.MistakeLog.load(tmp_path / "log.json", X, result.log.y)
    with pytest.raises(ValueError, match=r"log.json belongs to other data"):
        tp.MistakeLog.load(tmp_path / "log.json", X + 1, result.log.y)


def test_weights_of_samples_and_float32_come_back():
    X, y = tp.data.noisy_blobs(20, seed=1)
    net = tp.Perceptron(2)
    log = tp.RuleTrainer(max_epochs=4, lr=0.1).fit(net, X.float(), y, sample_weight=[1.0, 0.5] * 10).log
    again = tp.MistakeLog.from_json(log.to_json())
    assert again.last().weight.dtype == torch.float32
    assert torch.equal(again.last().weight, net.weight)
    assert torch.equal(again.errors(), log.errors())


def test_a_log_of_sparse_samples_comes_back_bound_to_them(tmp_path):
    generator = torch.Generator().manual_seed(0)
    X = csr_array(torch.randn(20, 3, generator=generator, dtype=torch.float64).numpy())
    y = torch.randint(0, 2, (20,), generator=generator) * 2 - 1
    net = tp.Perceptron(3, dtype=torch.float64)
    tp.RuleTrainer(5).fit(net, X, y, sample_weight=torch.rand(20, generator=generator)).log.save(tmp_path / "log.json")
    again = tp.MistakeLog.load(tmp_path / "log.json", X, y)
    assert torch.equal(again.last().weight, net.weight)
    torch.testing.assert_close(tp.MistakeLog.load(tmp_path / "log.json").last().weight, net.weight)


def test_what_json_has_no_use_for_is_refused(tmp_path):
    path, (result, _) = tmp_path / "log.json", a_run(1)
    result.log.save(path)
    with pytest.raises(TypeError, match="y is missing; pass X and y"):
        tp.MistakeLog.load(path, result.log.space.rows.dense())
    for name in ("kernel", "features"):
        with pytest.raises(ValueError, match=f"{name}.*was given"):
            tp.MistakeLog.load(path, **{name: print})


def test_a_log_without_weights_for_each_feature_has_no_json(tmp_path):
    X, y = tp.data.gate("XOR")
    log = tp.RuleTrainer(kernel="poly", degree=2).fit(None, X, y).log
    with pytest.raises(ValueError, match=r"a log of a kernel run has no weights for each feature; save it as .npz"):
        log.save(tmp_path / "log.json")
    assert list(tmp_path.iterdir()) == []


def changed(**changes):
    entries = json.loads(a_run(1)[0].log.to_json())
    return {
        **entries,
        **{name: change(entries[name]) if callable(change) else change for name, change in changes.items()},
    }


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"format": "log"}, 'it does not have "format": "torchperc mistake log"'),
        ({"version": 2}, "it has version 2; this torchperc reads version 1"),
        ({"index": lambda a: [99, *a[1:]]}, '"index" must hold integers from 0 to 15, found'),
        ({"index": lambda a: [-1, *a[1:]]}, '"index" must hold integers from 0 to 15'),
        ({"index": lambda a: [0.5, *a[1:]]}, '"index" must hold integers, found 0.5'),
        ({"index": lambda a: [True, *a[1:]]}, '"index" must hold integers, found True'),
        ({"index": lambda a: [None, *a[1:]]}, '"index" must hold integers, found None'),
        ({"index": 3}, '"index" must be a list, found int'),
        ({"step": lambda a: a[:-1]}, '"step" has .* entries where .* are needed'),
        ({"step": lambda a: a[::-1]}, '"step" must not fall'),
        ({"step": lambda a: [*a[:-1], 10**30]}, '"step" must hold integers from 0'),
        ({"coef": lambda a: [-c for c in a]}, '"coef" moves a sample away from its label'),
        ({"coef": lambda a: [1e400, *a[1:]]}, "it holds Infinity, which is no finite number"),
        ({"coef": lambda a: [10**400, *a[1:]]}, '"coef" must hold finite numbers'),
        ({"coef": lambda a: ["1", *a[1:]]}, "\"coef\" must hold numbers, found '1'"),
        ({"wrong": lambda a: [-w for w in a]}, '"wrong" names a sample\'s own label'),
        ({"wrong": lambda a: [0, *a[1:]]}, '"wrong" must hold -1 and 1, found 0'),
        ({"labels": lambda a: a[:-1]}, '"labels" has 15 entries where 16 are needed'),
        ({"points": lambda a: [a[0][:1], *a[1:]]}, '"points" has 2 numbers where 1 are needed'),
        ({"points": []}, '"points" must be a list of rows of numbers'),
        ({"points": lambda a: [[float("nan"), 0], *a[1:]]}, "it holds NaN, which is no finite number"),
        ({"start": {"weight": [[0, 0]]}}, '"start" must have weight and bias'),
        ({"start": {"weight": [[0, 0], [0, 0]], "bias": [0]}}, '"start.weight" has 2 rows where 1 are needed'),
        ({"start": {"weight": [[0, 0]], "bias": [0, 0]}}, '"start.bias" has 2 numbers where 1 are needed'),
        ({"classes": 1}, '"classes" must be an integer of at least 2, found 1'),
        ({"steps": -1}, '"steps" must be an integer of at least 0, found -1'),
        ({"steps": lambda a: a + 1}, '"epoch_ends" ends at 48, and there are 49 steps'),
        ({"bias_scale": -1}, '"bias_scale" must be at least 0, found -1'),
        ({"scale": "1"}, "\"scale\" must hold numbers, found '1'"),
        ({"dtype": "int8"}, "\"dtype\" is 'int8'; choose one of"),
        ({"dtype": "float32", "points": lambda a: [[1e39, 0], *a[1:]]}, '"points" holds a number too large for float32'),
        ({"dtype": "float16", "start": {"weight": [[0, 0]], "bias": [1e5]}}, '"start.bias" holds a number too large'),
        ({"cost": [-1.0] * 16}, '"cost" must hold numbers >= 0'),
        ({"projection": {}}, "it shows a run with more features in two of them"),
    ],
)  # fmt: skip
def test_json_that_is_no_log_is_refused(changes, message, tmp_path):
    path = tmp_path / "log.json"
    path.write_text(json.dumps(changed(**changes)))
    with pytest.raises(ValueError, match=f"log.json is not a mistake log, or is damaged: {message}.*; save it again"):
        tp.MistakeLog.load(path)


@pytest.mark.parametrize("text", ["", "[]", "null", "hello", '{"format"', "[" * 100_000, "\udcff"])
def test_what_is_no_json_is_refused(text):
    with pytest.raises(ValueError, match="is not a mistake log, or is damaged"):
        tp.MistakeLog.from_json(text.encode(errors="surrogateescape"))


def test_every_entry_is_needed(tmp_path):
    entries = changed()
    for name in entries:
        without = {key: value for key, value in entries.items() if key != name}
        with pytest.raises(ValueError, match="not a mistake log"):
            tp.MistakeLog.from_json(json.dumps(without))


def test_npz_needs_its_data(tmp_path):
    a_run(1)[0].log.save(tmp_path / "log.npz")
    with pytest.raises(TypeError, match="holds a hash of its data only; pass X and y"):
        tp.MistakeLog.load(tmp_path / "log.npz")


QUESTIONS = [
    {"seed": seed, "classes": classes, "tie": tie, "biasStep": step, "order": order, "lr": lr}
    for seed, (classes, tie, step, order, lr) in enumerate(
        [
            (2, "update", "unit", "given", 1), (2, "sign", "unit", "shuffled", 0.1), (2, "update", "radius", "random-mistake", 0.5),
            (2, "strict", "none", "given", 1), (3, "update", "unit", "given", 1), (4, "sign", "unit", "shuffled", 0.25),
        ]
    )
]  # fmt: skip
EXPORT = """
answer = questions.map(({data, conventions}) => logToJson(runRule(data, {...conventions, maxEpochs: 6})));
"""


def test_a_log_that_the_page_exports_has_the_weights_of_the_trainer():
    asked = []
    for question in QUESTIONS:
        X, y = oracles.integers(
            question["seed"], count=12, width=2, classes=None if question["classes"] == 2 else question["classes"]
        )
        labels = [(label + 1) // 2 for label in y] if question["classes"] == 2 else y
        conventions = {name: question[name] for name in ("tie", "biasStep", "order", "lr", "seed")} | {"start": None}
        if question["tie"] == "strict":
            conventions["start"] = {"weight": [[0.5, -0.25]], "bias": [0.125]}
        asked.append(
            {
                "data": {"points": [[v / 16 for v in x] for x in X], "labels": labels, "classes": question["classes"]},
                "conventions": conventions,
            }
        )
    exported = run_node(CORE, EXPORT, asked)
    for question, entries in zip(asked, exported, strict=True):
        conventions, data = question["conventions"], question["data"]
        classes = data["classes"] if data["classes"] > 2 else None
        net = (
            tp.Perceptron(2, dtype=torch.float64)
            if classes is None
            else tp.MulticlassPerceptron(2, classes, dtype=torch.float64)
        )
        if conventions["start"]:
            net.load_state_dict(
                {name: torch.tensor(values, dtype=torch.float64) for name, values in conventions["start"].items()}
            )
        options = {name: conventions[name] for name in ("tie", "order", "lr", "seed")}
        y = torch.tensor(data["labels"]) if classes else 2 * torch.tensor(data["labels"]) - 1
        result = tp.RuleTrainer(max_epochs=6, bias_step=conventions["biasStep"], **options).fit(
            net, torch.tensor(data["points"], dtype=torch.float64), y
        )
        log = tp.MistakeLog.from_json(json.dumps(entries))
        assert len(log) > 0
        assert log.equals(result.log)
        assert entries["verdict"] == result.verdict.name
        for model in ("last", "averaged", "pocket"):
            assert torch.equal(getattr(log, model)().weight, getattr(result.log, model)().weight), (model, conventions)
            assert torch.equal(getattr(log, model)().bias, getattr(result.log, model)().bias), (model, conventions)


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


def test_the_page_replays_a_run_of_two_features_exactly():
    results = [a_run(seed, **options)[0] for seed, options in enumerate(RUNS[:-1])]
    shown = [recorded.recording(result.log, conventions={}).entries for result in results]
    for result, answer in zip(results, run_node(CORE, REPLAY, shown), strict=True):
        log = result.log
        for t, state in enumerate(answer["states"]):
            assert state["weight"] == log.state_at(t).weight.tolist()
            assert state["bias"] == log.state_at(t).bias.tolist()
        assert answer["errors"] == log.errors().tolist()
        assert answer["pocket"] == log.pocket_index()
        assert tp.MistakeLog.from_json(json.dumps(answer["json"])).equals(log)


@pytest.mark.parametrize("classes", [None, 3])
def test_a_run_with_more_features_is_shown_where_the_others_are_at_their_mean(classes):
    result, _ = a_run(3, classes=classes, features=4, count=16)  # a mean of 16 samples on a grid is exact
    log = result.log
    made = recorded.recording(log, ("a", "b", "c", "d"), ("d", 2))
    assert made.feature_names == ("d", "b")
    X = log.space.rows.dense()
    assert made.entries["points"] == X[:, [3, 1]].tolist()
    assert (
        "A run with 4 features, seen in d and b: the boundary is exact where every other feature is at the mean"
        in made.entries["description"]
    )
    (answer,) = run_node(CORE, REPLAY, [made.entries])
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
    with pytest.raises(ValueError, match="it shows a run with more features in two of them"):
        tp.MistakeLog.from_json(json.dumps(answer["json"]))


def test_brackets_of_a_projected_run_are_the_best_so_far():
    result, _ = a_run(3, features=4)
    made = recorded.recording(result.log, features=(1, 2)).entries["projection"]["brackets"]
    X, y = result.log.space.rows.dense(), result.log.y
    lower, upper = -np.inf, np.inf
    for t in range(1, len(result.log) + 1):
        state = result.log.state_at(t)
        now = tp.theory.bracket((state.weight, state.bias), X, y, t=t)
        lower, upper = max(lower, now.lower), min(upper, now.upper)
        assert made[t] == pytest.approx([lower, upper], rel=1e-12)
    assert made[0] == [None, None]


@pytest.mark.parametrize("options", RUNS, ids=str)
def test_the_conventions_of_a_log_are_found_by_running_it_again(options):
    result, _ = a_run(2, **options)
    if "margin" in options:
        assert retrace.retraced(result.log) is None
        return
    trainer, again = retrace.retraced(result.log)
    assert again.log.equals(result.log)
    assert (trainer.lr, trainer.order) == (options.get("lr", 1.0), options.get("order", "given"))
    assert trainer.bias_step == options.get("bias_step", "unit")
    made = contents.content_of(log=result.log, features=(1, 2) if "features" in options else None)["recorded"]
    assert made["verdict"] == result.verdict.name
    assert made["conventions"]["order"] == trainer.order
    assert ("description" in made) is ("features" in options)


def test_a_log_whose_conventions_are_not_found_says_so():
    made = contents.content_of(log=a_run(2, order="shuffled", seed=5, tie="sign")[0].log)["recorded"]
    assert made["description"] == "The log does not say how ties were decided and in which order the samples came."
    assert made["verdict"] is None
    told = contents.content_of(
        log=a_run(2, order="shuffled", seed=5)[0], trainer=tp.RuleTrainer(order="shuffled", seed=5)
    )["recorded"]
    assert "description" not in told
    assert (told["conventions"]["order"], told["conventions"]["seed"], told["verdict"]) == ("shuffled", 5, "BUDGET")


def test_a_log_of_the_page_brings_its_conventions(tmp_path):
    data = {"points": [[0, 0], [0, 1], [1, 0], [1, 1]], "labels": [0, 1, 1, 0], "classes": 2}
    question = {
        "data": data,
        "conventions": {"tie": "update", "biasStep": "unit", "order": "given", "lr": 1, "seed": 0, "start": None},
    }
    (entries,) = run_node(CORE, EXPORT, [question])
    path = tmp_path / "xor.json"
    path.write_text(json.dumps(entries))
    made = contents.content_of(log=path)
    assert made["recorded"]["verdict"] == "CYCLING"
    assert made["recorded"]["cycle"] == [0, 1]
    assert made["recorded"]["conventions"]["max_epochs"] == 6
    assert made["start"]["data"]["points"] == data["points"]
    assert made["start"]["data"]["labels"] == data["labels"]
    for change, message in (
        ({"verdict": "WON"}, "verdict='WON' is unknown"),
        ({"conventions": {"tie": "x"}}, "tie='x' is unknown"),
        ({"cycle": [0, "a"]}, "cycle must be an integer"),
    ):
        path.write_text(json.dumps({**entries, **change}))
        with pytest.raises(ValueError, match=f"xor.json does not say how its log was made: {message}"):
            contents.content_of(log=path)


def test_logs_that_the_page_cannot_replay_are_refused(tmp_path, monkeypatch):
    X, y = tp.data.gate("XOR")
    kernel = tp.RuleTrainer(kernel="poly", degree=2).fit(None, X, y)
    log = a_run(1)[0].log
    with pytest.raises(
        ValueError, match="the page replays linear runs; a run with a kernel or joint features has no line"
    ):
        contents.content_of(log=kernel)
    with pytest.raises(TypeError, match=r"log must be a MistakeLog, such as result.log, found int"):
        contents.content_of(log=3)
    with pytest.raises(ValueError, match="X and y were given beside a log, which has its own data; leave them out"):
        contents.content_of(X, y, log=log)
    with pytest.raises(ValueError, match="the log has 5 classes, and the page shows 4 at most"):
        contents.content_of(log=a_run(1, classes=5)[0])
    with pytest.raises(ValueError, match="the page shows two features, and the data have 3: x1, x2, x3"):
        contents.content_of(log=a_run(1, features=3)[0])
    monkeypatch.setattr(recorded, "MOST_MISTAKES", 3)
    with pytest.raises(
        ValueError, match=f"the log has {len(log)} mistakes, and the page replays 3 at most; record a smaller run"
    ):
        contents.content_of(log=log)
    log.save(tmp_path / "log.npz")
    with pytest.raises(ValueError, match=r"log.npz holds a hash of its data only; give the data it was made on, too"):
        contents.content_of(log=tmp_path / "log.npz")


def test_a_log_in_a_file_is_bound_to_its_data(tmp_path):
    X, y = tp.data.noisy_blobs(20, seed=2)
    names = ["no" if label < 0 else "yes" for label in y.tolist()]
    tp.RuleTrainer(max_epochs=3).fit(tp.Perceptron(2), X.float(), y).log.save(tmp_path / "run.npz")
    made = contents.content_of(X.float(), names, log=str(tmp_path / "run.npz"))
    assert made["start"]["data"]["classNames"] == ["no", "yes"]
    assert made["recorded"]["points"] == X.float().tolist()
    with pytest.raises(ValueError, match="belongs to other data"):
        contents.content_of(X.float() + 1, names, log=tmp_path / "run.npz")


# --- in Python, outside a notebook and in one ---------------------------------------------------------------------


def test_play_writes_the_page_and_opens_it(tmp_path, monkeypatch, capsys):
    opened = []
    monkeypatch.setattr(webbrowser, "open", opened.append)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    X, y = tp.data.gate("OR")
    made = tp.play(X, y)
    (path,) = tmp_path.rglob("play.html")
    assert opened == [path.as_uri()]
    assert capsys.readouterr().out == f"the page: {path}\n"
    assert path.read_text("utf-8") == made.html
    assert content_in(made.html)["start"]["data"]["labels"] == [0, 1, 1, 1]
    assert content_in(made.html)["widget"] is False


def test_play_with_out_opens_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(webbrowser, "open", lambda _: pytest.fail("a browser was opened"))
    made = tp.play(trainer=tp.RuleTrainer(tie="sign"), out=tmp_path / "a.html", texts={"title": "Hier"})
    assert (tmp_path / "a.html").read_text("utf-8") == made.html
    assert content_in(made.html)["start"]["conventions"]["tie"] == "sign"
    assert made.save(tmp_path / "b.html") == tmp_path / "b.html"
    assert {path.name for path in tmp_path.iterdir()} == {"a.html", "b.html"}


@pytest.fixture
def notebook(monkeypatch):
    monkeypatch.setitem(
        sys.modules, "IPython", types.SimpleNamespace(get_ipython=lambda: types.SimpleNamespace(kernel=True))
    )


def test_a_terminal_is_no_notebook(monkeypatch):
    monkeypatch.setitem(sys.modules, "IPython", types.SimpleNamespace(get_ipython=lambda: None))
    assert not show.in_notebook()
    monkeypatch.setitem(sys.modules, "IPython", types.SimpleNamespace(get_ipython=lambda: object()))
    assert not show.in_notebook()


def test_a_notebook_without_anywidget_shows_the_page(notebook, monkeypatch):
    monkeypatch.setattr(show.importlib.util, "find_spec", lambda name: None)
    with pytest.warns(
        UserWarning,
        match=r"the page cannot hand points back; install anywidget with: pip install 'torchperc\[notebook\]'",
    ):
        made = tp.play(height=400)
    frame = made._repr_html_()
    assert markup.unescape(re.search('srcdoc="(.*?)"', frame, re.DOTALL)[1]) == made.html
    assert 'sandbox="allow-scripts allow-downloads"' in frame
    assert "height: 400px" in frame


def test_a_notebook_gets_a_widget_that_hands_points_back(notebook, tmp_path):
    X, y = torch.tensor([[0.0, 0.25], [1.0, 0.5]]), torch.tensor([7, 3], dtype=torch.int32)
    widget = tp.play(X, y, height=500)
    assert isinstance(widget, PlayWidget)
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
    assert content_in(page.make_page())["start"] == {"preset": "AND"}


def test_the_widget_begins_with_its_example(notebook):
    widget = tp.play()
    assert widget.X.tolist() == [[0, 0], [0, 1], [1, 0], [1, 1]]
    assert widget.y.tolist() == [-1, -1, -1, 1]
    widget.set_state({"points": [], "labels": []})
    assert widget.X.shape == (0, 2)
    assert widget.y.shape == (0,)


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
def test_labels_come_back_in_the_coding_of_the_user(y, classes, expected):
    assert coding.Coding.of(np.zeros((2, 2)), y).labels_of(classes).tolist() == expected


def test_the_command_line_needs_no_torch(tmp_path):
    code = "import sys; from torchperc.cli import main; main(['play', '--out', 'p.html']); print(sorted({'torch', 'sklearn', 'pytorch_lightning', 'scipy', 'numba', 'anywidget'} & set(sys.modules)))"
    run = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert run.stdout.splitlines() == ["the page: p.html", "[]"]


# --- the widget in a browser --------------------------------------------------------------------------------------

HOST = """
async ([esm, state]) => {
  const {default: widget} = await import("data:text/javascript," + encodeURIComponent(esm));
  const listeners = {};
  window.saved = [];
  const model = {
    get: (name) => state[name],
    set: (name, value) => { state[name] = value; (listeners["change:" + name] ?? []).forEach((act) => act()); },
    save_changes: () => window.saved.push(structuredClone({points: state.points, labels: state.labels})),
    on: (name, act) => (listeners[name] ??= []).push(act),
    off: (name, act) => (listeners[name] = listeners[name].filter((other) => other !== act)),
  };
  window.model = model;
  window.show = () => {
    document.body.innerHTML = "";
    const el = document.body.appendChild(document.createElement("div"));
    window.close_view?.();
    window.close_view = widget.render({model, el});
  };
  window.show();
}
"""


@pytest.mark.browser
def test_a_point_that_is_put_down_in_the_frame_reaches_the_notebook(tmp_path):
    from chromium import SHOTS, Watch, chromium

    widget = PlayWidget(contents.content_of([[0.0, 0.0], [0.5, 0.5], [-0.5, 0.25]], ["</script>", "b", "b"]))
    state = {
        name: getattr(widget, name) for name in ("frame", "content", "height", "points", "labels", "edited", "sandbox")
    }
    with chromium(tmp_path / "profile") as window:
        browser = window.new_page()
        watch = Watch(browser)
        browser.goto("about:blank")
        browser.evaluate(HOST, [widget._esm, state])
        plane = browser.frame_locator("iframe").locator("#rule-plane")
        plane.click(position={"x": 60, "y": 80})
        browser.wait_for_function("window.saved.length > 0")
        saved = browser.evaluate("window.saved.at(-1)")
        assert saved["points"][:3] == widget.points
        assert len(saved["points"]) == len(saved["labels"]) == 4
        assert all((value * 64).is_integer() for value in map(float, saved["points"][3]))
        browser.screenshot(path=SHOTS / "play-widget.png")
        browser.evaluate("window.show()")  # as when a notebook scrolls the cell away and back
        count = browser.frame_locator("iframe").locator("text=4 points")
        count.wait_for()
        before = browser.evaluate("window.saved.length")
        browser.evaluate("() => { model.set('points', [[0, 0], [1, 1]]); model.set('labels', [0, 1]); }")
        browser.frame_locator("iframe").locator("text=2 points").wait_for()
        assert browser.evaluate("window.saved.length") >= before
        assert browser.evaluate("window.saved.every(({points, labels}) => points.length === labels.length)")
        assert watch.said == []
        browser.close()
