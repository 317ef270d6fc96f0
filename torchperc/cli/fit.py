"""``torchperc fit | validate | test | predict``: runs from a config, as Lightning users know them."""

from __future__ import annotations

import contextlib
import csv
import functools
import io
import os
import re
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import torch
from jsonargparse import ArgumentError
from lightning_fabric.utilities.exceptions import MisconfigurationException
from pytorch_lightning.cli import LightningArgumentParser, LightningCLI

from torchperc._checks import ParameterError, first_line
from torchperc._files import locked_folder, moved_aside, write_atomically
from torchperc.cli.output import fail, print_table, say
from torchperc.learn.candidates import few_threads
from torchperc.learn.results import score
from torchperc.lightning import LitClassifier, LitRegressor, LitRule, TabularDataModule, fitted_model, quiet
from torchperc.lightning.checkpoints import LAST
from torchperc.lightning.trainer import trainer_in
from torchperc.model.model_file import MODEL, load_safetensors, save_safetensors
from torchperc.reports.results import CONFIG, CURVES, RESULTS
from torchperc.samples import process_group


def _keeper(folder: Path, config: str, resumed: str | None) -> Callable[..., None]:
    """A function that saves something of a run; until the first time an earlier run stays there, complete."""
    names = [MODEL, RESULTS, CURVES, "report.html"]
    if resumed is None or Path(resumed).absolute().parent != folder.absolute():
        names += [LAST, "hparams.yaml", "events.out.tfevents.*"]
    earlier = [path for name in names for path in folder.glob(name)]
    if not earlier:
        write_atomically(folder / CONFIG, config.encode())

    def keep(save: Callable[..., object], *given: Any, **options: Any) -> None:
        with contextlib.ExitStack() as stack:
            if earlier:
                stack.enter_context(moved_aside(folder, [*earlier, *folder.glob(CONFIG)]))
                write_atomically(folder / CONFIG, config.encode())
            save(*given, **options)
        earlier.clear()

    return keep


class _CLI(LightningCLI):
    """Makes what a config describes; Trainer and run are left to others."""

    def add_arguments_to_parser(self, parser: LightningArgumentParser) -> None:
        parser.add_argument("--out", default="runs/last", help="folder of the run: event files, checkpoint, weights")
        parser.add_argument("--ckpt_path", help="checkpoint to resume from, or to validate, test or predict with")
        parser.add_argument("--picture_every", type=int, default=10, help="epochs between pictures (0: none)")
        for name, option in (("width", "in_features"), ("classes", "num_classes")):
            parser.link_arguments(f"data.{name}", f"model.init_args.net.init_args.{option}", apply_on="instantiate")

    def instantiate_trainer(self, **_: Any) -> Any:
        return None


def _made(words: list[str], name: str = "torchperc") -> _CLI:
    quiet()
    words = [re.sub("^--[^=]*", lambda name: f"--{name[0][2:].replace('-', '_')}", word) for word in words]
    kind: dict[str, Any] = {"subclass_mode_model": True, "save_config_callback": None, "seed_everything_default": 0}
    parsing = {"exit_on_error": False, "prog": name, "allow_abbrev": False}
    return _CLI(pl.LightningModule, TabularDataModule, args=words, parser_kwargs=parsing, run=False, **kind)


def read(path: Path) -> tuple[Any, TabularDataModule]:
    """The module and the data of a config, made as ``torchperc test`` makes them; nothing is run."""
    with _one_line(words := ["--config", str(path)]):
        made = _made(words)
    return made.model, made.datamodule


def run(command: str, words: list[str]) -> None:
    """Run what a config describes; what is wrong is a ``ValueError``."""
    with _one_line(words):
        made = _made(words, f"torchperc {command}")
        options = {name: value for name, value in made.config_init.trainer.items() if value is not None}
        callbacks, epochs = options.pop("callbacks", []), options.pop("max_epochs", 100)
        trainer = trainer_in(made.config.out, epochs, callbacks, made.config.picture_every, **options)
        try:
            if command == "fit":
                _fit(made, trainer)
            else:
                _use(command, made, trainer)
        except BaseException:  # the processes that Lightning has started would wait for this one
            launcher: Any = trainer.strategy.launcher
            if hasattr(launcher, "procs"):
                launcher.kill(signal.SIGKILL)
            raise
        if torch.distributed.is_available() and torch.distributed.is_initialized():
            torch.distributed.destroy_process_group()  # whose threads would outlive the interpreter


