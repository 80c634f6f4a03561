"""How an attempt at a step ends: a result, a failure, or "not yet"."""

from __future__ import annotations

import dataclasses
import json
import traceback
from typing import Any, Callable, Dict, List, Mapping, Optional, Tuple

from . import _transport
from .errors import Invalid

MAX_MESSAGE = 16 << 10  # bytes of a failure's message
MAX_KIND = 255
MAX_STDERR = 64 << 10
MAX_DETAILS = 16 << 10  # bytes of the details of progress and of "not yet"
MAX_WAIT = 30 * 86400  # seconds of "not yet"


class Failure(Exception):
    """Raise it to fail an attempt. The step is not retried after a ``permanent`` failure.

    ``kind`` names the failure to retry policies and people; ``details`` are up to 16 values by name.
    """

    def __init__(self, message: str, *, kind: str = "error", permanent: bool = False,
                 details: Optional[Mapping[str, Any]] = None, code: int = 0):
        super().__init__(message)
        self.message, self.kind, self.permanent, self.details, self.code = message, kind, permanent, details, code


class BadArgument(Failure):
    """The arguments of a step do not fit the hints of its function: a permanent failure."""

    def __init__(self, message: str):
        super().__init__(message, kind="bad_argument", permanent=True)


class Cancelled(Failure):
    """The attempt must end."""

    def __init__(self, message: str = "the attempt was told to end"):
        super().__init__(message, kind="cancelled")


class NotYet(Exception):
    """Raise it to run the step again after some seconds, by any worker."""

    def __init__(self, seconds: float, details: Any = None):
        super().__init__("not yet: run again in %g s" % seconds)
        if not 0 < seconds <= MAX_WAIT:
            raise ValueError("seconds is %r; it must be above 0, and at most %d" % (seconds, MAX_WAIT))
        self.seconds, self.details = seconds, details


class Stopped(SystemExit):
    """Raised in a function that continues after its attempt was cancelled. Do not catch it."""


@dataclasses.dataclass
class FailureRecord:
    """A failure as recorded by the flow; a revert receives it."""

    message: str = ""
    kind: str = ""
    step: str = ""
    permanent: bool = False
    code: int = 0
    details: Dict[str, Any] = dataclasses.field(default_factory=dict)

    @classmethod
    def of(cls, wired: Mapping[str, Any]) -> FailureRecord:
        """Read it from an answer."""
        return cls(**{f.name: wired[f.name] for f in dataclasses.fields(cls) if f.name in wired})


@dataclasses.dataclass
class RevertCause:
    """Why a step is reverted."""

    kind: str = ""  # failure, cancel, deadline, retry, operator or dropped
    by: str = ""  # the operator
    reason: str = ""  # the operator's reason, or the text of the failure

    @classmethod
    def of(cls, wired: Mapping[str, Any]) -> RevertCause:
        """Read it from an answer."""
        return cls(**{f.name: wired[f.name] for f in dataclasses.fields(cls) if f.name in wired})


@dataclasses.dataclass
class ProgressRecord:
    """The last progress report of the previous attempt."""

    done: int = 0
    total: int = 0  # 0: unknown
    details: Any = None

    @classmethod
    def of(cls, wired: Mapping[str, Any]) -> ProgressRecord:
        """Read it from an answer."""
        return cls(int(wired.get("done", 0)), int(wired.get("total", 0)), wired.get("details"))


def of_result(result: Any) -> Dict[str, Any]:
    """The outcome of a function that has returned. A result that JSON cannot hold is a failure."""
    try:
        return {"done": True, "result": kept(result)}
    except Exception as error:
        return of_failure(Failure("the result is of the type %s: %s" % (_name(result), text_of(error)), permanent=True))


def of_failure(error: Any) -> Dict[str, Any]:
    """The outcome of a function that has raised an exception. It never raises, whatever the
    exception is. It does not use isinstance, because reading the exception's ``__class__`` can
    raise.
    """
    if issubclass(type(error), NotYet):
        try:
            outcome: Dict[str, Any] = {"done": True, "not_yet": "%.6fs" % error.seconds}
            if error.details is not None:
                outcome["progress"] = {"details": checked_details(error.details)}
            return outcome
        except BaseException as fault:
            return of_failure(Failure('cannot report "not yet": ' + text_of(fault)))
    if not issubclass(type(error), Failure):
        outcome = of_failure(Failure("%s: %s" % (_name(error), text_of(error))))
        outcome["stderr"] = clip(_trace(error), MAX_STDERR, keep_end=True)
        return outcome
    message = _tried(lambda: error.message, error)
    failure: Dict[str, Any] = {"message": text_of(message), "kind": _kind(_tried(lambda: error.kind, "error")),
                               "permanent": _tried(lambda: bool(error.permanent), False), "code": _tried(lambda: _code(error.code), 0)}
    try:
        details = kept(dict(getattr(error, "details", None) or {}))
    except BaseException as fault:
        details = {"details": clip("left out: %s" % text_of(fault), MAX_MESSAGE)}
    if details:
        failure["details"] = details
    return {"done": True, "failure": failure}


def text_of(value: Any) -> str:
    """The text of any value. It never raises, even if the value's methods do."""
    return _tried(lambda: clip(str(value), MAX_MESSAGE), "(its text cannot be read)")


def _tried(make: Callable[[], Any], otherwise: Any) -> Any:
    """The result of a function that calls methods of a step's values; on an exception, the given
    default."""
    try:
        return make()
    except BaseException:  # a method can raise any
        return otherwise


def _name(value: Any) -> str:
    return _tried(lambda: clip(type(value).__name__, MAX_KIND), "object")


def _trace(error: Any) -> str:
    where = _tried(lambda: "".join(traceback.format_tb(BaseException.__traceback__.__get__(error))), "")
    return _tried(lambda: "".join(traceback.format_exception(type(error), error, error.__traceback__)), where)


def _code(code: Any) -> int:
    return int(code) if -1 << 31 <= code < 1 << 31 else 0


def clip(text: str, limit: int, keep_end: bool = False) -> str:
    """Cut a text to a number of bytes of UTF-8, and replace halves of surrogate pairs."""
    data = str.encode(text, "utf-8", "replace")
    data = data[-limit:] if keep_end else data[:limit]
    return data.decode("utf-8", "ignore")


def kept(value: Any) -> Any:
    """A copy in JSON form, which the function cannot change. Invalid: JSON cannot hold the
    value."""
    return json.loads(_transport.encode(plain(value)), object_pairs_hook=_once)


def _once(pairs: List[Tuple[str, Any]]) -> Dict[str, Any]:
    made = dict(pairs)
    if len(made) < len(pairs):
        raise Invalid("an object has two keys with the same text, such as 1 and \"1\"")
    return made


def plain(value: Any) -> Any:
    """Replace dataclasses, at any depth, with objects."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if type(value) in (list, tuple):
        return [plain(v) for v in value]
    if type(value) is dict:
        return {k: plain(v) for k, v in value.items()}
    return value


def checked_details(details: Any) -> Any:
    """Details in the form of a report. ValueError: they are too large, or not JSON."""
    try:
        details = kept(details)
    except Invalid as error:
        raise ValueError("the details are no JSON: %s" % error) from error
    size = len(_transport.encode(details))
    if size > MAX_DETAILS:
        raise ValueError("the details are %d bytes of JSON, and the limit is %d" % (size, MAX_DETAILS))
    return details


def _kind(kind: Any) -> str:
    return clip("".join(c if c.isprintable() else "_" for c in text_of(kind)), MAX_KIND) or "error"
