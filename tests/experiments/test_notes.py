"""The scripts about the five notes: every figure they print, and that each known error of a note is reported."""

import ast
import contextlib
import functools
import importlib
import io
import runpy
import sys
from fractions import Fraction
from pathlib import Path

import numpy as np
import oracles
import pytest
import torch

NOTES = Path(__file__).parents[2] / "experiments" / "notes"
AND = [[0, 0], [0, 1], [1, 0], [1, 1]], [-1, -1, -1, 1]
NEAR = [[4], [6]], [-1, 1]

# a note's checks in the order of the report, by verdict: + agrees, - wrong, ? left open, ~ mangled
VERDICTS = {
    "a": {
        "threshold_as_a_weight": "+", "labels_of_the_table": "-", "goal_of_the_example": "-", "first_epoch": "-",
        "and_by_rule": "+", "score_of_zero": "?", "what_the_weights_depend_on": "?", "xor": "+", "mistake_bound": "-",
        "bound_from_another_start": "?", "loss_of_a_mistake": "-", "gradient_at_the_kink": "?",
        "stochastic_descent": "+", "targets_of_the_squared_loss": "-", "least_squares_and_errors": "-",
        "squared_loss_on_the_right_side": "+",
    },
    "b": {
        "normal_of_the_figure": "+", "side_of_the_bias": "+", "many_hyperplanes": "+", "margin_as_a_distance": "?",
        "update_by_the_prediction": "?", "score_before_an_update": "-", "gain_of_an_update": "+",
        "theorem_as_printed": "-", "theorem_and_the_bias": "-", "mistakes_and_iterations": "-",
        "chain_of_the_proof": "+", "adding_a_feature": "?", "votes": "-", "averages": "-",
    },
    "c": {
        "roles_of_the_labels": "-", "zero_one_loss": "-", "squared_error": "~", "costs": "+", "and_by_rule": "+",
        "one_correction": "-", "gain_of_an_update": "+", "separable_or_not": "-", "proofs_for_inseparable_data": "-",
        "link_to_generalisation": "-", "three_data_sets": "?", "error_of_the_chosen": "?", "stability": "+",
        "vote_always_better": "-", "averaged_algorithm": "?", "vote_and_average": "+", "many_classes": "?",
    },
    "d": {
        "error_at_the_start": "?", "table_of_cases": "-", "any_misclassified_point": "+", "one_update_may_not_do": "+",
        "error_on_the_way": "?", "inseparable_data": "+", "pocket": "?",
    },
    "e": {
        "strict_rule": "-", "right_at_zero": "-", "bias_step": "?", "online_learning": "+", "xor_by_layers": "+",
        "homogeneous_coordinates": "+", "start_from_two_samples": "-", "start_of_the_algorithm": "-",
        "plane_for_weight": "+", "batch_descent_for_weight": "+", "single_samples_for_weight": "+",
        "limit_of_the_rate_for_weight": "?",
        "factor_of_the_gradient": "-", "sign_of_the_derivative": "-", "gradient_at_the_optimum": "-",
        "sign_of_the_sample_update": "+", "sign_of_the_batch_update": "-", "sample_updates_converge": "-",
        "batch_or_sample": "-", "index_of_the_stop": "-", "small_change_of_the_loss": "?", "typical_rate": "?",
        "features_of_like_range": "+", "way_back": "-", "convexity": "-", "way_out_of_a_minimum": "-",
        "derivative_of_the_sigmoid": "+", "decision_without_a_derivative": "-", "decision_at_one_half": "-",
    },
}  # fmt: skip
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
    with on_the_path(), contextlib.redirect_stdout(io.StringIO()) as printed:
        findings = importlib.import_module(f"note_{note}").main()
    return findings, printed.getvalue()


@contextlib.contextmanager
def on_the_path():
    sys.path.insert(0, str(NOTES))  # as it is when a script is run, so that it finds _findings
    try:
        yield
    finally:
        sys.path.remove(str(NOTES))


def figures(note, name):
    return report(note)[0][name].figures


