"""The commands: each is a function, whose signature and docstring make its options and its help."""

from __future__ import annotations

import functools
import inspect
import json
import shlex
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import torchperc as tp
from torchperc._checks import Option, ParameterError, check_int, is_sparse
from torchperc._files import atomic_path, write_atomically
from torchperc.cli.output import output_file, output_folder, print_table, say, spelled
from torchperc.learn.apply import apply as apply_model
from torchperc.learn.learn import learn as learn_table
from torchperc.model.model_file import model_file
from torchperc.reports.text import figures, plural, weights

if TYPE_CHECKING:
    from torchperc.reports import Report

CONFIGURED_HELP = """\
usage: torchperc {command} --config FILE [options]

{what}, as Lightning's own command line does; options override the config, later configs earlier ones.

options:
  --config FILE              YAML with model, data and trainer; may be given several times
  --out FOLDER               folder of the run: event files, checkpoint, weights (default: runs/last)
  --ckpt-path FILE           checkpoint to resume from, or to validate, test or predict with
  --seed-everything N        random seed (default: 0)
  --data.source FILE         data set by name, or a file
  --model.init_args.lr X     learning rate; other arguments of the module likewise
  --trainer.max_epochs N     maximum number of epochs (default: 100)
  --trainer.accelerator NAME cpu, gpu or auto; --trainer.devices N of them
  --picture-every N          epochs between pictures (default: 10; 0: none)
  --print_config             print the whole config and stop
  --help.all                 every option of module, data and Trainer (takes some seconds)"""
_SHOWN = 12  # rows of a witness that are listed one by one
_EXPORTED = {"onnx": "model.onnx", "safetensors": "model.safetensors", "torch": "model.pt2"}


@functools.wraps(learn_table)
def learn(source: Any, **options: Any) -> None:
    """Learn from a table and show the comparison."""
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
        other = "classification treats them as classes" if model.regression else "regression predicts numbers"
        say(f"{learned.taken} (--task {other})")
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


@functools.wraps(apply_model)
def apply(model: str, source: str | list[str], out: str | None = None, **options: Any) -> None:
    """Apply a model to files and say how many rows there were, and how many are wrong."""
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


def export(run: str, *, to: Literal["onnx", "safetensors", "torch"], out: str | None = None) -> None:
    """Write the model of a run as ONNX, torch.export or safetensors.

    The file goes from raw features to labels: ONNX for onnxruntime, torch.export for torch alone, safetensors with the
    description that torchperc reads. It is run against torch on a thousand samples first and written atomically.

    Args:
        run: the folder of a run, or its weights.safetensors
        to: kind of file
        out: the file (default: model.onnx, model.pt2 or model.safetensors in the run)
    """
    source = Path(run)
    model_file(source)  # what is not there is refused before torch is imported
    target = output_file(out or (source if source.is_dir() else source.parent) / _EXPORTED[to])
    from torchperc.model.export import save_model

    model = tp.FittedModel.load(source)
    checked = {"onnx": tp.save_onnx, "safetensors": save_model, "torch": tp.save_exported}[to](model, target)
    say(f"{type(model.net).__name__} of {source}: {target}, {checked.size:,} bytes; {checked.sentence}")


def report(run: str, *, out: str | None = None, card: str | None = None) -> None:
    """Write one HTML page of a run, or of several.

    What was learned, data, verdict with its proof, mistakes against the bound, curves, boundary, confusion, config,
    versions. A folder with several runs below it gets one page of all of them.

    Args:
        run: the folder of a run, or one with runs directly below it
        out: the page (default: report.html in the folder)
        card: write the same content as Markdown to this file, too
    """
    folder = Path(run)
    if not folder.is_dir():
        raise ValueError(f"no such folder: {folder}; name the folder of a run, such as runs/last")
    page = output_file(out or folder / "report.html")
    markdown = None if card is None else output_file(card, "card")
    report_of(folder).save(page, markdown)
    say(f"report of {folder}: {page}{'' if markdown is None else f', model card: {markdown}'}")


def report_of(folder: Path) -> Report:
    """The report of a folder: of its run, or of the runs below it."""
    from torchperc.reports import results

    title, found = folder.resolve().name or str(folder), results.runs_below(folder)
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
        return runs.of_module(title, module, data, folder=folder, sentence=runs.restore(module, data, folder))
    if not found:
        why = "neither a config.yaml nor a results.json is there, or in a folder below"
        raise ValueError(f"{folder} is not a run: {why}; run `torchperc fit` or `torchperc learn` first")
    from torchperc.reports.sections import curve_blocks

    curves = tp.reports.Section("All runs", curve_blocks({path.name: results.curves_of(path) for path in found}))
    lead = f"{plural(len(found), 'run')}: {', '.join(path.name for path in found)}."
    return tp.reports.Report.joined(title, lead, [report_of(path) for path in found], curves)


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


