"""The page's rule, log and proof in JavaScript against RuleTrainer, its log and the theory, set by set."""

import functools
import itertools
import math
import random
import warnings
from fractions import Fraction

import pytest
import torch
from node import run_node

import torchperc as tp

CORE = ("rational.js", "random.js", "rule.js", "log.js", "proof.js")
TIES, BIAS_STEPS, ORDERS = (
    ("update", "sign", "strict"),
    ("unit", "radius", "none"),
    ("given", "shuffled", "random-mistake"),
)
NEAR = {"rel": 1e-12, "abs": 1e-12}

RUN = """
const shown = ({lower, upper}) => [String(lower), String(upper)];
answer = questions.map(({data, conventions, asked}) => {
  const log = runRule(data, conventions);
  const again = logFromJson(JSON.parse(JSON.stringify(logToJson(log))));
  const count = log.index.length;
  const moments = [0, count >> 1, count];
  return {
    json: logToJson(log), scores: log.scores, again: [logToJson(again), again.scores],
    states: moments.map((t) => stateAt(log, t)), averaged: averaged(log), voted: asked.map(voted(log)),
    pockets: ["runs", "every"].map((ratchet) => pocketIndex(log, ratchet)), errors: errorsOfStates(log),
    byEpoch: mistakesByEpoch(log), brackets: moments.map((t) => shown(bracketAt(log, t))),
    best: bestBrackets(log).map(shown),
  };
});
"""


# --- data sets and conventions ----------------------------------------------------------------------------------------


def grid(chance, reach=96):
    """A number of the 1/64 grid."""
    return chance.randint(-reach, reach) / 64


def random_set(chance, classes):
    """Points of the 1/64 grid, few, and often equal or on one line, with labels of at least two classes."""
    reach = chance.choice((2, 8, 96))
    points = [[grid(chance, reach), grid(chance, reach)] for _ in range(chance.randint(2, 10))]
    rows = [[grid(chance), grid(chance), grid(chance, reach)] for _ in range(classes)]
    labels = [max(range(classes), key=lambda k: rows[k][0] * x + rows[k][1] * y + rows[k][2]) for x, y in points]
    if chance.random() < 0.4:  # any labels; else some that weights make, which most often are separable
        labels = [chance.randrange(classes) for _ in points]
    if len(set(labels)) == 1:
        labels[0] = (labels[0] + 1) % classes
    return {"points": points, "labels": labels, "classes": classes}


def random_start(chance, classes):
    """Weights of the 1/64 grid."""
    rows = 1 if classes == 2 else classes
    return {"weight": [[grid(chance), grid(chance)] for _ in range(rows)], "bias": [grid(chance) for _ in range(rows)]}


@functools.cache
def cases():
    """Every tie, bias step, order, number of classes and kind of start, twice with other data."""
    chance, found = random.Random(17), []
    for number, choice in enumerate(list(itertools.product(TIES, BIAS_STEPS, ORDERS, (2, 3, 4), (True, False))) * 2):
        tie, bias_step, order, classes, at_zero = choice
        conventions = {
            "tie": tie, "biasStep": bias_step, "order": order, "seed": chance.choice((0, 1, number, 2**32 + number)),
            "lr": chance.choice((1, 0.25, 2, 0.1) if at_zero else (1, 0.25, 0.5)),
            "margin": 0 if tie == "sign" else chance.choice((0, 0, 0.125)), "maxEpochs": chance.choice((1, 3, 6) if order == "random-mistake" else (2, 6, 12)),
            "start": None if at_zero else random_start(chance, classes),
        }  # fmt: skip
        asked = [[grid(chance), grid(chance)] for _ in range(5)]
        found.append({"data": random_set(chance, classes), "conventions": conventions, "asked": asked})
    return found


def tensors(data):
    """Samples in float64 and labels as torchperc takes them."""
    y = torch.tensor(data["labels"])
    return torch.tensor(data["points"], dtype=torch.float64), 2 * y - 1 if data["classes"] == 2 else y


def fitted(case):
    """The result of RuleTrainer."""
    (X, y), conventions = tensors(case["data"]), case["conventions"]
    classes, start = case["data"]["classes"], conventions["start"]
    net = tp.Perceptron(2) if classes == 2 else tp.MulticlassPerceptron(2, classes)
    net = net.double()
    if start is not None:
        net.load_state_dict({name: torch.tensor(values, dtype=torch.float64) for name, values in start.items()})
    renamed = {"bias_step": conventions["biasStep"], "max_epochs": conventions["maxEpochs"]}
    same = {name: conventions[name] for name in ("tie", "order", "seed", "lr", "margin")}
    with warnings.catch_warnings():  # that a strict tie never leaves zero weights
        warnings.simplefilter("ignore", UserWarning)
        return tp.RuleTrainer(**same, **renamed).fit(net, X, y)