@pytest.mark.parametrize("note", VERDICTS)
def test_every_statement_has_its_verdict(note):
    findings, printed = report(note)
    assert {name: SIGNS[finding.verdict] for name, finding in findings.items()} == VERDICTS[note]
    counts = [list(VERDICTS[note].values()).count(sign) for sign in "+-?~"]
    agrees, wrong, left, mangled = counts
    assert printed.splitlines()[-1] == (
        f"{len(findings)} checks: {agrees} agrees, {wrong} wrong, {left} left open, {mangled} mangled"
    )
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


# --- note A ---


def test_a_learns_and_as_the_plain_loop_does():
    for name, tie, expected in (
        ("and_by_rule", "update", ((-4, 3, 2), 18, 9)),
        ("score_of_zero", "sign", ((-3, 2, 1), 11, 6)),
    ):
        found = figures("a", name)
        run = oracles.perceptron(*AND, tie=tie)
        ((bias, weight),) = run.last
        assert (found["weights"], found["mistakes"], found["passes"]) == expected
        assert ((bias, *weight), len(run.entries), run.passes) == expected
    assert figures("a", "score_of_zero")["scores"] == [-3, -2, -1, 0]


def test_a_first_epoch():
    found = figures("a", "first_epoch")
    run = oracles.perceptron(*AND)
    assert found["weights"] == ((-1, 0, 0), (-1, 0, 0), (-1, 0, 0), (0, 1, 1))
    assert [(bias, *weight) for ((bias, weight),) in run.after_step[:4]] == list(found["weights"])
    assert found["scores"] == (0, -1, -1, -1)
    assert found["mistakes"] == [1, 4]
    assert found["own scores of rows 3 and 4"] == [0, 2]
    table = figures("a", "labels_of_the_table")
    assert (table["weights"], table["updates"], table["errors"]) == ((1, 1, 1), [4, 3, 3], 3)
    assert "found 0, 1" in table["refusal"]
    assert figures("a", "goal_of_the_example") == {"met by zero": True, "errors of zero": 3}


def test_a_bound():
    found = figures("a", "mistake_bound")
    assert found["mistakes"] == 18
    assert found["printed"] == pytest.approx(3 * 17**0.5)
    assert found["printed, w/10"] == pytest.approx(8.7)
    assert found["right"] == pytest.approx(51)
    assert found["right for (-4, 3, 2)"] == pytest.approx(3 * 29)
    assert found["without x0"] == pytest.approx(16)
    start = figures("a", "bound_from_another_start")
    plain = oracles.perceptron(*AND, start=((100, (0, 0)),), passes=1000)
    assert start["mistakes"] == len(plain.entries) == 200


def test_a_the_rest():
    assert figures("a", "gradient_at_the_kink") == {
        "slopes": {"relu": 0, "clamp": 1, "maximum": 0.5, "torchperc": 1},
        "relu is stuck at zero": True,
    }
    assert figures("a", "xor") == {"verdict": "CYCLING", "period": 1, "alpha": (Fraction(1, 4),) * 4}
    assert figures("a", "stochastic_descent") == {
        "exact": True, "mistakes": 18, "ends": [(-4, 3, 2), (-3, 2, 2)], "steps of the batch": 10,
    }  # fmt: skip
    depends = figures("a", "what_the_weights_depend_on")
    assert depends["rate scales"]
    assert depends["mistakes"] == (18, 22)
    assert depends["ends"] == [(-4, 2, 3), (-4, 3, 2)]
    assert depends["mistakes at 0.1"] != 18
    assert figures("a", "loss_of_a_mistake") == {"loss": 0, "mistakes": 4, "errors": 3}
    assert figures("a", "targets_of_the_squared_loss")["errors"] == {0.0: 2, 0.5: 0}
    assert figures("a", "targets_of_the_squared_loss")["scores"] == pytest.approx([-0.25, 0.25, 0.25, 0.75])
    assert figures("a", "least_squares_and_errors") == {
        "errors": {"XOR": 2, "far": 1}, "least": {"XOR": 1, "far": 0},
    }  # fmt: skip
    slope, offset = np.polyfit([0, 1, 2, 6], [-1, 1, 1, 1], 1)
    assert slope * 0 + offset > 0, "least squares takes the only −1 for +1"
    assert figures("a", "squared_loss_on_the_right_side")["losses"] == [0, 0.5, 2]


