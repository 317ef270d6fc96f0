"""The table of the fault campaign, at the end of a run and, if asked for, in a file."""

import gc
import os
from pathlib import Path

import harness
import pytest


@pytest.fixture(autouse=True)
def _collected():
    yield
    gc.collect()  # files that a damaged input left open are closed here, not in another test


def pytest_terminal_summary(terminalreporter):
    tally = harness.TALLY
    if not tally.counts:
        return
    terminalreporter.section("fault campaign")
    terminalreporter.write(tally.markdown())
    for fault in tally.faults:
        terminalreporter.write_line(fault)
    path = os.environ.get("TORCHPERC_FAULTS_SUMMARY")
    if path:
        Path(path).write_text(tally.markdown())
