"""The commands: each is a function of its options, and its docstring is its help."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import torchperc as tp
from torchperc._checks import Option, ParameterError, check_int, is_sparse
from torchperc._files import atomic_path
from torchperc.cli.output import output_file, print_table, say
from torchperc.learn.apply import apply as apply_model
from torchperc.learn.learn import learn as learn_table
from torchperc.model.model_file import model_file
from torchperc.reports.text import figures, plural, weights

_CROSSCHECK = ("lr", "epochs", "tie", "bias_step", "order", "seed", "mode")
_EXPORTED = {"onnx": "model.onnx", "safetensors": "model.safetensors", "torch": "model.pt2"}


def learn(source: str | list[str], **options: Any) -> None:
    """Learn to classify the samples of a table, or to predict a quantity.

    Classes are learned four times, by the perceptron rule and by gradient on three losses; a quantity three times, by
    least squares, ridge regression and descent. The best on the validation samples is kept and judged once on the test
    samples. The folder of the run has the model, its results and a report; see apply and export.
    """
    from rich.console import Console

    from torchperc.reports.results import comparison

    with Console(stderr=True, highlight=False, markup=False).status("") as status:
        learned = learn_table(source, watch=lambda step: status.update(f"{step} …"), **options)
    best, model, test, folder = learned.best, learned.model, learned.test, shlex.quote(str(learned.folder))
    data = [source] if isinstance(source, str) else source
    count = sum(score.samples for score in (best.training, best.validation, test) if score is not None)
    what, kind, out = f"labels {', '.join(model.labels)}", "error (95 % interval)", "labels.csv"
    if model.regression:
        what, kind, out = f"target {model.target}", "RMSE", "predictions.csv"
    more = f" and {len(data) - 1} more" if len(data) > 1 else ""
    say(f"{data[0]}{more}: {count:,} samples, {len(model.names):,} features, {what}")
    if learned.taken:
        say(f"{learned.taken} (--task classification treats them as classes)")
    head, rows = comparison(learned.candidates, learned.baseline)
    print_table(head, [(f"{row[0]} ◂" if row[0] == best.name else row[0], *row[1:]) for row in rows])
    say(f"◂ kept: {best.name}, the first with the lowest validation {kind}")
    if not model.regression:
        say("rule is the averaged perceptron; its verdict refers to the final epoch")
    for note in learned.notes:
        say(f"Note: {note}.")
    if test is not None:
        say(f"On the held-out test set, {best.name} has {test if model.regression else f'an error of {test}'}.")
    page = learned.folder / "report.html"
    to = "safetensors" if model.encoding is not None and model.encoding.text_columns else "onnx"  # numbers only
    say(f"The run is in {learned.folder}. Next steps:")
    say(f"  apply it     torchperc apply {folder} new{Path(data[0]).suffix or '.csv'} -o {out}")
    say(f"  look at it   {f'open {shlex.quote(str(page))}' if page.is_file() else f'torchperc report {folder}'}")
    say(f"  export it    torchperc export {folder} --to {to}")


def apply(model: str, source: str | list[str], out: str | None = None, **options: Any) -> None:
    """Write a label and its scores, or the predicted number, for every row of a file.

    Columns are found by name; unknown ones are ignored. If the target is there, too, the error is counted.
    """
    if options.get("keep") == []:
        options["keep"] = "all"
    applied = apply_model(model, source, out, **options)
    lines = [] if out is None else [f"{plural(applied.rows, 'label' if applied.labels else 'prediction')} in {out}"]
    named = source if isinstance(source, str) else ", ".join(source[:3]) + ", …" * (len(source) > 3)
    if applied.fit is not None:
        lines.append(f"against {plural(applied.known, 'target')} in {named}: {applied.fit}")
    elif applied.error is not None:
        lines.append(f"{applied.wrong:,} of {applied.known:,} differ from the labels in {named}: error {applied.error}")
    if applied.strange:
        some = ", ".join(map(repr, sorted(applied.strange)[:5])) + ", …" * (len(applied.strange) > 5)
        what = "labels that did not occur in training" if applied.labels else "targets that are no numbers"
        lines.append(f"not counted: rows with {what}, {some}")
    lines += [f"ignored: {', '.join(applied.ignored)}"] if applied.ignored else []
    for line in lines:
        say(line, sys.stderr if out is None else None)


def export(run: str, to: str, out: str | None = None) -> None:
    """Write the model of a run as ONNX, torch.export or safetensors.

    The file goes from raw features to labels: ONNX for onnxruntime, torch.export for torch alone, safetensors with the
    description that torchperc reads. It is run against torch on a thousand samples first and written atomically.
    """
    source = Path(run)
    model_file(source)  # what is not there is refused before torch is imported
    target = output_file(out or (source if source.is_dir() else source.parent) / _EXPORTED[to])
    from torchperc.model.export import save_model

    model = tp.FittedModel.load(source)
    checked = {"onnx": tp.save_onnx, "safetensors": save_model, "torch": tp.save_exported}[to](model, target)
    say(f"{type(model.net).__name__} of {source}: {target}, {checked.size:,} bytes; {checked.sentence}")


def report(run: str, out: str | None = None) -> None:
    """Write one HTML page of a run.

    What was learned, data, verdict with its proof, mistakes against the bound, curves, boundary, confusion, config,
    versions.
    """
    folder = Path(run)
    if not folder.is_dir():
        raise ValueError(f"no such folder: {folder}; name the folder of a run, such as runs/last")
    page = output_file(out or folder / "report.html")
    report_of(folder).save(page)
    say(f"report of {folder}: {page}")


def report_of(folder: Path) -> Any:
    """The report of the run in a folder."""
    from torchperc.reports import results

    if (folder / results.RESULTS).is_file():
        from torchperc.learn.results import report_of as report_of_learn

        return report_of_learn(folder)
    if (folder / results.CONFIG).is_file():
        from torchperc.cli import fit
        from torchperc.reports import runs

        module, data = fit.read(folder / results.CONFIG)
        if not isinstance(module, runs.Module):
            why = f"describes a {type(module).__name__}; a report is of a LitRule, LitClassifier or LitRegressor"
            raise ValueError(f"{folder / results.CONFIG} {why}")
        return runs.of_module(module, data, folder, runs.restore(module, data, folder))
    why = "neither a config.yaml nor a results.json is there"
    raise ValueError(f"{folder} is not a run: {why}; run `torchperc fit` or `torchperc learn` first")


def _load(command: str, data: str, reading: dict[str, Any]) -> Any:
    """A table with labels, by the name of a gate or a data set, or from a file."""
    gate = tp.data.is_gate(data)
    if gate and reading:
        raise ParameterError(Option(*next(iter(reading.items()))), f" needs a file; {data} is a gate")
    table = tp.data.load(data if gate or data in tp.data.SOURCES else Path(data), **reading)
    if table.task == "regression":
        has = table.inferred_task.removesuffix(": regression") or f"the target of {data} is a quantity"
        target = ["--target", str(reading["target"])] if "target" in reading else []
        learn = shlex.join(["torchperc", "learn", data, *target, "--task", "regression"])
        raise ValueError(f"{has}, and torchperc {command} needs classes; to predict numbers: {learn}")
    return table


def crosscheck(data: str, *, dtype: str = "float64", **options: Any) -> None:
    """Compare the rule with autograd, mistake by mistake.

    Runs the perceptron rule and autograd with SGD on the same samples and compares every mistake and every weight. Exit
    code 0 if they are equal, 1 if not.
    """
    how = {"epochs": 20} | {name: options.pop(name) for name in _CROSSCHECK if name in options}
    table = _load("crosscheck", data, options)
    import torch

    X: Any = table.X.toarray() if is_sparse(table.X) else table.X
    check = tp.crosscheck(X, table.y, dtype=getattr(torch, dtype), num_classes=table.classes, **how)
    codes = ("-1", "+1") if table.classes is None else map(str, range(table.classes))
    labels = [f"{label} → {code}" if label != code else label for label, code in zip(table.labels, codes, strict=True)]
    say(f"{data}: {len(table.y)} samples, {table.X.shape[1]} features, labels {', '.join(labels)}")
    for name, log in (("rule", check.rule), ("gradient", check.gradient)):
        last: Any = log.last()
        counts = f"{plural(len(log.epoch_ends), 'epoch')}, {plural(len(log), 'mistake')}"
        say(f"  {name:8}  {counts}, (bias; weights) {weights(last.weight, last.bias)}")
    first = check.first_difference
    if first is None:
        exactly = "to the bit" if check.exact else f"to {check.ulps:.2g} units in the last place"
        say(f"equal: the same {len(check.rule)} mistakes, and the same weights {exactly}")
        return
    sides = (weights(each.weight, each.bias) for each in (first.rule_weights, first.gradient_weights))
    say(
        f"different: first in epoch {first.epoch} at sample {first.sample}; scores {figures(first.rule.scores)} by "
        f"rule, {figures(first.gradient.scores)} by gradient; weights {' and '.join(sides)}"
    )
    raise SystemExit(1)


def separable(
    data: str, no_bias: bool = False, time_limit: float | None = None, out: str | None = None, **reading: Any
) -> None:
    """Prove whether a hyperplane separates the classes.

    The proof is in exact arithmetic, by the hyperplane or by a point in both convex hulls. Exit code 0 if it was
    decided either way, 1 if not. A proof in a file can be checked without torchperc's solver.
    """
    target, table = None if out is None else output_file(out), _load("separable", data, reading)
    how = {"bias": not no_bias, "num_classes": table.classes, "time_limit": time_limit}
    certificate = replace(tp.theory.separability(table.X, table.y, **how), labels=table.labels)
    say(f"{data}: {len(table.y):,} samples, {table.X.shape[1]:,} features, labels {', '.join(table.labels)}")
    witness = [] if certificate.witness is None else sorted({1 + sample for sample in certificate.witness.samples})
    rows = f" (row{'s' * (len(witness) > 1)} {', '.join(map(str, witness))} of the data)"
    say(f"{certificate}{rows if 0 < len(witness) <= 12 else ''}")
    if target is not None:
        certificate.save(target)
        check = f"torchperc.theory.Certificate.load({str(target)!r}).verify(X, y)"
        if Path(data).is_file() and reading.keys() <= {"target"}:
            words = [str(target), data, *(["--target", reading["target"]] if reading else [])]
            check = f"{shlex.join(['python', '-m', 'torchperc.theory.verifier', *words])}, or in Python {check}"
        say(f"the proof is in {target}; to check it: {check}")
    raise SystemExit(1 if certificate.separable is None else 0)


def demo(out: str = "runs/demo") -> None:
    """Show a tour: AND, XOR, noisy data, by rule and by gradient.

    AND learned by rule and by gradient, side by side; XOR, which one layer cannot learn and two can; noisy data. Prints
    the tour; writes pictures, event files for TensorBoard and a report of each run.
    """
    tp.lab.demo.demo(Path(out))


def play(
    out: str | None = None,
    data: str | None = None,
    log: str | None = None,
    features: list[str] | None = None,
    samples: int | None = None,
    **reading: Any,
) -> None:
    """Open an interactive page: points, mistakes, conventions, proofs.

    Writes one self-contained HTML page and opens it in the browser: put down points, step through the mistakes of the
    perceptron rule, switch conventions, see the proof, the gradient and a two-layer net. It needs no network and sends
    nothing.
    """
    from torchperc.lab.play.page import Play, content

    if log is not None and not Path(log).is_file():
        raise ValueError(f'--log {log} is no file; name the log that result.log.save("run.npz") wrote')
    if data is None and log is not None and not log.lower().endswith(".json"):
        raise ValueError(f"{log} holds no data; name the file that it was made on by --data FILE")
    if samples and log:
        raise ParameterError(Option("samples", samples), " draws from --data; a log is replayed with all its samples")
    about = {**reading, "samples": samples, "features": None if log else features}
    if data is None and (told := [Option(*each) for each in about.items() if each[1] is not None]):
        raise ParameterError(told[0], " is about data; name it by --data FILE")
    page = None if out is None else output_file(out)
    if data is None and log is None:  # torch is not needed
        made = Play(content())
    else:
        from torchperc.lab.play.data import content_of_data, content_of_log, load_log

        table: Any = None if data is None else _load("play", data, reading)
        if log is None:
            made = Play(content_of_data(table, features=features, samples=samples))
        else:
            recorded, more = load_log(Path(log), table)
            made = Play(content_of_log(recorded, table=table, features=features, **more))
    say(f"the page: {made.open() if page is None else made.save(page)}")


def xor(
    seeds: int = 1000,
    hidden: Sequence[int] = (2, 4),
    activation: Sequence[str] = ("tanh", "relu"),
    steps: int = 5000,
    method: str = "gradient",
    out: str = "runs/xor",
) -> None:
    """Train thousands of small nets on XOR at once.

    Trains 2-h-1 nets on the logistic loss by full-batch gradient descent, from many seeds at once, for every
    combination of the values given. Prints how many solve it and how the others fail; writes pictures. Other methods
    build nets of step units by the rule, one per seed.
    """
    check_int("seeds", seeds, at_least=1)
    if method != "gradient" and ([*hidden], [*activation], steps) != ([2, 4], ["tanh", "relu"], 5000):
        why = " builds nets unit by unit; leave out --hidden, --activation and --steps"
        raise ParameterError(Option("method", method), why)
    from torchperc.lab.xor import KINDS, train
    from torchperc.lab.xor_figures import plot_boundary, plot_curves

    rows, pictures = list[tuple[str, ...]](), dict[str, Any]()
    head: tuple[str, ...] = ("hidden", "activation", "solved %", "95 % interval", *KINDS[1:])
    if method != "gradient":
        (X, y), hidden, head = tp.data.gate("XOR"), (), ("method", "solved %", "units", "mean updates")
        built = [tp.rules.build(X, y, method, seed=seed) for seed in range(seeds)]
        units, right = [each.net.units for each in built], 100 * sum(not each.errors for each in built) / seeds
        pictures["steps.png"] = tp.plots.PathDisplay.from_build(built[0], X, y, names=("x₁", "x₂")).figure_
        updates = sum(each.updates for each in built) / seeds
        rows.append((method, f"{right:.1f}", f"{min(units)}–{max(units)}", f"{updates:.1f}"))
    for width, name in dict.fromkeys(product(hidden, activation)):
        result = train(range(seeds), width, name, steps=steps)
        pictures[f"curves-{width}-{name}.png"] = plot_curves(result)
        if "solved" in result.kinds and "boundary.png" not in pictures:
            pictures["boundary.png"] = plot_boundary(result.net(result.kinds.index("solved")))
        solved = f"{100 * result.success_rate:.1f}", "–".join(f"{100 * bound:.1f}" for bound in result.interval)
        rows.append((str(width), name, *solved, *(f"{result.counts[kind]:,}" for kind in KINDS[1:])))
    Path(out).mkdir(parents=True, exist_ok=True)
    for name, picture in pictures.items():
        with atomic_path(Path(out, name)) as part:
            picture.savefig(part, format="png")
    say(f"XOR from {seeds:,} seeds, {f'{steps:,} full-batch steps' if hidden else 'nets built by the rule'}")
    print_table(head, rows)
    say(f"pictures are in {out}")
