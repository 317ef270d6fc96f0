"""The scripts about the five notes: every figure they print, and that each known error of a note is reported."""

import contextlib
import functools
import importlib
import io
from fractions import Fraction

import numpy as np
import oracles
import pytest

AND = [[0, 0], [0, 1], [1, 0], [1, 1]], [-1, -1, -1, 1]
NEAR = [[4], [6]], [-1, 1]

# a note's verdicts in the order of the report: + agrees, - wrong, ? left open, ~ mangled
VERDICTS = {
    "a": "+---+??+-?-?+--+",
    "b": "+++??-+---+?--",
    "c": "--~++-+---??+-?+?",
    "d": "?-++?+?",
    "e": "--?+++--+++?---+----??+---+--",
}
SIGNS = {"agrees": "+", "wrong": "-", "left open": "?", "mangled": "~"}

# the errors of the notes that were known beforehand, where they are reported, and what the report must say
KNOWN = {
    "A, the trace of AND": ("a", "first_epoch", "updates at rows [1, 4]"),
    "A, the labels of AND": ("a", "labels_of_the_table", "never 0"),
    "A, the end of AND": ("a", "and_by_rule", "(−4, 3, 2) after 18 mistakes; pass 9 is clean"),
    "A, AND with sign(0) = +1": ("a", "score_of_zero", "(−3, 2, 1) after 11 mistakes, pass 6 being clean"),
    "A, the bound": ("a", "mistake_bound", "Right: R²·‖w‖²/γ²"),
    "A, the kink": ("a", "gradient_at_the_kink", "0 by relu, 1 by clamp, 0.5 by maximum"),
    "C, one has to try": ("c", "separable_or_not", "α = (1/4, 1/4, 1/4, 1/4)"),
    "E, the strict rule": ("e", "strict_rule", "nothing will ever move"),
    "E, the sign turned twice": ("e", "sign_of_the_sample_update", "w ← w + η·δ·x, which is descent"),
    "E, the sign of the gradient": ("e", "sign_of_the_batch_update", "That climbs"),
}


@functools.cache
def report(note):
    """A note's findings and what was printed; each script is run once."""
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        findings = importlib.import_module(f"note_{note}").main()
    return findings, printed.getvalue()


def figures(note, name):
    return report(note)[0][name].figures


@pytest.mark.parametrize("note", VERDICTS)
def test_every_statement_has_its_verdict(note):
    findings, printed = report(note)
    assert "".join(SIGNS[finding.verdict] for finding in findings.values()) == VERDICTS[note]
    counts = [f"{VERDICTS[note].count(sign)} {verdict}" for verdict, sign in SIGNS.items()]
    assert printed.splitlines()[-1] == f"{len(findings)} checks: {', '.join(counts)}"
    for finding in findings.values():
        assert f"\n{finding.verdict.upper():<9}  {finding.about}\n     note  {finding.says[:20]}" in printed
        assert finding.figures
    assert max(map(len, printed.splitlines())) <= 120
    assert "nan" not in printed.replace("(nan, 0): 0/0", "")


@pytest.mark.parametrize("error", KNOWN)
def test_the_known_errors_are_reported(error):
    note, name, text = KNOWN[error]
    assert text in report(note)[0][name].found
    assert " ".join(text.split()[:3]) in " ".join(report(note)[1].split())


near = pytest.approx
FIGURES = {  # what checks found, by note and name
    "a first_epoch": {"weights": ((-1, 0, 0), (-1, 0, 0), (-1, 0, 0), (0, 1, 1)), "scores": (0, -1, -1, -1), "mistakes": [1, 4], "own scores of rows 3 and 4": [0, 2]},
    "a labels_of_the_table": {"weights": (1, 1, 1), "updates": [4, 3, 3], "errors": 3},
    "a goal_of_the_example": {"met by zero": True, "errors of zero": 3},
    "a mistake_bound": {"mistakes": 18, "printed": near(3 * 17**0.5), "printed, w/10": near(8.7), "right": near(51), "right for (-4, 3, 2)": near(3 * 29), "without x0": near(16)},
    "b normal_of_the_figure": {"length": near(0.17**0.5)},
    "b side_of_the_bias": {"offsets": near({-1.0: 17**-0.5 * 10, 1.0: -(17**-0.5) * 10})},
    "b many_hyperplanes": {"margins": near([13**-0.5, 13**-0.5, 8**-0.5])},
    "b margin_as_a_distance": {"printed": 1, "distance": near(13**-0.5)},
    "b theorem_as_printed": {"length": 29, "printed": near(3), "right": near(87), "mistakes": 18},
    "b chain_of_the_proof": {"updates": 18, "holds": True, "holds for length 2": False},
    "c separable_or_not": {"kinds": ["separable", "not separable"], "verified": [True, True], "alpha": (Fraction(1, 4),) * 4, "point": (Fraction(1, 2),) * 2},
    "d error_at_the_start": {"errors": {"sign(0) = +1": 0.75, "sign(0) = 0": 1, "y·s < 0": 0}},
    "d table_of_cases": {"updates": 0, "scores": [-3, -2, -1, 0]},
    "d any_misclassified_point": {"bound": near(51)},
    "e index_of_the_stop": {"possible": False},
}  # fmt: skip


@pytest.mark.parametrize("name", FIGURES)
def test_figures_are_those_of_pencil_and_paper(name):
    found = figures(*name.split())
    assert {key: found[key] for key in FIGURES[name]} == FIGURES[name]


