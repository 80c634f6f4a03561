"""A step worker: runs steps of flows as functions. docs/worker-protocol.md describes the protocol."""

from __future__ import annotations

import logging
import math
import os
import signal
import socket
import threading
import time
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

from ._attempt import TICK, Attempt, Context
from ._ids import new_id
from ._session import Session, boot_time
from ._transport import Interrupt
from .arguments import Signature
from .client import Client, duration
from .errors import ConductordError, Invalid, SessionExpired
from .outcome import Failure

PULL_WAIT = 20.0  # seconds of one Pull; short, to notice a connection that died silently
LAST_WAIT = 0.5  # of the last call: what was promised to the one before is recorded by then, as a rule
CALL_TIME = 5.0
MAX_SLOTS = 1024
STUCK_TIME = 10.0  # seconds to wait, after the loss of a session, for functions that ignore cancellation
FIRST_PAUSE, LAST_PAUSE = 0.1, 2.0


class Step:
    """A function that runs steps of one type. You can call the object like the function."""

    def __init__(self, worker: Worker, type: str, function: Callable[..., Any]):
        self._worker, self._type, self._function = worker, type, function
        self.__doc__ = function.__doc__
        self.__name__ = function.__name__

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._function(*args, **kwargs)

    def revert(self, type: Any = None) -> Any:
        """Declare the function that undoes this step, as ``@step.revert`` or ``@step.revert("type")``.

        The type is the one in ``revert = "type"`` of the flow document; default: the step's own
        type.
        The function gets the step's arguments, and may take ``result`` (None: it failed, or is
        not known), ``failure`` (a FailureRecord, or None) and ``failures`` (by step). It is not
        called if the step never executed because its arguments did not fit the hints.
        """
        if callable(type):
            return self.revert(None)(type)
        name = type or self._type

        def declare(function: Callable[..., Any]) -> Callable[..., Any]:
            self._worker._declare(name, "revert", function)
            return function

        return declare


