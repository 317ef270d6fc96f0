"""Reports: the same facts on the page and on the card, everything inside the file, nothing of the user's taken as markup."""

import re
from fractions import Fraction
from functools import lru_cache
from html import escape
from html.parser import HTMLParser

import numpy as np
import pytest
import torch

import torchperc as tp
from torchperc import plots
from torchperc.cli import main
from torchperc.lightning.checkpoints import SafeCheckpointIO
from torchperc.model.safetensors import save_safetensors
from torchperc.reports import Report, Section, Table, Text, report, report_page
from torchperc.reports.subject import Subject

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


@lru_cache
def of_gate(gate):
    X, y = tp.data.gate(gate)
    return Report.of_result(tp.RuleTrainer().fit(tp.Perceptron(2), X, y), X, y, title=gate)


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
    for path in fitted.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    return tmp_path


def both(made):
    """What page and card say, in words alone."""
    return Page(made.html()).text, re.sub(r"\\(.)", r"\1", made.card())


def test_and_is_separated_with_a_certificate_and_18_of_51_mistakes():
    made = of_gate("AND")
    for text in both(made):
        assert "SEPARATED after 9 epochs and 18 mistakes" in text
        assert "The run made 18 mistakes; the bound is 51" in text
        assert "an update is at most R = 1.73205 long, and the margin is γ* = 0.242536, which is never above γ" in text
        assert "(R/γ*)² = 51" in text
        assert "The training data are separable: a hyperplane has every sample on its side." in text
        assert "Certificate: a hyperplane" in text
        assert "in exact rational arithmetic: it holds" in text
        assert f"torch {torch.__version__}" in text.replace("| ", "")
    bound = tp.theory.mistake_bound(*tp.data.gate("AND"))
    assert round(bound, 6) == 51


def test_each_margin_has_one_name_and_one_number(unpainted):
    """γ is that of the data, γ* the one of the bound, and the learned boundary has a nearest sample."""
    for text in both(of_gate("AND")):
        assert "The margin of the data is γ = 0.353553: half the width of the widest strip" in text
        assert "the nearest 0.27735 away. The best boundary would be γ = 0.353553 away from its nearest sample" in text
        named = re.findall(r"(γ\*?) = (0\.\d+)", text)
        assert set(named) == {("γ", "0.353553"), ("γ*", "0.242536")}
        assert text.count("0.27735") == 1
    origin = tp.RuleTrainer(bias_step="none").fit(tp.Perceptron(2), [[3.0, 4.0], [-3.0, -4.0]], [1, -1])
    for text in both(report(origin, [[3.0, 4.0], [-3.0, -4.0]], [1, -1])):
        assert "the margin is γ* = γ = 5: (R/γ*)² = 1" in text


def test_axes_say_that_features_are_scaled(monkeypatch):
    seen, real = [], plots.DecisionRegionDisplay.from_model
    noted = lambda *given, names, **look: seen.append(names) or real(*given, names=names, **look)  # noqa: E731
    monkeypatch.setattr(plots.DecisionRegionDisplay, "from_model", noted)
    for scaled in (True, False):
        Report.of_subject("AND", Subject(tp.Perceptron(2), {"training": tp.data.gate("AND")}, scaled=scaled))
    assert seen == [["x1, scaled", "x2, scaled"], ["x1", "x2"]]


def test_the_certificate_of_and_on_the_page_separates():
    verdict = next(section for section in of_gate("AND").sections if section.title == "Verdict and proof")
    table = next(block for block in verdict.blocks if isinstance(block, Table))
    values = {name: Fraction(text.replace("−", "-")) for name, text in table.rows}
    X, y = tp.data.gate("AND")
    for x, sign in zip(X.tolist(), y.tolist(), strict=True):
        score = sum(values[f"x{k + 1}"] * Fraction(x[k]) for k in range(2)) + values["bias"]
        assert sign * score > 0


