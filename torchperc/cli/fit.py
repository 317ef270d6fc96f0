"""``torchperc fit | validate | test | predict``: runs from a config, as Lightning users know them."""

from __future__ import annotations

import contextlib
import csv
import functools
import io
import os
import re
import signal
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import torch
import yaml
from jsonargparse import ArgumentError
from lightning_fabric.utilities.exceptions import MisconfigurationException
from pytorch_lightning.cli import LightningArgumentParser, LightningCLI

from torchperc._checks import ParameterError, first_line
from torchperc._files import locked_folder, moved_aside, write_atomically
from torchperc.cli.output import print_table, say, warn
from torchperc.learn.candidates import few_threads
from torchperc.learn.results import score
from torchperc.lightning import LitClassifier, LitRegressor, LitRule, TabularDataModule, fitted_model, quiet
from torchperc.lightning.checkpoints import LAST
from torchperc.lightning.trainer import trainer_in
from torchperc.model.model_file import MODEL, load_safetensors, save_safetensors
from torchperc.reports.results import CONFIG, CURVES, RESULTS
from torchperc.samples import process_group

_KNOWN = ("torch", "lightning", "pytorch_lightning", "torchperc")
_CLASS = re.compile(r"(?:class_path:|model:|^\s*-)\s+['\"]?([^\W\d]\w*(?:\.[^\W\d]\w*)+)", re.MULTILINE)
_MEETING = ("MASTER_ADDR", "MASTER_PORT")


class _RunFolder:
    """The folder of a run. An earlier run stays there, complete, until this one has something to keep."""

    def __init__(self, folder: Path, config: str, resumed: str | Path | None) -> None:
        names = [MODEL, RESULTS, CURVES, "report.html"]
        if resumed is None or Path(resumed).absolute().parent != folder.absolute():
            names += [LAST, "hparams.yaml", "events.out.tfevents.*"]
        self._folder, self._config = folder, config.encode()
        self._earlier = [path for name in names for path in folder.glob(name)]
        if not self._earlier:
            write_atomically(folder / CONFIG, self._config)

    def keep(self, save: Callable[..., object], *given: Any, **options: Any) -> None:
        """Save something of this run; the first time, with its config in place of the earlier run."""
        with contextlib.ExitStack() as stack:
            if self._earlier:
                stack.enter_context(moved_aside(self._folder, [*self._earlier, *self._folder.glob(CONFIG)]))
                write_atomically(self._folder / CONFIG, self._config)
            save(*given, **options)
        self._earlier = []


class _CLI(LightningCLI):
    def __init__(self, words: list[str], **options: Any) -> None:
        self._called = words[:1]
        options |= {"subclass_mode_model": True, "save_config_callback": None, "seed_everything_default": 0}
        options["parser_kwargs"] = {"exit_on_error": False, "prog": "torchperc", "allow_abbrev": False}
        with contextlib.ExitStack() as self._claims:
            super().__init__(pl.LightningModule, TabularDataModule, args=words, **options)

    def subcommands(self) -> dict[str, set[str]]:  # type: ignore[override]
        """Describe only the command called; all four take a third of a short run."""
        return {name: arguments for name, arguments in LightningCLI.subcommands().items() if name in self._called}

    def add_arguments_to_parser(self, parser: LightningArgumentParser) -> None:
        parser.add_argument("--out", default="runs/last", help="folder of the run: event files, checkpoint, weights")
        parser.add_argument("--picture_every", type=int, default=10, help="epochs between pictures (0: none)")
        for name, option in (("width", "in_features"), ("classes", "num_classes")):
            parser.link_arguments(f"data.{name}", f"model.init_args.net.init_args.{option}", apply_on="instantiate")

    def instantiate_trainer(self, **kwargs: Any) -> Any:
        if not self._called[0].isalpha():  # a config that is read, not run
            return None
        config = {**self._get(self.config_init, "trainer", default={}), **kwargs}
        options = {name: value for name, value in config.items() if value is not None}
        callbacks, epochs = options.pop("callbacks", []), options.pop("max_epochs", 100)
        every = self._get(self.config, "picture_every")
        return trainer_in(self._folder, epochs, callbacks, every, **options)

    @property
    def _folder(self) -> Path:
        return Path(self._get(self.config, "out"))

    def _parse_ckpt_path(self) -> None:
        """Lightning would overrule the config by the checkpoint's hyper-parameters; here the config says what runs."""

    def _run_subcommand(self, subcommand: str) -> None:
        """Run it; where it fails, end the processes that Lightning has started, which would wait for this one."""
        alone = subcommand == "fit" and self.trainer.world_size == 1
        try:
            with few_threads(self.datamodule) if alone else contextlib.nullcontext():
                super()._run_subcommand(subcommand)
        except BaseException:
            launcher = self.trainer.strategy.launcher
            if launcher is not None and hasattr(launcher, "procs"):
                launcher.kill(signal.SIGKILL)
            raise
        if torch.distributed.is_available() and torch.distributed.is_initialized():
            torch.distributed.destroy_process_group()  # whose threads would outlive the interpreter

    def before_fit(self) -> None:
        text = self._parser("fit").dump(self.config["fit"], skip_unset=True)
        if self.trainer.is_global_zero:  # one of several processes claims the folder for all of them
            self._claims.enter_context(locked_folder(self._folder))
            self._place = _RunFolder(self._folder, text, self._get(self.config, "ckpt_path"))
            files: Any = self.trainer.strategy.checkpoint_io
            files.save_checkpoint = functools.partial(self._place.keep, files.save_checkpoint)

    def before_validate(self) -> None:
        if self._get(self.config, "ckpt_path") is None:
            path = self._folder / MODEL
            if not path.is_file():
                raise ValueError(f"there is no {path}; run `torchperc fit` first, or name a checkpoint by --ckpt-path")
            load_safetensors(path, self.model.net)

    before_test = before_predict = before_validate

    def after_fit(self) -> None:
        model, data, path = self.model, self.datamodule, self._folder / MODEL
        rows = [("epochs", str(self.trainer.current_epoch))]
        if isinstance(model, LitRule) and model.result is not None:
            rows.append(("verdict", model.result.sentence))
        for which, name in enumerate(("training", "validation")):
            if isinstance(model, LitRule | LitClassifier | LitRegressor) and len(data.parts[which][1]):
                what = "fit" if data.task == "regression" else "error"
                rows.append((f"{name} {what} of the weights kept", str(score(self.model, data, which))))
        if not self.trainer.is_global_zero:
            return
        try:
            fitted = fitted_model(model, data)
        except TypeError:  # a net that no file can describe: its weights alone
            self._place.keep(save_safetensors, model.net, path)
        else:
            self._place.keep(fitted.save, path)
        self.after_validate(rows)  # with the metrics of the last epoch
        say(f"weights, checkpoint and curves are in {self._folder}; look at them with")
        say(f"  tensorboard --logdir {self._folder.parent}")

    def after_validate(self, rows: Sequence[tuple[str, str]] = ()) -> None:
        known = sorted(self.trainer.callback_metrics.items())
        metrics = [(name, f"{float(value):.6g}") for name, value in known if name != "step"]  # which is the x-axis
        if self.trainer.is_global_zero:
            print_table(("what", "result"), [*rows, *metrics])

    after_test = after_validate

    def after_predict(self) -> None:
        every = process_group.gather([codes.cpu() for codes in self.trainer.predict_loop.predictions])
        if not self.trainer.is_global_zero:
            return
        codes = torch.cat([codes for batch in zip(*every, strict=True) for codes in batch])  # each was cut among them
        text, real = io.StringIO(), self.datamodule.task == "regression"
        said = self.datamodule.unscaled(codes).tolist() if real else self.datamodule.decode(codes)
        csv.writer(text).writerows([["prediction" if real else "label"], *([each] for each in said)])
        write_atomically(self._folder / "predictions.csv", text.getvalue().encode(), make_folder=True)
        say(f"{len(codes)} {'numbers' if real else 'labels'} in {self._folder / 'predictions.csv'}")