# --- note B ---


def test_b_geometry():
    assert figures("b", "normal_of_the_figure")["length"] == pytest.approx(0.17**0.5)
    assert figures("b", "side_of_the_bias")["offsets"] == pytest.approx({-1.0: 17**-0.5 * 10, 1.0: -(17**-0.5) * 10})
    assert figures("b", "many_hyperplanes")["margins"] == pytest.approx([13**-0.5, 13**-0.5, 8**-0.5])
    assert figures("b", "margin_as_a_distance") == {"printed": 1, "distance": pytest.approx(13**-0.5)}


def test_b_update():
    found = figures("b", "update_by_the_prediction")
    assert found == {"losses": 40, "weights": (0, 0, 0), "mistakes": {"sign": 11, "update": 18}}
    for tie, count in (("update", 13), ("sign", 7)):
        run = oracles.perceptron(*AND, tie=tie)
        before = [oracles.score(run.states[t], AND[0][i])[0] for t, (i, *_) in enumerate(run.entries)]
        assert figures("b", "score_before_an_update")["zeros"][tie] == before.count(0) == count
    assert figures("b", "gain_of_an_update") == {"exact": True, "gains": [1, 2, 3]}


def test_b_theorem():
    printed = figures("b", "theorem_as_printed")
    assert printed == {"length": 29, "printed": pytest.approx(3), "right": pytest.approx(87), "mistakes": 18}
    bias = figures("b", "theorem_and_the_bias")
    assert bias["AND"]["plane"] == pytest.approx(16)
    assert bias["AND"]["right"] == pytest.approx(51)
    assert bias["AND"]["mistakes"] == [18, 11]
    assert bias["4 and 6"]["plane"] == pytest.approx(36)
    assert bias["4 and 6"]["right"] == pytest.approx(962)
    plain = [len(oracles.perceptron(*NEAR, tie=tie, passes=100).entries) for tie in ("update", "sign")]
    assert bias["4 and 6"]["mistakes"] == plain == [47, 47]
    counted = figures("b", "mistakes_and_iterations")
    assert counted["mistakes"] <= counted["bound"] < counted["steps"]
    assert counted["passes"] <= counted["mistakes"] + 1
    assert figures("b", "chain_of_the_proof") == {"updates": 18, "holds": True, "holds for length 2": False}


def test_b_features_votes_averages():
    found = figures("b", "adding_a_feature")
    assert found["separable"] == {"constant": False, "sum": False, "product": True, "one a sample": True}
    assert found["mistakes"] == {"product": 29, "one a sample": 4}
    votes = figures("b", "votes")
    assert votes["errors"] == {
        "without b": 3, "sign(0) = 0": 0, "sign(0) = +1": 1, "by survival": 0, "each value once": 1,
    }  # fmt: skip
    assert (votes["by survival"], votes["each value once"]) == ([-12, 6, 24], [-8, -3, 7])
    averages = figures("b", "averages")
    ((bias, weight),) = oracles.mean_state(oracles.perceptron(*AND))
    assert averages["sums"] == [36 * bias, *(36 * w for w in weight)] == [-92, 75, 48]
    assert (averages["errors without b"], averages["errors"]) == (3, 0)


# --- note C ---


def test_c_losses_and_rule():
    assert figures("c", "roles_of_the_labels")["costs"] == [10, 1]
    assert figures("c", "zero_one_loss") == {"printed": 1, "right": 0}
    assert figures("c", "squared_error") == {"products": [1, 1, 1, 1], "differences": [0, 4, 4, 0]}
    assert figures("c", "costs")["table"] == [0, 1, 10, 0]
    assert figures("c", "and_by_rule") == {"weights": (-3, 2, 1), "mistakes": 11, "passes": 6}
    run = oracles.perceptron(*NEAR, tie="sign", passes=100)
    after = [NEAR[1][i] * oracles.score(run.states[t + 1], NEAR[0][i])[0] for t, (i, *_) in enumerate(run.entries)]
    assert figures("c", "one_correction") == {"still wrong": sum(s < 0 for s in after), "corrections": 47}
    assert figures("c", "one_correction")["still wrong"] == 7
    assert figures("c", "gain_of_an_update") == {"exact": True, "without a constant": ("CYCLING", "not separable")}


