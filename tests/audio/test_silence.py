"""libmpg123 prints nothing, and what Python prints at the same time is there."""

import os
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
import soundfile as sf

from keybound.audio.silence import silence

PRINT = "import ctypes; ctypes.CDLL(None).perror(b'from c')"


@pytest.fixture
def mp3(tmp_path: Path) -> bytes:
    sf.write(tmp_path / "a.mp3", np.random.default_rng(0).normal(0, 0.1, (48_000, 1)), 16_000)
    return (tmp_path / "a.mp3").read_bytes()


def stderr_of(*command: object) -> tuple[int, list[str]]:
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True)
    return done.returncode, done.stderr.splitlines()


def test_a_damaged_mp3_is_one_line_or_none(mp3, tmp_path):
    noise = np.random.default_rng(1).bytes(700)
    third = len(mp3) // 3
    hosts = {
        "cut.mp3": mp3[:third],
        "noise.mp3": mp3[:third] + noise + mp3[third:],
        "flipped.mp3": mp3[:third] + bytes(40) + mp3[third + 40 :],
        "garbage.mp3": b"ID3\4\0\0\0\0\0\x0a" + bytes(10) + noise + mp3,
        "version.mp3": b"ID3\x09\0\0\0\0\0\x0a" + bytes(10) + mp3,
        "size.mp3": b"ID3\4\0\0\xff\xff\xff\xff" + bytes(10) + mp3,
    }
    loud = 0
    for name, content in hosts.items():
        path = tmp_path / name
        path.write_bytes(content)
        bare = f"import soundfile; soundfile.read({str(path)!r})"
        loud += any("mpg123" in line or "Warning" in line for line in stderr_of(
            sys.executable, "-c", bare)[1])  # fmt: skip
        code, lines = stderr_of(sys.executable, "-m", "keybound", "detect", path)
        assert len(lines) == (code == 2), (name, lines)
        assert all(line.startswith("keybound: ") for line in lines)
    assert loud >= 3  # or this test would show nothing


def test_c_is_silent_and_python_is_not():
    script = f"""
import sys
from keybound.audio.silence import silence
{PRINT}
with silence():
    with silence():
        {PRINT}
    {PRINT}
    print("from python", file=sys.stderr, flush=True)
{PRINT}
"""
    code, lines = stderr_of(sys.executable, "-c", script)
    assert code == 0
    assert [line.split(":")[0] for line in lines] == ["from c", "from python", "from c"]


def test_threads_share_the_silence(capfd):
    gate = threading.Barrier(8)

    def work() -> None:
        for _ in range(200):
            with silence():
                gate.wait()

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    exec(PRINT)
    assert capfd.readouterr().err.startswith("from c")
    os.write(2, b"still there")
    assert capfd.readouterr().err == "still there"