def read(path: Path) -> tuple[Any, TabularDataModule]:
    """The module and the data of a config, made as ``torchperc test`` makes them; nothing is run."""
    try:
        made = run(["--config", str(path)], run=False)
    except ValueError as error:
        raise ValueError(f"cannot read {path}: {error}") from None
    return made.model, made.datamodule


def run(words: list[str], **options: Any) -> _CLI:
    """Make everything that a config describes, and run it unless ``run=False``; what is wrong is a ``ValueError``."""
    quiet()
    words = [re.sub("^--[^=]*", lambda name: f"--{name[0][2:].replace('-', '_')}", word) for word in words]
    configs = [Path(word.rpartition("=")[2]) for word in words if word.endswith((".yaml", ".yml"))]
    if foreign := dict.fromkeys(name for path in configs for name in _foreign(path)):
        warn(
            f"the config names {', '.join(foreign)}: a config is a program, and this part of it is not of torch, "
            "lightning or torchperc; run only configs that you have read"
        )
    try:
        return _CLI(words, **options)
    except ParameterError:
        raise
    except (ArgumentError, ValueError, TypeError) as error:
        raise ValueError(_readable(str(error))) from None
    except MisconfigurationException as error:  # such as a device that is not there
        raise ValueError(f"{str(error).rstrip('!.')}; choose by --trainer.accelerator and --trainer.devices") from None
    except RuntimeError as error:
        if not process_group.is_lost(error):
            raise
        if process_group.rank_and_size()[1] > 1:
            raise process_group.lost(error) from None
        where, why = ":".join(os.environ.get(name, "?") for name in _MEETING), first_line(error)
        remedy = f"check {' and '.join(_MEETING)}, and that all processes were started"
        raise ValueError(f"the processes did not meet at {where} in time ({why}); {remedy}") from None


def _readable(message: str) -> str:
    """Pick the first reason out of jsonargparse's list of all types of a value."""
    found = re.search(r'Parser key "([^"]+)".*?Errors:\s*- (.*?)\n\s*(?:- |Given value)', message, re.DOTALL)
    if not found:
        return message
    given = re.search(r"Given value: (\w+)$", message) if found[2].startswith("Expected") else None
    return ": ".join([*found.groups(), *([f"found {given[1]!r}"] if given else ())])


def _foreign(path: Path) -> list[str]:
    """Classes of other packages that a config names; a file that is no YAML is an error."""
    try:
        text = path.read_text()
        yaml.safe_load(text)
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise ValueError(f"cannot read config {path}: {error}") from None
    return [name for name in _CLASS.findall(re.sub("#.*", "", text)) if name.partition(".")[0] not in _KNOWN]