def test_c_separability():
    found = figures("c", "separable_or_not")
    assert found["kinds"] == ["separable", "not separable"]
    assert found["alpha"] == (Fraction(1, 4),) * 4
    assert found["point"] == (Fraction(1, 2), Fraction(1, 2))
    assert found["verified"] == [True, True]
    proofs = figures("c", "proofs_for_inseparable_data")
    assert proofs["mistakes"] <= proofs["bound"] < proofs["steps"] == 2000
    assert proofs["longest"] < 20


def test_c_held_out_data():
    link = figures("c", "link_to_generalisation")
    assert abs(link["difference"]) < 3 * link["spread"] < 0.05
    sets = figures("c", "three_data_sets")
    assert sets["kept"] == sets["best"] < sets["last"]
    chosen = figures("c", "error_of_the_chosen")
    assert abs(chosen["first"] - 0.5) < 0.05
    assert chosen["best"] < 0.45
    errors = figures("c", "stability")["errors"]
    assert errors["before"] == 1
    assert errors["after"] > 9000
    assert max(errors["averaged"], errors["shuffled"], errors["shuffled, averaged"]) < 100


def test_c_votes_averages_classes():
    better = figures("c", "vote_always_better")
    assert better["errors"] == {"last": 0, "voted": 1}
    run = oracles.perceptron([[-3], [-2], [-1]], [-1, -1, 1], tie="sign")
    assert [oracles.votes(run, [x]) for x in (-3, -2, -1)] == [[-9], [-9], [-1]], "the only +1 is voted down"
    assert better["totals"]["voted"] < better["totals"]["last"]
    assert better["worse"] > 0
    averaged = figures("c", "averaged_algorithm")
    assert (averaged["total"], averaged["steps"], averaged["same"]) == ((-49, 36, 19), 24, True)
    assert averaged["errors of a on NOR"] == 1
    assert list(figures("c", "vote_and_average")["cases"].values()) == [(1, 1), (1, -1)]
    assert figures("c", "many_classes") == {"mistakes": {"sign": 5, "update": 10}, "same": True}
    x = [[0, 0], [1, 0], [4, 0], [5, 1], [0, 4], [1, 5]]
    counts = [len(oracles.perceptron(x, [0, 0, 1, 1, 2, 2], classes=3, tie=tie).entries) for tie in ("sign", "update")]
    assert counts == [5, 10]


# --- note D ---


def test_d_start_and_cases():
    assert figures("d", "error_at_the_start")["errors"] == {"sign(0) = +1": 0.75, "sign(0) = 0": 1, "y·s < 0": 0}
    cases = figures("d", "table_of_cases")
    assert (cases["updates"], cases["verdict"] != "SEPARATED", cases["scores"]) == (0, True, [-3, -2, -1, 0])
    assert "nothing will ever move" in cases["warning"]


@pytest.mark.parametrize(
    ("tie", "fewest", "most", "ends"),
    [
        ("sign", 6, 15, [(-3, 1, 2), (-3, 2, 1), (-2, 1, 1)]),
        ("update", 13, 22, [(-4, 2, 3), (-4, 3, 2), (-3, 2, 2)]),
    ],
)
def test_d_any_misclassified_point(tie, fewest, most, ends):
    found = figures("d", "any_misclassified_point")
    assert (found[tie]["fewest"], found[tie]["most"], found[tie]["ends"]) == (fewest, most, ends)
    assert found["bound"] == pytest.approx(51)
    low, high = found[tie]["seen"]
    assert fewest <= low <= high <= most
    # once more, level by level instead of back from the ends
    level, reached, lengths = {((0, (0, 0)),)}, set(), []
    for length in range(60):
        nexts = set()
        for state in level:
            wrong = [
                i for i in range(4) if oracles.taken_for(oracles.score(state, AND[0][i]), AND[1][i], tie) is not None
            ]
            if not wrong:
                reached.add((state[0][0], *state[0][1]))
                lengths.append(length)
            for i in wrong:
                nexts.add(oracles.perceptron([AND[0][i]], [AND[1][i]], tie=tie, passes=1, start=state).last)
        level = nexts
    assert not level
    assert (min(lengths), max(lengths), sorted(reached)) == (fewest, most, ends)


