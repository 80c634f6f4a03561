"""Calls over HTTP: selection of the node, repeats, and errors."""

from __future__ import annotations

import http.client
import json
import random
import socket
import ssl
import threading
import time
from typing import Any, Callable, Dict, Iterator, List, Optional, Set, Tuple

from .errors import ConductordError, Invalid, Overloaded, Unavailable, Uncertain, Unknown, of_answer

CONNECT_TIME = 2.0  # seconds for a connection
TRY_TIME = 5.0  # seconds to wait for an answer before the call is repeated at another node
FIRST_PAUSE, LAST_PAUSE = 0.05, 1.0  # between rounds in which each node is tried once
SHUN_TIME = 10.0  # seconds for which an unreachable learned address is not tried
MAX_LEARNED = 16
MAX_ANSWER = 16 << 20  # bytes; answers of nodes have at most 4 MiB
IDLE_TIME = 30.0  # seconds after which an idle connection is not used again
IDLE_KEPT = 8  # connections of one node
SOCKET = "unix://"


class Endpoints:
    """The known nodes, and the next one to try: the leader first."""

    def __init__(self, servers: List[str], clock: Callable[[], float] = time.monotonic):
        self._clock = clock
        self._lock = threading.Lock()
        self._given = list(dict.fromkeys(_checked(s) for s in servers))
        self._learned: List[str] = []
        self._shunned: Dict[str, float] = {}
        self._current = 0
        self._leader: Optional[str] = None

    def pick(self, tried: Set[str]) -> Optional[str]:
        """The node to try next; None if all have been tried in this round."""
        with self._lock:
            if self._leader is not None and self._leader not in tried:
                return self._leader
            turn = self._given[self._current:] + self._given[: self._current]
            now = self._clock()
            turn += [s for s in self._learned if self._shunned.get(s, 0) <= now]
            return next((s for s in turn if s not in tried), None)

    def heard(self, server: str, leader: Optional[str]) -> None:
        """Note the leader's address that an answer names."""
        # A node with a Unix socket forwards calls: this program may be unable to reach the leader.
        if not leader or server.startswith(SOCKET):
            return
        with self._lock:
            if leader not in self._given and leader not in self._learned:
                self._learned = self._learned[-(MAX_LEARNED - 1):] + [leader]
            if self._shunned.get(leader, 0) <= self._clock():
                self._leader = leader

    def failed(self, server: str, unreached: bool) -> None:
        """Note that a node gave no usable answer."""
        with self._lock:
            if self._leader == server:
                self._leader = None
            if self._given[self._current] == server:
                self._current = (self._current + 1) % len(self._given)
            if unreached and server not in self._given:
                self._shunned[server] = self._clock() + SHUN_TIME


class Retry:
    """The repeats of one call: the next node, the pause before it, and the final error."""

    def __init__(self, endpoints: Endpoints, reads: bool, chance: Callable[[], float] = random.random):
        self._endpoints, self._reads, self._chance = endpoints, reads, chance
        self._tried: Set[str] = set()
        self._pause = FIRST_PAUSE
        self._last: Optional[ConductordError] = None
        self._answers: Dict[str, str] = {}
        self._ambiguous = False

    def next(self) -> Tuple[str, float]:
        """The node to try, and the seconds to wait before."""
        server, pause = self._endpoints.pick(self._tried), 0.0
        # Another node would call the same overloaded leader: wait instead.
        if server is None or isinstance(self._last, Overloaded):
            pause = self._pause * (0.5 + self._chance())
            pause = max(pause, min(self._last.retry_after, 5.0) if self._last else 0.0)
            self._pause = min(self._pause * 2, LAST_PAUSE)
            self._tried.clear()
            server = self._endpoints.pick(self._tried)
        assert server is not None
        return server, pause

    def stale(self) -> None:
        """Note that a kept connection was closed: the node may have read the call before that."""
        self._ambiguous = self._ambiguous or not self._reads

    def failed(self, server: str, error: ConductordError) -> Optional[ConductordError]:
        """Note a failed try. Returns the call's error if the call must not be repeated."""
        if not isinstance(error, (Unavailable, Uncertain)):
            return error
        self._ambiguous = self._ambiguous or isinstance(error, Unknown) and not self._reads
        self._endpoints.failed(server, unreached=isinstance(error, Unreached))
        self._tried.add(server)
        self._answers[server] = error.message
        self._last = error
        return None

    def give_up(self) -> ConductordError:
        """The error of a call that no node has answered."""
        text = "; ".join("%s: %s" % answer for answer in self._answers.items())
        if self._ambiguous:
            return Uncertain("the call may have happened: " + text)
        if isinstance(self._last, Overloaded):
            return Overloaded("nothing happened: " + text)
        return Unavailable("nothing happened: " + text)


