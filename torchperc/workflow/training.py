"""What learning classes and learning a quantity share: a run and its folder, candidates trained into it, notes."""

from __future__ import annotations

import json
import shlex
import shutil
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from torchperc._atomic import write_whole
from torchperc.data.tabular import SplitTable
from torchperc.lightning.names import LAST
from torchperc.lightning.outcome import Learned as Module
from torchperc.lightning.outcome import fitted_model
from torchperc.model.fitted import FittedModel
from torchperc.model.format import MODEL
from torchperc.nn.heads import Head
from torchperc.nn.modules import MulticlassPerceptron, Perceptron
from torchperc.reports.folders import CONFIG, CURVES, RESULTS, command_and_config, write_curves
from torchperc.reports.text import plural
from torchperc.rules.run import RuleResult
from torchperc.samples import shards
from torchperc.samples.parts import in_parts
from torchperc.workflow import direct
from torchperc.workflow.places import config

if TYPE_CHECKING:
    from torchperc.lightning import TabularDataModule
    from torchperc.reports.page import Block
    from torchperc.reports.report import Report


class Trained(NamedTuple):
    """A candidate after its training: the module, how long it took, and of a run by rule its result."""

    module: Module
    epochs: int
    seconds: float
    result: RuleResult | None = None


@dataclass
class Run:
    """A table and the folder that its candidates are trained into.

    Args:
        data: the table.
        part: the folder while it is written.
        final: the name that it gets in the end.
        max_epochs: if they were given.
        report: whether a report is written.
        curves: whether candidates are trained under a Trainer, which logs for TensorBoard.
        watch: called with the name of what comes next.
    """

    data: SplitTable
    part: Path
    final: Path
    max_epochs: int | None
    report: bool
    curves: bool
    watch: Callable[[str], None]

    @property
    def alone(self) -> bool:
        """Whether this is the only process."""
        return shards.here()[1] == 1

    @cached_property
    def under_trainer(self) -> bool:
        """Whether a Lightning Trainer trains: if asked for, or to spread over processes, or to read piece by piece."""
        return self.curves or not self.alone or in_parts(self.data.parts[0][0])

    def train(self, name: str, kind: str, head: Head, options: dict[str, Any], epochs: int) -> Trained:
        """Train a candidate: the Lightning module of this kind with these options, or what makes the same steps."""
        data, folder = self.data, self.part / folder_of(name)
        made = Perceptron(data.width) if data.classes is None else MulticlassPerceptron(data.width, data.classes)
        net = made.to(data.dtype)
        if self.under_trainer:
            return self._train_under_trainer(net, kind, options, folder, epochs)
        if kind == "LitRule":
            course = direct.train_by_rule(net, data, epochs, options)
        elif kind == "LitLeastSquares":
            course = direct.train_to_minimum(cast(Perceptron, net), data, options.get("l2", 0.0))
        else:
            course = direct.train_by_descent(net, head, data, epochs, options)
        folder.mkdir()
        write_curves(folder, course.curves)
        return Trained(direct.Trained(net, head), course.epochs, course.seconds, course.result)

    def _train_under_trainer(self, net: Any, kind: str, options: dict[str, Any], folder: Path, epochs: int) -> Trained:
        from torchperc import lightning

        module = getattr(lightning, kind)(net, **options)
        took, seconds = _train_into(folder, module, self._module_data, epochs)
        return Trained(module, took, seconds, getattr(module, "result", None))

    @cached_property
    def _module_data(self) -> TabularDataModule:
        """The table for a Trainer, without reading it again."""
        from torchperc.lightning import TabularDataModule

        settings = self.data.settings
        made = TabularDataModule(**{**settings, "split": self.data.split})
        known = ("dataset", "indices", "partition", "parts", "target_scaler")
        vars(made).update({name: value for name, value in vars(self.data).items() if name in known})
        return made

    def write(
        self,
        modules: Mapping[str, Module],
        configs: Mapping[str, str],
        best: str,
        about: Mapping[str, str],
        results: Mapping[str, Any],
        make_report: Callable[[list[Block]], Report],
    ) -> FittedModel:
        """Write all that is known when the best has been found; return the best as a model for new data."""
        seal = {} if self.under_trainer else {"digest": self.data.digest}  # a checkpoint has it, too
        model = fitted_model(modules[best], self.data, {**about, **seal})

        def write() -> None:
            for name, each in modules.items():
                write_whole(self.part / folder_of(name) / CONFIG, configs[name].encode())
                fitted_model(each, self.data, seal).save(self.part / folder_of(name) / MODEL)
            model.save(self.part / MODEL)
            left = LAST if self.under_trainer else CURVES
            shutil.copy(self.part / folder_of(best) / left, self.part / left)
            text = configs[best].replace(str(self.final / folder_of(best)), str(self.final))
            write_whole(self.part / CONFIG, text.encode())
            write_whole(self.part / RESULTS, json.dumps(results, indent=1).encode())
            if self.report:
                again = command_and_config(self.final, text)
                make_report(again).save(self.part / "report.html", self.part / "card.md")

        shards.by_first(write)
        return model

    def config(self, name: str, kind: str, options: dict[str, Any], epochs: int) -> str:
        """The config that makes a candidate again."""
        return config(kind, options, self.data, self.final / folder_of(name), epochs)


def folder_of(name: str) -> str:
    """The folder of a candidate, by its name.

    Example:
        >>> folder_of("least squares")
        'least-squares'
    """
    return name.replace(" ", "-")


def _train_into(folder: Path, module: Any, data: TabularDataModule, epochs: int) -> tuple[int, float]:
    """Train a module for so many epochs at most; event files and a checkpoint are in the folder."""
    from torchperc.lightning import make_trainer

    quiet: dict[str, Any] = {"enable_checkpointing": False, "enable_progress_bar": False}
    if shards.here()[1] > 1:  # by gloo, which has no use for a GPU
        quiet |= {"accelerator": "cpu"}
    trainer = make_trainer(folder, epochs, picture_every=max(1, epochs // 4), **quiet)
    begun = time.perf_counter()
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "X is larger than memory and read in chunks")  # its order is good enough
            trainer.fit(module, data)
    except SystemExit as left:  # how Lightning ends a run that is interrupted, with exit code 1
        if left.code == 1 and trainer.interrupted:
            raise KeyboardInterrupt from None
        raise
    seconds = time.perf_counter() - begun
    trainer.save_checkpoint(folder / LAST)
    return trainer.current_epoch, seconds


def table_notes(data: SplitTable) -> Iterator[str]:
    """What a reader of the figures should know about the table."""
    dropped = sum(shards.gathered(data.dataset.dropped))
    if dropped:
        yield f"{plural(dropped, 'row')} with missing values dropped"
    encoding, named = data.encoding, data.options.get("text", [])
    for position, column in enumerate(() if encoding is None else encoding.columns):
        if column.vocabulary is not None and not {column.name, str(position + 1)} & set(map(str, named)):
            what = f"column {column.name!r} reads as free text, so its {column.width:,} words and pairs of words count"
            other = shlex.quote(column.name)
            yield f"{what}; --ignore {other} leaves it out, --categories {other} makes each value a feature"
