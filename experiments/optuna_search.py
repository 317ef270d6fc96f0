"""Margin, order and weights to keep, searched by Optuna in several processes that share one study.

    python experiments/optuna_search.py --processes 2 --trials 20

The study lives in a journal file (``JournalStorage``), so processes need nothing but a common folder: start the same
command on another machine with ``--join``, and its trials go to the same study. The objective is the rule's error on
validation samples of handwritten digits; the best trial is judged once on the test samples.
"""

from __future__ import annotations

import argparse
import multiprocessing
from functools import cache
from pathlib import Path

import optuna
import torch
from optuna.storages import BaseStorage, InMemoryStorage, JournalStorage
from optuna.storages.journal import JournalFileBackend
from rich.console import Console
from rich.table import Table

import torchperc as tp

FOLDER = Path("runs/optuna-search")
NAME = "margin-order-select"
EPOCHS = 5


@cache
def splits() -> tuple[tuple[torch.Tensor, torch.Tensor], ...]:
    """Training, validation and test samples."""
    return tp.lightning.TabularDataModule("digits", scale="minmax").parts


def fitted(params: dict[str, object]) -> tp.MulticlassPerceptron:
    """A net with the weights that a run by rule with these parameters keeps."""
    net = tp.MulticlassPerceptron(64, 10)
    tp.RuleTrainer(EPOCHS, **params).fit(net, *splits()[0])
    return net


def error(net: tp.MulticlassPerceptron, samples: torch.Tensor, labels: torch.Tensor) -> float:
    """In %."""
    return 100 * float((net.predict(samples) != labels).double().mean())


def objective(trial: optuna.Trial) -> float:
    params = {
        "margin": trial.suggest_float("margin", 0.01, 100, log=True),
        "order": trial.suggest_categorical("order", ["given", "shuffled"]),
        "select": trial.suggest_categorical("select", ["last", "averaged", "pocket"]),
    }
    return error(fitted(params), *splits()[1])


def search(storage: BaseStorage, trials: int, seed: int) -> optuna.Study:
    """Make so many trials more of the study that the storage holds."""
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    sampler = optuna.samplers.TPESampler(seed=seed)
    study = optuna.create_study(storage=storage, study_name=NAME, sampler=sampler, load_if_exists=True)
    study.optimize(objective, n_trials=trials)
    return study


def journal(folder: Path) -> JournalStorage:
    return JournalStorage(JournalFileBackend(str(folder / "journal.log")))


def work(folder: Path, trials: int, seed: int) -> None:
    """What each process does."""
    torch.set_num_threads(1)
    search(journal(folder), trials, seed)


def spread(folder: Path, trials: int, processes: int, seed: int) -> None:
    """The trials in several processes: each makes its part of them, with a seed of its own."""
    methods = multiprocessing.get_all_start_methods()
    context = multiprocessing.get_context("forkserver" if "forkserver" in methods else "spawn")
    parts = [len(range(number, trials, processes)) for number in range(processes)]
    started = [context.Process(target=work, args=(folder, part, seed + k)) for k, part in enumerate(parts)]
    for process in started:
        process.start()
    for process in started:
        process.join()
    failed = [process.exitcode for process in started if process.exitcode]
    if failed:
        raise SystemExit(f"{len(failed)} of {processes} processes failed with exit code {failed[0]}; see above")


def trials_of(study: optuna.Study) -> list[tuple[dict[str, object], float | None]]:
    return [(trial.params, trial.value) for trial in study.trials]


def main(
    folder: Path = FOLDER, quick: bool = False, processes: int = 2, trials: int = 20, seed: int = 0, join: bool = False
) -> dict[str, float]:
    trials = min(trials, 6) if quick else trials
    if processes < 1 or trials < processes:
        raise SystemExit(f"--processes {processes} must be from 1 to the number of trials, {trials}")
    folder.mkdir(parents=True, exist_ok=True)
    if not join:
        (folder / "journal.log").unlink(missing_ok=True)
    storage = journal(folder)
    search(storage, 0, seed)  # makes the study, so that the processes find it
    if processes == 1:
        search(storage, trials, seed)
    else:
        spread(folder, trials, processes, seed)
    study = optuna.load_study(storage=storage, study_name=NAME)
    complete = study.get_trials(states=[optuna.trial.TrialState.COMPLETE])
    done = len(complete)
    if not join and done != trials:
        raise SystemExit(f"{done} of {trials} trials are complete in {folder}; a process has lost some")
    first, second = (trials_of(search(InMemoryStorage(), min(trials, 5), seed)) for _ in range(2))
    if first != second:
        raise SystemExit("one process with the same seed made other trials the second time")
    test = error(fitted(study.best_params), *splits()[2])
    table = Table(
        "trial", "margin", "order", "select", "validation error in %", title=f"{done} trials, {processes} processes"
    )
    for trial in sorted(complete, key=lambda trial: (trial.value, trial.number))[:5]:
        margin, order, select = (trial.params[name] for name in ("margin", "order", "select"))
        table.add_row(str(trial.number), f"{margin:.3g}", str(order), str(select), f"{trial.value:.2f}")
    console = Console()
    console.print(table)
    console.print(
        f"best: trial {study.best_trial.number}, test error {test:.2f} %; repeatable with one process and a seed"
    )
    console.print(f"study: {folder / 'journal.log'}", soft_wrap=True)
    return {"trials": float(done), "validation": study.best_value, "test": test}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", dest="folder", type=Path, default=FOLDER, help="for the journal (%(default)s)")
    parser.add_argument("--quick", action="store_true", help="six trials")
    parser.add_argument("--processes", type=int, default=2, help="on this machine (%(default)s)")
    parser.add_argument("--trials", type=int, default=20, help="in all of them together (%(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="of the first process's sampler (%(default)s)")
    parser.add_argument("--join", action="store_true", help="add trials to the study that is in the folder")
    main(**vars(parser.parse_args()))