def _fit(made: _CLI, trainer: pl.Trainer) -> None:
    """Train, print the outcome and save the model; one of several processes writes for all of them."""
    model, data, folder, checkpoint = made.model, made.datamodule, Path(made.config.out), made.config.ckpt_path
    with contextlib.ExitStack() as stack:
        if trainer.world_size == 1:
            stack.enter_context(few_threads(data))
        if trainer.is_global_zero:
            stack.enter_context(locked_folder(folder))
            keep = _keeper(folder, made.parser.dump(made.config, skip_unset=True), checkpoint)
            files: Any = trainer.strategy.checkpoint_io
            files.save_checkpoint = functools.partial(keep, files.save_checkpoint)
        trainer.fit(model, datamodule=data, ckpt_path=checkpoint)
        rows = [("epochs", str(trainer.current_epoch))]
        if isinstance(model, LitRule) and model.result is not None:
            rows.append(("verdict", model.result.sentence))
        for which, name in enumerate(("training", "validation")):
            if isinstance(model, LitRule | LitClassifier | LitRegressor) and len(data.parts[which][1]):
                what = "fit" if data.task == "regression" else "error"
                rows.append((f"{name} {what} of the weights kept", str(score(made.model, data, which))))
        if not trainer.is_global_zero:
            return
        try:
            fitted = fitted_model(model, data)
        except TypeError:  # a net that no file can describe: its weights alone
            keep(save_safetensors, model.net, folder / MODEL)
        else:
            keep(fitted.save, folder / MODEL)
        _print(trainer, rows)  # with the metrics of the last epoch
        say(f"weights, checkpoint and curves are in {folder}; look at them with")
        say(f"  tensorboard --logdir {folder.parent}")


def _use(command: str, made: _CLI, trainer: pl.Trainer) -> None:
    """Validate, test or predict with a checkpoint, or with the weights that the run kept."""
    data, folder, checkpoint = made.datamodule, Path(made.config.out), made.config.ckpt_path
    if checkpoint is None:
        path = folder / MODEL
        if not path.is_file():
            raise ValueError(f"there is no {path}; run `torchperc fit` first, or name a checkpoint by --ckpt-path")
        load_safetensors(path, made.model.net)
    predicted = getattr(trainer, command)(made.model, datamodule=data, ckpt_path=checkpoint)
    if command != "predict":
        _print(trainer, [])
        return
    every = process_group.gather([codes.cpu() for codes in predicted])
    if trainer.is_global_zero:
        codes = torch.cat([codes for batch in zip(*every, strict=True) for codes in batch])  # each was cut among them
        text, real = io.StringIO(), data.task == "regression"
        said = data.unscaled(codes).tolist() if real else data.decode(codes)
        csv.writer(text).writerows([["prediction" if real else "label"], *([each] for each in said)])
        write_atomically(folder / "predictions.csv", text.getvalue().encode(), make_folder=True)
        say(f"{len(codes)} {'numbers' if real else 'labels'} in {folder / 'predictions.csv'}")


def _print(trainer: pl.Trainer, rows: list[tuple[str, str]]) -> None:
    known = sorted(trainer.callback_metrics.items())
    rows += [(name, f"{float(value):.6g}") for name, value in known if name != "step"]  # which is the x-axis
    if trainer.is_global_zero:
        print_table(("what", "result"), rows)


@contextlib.contextmanager
def _one_line(words: list[str]) -> Iterator[None]:
    """Turn errors of Lightning and jsonargparse into a ``ValueError`` with one reason and a remedy."""
    try:
        yield
    except ParameterError:
        raise
    except (ArgumentError, ValueError, TypeError) as error:  # of a value, jsonargparse lists what each type says of it
        message = str(error)
        found = re.search(r'Parser key "([^"]+)".*?Errors:\s*- (.*?)\n\s*(?:- |Given value)', message, re.DOTALL)
        if found:
            given = re.search(r"Given value: (\w+)$", message) if found[2].startswith("Expected") else None
            message = ": ".join([*found.groups(), *([f"found {given[1]!r}"] if given else ())])
        configs = ", ".join(word for word in words if word.endswith((".yaml", ".yml")))
        unread = isinstance(error, UnicodeDecodeError) or message.startswith("Problems parsing config")
        raise ValueError(f"cannot read {configs}: {message}" if unread else message) from None
    except MisconfigurationException as error:  # such as a device that is not there
        raise ValueError(f"{str(error).rstrip('!.')}; choose by --trainer.accelerator and --trainer.devices") from None
    except RuntimeError as error:
        if not process_group.is_lost(error):
            raise
        if process_group.rank_and_size()[1] > 1:
            fail(str(process_group.lost(error)), code=1)
        where = f"{os.environ.get('MASTER_ADDR')}:{os.environ.get('MASTER_PORT')} in time ({first_line(error)})"
        remedy = "check MASTER_ADDR and MASTER_PORT, and that all processes were started"
        raise ValueError(f"the processes did not meet at {where}; {remedy}") from None
