"""One attempt at a step: the function runs in a thread, and another thread watches and reports it."""

from __future__ import annotations

import ctypes
import threading
import time
from typing import TYPE_CHECKING, Any, Callable, Dict, List, Optional

from ._encrypted import missing_key, wait
from .client import duration, seconds_of
from .errors import ConductordError, Fenced, Invalid, NotAllowed, NotFound, OverLimit, SessionExpired
from .outcome import (BadArgument, Cancelled, Failure, FailureRecord, NotYet, ProgressRecord, RevertCause, Stopped, checked_details, clip, kept, of_failure,
                      of_result)

if TYPE_CHECKING:
    from ._session import Session
    from .worker import Worker

TICK = 0.25  # seconds between two checks of the attempt
TELL_EVERY = 0.5  # seconds between reports of progress and lines
TELL_WAIT = 2.0  # seconds to wait for the conductor; while a flow changes its owner, it has no conductor
REPORT_WAIT = 10.0  # seconds of one report of an end
CALL_TIME = 5.0
GRACE = 3.0  # seconds that a cancelled function has, before Stopped is raised in it
MAX_OUTPUT = 60 << 10  # bytes of lines in one report; the limit is 64 KiB
MAX_BUFFER = 1 << 20  # bytes of lines that are not reported yet
DROPPED = "[lines were dropped: more was written than could be reported]\n"


