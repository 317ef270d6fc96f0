"""``torchperc report``: one HTML page of a run, or of several, that needs nothing beside it; a model card if asked."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from torchperc._checks import require_packages
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
    from torchperc.reports import Report
    from torchperc.reports.folders import curves_of, is_run, runs_below
    from torchperc.reports.trained import compared_curves

    if is_run(folder):
        return _of_run(folder, trust)
    found = runs_below(folder)
    if not found:
        why = "neither a config.yaml nor a results.json is there, or in a folder below"
        raise ValueError(f"{folder} is not a run: {why}; run `torchperc fit` or `torchperc learn` first")
    lead = f"{plural(len(found), 'run')}: {', '.join(path.name for path in found)}."
    curves = {path.name: curves_of(path) for path in found}
    return Report.joined(_title(folder), lead, [_of_run(path, trust) for path in found], compared_curves(curves))


def _of_run(folder: Path, trust: bool) -> Report:
    from torchperc.reports.folders import CONFIG, RESULTS, command_and_config

    path = folder / CONFIG
    if (folder / RESULTS).is_file():
        from torchperc.workflow.learn import report_of

        return report_of(folder)
    require_packages("torchperc report", "jsonargparse")
    from torchperc.cli import configured
    from torchperc.reports import runs

    module, data = configured.read(path, trust)
    if not isinstance(module, runs.Module):
        known = "LitRule, LitClassifier or LitRegressor"
        raise ValueError(f"{path} describes a {type(module).__name__}; a report is of a {known}")
    sentence = runs.restore(module, data, folder)
    again = command_and_config(folder, path.read_text())
    return runs.of_module(_title(folder), module, data, folder=folder, again=again, sentence=sentence)


def _title(folder: Path) -> str:
    return folder.resolve().name or str(folder)
