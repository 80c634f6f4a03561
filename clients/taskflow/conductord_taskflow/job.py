"""A job of a board, as TaskFlow sees it."""

from __future__ import annotations

import datetime
import enum
import time
from typing import TYPE_CHECKING, Any, Dict, Mapping, Optional, Union

from conductord.client import duration, seconds_of
from oslo_utils import timeutils
from taskflow import exceptions as exc
from taskflow import states
from taskflow.jobs import base

from .claim import held
from .errors import translated

if TYPE_CHECKING:
    from .board import Board

ENDED = ("completed", "trashed")
NEEDS_OPERATOR = ("held", "suspended")
OPERATOR_PAUSE = 1.0  # seconds between reads of a job that only an operator can continue
POLL_TIME, POLL_GRACE = 30.0, 5.0  # seconds of one long poll, and for its answer

PRIORITIES = {
    base.JobPriority.VERY_HIGH: 200, base.JobPriority.HIGH: 100, base.JobPriority.NORMAL: 0,
    base.JobPriority.LOW: -100, base.JobPriority.VERY_LOW: -200,
}


class UnknownExpire(enum.IntEnum):
    """Why a job has no time until its claim ends; the numbers of TaskFlow's Redis board."""

    DOES_NOT_EXPIRE = -1  # the claim ends with its session
    KEY_NOT_FOUND = -2  # the job is not claimed


