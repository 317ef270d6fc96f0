"""Reports: what the page says, everything inside the file, nothing of the user's taken as markup."""

import re
import shutil
from functools import lru_cache
from html.parser import HTMLParser

import pytest
import torch

import torchperc as tp
from torchperc import plots
from torchperc.cli import main
from torchperc.lightning.checkpoints import SafeCheckpointIO
from torchperc.model.model_file import save_safetensors
from torchperc.reports import report

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*LeafSpec.*"),
    pytest.mark.filterwarnings("ignore:Total length of `list` across ranks is zero"),
    pytest.mark.filterwarnings("ignore:LightningCLI's args parameter"),
    pytest.mark.filterwarnings("ignore:You defined a `validation_step`"),
    pytest.mark.filterwarnings("ignore::jsonargparse._deprecated.JsonargparseDeprecationWarning"),
]
CONFIG = """
model:
  class_path: torchperc.lightning.LitRule
  init_args:
    net: {class_path: torchperc.Perceptron}
data:
  source: %s
out: %s
trainer: {max_epochs: 30, accelerator: cpu, enable_progress_bar: false}
"""


class Page(HTMLParser):
    """Text, tags and references of a page."""

    def __init__(self, text):
        super().__init__()
        self.words, self.tags, self.references, self.images = [], [], [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.references += [value for name, value in attrs if name in ("src", "href", "srcset", "action", "data")]
        if tag == "img":
            self.images.append(dict(attrs))

    def handle_data(self, data):
        if self.lasttag != "style":
            self.words.append(data)

    @property
    def text(self):
        return " ".join(" ".join(self.words).split())


def words(made):
    """What a report says."""
    return Page(made.html()).text


@lru_cache
def of_gate(gate):
    X, y = tp.data.gate(gate)
    return report(tp.RuleTrainer().fit(tp.Perceptron(2), X, y), X, y, title=gate)


@pytest.fixture(scope="module")
def fitted(tmp_path_factory):
    """The folder of an AND run by `torchperc fit`."""
    folder = tmp_path_factory.mktemp("fitted") / "and"
    config = folder.with_suffix(".yaml")
    config.write_text(CONFIG % ("AND", folder))
    main(["fit", "--config", str(config)])
    return folder


@pytest.fixture
def copied(fitted, tmp_path):
    return shutil.copytree(fitted, tmp_path / "copy")


@pytest.fixture
def reported(call, tmp_path):
    """Reports a folder by the command and returns the page."""

    def page(folder):
        code, out, err = call("report", folder, "--out", tmp_path / "a.html")
        assert (code, err) == (0, "")
        assert "a.html" in out
        return (tmp_path / "a.html").read_text()

    return page


def test_and_is_separated_with_a_certificate_and_18_of_51_mistakes():
    text = words(of_gate("AND"))
    for said in (
        "SEPARATED after 9 epochs and 18 mistakes",
        "The run made 18 mistakes; the bound is 51",
        "mistakes from 2 in epoch 1 to 18 in epoch 9; bound 51",
        "constant feature, whose weight is the bias), and the margin is γ* = 0.242536: (R/γ*)² = 51",
        "The training data are separable",
        "27735 away",  # of the nearest sample from the learned boundary
        "in exact rational arithmetic: it holds",
        f"torch {torch.__version__}",
    ):
        assert said in text
    assert round(tp.theory.mistake_bound(*tp.data.gate("AND")), 6) == 51


@pytest.mark.parametrize(("scale", "names"), [("standard", ["u, scaled", "v, scaled"]), ("none", ["u", "v"])])
def test_axes_say_that_features_are_scaled(tmp_path, monkeypatch, unpainted, scale, names):
    seen, real = [], plots.DecisionRegionDisplay.from_model
    noted = lambda *given, names, **look: seen.append(names) or real(*given, names=names, **look)  # noqa: E731
    monkeypatch.setattr(plots.DecisionRegionDisplay, "from_model", noted)
    X = torch.randn(30, 2)
    table = tp.data.Dataset.of(X, X[:, 0] > 0, names=("u", "v"))
    tp.learn(table, folder=tmp_path / "run", scale=scale, max_epochs=2)
    assert seen == [names]


def test_xor_is_not_separable_by_proof():
    text = words(of_gate("XOR"))
    assert "CYCLING after 1 epoch and 4 mistakes" in text
    assert "not separable: a point in both convex hulls" in text
    assert "Σ α·y·(x, 1) = 0" in text
    assert "No bound: there is one for separable data, and these are not" in text


def test_the_page_opens_with_the_result_and_ends_with_the_proofs(unpainted):
    table = tp.data.load("iris")
    X, y, held = table.X.float(), table.y, slice(0, None, 3)
    result = tp.RuleTrainer(max_epochs=20).fit(tp.MulticlassPerceptron(4, 3), X, y)
    made = report(
        result,
        X,
        y,
        held_out={"validation": (X, y), "test": (X[held], y[held])},
        labels=table.labels,
        names=table.names,
    )
    wrong = int((result.model.predict(X[held]) != y[held]).sum())
    assert re.match(rf"Test error \S+ % \({wrong} of 50\); baseline 66 % \(33 of 50\)\.", made.lead)
    assert [section.title for section in made.sections[-2:]] == ["Verdict and proof", "Mistakes against the bound"]
    text = words(made)
    assert "weight of versicolor" in text
    assert re.search(r"test setosa \d+ \d+ \d+", text)  # the row of a confusion table


def test_a_net_that_is_not_linear_says_why_there_is_no_proof(unpainted):
    X, y = tp.data.gate("XOR")
    text = words(report(tp.MLP(2, (3,), seed=0), X, y))
    assert text.count("Left out: the model is not linear") == 1
    assert "R = " not in text


@pytest.mark.parametrize(
    ("options", "net", "said"),
    [
        ({"class_weight": "balanced"}, {}, "or samples were weighted"),
        ({"margin": 0.5}, {}, "(R² + 2·margin/η)/γ*² = 68"),
        ({"margin": 0.5, "lr": 0.1}, {}, "(R² + 2·margin/η)/γ*² = 221"),
        ({"bias_step": "none"}, {}, "No bound"),
        ({"select": "voted"}, {}, "the bound is 51"),
        ({}, {"init": "normal", "seed": 0}, "This run started from other weights"),
    ],
)
def test_the_bound_of_other_runs(options, net, said, unpainted):
    X, y = tp.data.gate("AND")
    result = tp.RuleTrainer(max_epochs=50, **options).fit(tp.Perceptron(2, **net), X, y)
    assert said in words(report(result, X, y))


def test_sparse_samples_are_taken():
    from scipy.sparse import csr_array

    X, y = tp.data.gate("AND")
    sparse = csr_array(X.numpy())
    assert report(tp.RuleTrainer().fit(tp.Perceptron(2), sparse, y), sparse, y, title="AND") == of_gate("AND")


def test_what_a_user_named_is_shown_as_text():
    X, y = tp.data.gate("AND")
    bad = "<script>alert(1)</script>"
    names = ('"><img src=x>', "a|b `c` *d*")
    page = Page(report(tp.Perceptron(2), X, y, title=bad, labels=(bad, "$x_"), names=names, config=bad).html())
    assert "script" not in page.tags
    assert page.tags.count("img") == len(page.images) == len([r for r in page.references if r.startswith("data:")])
    for name in (bad, "$x_", *names):
        assert name in page.text


def test_the_page_of_a_run_of_fit_refers_to_nothing_outside_itself(fitted, reported, call):
    text = reported(fitted)
    page = Page(text)
    assert page.references
    assert all(reference.startswith(("#", "data:image/png;base64,")) for reference in page.references)
    assert not {"script", "link", "iframe", "object", "base", "form"} & set(page.tags)
    assert not re.search(r"https?:|url\(|@import", text)
    assert all(len(image["alt"]) > 10 for image in page.images)
    assert page.tags.count("figcaption") == page.tags.count("figure") == len(page.images) >= 4
    said = "18 mistakes", "the bound is 51", "class_path: torchperc.lightning.LitRule", "torchperc fit --config"
    assert [words for words in said if words not in page.text] == []
    assert call("report", fitted)[0] == 0
    assert (fitted / "report.html").read_text() == text
    (fitted / "report.html").unlink()


@pytest.mark.parametrize(
    ("name", "change", "said"),
    [
        ("last.ckpt", lambda content: content[:-100], "last.ckpt is cut short"),
        ("last.ckpt", None, "last.ckpt"),
        ("config.yaml", lambda content: b"model: [", "config.yaml"),
        ("config.yaml", lambda content: b"\xff\xfe\x00", "config.yaml"),
        ("config.yaml", lambda content: b"nonsense: 1", "nonsense"),
        ("config.yaml", lambda content: content.replace(b": AND", b": OR"), "not the data the checkpoint was made on"),
        ("config.yaml", lambda content: content.replace(b": AND", b": parity-3"), "of another net"),
    ],
)
def test_a_broken_run_is_one_line_and_no_page(copied, name, change, said, refused):
    path = copied / name
    path.unlink() if change is None else path.write_bytes(change(path.read_bytes()))
    before = sorted(path.name for path in copied.iterdir())
    assert said in refused("report", copied)
    assert sorted(path.name for path in copied.iterdir()) == before


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["nowhere"], "no such folder: nowhere"),
        (["."], "is not a run"),
        ([], "RUN"),
        ([".", "--out", "no/where.html"], "--out no/where.html"),
    ],
)
def test_errors_of_the_command(words, said, tmp_path, monkeypatch, refused):
    monkeypatch.chdir(tmp_path)
    assert said in refused("report", *words)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"labels": ("a",)}, "must name 2 classes"),
        ({"names": ("a",)}, "must name 2 features"),
        ({"held_out": {"test": ([[0.0, float("nan")]], [1])}}, "nan"),
    ],
)
def test_bad_options(options, said):
    with pytest.raises(ValueError, match=said):
        report(tp.Perceptron(2), *tp.data.gate("AND"), **options)


