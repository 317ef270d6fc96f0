"""Reports of runs under a Trainer: from its module and data, or from what it left in its folder."""

from __future__ import annotations

import math
import shlex
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import torch
import yaml
from torch import Tensor

from torchperc import _checks as checks
from torchperc.lightning import LitClassifier, LitRule, TabularDataModule
from torchperc.lightning.checkpoints import CheckpointError, SafeCheckpointIO
from torchperc.lightning.regressor import Regression
from torchperc.lightning.trainer import LAST, wrong_decisions
from torchperc.model.format import MODEL
from torchperc.model.safetensors import load_safetensors
from torchperc.plots.comparison import curve_of, read_events
from torchperc.reports import proof
from torchperc.reports.page import Block, Code, Picture, Section, Table, Text
from torchperc.reports.report import Report
from torchperc.reports.sections import curve_picture, logged_curves
from torchperc.reports.subject import Curves, Subject
from torchperc.reports.text import number, percent, plural
from torchperc.rules.conventions import Verdict
from torchperc.rules.models import Net
from torchperc.rules.run import RuleResult
from torchperc.rules.trainer import RuleTrainer
from torchperc.samples.parts import CsrParts, in_parts, rows_as_read

CONFIG = "config.yaml"
SETS = ("training", "validation", "test")
_LOOKED_AT = 2 * 10**7
"""How many numbers of a sparse set, or of one that is larger than memory, a page looks at: more than a proof needs."""
_STORED = 1000  # numbers that a sparse sample has at most, where it is not known before it is read
_COMPARED = {"error/train": (100, "error (%)", "training error"), "error/val": (100, "error (%)", "validation error")}
_COMPARED |= {"rmse/train": (1, "RMSE", "training RMSE"), "rmse/val": (1, "RMSE", "validation RMSE")}


def is_run(folder: Path) -> bool:
    """Whether a run left something in a folder: a config, a checkpoint or event files."""
    return (folder / CONFIG).is_file() or (folder / LAST).is_file() or any(folder.glob("events.out.tfevents.*"))


def runs_below(folder: Path) -> list[Path]:
    """The folders of runs directly below a folder, by name."""
    shown = (path for path in folder.iterdir() if path.is_dir() and not path.name.startswith("."))
    return sorted(path for path in shown if is_run(path))


def curves_of(folder: Path) -> Curves:
    """Epochs and values of every scalar in the event files of a folder; of an epoch logged twice the later value."""
    events = read_events(folder)
    return {tag: curve_of(events, tag) for tag in events.Tags()["scalars"]}


def restore(module: LitRule | LitClassifier | Regression, data: TabularDataModule, folder: Path) -> str:
    """Bring a module, made from a run's config, to the end of the run in a folder; say if the run was interrupted.

    Of a :class:`LitRule` the result is restored, too. Data that are not those of the run are refused.
    """
    checkpoint = SafeCheckpointIO().load_checkpoint(folder / LAST)
    module.on_load_checkpoint(checkpoint)
    module.load_state_dict(checkpoint["state_dict"])
    if isinstance(state := checkpoint.get(type(data).__qualname__), dict):
        data.load_state_dict(state)
    if isinstance(module, LitRule):
        return _restore_result(module, data, checkpoint.get("rule"), folder)
    if not (folder / MODEL).is_file():
        return f"The run was interrupted after {checkpoint.get('epoch', 0) + 1} epochs"
    load_safetensors(folder / MODEL, module.net)  # the weights it chose in the end, not always the last
    return ""


