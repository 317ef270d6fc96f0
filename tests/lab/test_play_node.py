"""The page's JavaScript, run by Node: rule, log and proof against RuleTrainer and the theory, descent against autograd."""

import functools
import itertools
import json
import math
import random
import warnings
from fractions import Fraction

import pytest
import torch
from node import run_node
from torch import nn

import torchperc as tp

pytestmark = pytest.mark.browser  # whose package has the Node that runs the scripts

CORE = ("rational.js", "random.js", "rule.js", "log.js", "proof.js")
TIES, BIAS_STEPS = ("update", "sign", "strict"), ("unit", "radius", "none")
ORDERS = ("given", "shuffled", "random-mistake")
NEAR = {"rel": 1e-12, "abs": 1e-12}

RUN = """
const shown = ({lower, upper}) => [String(lower), String(upper)];
answer = questions.map(({data, conventions, asked}) => {
  const log = runRule(data, conventions);
  const again = logFromJson(JSON.parse(JSON.stringify(logToJson(log))));
  const count = log.index.length;
  const [moments, vote] = [[0, count >> 1, count], voted(log)];
  return {
    json: logToJson(log), scores: log.scores, again: [logToJson(again), again.scores],
    states: moments.map((t) => stateAt(log, t)), averaged: averaged(log), voted: asked.map(vote),
    pocket: pocketIndex(log), errors: errorsOfStates(log), byEpoch: mistakesByEpoch(log), best: bestBrackets(log).map(shown),
  };
});
"""


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
            "margin": 0 if tie == "sign" else chance.choice((0, 0, 0.125)), "maxEpochs": chance.choice((1, 2, 4) if order == "random-mistake" else (1, 4, 8)),
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


def python_bracket(case, log, t):
    """By the theory, which has no place for a bias that no step changes: its upper bound is that of the weights."""
    model, conventions = log.state_at(t), case["conventions"]
    fixed = conventions["biasStep"] == "none" and bool(model.bias.any())
    net, start = ((each.weight, None if fixed else each.bias) for each in (model, log.start))
    about = {"lr": conventions["lr"], "bias_step": conventions["biasStep"], "start": start}
    found = tp.theory.bracket(net, *tensors(case["data"]), t, **about)
    return (-math.inf if fixed else found.lower), found.upper


