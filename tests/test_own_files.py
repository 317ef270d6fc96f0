"""Folders with one owner, and what dead processes left: by real processes where it matters."""

import os
import subprocess
import sys
import tempfile

import pytest

from torchperc import _files as folders
from torchperc._files import (
    FolderInUseError,
    atomic_path,
    hidden_folder,
    hidden_path,
    locked_folder,
    moved_aside,
    remove_stale_files,
)


@pytest.fixture
def dead():
    """The number of a process that has ended."""
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        process.wait()
    return process.pid


def left_by(process, folder, what="part"):
    return folder / hidden_path(folder, what).name.replace(f"-{os.getpid()}-", f"-{process}-")


def test_what_a_dead_process_left_is_removed(tmp_path, dead):
    folder, file = left_by(dead, tmp_path, "cache"), left_by(dead, tmp_path)
    (folder / "deep").mkdir(parents=True)
    (folder / "deep" / "X.npy").write_bytes(b"x")
    file.write_bytes(b"x")
    remove_stale_files(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_nothing_else_is_removed(tmp_path, dead):
    """Of a living process, of another machine, complete once, or of somebody's own name."""
    name = left_by(dead, tmp_path).name
    for other in (
        left_by(os.getpid(), tmp_path).name,
        left_by(1, tmp_path).name,
        left_by(dead, tmp_path, "old").name,
        f"{name[:-16]}{'0' * 16}",
        f"{name}.csv",
        name[1:],
        f".torchperc-{dead}",
        ".torchperc-notes",
        "torchperc-1",
    ):
        (tmp_path / other).write_bytes(b"x")
    (tmp_path / "of mine").mkdir()
    (tmp_path / "of mine" / "a.txt").write_bytes(b"x")
    link = left_by(dead, tmp_path)
    link.symlink_to(tmp_path / "of mine")  # the link goes, not what it points to
    before = sorted(tmp_path.iterdir())
    remove_stale_files(tmp_path)
    assert sorted([*tmp_path.iterdir(), link]) == before
    assert (tmp_path / "of mine" / "a.txt").exists()


def test_the_first_name_in_a_folder_sweeps_it(tmp_path, dead):
    left = tmp_path / left_by(dead, tmp_path.parent).name
    left.mkdir()
    mine = hidden_folder("cache", tmp_path)
    assert list(tmp_path.iterdir()) == [mine]
    assert mine.stat().st_mode & 0o777 == 0o700


def test_a_run_that_begins_sweeps_the_temporary_folder(tmp_path, monkeypatch, dead):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "hidden_folder"))
    (tmp_path / "hidden_folder" / left_by(dead, tmp_path, "cache").name).mkdir(parents=True)
    with locked_folder(tmp_path / "run"):
        assert list((tmp_path / "hidden_folder").iterdir()) == []


def test_a_folder_has_one_owner(tmp_path):
    with locked_folder(tmp_path / "run") as folder:
        with pytest.raises(FolderInUseError, match="in use by another process; wait"), locked_folder(folder):
            pass
        with pytest.raises(FolderInUseError), locked_folder(tmp_path / "run" / ".." / "run"):
            pass
        (folder / "a.txt").write_text("x")
    assert [path.name for path in folder.iterdir()] == ["a.txt"]
    with locked_folder(folder):
        pass


def test_the_claim_of_a_process_ends_with_it(tmp_path):
    code = (
        "import sys, time\nfrom pathlib import Path\nfrom torchperc._files import locked_folder\n"
        "with locked_folder(Path(sys.argv[1])):\n    print('locked_folder', flush=True)\n    time.sleep(600)\n"
    )
    words = [sys.executable, "-c", code, str(tmp_path / "run")]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "locked_folder\n"
        with pytest.raises(FolderInUseError, match="by another process;"), locked_folder(tmp_path / "run"):
            pass
        process.kill()
    with locked_folder(tmp_path / "run") as folder:
        assert (folder / folders.LOCK).exists()
    assert list(folder.iterdir()) == []


def test_a_claim_leaves_nothing_that_it_made(tmp_path):
    with pytest.raises(RuntimeError), locked_folder(tmp_path / "a" / "b" / "run"):
        raise RuntimeError
    assert list(tmp_path.iterdir()) == []


def test_a_claimed_folder_can_be_replaced_by_a_whole_one(tmp_path):
    with locked_folder(tmp_path / "run") as folder:
        with atomic_path(folder) as part:
            part.mkdir()
            (part / "a.txt").write_text("x")
        with locked_folder(folder):  # a new folder, which others may claim
            assert (folder / folders.LOCK).exists()
    assert [path.name for path in tmp_path.rglob("*")] == ["run", "a.txt"]


def test_a_folder_that_cannot_be_replaced_stays(tmp_path, monkeypatch):
    folder, real = tmp_path / "run", os.replace
    folder.mkdir()
    (folder / "a.txt").write_text("old")

    def fails(source, target):
        if target == folder and "-part-" in str(source):
            raise OSError(28, "No space left on device")
        real(source, target)

    monkeypatch.setattr(os, "replace", fails)
    with pytest.raises(OSError, match="No space left"), atomic_path(folder) as part:
        part.mkdir()
    assert [path.name for path in tmp_path.rglob("*")] == ["run", "a.txt"]


def test_what_makes_way_comes_back_if_it_has_to(tmp_path):
    for name in "ab":
        (tmp_path / name).write_text("old")

    def half():
        with moved_aside(tmp_path, [tmp_path / "a", tmp_path / "b"]):
            (tmp_path / "a").write_text("new")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        half()
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {"a": "old", "b": "old"}
    with moved_aside(tmp_path, [tmp_path / "a", tmp_path / "b"]):
        (tmp_path / "a").write_text("new")
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {"a": "new"}
