"""Note C: costs, stability, votes and many classes
================================================

Costs, the rule, separability, the three data sets, stability, votes and averages, many classes.
"""

from __future__ import annotations

import torch
from _findings import (
    DOUBLE,
    MANGLED,
    OPEN,
    WRONG,
    Finding,
    folded,
    gate,
    judged,
    learn,
    line,
    numbers,
    show,
    slacks,
    wrong,
    yes,
)  # fmt: skip

import torchperc as tp

X, Y = gate("AND")
NOTE_C = {"tie": "sign"}  # score ≥ 0 is decided +1, and a mistake is a wrong decision


def roles_of_the_labels() -> Finding:
    missed, healthy = torch.tensor([-1.0]), torch.tensor([1.0])  # one patient, predicted and gold
    costs = [float(tp.functional.cost_loss(a, b, fp=1, fn=10)) for a, b in ((missed, healthy), (healthy, missed))]
    return Finding(
        "which of ŷ and y* is the gold label",
        "ŷ with the loss functions, y* in the evaluation, where ŷ = f(x); and y* is predicted by the decision "
        "function.",
        f"0/1 loss does not mind, a weighted one does: with γ₁ = 1 and γ₂ = 10 a missed patient costs {costs[0]:g} by "
        f"one reading and {costs[1]:g} by the other. Right: f(x) is predicted, and the table's “gold” is the other.",
        judged(costs[0] == costs[1]),
        {"costs": costs},
    )


def zero_one_loss() -> Finding:
    scores = learn(X, Y, **NOTE_C).scores(X)
    printed = float((tp.functional.decide(scores) == Y).double().mean())
    right = float(tp.functional.zero_one_loss(scores, Y))
    return Finding(
        "the 0/1 loss",
        "an indicator of ŷ = y*, spelt out below as 1 for ŷ ≠ y*.",
        f"Weights that decide AND rightly have the mean {printed:g} by the indicator, {right:g} by the cases. Right: "
        "the cases; the stroke of ≠ may be lost.",
        judged(printed == right),
        {"printed": printed, "right": right},
    )


def squared_error() -> Finding:
    pairs = [(a, b) for a in (-1, 1) for b in (-1, 1)]
    products, differences = [(a * b) ** 2 for a, b in pairs], [(a - b) ** 2 for a, b in pairs]
    return Finding(
        "the squared error",
        "(y* ŷ)², without a sign between them.",
        f"As a product it is {products} for labels −1/+1, never 0, against ℓ(y, y) = 0 on the same page; as a "
        f"difference {differences}. The minus is lost.",
        judged(products == differences, MANGLED),
        {"products": products, "differences": differences},
    )


def costs() -> Finding:
    loss = tp.CostLoss(fp=1.0, fn=10.0, reduction="none")
    predicted, gold = torch.tensor([1.0, 1, -1, -1]), torch.tensor([1, -1, 1, -1])
    table = loss(predicted, gold).tolist()
    return Finding(
        "two kinds of error",
        "0, γ₁ for a false positive, γ₂ for a false negative, 0; a miss is worse, so γ₂ > γ₁.",
        f"With γ₁ = 1 and γ₂ = 10 the table's rows cost {numbers(table)}.",
        judged(table == [0, 1, 10, 0]),
        {"table": table},
    )


def and_by_rule() -> Finding:
    result = learn(X, Y, **NOTE_C)
    weights = folded(result.log.last())
    return Finding(
        "the algorithm on AND",
        "w = 0, a mistake where sign(w·x) ≠ y, sign(0) = +1, until there are no errors.",
        f"w = {numbers(weights)} after {result.mistakes} mistakes, pass {result.epochs} being clean.",
        judged(result.verdict.name == "SEPARATED"),
        {"weights": weights, "mistakes": result.mistakes, "passes": result.epochs},
    )


def one_correction() -> Finding:
    x, y = line(4, 6), torch.tensor([-1, 1])
    after = [value for _, value in slacks(learn(x, y, **NOTE_C).log, x)]
    still = sum(value < 0 for value in after)
    return Finding(
        "what a correction does",
        "changes the parameters so that the right label is predicted.",
        f"x = 4 and 6: {still} of {len(after)} corrections leave their sample wrong, by up to {-min(after):g}. Right: "
        "the score moves to the right side by ‖x‖², with the constant feature, however far that is.",
        judged(still == 0),
        {"still wrong": still, "corrections": len(after)},
    )


