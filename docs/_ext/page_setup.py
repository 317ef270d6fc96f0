"""What the kernel of a page has before its first cell: figures, the cell magic ``%%sh``, and settings of its own."""

from __future__ import annotations

import io
import os
import subprocess
from pathlib import Path
from typing import Any

DOTS = 144  # per inch of a figure; a page shrinks what is wider than its column


SETTINGS = """\
c = get_config()
c.IPKernelApp.extensions = ["page_setup"]
c.IPKernelApp.log_level = "ERROR"
c.HistoryManager.enabled = False
"""


def write_kernel_settings(path: Path) -> None:
    """Write the settings that kernels are started with, instead of those that a user may have."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(SETTINGS)


def load_ipython_extension(shell: Any) -> None:
    """Show figures where they are made, and let ``%%sh`` run commands as a log file would record them."""
    png = shell.display_formatter.formatters["image/png"]
    png.for_type_by_name("matplotlib.figure", "Figure", draw)  # by name: not every page loads matplotlib
    shell.register_magic_function(run, "cell", "sh")


def draw(figure: Any) -> bytes:
    """A figure as a picture."""
    target = io.BytesIO()
    figure.savefig(target, format="png", bbox_inches="tight", dpi=DOTS)
    return target.getvalue()


def run(line: str, cell: str) -> None:
    """Run commands without colours and progress bars; print what they print at once, or fail with what they say.

    IPython's own ``%%sh`` prints in pieces, between which a page would begin a new line, and goes on after an error.
    """
    plain = {name: value for name, value in os.environ.items() if name not in ("FORCE_COLOR", "CLICOLOR_FORCE")}
    plain |= {"TERM": "dumb", "COLUMNS": "110", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(["sh", "-ec", cell], env=plain, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"exit code {done.returncode}\n{done.stdout}{done.stderr}")
    print("\n".join(text.rstrip() for text in done.stdout.rstrip().splitlines()))
