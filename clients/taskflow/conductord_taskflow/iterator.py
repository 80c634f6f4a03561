"""The iteration over the jobs of a board."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Dict, Iterator, List, Tuple

from taskflow import exceptions as exc
from taskflow import logging, states
from taskflow.jobs import base

from .errors import translated
from .job import Job, state_of

if TYPE_CHECKING:
    from .board import Board

LOG = logging.getLogger(__name__)

PAGE = 1000  # jobs of one call; the limit of the cluster
FRESH_TIME = 1.0  # seconds for which the state in a list is not read again


class JobIterator(base.JobBoardIterator):
    """Reads the jobs page by page: claimable jobs in claim order, then cooling, waiting and claimed jobs by priority.

    Jobs that wait for a time or an operator are omitted, because no program can claim them.
    """

    def __init__(self, board: "Board", only_unclaimed: bool = False, ensure_fresh: bool = False):
        super().__init__(board, LOG, only_unclaimed=only_unclaimed, ensure_fresh=ensure_fresh)
        self._listed = self._list()

    def __next__(self) -> Job:
        for job, at in self._listed:
            if time.monotonic() - at < FRESH_TIME:
                state = state_of(job.row)
            else:
                try:
                    state = job.state
                except exc.JobFailure:
                    LOG.warning("Cannot read the state of job %s", job, exc_info=True)
                    continue
            if state == states.UNCLAIMED or state == states.CLAIMED and not self.only_unclaimed:
                return job
        raise StopIteration

    def _list(self) -> Iterator[Tuple[Job, float]]:
        yield from self._pages({"states": ["claimable"], "order": "claim"})
        wanted = ["cooling", "waiting"] if self.only_unclaimed else ["cooling", "waiting", "claimed"]
        yield from sorted(self._pages({"states": wanted}), key=lambda listed: _order(listed[0]))

    def _pages(self, query: Dict[str, Any]) -> Iterator[Tuple[Job, float]]:
        query = dict(query, board=self.board.board, kind=self.board.kind, limit=PAGE)
        while True:
            with translated(exc.JobFailure, "list the jobs of board %s" % self.board.board):
                page = self.board.call("BoardService/ListJobs", query, reads=True)
            at = time.monotonic()
            rows: List[Dict[str, Any]] = page.get("jobs", [])
            for row in rows:
                yield self.board.job(row), at
            if not page.get("next"):
                return
            query["after"] = page["next"]


def _order(job: Job) -> Any:
    return -int(job.row.get("priority", 0)), int(job.row.get("sequence", 0))
