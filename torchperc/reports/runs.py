"""Reports of runs under a Trainer: from its module and data, or from what it left in its folder."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import yaml

from torchperc.lightning import LitClassifier, LitRule, TabularDataModule
from torchperc.lightning.checkpoints import CheckpointError, SafeCheckpointIO
from torchperc.lightning.names import LAST
from torchperc.lightning.regressor import Regression
from torchperc.model.fitted import FittedModel
from torchperc.model.format import MODEL
from torchperc.model.safetensors import load_safetensors
from torchperc.plots.comparison import read_events
from torchperc.reports import regression
from torchperc.reports.folders import CONFIG as CONFIG
from torchperc.reports.folders import CURVES
from torchperc.reports.folders import command_and_config as command_and_config
from torchperc.reports.folders import curves_of as curves_of
from torchperc.reports.folders import is_run as is_run
from torchperc.reports.folders import runs_below as runs_below
from torchperc.reports.page import Block, Picture, Section, Table, Text
from torchperc.reports.report import Report
from torchperc.reports.sections import logged_curves
from torchperc.reports.subject import Rows
from torchperc.reports.text import percent, plural
from torchperc.reports.trained import by_descent, by_rule, of_model, word
from torchperc.reports.trained import compared as compared
from torchperc.rules.conventions import Verdict
from torchperc.rules.models import Net
from torchperc.rules.trainer import RuleTrainer


def restore(module: LitRule | LitClassifier | Regression, data: TabularDataModule, folder: Path) -> str:
    """Bring a module, made from a run's config, to the end of the run in a folder; say if the run was interrupted.

    Of a :class:`LitRule` the result is restored, too; if there is no checkpoint, by making the run again. Data that
    are not those of the run are refused.
    """
    if not (folder / LAST).is_file() and (folder / CURVES).is_file():  # by torchperc learn
        _make_again(module, data, folder)
        return ""
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


def _make_again(module: LitRule | LitClassifier | Regression, data: TabularDataModule, folder: Path) -> None:
    """The end of a run without a checkpoint: its weights, and of a run by rule its result, which is the same again."""
    if FittedModel.load(folder).about.get("digest") != data.digest:
        raise ValueError(f"source={data.source!r} is not the data the run was made on, or its split differs")
    if isinstance(module, LitRule):
        epochs = max(len(steps) for steps, _ in curves_of(folder).values())
        trainer = RuleTrainer(max_epochs=epochs, **module.trainer_options)
        module.result = trainer.fit(cast(Net, module.net), *data.parts[0])
    load_safetensors(folder / MODEL, module.net)


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
    curves = {} if folder is None else curves_of(folder)
    return of_model(title, module, data, **known(module), curves=curves, again=again, sentence=sentence)


def how_of_regression(module: Regression) -> Rows:
    """How a Lightning module for regression was trained, in words."""
    options = dict(module.hparams)
    if "l2" in options:
        return regression.by_minimum(float(options["l2"]))
    return regression.by_descent(options["update"], options["lr"])


def known(module: LitRule | LitClassifier) -> dict[str, Any]:
    """What :func:`~torchperc.reports.trained.of_model` is told of how a Lightning module was trained."""
    if isinstance(module, LitRule):
        options = module.trainer_options
        return {"how": by_rule(options), "result": module.result, "margin": float(options["margin"])}
    return {"how": by_descent(module.hparams["head"], module.update, module.hparams["lr"])}


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


def _options(folder: Path) -> Section:
    path = folder / "hparams.yaml"
    try:
        options = yaml.safe_load(path.read_text()) if path.is_file() else None
    except (yaml.YAMLError, UnicodeDecodeError, OSError) as error:
        raise ValueError(f"cannot read {path}: {' '.join(str(error).split())}") from None
    if not isinstance(options, dict) or not options:
        return Section("What was learned", (Text("The run has no options."),))
    rows = [(str(name), word(value)) for name, value in sorted(options.items())]
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
