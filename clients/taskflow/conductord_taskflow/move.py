"""Move waiting jobs from one jobboard of TaskFlow to another, and count them.

    python -m conductord_taskflow.move redis://host:6379 conductord://node1:7070/?board=orders

A job moves with its name, details, priority and the reference to its logbook. The command claims the job on
the old board, posts it on the new board, and then consumes it on the old board. On conductord, the job keeps
its id. If the command is stopped between these calls, run it again: conductord recognises the id, and does
not post the job twice. With --logbooks, the command first copies all logbooks.

Stop the conductors of both boards first. Claims of Redis without an expiry stay after a stop: abandon them
before.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import socket
import sys
from typing import Any, Dict, List, Optional
from urllib.parse import urlsplit

from conductord import ConductordError
from taskflow import exceptions as exc
from taskflow.jobs import backends as boards
from taskflow.persistence import backends as logbooks

from .board import Board


class Moved:
    """The counts of a move."""

    def __init__(self) -> None:
        self.jobs = self.held = self.failed = self.logbooks = 0

    def __str__(self) -> str:
        return "moved %d jobs and %d logbooks; left %d claimed jobs and %d that could not be moved" % (
            self.jobs, self.logbooks, self.held, self.failed)


def move_jobs(source: Any, target: Any, moved: Moved) -> None:
    """Move the unclaimed jobs of a connected board to another."""
    who = "move@%s:%d" % (socket.gethostname(), os.getpid())
    # Jobs of equal priority are iterated in posting order on some boards, and newest first on Redis.
    for job in sorted(source.iterjobs(ensure_fresh=True), key=lambda job: job.created_on):
        try:
            source.claim(job, who)
        except (exc.UnclaimableJob, exc.NotFound):
            moved.held += 1
            continue
        try:
            _post(target, job)
        except (exc.TaskFlowException, ConductordError, ValueError) as error:
            print("job %s: %s" % (job.uuid, error), file=sys.stderr)
            moved.failed += 1
            source.abandon(job, who)
        else:
            source.consume(job, who)
            moved.jobs += 1


def move_logbooks(source: Any, target: Any, moved: Moved) -> None:
    """Copy all logbooks of a backend to another. A repeat writes the same values."""
    with contextlib.closing(source.get_connection()) as old, contextlib.closing(target.get_connection()) as new:
        for book in old.get_logbooks():
            new.save_logbook(book)
            moved.logbooks += 1


def _post(target: Any, job: Any) -> None:
    book = _Reference(job) if job.book_uuid else None
    # Only conductord keeps the id of a job.
    more = {"uuid": job.uuid} if isinstance(target, Board) else {}
    target.post(job.name, book, details=job.details, priority=job.priority, **more)


class _Reference:
    """The name and the id of a logbook that is not read."""

    def __init__(self, job: Any):
        self.name, self.uuid = job.book_name, job.book_uuid


def main(args: Optional[List[str]] = None) -> int:
    """The command. Its exit status is 1 if jobs stay on the old board."""
    parser = argparse.ArgumentParser(prog="python -m conductord_taskflow.move", description="Move waiting jobs between jobboards of TaskFlow")
    parser.add_argument("source", help="address of the old board, or its configuration as JSON")
    parser.add_argument("target", help="address of the new board, or its configuration as JSON")
    parser.add_argument("--logbooks", nargs=2, metavar=("SOURCE", "TARGET"), help="first copy all logbooks between two persistence backends")
    found = parser.parse_args(args)
    moved = Moved()
    if found.logbooks:
        with logbooks.backend(_conf(found.logbooks[0], "connection")) as old, logbooks.backend(_conf(found.logbooks[1], "connection")) as new:
            move_logbooks(old, new, moved)
    with boards.backend("move", _conf(found.source, "board")) as old, boards.backend("move", _conf(found.target, "board")) as new:
        move_jobs(old, new, moved)
    print(moved)
    return 1 if moved.held or moved.failed else 0


def _conf(given: str, key: str) -> Dict[str, Any]:
    if given.startswith("{"):
        return json.loads(given)
    parts = urlsplit(given)
    # TaskFlow's Redis board ignores the host of an address, and reads the key host.
    return {key: given, "host": parts.hostname} if parts.scheme == "redis" and parts.hostname else {key: given}


if __name__ == "__main__":
    sys.exit(main())
