"""Stages: private folders in which files are made, and which of them are still in use.

Whoever makes a file holds a lock in its stage. The lock goes when the process does, so that a later
run can tell what a killed one left from what is in use. A lock tells that on its own machine only.
Standard library only.
"""

import contextlib
import errno
import hashlib
import os
import platform
import re
import secrets
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

try:
    import fcntl
except ImportError:  # not on Windows: there nothing tells what is in use, and nothing is removed
    fcntl = None  # type: ignore[assignment]

PREFIX = ".keybound-"  # of a stage beside its output
SCRATCH = "keybound-"  # of one in the temporary folder
TOKEN = re.compile("[0-9a-f]{16}")
LOCK = "lock"
MACHINE_ID = Path("/etc/machine-id")


def machine() -> str:
    """Return the name of this machine: only on the same one do paths and locks mean the same.

    It is $KEYBOUND_MACHINE, else the host name with a hash of the machine id, where there is one:
    two machines may have one host name, and copies of a container one machine id.
    """
    if chosen := os.environ.get("KEYBOUND_MACHINE"):
        return chosen
    with contextlib.suppress(OSError):
        if known := MACHINE_ID.read_bytes().strip():
            return f"{platform.node()} {hashlib.sha256(b'keybound' + known).hexdigest()[:16]}"
    return platform.node()


@contextlib.contextmanager
def stage(parent: Path, prefix: str = PREFIX) -> Iterator[Path]:
    """Yield a new folder, locked inside and removed at the end unless it was handed over."""
    folder, lock = _claim(parent, prefix)
    try:
        yield folder
    finally:
        if (folder / LOCK).exists():
            shutil.rmtree(folder, ignore_errors=True)
        _unlock(lock)


@contextlib.contextmanager
def scratch() -> Iterator[Path]:
    """Yield a private temporary folder; remove those that killed programs left."""
    parent = Path(tempfile.gettempdir())
    sweep(parent, SCRATCH)
    with stage(parent, SCRATCH) as folder:
        yield folder


def hand_over(folder: Path) -> None:
    """Leave a stage on the disk for another process, which must take it at once (`taken`).

    Until then nobody holds it: a run that begins in between may remove it.
    """
    (folder / LOCK).unlink()


@contextlib.contextmanager
def taken(folder: Path) -> Iterator[None]:
    """Hold a stage that was handed over, and remove it at the end."""
    lock = None
    with contextlib.suppress(OSError):
        lock = _lock(folder)
    try:
        yield
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        _unlock(lock)


def sweep(parent: str | os.PathLike[str], prefix: str = PREFIX) -> None:
    """Remove the stages that killed programs left in a folder. What is in use stays."""
    with contextlib.suppress(OSError), os.scandir(parent) as entries:
        for entry in entries:
            ours = entry.name.startswith(prefix) and TOKEN.fullmatch(entry.name[len(prefix) :])
            if ours and entry.is_dir(follow_symlinks=False):
                with reclaimed(Path(entry.path)):
                    pass


@contextlib.contextmanager
def reclaimed(folder: Path) -> Iterator[bool]:
    """Yield whether a stage is abandoned; if so, hold it inside and remove it at the end."""
    try:
        lock = _lock(folder)
    except (FileNotFoundError, NotADirectoryError):
        yield True
        return
    except OSError:  # in use, of another user, or on a file system that cannot tell
        yield False
        return
    try:
        yield True
        shutil.rmtree(folder, ignore_errors=True)
    finally:
        _unlock(lock)


def _claim(parent: Path, prefix: str) -> tuple[Path, int | None]:
    """Make a stage and lock it; one that a sweep took between the two steps is made again."""
    while True:
        folder = parent / f"{prefix}{secrets.token_hex(8)}"
        folder.mkdir(mode=0o700)
        try:
            return folder, _lock(folder)
        except (BlockingIOError, FileNotFoundError):
            continue
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                folder.rmdir()
                raise
            (folder / LOCK).touch()
            return folder, None  # a file system without locks: nothing is swept there either


def _lock(folder: Path) -> int:
    """Lock a stage and return the descriptor; raise BlockingIOError where another holds it."""
    if fcntl is None:
        raise OSError(errno.ENOTSUP, "no locks")
    name = folder / LOCK
    descriptor = os.open(name, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if not os.path.samestat(os.fstat(descriptor), name.stat()):
            raise BlockingIOError(errno.EAGAIN, "swept and made again")
    except FileNotFoundError as error:
        os.close(descriptor)
        raise BlockingIOError(errno.EAGAIN, "swept") from error
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _unlock(lock: int | None) -> None:
    if lock is not None:
        os.close(lock)