def crosscheck(
    data: str,
    *,
    lr: float = 1.0,
    epochs: int = 20,
    tie: Literal["update", "sign", "strict"] = "update",
    bias_step: Literal["unit", "radius", "none"] = "unit",
    order: Literal["given", "shuffled", "random-mistake"] = "given",
    seed: int = 0,
    dtype: Literal["float32", "float64"] = "float64",
    mode: Literal["sample", "batch"] = "sample",
    **reading: Any,
) -> None:
    """Compare the rule with autograd, mistake by mistake.

    Runs the perceptron rule and autograd with SGD on the same samples and compares every mistake and every weight. Exit
    code 0 if they are equal, 1 if not.

    Args:
        data: AND, OR, NAND, NOR, XOR, XNOR, parity-n, iris, …, or a file: CSV, TSV, Parquet, svmlight, .npy or .npz
        lr: learning rate η of both sides
        epochs: maximum number of epochs
        tie: what is a mistake
        bias_step: how the bias moves
        order: of the samples
        seed: of the order
        dtype: of the weights
        mode: a step per sample, or per batch
    """
    table = _load("crosscheck", data, reading)
    import torch

    X: Any = table.X.toarray() if is_sparse(table.X) else table.X
    how: dict[str, Any] = {"tie": tie, "order": order, "seed": seed, "bias_step": bias_step, "mode": mode, "lr": lr}
    how |= {"epochs": epochs, "dtype": getattr(torch, dtype), "num_classes": table.classes}
    check = tp.crosscheck(X, table.y, **how)
    codes = ("-1", "+1") if table.classes is None else map(str, range(table.classes))
    pairs = zip(table.labels, codes, strict=True)
    labels = ", ".join(f"{label} → {code}" if label != code else label for label, code in pairs)
    samples, features = table.X.shape
    say(f"{data}: {samples} samples, {features} features, labels {labels}")
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
    data: str,
    *,
    no_bias: bool = False,
    time_limit: float | None = None,
    out: str | None = None,
    verify: str | None = None,
    **reading: Any,
) -> None:
    """Prove whether a hyperplane separates the classes.

    The proof is in exact arithmetic, by the hyperplane or by a point in both convex hulls. Exit code 0 if it was
    decided either way, 1 if not. With --verify: checks a proof by the standard library alone; exit code 0 if it holds,
    1 if not.

    Args:
        data: CSV, TSV (also .gz), Parquet, svmlight, .npy or .npz; or AND, OR, NAND, NOR, XOR, XNOR, parity-n, iris, …
        no_bias: hyperplanes through the origin only
        time_limit: seconds before giving up (default: no limit)
        out: write the proof to a JSON file
        verify: check the proof in this file instead
    """
    if verify is not None:
        for name, given in (("out", out), ("time_limit", time_limit), ("no_bias", no_bias or None)):
            if given is not None:
                why = " needs a new proof, not --verify; a proof in a file says itself whether there is a bias"
                raise ParameterError(Option(name, given), why)
        raise SystemExit(_verify(data, verify, reading))
    target, table = None if out is None else output_file(out), _load("separable", data, reading)
    how = {"bias": not no_bias, "num_classes": table.classes, "time_limit": time_limit}
    certificate = replace(tp.theory.separability(table.X, table.y, **how), labels=table.labels)
    samples, features = table.X.shape
    say(f"{data}: {samples:,} samples, {features:,} features, labels {', '.join(table.labels)}")
    witness = [] if certificate.witness is None else sorted({1 + sample for sample in certificate.witness.samples})
    rows = f" (row{'s' * (len(witness) > 1)} {', '.join(map(str, witness))} of the data)"
    say(f"{certificate}{rows if 0 < len(witness) <= _SHOWN else ''}")
    if target is not None:
        certificate.save(target)
        words = [shlex.join([str(target), data]), *(spelled(Option(*each), reading) for each in reading.items())]
        say(f"the proof is in {target}; to check it: torchperc separable --verify {' '.join(words)}")
    raise SystemExit(1 if certificate.separable is None else 0)


