"""The command line: calls the function of a command; errors in one line on stderr."""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import sys
import threading
import warnings
from collections.abc import Iterator, Sequence
from typing import Any

from torchperc._checks import ParameterError, require_packages
from torchperc.cli.options import CONFIGURED, UsageError, parser
from torchperc.cli.output import is_first, say, spelled, warn

_SIGNALS = {"SIGINT": "interrupted", "SIGTERM": "stopped", "SIGHUP": "stopped, as the terminal was closed"}


def main(argv: Sequence[str] | None = None) -> None:
    """Entry point of the ``torchperc`` command."""
    faults: list[Any] = []  # of the only other thread, which writes for TensorBoard
    warnings.showwarning = warn
    try:
        with _signals(faults):
            _call(list(sys.argv[1:] if argv is None else argv))
            sys.stdout.flush()
    except BrokenPipeError:  # the reader went away, as in `torchperc demo | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise SystemExit(141) from None
    except KeyboardInterrupt:  # where no signal is listened for
        say("torchperc: interrupted", sys.stderr)
        raise SystemExit(130) from None
    except (ValueError, TypeError, OSError, MemoryError, RuntimeError) as error:
        lost = type(error).__name__ == "ProcessError"  # whose module takes long to import
        if isinstance(error, RuntimeError) and not lost:
            raise
        if not faults or not isinstance(error, OSError):
            fail(str(error), code=1 if lost else 2)
    finally:
        # a program, which ends here: its objects need not be looked through for garbage first; Triton complains
        if argv is None and "triton" not in sys.modules:
            gc.freeze()
    if faults:
        reason = getattr(faults[0], "strerror", None) or faults[0]
        fail(f"cannot write the event files of the run ({reason}); free some space, or choose a writable folder")


def fail(message: str, code: int = 2) -> None:
    """Print an error in one line and exit; of unconnected processes only the first prints."""
    dist = sys.modules.get("torch.distributed")
    if is_first() or (dist is not None and dist.is_available() and dist.is_initialized()):
        say(f"torchperc: error: {' '.join(message.split())}", sys.stderr)
    raise SystemExit(code)


def _call(words: list[str]) -> None:
    """Call the function of a command; an error names its options as they are written here."""
    flags: Any = ("--out",)
    try:
        if words and words[0] in CONFIGURED and not {"-h", "--help"} & set(words):
            require_packages(f"torchperc {words[0]}", "jsonargparse")
            os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "FATAL")  # of a lost process, torch prints its own stack
            from torchperc.cli import fit

            fit.run(words[0], ["--help" if word == "--help.all" else word for word in words[1:]])
            return
        given = _parsed(words)
        command, flags = given.pop("command"), [*given.pop("flags"), "--missing"]  # which errors of apply name
        if len(given.get("source", ())) == 1:  # which may be a name instead of a file
            given["source"] = given["source"][0]
        command(**given)
    except ParameterError as error:
        raise ValueError(error.text(lambda option: spelled(option, flags))) from None


def _parsed(words: list[str]) -> dict[str, Any]:
    try:
        return vars(parser().parse_args(words))
    except UsageError as error:  # `--ignore a b data.csv` leaves no data: then each --ignore reads one word
        with contextlib.suppress(UsageError):
            return vars(parser(several=False).parse_args(words))
        raise error


@contextlib.contextmanager
def _signals(faults: list[Any]) -> Iterator[None]:
    """Within the block a signal ends the command after cleanup, a second one at once; errors of threads are listed.

    Signals that are ignored, as by ``nohup``, stay so.
    """
    hook, threading.excepthook = threading.excepthook, lambda args: faults.append(args.exc_value)
    own = threading.current_thread() is threading.main_thread()  # no other can listen
    known = [getattr(signal, name) for name in _SIGNALS if own and hasattr(signal, name)]
    before = {number: signal.getsignal(number) for number in known if signal.getsignal(number) != signal.SIG_IGN}
    for number in before:
        signal.signal(number, _leave)
    try:
        yield
    finally:
        threading.excepthook = hook
        for number, handler in before.items():
            signal.signal(number, handler)


def _leave(number: int, _: object) -> None:
    signal.signal(number, signal.SIG_DFL)
    if is_first():
        with contextlib.suppress(OSError):  # the terminal may be gone
            os.write(2, f"torchperc: {_SIGNALS[signal.Signals(number).name]}\n".encode())
    raise SystemExit(128 + number)