def test_xor_has_a_quarter_of_every_sample_for_a_witness():
    made = of_gate("XOR")
    for text in both(made):
        assert "CYCLING after 1 epoch and 4 mistakes" in text
        assert "not separable: a point in both convex hulls" in text
        assert "Σ α·y·(x, 1) = 0" in text
        assert "The point in both convex hulls: (1/2, 1/2)" in text
        assert "No bound: there is one for separable data, and these are not" in text
        assert text.count("1/4") == 4
    verdict = next(section for section in made.sections if section.title == "Verdict and proof")
    table = next(block for block in verdict.blocks if isinstance(block, Table))
    sums = [0, 0, 0]
    for _, x1, x2, label, alpha in table.rows:
        sign = 1 if label == "+1" else -1
        sums = [s + Fraction(alpha) * sign * Fraction(x) for s, x in zip(sums, (x1, x2, "1"), strict=True)]
    assert sums == [0, 0, 0]


def test_a_net_that_is_not_linear_says_why_there_is_no_proof(unpainted):
    X, y = tp.data.gate("XOR")
    for text in both(report(tp.MLP(2, (3,), seed=0), X, y)):
        assert text.count("Left out: the model is not linear") == 2
        assert "R = " not in text


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"class_weight": "balanced"}, "here samples were weighted"),
        ({"margin": 0.5}, "(R² + 2·margin/η)/γ*² = 68"),
        ({"bias_step": "none"}, "No bound"),
        ({"select": "voted"}, "the bound is 51"),
    ],
)
def test_the_bound_of_other_runs(options, said, unpainted):
    X, y = tp.data.gate("AND")
    result = tp.RuleTrainer(max_epochs=50, **options).fit(tp.Perceptron(2), X, y)
    for text in both(report(result, X, y, margin=options.get("margin", 0.0))):
        assert said in text


def test_a_run_from_other_weights_has_no_bound(unpainted):
    X, y = tp.data.gate("AND")
    result = tp.RuleTrainer().fit(tp.Perceptron(2, init="normal", seed=0), X, y)
    for text in both(report(result, X, y)):
        assert "this one started from others" in text


def test_many_classes_held_out_data_and_lists(unpainted):
    table = tp.data.load("iris")
    result = tp.RuleTrainer(max_epochs=3).fit(tp.MulticlassPerceptron(4, 3), table.X.float(), table.y)
    X, y = table.X.tolist(), table.y.tolist()
    made = report(result, X, y, held_out={"test": (X[:50], y[:50])}, labels=table.labels, names=table.names)
    for text in both(made):
        assert "weakly separable" in text
        assert "weight of versicolor" in text
        assert "Of 50 test samples" in text
        assert "against" in text


def test_sparse_samples_are_taken():
    from scipy.sparse import csr_array

    X, y = tp.data.gate("AND")
    sparse = csr_array(X.numpy())
    made = report(tp.RuleTrainer().fit(tp.Perceptron(2), sparse, y), sparse, y, title="AND")
    assert made.sections[:-2] == of_gate("AND").sections[:-2]  # the digest after them is of other bytes


def test_what_a_user_named_is_shown_as_text():
    X, y = tp.data.gate("AND")
    bad = "<script>alert(1)</script>"
    result = tp.RuleTrainer().fit(tp.Perceptron(2), X, y)
    options = {
        "title": bad,
        "labels": (bad, "$x_"),
        "names": ('"><img src=x>', "a|b `c` *d*"),
        "config": f"a: {bad}\n```",
    }
    made = report(result, X, y, **options)
    page = Page(made.html())
    assert "script" not in page.tags
    assert page.tags.count("img") == len(page.images) == len([r for r in page.references if r.startswith("data:")])
    for name in (bad, '"><img src=x>', "$x_", "a|b `c` *d*"):
        assert name in page.text
    card = made.card()
    assert f"<pre><code>a: {escape(bad)}\n```</code></pre>" in card
    assert "<script>" not in card
    assert "<img" not in card
    assert r"a\|b \`c\` \*d\*" in card


def test_what_a_terminal_would_act_on_is_written_out():
    X, y = tp.data.gate("AND")
    result = tp.RuleTrainer().fit(tp.Perceptron(2), X, y)
    bad = "a\x1b]0;title\x07\x9b2J\u202e"
    made = report(result, X, y, title=bad, labels=(bad, "b"), names=(bad, "c"), config=f"# {bad}")
    for text in (made.html(), made.card()):
        assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e]", text)
        assert "x1b]0;title" in text.replace("\\]", "]")
        assert "u202e" in text


