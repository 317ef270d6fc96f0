"""Several processes of torch.distributed in a test, each forked from one that has loaded torchperc already."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import signal
import tempfile
import traceback
from datetime import timedelta
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any

_PRELOADED = ["torch", "numpy", "torchperc", "torchperc.rules.trainer", "torchperc.lightning.rule", "oracles"]
_PRELOADED += ["pyarrow.csv", "pyarrow.parquet", "pyarrow.compute", "scipy.sparse", "torchperc.data.read"]


def context() -> Any:
    """What starts processes that have loaded torchperc already."""
    made = multiprocessing.get_context("forkserver")
    made.set_forkserver_preload(_PRELOADED)
    return made


def run(size: int, function: Any, *args: Any, timeout: float = 60, seconds: float = 20) -> list[Any]:
    """What ``function(rank, size, *args)`` returns in each of ``size`` processes of one gloo group.

    ``function`` is found by its name in its module, as pickle does. An exception of a process is returned in its place.
    ``seconds`` is the time-out of the group, ``timeout`` that of the whole call, after which processes are killed.
    A process that ended by a signal yields the negative number of the signal.
    """
    with tempfile.TemporaryDirectory() as folder:
        store, pipes, processes = str(Path(folder) / "store"), [], []
        for rank in range(size):
            ours, theirs = context().Pipe(duplex=False)
            process = context().Process(target=_worker, args=(rank, size, store, seconds, theirs, function, args))
            process.start()
            theirs.close()
            pipes.append(ours)
            processes.append(process)
        results = [_received(pipe, process, timeout) for pipe, process in zip(pipes, processes, strict=True)]
        for process in processes:
            process.join(timeout=5)
            if process.is_alive():
                process.kill()
                process.join()
    return results


def _received(pipe: Any, process: Any, timeout: float) -> Any:
    if not wait([pipe], timeout):
        process.kill()
        return TimeoutError(f"no answer in {timeout} s")
    try:
        return pickle.loads(pipe.recv_bytes())
    except EOFError:
        process.join()
        return process.exitcode


def _worker(rank: int, size: int, store: str, seconds: float, pipe: Any, function: Any, args: tuple[Any, ...]) -> None:
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    signal.alarm(120)  # if the test that waits for it was killed
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    dist.init_process_group("gloo", f"file://{store}", timeout=timedelta(seconds=seconds), rank=rank, world_size=size)
    try:
        result = function(rank, size, *args)
    except Exception as error:
        traceback.print_exc()
        result = error
    try:
        pipe.send_bytes(pickle.dumps(result))
    except Exception as error:  # it cannot be pickled
        pipe.send_bytes(pickle.dumps(RuntimeError(f"{error}: {result!r}")))
    os._exit(0)  # a group whose other processes have ended would wait for them


QUIET = {"enable_progress_bar": False, "enable_model_summary": False, "accelerator": "cpu"}


def trainer(rank: int, size: int, **options: Any) -> Any:
    """A plain Trainer, in a process of :func:`run` with Lightning's true DDP strategy."""
    import pytorch_lightning as pl

    if size == 1:
        return pl.Trainer(accelerator="cpu", devices=1, **{k: v for k, v in options.items() if k != "accelerator"})
    as_launched(rank, size)
    return pl.Trainer(**{"accelerator": "cpu", "devices": size, "strategy": "ddp", **options})


def as_launched(rank: int, size: int) -> None:
    """Tell the libraries in a process of :func:`run` what ``torchrun`` would."""
    names = {"RANK": rank, "LOCAL_RANK": rank, "GROUP_RANK": 0, "WORLD_SIZE": size, "LOCAL_WORLD_SIZE": size}
    os.environ.update({name: str(value) for name, value in names.items()})
    os.environ.update(TORCHELASTIC_RUN_ID="tests", MASTER_ADDR="127.0.0.1", MASTER_PORT="29500")
