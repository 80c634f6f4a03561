"""The claims that this process holds. Each claim has its token, which is needed to end it."""

from __future__ import annotations

import threading
import time
from typing import Any, Dict, Optional, Tuple

from conductord import ConductordError

from .ids import row_id
from .owner import Owner

FIRST_PAUSE, LAST_PAUSE = 1.0, 60.0  # seconds
FORGET_TIME = 600.0  # seconds after which an abandon does not count
MAX_ABANDONED = 10_000  # jobs; more than a process abandons in FORGET_TIME


class Claim:
    """A claim on one job."""

    def __init__(self, job: str, who: str, token: str, owner: Owner, book: Optional[str]):
        self.job, self.who, self.token, self.owner, self.book = job, who, token, owner, book
        self.expires: Optional[float] = None  # by the clock of the owner; None: the claim ends with the session
        self.lost = False
        self.ending = False  # whether its owner has asked for the end: its work on the job is over
        self.flow_state: Optional[str] = None  # TaskFlow's state of the flow, as last written
        # Details of the logbook whose write failed and was not repeated, by row, each with the error.
        self.unsaved: Dict[str, Tuple[Any, ConductordError]] = {}

    def ended(self) -> bool:
        """Whether another owner can have the job, or can get it soon."""
        self.lost = self.lost or self.owner.failing() or self.expires is not None and self.owner.clock() >= self.expires
        return self.lost


class Claims:
    """The claims of a process. All boards of the process share them: TaskFlow programs extend a claim on
    another board object than the one that made it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._by_job: Dict[str, Claim] = {}
        self._by_book: Dict[str, Claim] = {}

    def add(self, claim: Claim) -> None:
        """Note a new claim."""
        with self._lock:
            self._by_job[claim.job] = claim
            if claim.book:
                self._by_book[claim.book] = claim

    def of_job(self, job: str) -> Optional[Claim]:
        """The claim on a job."""
        with self._lock:
            return self._by_job.get(job)

    def of_book(self, book: str) -> Optional[Claim]:
        """The latest claim on a job of a logbook. It stays after the claim is lost, and ends when the claim
        is given back."""
        with self._lock:
            return self._by_book.get(book)

    def remove(self, claim: Claim, lost: bool = False) -> None:
        """Remove a claim that has ended. A lost claim still refuses writes to its logbook."""
        with self._lock:
            claim.lost = claim.lost or lost
            if self._by_job.get(claim.job) is claim:
                del self._by_job[claim.job]
            if claim.book and not lost and self._by_book.get(claim.book) is claim:
                del self._by_book[claim.book]


class Abandoned:
    """The jobs that this process has abandoned.

    TaskFlow's conductor abandons a job that no engine can load, and claims the job again without a wait. Therefore an owner
    that abandons a job twice or more often in a row has to pause: 1 s, 2 s, and so on to 60 s. Other owners do not have to.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._by_job: Dict[str, Tuple[str, int, float, float]] = {}  # owner, abandons in a row, times of the last abandon and of the next claim

    def add(self, job: str, who: str) -> float:
        """Note that an owner has abandoned a job. Returns the seconds of its pause."""
        now = time.monotonic()
        with self._lock:
            before, count, at, _ = self._by_job.pop(job, ("", 0, now, now))
            count = count + 1 if before == who and now - at < FORGET_TIME else 1
            pause = min(LAST_PAUSE, FIRST_PAUSE * 2.0 ** min(count - 2, 10)) if count > 1 else 0.0
            if len(self._by_job) >= MAX_ABANDONED:
                del self._by_job[next(iter(self._by_job))]  # the oldest
            self._by_job[job] = who, count, now, now + pause
            return pause

    def pause(self, job: str, who: Optional[str] = None) -> float:
        """The seconds until an owner can claim a job again. Without an owner: the seconds of any owner's pause."""
        with self._lock:
            owner, _, _, until = self._by_job.get(job, ("", 0, 0.0, 0.0))
        return max(0.0, until - time.monotonic()) if who in (None, owner) else 0.0

    def count(self) -> int:
        """The number of jobs."""
        with self._lock:
            return len(self._by_job)

    def remove(self, job: str) -> None:
        """Forget a job that has ended."""
        with self._lock:
            self._by_job.pop(job, None)


held, abandoned = Claims(), Abandoned()


def posting_book(details: Any) -> Optional[str]:
    """The id of the row of a job's logbook, from the job's details."""
    book = details.get("book") if isinstance(details, dict) else None
    return row_id(book["uuid"]) if isinstance(book, dict) and "uuid" in book else None