class Worker:
    """Runs steps of the types for which it has functions, until it is stopped. ``labels`` are the
    offered labels, ``boards`` the boards that it serves (none: all), and ``slots`` the number of
    parallel attempts. If the worker dies, other workers get its steps after ``ttl`` seconds. When
    it stops, it waits ``drain_timeout`` seconds for its attempts (None: no limit), then cancels
    them.
    """

    def __init__(self, client: Client, name: Optional[str] = None, labels: Sequence[str] = (), slots: int = 4,
                 boards: Sequence[str] = (), ttl: float = 15.0, drain_timeout: Optional[float] = None,
                 logger: Optional[logging.Logger] = None):
        if not 1 <= slots <= MAX_SLOTS:
            raise Invalid("slots is %d; it must be 1 to %d" % (slots, MAX_SLOTS))
        if not 0.5 <= ttl <= 3600:
            raise Invalid("ttl is %g s; it must be 0.5 s to 1 h" % ttl)
        self.client, self.slots, self.ttl, self.drain_timeout = client, slots, ttl, drain_timeout
        self.name = name or "%s:%d" % (socket.gethostname(), os.getpid())
        self.labels, self.boards = list(labels), list(boards)
        self.logger = logger or logging.getLogger("conductord.worker")
        self._functions: Dict[Tuple[str, str], Tuple[Callable[..., Any], Signature]] = {}
        self._lock = threading.Lock()
        self._held: Dict[Tuple[Any, ...], Attempt] = {}
        self._stuck: List[Attempt] = []  # their functions continue after the loss of the session, and keep their slots
        # The leader can send more attempts than free slots while it records earlier offers. These attempts wait here.
        self.running = threading.Semaphore(slots)
        self._pulling: Optional[Interrupt] = None
        self._draining = threading.Event()
        self._ending = threading.Event()  # set when attempts are cancelled and the session is given up

    def step(self, type: str) -> Callable[[Callable[..., Any]], Step]:
        """Declare a function that runs steps of a type: the ``handler`` of the flow document.

        It takes the step's arguments by name, checked against its type hints; a parameter of the
        type Context gets the attempt. It returns the result, which JSON or a dataclass can hold,
        or raises Failure or NotYet. After another exception, the step's retry applies.
        """

        def declare(function: Callable[..., Any]) -> Step:
            self._declare(type, "execute", function)
            return Step(self, type, function)

        return declare

    def run(self) -> None:
        """Run steps until SIGTERM, Ctrl-C or ``stop``; then finish the running attempts and return.
        A second signal cancels them. Signals are handled only in the main thread.
        """
        if not self._functions:
            raise Invalid("the worker has no step: declare one with @worker.step(type)")
        before = {}
        if threading.current_thread() is threading.main_thread():
            before = {s: signal.signal(s, self._on_signal) for s in (signal.SIGTERM, signal.SIGINT)}
        failed: List[BaseException] = []
        serving = threading.Thread(target=self._serve_sessions, args=(failed,), name="conductord-worker", daemon=True)
        try:
            serving.start()
            while serving.is_alive():
                serving.join(TICK)  # the main thread must run regularly to handle signals
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
        if failed:
            raise failed[0]

    def stop(self, now: bool = False) -> None:
        """Take no new attempts, finish the running attempts, and make ``run`` return. ``now``: cancel
        the running attempts."""
        # A signal handler calls this in the main thread, which holds none of the locks.
        self._draining.set()
        if now:
            self._ending.set()
        self._wake()

    def _on_signal(self, number: int, frame: Any) -> None:
        self.stop(now=self._draining.is_set())

    def _declare(self, type: str, action: str, function: Callable[..., Any]) -> None:
        if (type, action) in self._functions:
            raise ValueError("the worker has two functions that %s steps of the type %r" % (action, type))
        self._functions[type, action] = function, Signature(function, type, Context, action == "revert")

    def function_of(self, type: str, action: str) -> Tuple[Callable[..., Any], Signature]:
        """The function for an attempt, and its signature."""
        found = self._functions.get((type, action))
        if found is None:
            raise Failure("this worker has no function that can %s a step of the type %r" % (action, type), permanent=True)
        return found

    # The session, and the loop that asks for steps.

    def _serve_sessions(self, failed: List[BaseException]) -> None:
        pause = FIRST_PAUSE
        try:
            while not self._draining.is_set():
                session = self._open()
                if session is None:
                    self._draining.wait(pause)
                    pause = min(2 * pause, LAST_PAUSE)
                    continue
                pause = FIRST_PAUSE
                self.logger.info("session opened: %s", session.id)
                closed = threading.Event()
                threading.Thread(target=session.keep_alive, name="conductord-session", daemon=True).start()
                threading.Thread(target=self._look, args=(session, closed), name="conductord-look", daemon=True).start()
                try:
                    self._serve(session)
                finally:
                    self._close(session)
                    closed.set()
        except BaseException as error:  # it is raised by run
            failed.append(error)

    def _look(self, session: Session, closed: threading.Event) -> None:
        """End attempts in time. It makes no calls: during a waiting call, the session could end
        unnoticed."""
        while not closed.wait(TICK):
            if session.failing():
                self._wake()  # the call for steps
            with self._lock:
                held = list(self._held.values())
            for attempt in held:
                attempt.look()

    def _open(self) -> Optional[Session]:
        opening = {"id": new_id(), "name": self.name, "host": socket.gethostname(), "pid": os.getpid(), "ttl": duration(self.ttl)}
        entity = {"kind": "step_worker", "name": self.name, "labels": self.labels, "boards": self.boards, "max_jobs": self.slots,
                  "job_kinds": sorted({type for type, _ in self._functions}), "host": opening["host"], "pid": opening["pid"]}
        sent = boot_time()
        try:
            self.client.call("SessionService/Open", {"opening": opening}, patience=CALL_TIME)
            self.client.call("SessionService/Register", {"session": opening["id"], "entity": entity}, patience=CALL_TIME)
        except Invalid:
            raise  # the name, a type or a label: it stays wrong
        except ConductordError as error:
            self.logger.warning("cannot open a session now: %s", error)
            return None
        return Session(self.client, str(opening["id"]), self.ttl, sent)

    def _close(self, session: Session) -> None:
        lost = session.failing()
        session.lose()  # ends its keep-alives
        until = time.monotonic() + STUCK_TIME
        held = list(self._held.values())
        for attempt in held:
            attempt.cancel()
        for attempt in held:
            attempt.join(max(0.0, until - time.monotonic()))
        with self._lock:
            self._stuck += [a for a in self._held.values() if a.running()]
            self._held.clear()
        if lost:
            self.logger.warning("the session is lost, and its attempts are cancelled: %s", session.id)
        try:
            self.client.call("SessionService/Close", {"session": session.id}, patience=0 if lost else CALL_TIME)
        except ConductordError as error:
            self.logger.debug("cannot close the session: %s", error)

    def _serve(self, session: Session) -> None:
        """Ask for steps until the session is lost, or the worker stops and holds nothing."""
        pause, drained_at = FIRST_PAUSE, math.inf
        last = False  # a Pull that is sent while the worker stops returns the last attempts
        while not session.failing() and not self._ending.is_set() and (self._held or not last):
            draining = self._draining.is_set()
            if draining and self.drain_timeout is not None:
                drained_at = min(drained_at, time.monotonic() + self.drain_timeout)
                if time.monotonic() >= drained_at:
                    return
            if not session.may_start():
                time.sleep(TICK)
                continue
            last = draining
            try:
                answer = self._pull(session, draining, drained_at - time.monotonic())
                pause = FIRST_PAUSE
            except SessionExpired:
                session.lose()
                return
            except ConductordError as error:
                self.logger.warning("cannot ask for steps now: %s", error)
                self._ending.wait(pause)
                pause = min(2 * pause, LAST_PAUSE)
                continue
            if answer is None:
                last = False
                continue
            for work in answer.get("work", []):
                self._take(session, work)
            for id in answer.get("stop", []):
                self._stop(id)

    def _pull(self, session: Session, draining: bool, left: float) -> Optional[Dict[str, Any]]:
        """Ask for as many attempts as there are free slots. When an attempt ends, the call is cut
        short (None), to send the new number. The next call repeats attempts that the cut call may
        have given."""
        interrupt = Interrupt()
        with self._lock:
            self._pulling = interrupt
            self._stuck = [a for a in self._stuck if a.running()]
            holds = [{"id": a.id, "stopping": a.cancelled.is_set()} for a in self._held.values()]
            free = max(0, self.slots - len(holds) - len(self._stuck))
        if self._draining.is_set() != draining:
            return None  # so that no stop is missed
        wait = min(PULL_WAIT, max(0.01, left), max(0.1, session.ttl * 0.8), math.inf if holds or not draining else LAST_WAIT)
        request = {"session": session.id, "slots": 0 if draining else free, "holds": holds, "wait": duration(wait)}
        try:
            return self.client.call("WorkerService/Pull", request, reads=True, patience=CALL_TIME if draining else 0,
                                    try_time=wait + CALL_TIME, interrupt=interrupt)
        except ConductordError as error:
            if interrupt.fired and not isinstance(error, SessionExpired):
                return None
            raise
        finally:
            with self._lock:
                self._pulling = None

    def _wake(self) -> None:
        """End the call for steps."""
        with self._lock:
            pulling = self._pulling
        if pulling is not None:
            pulling.fire()

    def _take(self, session: Session, work: Dict[str, Any]) -> None:
        key = key_of(work["id"])
        with self._lock:
            if key in self._held:
                return
            attempt = self._held[key] = Attempt(self, session, work)
        attempt.start()

    def _stop(self, id: Dict[str, Any]) -> None:
        with self._lock:
            attempt = self._held.get(key_of(id))
        if attempt is not None:
            attempt.cancel()

    def drop(self, attempt: Attempt) -> None:
        """Remove an attempt whose end is recorded or permanently refused."""
        with self._lock:
            if self._held.get(key_of(attempt.id)) is attempt:
                del self._held[key_of(attempt.id)]
        self._wake()


def key_of(id: Dict[str, Any]) -> Tuple[Any, ...]:
    """The identity of an attempt; answers omit empty fields."""
    return id["flow"], id["step"], id["action"], int(id.get("attempt", 0)), int(id.get("asked", 0))