def test_the_page_refers_to_nothing_outside_itself(fitted):
    from torchperc.cli.report import of_folder

    text = of_folder(fitted).html()
    page = Page(text)
    assert page.references
    assert all(reference.startswith(("#", "data:image/png;base64,")) for reference in page.references)
    assert not {"script", "link", "iframe", "object", "base", "form"} & set(page.tags)
    assert not re.search(r"https?:|url\(|@import", text)
    for image in page.images:
        assert len(image["alt"]) > 10
    assert page.tags.count("figcaption") == page.tags.count("figure") == len(page.images) >= 5


def test_the_command_on_a_run_of_fit(fitted, tmp_path, call, unpainted):
    code, out, err = call("report", fitted, "--out", tmp_path / "a.html", "--card", tmp_path / "CARD.md")
    assert (code, err) == (0, "")
    assert "a.html" in out
    page = Page((tmp_path / "a.html").read_text()).text
    card = re.sub(r"\\(.)", r"\1", (tmp_path / "CARD.md").read_text())
    for text in (page, card):
        assert "SEPARATED after 9 epochs and 18 mistakes" in text
        assert "the bound is 51" in text
        assert "class_path: torchperc.lightning.LitRule" in text
        assert "torchperc fit --config" in text
    assert call("report", fitted)[0] == 0
    assert (fitted / "report.html").read_bytes() == (tmp_path / "a.html").read_bytes()
    (fitted / "report.html").unlink()


def test_the_restored_result_is_that_of_the_run(fitted):
    from torchperc.cli.configured import read
    from torchperc.reports import runs

    module, data = read(fitted / "config.yaml", trust=True)
    assert runs.restore(module, data, fitted) == ""
    X, y = tp.data.gate("AND")
    result = tp.RuleTrainer(max_epochs=30).fit(tp.Perceptron(2), X, y)
    assert module.result.verdict is result.verdict
    assert torch.equal(module.result.log.sample, result.log.sample)
    assert torch.equal(module.result.model.weight, result.model.weight)


@pytest.mark.slow
def test_a_folder_of_runs_gets_an_overview(tmp_path, fitted, call, unpainted):
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        for path in fitted.iterdir():
            (tmp_path / name / path.name).write_bytes(path.read_bytes())
    (tmp_path / "other").mkdir()  # which is no run, whatever it holds
    (tmp_path / "other" / "events.out.tfevents.1").write_bytes(b"")
    code, _, err = call("report", tmp_path, "--card", tmp_path / "CARD.md")
    assert (code, err) == (0, "")
    text = (tmp_path / "CARD.md").read_text()
    assert "2 runs: one, two." in text
    assert "The training error by epoch: one from 50 % in epoch 1 to 0 % in epoch 9; two from" in text
    assert text.count("the bound is 51") == 2
    assert len(Page((tmp_path / "report.html").read_text()).images) > 8
    assert call("report", tmp_path / "other")[0] == 2


def _cut(folder):
    path = folder / "last.ckpt"
    path.write_bytes(path.read_bytes()[:-100])


def _other_data(folder):
    path = folder / "config.yaml"
    path.write_text(path.read_text().replace("source: AND", "source: OR"))


def _other_net(folder):
    path = folder / "config.yaml"
    path.write_text(path.read_text().replace("source: AND", "source: parity-3"))


