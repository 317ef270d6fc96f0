"""``torchperc report``: one HTML page of a run, or of several, that needs nothing beside it; a model card if asked."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torchperc._lazy import requires
from torchperc.cli import inputs
from torchperc.reports.text import plural

if TYPE_CHECKING:
    from torchperc.reports import Report


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the command."""
    parser.description = (
        "Writes one self-contained HTML page: what was learned, data, verdict with its proof, mistakes against the "
        "bound, curves, boundary, confusion, config, versions. A folder with several runs below it gets one page of "
        "all of them."
    )
    parser.add_argument("run", metavar="RUN", help="the folder of a run, or one with runs directly below it")
    parser.add_argument("--out", metavar="FILE", help="the page (default: report.html in the folder)")
    trust = "do not warn of a config's classes outside torch, lightning and torchperc"
    parser.add_argument("--trust", action="store_true", help=trust)
    parser.add_argument("--card", metavar="FILE", help="write the same content as Markdown to this file, too")


def run(arguments: argparse.Namespace) -> None:
    """Read the run, make the page, write it."""
    folder = Path(arguments.run)
    if not folder.is_dir():
        raise ValueError(f"no such folder: {folder}; name the folder of a run, such as runs/last")
    page = inputs.output_file(arguments.out or folder / "report.html")
    card = None if arguments.card is None else inputs.output_file(arguments.card, "card")
    of_folder(folder, arguments.trust).save(page, card)
    inputs.say(f"report of {folder}: {page}{'' if card is None else f', model card: {card}'}")


def of_folder(folder: Path, trust: bool = True) -> Report:
    """The report of a folder: of its run, or of the runs below it; without trust, foreign classes are warned of."""
    from torchperc.reports import Report, runs
    from torchperc.reports.sections import versions

    if (folder / runs.CONFIG).is_file():
        return _of_run(folder, trust)
    found = [folder] if runs.is_run(folder) else runs.runs_below(folder)
    if not found:
        raise ValueError(
            f"{folder} is not a run: it has no {runs.CONFIG}, no checkpoint and no event files, and none of its "
            "folders has; run `torchperc fit` first"
        )
    reports = [_of_run(path, trust) if (path / runs.CONFIG).is_file() else runs.of_traces(path) for path in found]
    if found == [folder]:
        return Report(reports[0].title, reports[0].lead, (*reports[0].sections, versions()))
    lead = f"{plural(len(found), 'run')}: {', '.join(path.name for path in found)}."
    return Report.joined(_title(folder), lead, reports, runs.compared({path.name: path for path in found}))


def _of_run(folder: Path, trust: bool) -> Report:
    requires("torchperc report", "jsonargparse")
    from torchperc.cli import configured
    from torchperc.lightning import LitClassifier, LitRule
    from torchperc.lightning.regressor import Regression
    from torchperc.reports import learned, regression, runs

    path = folder / runs.CONFIG
    module, data = configured.read(path, trust)
    if not isinstance(module, (LitRule, LitClassifier, Regression)):
        known = "LitRule, LitClassifier, LitRegressor or LitLeastSquares"
        raise ValueError(f"{path} describes a {type(module).__name__}; a report is of a {known}")
    sentence = runs.restore(module, data, folder)
    again = runs.command_and_config(folder, path.read_text())
    compared = (folder / learned.RESULTS).is_file()
    if isinstance(module, Regression) and compared:
        how = runs.how_of_regression(module)
        return regression.of_learned(folder, module, data, title=_title(folder), how=how, again=again)
    told: dict[str, Any]
    if isinstance(module, Regression):
        told = {"how": runs.how_of_regression(module), "again": again, "sentence": sentence}
        return regression.of_module(_title(folder), module, data, folder=folder, **told)
    if compared:
        told = {**runs.known(module), "again": again, "sentence": sentence}
        return learned.of_learned(folder, module, data, title=_title(folder), **told)
    return runs.of_module(_title(folder), module, data, folder=folder, again=again, sentence=sentence)


def _title(folder: Path) -> str:
    return folder.resolve().name or str(folder)
