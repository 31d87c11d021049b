"""What a request may cost, and how one that costs more, or is wrong, is refused."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Limits:
    """What one request may cost, and all of them together."""

    workers: int = 2  # processes that detect, each with one thread
    queue: int = 16  # recordings that wait for a worker
    body_bytes: int = 100 << 20
    longest_s: float = 1800.0  # of decoded audio
    work_s: float = 60.0  # from the first byte decoded to the answer
    uploads: int = 128  # that come in at once
    spool_bytes: int = 2 << 30  # of all uploads that are on the disk
    decoded_bytes: int = 1 << 30  # of one file that ffmpeg decodes
    worker_bytes: int = 2 << 30  # of memory that a worker may allocate
    # A body may take `grace_s`, and a second more for each `least_rate` of its bytes.
    grace_s: float = 20.0
    least_rate: int = 32 << 10  # bytes a second
    streams: int = 16  # that are marked as they come, at once
    upstream_s: float = 60.0  # until the upstream of a proxy begins to answer
    link_s: float = 30.0  # to fetch a link, redirects included
    # Of public answers that use a key or a record, in an hour.
    public_by_address: int = 20
    public_total: int = 1000
    asked_total: int = 1000  # answers in a day to all tokens that may only ask
    # Such answers come at a multiple of it, and of it for each minute of audio that is begun.
    fixed_s: float = 2.0


class RefusedError(Exception):
    """A request that is not answered: an HTTP status, what is wrong, and what may help."""

    def __init__(
        self, status: int, message: str, hint: str | None = None, retry_s: int | None = None
    ) -> None:
        super().__init__(message)
        self.status, self.message, self.hint, self.retry_s = status, message, hint, retry_s


def busy() -> RefusedError:
    """Return the refusal of a request for which there is no room now."""
    return RefusedError(503, "too many requests at once", "try again in some seconds", retry_s=5)


def too_large(limits: Limits) -> RefusedError:
    """Return the refusal of a recording with too many bytes."""
    most = limits.body_bytes / (1 << 20)
    return RefusedError(413, f"the recording has more than {most:g} MiB", "cut it, or compress it")