def gain_of_an_update() -> Finding:
    log = learn(X, Y, **NOTE_C).log
    gains = [after - before for before, after in slacks(log, X)]
    exact = gains == [float(X[m.sample].square().sum() + 1) for m in log]
    bare = learn(X, Y, bias=False, **NOTE_C)
    never = tp.theory.separability(X, Y, bias=False)
    return Finding(
        "F(x; w′) − F(x; w) = y·‖x‖², with ‖x‖² > 0",
        "the brackets of x·(w′ − w) are lost on the way; a constant feature is usual, not required.",
        f"Exact at all {len(gains)} updates of AND: {yes(exact)}. ‖x‖² > 0 needs x ≠ 0: without the constant feature "
        f"row (0, 0) never changes its score, and AND is {bare.verdict.name}, {never.kind}.",
        judged(exact),
        {"exact": exact, "without a constant": (bare.verdict.name, never.kind)},
    )


def separable_or_not() -> Finding:
    figures = {name: tp.theory.separability(*gate(name)) for name in ("AND", "XOR")}
    sure, proof = figures["AND"], figures["XOR"]
    weight, bias = sure.hyperplane.tensors()
    alpha = proof.witness.alpha
    return Finding(
        "whether data are separable",
        "one has to try.",
        f"A linear programme decides it, with a proof that is checked in exact fractions. AND: {sure.kind}, by "
        f"{numbers((*bias.tolist(), *weight[0].tolist()))}. XOR: {proof.kind}, as α = ({', '.join(map(str, alpha))}) "
        f"puts {numbers(map(float, proof.point()))} in both hulls. Both proofs hold: "
        f"{yes(sure.verify() and proof.verify())}. A run by rule proves a no only if its exact state comes back.",
        judged(sure.separable is None or proof.separable is None),
        {"kinds": [sure.kind, proof.kind], "alpha": alpha, "point": proof.point(),
         "verified": [sure.verify(), proof.verify()]},
    )  # fmt: skip


def proofs_for_inseparable_data() -> Finding:
    x, y = _shuffled_blobs(400, noise=0.01, seed=0)
    plane = tp.theory.max_margin(*tp.data.separable_blobs(400, seed=0))  # before labels are turned round
    u, b = plane.weight, plane.bias
    bound = min(tp.theory.inseparable_bound(x, y, (u, b), gamma, passes=5) for gamma in (0.5, 1.0, 2.0))
    made = learn(x, y, max_epochs=5, **NOTE_C)
    xor = learn(*gate("XOR"), order="shuffled", max_epochs=200, **NOTE_C)
    longest = max(record.norm for record in xor.history) ** 2
    return Finding(
        "what is proved of inseparable data",
        "tricks, and no proof.",
        "Mistakes are bounded by ((R + D)/γ)² there as well: 400 blobs, 4 labels turned round, 5 passes: "
        f"{made.mistakes} ≤ {bound:.0f} out of {made.log.steps}. And the weights stay bounded: XOR, {xor.epochs} "
        f"passes in any order, {xor.mistakes} mistakes, ‖w‖² ≤ {longest:.0f} after each pass.",
        judged(not (made.mistakes <= bound < made.log.steps)),
        {"mistakes": made.mistakes, "bound": bound, "steps": made.log.steps, "longest": longest},
    )


def link_to_generalisation() -> Finding:
    rates, errors, size = [], [], 100
    for seed in range(20):
        x, y = _shuffled_blobs(1100, noise=0.1, seed=seed)
        log = learn(x[:size], y[:size], max_epochs=1, **NOTE_C).log
        before = torch.searchsorted(log.step, torch.arange(size))  # the state that meets each sample
        rates.append(len(log) / size)
        errors.append(float(log.errors(x[size:], y[size:])[before].mean()) / (len(y) - size))
    gap = torch.tensor(rates) - torch.tensor(errors)
    mean, spread = float(gap.mean()), float(gap.std()) / len(gap) ** 0.5
    rate, error = sum(rates) / len(rates), sum(errors) / len(errors)
    return Finding(
        "learning error and generalisation error",
        "no connection for the perceptron, and no guarantee.",
        f"Every sample of a first pass is new to the weights that meet it, so mistakes/N estimates their mean error "
        f"without bias: {100 * rate:.1f} % against {100 * error:.1f} % on 1000 fresh samples (20 data sets, difference "
        f"{100 * mean:.1f} % ± {100 * spread:.1f} %). With a margin γ the rate is at most (R/γ)²/N.",
        judged(abs(mean) > 3 * spread),
        {"mistake rate": rate, "error": error, "difference": mean, "spread": spread},
    )