def _restore_result(module: LitRule, data: TabularDataModule, state: Any, folder: Path) -> str:
    if isinstance(state, dict) and "stream" in state:
        verdict = Verdict(state["verdict"]) if state["verdict"] else Verdict.BUDGET
        return f"{verdict.name}, learned online in {len(state['history'])} epochs: {verdict.sentence}"
    if not isinstance(state, dict) or not state.get("history"):
        raise CheckpointError(f"{folder / LAST} holds no epoch of a run by rule; run `torchperc fit` again")
    options = {**module.trainer_options, "max_epochs": len(state["history"])}
    validation = data.parts[1] if options["select"] == "best-validation" else None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the run itself has warned
        run = RuleTrainer(**options).start(cast(Net, module.net), *data.parts[0], validation=validation)
    try:
        run.load_state_dict(state)
    except (KeyError, IndexError, RuntimeError) as error:
        raise CheckpointError(f"{folder / LAST} does not hold the run that its config describes ({error})") from None
    module.result = run.result()
    if state["verdict"] is not None:
        return ""
    return f"The run was interrupted after {len(state['history'])} epochs and {module.result.mistakes} mistakes"


def of_module(
    title: str,
    module: LitRule | LitClassifier,
    data: TabularDataModule,
    *,
    folder: Path | None = None,
    again: Sequence[Block] = (),
    sentence: str = "",
) -> Report:
    """Report a module after its run, and the data it was trained on; curves are read from the run's folder."""
    result: RuleResult | None = module.result if isinstance(module, LitRule) else None
    every = {name: given for name, given in zip(SETS, data.parts, strict=True) if len(given[1])}
    parts = {name: _looked_at(*given) for name, given in every.items()}
    some = {name: (len(y), len(every[name][1])) for name, (_, y) in parts.items() if len(y) < len(every[name][1])}
    few = [f"{count:,} of {total:,} {name} samples" for name, (count, total) in some.items()]
    table, kind = data.dataset, data.scaler.kind
    scaled = [] if kind == "none" else [("weights", f"of the features as scaled ({kind}, by the training set)")]
    subject = Subject(
        module if result is None else result,
        parts,
        names=table.names,
        labels=table.labels,
        how=[*_how(module), *scaled],
        about=[
            *about_data(data),
            *([("looked at for this page", f"{', '.join(few)}, evenly spaced")] if few else []),
        ],
        curves={} if folder is None else curves_of(folder),
        margin=float(module.trainer_options["margin"]) if isinstance(module, LitRule) else 0.0,
        image_shape=table.image_shape,
        again=again,
        sentence=sentence,
        counted={name: (wrong_decisions(module, *every[name]), total) for name, (_, total) in some.items()},
    )
    return Report.of_subject(title, subject)


def about_data(data: TabularDataModule) -> list[tuple[str, str]]:
    """Where data come from, and how they were split and scaled."""
    real = {"task": data.task} if data.task == "regression" else {"scale_target": None}
    known = {**data.hparams, **data.options, **real}.items()
    return [(name, _word(value)) for name, value in known if name != "options" and value is not None]


def _looked_at(X: Any, y: Tensor) -> tuple[Any, Tensor]:
    """Samples as a page shows them, in memory: all of them, or evenly spaced ones if they have too many numbers.

    Sparse ones stay sparse unless they are so small that a proof is to be found.
    """
    if isinstance(X, Tensor):
        return X, y
    stored = X.nnz if checks.is_sparse(X) else X.shape[0] * min(X.shape[1], _STORED if _sparse(X) else X.shape[1])
    index = torch.arange(0, X.shape[0], max(1, math.ceil(stored / _LOOKED_AT)))
    some = rows_as_read(X).take(index).raw() if in_parts(X) else X[index.numpy()]
    small = checks.is_sparse(some) and math.prod(some.shape) <= proof.ENTRIES
    return torch.from_numpy(some.toarray()) if small else some, y[index]


def _sparse(X: Any) -> bool:
    return checks.is_sparse(X) or isinstance(X, CsrParts)


def _how(module: LitRule | LitClassifier) -> list[tuple[str, str]]:
    if isinstance(module, LitRule):
        options = {name: value for name, value in module.trainer_options.items() if name != "select"}
        shown = ", ".join(f"{name} {_word(value)}" for name, value in options.items() if value is not None)
        return [("learned by", "the perceptron rule"), ("options", shown)]
    options = dict(module.hparams)
    how = f"gradient descent, {options['head']} head, one step per {module.update}"
    lr = "the optimizer's" if options["lr"] is None else _word(options["lr"])
    return [("learned by", how), ("learning rate", lr)]


