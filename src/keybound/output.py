"""Outputs: files that appear whole or not at all.

A file is made in a stage in its own folder (`stages`) and is then linked or renamed to its name.
Every output of the package goes through here, so that one place decides what may be replaced, with
which mode, and what is said where a file cannot be written. Standard library only.
"""

import contextlib
import errno
import os
import stat
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from keybound import stages
from keybound.errors import AudioError, KeyBoundError

PRIVATE = 0o600
FULL = (errno.ENOSPC, errno.EDQUOT)
PROBE_BYTES = 1 << 16
# What file systems without hard links answer.
UNLINKABLE = (errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK)
SPECIAL = {
    stat.S_IFLNK: "a symbolic link",
    stat.S_IFIFO: "a named pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}
FORCE_HINT = "--force replaces it"
Kind = type[KeyBoundError]  # what a refusal is raised as


@dataclass(frozen=True)
class Part:
    """A file in the making: what is written to `path` appears as `output` when it is published."""

    path: Path
    output: Path
    mode: int  # of the output
    replace: bool = False
    kind: Kind = AudioError
    exists_hint: str = FORCE_HINT

    @property
    def stage(self) -> Path:
        """Return the folder that holds the part."""
        return self.path.parent

    def publish(self) -> None:
        """Publish the part as its output, in one step.

        Without `replace` exactly one of several programs that want the name gets it.
        """
        try:
            if self.replace:
                self._finish()
                _check_special(self.output, self.kind)  # again: hours may have passed
                self.path.replace(self.output)
                _sync_folder(self.output.parent)
            else:
                self.link()
        except FileExistsError:
            raise self.kind(f"{self.output} exists", hint=self.exists_hint) from None
        except OSError as error:
            raise unwritable(self.output, error, self.kind) from error

    def link(self) -> None:
        """Publish without replacing; raise FileExistsError where the name is taken."""
        self._finish()
        _link(self.path, self.output)
        _sync_folder(self.output.parent)

    def hand_over(self) -> None:
        """Leave the part on the disk, for the process that publishes it (`adopted`)."""
        self._finish()
        stages.hand_over(self.stage)

    def _finish(self) -> None:
        _sync(self.path)
        if mode_of(self.path) != self.mode:
            self.path.chmod(self.mode)


@contextlib.contextmanager
def staged(
    output: str | os.PathLike[str],
    *,
    source: str | os.PathLike[str] | None = None,
    replace: bool = False,
    mode: int | None = None,
    kind: Kind = AudioError,
    exists_hint: str = FORCE_HINT,
) -> Iterator[Part]:
    """Yield a part to write to and to publish; what is not published is removed.

    `mode` is that of the output; if None, what the process gives to new files. A message that names
    the part names its output in place of it.
    """
    path = Path(output)
    check(path, source=source, replace=replace, kind=kind, exists_hint=exists_hint)
    try:
        with stages.stage(path.parent) as stage, named(part := stage / f"part{path.suffix}", path):
            descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
            usual = stat.S_IMODE(os.fstat(descriptor).st_mode)
            os.close(descriptor)
            yield Part(part, path, usual if mode is None else mode, replace, kind, exists_hint)
    except OSError as error:
        raise unwritable(path, error, kind) from error


@contextlib.contextmanager
def writing(
    output: str | os.PathLike[str],
    *,
    replace: bool = False,
    mode: int | None = None,
    kind: Kind = AudioError,
    exists_hint: str = FORCE_HINT,
) -> Iterator[Path]:
    """Yield the path of a part that is published if nothing is raised: see `staged`."""
    with staged(output, replace=replace, mode=mode, kind=kind, exists_hint=exists_hint) as part:
        yield part.path
        part.publish()


@contextlib.contextmanager
def adopted(path: Path, output: Path, *, replace: bool, kind: Kind = AudioError) -> Iterator[Part]:
    """Yield a part that another process handed over, to be published here."""
    with stages.taken(path.parent), named(path, output):
        mode = mode_of(path)
        if mode is None:
            raise kind(f"{output} was removed before it could appear", hint="run it again")
        yield Part(path, output, mode, replace, kind)


@contextlib.contextmanager
def named(part: Path, output: Path) -> Iterator[None]:
    """Replace the name of the part by that of its output in error messages."""
    try:
        yield
    except KeyBoundError as error:
        error.message = error.message.replace(str(part), str(output))
        error.args = (error.message,)
        raise


def check(
    output: str | os.PathLike[str],
    *,
    source: str | os.PathLike[str] | None = None,
    replace: bool = False,
    kind: Kind = AudioError,
    exists_hint: str = FORCE_HINT,
    parent: bool = True,
) -> None:
    """Raise an error where an output cannot be written: known now rather than after the work.

    Without `parent` its folder need not be there yet.
    """
    path = Path(output)
    try:
        there = path.exists()
        if there and source is not None and Path(source).exists() and path.samefile(source):
            raise kind(f"{path} is the recording itself", hint="name another output")
        _check_special(path, kind)
        if path.is_dir():
            raise kind(f"{path} is a folder", hint="name a file in it")
        if there and not replace:
            raise kind(f"{path} exists", hint=exists_hint)
        if parent and not path.parent.is_dir():
            raise kind(f"{path.parent} is not a folder", hint="make it first")
    except (OSError, ValueError) as error:
        raise unwritable(path, error, kind) from error


def mode_of(path: str | os.PathLike[str]) -> int | None:
    """Return the permission bits of a file, for an output that is to have the same."""
    with contextlib.suppress(OSError, ValueError):
        return Path(path).stat().st_mode & 0o777
    return None


def unwritable(
    path: str | os.PathLike[str], error: Exception, kind: Kind = AudioError
) -> KeyBoundError:
    """Return the error that says why a file cannot be written; a full disk is named.

    Libraries often do not say why a write failed: then the disk is probed.
    """
    number, reason = getattr(error, "errno", None), getattr(error, "strerror", None)
    if isinstance(error, ValueError) and reason is None:
        reason = str(error)  # of a name that cannot be, such as one with a null byte
    hint = "check that the folder exists, may be written to and has room"
    if number in FULL or (number is None and is_full(Path(path).parent)):
        reason, hint = "no space left on the disk", "make room, or write to another disk"
    return kind(f"{path} cannot be written" + (f": {reason.lower()}" if reason else ""), hint=hint)


def _check_special(path: Path, kind: Kind) -> None:
    """Raise an error where the name is a pipe, a device, a socket or a link: those stay."""
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        if what := SPECIAL.get(stat.S_IFMT(path.lstat().st_mode)):
            raise kind(f"{path} is {what}, not a file", hint="name another output")


def _link(part: Path, output: Path) -> None:
    """Give a file a new name; raise FileExistsError where the name is taken."""
    try:
        output.hardlink_to(part)
        return
    except OSError as error:
        if error.errno not in UNLINKABLE:
            raise
    os.close(os.open(output, os.O_WRONLY | os.O_CREAT | os.O_EXCL, PRIVATE))  # takes the name
    try:
        part.replace(output)
    except BaseException:
        output.unlink(missing_ok=True)
        raise


def _sync(path: Path) -> None:
    """Flush a file to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _sync_folder(folder: Path) -> None:
    """Flush the names in a folder to the disk, where the system can."""
    with contextlib.suppress(OSError):
        _sync(folder)


def is_full(folder: Path) -> bool:
    """Return whether a disk is full."""
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(bytes(PROBE_BYTES))
            file.flush()
    except OSError as error:
        return error.errno in FULL
    return False