def test_d_on_the_way_and_the_pocket():
    assert figures("d", "one_update_may_not_do") == {"updates": 47, "still wrong": 7, "least gain on AND": 1}
    run = oracles.perceptron(*AND, tie="sign")
    errors = figures("d", "error_on_the_way")
    assert errors["errors"] == [oracles.errors(state, *AND) for state in run.states]
    assert errors["rises"] == 3
    assert figures("d", "inseparable_data")["verdicts"] == ["CYCLING", "BUDGET"]
    assert figures("d", "inseparable_data")["cycle"] == (2, 3)
    pocket = figures("d", "pocket")
    assert pocket["best in row order"] == {"sign": 2, "update": 2}
    assert pocket["runs with 1 error"][80] == 20
    assert pocket["runs with 1 error"][4] < 20
    assert pocket["errors on AND"] == 0


# --- note E ---


def test_e_perceptron():
    strict = figures("e", "strict_rule")
    assert (strict["updates"], strict["errors"], strict["verdict"] != "SEPARATED") == (0, 3, True)
    assert "nothing will ever move" in strict["warning"]
    run = oracles.perceptron(*AND, beta=2)
    assert strict["mended"] == ((-6, 4, 3), 17, 9)
    assert (run.last, len(run.entries), run.passes) == (((-6, (4, 3)),), 17, 9)
    assert figures("e", "right_at_zero") == {"by product": 4, "by sign": 1}
    step = figures("e", "bias_step")
    wide = [[0, 0], [0, 4], [3, 0], [3, 4]]
    assert step["radius"] == len(oracles.perceptron(wide, AND[1], beta=25).entries) == 10
    assert step["unit"] == len(oracles.perceptron(wide, AND[1], passes=100).entries) == 54
    assert step["same as a feature R"]
    assert "needs all samples" in step["refusal"]
    assert figures("e", "online_learning") == {"mistakes": 18, "weights": (-4, 3, 2)}
    assert figures("e", "xor_by_layers") == {"kind": "not separable", "errors": 0}
    assert figures("e", "homogeneous_coordinates") == {"scores": [-4, -2, -1, 1], "same": True}


def test_e_starts():
    assert figures("e", "start_from_two_samples") == {
        "printed": [0, 15], "right": pytest.approx([60, 75]), "bias": pytest.approx(-60),
    }  # fmt: skip
    start = figures("e", "start_of_the_algorithm")
    slopes = np.array([(59 - 70) / (25 - 20), (59 - 70) / (165 - 178)])
    assert start["printed"] == pytest.approx([slopes @ [20, 178] - 11, slopes @ [25, 165] - 11])
    assert start["right"] == pytest.approx([70, 59])
    assert np.isnan(start["samples 1 and 2"][0])


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


def test_e_gradient():
    assert figures("e", "factor_of_the_gradient") == {"half": True, "ratio": pytest.approx(2)}
    assert figures("e", "sign_of_the_derivative")["slopes"] == pytest.approx({-1.0: -1, 0.0: 0, 1.0: 1}, abs=1e-9)
    assert figures("e", "gradient_at_the_optimum") == {
        "largest": pytest.approx(0.5),
        "mean": pytest.approx(0, abs=1e-9),
    }
    assert figures("e", "sign_of_the_sample_update")["losses"] == [0.5, pytest.approx(0.5 * 0.7**2)]
    batch = figures("e", "sign_of_the_batch_update")
    X, y = np.c_[np.array(AND[0]), np.ones(4)], np.array(AND[1])
    for name, sign in (("printed", -1), ("right", 1)):
        w = np.zeros(3)
        for _ in range(10):
            w = w + sign * 0.1 * X.T @ (y - X @ w) / 4
        assert batch[name] == pytest.approx(((y - X @ w) ** 2).mean() / 2)
    assert batch["printed"] > batch["start"] == 0.5 > batch["right"]


