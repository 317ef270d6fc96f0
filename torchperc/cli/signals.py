"""Signals and failing threads while a command runs; which of several processes prints."""

from __future__ import annotations

import contextlib
import hashlib
import os
import signal
import sys
import threading
from datetime import timedelta
from types import FrameType
from typing import Any

_PATIENCE = 3  # seconds for the first process to come to the same error
_SAID = {"SIGINT": "interrupted", "SIGTERM": "stopped", "SIGHUP": "stopped, as the terminal was closed"}


def is_first() -> bool:
    """Whether this process is the only one, or the first of its machine, as launchers number them."""
    return os.environ.get("LOCAL_RANK", "0") == "0"


def should_print(text: str) -> bool:
    """Whether this process prints an error: if others have the same, the first of them does."""
    dist = sys.modules.get("torch.distributed")
    if dist is None or not dist.is_available() or not dist.is_initialized() or dist.get_world_size() == 1:
        return is_first()
    key = f"torchperc/{hashlib.blake2b(text.encode()).hexdigest()}"
    try:
        store = dist.distributed_c10d._get_default_store()
        if dist.get_rank() == 0:
            store.set(key, "said")
            return True
        store.wait([key], timedelta(seconds=_PATIENCE))
    except (RuntimeError, ValueError, AttributeError):  # the first has another error or none, or has ended
        return True
    return False


class SignalHandler:
    """Within the block a signal raises ``SystemExit``, so that cleanup runs; a second one ends at once.

    Signals that are ignored, as by ``nohup``, stay so. What a thread raises is kept as :attr:`fault` and not printed.
    """

    def __init__(self) -> None:
        self.fault: BaseException | None = None
        self.sentence, self.code = "", 0
        self._before: dict[int, Any] = {}

    def __enter__(self) -> SignalHandler:
        self._hook, threading.excepthook = threading.excepthook, self._note
        if threading.current_thread() is threading.main_thread():  # no other can listen
            for name in _SAID:
                number = getattr(signal, name, None)  # Windows has no SIGHUP
                if number is not None and signal.getsignal(number) != signal.SIG_IGN:
                    self._before[number] = signal.signal(number, self._leave)
        return self

    def __exit__(self, *_: object) -> None:
        threading.excepthook = self._hook
        if not self.sentence:  # else listen until the interpreter has closed, which takes a while
            for number, handler in self._before.items():
                signal.signal(number, handler)

    def say(self) -> None:
        """Print why the command ends."""
        if is_first():
            with contextlib.suppress(OSError):  # the terminal may be gone
                os.write(2, f"{self.sentence}\n".encode())

    def _leave(self, number: int, frame: FrameType | None) -> None:
        again = bool(self.sentence)
        self.sentence, self.code = f"torchperc: {_SAID[signal.Signals(number).name]}", 128 + number
        if again:
            self.say()
            os._exit(self.code)
        raise SystemExit(self.code)

    def _note(self, args: threading.ExceptHookArgs) -> None:
        self.fault = self.fault or args.exc_value