def three_data_sets() -> Finding:
    x, y = _shuffled_blobs(300, noise=0.1, seed=4)
    train, validation, test = tp.data.split(y, (0.6, 0.2, 0.2), seed=0)
    net = tp.Perceptron(2, dtype=DOUBLE)
    trainer = tp.dialects.NOTE_C.trainer(max_epochs=20)
    result = trainer.fit(net, x[train], y[train], validation=(x[validation], y[validation]))
    errors = [record.validation_error for record in result.history]
    kept = wrong(net.predict(x[validation]), y[validation]) / len(validation)
    return Finding(
        "training, validation and test set",
        "keep the parameters with the lowest validation error; but the algorithm computes that error and keeps "
        "nothing.",
        f"300 noisy blobs, 20 epochs: validation error {100 * errors[-1]:.1f} % at the end, {100 * max(errors):.1f} % "
        f"at the worst, {100 * min(errors):.1f} % after epoch {1 + errors.index(min(errors))}, whose weights are kept: "
        f"{100 * kept:.1f} %. On the test set, once: "
        f"{100 * wrong(net.predict(x[test]), y[test]) / len(test):.1f} %. Right: store a copy when the error falls.",
        OPEN,
        {"last": errors[-1], "worst": max(errors), "best": min(errors), "kept": kept},
    )


def error_of_the_chosen() -> Finding:
    firsts, bests = [], []
    for seed in range(20):
        coin = torch.Generator().manual_seed(seed)
        x, y = torch.randn(60, 5, generator=coin, dtype=DOUBLE), torch.randint(2, (60,), generator=coin) * 2 - 1
        trainer = tp.dialects.NOTE_C.trainer(max_epochs=10)
        run = trainer.fit(tp.Perceptron(5, dtype=DOUBLE), x[:30], y[:30], validation=(x[30:], y[30:]))
        firsts.append(run.history[0].validation_error)
        bests.append(min(record.validation_error for record in run.history))
    first, best = sum(firsts) / 20, sum(bests) / 20
    return Finding(
        "the estimate on held-out data",
        "unbiased, by the central limit theorem.",
        f"Labels by the toss of a coin, so any classifier's error is 50 %: the first epoch's validation error is "
        f"{100 * first:.1f} % on average, that of the best of 10 epochs {100 * best:.1f} %. Unbiased only while "
        "nothing was chosen by it, hence the test set; and the theorem gives the width of the estimate, not its mean.",
        judged(abs(best - 0.5) < 0.03, OPEN),
        {"first": first, "best": best},
    )


def stability() -> Finding:
    x, y = tp.data.separable_blobs(9999, seed=0)
    plane = tp.theory.max_margin(x, y).weight
    far = -50 * plane / plane.norm()  # on the wrong side
    x, y = torch.cat((x, far)), torch.cat((y, torch.tensor([1])))
    given = learn(x, y, max_epochs=1, **NOTE_C).log
    before, after = given.errors()[-2:].tolist()
    mixed = learn(x, y, max_epochs=1, order="shuffled", **NOTE_C).log
    errors = {"before": before, "after": after, "shuffled": float(mixed.errors()[-1])}
    errors |= {"averaged": wrong(given.averaged().predict(x), y)}
    errors |= {"shuffled, averaged": wrong(mixed.averaged().predict(x), y)}
    return Finding(
        "one bad sample at the end of 10,000",
        "100, then 9,899 without an error; the update at the 10,000th destroys what was right for 99.99 % of them.",
        f"100 + 9,899 + 1 = 10,000, and 9,999 of them are 99.99 %. Run: {before:.0f} wrong before the last sample, "
        f"{after:.0f} after it, {errors['averaged']} by the averaged weights. Shuffled, the sample comes earlier: "
        f"{errors['shuffled']:.0f} wrong at the end, {errors['shuffled, averaged']} averaged.",
        judged(after > 9000 and max(errors["averaged"], errors["shuffled"]) < 100),
        {"errors": errors},
    )


def vote_always_better() -> Finding:
    x, y = line(-3, -2, -1), torch.tensor([-1, -1, 1])
    result = learn(x, y, **NOTE_C)
    errors = {"last": wrong(result.predict(x), y), "voted": wrong(result.log.voted().predict(x), y)}
    totals, worse = {"last": 0, "voted": 0}, 0
    for seed in range(12):
        blobs, labels = _shuffled_blobs(560, noise=0.1, seed=seed)
        log = learn(blobs[:60], labels[:60], max_epochs=5, **NOTE_C).log
        found = {name: wrong(getattr(log, name)().predict(blobs[60:]), labels[60:]) for name in totals}
        worse += found["voted"] > found["last"]
        totals = {name: totals[name] + found[name] for name in totals}
    return Finding(
        "the vote against the last weights",
        "the vote's generalisation error is always lower; proved.",
        f"Often, not always: if x = −3, −2, −1 (the last +1) are all there is, the vote has {errors['voted']} of 3 "
        f"wrong and the last weights {errors['last']}. Noisy blobs, 12 data sets: {totals['voted'] / 60:.1f} % "
        f"against {totals['last'] / 60:.1f} %, yet worse in {worse}. What is proved is an upper bound.",
        judged(errors["voted"] <= errors["last"] and not worse),
        {"errors": errors, "totals": totals, "worse": worse},
    )


