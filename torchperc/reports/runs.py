"""Reports of runs under a Trainer, from its module, its data and its folder."""

from __future__ import annotations

import shlex
import warnings
from copy import deepcopy
from pathlib import Path
from typing import Any, cast

from torchperc.lightning import LitClassifier, LitRegressor, LitRule, TabularDataModule
from torchperc.lightning.checkpoints import LAST, CheckpointError, SafeCheckpointIO
from torchperc.model.model_file import MODEL, load_safetensors
from torchperc.reports import sections
from torchperc.reports.page import Code, Report, Text
from torchperc.reports.results import CONFIG, curves_of
from torchperc.rules.conventions import Verdict
from torchperc.rules.models import Net
from torchperc.rules.trainer import RuleTrainer

Module = LitRule | LitClassifier | LitRegressor


def restore(module: Module, data: TabularDataModule, folder: Path) -> str:
    """Restore the trained module of a run's config, and a rule's result; say if the run was interrupted."""
    checkpoint = SafeCheckpointIO().load_checkpoint(folder / LAST)
    module.on_load_checkpoint(checkpoint)
    module.load_state_dict(checkpoint["state_dict"])
    if isinstance(state := checkpoint.get(type(data).__qualname__), dict):
        data.load_state_dict(state)  # data that are not those of the run are refused
    if isinstance(module, LitRule):
        return _restore_result(module, data, checkpoint.get("rule"), folder)
    if not (folder / MODEL).is_file():
        return f"The run was interrupted after {checkpoint.get('epoch', 0) + 1} epochs"
    load_safetensors(folder / MODEL, module.net)  # the weights it chose in the end, not always the last
    return ""


def _restore_result(module: LitRule, data: TabularDataModule, state: Any, folder: Path) -> str:
    """Restore a rule's result from its checkpoint; return how it ended if interrupted or online."""
    try:
        epochs, ended = len(state["history"]), state["verdict"]
        if "stream" in state:
            verdict = Verdict(ended) if ended else Verdict.BUDGET
            return f"{verdict.name}, learned online in {epochs} epochs: {verdict.sentence}"
        options = {**module.trainer_options, "max_epochs": epochs}
        validation = data.parts[1] if options["select"] == "best-validation" else None
        net = deepcopy(module.net)
        net.load_state_dict(state["start"])  # the weights before the run
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the run itself has warned
            run = RuleTrainer(**options).start(cast(Net, net), *data.parts[0], validation=validation)
        run.load_state_dict(state["run"])
        module.result = run.result()
    except (KeyError, IndexError, TypeError, ValueError, RuntimeError) as error:
        raise CheckpointError(f"{folder / LAST} does not hold the run that its config describes ({error})") from None
    made = f"after {epochs} epochs and {module.result.mistakes} mistakes"
    return "" if ended is not None else f"The run was interrupted {made}"


def of_module(module: Module, data: TabularDataModule, folder: Path, sentence: str = "") -> Report:
    """Report a trained module and its data; curves and config, if there is one, come from the folder of the run."""
    if isinstance(module, LitRule):
        options = module.trainer_options
        shown = (f"{name} {value}" for name, value in options.items() if name != "select" and value is not None)
        how = [("learned by", "the perceptron rule"), ("options", ", ".join(shown))]
    else:
        lr = module.hparams["lr"]
        way = f"gradient descent, {module.head}, one step per {module.update}"
        how = [("learned by", way), ("learning rate", "the optimizer's" if lr is None else str(lr))]
    again = [Text("The run was made by a script, without a config.")]
    if (folder / CONFIG).is_file():
        command = shlex.join(["torchperc", "fit", "--config", str(folder / CONFIG), "--out", f"{folder}-again"])
        config = Code((folder / CONFIG).read_text())
        again = [Text("The config and the versions below reproduce the run:"), Code(command), config]
    known = sections.Training(again, how, {"": curves_of(folder)}, sentence, result=getattr(module, "result", None))
    return sections.of_module(folder.resolve().name or str(folder), module, data, known)
