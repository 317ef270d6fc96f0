"""Note D: any misclassified point, and the pocket
===============================================

Picking any misclassified point, the in-sample error, the pocket.
"""

from __future__ import annotations

import functools
import warnings
from itertools import pairwise

import torch
from _findings import DOUBLE, OPEN, Finding, folded, gate, judged, learn, line, numbers, show, slacks, states, wrong

import torchperc as tp

X, Y = gate("AND")
PICK = {"order": "random-mistake"}


def error_at_the_start() -> Finding:
    zero = torch.zeros(4, dtype=DOUBLE)
    errors = {
        "sign(0) = +1": float(tp.functional.zero_one_loss(zero, Y)),
        "sign(0) = 0": float((zero.sign() != Y).double().mean()),
        "y·s < 0": float(tp.functional.mistakes(zero, Y, tie="strict").double().mean()),
    }
    return Finding(
        "the in-sample error at w = 0",
        "the fraction of points with sign(w·x) ≠ y; sign(0) is not defined.",
        f"AND begins at {errors['sign(0) = +1']:g} with sign(0) = +1, at {errors['sign(0) = 0']:g} with sign(0) = 0, "
        f"and at {errors['y·s < 0']:g} if the note's table (y·w·x < 0 is wrong) decides.",
        OPEN,
        {"errors": errors},
    )


def table_of_cases() -> Finding:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        strict = learn(X, Y, tie="strict", **PICK)
    warning = str(caught[0].message) if caught else ""
    ended = learn(X, Y, tie="sign")
    scores = ended.scores(X).tolist()
    return Finding(
        "the table of right and wrong",
        "a point is misclassified for y·w·x < 0 and right for > 0; a score of 0 has no row.",
        f"From w = 0, where the algorithm begins, no point is ever picked: {strict.mistakes} updates, weights "
        f"{numbers(folded(strict.log.last()))}, while {wrong(strict.predict(X), Y)} of 4 decisions are wrong. "
        f"torchperc warns: “{warning}” At the other end, sign(0) = +1 leaves AND at "
        f"{numbers(folded(ended.log.last()))} with scores {numbers(scores)}: zero error, one point on the line. "
        "Right: y·w·x ≤ 0 is a mistake, or sign(0) is said.",
        judged(strict.mistakes > 0),
        {"updates": strict.mistakes, "warning": warning, "verdict": strict.verdict.name, "scores": scores},
    )


def any_misclassified_point() -> Finding:
    figures = {}
    for tie in ("sign", "update"):
        few, many, ends = _all_picks(tie)
        seen = [learn(X, Y, tie=tie, seed=seed, **PICK) for seed in range(12)]
        figures[tie] = {
            "fewest": few, "most": many, "ends": sorted(ends), "verdicts": {run.verdict.name for run in seen},
            "seen": (min(run.mistakes for run in seen), max(run.mistakes for run in seen)),
            "known ends": {folded(run.log.last()) for run in seen} <= ends,
        }  # fmt: skip
    bound, sign, update = tp.theory.mistake_bound(X, Y), figures["sign"], figures["update"]
    ended = all(row["verdicts"] == {"SEPARATED"} and row["known ends"] for row in figures.values())
    return Finding(
        "any misclassified point may be picked",
        "whichever is taken, the algorithm ends with no error, at one of several solutions.",
        f"All choices there are on AND: {sign['fewest']} to {sign['most']} updates with sign(0) = +1, ending at "
        f"{', '.join(map(numbers, sign['ends']))}; {update['fewest']} to {update['most']} with y·s ≤ 0, ending at "
        f"{', '.join(map(numbers, update['ends']))}. The bound is {bound:.4g}. 12 runs of random picks: "
        f"{sign['seen'][0]} to {sign['seen'][1]} and {update['seen'][0]} to {update['seen'][1]}.",
        judged(ended and max(sign["most"], update["most"]) <= bound),
        figures | {"bound": bound},
    )