@pytest.mark.parametrize(
    ("break_it", "said"),
    [
        (_cut, "last.ckpt is cut short"),
        (lambda folder: (folder / "last.ckpt").unlink(), "last.ckpt"),
        (lambda folder: (folder / "config.yaml").write_text("model: ["), "config.yaml is not a YAML file"),
        (lambda folder: (folder / "config.yaml").write_bytes(b"\xff\xfe\x00"), "config.yaml is not a YAML file"),
        (lambda folder: (folder / "config.yaml").write_text("nonsense: 1"), "nonsense"),
        (_other_data, "is not the data the checkpoint was made on"),
        (_other_net, "of another net"),
    ],
)
def test_a_broken_run_is_one_line_and_no_page(copied, break_it, said, call):
    break_it(copied)
    before = sorted(path.name for path in copied.iterdir())
    code, out, err = call("report", copied, "--card", copied / "CARD.md")
    assert (code, out) == (2, "")
    assert said in err
    assert err.count("\n") == 1
    assert sorted(path.name for path in copied.iterdir()) == before


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["nowhere"], "no such folder: nowhere"),
        (["."], "is not a run"),
        ([], "RUN"),
        ([".", "--out", "no/where.html"], "--out no/where.html"),
        ([".", "--card", "."], "--card ."),
    ],
)
def test_errors_of_the_command(words, said, tmp_path, monkeypatch, call):
    monkeypatch.chdir(tmp_path)
    code, out, err = call("report", *words)
    assert (code, out) == (2, "")
    assert said in err
    assert err.count("\n") == 1
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("options", "error", "said"),
    [
        ({"labels": ("a",)}, ValueError, "must name 2 classes"),
        ({"names": ("a",)}, ValueError, "must name 2 features"),
        ({"margin": -1}, ValueError, "margin"),
        ({"held_out": {"test": ([[0.0, float("nan")]], [1])}}, ValueError, "nan"),
    ],
)
def test_bad_options(options, error, said):
    X, y = tp.data.gate("AND")
    with pytest.raises(error, match=said):
        report(tp.Perceptron(2), X, y, **options)


def test_results_and_nets_are_kept_apart():
    with pytest.raises(TypeError, match="result must be a RuleResult, found Perceptron"):
        Report.of_result(tp.Perceptron(2), *tp.data.gate("AND"))


def test_pages_of_one_s_own():
    text = report_page("mine", [Section("one", [Text("a & b"), Table(("n",), (("−1",), ("2",)))])], "lead")
    page = Page(text)
    assert page.text.startswith("mine mine lead one one a & b n −1 2")
    assert 'class="number"' in text


def test_a_large_set_is_left_to_the_separable_command(unpainted):
    X = torch.zeros(400_001, 1)
    X[:2500] = 1
    y = torch.where(X[:, 0] > 0, 1, -1)
    for text in both(report(tp.Perceptron(1), X, y)):
        assert "Left out: 400,001 samples with 1 feature are beyond the budget of a proof" in text
        assert "No picture of the boundary: X has 1 feature" in text


def test_samples_beyond_what_a_picture_shows_are_said_to_be_left_out(unpainted):
    X, y = np.random.default_rng(0).normal(size=(4100, 2)), np.tile([-1, 1], 2050)
    for text in both(report(tp.Perceptron(2), X, y)):
        assert "1,367 of 4,100 samples are drawn" in text


def test_a_run_that_was_broken_off_says_so(copied, unpainted):
    from torchperc.cli.report import of_folder

    files = SafeCheckpointIO()
    checkpoint = files.load_checkpoint(copied / "last.ckpt")
    checkpoint["rule"]["verdict"] = None
    files.save_checkpoint(checkpoint, copied / "last.ckpt")
    assert of_folder(copied).lead.startswith(
        "The run was interrupted after 9 epochs and 18 mistakes; training error 0 %"
    )


@pytest.mark.slow
def test_the_weights_that_a_gradient_run_chose_in_the_end_are_reported(tmp_path, unpainted, call):
    from torchperc.cli.report import of_folder

    text = CONFIG.replace("LitRule", "LitClassifier") % ("AND", tmp_path / "run")
    (tmp_path / "gradient.yaml").write_text(text)
    assert call("fit", "--config", tmp_path / "gradient.yaml")[0] == 0
    net = tp.Perceptron(2)
    with torch.no_grad():
        net.weight.fill_(7.25)
    save_safetensors(net, tmp_path / "run/weights.safetensors")
    assert "| x1 | 7.25 |" in of_folder(tmp_path / "run").card()
    (tmp_path / "run/weights.safetensors").unlink()
    text = of_folder(tmp_path / "run").card()
    assert "The run was interrupted after 30 epochs" in text
    assert "7.25" not in text


def test_a_proof_that_the_run_made_is_not_made_again(unpainted, monkeypatch):
    from torchperc import theory

    X, y = tp.data.gate("XOR")
    result = tp.RuleTrainer(prove=True).fit(tp.Perceptron(2), X, y)
    monkeypatch.setattr(theory, "separability", lambda *_, **__: pytest.fail("proved twice"))
    for text in both(report(result, X, y)):
        assert "Certificate: Σ α·y·(x, 1) = 0 over the rows below" in text
        assert "it holds" in text