class Context:
    """The attempt, as its function sees it. The worker passes it to a parameter of this type. ``record`` makes a checkpoint durable; in a
    context made by hand, as in a test, the context alone keeps checkpoints."""

    def __init__(self, work: Dict[str, Any], cancelled: threading.Event, record: Optional[Callable[[Dict[str, Any]], None]] = None):
        id = work["id"]
        self.job: str = work.get("job", "")
        self.flow: str = id["flow"]
        self.step: str = id["step"]
        self.action: str = id["action"]
        self.type: str = work["type"]
        self.attempt = int(id.get("attempt", 1))  # from 1
        self.asked = int(id.get("asked", 0))  # number of "not yet" answers of this attempt
        self.round = int(work.get("round", 0))
        self.try_ = int(work.get("try", 1))  # failures of this round plus one; lost workers do not count
        self.tries = int(work.get("tries", 1))  # maximum tries, from the step's retry
        last, cause, progress = work.get("last_failure"), work.get("cause"), work.get("last_progress")
        self.last_failure: Optional[FailureRecord] = FailureRecord.of(last) if last else None  # of the previous try
        self.last_progress: Optional[ProgressRecord] = ProgressRecord.of(progress) if progress else None  # of the previous attempt
        self.cause: Optional[RevertCause] = RevertCause.of(cause) if cause else None  # why the step is reverted; only for a revert
        self.key: str = work.get("key", "")  # the same in all attempts of a round: pass it to systems that recognise repeats
        self.token: str = work.get("token", "")  # pass it to systems that refuse older tokens
        self.cancelled = cancelled  # set when the attempt must end
        left = seconds_of(work.get("time_left"))
        self.deadline: Optional[float] = None if left is None else time.monotonic() + left  # by time.monotonic; None: no deadline
        self._lock = threading.Lock()
        self._progress: Optional[Dict[str, Any]] = None
        self._output = bytearray()
        self._dropped = False
        self._record = record
        self._recording = threading.Lock()  # before _lock: one checkpoint at a time, in the order of their numbers
        self._number = 0  # of the latest checkpoint
        self._sends: List[Dict[str, Any]] = []
        self._checkpoints: Dict[str, Any] = {c["name"]: c.get("value") for c in work.get("checkpoints", [])}

    @property
    def checkpoints(self) -> Dict[str, Any]:
        """A copy of the checkpoints of this round by name, including those of earlier attempts."""
        with self._lock:
            return dict(self._checkpoints)

    def checkpoint(self, name: str, value: Any = None) -> None:
        """Record a value for the next attempt, and return when the record is durable. A later value of the same name
        replaces it. OverLimit and Invalid refuse the value; Cancelled: the attempt is over. A crash between the work and
        its checkpoint repeats the work."""
        value = kept(value)
        with self._recording:
            self._number += 1  # even after an error: a late repeat of the failed report must have another number
            if self._record is not None:
                self._record({"name": name, "value": value, "number": self._number})
            with self._lock:
                self._checkpoints[name] = value

    def once(self, name: str, function: Callable[[], Any]) -> Any:
        """Run a function once in a round, record its result as a checkpoint, and return the recorded result in every later
        attempt. An exception is not recorded. A crash between the function and the record runs the function again."""
        if name not in self.checkpoints:
            self.checkpoint(name, function())
        return self.checkpoints[name]

    def signal(self, job: str, name: str, data: Any = None) -> None:
        """Send a signal to a job when this execution succeeds. The cluster sends it once, in the log entry that records
        the success. An execution that fails sends nothing."""
        self._send({"job": job}, name, data)

    def signal_key(self, key: str, name: str, data: Any = None, board: str = "") -> None:
        """Send a signal to the unfinished job with a key, like ``signal``. Without ``board``: the board of this job."""
        self._send({"key": key, "board": board}, name, data)

    def _send(self, to: Dict[str, Any], name: str, data: Any) -> None:
        sent = dict(to, signal={"name": name, "data": kept(data)})
        with self._lock:
            self._sends.append(sent)

    def sends(self) -> List[Dict[str, Any]]:
        """The signals of this execution, in the form of the protocol."""
        with self._lock:
            return list(self._sends)

    def time_left(self) -> Optional[float]:
        """Seconds until the deadline; None: no deadline."""
        return None if self.deadline is None else max(0.0, self.deadline - time.monotonic())

    def progress(self, done: int, total: int = 0, details: Any = None) -> None:
        """Report the progress of the attempt; total 0: unknown."""
        if not 0 <= done < 1 << 63 or not 0 <= total < 1 << 63 or total and done > total:
            raise ValueError("progress is %r of %r; it must be 0 or more, and at most the total" % (done, total))
        news: Dict[str, Any] = {"done": int(done), "total": int(total)}
        if details is not None:
            news["details"] = checked_details(details)
        with self._lock:
            self._progress = news

    def log(self, line: str) -> None:
        """Write a line for ``conductord job logs``. Lines that cannot be reported now may be lost."""
        data = (str(line).rstrip("\n") + "\n").encode("utf-8", "replace")
        with self._lock:
            if len(self._output) + len(data) > MAX_BUFFER:
                self._dropped = True
            else:
                self._output += data

    def sleep(self, seconds: float) -> None:
        """Sleep; raises Cancelled when the attempt must end."""
        if self.cancelled.wait(seconds):
            raise Cancelled()

    def take_news(self) -> Dict[str, Any]:
        """The unreported progress and lines, as fields of an outcome."""
        news: Dict[str, Any] = {}
        with self._lock:
            if self._progress is not None:
                news["progress"], self._progress = self._progress, None
            end = len(self._output)
            if end > MAX_OUTPUT:
                end = self._output.rfind(b"\n", 0, MAX_OUTPUT) + 1 or MAX_OUTPUT
            text = self._output[:end].decode("utf-8", "replace")
            del self._output[:end]
            if self._dropped and not self._output:
                text, self._dropped = text + DROPPED, False
            if text:
                news["output"] = text
        return news

    def take_progress(self) -> Dict[str, Any]:
        """The unreported progress, as a field of an outcome."""
        with self._lock:
            progress, self._progress = self._progress, None
        return {} if progress is None else {"progress": progress}

    def has_output(self) -> bool:
        """Whether lines wait to be reported."""
        with self._lock:
            return bool(self._output)


