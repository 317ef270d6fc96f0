"""What the fault campaign is made of: children that may crash, and outcomes.

Children are forked from one process that has everything imported, so that a thousand of them start in seconds, and an
end by a signal or no end at all is an outcome and not the end of the campaign.
"""

import faulthandler
import multiprocessing
import os
import signal
import sys
import threading
import traceback
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.connection import wait
from pathlib import Path

import sklearn
import torch

import torchperc.cli

RIGHT, CLEAN = "right result", "clean error"
BAD = SILENT, INTERNAL, HANG, SIGNAL = "silent wrong", "internal error", "hang", "signal"

PATIENCE = 120.0  # seconds for one case, on a machine that is busy with others
CORES = 2
CLEAN_ERRORS = (ValueError, TypeError, OSError, NotImplementedError)
WHOLE = os.environ.get("TORCHPERC_FAULTS") == "all"  # as `make test-faults` says; else a short form is run

_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload(
    [
        *("torch", "sklearn.linear_model", "pytorch_lightning", "matplotlib.pyplot", "pyarrow", "numba"),
        *(f"torchperc.{name}" for name in ("lightning", "plots", "sklearn", "rules.trainer", "learn.learn")),
        *(f"torchperc.cli.{name}" for name in ("entry", "commands", "fit", "tag")),
    ]
)


def faults(cases):
    """The cases (name, outcome, what was said) that came out badly, a line each."""
    return [
        f"{case} · {outcome}: {' '.join(str(said).split())[:300]}" for case, outcome, said in cases if outcome in BAD
    ]


_EXIT_CODES = threading.Lock()  # starting a process reads the exit codes of others, and each can be read once


def _enter(out, threads, target, arguments):
    """In the child: streams to files, then the work; a crash writes where it was."""
    torch.set_num_threads(threads)
    streams = [os.open(f"{out}.{name}", os.O_WRONLY | os.O_CREAT | os.O_TRUNC) for name in ("stdout", "stderr")]
    for place, descriptor in enumerate(streams, start=1):
        os.dup2(descriptor, place)
    sys.stdout, sys.stderr = (os.fdopen(place, "w", buffering=1, closefd=False) for place in (1, 2))
    faulthandler.enable(file=sys.stderr)
    target(*arguments)


class Child:
    """A child process with its streams in files beside ``out``."""

    def __init__(self, out, target, *arguments, threads=1):
        self.out = str(out)
        self.process = _CONTEXT.Process(target=_enter, args=(self.out, threads, target, arguments))
        with _EXIT_CODES:
            self.process.start()

    def ended(self, seconds):
        """The exit code, or None if it has not ended by then."""
        wait([self.process.sentinel], seconds)  # which reads no exit code
        with _EXIT_CODES:
            return self.process.exitcode

    def wait(self, seconds=PATIENCE):
        """The exit code (negative: a signal), or None if it does not end; then it is killed."""
        code = self.ended(seconds)
        if code is None:
            self.process.kill()
            self.ended(PATIENCE)
        return code

    def stop(self, after, how):
        """Send a signal after so many seconds, unless it has ended by then; its exit code."""
        self.ended(after)
        (self.process.kill if how == signal.SIGKILL else self.process.terminate)()
        return self.wait()

    def said(self, stream):
        path = Path(f"{self.out}.{stream}")
        return path.read_text(errors="replace") if path.is_file() else ""


def command(words, folder):
    """The command line in this process, in a folder."""
    os.chdir(folder)
    sys.argv = ["torchperc", *words]
    torchperc.cli.main(words)


def side_by_side(work, cases):
    """The results of ``work`` on each case, as many at once as there are cores."""
    with ThreadPoolExecutor(CORES) as pool:
        return list(pool.map(work, cases))


def outcome_of_command(code, stderr):
    """The class of a command that was given bad input: it works, or says in one line why not."""
    if code is None:
        return HANG
    if code < 0:
        return SIGNAL
    if "Traceback (most recent call last)" in stderr:
        return INTERNAL
    if code in (0, 1):
        return RIGHT
    lines = [line for line in stderr.splitlines() if line.startswith("torchperc: error: ")]
    return CLEAN if code == 2 and len(lines) == 1 else INTERNAL


class RefusedError(Exception):
    """Refused in a way that is not an exception of Python's own kinds."""


def outcome_of_error(error):
    """The class of an exception: one that we, or scikit-learn's checks, raise for the user, or one from further inside."""
    if isinstance(error, RefusedError | OSError):
        return CLEAN
    frames = [frame.filename for frame in traceback.extract_tb(error.__traceback__)]
    ours = frames[-1].startswith((*torchperc.__path__, *sklearn.__path__))
    return CLEAN if ours and isinstance(error, CLEAN_ERRORS) and str(error).strip() else INTERNAL


def judge(connection, judged, cases):
    """In the child: the outcome of each case, one by one, so that the last one sent says where a crash was."""
    for case in cases:
        connection.send((case, None, ""))
        try:
            outcome, said = judged(case)
        except Exception as error:
            outcome, said = outcome_of_error(error), f"{type(error).__name__}: {error}"
        connection.send((case, outcome, said))
    connection.close()


def judge_all(judged, cases, folder, size=40):
    """Judge cases in children, some in each; one that crashes or hangs costs its case and no other; the faults."""
    bundles = [cases[k : k + size] for k in range(0, len(cases), size)]

    def work(numbered):
        number, rest = numbered
        results, attempt = [], 0
        while rest:
            here, there = _CONTEXT.Pipe(duplex=False)
            child = Child(folder / f"child-{number}-{attempt}", judge, there, judged, rest)
            there.close()
            done, running = [], rest[0]
            try:
                while here.poll(PATIENCE):
                    running, outcome, said = here.recv()
                    if outcome is not None:
                        done.append((running, outcome, said))
                code = None if len(done) < len(rest) else 0
                child.process.kill()
            except EOFError:
                code = child.wait()
            child.ended(PATIENCE)
            results += done
            if len(done) == len(rest):
                break
            how = (HANG, "no answer") if code is None else (SIGNAL, f"ended with {code}: {child.said('stderr')[:200]}")
            results.append((running, *how))
            rest, attempt = rest[len(done) + 1 :], attempt + 1
        return results

    return faults([case for results in side_by_side(work, list(enumerate(bundles))) for case in results])
