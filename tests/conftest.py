import functools
import gc
import importlib.metadata
import os
import subprocess
import sys
import warnings
from collections.abc import Callable

import pretend
import pytest
import torch
from compiling import CACHE, compile_once
from hypothesis import HealthCheck, settings

# the suite runs in parallel workers; one thread each keeps them out of each other's way and sums in one order
torch.set_num_threads(1)
os.environ.setdefault("OMP_NUM_THREADS", "1")
# one folder of compiled loops for workers and the processes that tests start
os.environ["NUMBA_CACHE_DIR"] = str(CACHE)
# a folder per worker for torch.compile, whose files two workers might write at once
os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(CACHE.parent / f"inductor-{os.environ.get('PYTEST_XDIST_WORKER', 'main')}")

# every Trainer asks the installed packages for callbacks of theirs, which reads the metadata of them all
importlib.metadata.entry_points = functools.cache(importlib.metadata.entry_points)

collect_ignore = ["notebook_runs.py"]  # a program that needs nbclient, without examples

common = {"derandomize": True, "deadline": None, "suppress_health_check": [HealthCheck.too_slow], "database": None}
settings.register_profile("default", max_examples=15, **common)
settings.register_profile("all", max_examples=200, **common)  # pytest --hypothesis-profile all
settings.load_profile("default")


def pytest_sessionstart(session: pytest.Session) -> None:
    several = session.config.getoption("numprocesses", None) or "TORCHPERC_FAULTS" in os.environ
    if several and not hasattr(session.config, "workerinput"):  # in the process that starts the workers
        compile_once(2, session.config.pluginmanager.get_plugin("terminalreporter").write_line)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let tests of several processes run one after the other, and those with a browser share it."""
    for item in items:
        for name, group in {"processes": "processes", "faults": "processes", "browser": "browser"}.items():
            if item.get_closest_marker(name):
                item.add_marker(pytest.mark.xdist_group(group))


@pytest.fixture(autouse=True)
def _seeded() -> None:
    if torch.cuda.is_available():
        torch.manual_seed(0)
    else:  # the same without a copy of the stack for each kind of device that may be used later
        torch.default_generator.manual_seed(0)


@pytest.fixture
def run_main(capsys, monkeypatch):
    """Run a program in this process by its ``main``: exit code, standard output, standard error."""

    def run(main: Callable[[list[str]], object], *words: object) -> tuple[int, str, str]:
        monkeypatch.setattr(warnings, "showwarning", warnings.showwarning)  # which some commands replace
        code = 0
        try:
            main([str(word) for word in words])
        except SystemExit as leave:
            code = leave.code or 0
        return code, *capsys.readouterr()

    return run


@pytest.fixture
def call(run_main):
    """Run a command of torchperc."""
    from torchperc.cli import main

    return functools.partial(run_main, main)


@pytest.fixture
def refused(call):
    """Run a command that fails with exit code 2 and one line on standard error, which is returned."""

    def run(*words: object, silent: bool = True) -> str:
        code, out, err = call(*words)
        assert (code, err.count("\n"), bool(out and silent)) == (2, 1, False), err
        return err

    return run


@pytest.fixture
def fresh():
    """What a program prints in a process of its own."""
    return lambda code: subprocess.run([sys.executable, "-c", code], stdout=-1, text=True, check=True).stdout


@pytest.fixture
def unpainted(monkeypatch):
    """Pictures made but not painted, for tests that look at words only."""
    from torch.utils.tensorboard import SummaryWriter

    from torchperc.reports import Picture

    monkeypatch.setattr(Picture, "of", lambda figure, alt, caption: Picture(b"", alt, caption, (1, 1)))
    monkeypatch.setattr(SummaryWriter, "add_figure", lambda *_, **__: None)


def pytest_collection_finish() -> None:
    gc.collect()
    gc.freeze()  # a million objects of imported modules, which each full collection would go through again


@pytest.fixture(params=["pretend", "cuda"])
def device(request: pytest.FixtureRequest) -> str:
    """The device of a test marked ``gpu``: one that runs everywhere, see ``pretend.py``, and CUDA where there is one."""
    if request.param == "cuda" and not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    return request.param


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    if pyfuncitem.funcargs.get("device") != "pretend":
        return None
    pretend.in_another_process(pyfuncitem)
    return True


def pytest_unconfigure() -> None:
    gc.unfreeze()  # else libraries that check at exit complain of what was not freed