def _word(value: object) -> str:
    return number(value) if isinstance(value, float) else str(value)


def command_and_config(folder: Path, text: str) -> list[Block]:
    """How the run of a folder with a config is made again.

    Example:
        >>> command_and_config(Path("runs/and"), "lr: 1")[1].text
        'torchperc fit --config runs/and/config.yaml --out runs/and-again'
    """
    return [
        Text("The config and the versions below reproduce the run:"),
        Code(shlex.join(["torchperc", "fit", "--config", str(folder / CONFIG), "--out", f"{folder}-again"])),
        Code(text),
    ]


def of_traces(folder: Path) -> Report:
    """Report a run without a config by what it left: options, curves, verdict, its last picture of the boundary.

    Example:
        >>> import tempfile
        >>> from torch.utils.tensorboard import SummaryWriter
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     with SummaryWriter(folder) as board:
        ...         board.add_scalar("error/train", 0.5, 1)
        ...     of_traces(Path(folder)).lead
        'Training error 50 % in epoch 1.'
    """
    curves = curves_of(folder)
    verdict, boundary = _verdict(folder), _last_picture(folder)
    sections = (
        _options(folder),
        *([Section("Verdict", (Text(f"{verdict}."),))] if verdict else []),
        logged_curves(curves),
        *([Section("Boundary", (boundary,))] if boundary is not None else []),
        Section("How to reproduce it", (Text("The run has no config; torchperc fit writes one."),)),
    )
    lead = f"{verdict}." if verdict else ""
    if not verdict and "error/train" in curves:
        steps, values = curves["error/train"]
        lead = f"Training error {percent(values[-1])} in epoch {steps[-1]:.0f}."
    return Report(folder.name, lead, sections)


def compared(folders: Mapping[str, Path]) -> list[Section]:
    """The errors of several runs on one chart each."""
    found = {name: curves_of(folder) for name, folder in folders.items()}
    pictures = []
    for tag, (scale, ylabel, what) in _COMPARED.items():
        curves = {name: curves[tag] for name, curves in found.items() if tag in curves}
        if (picture := curve_picture(curves, scale, ylabel, what)) is not None:
            pictures.append(picture)
    return [Section("All runs", pictures)] if pictures else []


def _options(folder: Path) -> Section:
    path = folder / "hparams.yaml"
    try:
        options = yaml.safe_load(path.read_text()) if path.is_file() else None
    except (yaml.YAMLError, UnicodeDecodeError, OSError) as error:
        raise ValueError(f"cannot read {path}: {' '.join(str(error).split())}") from None
    if not isinstance(options, dict) or not options:
        return Section("What was learned", (Text("The run has no options."),))
    rows = [(str(name), _word(value)) for name, value in sorted(options.items())]
    return Section("What was learned", (Table(("option", "value"), rows),))


def _verdict(folder: Path) -> str:
    """How a run by rule ended, from its checkpoint; nothing if there is none."""
    if not (folder / LAST).is_file():
        return ""
    state = SafeCheckpointIO().load_checkpoint(folder / LAST).get("rule")
    if not isinstance(state, dict):
        return ""
    epochs, mistakes = len(state["history"]), sum(record[1] for record in state["history"])  # an EpochRecord's
    many = f"{plural(epochs, 'epoch')} and {plural(mistakes, 'mistake')}"
    if state["verdict"] is None:
        return f"The run was interrupted after {many}"
    verdict = Verdict(state["verdict"])
    return f"{verdict.name} after {many}: {verdict.sentence}"


def _last_picture(folder: Path) -> Picture | None:
    events = read_events(folder)
    if "boundary" not in events.Tags()["images"]:
        return None
    last = max(events.Images("boundary"), key=lambda image: image.step)
    caption = f"The decision boundary as it was logged after epoch {last.step}."
    return Picture(last.encoded_image_string, "Samples over the decision regions.", caption, (last.width, last.height))
