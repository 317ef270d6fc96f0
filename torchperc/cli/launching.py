"""Several processes of a command on this machine, started as ``torchrun`` starts them, and joined in one group."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from datetime import timedelta

from torchperc import _checks as checks
from torchperc.cli.ending import is_first as is_first

TIMEOUT = "TORCHPERC_TIMEOUT"
"""The environment variable for the seconds after which a process that does not answer is given up."""
_PATIENCE = 30  # seconds for the others to end by themselves when one has failed
_STARTED = "TORCHELASTIC_RUN_ID"


def starts(processes: int) -> bool:
    """Run this command in so many processes and wait for them; ``False`` if this is one of them, or is to be alone."""
    checks.whole("processes", processes, at_least=1)
    if _STARTED in os.environ or processes == 1:
        return False
    import torch.distributed as dist

    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)  # type: ignore[attr-defined]
    command = [sys.executable, "-m", "torchperc", *sys.argv[1:]]
    told = [_environment(rank, processes, store.port) for rank in range(processes)]  # the store's port is a free one
    started = [subprocess.Popen(command, env=each) for each in told]
    try:
        _wait(started)
    finally:
        for process in started:
            if process.poll() is None:
                process.terminate()
        for process in started:
            process.wait()
    return True


def _environment(rank: int, size: int, port: int) -> dict[str, str]:
    told: dict[str, object] = {"RANK": rank, "LOCAL_RANK": rank, "GROUP_RANK": 0}
    told |= {"WORLD_SIZE": size, "LOCAL_WORLD_SIZE": size}
    told |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, _STARTED: "torchperc"}
    told |= {"TORCHELASTIC_USE_AGENT_STORE": True, "TORCHELASTIC_RESTART_COUNT": 0, "TORCHELASTIC_MAX_RESTARTS": 0}
    kept = {"OMP_NUM_THREADS": str(max(1, (os.cpu_count() or 1) // size)), "TORCH_CPP_LOG_LEVEL": "FATAL"}
    if sys.platform == "linux":
        kept["GLOO_SOCKET_IFNAME"] = "lo"  # the machine's name may not be known to itself
    return {**kept, **os.environ, **{name: str(value) for name, value in told.items()}}


def _wait(started: list[subprocess.Popen[bytes]]) -> None:
    """Until all have ended; if one fails, the others have some seconds, and the command ends with its exit code."""
    while any(process.poll() is None for process in started):
        failed = next((process for process in started if process.returncode), None)
        if failed is not None:
            break
        time.sleep(0.05)
    end = time.monotonic() + _PATIENCE
    while any(process.poll() is None for process in started) and time.monotonic() < end:
        time.sleep(0.05)
    for rank, process in enumerate(started):
        if process.returncode is not None and process.returncode < 0:
            name = signal.Signals(-process.returncode).name
            print(f"torchperc: error: process {rank} of {len(started)} was ended by {name}", file=sys.stderr)
            raise SystemExit(1)
    codes = [process.returncode for process in started if process.returncode]
    if codes:
        raise SystemExit(max(codes))


def join() -> None:
    """Make one group of the processes that were started together, by :func:`starts` or ``torchrun``."""
    if int(os.environ.get("WORLD_SIZE", "1")) == 1:
        return
    import torch.distributed as dist

    if not dist.is_initialized():
        seconds = float(os.environ.get(TIMEOUT, "1800"))
        dist.init_process_group("gloo", timeout=timedelta(seconds=seconds))
