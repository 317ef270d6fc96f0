"""Folders with one owner, and what dead processes left: by real processes where it matters."""

import os
import subprocess
import sys
import tempfile

import pytest

from torchperc import _files
from torchperc._files import FolderInUseError, atomic_path, hidden_folder, hidden_path, locked_folder, moved_aside


@pytest.fixture(scope="module")
def dead():
    """The number of a process that has ended."""
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        process.wait()
    return process.pid


def left_by(process, folder, what="part"):
    return folder / hidden_path(folder, what).name.replace(f"-{os.getpid()}-", f"-{process}-")


def names(folder):
    return sorted(path.name for path in folder.rglob("*"))


def test_what_a_dead_process_left_is_removed_and_nothing_else(tmp_path, dead):
    """Of a living process, of another machine, complete once, or of somebody's own name."""
    name = left_by(dead, tmp_path).name
    others = [left_by(os.getpid(), tmp_path).name, left_by(1, tmp_path).name, left_by(dead, tmp_path, "old").name]
    others += [f"{name[:-16]}{'0' * 16}", f"{name}.csv", name[1:], f".torchperc-{dead}", ".torchperc-notes"]
    for other in others:
        (tmp_path / other).write_bytes(b"x")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "a.txt").write_bytes(b"x")
    folder, file = left_by(dead, tmp_path, "cache"), left_by(dead, tmp_path)
    (folder / "deep").mkdir(parents=True)
    (folder / "deep" / "X.npy").write_bytes(b"x")
    file.write_bytes(b"x")
    left_by(dead, tmp_path).symlink_to(tmp_path / "mine")  # the link goes, not what it points to
    _files.remove_stale_files.__wrapped__(tmp_path)
    assert names(tmp_path) == sorted([*others, "mine", "a.txt"])


def test_the_first_name_in_a_folder_and_a_run_that_begins_remove_it(tmp_path, monkeypatch, dead):
    for folder in (tmp_path / "a", tmp_path / "b"):
        (folder / left_by(dead, tmp_path, "cache").name).mkdir(parents=True)
    mine = hidden_folder("cache", tmp_path / "a")
    assert list((tmp_path / "a").iterdir()) == [mine]
    assert mine.stat().st_mode & 0o777 == 0o700
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "b"))
    with locked_folder(tmp_path / "run"):
        assert names(tmp_path / "b") == []


def test_a_folder_has_one_owner(tmp_path):
    with locked_folder(tmp_path / "run") as folder:
        for same in (folder, tmp_path / "run" / ".." / "run"):
            with pytest.raises(FolderInUseError, match="in use by another process"), locked_folder(same):
                pass
        (folder / "a.txt").write_text("x")
    assert names(folder) == ["a.txt"]
    with pytest.raises(RuntimeError), locked_folder(tmp_path / "a" / "b" / "run"):
        raise RuntimeError
    assert names(tmp_path) == ["a.txt", "run"]  # nothing that the lock made is left


def test_the_lock_of_a_process_ends_with_it(tmp_path):
    code = (
        "import sys, time\nfrom pathlib import Path\nfrom torchperc._files import locked_folder\n"
        "with locked_folder(Path(sys.argv[1])):\n    print('locked', flush=True)\n    time.sleep(600)\n"
    )
    words = [sys.executable, "-c", code, str(tmp_path / "run")]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "locked\n"
        with pytest.raises(FolderInUseError), locked_folder(tmp_path / "run"):
            pass
        process.kill()
    with locked_folder(tmp_path / "run") as folder:
        assert names(folder) == [_files.LOCK]
    assert names(folder) == []


def test_a_locked_folder_can_be_replaced_by_a_complete_one(tmp_path):
    with locked_folder(tmp_path / "run") as folder:
        with atomic_path(folder) as part:
            part.mkdir()
            (part / "a.txt").write_text("x")
        with locked_folder(folder):  # a new folder, which others may lock
            assert (folder / _files.LOCK).exists()
    assert names(tmp_path) == ["a.txt", "run"]


def test_a_folder_that_cannot_be_replaced_stays(tmp_path, monkeypatch):
    folder, real = tmp_path / "run", os.replace
    folder.mkdir()
    (folder / "a.txt").write_text("old")

    def fails(source, target):
        if target == folder and "-part-" in str(source):
            raise OSError(28, "No space left on device")
        real(source, target)

    monkeypatch.setattr(os, "replace", fails)
    with pytest.raises(OSError, match=r"cannot write .*No space left"), atomic_path(folder) as part:
        part.mkdir()
    assert names(tmp_path) == ["a.txt", "run"]


def test_what_makes_way_comes_back_if_it_has_to(tmp_path):
    def contents():
        return {path.name: path.read_text() for path in tmp_path.iterdir()}

    for name in "ab":
        (tmp_path / name).write_text("old")
    with pytest.raises(KeyboardInterrupt), moved_aside(tmp_path, [tmp_path / "a", tmp_path / "b"]):
        raise KeyboardInterrupt
    assert contents() == {"a": "old", "b": "old"}
    with moved_aside(tmp_path, [tmp_path / "a", tmp_path / "b"]):
        (tmp_path / "a").write_text("new")
    assert contents() == {"a": "new"}
