"""Folders with one owner, and what dead processes left: by real processes where it matters."""

import os
import subprocess
import sys

import pytest

from torchperc import _files
from torchperc._files import FolderInUseError, atomic_path, hidden_path, locked_folder, moved_aside


def names(folder):
    return sorted(path.name for path in folder.rglob("*"))


def test_parts_that_a_killed_process_left_are_removed_a_day_later(tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "a.txt").write_bytes(b"x")
    parts = [hidden_path(tmp_path) for _ in range(4)]
    kept = [parts[0], hidden_path(tmp_path, "old"), tmp_path / ".torchperc-notes"]
    (parts[1] / "deep").mkdir(parents=True)
    (parts[1] / "deep" / "X.npy").write_bytes(b"x")
    parts[2].symlink_to(tmp_path / "mine")  # the link goes, not what it points to
    for file in (parts[3], *kept):
        file.write_bytes(b"x")
    for path in (*parts[1:], *kept[1:]):
        os.utime(path, (0, 0), follow_symlinks=False)
    hidden_path(tmp_path)
    assert names(tmp_path) == sorted([*(path.name for path in kept), "mine", "a.txt"])


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
