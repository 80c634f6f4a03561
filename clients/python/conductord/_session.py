"""The session of a worker. The age of the last acknowledged keep-alive decides what the worker may do."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Callable

from .errors import ConductordError, SessionExpired

if TYPE_CHECKING:
    from .client import Client


def boot_time() -> float:
    """A clock that also counts suspensions of the machine and cannot be set."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic()


class Session:
    """Keeps a session alive. The worker counts from the sending time of the last acknowledged
    keep-alive. The cluster counts from its arrival, which is later, so the worker gives up first.
    After 0.6 of the TTL, no attempt starts; after 0.8, all attempts must end.
    """

    def __init__(self, client: Client, id: str, ttl: float, sent: float, clock: Callable[[], float] = boot_time):
        self.id, self.ttl, self.renewed = id, ttl, sent
        self._client, self._clock = client, clock
        self._over = threading.Event()

    def age(self) -> float:
        """The share of the TTL that has passed; 1 if the session is over."""
        return 1.0 if self._over.is_set() else min(1.0, (self._clock() - self.renewed) / self.ttl)

    def may_start(self) -> bool:
        """Whether an attempt may start now."""
        return self.age() < 0.6

    def failing(self) -> bool:
        """Whether all attempts must end, because other workers may get them soon. Once true, always
        true."""
        if self.age() >= 0.8:
            self._over.set()
        return self._over.is_set()

    def lose(self) -> None:
        """Treat the session as over."""
        self._over.set()

    def keep_alive(self) -> None:
        """Send keep-alives until the session is over."""
        while not self._over.wait(self.ttl / (5 if self.age() < 0.4 else 10)):
            sent = self._clock()
            try:
                # No repeats: a new keep-alive is worth more than the answer to an old one.
                self._client.call("SessionService/KeepAlive", {"session": self.id}, patience=0, try_time=max(0.5, self.ttl / 10))
                self.renewed = max(self.renewed, sent)
            except SessionExpired:
                self.lose()
            except ConductordError:
                self.failing()
