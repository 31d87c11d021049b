"""How a batch is spread: over processes of this machine, or over Ray. Knows no manifest.

An executor takes a job and its tasks and yields the entry of each task as it ends. It takes a task
only when it is about to start it, and goes on when a worker dies.
"""

import contextlib
import json
import logging
import multiprocessing
import os
import signal
import socket
import sys
import threading
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import asdict
from multiprocessing.connection import Connection, wait
from typing import Any

from keybound.batch.job import Job, Task
from keybound.batch.journal import Row
from keybound.batch.worker import Worker, in_words
from keybound.errors import CorpusError, KeyBoundError

Stop = Callable[[], bool]
TRIES = 2  # a task whose worker died is given to one other
RAY_TRIES = 5  # a cluster of borrowed machines loses workers that did nothing wrong
KNOCK_S = 10.0
BLOCK_TASKS = 16  # that Ray hands out at a time


def cores() -> int:
    """Return the number of cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def died(how: str) -> Row:
    """Return the entry of a task whose every worker died."""
    hint = "too little memory is the usual reason; fewer --jobs need less"
    row = {"status": "failed", "error": f"the process that worked on it died, {how} ({hint})"}
    return {"source": None, "size": None, "pid": None, "row": row}


class _Hand:
    """A worker process, the pipe to it, and the task it is on."""

    def __init__(self, job: Job, threads: int) -> None:
        # A fresh process: a fork would share the threads of ONNX Runtime, which hangs.
        context = multiprocessing.get_context("spawn")
        self.pipe, theirs = context.Pipe()
        self.process = context.Process(target=_serve, args=(job, theirs, threads), daemon=True)
        self.process.start()
        theirs.close()
        self.task: Task | None = None
        self.tries = 0

    def give(self, task: Task, tries: int = 1) -> None:
        self.task, self.tries = task, tries
        with contextlib.suppress(OSError):  # it is dead, as its end of the pipe will tell
            self.pipe.send(task)

    def end(self) -> None:
        self.pipe.close()
        self.process.join()


def _serve(job: Job, pipe: Connection, threads: int) -> None:
    """Do tasks from the pipe until it closes."""
    for number in (signal.SIGINT, signal.SIGTERM):  # the parent decides, and lets files be finished
        signal.signal(number, signal.SIG_IGN)
    threading.Thread(target=_die_with_parent, daemon=True).start()
    os.environ.setdefault("KEYBOUND_THREADS", str(threads))
    worker: Worker | None = None
    while True:
        try:
            task = pipe.recv()
        except EOFError:
            return
        worker = worker or Worker(job)
        pipe.send(worker(task))


def _die_with_parent() -> None:
    """End at once when the parent was killed: no process would take the results."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


def processes(
    job: Job, tasks: Iterable[Task], *, jobs: int, threads: int, stop: Stop
) -> Generator[tuple[str, Row], None, None]:
    """Do tasks in so many processes of this machine, each with so many threads.

    When `stop` says so, no task is started and those under way are brought to their end.
    """
    queue = iter(tasks)
    hands: list[_Hand] = []
    try:
        for _ in range(jobs):
            task = None if stop() else next(queue, None)
            if task is None:
                break
            hands.append(_Hand(job, threads))
            hands[-1].give(task)
        while busy := [hand for hand in hands if hand.task is not None]:
            for pipe in wait([hand.pipe for hand in busy]):
                hand = next(hand for hand in busy if hand.pipe is pipe)
                task = hand.task
                assert task is not None
                try:
                    entry = hand.pipe.recv()
                except (EOFError, OSError):
                    hand.end()
                    hands.remove(hand)
                    tries, code = hand.tries, hand.process.exitcode
                    hand = _Hand(job, threads)
                    hands.append(hand)
                    if tries < TRIES and not stop():
                        hand.give(task, tries + 1)
                        continue
                    entry = died(f"signal {-code}" if code and code < 0 else f"status {code}")
                hand.task = None
                yield task.name, entry
                if not stop() and (task := next(queue, None)) is not None:
                    hand.give(task)
    finally:
        for hand in hands:
            if hand.task is not None:  # left in the middle: a second signal, or an error
                hand.process.kill()
            hand.end()


class _Tries:
    """Counts for all actors how often a task was begun and not ended.

    Ray gives a block to another actor for as long as actors die of it. A recording that kills
    whatever reads it must not keep a cluster busy for ever.
    """

    def __init__(self) -> None:
        self.count: Counter[str] = Counter()

    def begin(self, name: str) -> int:
        self.count[name] += 1
        return self.count[name]

    def end(self, name: str) -> None:
        self.count.pop(name, None)


