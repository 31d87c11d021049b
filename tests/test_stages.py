"""Stages: what killed programs left is removed, and never what is in use."""

import os
import threading
from pathlib import Path

import pytest

from keybound import output, stages
from keybound.errors import AudioError

posix = pytest.mark.skipif(os.name != "posix", reason="locks are POSIX")


@posix
def test_what_is_in_use_is_not_swept(tmp_path: Path) -> None:
    left = tmp_path / f".keybound-{'0' * 16}"
    left.mkdir()
    (left / "lock").touch()
    (left / "part.wav").write_bytes(b"half")
    bare = tmp_path / f".keybound-{'1' * 16}"  # killed before it had a lock
    bare.mkdir()
    names = [".keybound-notes", ".keybound-2", f"keybound-{'0' * 16}"]
    others = [tmp_path / name for name in names]
    for path in others:
        path.mkdir()
    link = tmp_path / f".keybound-{'2' * 16}"
    link.symlink_to(others[0])
    with output.staged(tmp_path / "a.txt") as part:
        part.path.write_text("whole")
        stages.sweep(tmp_path)
        assert part.path.exists()
        assert not left.exists()
        assert not bare.exists()
        part.publish()
    assert sorted(tmp_path.iterdir()) == sorted([*others, link, tmp_path / "a.txt"])


@posix
def test_sweeps_and_new_stages_at_once(tmp_path: Path) -> None:
    done = threading.Event()

    def sweep() -> None:
        while not done.is_set():
            stages.sweep(tmp_path)

    sweepers = [threading.Thread(target=sweep) for _ in range(3)]
    for one in sweepers:
        one.start()
    try:
        for number in range(300):
            with output.writing(tmp_path / f"{number}.txt") as part:
                part.write_text("whole")
    finally:
        done.set()
        for one in sweepers:
            one.join()
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(
        f"{number}.txt" for number in range(300)
    )


@posix
def test_a_part_is_handed_over_once(tmp_path: Path) -> None:
    with output.staged(tmp_path / "a.txt", mode=0o640) as part:
        part.path.write_text("whole")
        part.hand_over()
    assert part.path.exists()
    with output.adopted(part.path, part.output, replace=False) as ours:
        stages.sweep(tmp_path)  # which leaves it: it is held again
        ours.publish()
    assert [path.name for path in tmp_path.iterdir()] == ["a.txt"]
    assert part.output.stat().st_mode & 0o777 == 0o640
    with (
        pytest.raises(AudioError, match=r"a\.txt was removed before it could appear"),
        output.adopted(part.path, part.output, replace=False),
    ):
        pass


@posix
def test_a_part_that_nobody_takes_is_swept(tmp_path: Path) -> None:
    with output.staged(tmp_path / "a.txt") as part:
        part.hand_over()
    stages.sweep(tmp_path)
    assert list(tmp_path.iterdir()) == []
