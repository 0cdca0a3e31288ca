"""A thread that runs NumPy code for compiled programs, which wait for it.

XLA's CPU runtime calls Python from threads that flush subnormal numbers to 0, and a thread inherits that from the one
that starts it. Bounds are certified for gradual underflow. So the work is done by a thread that is started while a
program is traced. It never calls JAX: a program that waits holds a thread of the runtime, and may hold the last one.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeAlias

import numpy as np

Job: TypeAlias = Callable[[], list[np.ndarray]]

_SUBNORMALS = np.full(8, 2.0**-1060)


def _flushes() -> bool:
    """Whether this thread takes subnormal numbers for 0."""
    return not (_SUBNORMALS * 1.0 > 0.0).all()


class _Worker:
    def __init__(self) -> None:
        self.flushes = _flushes()
        self.jobs: queue.SimpleQueue[tuple[Job, Future[list[np.ndarray]]]] = queue.SimpleQueue()
        self.thread = threading.Thread(target=self._work, name="jaxacct", daemon=True)
        self.thread.start()

    def _work(self) -> None:
        while True:
            job, found = self.jobs.get()
            try:
                found.set_result(job())
            except BaseException as error:  # the program that waits raises it
                found.set_exception(error)
            del job, found

    def usable(self) -> bool:
        return self.thread.is_alive() and not self.flushes  # a forked process has no threads


_lock = threading.Lock()
_worker: _Worker | None = None


def ready() -> None:
    """Starts the thread; to be called where a program is traced or lowered."""
    global _worker
    with _lock:
        if _worker is None or not _worker.usable():
            _worker = _Worker()


def call(job: Job) -> list[np.ndarray]:
    """What ``job()`` returns, or raises, where subnormal numbers are numbers."""
    worker = _worker
    if not _flushes() or worker is None:
        return job()
    if not worker.thread.is_alive():
        raise RuntimeError("this process was forked after a program was traced: trace it again, or spawn processes")
    found: Future[list[np.ndarray]] = Future()
    worker.jobs.put((job, found))
    return found.result()