class _Actor:
    """A worker as Ray Data wants it: built once for each actor, called with blocks of tasks.

    Tasks and entries travel as text: Arrow would guess a type for each block, and not always the
    same one.
    """

    def __init__(self, job: Job, tries: Any) -> None:
        os.environ.setdefault("KEYBOUND_THREADS", "1")  # Ray gives each actor one core
        self.worker, self.tries = Worker(job), tries

    def __call__(self, block: dict[str, Any]) -> dict[str, list[str]]:
        tasks = [_unpacked(text) for text in block["task"]]
        entries = [json.dumps(self._entry(task)) for task in tasks]
        return {"name": [task.name for task in tasks], "entry": entries}

    def _entry(self, task: Task) -> Row:
        import ray

        if ray.get(self.tries.begin.remote(task.name)) > RAY_TRIES:
            return died(f"{RAY_TRIES} times")
        entry = self.worker(task)
        ray.get(self.tries.end.remote(task.name))
        return entry


def _packed(task: Task) -> str:
    return json.dumps(asdict(task) | {"nonce": task.nonce.hex()})


def _unpacked(text: str) -> Task:
    facts = json.loads(text)
    return Task(**facts | {"nonce": bytes.fromhex(facts["nonce"])})


def _knock(address: str) -> None:
    """Raise an error where no server answers: Ray itself would try for many minutes."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if host and port.isdecimal():
        try:
            socket.create_connection((host, int(port)), timeout=KNOCK_S).close()
        except OSError as error:
            reason = (error.strerror or str(error)).lower()
            raise CorpusError(f"no ray cluster answers at {address}: {reason}") from error


@contextlib.contextmanager
def _connected(address: str | None, jobs: int | None) -> Iterator[Any]:
    """Yield Ray, connected to a cluster or to one started here; disconnect at the end."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # no telemetry
    os.environ.setdefault("RAY_BACKEND_LOG_LEVEL", "fatal")  # its warnings are not the user's
    try:
        import ray
        import ray.data
    except ImportError as error:
        raise CorpusError(f"this needs {error.name}", hint="pip install 'keybound[ray]'") from error
    where: dict[str, Any] = {"address": address}
    if address is not None:
        _knock(address)
    else:
        where = {"address": "local", "num_cpus": jobs or cores(), "include_dashboard": False}
    try:
        ray.init(**where, logging_level=logging.ERROR, log_to_driver=False)
    except (ConnectionError, RuntimeError, ValueError) as error:
        what = f"ray cluster {address} refuses" if address else "ray cannot be started here"
        hint = "its address, its version, its token in RAY_AUTH_TOKEN?" if address else None
        raise CorpusError(f"{what}: {in_words(error)}", hint=hint) from error
    logging.getLogger("ray.data").setLevel(logging.ERROR)
    context = ray.data.DataContext.get_current()
    context.enable_progress_bars = context.print_on_execution_start = False
    try:
        with contextlib.redirect_stdout(sys.stderr):  # Ray reports dead workers among results
            yield ray
    except ray.exceptions.RayError as error:
        cause = getattr(error, "cause", None)  # what a worker itself raised, such as a bad model
        if isinstance(cause, KeyBoundError):
            raise cause from error
        hint = "what is done is kept; run it again, perhaps with fewer --jobs"
        raise CorpusError(f"ray gave up: {in_words(error)}", hint=hint) from error
    finally:
        ray.shutdown()


def on_ray(
    job: Job, tasks: Iterable[Task], *, jobs: int | None, address: str | None, stop: Stop
) -> Generator[tuple[str, Row], None, None]:
    """Do tasks on Ray Data: on the cluster at an address, or on one started here for this.

    An actor that dies is replaced and its block of tasks given out again: outputs it had finished
    are found and taken as they are. When `stop` says so, what is under way is left.
    """
    with _connected(address, jobs) as ray:
        workers = jobs or max(1, int(ray.cluster_resources().get("CPU", 1)))
        tries = ray.remote(_Tries).options(num_cpus=0, max_restarts=-1).remote()
        packs = [{"task": _packed(task)} for task in tasks]
        size = max(1, min(BLOCK_TASKS, len(packs) // (4 * workers)))
        blocks = ray.data.from_items(packs, override_num_blocks=-(-len(packs) // size))
        made = blocks.map_batches(
            _Actor,
            fn_constructor_args=(job, tries),
            batch_size=None,
            compute=ray.data.ActorPoolStrategy(size=min(workers, len(packs))),
            num_cpus=1,
        )
        for block in made.iter_batches(batch_size=None, prefetch_batches=0):
            for name, entry in zip(block["name"], block["entry"], strict=True):
                yield str(name), json.loads(entry)
            if stop():
                return
