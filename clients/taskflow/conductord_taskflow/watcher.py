"""The watch of a board: it wakes callers that wait for a job, and sends TaskFlow's notifications."""

from __future__ import annotations

import threading
from typing import Any, Callable, Dict, Optional

from conductord import Client, Compacted, ConductordError
from taskflow import logging

LOG = logging.getLogger(__name__)

BEGIN_TIME = 5.0  # seconds to wait for the start of the watch
PAUSE = 1.0  # seconds between attempts to watch

# Kinds of events after which a job can be claimable.
CLAIMABLE = ("posted", "due", "cooled", "abandoned", "resumed", "unreserved", "changed", "retry_now", "moved", "reopened", "restored",
             "board_resumed")


class Watcher:
    """Follows the events of a board until it is closed. After a lost connection, the watch continues with
    the next event, so no notification is lost."""

    def __init__(self, client: Client, board: str, kind: str, tell: Callable[[Dict[str, Any]], None]):
        self._client, self._board, self._kind, self._tell = client, board, kind, tell
        self._begun, self._closed = threading.Event(), threading.Event()
        self._changed = threading.Condition()
        self._count = 0
        # Ends within seconds after close: nodes send a sign of life every 3 s.
        threading.Thread(target=self._follow, name="conductord-watch", daemon=True).start()

    def wait_begun(self) -> None:
        """Wait until later events are certain to be seen, for BEGIN_TIME at most."""
        self._begun.wait(BEGIN_TIME)

    def count(self) -> int:
        """A number that grows when a job can have become claimable."""
        with self._changed:
            return self._count

    def wait(self, count: int, timeout: Optional[float]) -> None:
        """Wait until the number differs from ``count``."""
        with self._changed:
            self._changed.wait_for(lambda: self._count != count, timeout)

    def close(self) -> None:
        """End the watch."""
        self._closed.set()
        self._wake()

    def _wake(self) -> None:
        with self._changed:
            self._count += 1
            self._changed.notify_all()

    def _follow(self) -> None:
        after: Optional[str] = None
        while not self._closed.is_set():
            try:
                for event in self._client.watch(after=after, signs=True, board=self._board, job_kind=self._kind):
                    self._begun.set()
                    if self._closed.is_set():
                        return
                    after = event["position"]
                    if "kind" in event:
                        self._hear(event)
            except Compacted as error:
                LOG.warning("Events of board %s were removed before they were read, notifications are missing: %s", self._board, error)
                after = None
                self._wake()
            except ConductordError as error:
                LOG.warning("Cannot watch board %s now: %s", self._board, error)
            self._closed.wait(PAUSE)

    def _hear(self, event: Dict[str, Any]) -> None:
        if event["kind"] in CLAIMABLE:
            self._wake()
        try:
            self._tell(event)
        except Exception:  # a listener of the program has failed; the watch continues
            LOG.warning("Cannot handle event %s", event.get("position"), exc_info=True)