class Attempt:
    """An attempt that the worker holds until the cluster has recorded or refused its end."""

    def __init__(self, worker: Worker, session: Session, work: Dict[str, Any]):
        self.id: Dict[str, Any] = work["id"]
        self.cancelled = threading.Event()
        self._worker, self._session, self._work = worker, session, work
        self._context = Context(work, self.cancelled, self._record)
        self._outcome: Optional[Dict[str, Any]] = None
        self._asked_to_end = 0.0
        self._stopped = False
        name = "%s %s" % (self.id["action"], self.id["step"])
        # Daemon threads: a function that ignores its cancellation must not keep the process alive.
        self._maker = threading.Thread(target=self._make, name="conductord " + name, daemon=True)
        self._watcher = threading.Thread(target=self._watch, name="conductord watch " + name, daemon=True)

    def start(self) -> None:
        """Start the attempt. It ends when its end is reported, or the session is over."""
        self._watcher.start()

    def cancel(self) -> None:
        """Ask the function to end."""
        if not self.cancelled.is_set():
            self._asked_to_end = time.monotonic()  # before the event, because other threads read the time when the event is set
            self.cancelled.set()

    def join(self, timeout: float) -> None:
        """Wait until it is over."""
        self._watcher.join(timeout)

    def running(self) -> bool:
        """Whether the function still runs."""
        return self._maker.is_alive()

    def _make(self) -> None:
        try:
            self._outcome = self._call()
        except BaseException as error:  # includes SystemExit of the function, which must not end the worker
            self._outcome = of_failure(Cancelled("the function was stopped") if issubclass(type(error), Stopped) else error)
        finally:
            self._worker.running.release()

    def _call(self) -> Dict[str, Any]:
        work, given = self._work, None
        missing = missing_key(work)
        if missing is not None:
            self._worker.logger.warning("step not started: %s: %s", self._maker.name, missing)
            self._context.log("not started: " + missing)
            raise NotYet(wait(work))  # no failure: a worker with the key can get the attempt next
        function, signature = self._worker.function_of(work["type"], self.id["action"])
        if self.id["action"] == "revert":
            failure = work.get("failure")
            given = {
                "result": work.get("result"), "failure": FailureRecord.of(failure) if failure else None,
                "failures": {f.get("step", ""): FailureRecord.of(f) for f in work.get("failures", [])},
            }
        try:
            arguments = signature.bind(work.get("arguments", {}), self._context, given)
        except BadArgument as error:
            if given is not None and (work.get("failure") or {}).get("kind") == error.kind:
                return of_result(None)  # with these arguments the step never executed: nothing to undo
            raise
        outcome = of_result(function(**arguments))
        sends = self._context.sends()
        return dict(outcome, sends=sends) if sends and "result" in outcome and self.id["action"] == "execute" else outcome

    def _watch(self) -> None:
        try:
            self._see_through()
        finally:
            self._worker.drop(self)

    def _see_through(self) -> None:
        # While a keep-alive is late, the attempt waits: another worker may get it soon.
        while not self._session.failing() and not self.cancelled.is_set():
            if not self._session.may_start():
                self.cancelled.wait(TICK)
            elif self._worker.running.acquire(timeout=TICK):
                if self._session.may_start() and not self.cancelled.is_set():
                    self._maker.start()  # it releases the slot at its end
                    self._follow()
                    break
                self._worker.running.release()
        if not self._session.failing():  # otherwise another worker may have the attempt: report nothing
            outcome = self._outcome or of_failure(Cancelled())
            while self._context.has_output() and self._tell():
                pass
            for name, news in self._context.take_news().items():
                outcome.setdefault(name, news)
            self._report(outcome)

    def look(self) -> None:
        """Cancel the function when its time or the session is over. Raise Stopped in a function
        that continues."""
        if self._session.failing() or self._context.time_left() == 0:
            self.cancel()
        if self.cancelled.is_set() and not self._stopped and self.running() and time.monotonic() - self._asked_to_end >= GRACE:
            self._stopped = True
            self._worker.logger.warning("a function continues although it was cancelled: %s", self._maker.name)
            _raise_in(self._maker, Stopped)

    def _follow(self) -> None:
        """Report the function's progress and lines until it has ended or the session is over."""
        told = time.monotonic()
        while self._maker.is_alive():
            self._maker.join(TICK)
            if self._session.failing():
                self._maker.join(2 * GRACE)
                return
            if time.monotonic() - told >= TELL_EVERY:
                told = time.monotonic()
                self._tell()

    def _tell(self) -> bool:
        """Report progress and lines once. A failed report is not repeated."""
        news = self._context.take_news()
        if not news:
            return False
        request = {"session": self._session.id, "wait": duration(TELL_WAIT), "outcome": dict(news, id=self.id)}
        try:
            self._worker.client.call("WorkerService/Report", request, reads=True, patience=0, try_time=TELL_WAIT + 1)
            return True
        except (OverLimit, Invalid) as error:
            self._worker.logger.warning("progress or lines are refused: %s", error)
        except ConductordError as error:
            self._worker.logger.debug("cannot report progress: %s", error)
        return False

    def _record(self, checkpoint: Dict[str, Any]) -> None:
        """Report a checkpoint until it is recorded or refused, or the attempt is over."""
        what, pause = "cannot record the checkpoint %r: the attempt is over" % checkpoint["name"], 0.1
        outcome = dict(self._context.take_progress(), id=self.id, checkpoint=checkpoint)
        request = {"session": self._session.id, "wait": duration(REPORT_WAIT), "outcome": outcome}
        while self._outcome is None and not self._session.failing():
            try:
                answer = self._worker.client.call("WorkerService/Report", request, reads=True, patience=0, try_time=REPORT_WAIT + CALL_TIME)
                if answer.get("recorded"):
                    return
                continue
            except SessionExpired:
                self._session.lose()
            except (Fenced, NotAllowed, NotFound) as error:
                self.cancel()
                raise Cancelled("%s: %s" % (what, error)) from error
            except (OverLimit, Invalid):
                raise
            except ConductordError as error:
                self._worker.logger.warning("cannot record a checkpoint; retrying: %s: %s", self._maker.name, error)
            time.sleep(pause)
            pause = min(2 * pause, 2.0)
        self.cancel()
        raise Cancelled(what)

    def _report(self, outcome: Dict[str, Any]) -> None:
        """Report the end until it is recorded or permanently refused."""
        refused, pause = 0, 0.1
        while not self._session.failing():
            request = {"session": self._session.id, "wait": duration(REPORT_WAIT), "outcome": dict(outcome, id=self.id)}
            try:
                answer = self._worker.client.call("WorkerService/Report", request, reads=True, patience=0, try_time=REPORT_WAIT + CALL_TIME)
                if answer.get("recorded"):
                    return
            except SessionExpired:
                self._session.lose()
                return
            except (Fenced, NotAllowed, NotFound) as error:
                self._worker.logger.info("the cluster no longer accepts the end of a step: %s: %s", self._maker.name, error)
                return
            except (OverLimit, Invalid) as error:
                # The node may refuse only the progress or the lines.
                if outcome.pop("progress", None) is not None or outcome.pop("output", None) is not None:
                    continue
                refused += 1
                if refused > 2:
                    self._worker.logger.error("the cluster refuses the end of a step: %s: %s", self._maker.name, error)
                    return
                outcome = refusal(outcome, error, refused)
                continue
            except ConductordError as error:
                self._worker.logger.warning("cannot report the end of a step; retrying: %s: %s", self._maker.name, error)
            time.sleep(pause)
            pause = min(2 * pause, 2.0)


def refusal(outcome: Dict[str, Any], error: ConductordError, times: int) -> Dict[str, Any]:
    """The failure to report if the node permanently refuses the end."""
    kind = "over_limit" if isinstance(error, OverLimit) else "error"
    message = "the node refuses the result: %s" % error
    failed = outcome.get("failure")
    if failed and times == 1:  # drop the details or the message; the rest says most
        kind, message = failed["kind"], "%s (the node refuses the whole failure: %s)" % (clip(failed["message"], 512), error)
    return of_failure(Failure(message, kind=kind, permanent=True if failed is None else bool(failed["permanent"])))


def _raise_in(thread: threading.Thread, error: type) -> None:
    """Raise an exception in a thread, at its next Python instruction. A call into C finishes
    first."""
    if thread.ident is not None and hasattr(ctypes, "pythonapi"):
        ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident), ctypes.py_object(error))