class Unreached(Unavailable):
    """There was no connection to the node."""


class _Stale(Uncertain):
    """A connection that was kept from an earlier call has ended without an answer."""


class Interrupt:
    """Ends a call that waits, from another thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._connection: Optional[http.client.HTTPConnection] = None
        self.fired = False

    def fire(self) -> None:
        """End the call with an error. It is unknown whether the call happened."""
        with self._lock:
            self.fired = True
            self._end()

    def watch(self, connection: Optional[http.client.HTTPConnection]) -> None:
        """Name the connection that the call uses now."""
        with self._lock:
            self._connection = connection
            if self.fired:
                self._end()

    def _end(self) -> None:
        sock = self._connection.sock if self._connection else None
        if sock is not None:
            try:
                # Not SSLSocket.shutdown, which removes the TLS state while another thread reads.
                socket.socket.shutdown(sock, socket.SHUT_RDWR)
            except OSError:
                pass


class Transport:
    """Makes calls at the nodes of a cluster. Threads may share it."""

    def __init__(self, servers: List[str], token: Optional[str], context: Optional[ssl.SSLContext]):
        self.endpoints = Endpoints(servers)
        self._context = context
        self._headers = {"Content-Type": "application/json"}
        if token:
            self._headers["Authorization"] = "Bearer " + token
        self._lock = threading.Lock()
        self._idle: Dict[str, List[Tuple[float, http.client.HTTPConnection]]] = {}

    def call(self, method: str, request: Dict[str, Any], *, reads: bool = False, patience: float = 30.0,
             try_time: float = TRY_TIME, interrupt: Optional[Interrupt] = None) -> Dict[str, Any]:
        """Make a call, and repeat it until a node answers or the patience is over. The patience ends
        only between tries: cutting off a try would make its result ambiguous.
        """
        body = encode(request)
        retry = Retry(self.endpoints, reads)
        until = time.monotonic() + patience
        while True:
            server, pause = retry.next()
            if pause:
                time.sleep(pause)
            try:
                try:
                    return self._once(server, method, body, try_time, interrupt)
                except _Stale:
                    if interrupt is not None and interrupt.fired:
                        raise
                    retry.stale()
                    return self._once(server, method, body, try_time, interrupt, fresh=True)
            except ConductordError as error:
                settled = retry.failed(server, error)
                if settled is not None:
                    raise settled
                if interrupt is not None and interrupt.fired or time.monotonic() >= until:
                    raise retry.give_up() from error

    def stream(self, method: str, request: Dict[str, Any], silence: float) -> Iterator[Dict[str, Any]]:
        """The messages of one stream at one node. Each end is an error."""
        server = self.endpoints.pick(set())
        assert server is not None
        connection = None
        try:
            connection = self._connect(server)
            answer = self._send(connection, server, method, encode(request), silence)
            while True:
                line = answer.readline(MAX_ANSWER)
                if not line.endswith(b"\n"):
                    raise Unavailable("the node has ended the stream")
                message = json.loads(line)
                if "error" in message:
                    raise of_answer(500, encode(message["error"]))
                yield message
        except (OSError, http.client.HTTPException, ValueError) as error:
            self.endpoints.failed(server, unreached=False)
            raise Unavailable("%s: %s" % (server, error)) from error
        except Unavailable:
            self.endpoints.failed(server, unreached=False)
            raise
        finally:
            if connection is not None:
                connection.close()

    def close(self) -> None:
        """Close the connections that no call uses."""
        with self._lock:
            idle, self._idle = self._idle, {}
        for connections in idle.values():
            for _, connection in connections:
                connection.close()

    def _once(self, server: str, method: str, body: bytes, limit: float, interrupt: Optional[Interrupt],
              fresh: bool = False) -> Dict[str, Any]:
        connection = None if fresh else self._take(server)
        kept, good = connection is not None, False
        connection = connection or self._connect(server)
        try:
            if interrupt is not None:
                interrupt.watch(connection)
            answer = self._send(connection, server, method, body, limit)
            data = answer.read(MAX_ANSWER)
            decoded = json.loads(data)
            good = not answer.will_close
            return decoded
        except (OSError, http.client.HTTPException, ValueError) as error:
            if kept and isinstance(error, ConnectionError):
                raise _Stale("the connection was closed") from error
            raise Uncertain("the answer was lost: %s" % (error or type(error).__name__)) from error
        finally:
            if interrupt is not None:
                interrupt.watch(None)
            if good and not (interrupt is not None and interrupt.fired):
                self._give(server, connection)
            else:
                connection.close()

    def _send(self, connection: http.client.HTTPConnection, server: str, method: str, body: bytes,
              limit: float) -> http.client.HTTPResponse:
        connection.sock.settimeout(limit)
        connection.request("POST", "/conductord.v1." + method, body, self._headers)
        answer = connection.getresponse()
        self.endpoints.heard(server, answer.headers.get("Conductord-Leader"))
        if answer.status != 200:
            error = of_answer(answer.status, answer.read(MAX_ANSWER))
            try:
                error.retry_after = float(answer.headers.get("Retry-After") or 0)
            except ValueError:
                pass
            raise error
        return answer

    def _take(self, server: str) -> Optional[http.client.HTTPConnection]:
        with self._lock:
            idle = self._idle.get(server, [])
            while idle:
                since, connection = idle.pop()
                if time.monotonic() - since < IDLE_TIME:
                    return connection
                connection.close()
        return None

    def _give(self, server: str, connection: http.client.HTTPConnection) -> None:
        with self._lock:
            idle = self._idle.setdefault(server, [])
            idle.append((time.monotonic(), connection))
            old = idle.pop(0)[1] if len(idle) > IDLE_KEPT else None
        if old is not None:
            old.close()

    def _connect(self, server: str) -> http.client.HTTPConnection:
        connection: http.client.HTTPConnection
        if server.startswith(SOCKET):
            connection = _SocketConnection(server[len(SOCKET):])
        elif self._context is not None:
            connection = http.client.HTTPSConnection(server, timeout=CONNECT_TIME, context=self._context)
        else:
            connection = http.client.HTTPConnection(server, timeout=CONNECT_TIME)
        try:
            connection.connect()
            if not server.startswith(SOCKET):
                connection.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        except OSError as error:
            connection.close()
            raise Unreached("cannot connect: %s" % error) from error
        return connection


class _SocketConnection(http.client.HTTPConnection):
    def __init__(self, path: str):
        super().__init__("localhost", timeout=CONNECT_TIME)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(CONNECT_TIME)
        self.sock.connect(self._path)


def encode(value: Any) -> bytes:
    """JSON in UTF-8. Values that JSON cannot hold, such as NaN, bytes or half a surrogate pair, are
    Invalid."""
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode("utf-8")
    except (TypeError, ValueError, RecursionError) as error:
        raise Invalid("this cannot be written as JSON: %s" % error) from error


def _checked(server: str) -> str:
    for scheme in ("http://", "https://"):
        if server.startswith(scheme):
            server = server[len(scheme):].rstrip("/")
    host, colon, port = server.rpartition(":")
    if not server.startswith(SOCKET + "/") and not (host and colon and port.isdigit()):
        raise Invalid("the server %r is not of the form host:port" % server)
    return server