@functools.cache
def both():
    """What the two languages made of each case."""
    return [(case, made, fitted(case)) for case, made in zip(cases(), run_node(CORE, RUN, cases()), strict=True)]


# --- the rule and its log ---------------------------------------------------------------------------------------------


def test_the_same_mistakes_at_the_same_steps_with_the_same_verdict():
    for case, made, result in both():
        log, json = result.log, made["json"]
        columns = {name: getattr(log, name).tolist() for name in ("index", "step", "coef", "wrong", "epoch_ends")}
        assert {name: json[name] for name in columns} == columns, case
        cycle = None if result.cycle is None else list(result.cycle)
        assert (json["steps"], json["verdict"], json["cycle"]) == (log.steps, result.verdict.name, cycle), case
        assert (json["bias_scale"], json["scale"]) == (log.space.bias_scale, log.space.scale), case


def test_the_cases_have_every_verdict_and_many_mistakes():
    verdicts = [result.verdict.name for _, _, result in both()]
    assert {name: verdicts.count(name) > 25 for name in set(verdicts)} == dict.fromkeys(
        ("SEPARATED", "CYCLING", "BUDGET"), True
    )
    assert len(verdicts) >= 300
    assert sum(result.mistakes for _, _, result in both()) > 3000


def test_the_same_weights_at_any_moment_to_the_bit():
    for case, made, result in both():
        count = len(result.log)
        for state, t in zip(made["states"], (0, count // 2, count), strict=True):
            model = result.log.state_at(t)
            assert (state["weight"], state["bias"]) == (model.weight.tolist(), model.bias.tolist()), case


def test_scores_are_those_of_the_weights_before_each_update():
    for case, made, result in both():
        for t in {0, len(result.log) // 2} if len(result.log) else ():
            x = case["data"]["points"][result.log[t].sample]
            assert made["scores"][t] == pytest.approx(result.log.state_at(t).scores([x]).flatten().tolist(), **NEAR), (
                case
            )


def test_the_same_averaged_weights_to_the_bit():
    for case, made, result in both():
        mean, found = result.log.averaged(), made["averaged"]
        assert found["weight"] == mean.weight.tolist(), case
        assert found["bias"] == mean.bias.tolist(), case


def test_the_same_votes():
    for case, made, result in both():
        decided = result.log.voted().predict(torch.tensor(case["asked"], dtype=torch.float64)).tolist()
        labels = [2 * label - 1 for label in made["voted"]] if case["data"]["classes"] == 2 else made["voted"]
        assert labels == decided, case


def test_the_same_pocket_errors_and_learning_curve():
    for case, made, result in both():
        log = result.log
        assert made["pockets"] == [log.pocket_index("runs"), log.pocket_index("every")], case
        assert made["errors"] == log.errors().tolist(), case
        assert made["byEpoch"] == log.mistakes_by_epoch().tolist(), case


def python_bracket(case, log, t):
    """By the theory, which has no place for a bias that no step changes: its upper bound is that of the weights."""
    model, conventions = log.state_at(t), case["conventions"]
    fixed = conventions["biasStep"] == "none" and bool(model.bias.any())
    net, start = ((each.weight, None if fixed else each.bias) for each in (model, log.start))
    about = {"lr": conventions["lr"], "bias_step": conventions["biasStep"], "start": start}
    found = tp.theory.bracket(net, *tensors(case["data"]), t, **about)
    return (-math.inf if fixed else found.lower), found.upper


def test_the_same_bracket_around_the_largest_margin():
    for case, made, result in both():
        log = result.log
        for t, found in zip((0, len(log) // 2, len(log)), made["brackets"], strict=True):
            assert tuple(map(float, found)) == pytest.approx(python_bracket(case, log, t), **NEAR), case


def test_the_best_bracket_so_far_only_closes():
    for case, made, result in both()[::20]:
        every = [python_bracket(case, result.log, t) for t in range(len(result.log) + 1)]
        lower = list(itertools.accumulate((bound for bound, _ in every), max))
        upper = list(itertools.accumulate((bound for _, bound in every), min))
        found = [tuple(map(float, bounds)) for bounds in made["best"]]
        for bounds, wanted in zip(found, zip(lower, upper, strict=True), strict=True):
            assert bounds == pytest.approx(wanted, **NEAR), case


def test_json_is_read_back_as_it_was():
    for case, made, _ in both():
        assert made["again"] == [made["json"], made["scores"]], case
        assert (made["json"]["format"], made["json"]["version"]) == ("torchperc mistake log", 1)


# --- what is not on the grid, and what is refused ---------------------------------------------------------------------


def test_sums_that_round_are_decided_exactly_as_in_python():
    chance, off = random.Random(3), []
    for tie, order in itertools.product(TIES, ORDERS):
        for _ in range(4):  # tenths are no dyadic fractions; many lie on the line that the weights make
            points = [[chance.randint(-5, 5) / 10, chance.randint(-5, 5) / 10] for _ in range(9)]
            labels = [int(x + 2 * y > 0) for x, y in points]
            labels[:2] = [0, 1]
            data = {"points": points, "labels": labels, "classes": 2}
            conventions = {"tie": tie, "biasStep": "unit", "order": order, "seed": 5, "lr": 0.1, "margin": 0}
            off.append({"data": data, "conventions": {**conventions, "maxEpochs": 5, "start": None}, "asked": []})
    for case, made in zip(off, run_node(CORE, RUN, off), strict=True):
        log = fitted(case).log
        assert (made["json"]["index"], made["json"]["step"]) == (log.index.tolist(), log.step.tolist()), case
        assert made["errors"] == [exact_errors(case["data"], log, t) for t in range(len(log) + 1)], case


def exact_errors(data, log, t):
    """How many samples the weights after t mistakes decide wrongly, in fractions."""
    moved = log.space.moved(log.start, log.entries.part(0, t))
    (w1, w2), (b,) = (list(map(Fraction, values.flatten().tolist())) for values in (moved.weight, moved.bias))
    pairs = zip(data["points"], data["labels"], strict=True)
    return sum((w1 * Fraction(x1) + w2 * Fraction(x2) + b >= 0) != bool(label) for (x1, x2), label in pairs)


def test_random_numbers_are_torchs():
    seeds = [0, 1, 42, 2**31, 2**32 - 1, 2**32 + 7, 2**53 - 1]
    program = """answer = questions.map((seed) => {
      const generator = new TorchGenerator(seed);
      return [generator.permutation(700), Array.from({length: 900}, (_, i) => generator.below(i + 1))];
    });"""
    for seed, (order, picks) in zip(seeds, run_node(CORE, program, seeds), strict=True):
        generator = torch.Generator().manual_seed(seed)
        assert order == torch.randperm(700, generator=generator).tolist()
        assert picks == [int(torch.randint(i + 1, (1,), generator=generator)) for i in range(900)]


def test_one_class_and_no_points_are_fine_and_bad_conventions_are_refused():
    one = {"points": [[1, 1], [2, 1]], "labels": [0, 0], "classes": 2}
    none = {"points": [], "labels": [], "classes": 3}
    refused = [
        {"tie": "never"}, {"biasStep": "two"}, {"order": "sorted"}, {"lr": 0}, {"lr": math.nan}, {"margin": -1},
        {"margin": 1, "tie": "sign"}, {"maxEpochs": 0}, {"maxEpochs": 1.5}, {"seed": -1},
        {"start": {"weight": [[0, 0], [0, 0]], "bias": [0, 0]}}, {"start": {"weight": [[0, None]], "bias": [0]}},
    ]  # fmt: skip
    program = """
    const message = (conventions) => { try { runRule(questions.one, conventions); } catch (error) { return error.message; } };
    answer = {
      runs: [questions.one, questions.none].flatMap((data) => ORDERS.map((order) => {
        const log = runRule(data, {order});
        return [log.verdict, log.index, log.steps, pocketIndex(log), averaged(log).bias, voted(log)([0, 0])];
      })),
      refused: questions.refused.map(message),
    };"""
    found = run_node(CORE, program, {"one": one, "none": none, "refused": refused})
    assert [run[:4] for run in found["runs"]] == [
        ["SEPARATED", [0], 4, 1], ["SEPARATED", [0], 4, 1], ["SEPARATED", [0], 1, 1], *[["SEPARATED", [], 0, 0]] * 3,
    ]  # fmt: skip
    assert all(isinstance(message, str) and message.endswith(".") for message in found["refused"]), found["refused"]