def test_a_and_b_against_the_plain_loop():
    assert "found 0, 1" in figures("a", "labels_of_the_table")["refusal"]
    plain = oracles.perceptron(*AND, start=((100, (0, 0)),), passes=1000)
    assert figures("a", "bound_from_another_start")["mistakes"] == len(plain.entries) == 200
    made = [len(oracles.perceptron(*NEAR, tie=tie, passes=100).entries) for tie in ("update", "sign")]
    bias = figures("b", "theorem_and_the_bias")
    for data, plane, right, mistakes in (("AND", 16, 51, [18, 11]), ("4 and 6", 36, 962, made)):
        assert bias[data] == {**bias[data], "plane": near(plane), "right": near(right), "mistakes": mistakes}
    counted = figures("b", "mistakes_and_iterations")
    assert counted["passes"] - 1 <= counted["mistakes"] <= counted["bound"] < counted["steps"]


def test_c_separability_and_held_out_data():
    proofs = figures("c", "proofs_for_inseparable_data")
    assert proofs["mistakes"] <= proofs["bound"] < proofs["steps"] == 2000
    assert proofs["longest"] < 20
    link = figures("c", "link_to_generalisation")
    assert abs(link["difference"]) < 3 * link["spread"] < 0.05
    sets = figures("c", "three_data_sets")
    assert sets["kept"] == sets["best"] < sets["last"]
    chosen = figures("c", "error_of_the_chosen")
    assert chosen["best"] < 0.45 < chosen["first"] < 0.55
    errors = figures("c", "stability")["errors"]
    assert (errors["before"], errors["after"] > 9000) == (1, True)
    assert max(errors["averaged"], errors["shuffled"], errors["shuffled, averaged"]) < 100


def test_d_any_misclassified_point():
    cases, found = figures("d", "table_of_cases"), figures("d", "any_misclassified_point")
    assert cases["verdict"] != "SEPARATED"
    assert "nothing will ever move" in cases["warning"]
    for tie, fewest, most, ends in (
        ("sign", 6, 15, [(-3, 1, 2), (-3, 2, 1), (-2, 1, 1)]),
        ("update", 13, 22, [(-4, 2, 3), (-4, 3, 2), (-3, 2, 2)]),
    ):
        assert found[tie] == {**found[tie], "fewest": fewest, "most": most, "ends": ends}
        low, high = found[tie]["seen"]
        assert fewest <= low <= high <= most


def test_e_weight_from_age_and_height():
    people = np.array([[20, 178], [25, 165], [31, 182], [38, 170], [44, 160], [52, 175], [60, 168], [67, 172]])
    weights = np.array([70.0, 59, 79, 66, 61, 76, 70, 77])
    best, (squares,), *_ = np.linalg.lstsq(np.c_[people, np.ones(8)], weights)
    plane = figures("e", "plane_for_weight")
    assert plane == {"plane": pytest.approx(best), "same": True, "rmse": pytest.approx((squares / 8) ** 0.5)}
    batch = figures("e", "batch_descent_for_weight")
    z = (people - people.min(0)) / np.ptp(people, 0)
    t = (weights - 59) / 20
    rows, limit = np.c_[z, np.ones(8)], 2 / np.linalg.eigvalsh(np.c_[z, np.ones(8)].T @ np.c_[z, np.ones(8)] / 8)[-1]
    step = z[1] - z[0]
    w = (t[1] - t[0]) * step / (step @ step)
    w, losses = np.append(w, t[0] - w @ z[0]), []
    while len(losses) < 2 or abs(losses[-1] - losses[-2]) >= 1e-10:
        losses.append(((rows @ w - t) ** 2).mean() / 2)
        w = w - limit / 2 * rows.T @ (rows @ w - t) / 8
    assert (batch["steps"], batch["verdict"]) == (len(losses), "CONVERGED")
    slopes = 20 * w[:2] / np.ptp(people, 0)
    assert batch["plane"] == pytest.approx([*slopes, 20 * w[2] + 59 - slopes @ people.min(0)])
    assert batch["apart"] == pytest.approx(np.abs(np.c_[people, np.ones(8)] @ (batch["plane"] - best)).max(), rel=1e-3)
    assert batch["ways apart"] < 1e-10
    excess = figures("e", "single_samples_for_weight")["excess"]
    assert 0 < excess[0.05] < 0.1 < excess[0.5]
    rate = figures("e", "limit_of_the_rate_for_weight")
    assert rate["limit"] == pytest.approx(limit)
    assert rate["least"] == pytest.approx(squares / 16 / 400)
    assert rate["losses"][0.99] == pytest.approx(rate["least"])
    assert rate["losses"][1.01] > 1e40
    assert rate["limit of raw features"] < 1e-4
    assert "the loss will diverge" in rate["warning"]


def test_e_descent():
    cycle = figures("e", "sample_updates_converge")
    assert 0.1 < cycle["nearest"] < cycle["furthest"] < 0.2
    excess = figures("e", "batch_or_sample")["excess"]
    assert excess[256] > excess[32] > excess[1] > 0
    stop = figures("e", "small_change_of_the_loss")
    assert stop["least"] == pytest.approx(0.125)
    assert stop["ends"][1e-3] == (1, pytest.approx(0.49975, abs=1e-6))
    assert stop["ends"][1e-4] == (684, pytest.approx(0.395584, abs=1e-6))
    rate = figures("e", "typical_rate")
    moments = [[0.5, 0.25, 0.5], [0.25, 0.5, 0.5], [0.5, 0.5, 1]]  # of (x₁, x₂, 1) over AND's inputs
    assert rate["limit"] == pytest.approx(2 / np.linalg.eigvalsh(moments)[-1])
    assert rate["losses"][0.99] == pytest.approx(0.125)
    assert rate["losses"][1.01] > 1e10
    assert rate["steps"][0] > 100 * rate["steps"][1]
    assert rate["limit of raw features"] < 1e-3