def test_e_descent():
    cycle = figures("e", "sample_updates_converge")
    assert 0.1 < cycle["nearest"] < cycle["furthest"] < 0.2
    excess = figures("e", "batch_or_sample")["excess"]
    assert excess[256] > excess[32] > excess[1] > 0
    assert figures("e", "index_of_the_stop") == {"possible": False}
    stop = figures("e", "small_change_of_the_loss")
    assert stop["least"] == pytest.approx(0.125)
    assert stop["ends"][1e-3] == (1, pytest.approx(0.49975, abs=1e-6))
    assert stop["ends"][1e-4] == (684, pytest.approx(0.395584, abs=1e-6))
    rate = figures("e", "typical_rate")
    # the second moments of (x₁, x₂, 1) over AND's inputs
    assert rate["limit"] == pytest.approx(
        2 / np.linalg.eigvalsh([[0.5, 0.25, 0.5], [0.25, 0.5, 0.5], [0.5, 0.5, 1]])[-1]
    )
    assert rate["losses"][0.99] == pytest.approx(0.125)
    assert rate["losses"][1.01] > 1e10
    assert rate["steps"][0] > 100 * rate["steps"][1]
    assert rate["limit of raw features"] < 1e-3


def test_e_scaling_and_sigmoid():
    limits, spreads = figures("e", "features_of_like_range").values()
    assert limits[1] > 1e4 * limits[0]
    assert spreads[1] < 1e-4 * spreads[0]
    assert figures("e", "way_back") == {"printed": pytest.approx(20), "right": 0}
    convex = figures("e", "convexity")
    assert convex["lowest"] > 0 > convex["behind a sigmoid"]
    assert figures("e", "way_out_of_a_minimum") == {"moved": False, "errors": 2}
    assert figures("e", "derivative_of_the_sigmoid")["apart"] < 1e-12
    smooth = figures("e", "decision_without_a_derivative")
    assert (smooth["exact"], smooth["mistakes"]) == (True, 18)
    f = 1 / (1 + np.exp(10))
    assert smooth["squared"] == pytest.approx(-(1 - f) * f * (1 - f))
    assert smooth["logistic"] == pytest.approx(-(1 - f))
    assert figures("e", "decision_at_one_half")["labels"] == (1, -1)


# --- the scripts themselves ---


@pytest.mark.parametrize("path", sorted(NOTES.glob("*.py")), ids=lambda path: path.stem)
def test_scripts_use_public_names_only(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom):
            assert not (node.module or "").startswith("torchperc")
        elif isinstance(node, ast.Import):
            assert all("." not in alias.name for alias in node.names if alias.name.startswith("torchperc"))
        elif isinstance(node, ast.Attribute):
            assert node.attr == "__name__" or not node.attr.startswith("_"), f"{node.attr} is private"


def test_there_is_a_script_for_every_note():
    assert sorted(path.stem for path in NOTES.glob("note_*.py")) == [f"note_{note}" for note in VERDICTS]


def test_a_script_runs_from_the_command_line(capsys):
    with on_the_path():
        runpy.run_path(str(NOTES / "note_b.py"), run_name="__main__")
    assert capsys.readouterr().out == report("b")[1]


def test_verdicts_follow_from_what_was_found():
    with on_the_path():
        findings = importlib.import_module("_findings")
    assert [findings.judged(True), findings.judged(False), findings.judged(False, findings.OPEN)] == [
        "agrees", "wrong", "left open",
    ]  # fmt: skip
    assert findings.numbers((-4, 0.5, torch.tensor(-0.0))) == "(−4, 0.5, 0)"


def test_a_page_has_the_findings_of_a_verdict_as_plain_text():
    with on_the_path():
        helpers = importlib.import_module("_findings")
    findings = [
        helpers.Finding("the loss", "(y* ŷ)²", "a_b | [1] < 2", "wrong"),
        helpers.Finding("another", "says", "found", "agrees"),
    ]
    text = helpers.markdown(findings, "wrong")
    assert text == "the loss\n: **Note:** (y\\* ŷ)²\n\n  **Run:** a\\_b \\| \\[1\\] \\< 2"
    assert helpers.markdown(findings, "left open") == ""
