"""Whether the campaign sees what it looks for: each kind of fault, made on purpose, is found and named."""

import os
import signal
import time

import harness
import pytest
import test_kills

pytestmark = pytest.mark.faults


def judged(case):
    import torchperc as tp

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


def slowly(folder):
    """Writes a file in pieces under its own name, as nothing should."""
    with (folder / "out.txt").open("w") as file:
        for _ in range(20):
            file.write("piece ")
            file.flush()
            time.sleep(0.05)


def test_a_half_written_file_is_found(tmp_path):
    careless = test_kills.Command(
        lambda folder: (slowly, folder),
        lambda folder: (slowly, folder),
        lambda folder: test_kills.applied(folder, "out.txt"),
    )
    found = test_kills.outcomes("careless", careless, tmp_path, 6)
    assert harness.SILENT in {outcome for _, outcome, _ in found}


@pytest.mark.parametrize(
    ("code", "stderr", "expected"),
    [
        (0, "", harness.RIGHT),
        (2, "torchperc: error: no such file\n", harness.CLEAN),
        (2, "no such file\n", harness.INTERNAL),
        (1, "Traceback (most recent call last):\n", harness.INTERNAL),
        (-11, "", harness.SIGNAL),
        (None, "", harness.HANG),
    ],
)
def test_endings_of_commands(code, stderr, expected):
    assert harness.outcome_of_command(code, stderr) == expected
