"""Whether the campaign sees what it looks for: each kind of fault, made on purpose, is found and named."""

import os
import signal

import harness
import pytest
import test_kills

import torchperc as tp

pytestmark = pytest.mark.faults


def judged(case):
    if case == "crash":
        os.kill(os.getpid(), signal.SIGSEGV)
    if case == "hang":
        signal.pause()
    if case == "inside":
        return {}["no such key"]
    if case == "foreign":
        raise ValueError("raised here and not in the package")
    if case == "clean":
        tp.theory.radius([[float("nan")]])
    return (harness.SILENT, "wrong") if case == "silent" else (harness.RIGHT, "")


def test_each_outcome_is_named_and_the_others_go_on(tmp_path):
    tally = harness.Tally()
    cases = ["right", "crash", "right", "inside", "hang", "clean", "foreign", "silent", "right"]
    harness.judge_all("faults", judged, cases, tmp_path, size=len(cases), tally=tally, patience=5)
    expected = {harness.RIGHT: 3, harness.SIGNAL: 1, harness.INTERNAL: 2, harness.HANG: 1, harness.CLEAN: 1, harness.SILENT: 1}  # fmt: skip
    assert tally.counts == {"faults": expected}
    assert [fault.split(" · ")[1] for fault in tally.faults] == ["crash", "inside", "hang", "foreign", "silent"]
    assert "| faults | 9 | 3 | 1 | 1 | 2 | 1 | 1 |" in tally.markdown()


def pause(folder):
    signal.pause()


def test_a_half_written_file_is_found(tmp_path):
    careless = test_kills.Command(
        start=lambda folder: (pause, folder),
        again=lambda folder: (pause, folder),
        result=lambda folder: test_kills.applied(folder, "out.txt"),
        prepare=lambda folder: (folder / "out.txt").write_text("half"),
    )
    found = test_kills.outcome(careless, tmp_path, "the digest of a whole file", 0, 0.1, signal.SIGKILL)
    assert found == (harness.SILENT, "what it left is not of this run")