def averaged_algorithm() -> Finding:
    weights, total, steps = torch.zeros(3, dtype=DOUBLE), torch.zeros(3, dtype=DOUBLE), 0
    rows = tp.functional.homogeneous(X, "first")
    for _ in range(50):
        errors = False
        for row, label in zip(rows, Y, strict=True):
            if tp.functional.decide(row @ weights) != label:
                weights, errors = weights + label * row, True
            total, steps = total + weights, steps + 1
        if not errors:
            break
    log = learn(X, Y, **NOTE_C).log
    same = torch.allclose(total, steps * torch.tensor(folded(log.averaged()), dtype=DOUBLE), rtol=1e-12)
    x, y = gate("NOR")
    nor = learn(x, y, **NOTE_C)
    left = wrong(nor.log.averaged().predict(x), y)
    return Finding(
        "the averaged perceptron",
        "a ← a + w after every sample, until w makes no errors; a is not divided, and decides in the end.",
        f"AND: a = {numbers(total)} after {steps} samples, the same as one weighted sum over the log: {yes(same)}; "
        f"dividing changes no decision. But the loop looks at w: on NOR w has {wrong(nor.predict(x), y)} errors at "
        f"the end, a has {left}. And on inseparable data it has no end.",
        judged(same and left == 0, OPEN),
        {"total": tuple(total.tolist()), "steps": steps, "same": same, "errors of a on NOR": left},
    )


def vote_and_average() -> Finding:
    cases = {}
    for scores in ((1.0, -1.0, 1.0), (1.0, -3.0, 1.0)):
        s = torch.tensor(scores)
        cases[scores] = int(tp.functional.decide(s).sum().sign()), int(tp.functional.decide(s.mean()))
    return Finding(
        "three weight vectors, two against one",
        "the vote is +; the average is + if the negative score is not too large.",
        "; ".join(f"scores {numbers(s)}: vote {sign(v)}, average {sign(a)}" for s, (v, a) in cases.items())
        + ". Exactly: if it is smaller than the other two together.",
        judged(list(cases.values()) == [(1, 1), (1, -1)]),
        {"cases": cases},
    )


def many_classes() -> Finding:
    x = torch.tensor([[0, 0], [1, 0], [4, 0], [5, 1], [0, 4], [1, 5]], dtype=DOUBLE)
    y = torch.tensor([0, 0, 1, 1, 2, 2])
    figures: dict[str, tuple[int, bool]] = {}
    for tie in ("sign", "update"):
        rows, joint = tp.MulticlassPerceptron(2, 3, dtype=DOUBLE), tp.JointPerceptron(2, 3, dtype=DOUBLE)
        results = [tp.RuleTrainer(tie=tie).fit(net, x, y) for net in (rows, joint)]
        blocks = tp.functional.fold_bias(rows.weight.detach(), rows.bias.detach())
        same = results[0].log.equals(results[1].log) and torch.equal(joint.weight[0], blocks.flatten())
        figures[tie] = results[0].mistakes, same
    return Finding(
        "many classes in two ways",
        "a vector for each class, or one over joint features; the decision is given, no update and no word on ties.",
        f"The same mistakes and weights either way: {yes(figures['sign'][1] and figures['update'][1])}. The update "
        f"that is missing: w_y + x, and w_r − x for the strongest wrong r. Ties matter: {figures['sign'][0]} mistakes "
        f"if the lowest class wins them, {figures['update'][0]} if a tie is a mistake.",
        OPEN if all(same for _, same in figures.values()) else WRONG,
        {"mistakes": {tie: made for tie, (made, _) in figures.items()}, "same": all(s for _, s in figures.values())},
    )


def sign(label: int) -> str:
    return "+" if label > 0 else "−"


def _shuffled_blobs(samples: int, noise: float, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Noisy blobs in random order: the wrong labels are not where one would cut off a part."""
    x, y = tp.data.noisy_blobs(samples, noise=noise, seed=seed)
    order = torch.randperm(samples, generator=torch.Generator().manual_seed(seed))
    return x[order], y[order]


CHECKS = (
    roles_of_the_labels, zero_one_loss, squared_error, costs, and_by_rule, one_correction, gain_of_an_update,
    separable_or_not, proofs_for_inseparable_data, link_to_generalisation, three_data_sets, error_of_the_chosen,
    stability, vote_always_better, averaged_algorithm, vote_and_average, many_classes,
)  # fmt: skip


def main() -> dict[str, Finding]:
    return show("Note C: losses, data sets, votes and averages, many classes", CHECKS)


if __name__ == "__main__":
    main()