def _all_picks(tie: str) -> tuple[int, int, set[tuple[float, ...]]]:
    """Fewest and most updates on AND over all choices of mistakes, and where they end; in whole numbers."""
    points = [((1, *map(int, x)), t) for x, t in zip(X.tolist(), Y.tolist(), strict=True)]

    @functools.cache
    def ahead(w: tuple[int, ...]) -> tuple[int, int, frozenset[tuple[int, ...]]]:
        scores = torch.tensor([sum(a * b for a, b in zip(w, x, strict=True)) for x, _ in points])
        picks = tp.functional.mistakes(scores, Y, tie=tie).nonzero()[:, 0].tolist()
        if not picks:
            return 0, 0, frozenset([w])
        nexts = [ahead(tuple(a + points[i][1] * b for a, b in zip(w, points[i][0], strict=True))) for i in picks]
        return 1 + min(n[0] for n in nexts), 1 + max(n[1] for n in nexts), frozenset().union(*(n[2] for n in nexts))

    fewest, most, ends = ahead((0, 0, 0))
    return fewest, most, {tuple(map(float, end)) for end in ends}


def one_update_may_not_do() -> Finding:
    x, y = line(4, 6), torch.tensor([-1, 1])
    pairs = slacks(learn(x, y, tie="sign", max_epochs=100).log, x)
    still, gained = sum(after < 0 for _, after in pairs), all(after > before for before, after in pairs)
    least = min(after - before for before, after in slacks(learn(X, Y, tie="sign").log, X))
    return Finding(
        "what one update does",
        "y·w·x of the picked point grows, and may still be wrong.",
        f"x = 4 and 6: it grows at all {len(pairs)} updates, {still} leave the point wrong. It grows by ‖x‖², which "
        f"is at least 1 because of x₀ = 1; the least on AND is {least:g}.",
        judged(gained and still > 0),
        {"updates": len(pairs), "still wrong": still, "least gain on AND": least},
    )


def error_on_the_way() -> Finding:
    errors = learn(X, Y, tie="sign").log.errors().tolist()
    rises = sum(after > before for before, after in pairwise(errors))
    return Finding(
        "the in-sample error on the way",
        "training is to minimise it, and each update mends one point; nothing is said of the others.",
        f"Errors on AND, update by update: {numbers(errors)}, of 4. It rises {rises} times; an update may spoil other "
        "points. That is why the pocket is needed at all.",
        OPEN,
        {"errors": errors, "rises": rises},
    )


def inseparable_data() -> Finding:
    x, y = gate("XOR")
    runs = {"given": learn(x, y, tie="sign"), "picks": learn(x, y, tie="sign", max_epochs=50, **PICK)}
    lengths = [sum(value**2 for value in folded(state)) for state in states(runs["picks"].log)]
    return Finding(
        "inseparable data",
        "the training never ends.",
        f"XOR in the order of rows: {runs['given'].verdict.name}, the weights after pass {runs['given'].cycle[0]} come "
        f"back after pass {runs['given'].cycle[1]}. Random picks: {runs['picks'].mistakes} updates and no end; but the "
        f"weights stay small, ‖w‖² ≤ {max(lengths):g}.",
        judged(all(run.verdict.name != "SEPARATED" for run in runs.values())),
        {"verdicts": [r.verdict.name for r in runs.values()], "cycle": runs["given"].cycle, "largest": max(lengths)},
    )


def pocket() -> Finding:
    x, y = gate("XOR")
    given = {tie: int(learn(x, y, tie=tie, max_epochs=1000).log.errors().min()) for tie in ("sign", "update")}
    logs = [learn(x, y, tie="sign", seed=seed, max_epochs=20, **PICK).log for seed in range(20)]
    reached = {after: sum(int(log.errors()[: after + 1].min() == 1) for log in logs) for after in (4, 16, 80)}
    proof = tp.theory.separability(x, y)
    separated = learn(X, Y, tie="sign", select="pocket")
    return Finding(
        "the pocket",
        "keep the best weights so far and stop after some iterations; how many, and how points are picked, is not "
        "said.",
        f"XOR must have 1 error at least ({proof.kind}). Points in the order of rows go round in a circle whose best "
        f"has {given['sign']} errors, forever. Random picks reach 1: in {reached[4]} of 20 runs after 4 updates, in "
        f"{reached[16]} after 16, in {reached[80]} after 80. On AND the pocket has {wrong(separated.predict(X), Y)} "
        "errors.",
        OPEN,
        {"best in row order": given, "runs with 1 error": reached, "errors on AND": wrong(separated.predict(X), Y)},
    )


CHECKS = (
    error_at_the_start, table_of_cases, any_misclassified_point, one_update_may_not_do, error_on_the_way,
    inseparable_data, pocket,
)  # fmt: skip


def main() -> dict[str, Finding]:
    return show("Note D: any misclassified point, and the pocket", CHECKS)


if __name__ == "__main__":
    main()