class Job(base.Job):
    """A job. Properties that can change are read from the cluster; others once, when they are used."""

    def __init__(self, board: "Board", row: Mapping[str, Any], backend: Any = None, book: Any = None):
        super().__init__(board, str(row.get("name", "")), uuid=row["id"], backend=backend, book=book)
        self._row = dict(row)
        self._posting: Optional[Dict[str, Any]] = None

    @property
    def row(self) -> Mapping[str, Any]:
        """The job's fields at the last read, in the form of docs/protocol.md."""
        return self._row

    def note(self, row: Mapping[str, Any]) -> None:
        """Note newer fields. Lists omit details, which cannot change."""
        self._row = dict({"details": self._row["details"]} if "details" in self._row else {}, **row)

    def refresh(self) -> Mapping[str, Any]:
        """Read the job. NotFound of TaskFlow if it was removed."""
        with translated(exc.JobFailure, "read job %s" % self.uuid):
            self.note(self._board.call("BoardService/GetJob", {"id": self.uuid}, reads=True)["job"])
        return self._row

    @property
    def state(self) -> str:
        try:
            return state_of(self.refresh())
        except exc.NotFound:
            return states.COMPLETE

    @property
    def priority(self) -> base.JobPriority:
        number = int(self._complete().get("priority", 0))
        return min(PRIORITIES, key=lambda p: (abs(PRIORITIES[p] - number), -PRIORITIES[p]))

    @property
    def created_on(self) -> datetime.datetime:
        return _naive(self._complete()["posted_at"])

    @property
    def last_modified(self) -> datetime.datetime:
        row = self.refresh()
        return _naive(row.get("modified_at") or row["posted_at"])

    @property
    def details(self) -> Dict[str, Any]:
        if self._posting is None:
            row = self._row if "details" in self._row else self.refresh()
            self._posting = posting_of(row.get("details"))
        return self._posting["details"]

    @property
    def book_uuid(self) -> Optional[str]:
        return self._book.uuid if self._book is not None else self._named_book().get("uuid")

    @property
    def book_name(self) -> Optional[str]:
        return self._book.name if self._book is not None else self._named_book().get("name")

    def wait(self, timeout: Optional[float] = None, delay: float = 0.01, delay_multiplier: float = 2.0,
             max_delay: float = 60.0, sleep_func: Any = time.sleep) -> bool:
        """Wait for the end of the job, without polling. The delays of TaskFlow's interface have no effect."""
        watch = timeutils.StopWatch(duration=timeout).start()
        while True:
            left = POLL_TIME if timeout is None else min(POLL_TIME, watch.leftover())
            try:
                with translated(exc.JobFailure, "wait for job %s" % self.uuid):
                    request = {"id": self.uuid, "timeout": duration(left)}
                    answer = self._board.call("BoardService/WaitJob", request, reads=True, try_time=left + POLL_GRACE)
            except exc.NotFound:
                return True
            self.note(answer["job"])
            if self._row["state"] in ENDED:
                return True
            if watch.expired():
                return False
            if self._row["state"] in NEEDS_OPERATOR:
                sleep_func(OPERATOR_PAUSE if timeout is None else min(OPERATOR_PAUSE, watch.leftover()))

    def expires_in(self) -> Union[float, UnknownExpire]:
        """Seconds until the claim ends by its own expiry, or why there is no such time. For a claim of another
        process, the seconds until it ends without a keep-alive."""
        with translated(exc.JobFailure, "read the claim of job %s" % self.uuid):
            claims = self._board.call("BoardService/ListClaims", {"job": self.uuid}, reads=True).get("claims", [])
        if not claims:
            return UnknownExpire.KEY_NOT_FOUND
        if "expiry" not in claims[0]["claim"]:
            return UnknownExpire.DOES_NOT_EXPIRE
        claim = held.of_job(self.uuid)
        if claim is not None and claim.expires is not None:
            return max(0.0, claim.expires - claim.owner.clock())
        return seconds_of(claims[0].get("left")) or 0.0

    def extend_expiry(self, expiry: float) -> bool:
        """Set the time until the claim ends, from now. Returns False if this process does not hold the claim."""
        claim = held.of_job(self.uuid)
        if claim is None or claim.ended():
            return False
        self._board.extend(claim, expiry)
        return not claim.lost

    def __str__(self) -> str:
        # Details can contain secrets, and conductors log their jobs.
        return "%s: %s (uuid=%s)" % (type(self).__name__, self.name, self.uuid)

    def __eq__(self, other: object) -> bool:
        return self.uuid == other.uuid if isinstance(other, Job) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.uuid)

    def __lt__(self, other: "Job") -> bool:
        return _claim_order(self) < _claim_order(other)

    def _complete(self) -> Mapping[str, Any]:
        # The row of an event has only an id and a name.
        return self._row if "posted_at" in self._row else self.refresh()

    def _named_book(self) -> Dict[str, Any]:
        self.details  # reads the posting
        assert self._posting is not None
        return self._posting["book"]

    def _load_book(self) -> Any:
        try:
            return super()._load_book()
        except exc.NotFound as error:
            exc.raise_with_cause(
                exc.NotFound,
                "job %s names logbook %s, which the persistence backend of the board does not have: give the board the "
                "backend in which the poster saved the logbook" % (self.uuid, self.book_uuid), cause=error)


def state_of(row: Mapping[str, Any]) -> str:
    """TaskFlow's state of a job. A job that waits for a time or an operator is unclaimed."""
    if row["state"] in ENDED:
        return states.COMPLETE
    return states.CLAIMED if row["state"] == "claimed" else states.UNCLAIMED


def posting_of(details: Any) -> Dict[str, Any]:
    """The details and the logbook of a posting. JobFailure if another program posted something else."""
    found = {} if details is None else details
    if not isinstance(found, dict) or set(found) - {"details", "book"}:
        raise exc.JobFailure("not a TaskFlow posting: its details must be an object with the members details and book")
    if not all(isinstance(found.get(name, {}), dict) for name in ("details", "book")):
        raise exc.JobFailure("not a TaskFlow posting: its members details and book must be objects")
    return {"details": found.get("details", {}), "book": found.get("book", {})}


def _claim_order(job: Job) -> Any:
    row = job._complete()
    return -int(row.get("priority", 0)), int(row.get("sequence", 0))


def _naive(text: str) -> datetime.datetime:
    return timeutils.normalize_time(timeutils.parse_isotime(text))