def _verify(data: str, proof: str, reading: dict[str, Any]) -> int:
    """Check a proof by the standard library; files that are no plain tables by torchperc."""
    from torchperc.theory import verifier  # needs neither torch nor numpy

    try:
        if set(reading) <= {"target"}:
            say(str(verifier.verify_file(proof, data, reading.get("target"))))
            return 0
    except verifier.RejectedError as reason:
        say(f"rejected: {' '.join(str(reason).split())}")
        return 1
    except ValueError:  # no plain table of numbers; whatever is wrong besides, the other way says
        verifier.read_certificate(proof)
    certificate, table = tp.theory.Certificate.load(proof), _load("separable", data, reading)
    error = certificate.verification_error(table.X, table.y)
    if certificate.labels != table.labels:
        error = f"it is about labels {', '.join(certificate.labels)}, the data have {', '.join(table.labels)}"
    say(f"{certificate.kind}: the proof holds" if error is None else f"rejected: {error}")
    return 0 if error is None else 1


def demo(*, out: str = "runs/demo") -> None:
    """Show a tour: AND, XOR, noisy data, by rule and by gradient.

    AND learned by rule and by gradient, side by side; XOR, which one layer cannot learn and two can; noisy data. Prints
    the tour; writes pictures, event files for TensorBoard and report.html.

    Args:
        out: folder of the files
    """
    tp.lab.demo.demo(Path(out))


def play(
    *,
    out: str | None = None,
    data: str | None = None,
    log: str | None = None,
    features: tuple[str, str] | None = None,
    samples: int | None = None,
    **reading: Any,
) -> None:
    """Open an interactive page: points, mistakes, conventions, proofs.

    Writes one self-contained HTML page and opens it in the browser: put down points, step through the mistakes of the
    perceptron rule, switch conventions, see the proof, the gradient and a two-layer net. It needs no network and sends
    nothing.

    Args:
        out: write the page to this file, and open nothing
        data: begin with these points: a file; or AND, XOR, iris, …; two features, up to four classes
        log: replay a recorded run: a log that MistakeLog.save wrote (.npz, with --data for its data) or JSON
        features: the two features to be shown, by name or position from 1, where there are more
        samples: number to draw at random
    """
    from torchperc.lab.play.page import Play, content

    if log is not None and not Path(log).is_file():
        raise ValueError(f'--log {log} is no file; name the log that result.log.save("run.npz") wrote')
    if data is None and log is not None and not log.lower().endswith(".json"):
        raise ValueError(f"{log} holds no data; name the file that it was made on by --data FILE")
    if samples and log:
        raise ParameterError(Option("samples", samples), " draws from --data; a log is replayed with all its samples")
    about = {**reading, "samples": samples, "features": None if log else features}
    for name, value in about.items():
        if data is None and value is not None:
            raise ParameterError(Option(name, value), " is about data; name it by --data FILE")
    page = None if out is None else output_file(out)
    if data is None and log is None:  # torch is not needed
        made = Play(content())
    else:
        from torchperc.lab.play.data import content_of_data, content_of_log, load_log

        table: Any = None if data is None else _load("play", data, reading)
        if log is None:
            made = Play(content_of_data(table, features=features, samples=samples))
        else:
            recorded, told = load_log(Path(log), table)
            made = Play(content_of_log(recorded, table=table, features=features, **told))
    say(f"the page: {made.open() if page is None else made.save(page)}")