def test_a_large_set_is_left_to_the_separable_command(unpainted):
    alone, drawn = "No picture of the boundary: X has 1 feature", "1,981 of 200,001 samples are drawn"
    for N, d, said in ((400_001, 1, alone), (200_001, 2, drawn)):
        X = torch.zeros(N, d)
        X[:2500] = 1
        text = words(report(tp.Perceptron(d), X, torch.where(X[:, 0] > 0, 1, -1)))
        assert f"Left out: {N:,} samples with {d} feature" in text
        assert "beyond the budget of a proof" in text
        assert said in text


def test_a_run_that_was_broken_off_says_so(copied, reported, unpainted):
    files = SafeCheckpointIO()
    checkpoint = files.load_checkpoint(copied / "last.ckpt")
    checkpoint["rule"]["verdict"] = None
    files.save_checkpoint(checkpoint, copied / "last.ckpt")
    lead = (
        "Training error 0 % (0 of 4); baseline 25 % (1 of 4). The run was interrupted after 9 epochs and 18 mistakes."
    )
    assert lead in Page(reported(copied)).text


@pytest.mark.slow
def test_the_weights_that_a_gradient_run_chose_in_the_end_are_reported(tmp_path, unpainted, call, reported):
    run = tmp_path / "run"
    (tmp_path / "gradient.yaml").write_text(CONFIG.replace("LitRule", "LitClassifier") % ("AND", run))
    assert call("fit", "--config", tmp_path / "gradient.yaml")[0] == 0
    net = tp.Perceptron(2)
    torch.nn.init.constant_(net.weight, 7.25)
    save_safetensors(net, run / "weights.safetensors")
    assert "x1 7.25" in Page(reported(run)).text
    (run / "weights.safetensors").unlink()
    text = Page(reported(run)).text
    assert "The run was interrupted after 30 epochs" in text
    assert "7.25" not in text


def test_a_proof_that_the_run_made_is_not_made_again(unpainted, monkeypatch):
    from torchperc import theory

    X, y = tp.data.gate("XOR")
    result = tp.RuleTrainer(prove=True).fit(tp.Perceptron(2), X, y)
    monkeypatch.setattr(theory, "separability", lambda *_, **__: pytest.fail("proved twice"))
    text = words(report(result, X, y))
    assert "Σ α·y·(x, 1) = 0" in text
    assert "it holds" in text