def test_every_run_and_what_follows_from_its_log_is_that_of_python():
    verdicts, mistakes = [], 0
    for number, (case, made) in enumerate(zip(cases(), run_node(CORE, RUN, cases()), strict=True)):
        result, found = fitted(case), made["json"]
        log, count, (X, _) = result.log, len(result.log), tensors(case["data"])
        columns = {name: getattr(log, name).tolist() for name in ("step", "coef", "epoch_ends")}
        columns |= {"index": log.sample.tolist(), "wrong": log.predicted.tolist(), "steps": log.steps}
        columns |= {"bias_scale": log.problem.bias_step, "scale": log.problem.scale, "verdict": result.verdict.name}
        columns |= {"cycle": None if result.cycle is None else list(result.cycle)}
        assert {name: found[name] for name in columns} == columns, case
        for state, t in zip(made["states"], (0, count // 2, count), strict=True):
            model = log.state_at(t)
            assert (state["weight"], state["bias"]) == (model.weight.tolist(), model.bias.tolist()), case
            if t < count:
                scores = model.scores(X[[log[t].sample]]).flatten().tolist()
                assert made["scores"][t] == pytest.approx(scores, **NEAR), case
        mean = log.averaged()
        assert made["averaged"] == {"weight": mean.weight.tolist(), "bias": mean.bias.tolist()}, case
        votes = log.voted().predict(torch.tensor(case["asked"], dtype=torch.float64)).tolist()
        assert votes == ([2 * v - 1 for v in made["voted"]] if case["data"]["classes"] == 2 else made["voted"]), case
        followed = log.pocket_index(), log.errors().tolist(), log.mistakes_by_epoch().tolist()
        assert (made["pocket"], made["errors"], made["byEpoch"]) == followed, case
        assert made["again"] == [found, made["scores"]], case  # JSON is read back as it was, here and in Python
        read = tp.MistakeLog.from_json(json.dumps(found))
        assert read.equals(log), case
        assert torch.equal(read.last().weight, log.last().weight), case
        assert torch.equal(read.last().bias, log.last().bias), case
        if number % 7 == 0:
            lower, upper = zip(*(python_bracket(case, log, t) for t in range(count + 1)), strict=True)
            wanted = zip(itertools.accumulate(lower, max), itertools.accumulate(upper, min), strict=True)
            for bounds, best in zip(made["best"], wanted, strict=True):
                assert tuple(map(float, bounds)) == pytest.approx(best, **NEAR), case
        verdicts.append(result.verdict.name)
        mistakes += result.mistakes
    assert (len(verdicts) >= 300, mistakes > 2000) == (True, True)
    assert all(verdicts.count(name) > 25 for name in ("SEPARATED", "CYCLING", "BUDGET"))


def test_sums_that_round_are_decided_exactly_as_in_python():
    chance, off = random.Random(3), []
    for tie, order, classes in itertools.product(TIES, ORDERS, (2, 2, 3)):
        # tenths are no dyadic fractions; many lie on the line that the weights make
        points = [[chance.randint(-5, 5) / 10, chance.randint(-5, 5) / 10] for _ in range(9)]
        labels = [int(x + 2 * y > 0) + (classes == 3 and x > y) for x, y in points]
        labels[:classes] = range(classes)
        data = {"points": points, "labels": labels, "classes": classes}
        conventions = {"tie": tie, "biasStep": "unit", "order": order, "seed": 5, "lr": 0.1, "margin": 0}
        off.append({"data": data, "conventions": {**conventions, "maxEpochs": 5, "start": None}, "asked": []})
    for case, made in zip(off, run_node(CORE, RUN, off), strict=True):
        log = fitted(case).log
        assert (made["json"]["index"], made["json"]["step"]) == (log.sample.tolist(), log.step.tolist()), case
        assert made["errors"] == [exact_errors(case["data"], log, t) for t in range(len(log) + 1)], case


def exact_errors(data, log, t):
    """How many samples the weights after t mistakes decide wrongly, in fractions."""
    moved, errors = log.weights_at(t), 0
    weight, (bias,) = exact(moved.weight.tolist()), exact([moved.bias.tolist()])
    for (x1, x2), label in zip(exact(data["points"]), data["labels"], strict=True):
        scores = [w1 * x1 + w2 * x2 + b for (w1, w2), b in zip(weight, bias, strict=True)]
        errors += label != (int(scores[0] >= 0) if len(scores) == 1 else scores.index(max(scores)))
    return errors


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


PROVE = """
Rational.prototype.toJSON = Rational.prototype.toString;
answer = questions.map(({data, conventions}) => ({proof: prove(data), bound: boundOf(data, conventions)}));
"""


@functools.cache
def proved():
    """Sets of 2, 3 and 4 classes, some on one line or with equal points of different classes, and what was proved."""
    chance, asked = random.Random(5), []
    for number in range(200):
        data = random_set(chance, (2, 2, 3, 4)[number % 4])
        if number % 7 == 0:
            data["points"] = [[x, 2 * x - 0.5] for x, _ in data["points"]]
        conventions = {"biasStep": chance.choice(BIAS_STEPS), "lr": chance.choice((1, 0.5)), "margin": number % 4 / 4}
        asked.append({"data": data, "conventions": conventions})
    return list(zip(asked, run_node(CORE, PROVE, asked), strict=True))


def proofs(classes, *, separable):
    """The data and proofs of sets of two classes, or of more, that are separable or not."""
    sets = ((question["data"], answer["proof"]) for question, answer in proved())
    return [(d, p) for d, p in sets if (d["classes"] == 2) == (classes == 2) and p["separable"] == separable]


def exact(rows):
    """Fractions from numbers or from text."""
    return [[Fraction(value) for value in row] for row in rows]


def slacks(data, proof):
    """y·s, or every s_y − s_k, of each sample, in fractions."""
    weight, (bias,) = exact(proof["weight"]), exact([proof["bias"]])
    for (x1, x2), label in zip(exact(data["points"]), data["labels"], strict=True):
        scores = [w1 * x1 + w2 * x2 + b for (w1, w2), b in zip(weight, bias, strict=True)]
        many = [scores[label] - score for k, score in enumerate(scores) if k != label] if len(scores) > 1 else []
        yield many or [(2 * label - 1) * scores[0]]


def test_separable_or_not_as_the_theory_says():
    kinds = []
    for question, answer in proved():
        data, proof = question["data"], answer["proof"]
        classes = None if data["classes"] == 2 else data["classes"]
        certificate = tp.theory.separability(*tensors(data), num_classes=classes)
        assert proof["separable"] == certificate.separable, data
        assert proof["kind"] == certificate.kind or data["classes"] > 2, data
        kinds.append((proof["kind"], data["classes"] == 2))
    expected = [("separable", True), ("separable", False), ("not separable", True), ("not separable", False)]
    assert all(kinds.count(kind) >= 20 for kind in expected), kinds
    assert kinds.count(("weakly separable", True)) >= 4, kinds


def test_separating_weights_hold_exactly_and_supports_are_the_nearest():
    for data, proof in [*proofs(2, separable=True), *proofs(3, separable=True)]:
        least = [min(each) for each in slacks(data, proof)]
        assert min(least) == 1, data
        assert proof["supports"] == [i for i, slack in enumerate(least) if slack == 1], data
        squared = 1 / sum(value**2 for row in exact(proof["weight"]) for value in row)
        assert Fraction(proof["gammaSquared"]) == squared, data
        assert proof["gamma"] == pytest.approx(math.sqrt(squared), rel=1e-15), data


def squared_distance(p, a, b):
    """From a point to a segment, in fractions."""
    along, to = [v - u for u, v in zip(a, b, strict=True)], [v - u for u, v in zip(a, p, strict=True)]
    length, inner = sum(v * v for v in along), sum(u * v for u, v in zip(along, to, strict=True))
    part = min(max(inner / length, Fraction(0)), Fraction(1)) if length else 0
    return sum((v - part * u) ** 2 for u, v in zip(along, to, strict=True))


def test_the_strip_is_the_widest():
    for data, proof in proofs(2, separable=True):
        samples = list(zip(exact(data["points"]), data["labels"], strict=True))
        classes = [[x for x, label in samples if label == k] for k in (0, 1)]
        squared = min(
            squared_distance(p, a, b)
            for some, others in (classes, classes[::-1])
            for p, (a, b) in itertools.product(some, itertools.combinations_with_replacement(others, 2))
        )
        assert Fraction(proof["gammaSquared"]) == squared / 4, data
        (p, q) = exact(proof["nearest"])
        assert sum((v - u) ** 2 for u, v in zip(p, q, strict=True)) == squared, data


def test_a_mean_of_the_differences_is_zero_and_with_two_classes_a_point_in_both_hulls():
    for data, proof in [*proofs(2, separable=False), *proofs(3, separable=False)]:
        total, means, two = [[Fraction(0)] * 3 for _ in range(data["classes"])], {}, data["classes"] == 2
        for each in proof["weights"]:
            fraction, label = Fraction(each["fraction"]), data["labels"][each["index"]]
            part = [fraction * Fraction(value) for value in (*data["points"][each["index"]], 1)]
            assert (fraction > 0, each["rival"] != label) == (True, True), data
            for k, sign in ((label, 1), (each["rival"], -1)):
                total[k] = [value + sign * feature for value, feature in zip(total[k], part, strict=True)]
            means[label] = [value + feature for value, feature in zip(means.get(label, [0] * 3), part, strict=True)]
        assert not any(value for row in total for value in row), data
        assert sum(Fraction(each["fraction"]) for each in proof["weights"]) == (2 if two else 1), data
        if two:
            assert len({each["index"] for each in proof["weights"]}) == len(proof["weights"]) <= 4, data
            assert means[0] == means[1] == [*exact([proof["point"]])[0], 1], data
            # a weakly separating line has no point on the wrong side
            assert (proof["kind"] == "weakly separable") == (proof["weight"] is not None), data
            if proof["weight"] is not None:
                found = [slack for (slack,) in slacks(data, proof)]
                assert min(found) == 0 < max(found), data


def test_the_mistake_bound_is_the_theorys():
    finite = 0
    for question, answer in proved()[::3]:
        data, (step, lr, margin), bound = question["data"], question["conventions"].values(), answer["bound"]
        about = {"bias_step": step, "num_classes": None if data["classes"] == 2 else data["classes"]}
        best = tp.theory.max_margin(*tensors(data), regularize_bias=True, tolerance=1e-11, **about)
        assert bound["gamma"] == pytest.approx(best.margin, rel=1e-9, abs=1e-9), data
        assert bound["radius"] == pytest.approx(tp.theory.radius(tensors(data)[0], **about), rel=1e-15), data
        if best.separable:
            wanted = tp.theory.mistake_bound(*tensors(data), gamma=best.margin, margin=margin, lr=lr, **about)
            assert bound["bound"] == pytest.approx(wanted, rel=1e-8), data
            finite += 1
        else:
            assert (bound["bound"], bound["gammaSquared"]) == (None, "0"), data  # JSON has no infinity
    assert finite > 20


def test_hulls_and_proofs_of_one_class_and_of_no_points():
    corners = [[0, 0], [0, 1], [1, 0], [1, 1]]
    sets = [([0, 0, 0, 1], corners), ([1, 1], corners[:2]), ([], [])]
    program = """Rational.prototype.toJSON = Rational.prototype.toString;
    answer = questions.map((data) => [prove(data), boundOf(data, {}), hullsOf({...data, labels: data.labels.map(() => 0), classes: 1}, wholePoints(data.points).whole)[0]]);"""
    questions = [{"points": points, "labels": labels, "classes": 2} for labels, points in sets]
    and_, one, none = run_node(CORE, program, questions)
    assert (and_[1]["bound"], and_[1]["gammaSquared"], and_[2]) == (51, "1/17", [0, 2, 3, 1])
    assert [each[0] for each in (one, none)] == [{"kind": "empty", "separable": True}] * 2
    assert (one[1]["bound"], none[1]["bound"], one[2], none[2]) == (2, 0, [0, 1], [])


def test_fractions_are_exact_and_turn_back_into_the_nearest_number():
    numbers = [0.1, -0.1, 1 / 3, 1e300, -5e-324, 2.5, 0, 2.0**-1030, 12345678.9]
    pairs = [[1, 3], [-2, 7], [10**40, 3], [1, 10**320], [2**54 + 1, 2**54], [-(10**400), 10**399]]
    pairs += [[sign * ((2**53 + 1) * 2**100 + 1), 2**100] for sign in (1, -1)]  # a little more than half way
    program = """Rational.prototype.toJSON = Rational.prototype.toString;
    answer = {
      exact: questions.numbers.map((value) => [Rational.of(value), Rational.of(value).toNumber()]),
      nearest: questions.pairs.map(([above, below]) => new Rational(BigInt(above), BigInt(below)).toNumber()),
      sums: [Rational.of(0.1).plus(0.2), Rational.of(1).over(3).minus(2), new Rational(3n, -6n), new Rational(1n, 3n).compare(1 / 3)],
    };"""
    found = run_node(CORE, program, {"numbers": numbers, "pairs": [[str(a), str(b)] for a, b in pairs]})
    assert found["exact"] == [[str(Fraction(value)), value] for value in numbers]
    assert found["nearest"] == [float(Fraction(a, b)) for a, b in pairs]
    assert found["sums"] == [str(Fraction(0.1) + Fraction(0.2)), "-5/3", "-1/2", 1]


HEADS = {"perceptron": tp.PerceptronHead, "lms": tp.LMSHead, "logistic": tp.LogisticHead}
MODES = ({"mode": "batch"}, {"mode": "stochastic"}, {"mode": "minibatch", "batchSize": 3})
ZERO = {"weight": [0.0, 0.0], "bias": 0.0}
AWAY = {"weight": [0.5, -0.25], "bias": 0.125}
STEPS = 12

PROGRAM = """
const inner = (name) => ({
  slopes: ({scores, signs, tie}) => HEADS.map((head) => scores.map((s, i) =>
    [sampleLoss(head, s, signs[i]), sampleSlope(head, s, signs[i], tie)])),
  path: ({samples, settings, steps}) => {
    const path = startPath(samples, settings);
    extendPath(path, steps);
    return path;
  },
  run: ({samples, settings, steps}) => {
    const path = startPath(samples, settings);
    extendPath(path, steps);
    const net = path.states[0];
    const first = netGradient(net, samples, settings.head, settings.tie, everyNumber(samples.points.length));
    return {first, net, last: path.states.at(-1), losses: path.losses, errors: path.errors, ended: path.ended};
  },
  starts: ({samples, starts}) => starts.map((start) => {
    const path = startPath(samples, {...start, head: "logistic", tie: "update", mode: "batch", order: "given"});
    const steps = extendPath(path, 600);
    return [start.standing, pathStanding(path, steps), path.errors[steps]];
  }),
  limit: ({head, points, size}) => stepLimit(head, points, size),
  optimum: ({samples, bias}) => lmsOptimum(samples, bias),
  surface: ({samples, head, bias, frame, cells, level}) => {
    const surface = lossSurface(samples, head, bias, frame, cells);
    return {surface, segments: contourSegments(surface, level)};
  },
}[name]);
answer = questions.map(([name, question]) => inner(name)(question));
"""


def samples(seed, count=8):
    """Points of the 1/64 grid with labels −1/+1, both of which occur."""
    generator = torch.Generator().manual_seed(seed)
    X = torch.randint(-96, 97, (count, 2), generator=generator).double() / 64
    y = torch.randint(0, 2, (count,), generator=generator) * 2 - 1
    y[:2] = torch.tensor([-1, 1])
    return X, y


def as_json(X, y):
    return {"points": X.tolist(), "signs": y.tolist()}


def head_of(name, tie):
    return HEADS[name](tie=tie) if name == "perceptron" else HEADS[name]()


def batches_of(count, settings, steps):
    """The batches of so many steps, as a DataLoader would hand them out in this order."""
    size = {"batch": count, "stochastic": 1}.get(settings["mode"]) or settings["batchSize"]
    generator = torch.Generator().manual_seed(settings["seed"])
    found = []
    while len(found) < steps:
        shuffled = settings["order"] == "shuffled" and settings["mode"] != "batch"
        epoch = torch.randperm(count, generator=generator) if shuffled else torch.arange(count)
        found.extend(epoch.split(size))
    return found[:steps]


def descent_by_torch(net, head, X, y, settings, steps):
    """Plain SGD by autograd: the loss of all samples before each step and after the last."""
    losses, parameters = [], list(net.parameters())
    for batch in batches_of(len(X), settings, steps):
        losses.append(head.loss(net(X), y).item())
        gradients = torch.autograd.grad(head.loss(net(X[batch]), y[batch]), parameters)
        with torch.no_grad():
            for parameter, gradient in zip(parameters, gradients, strict=True):
                parameter.sub_(settings["lr"] * gradient)
    return [*losses, head.loss(net(X), y).item()]


def linear_net(start):
    net = tp.Perceptron(2, dtype=torch.float64)
    with torch.no_grad():
        net.weight.copy_(torch.tensor([start["weight"]], dtype=torch.float64))
        net.bias.fill_(start["bias"])
    return net


def path_cases():
    """Every head, tie, mode and order on a data set of its own; half of them start at zero, on the kink."""
    heads, cases = [*(("perceptron", tie) for tie in TIES), ("lms", "update"), ("logistic", "update")], []
    for seed, ((name, tie), mode, order) in enumerate(itertools.product(heads, MODES, ("given", "shuffled")), 1):
        start = {"start": AWAY if seed % 2 else ZERO}
        cases.append(
            ({"head": name, "tie": tie, "lr": 0.25, "order": order, "seed": seed, **start, **mode}, *samples(seed))
        )
    return cases


def net_cases():
    """Every head, activation, width and mode."""
    cases = []
    for seed, (name, activation, hidden) in enumerate(
        itertools.product(HEADS, ("tanh", "sigmoid", "relu"), (2, 3, 4)), 101
    ):
        settings = {"head": name, "tie": TIES[seed % 3], "lr": 0.5, "order": ("given", "shuffled")[seed % 2]}
        net = {"activation": activation, "hidden": hidden, "seed": seed}
        cases.append(({**settings, **net, **MODES[seed // 2 % 3]}, *samples(seed)))
    return cases


def ending_cases():
    """How runs end: by divergence beyond the limit of LMS, by a gradient of zero, and by the largest number of steps."""
    X, y = samples(1)
    fast = 1.05 * tp.theory.step_limit("lms", X)
    runs = ("lms", "update", fast, 4000), ("perceptron", "strict", 1, 5), ("logistic", "update", 0.01, 11000)
    common = {"mode": "batch", "order": "given", "seed": 0, "start": ZERO}
    settings = [{**common, "head": head, "tie": tie, "lr": lr} for head, tie, lr, _ in runs]
    return [{"samples": as_json(X, y), "settings": s, "steps": run[-1]} for s, run in zip(settings, runs, strict=True)]


SCORES = torch.tensor([-800.0, -3.5, -1e-9, 0.0, 0.0, 1e-9, 2.0, 800.0, -800.0, 40.0], dtype=torch.float64)
SIGNS = torch.tensor([1, -1, 1, 1, -1, -1, 1, 1, -1, -1])
LIMITS = [(name, size) for name in HEADS for size in (1, 3, 8)]
LINE = torch.tensor([[0.0, 0.0], [0.5, 0.5], [1.0, 1.0]], dtype=torch.float64), torch.tensor([-1, -1, 1])
FRAME = {"x": [-2.0, 2.0], "y": [-1.0, 3.0]}
XOR = tp.data.gate("XOR", dtype=torch.float64)


@pytest.fixture(scope="module")
def answers():
    """All questions to Node at once, by name."""
    asked = {
        "slopes": [{"scores": SCORES.tolist(), "signs": SIGNS.tolist(), "tie": tie} for tie in TIES],
        "path": [
            *({"samples": as_json(X, y), "settings": s, "steps": STEPS} for s, X, y in path_cases()),
            *ending_cases(),
        ],
        "run": [{"samples": as_json(X, y), "settings": s, "steps": STEPS} for s, X, y in net_cases()],
        "starts": [{"samples": as_json(*XOR), "starts": tp.lab.play.content()["starts"]}],
        "limit": [{"head": name, "points": samples(1)[0].tolist(), "size": size} for name, size in LIMITS],
        "optimum": [
            {"samples": as_json(*samples(1)), "bias": None},
            {"samples": as_json(*samples(1)), "bias": 0.5},
            {"samples": as_json(*LINE), "bias": None},
        ],
        "surface": [
            {"samples": as_json(*samples(1)), "head": name, "bias": 0.25, "frame": FRAME, "cells": 16, "level": 1.0}
            for name in HEADS
        ],
    }
    questions = [(name, question) for name, group in asked.items() for question in group]
    found = iter(run_node(("random.js", "net.js"), PROGRAM, questions))
    return {name: [next(found) for _ in group] for name, group in asked.items()}


def test_losses_and_slopes_of_one_sample(answers):
    for tie, heads in zip(TIES, answers["slopes"], strict=True):
        for name, found in zip(HEADS, heads, strict=True):
            s = SCORES.clone().requires_grad_()
            losses = head_of(name, tie).loss(s, SIGNS, reduction="none")
            losses.sum().backward()
            assert [loss for loss, _ in found] == pytest.approx(losses.tolist(), **NEAR)
            assert [slope for _, slope in found] == pytest.approx(s.grad.tolist(), **NEAR)


def test_paths_and_their_gradients_are_those_of_autograd(answers):
    for (settings, X, y), found in zip(path_cases(), answers["path"], strict=False):
        net, head = linear_net(settings["start"]), head_of(settings["head"], settings["tie"])
        losses = descent_by_torch(net, head, X, y, settings, STEPS)
        assert found["losses"] == pytest.approx(losses[: len(found["losses"])], **NEAR), settings
        assert found["ended"] == (None if len(found["losses"]) > STEPS else "still")
        last = found["states"][-1]
        assert [*last["weight"], last["bias"]] == pytest.approx([*net.weight[0].tolist(), net.bias.item()], **NEAR)
        assert found["errors"][-1] == int((head.decide(net(X)) != y).sum())
        for state, move in zip(found["states"], found["moves"], strict=False):
            net, gradient = linear_net(state), move["gradient"]
            loss = head.loss(net(X[move["batch"]]), y[move["batch"]])
            weight, bias = torch.autograd.grad(loss, (net.weight, net.bias))
            own = [loss.item(), *weight[0].tolist(), bias.item()]
            assert [gradient["loss"], *gradient["weight"], gradient["bias"]] == pytest.approx(own, **NEAR)


def test_a_path_says_how_it_ended(answers):
    diverged, still, limit = answers["path"][-3:]
    assert diverged["ended"] == "diverged"
    assert all(map(math.isfinite, diverged["losses"]))
    assert diverged["losses"][-1] > 1e6
    assert (still["ended"], len(still["states"])) == ("still", 2)
    assert (limit["ended"], len(limit["states"])) == ("limit", 10001)


def numbers(net):
    """Parameters of a net of ours, or the same out of the page, as one list."""
    if isinstance(net, nn.Module):
        return torch.cat([parameter.detach().flatten() for parameter in net.parameters()]).tolist()
    return [*itertools.chain(*net["hidden"]["weight"]), *net["hidden"]["bias"], *net["weight"], net["bias"]]


def test_two_layers_start_as_the_seeded_mlp_and_descend_as_by_autograd(answers):
    for (settings, X, y), found in zip(net_cases(), answers["run"], strict=False):
        width, activation = (settings["hidden"],), settings["activation"]
        net = tp.MLP(2, width, activation=activation, init="uniform", seed=settings["seed"], dtype=torch.float64)
        assert numbers(found["net"]) == numbers(net)
        head = head_of(settings["head"], settings["tie"])
        head.loss(net(X), y).backward()
        gradient = torch.cat([parameter.grad.flatten() for parameter in net.parameters()]).tolist()
        assert numbers(found["first"]) == pytest.approx(gradient, **NEAR)
        losses = descent_by_torch(net, head, X, y, settings, STEPS)
        assert found["losses"] == pytest.approx(losses, **NEAR), settings
        assert numbers(found["last"]) == pytest.approx(numbers(net), **NEAR)
        assert found["errors"][-1] == int((head.decide(net(X)) != y).sum())


def test_the_named_starts_do_to_xor_what_their_names_say(answers):
    (found,) = answers["starts"]
    assert {standing for _, standing, _ in found} == {"solved", "plateau", "dead"}
    for said, standing, errors in found:
        assert standing == said
        assert (errors == 0) == (standing == "solved")


def test_the_limit_of_the_learning_rate_is_that_of_theory(answers):
    X = samples(1)[0]
    for (name, size), found in zip(LIMITS, answers["limit"], strict=True):
        limit = tp.theory.step_limit(name, X, batch_size=size)
        assert found is None if math.isinf(limit) else found == pytest.approx(limit, rel=1e-9)


def test_the_lowest_point_of_lms_is_the_closed_form(answers):
    X, y = samples(1)
    free, fixed, line = answers["optimum"]
    net = tp.Perceptron(2, dtype=torch.float64)
    tp.minimise(net, tp.LMSHead(), X, y)
    assert [*free["weight"], free["bias"]] == pytest.approx([*net.weight[0].tolist(), net.bias.item()], rel=1e-9)
    rest = torch.linalg.lstsq(X, y.double()[:, None] - 0.5).solution[:, 0].tolist()
    assert (fixed["weight"], fixed["bias"]) == (pytest.approx(rest, rel=1e-9), 0.5)
    assert line is None  # points on a line leave the weights open


def test_the_surface_and_its_contours(answers):
    X, y = samples(1)
    for name, found in zip(HEADS, answers["surface"], strict=True):
        surface, head = found["surface"], HEADS[name]()
        assert (surface["first"][::16], surface["second"][::16]) == ([-2, 2], [-1, 3])
        for row, column in ((0, 0), (3, 11), (16, 16)):
            net = linear_net({"weight": [surface["first"][column], surface["second"][row]], "bias": 0.25})
            assert surface["values"][row][column] == pytest.approx(head.loss(net(X), y).item(), **NEAR)
        assert surface["low"] == min(map(min, surface["values"]))
        ends = [point for segment in found["segments"] for point in segment]
        assert len(ends) > 8
        losses = [head.loss(linear_net({"weight": w, "bias": 0.25})(X), y).item() for w in ends]
        assert max(abs(loss - 1) for loss in losses) < 0.05  # the level, but for interpolation within a cell