def xor(
    *,
    seeds: int = 1000,
    hidden: Sequence[int] = (2, 4),
    activation: Sequence[
        Literal["tanh", "relu", "sigmoid", "leaky_relu", "elu", "gelu", "silu", "softplus", "identity"]
    ] = ("tanh", "relu"),
    loss: Sequence[Literal["perceptron", "lms", "logistic"]] = ("logistic",),
    lr: Sequence[float] = (1.0,),
    steps: int = 5000,
    inputs: Literal["0/1", "-1/+1"] = "0/1",
    method: Literal["gradient", "tower", "pyramid", "upstart", "tiling", "madaline"] = "gradient",
    out: str = "runs/xor",
) -> None:
    """Train thousands of small nets on XOR at once.

    Trains 2-h-1 nets by full-batch gradient descent, from many seeds at once, for every combination of the values
    given. Prints how many solve it and how the others fail; writes pictures and results.json. Other methods build nets
    of step units by the rule, one for each seed.

    Args:
        seeds: how many, 0, 1, 2, …
        hidden: widths of the hidden layer
        activation: of the hidden layer
        loss: that is lowered
        lr: learning rates
        steps: full-batch steps
        inputs: the truth values
        method: how nets are trained; hidden, activation, loss, lr and steps are for gradient
        out: folder of the pictures
    """
    if method != "gradient":
        given = {"hidden": hidden, "activation": activation, "loss": loss, "lr": lr, "steps": steps}
        for name, value in given.items():
            if value != inspect.signature(xor).parameters[name].default:
                raise ParameterError(Option(name, value), " is for ", Option("method", "gradient"), "; leave it out")
        _xor_by_rule(method, check_int("seeds", seeds, at_least=1), inputs, output_folder(out))
        return
    from torchperc.lab.xor import HEADS, KINDS, check_rate, train
    from torchperc.lab.xor_figures import plot_boundary, plot_curves

    for name, count in (("seeds", seeds), ("steps", steps)):
        check_int(name, count, at_least=1)
    widths = [check_int("hidden", width, at_least=1) for width in hidden]
    settings = dict.fromkeys(product(widths, activation, loss, [check_rate("lr", rate) for rate in lr]))
    folder, rows, table, pictures = output_folder(out), list[dict[str, Any]](), list[Any](), dict[str, Any]()
    for width, name, lowered, rate in settings:
        start = time.perf_counter()
        result = train(range(seeds), width, name, HEADS[lowered], lr=rate, steps=steps, inputs=inputs)
        row: dict[str, Any] = {"hidden": width, "activation": name, "loss": lowered, "lr": rate}
        row |= {"success_rate": result.success_rate, "wilson_95": result.interval, "counts": result.counts}
        row |= {"seconds": round(time.perf_counter() - start, 3), "kinds": result.kinds}  # by seed
        rows.append({**row, "curves": f"curves-{width}-{name}-{lowered}-{rate:g}.png"})
        pictures[rows[-1]["curves"]] = plot_curves(result)
        if "solved" in result.kinds and "boundary.png" not in pictures:
            net = result.net(result.kinds.index("solved"))
            pictures["boundary.png"] = plot_boundary(net, inputs=inputs, head=result.head)
        solved = f"{100 * result.success_rate:.1f}", "–".join(f"{100 * bound:.1f}" for bound in result.interval)
        failed = (f"{result.counts[kind]:,}" for kind in KINDS[1:])
        table.append((str(width), name, lowered, f"{rate:g}", *solved, *failed, f"{row['seconds']:.1f}"))
    for name, picture in pictures.items():
        with atomic_path(folder / name) as part:
            picture.savefig(part, format="png")
    found = {"seeds": seeds, "steps": steps, "inputs": inputs, "rows": rows, "pictures": list(pictures)}
    write_atomically(folder / "results.json", json.dumps(found, indent=1, allow_nan=False).encode())
    say(f"XOR from {seeds:,} seeds, {steps:,} full-batch steps, inputs {inputs}")
    heads = ("hidden", "activation", "loss", "learning rate", "solved %", "95 % interval", *KINDS[1:], "sec")
    print_table(heads, table)
    say(f"pictures and results.json are in {folder}")


def _xor_by_rule(method: str, seeds: int, inputs: str, folder: Path) -> None:
    """Build a net for each seed, and show units, updates and the first of them step by step."""
    from torchperc.plots import BuildDisplay
    from torchperc.theory.bounds import wilson

    X, y = tp.data.gate("XOR")
    X, start = X if inputs == "0/1" else 2 * X - 1, time.perf_counter()
    built = [tp.rules.build(X, y, method, seed=seed) for seed in range(seeds)]
    solved, units, updates = (
        [value(each) for each in built]
        for value in (lambda b: not b.errors, lambda b: b.net.units, lambda b: b.updates)
    )
    interval = wilson(sum(solved), seeds)
    picture: Any = BuildDisplay.from_result(built[0], X, y, names=("x₁", "x₂")).figure_
    with atomic_path(folder / "steps.png") as part:
        picture.savefig(part, format="png")
    found = {"method": method, "inputs": inputs, "solved": solved, "units": units, "updates": updates}
    write_atomically(folder / "results.json", json.dumps(found, indent=1).encode())
    say(f"XOR from {seeds:,} seeds, nets built by the rule, inputs {inputs}")
    shown = f"{100 * sum(solved) / seeds:.1f}", "–".join(f"{100 * bound:.1f}" for bound in interval)
    sizes = f"{min(units)}–{max(units)}" if min(units) < max(units) else str(units[0])
    cells = (method, *shown, sizes, f"{sum(updates) / seeds:.1f}", f"{time.perf_counter() - start:.1f}")
    print_table(("method", "solved %", "95 % interval", "units", "mean updates", "sec"), [cells])
    say(f"steps.png and results.json are in {folder}")
