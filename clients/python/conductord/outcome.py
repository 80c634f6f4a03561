"""How an attempt at a step ends: a result, a failure, or "not yet"."""

from __future__ import annotations

import dataclasses
import traceback
from typing import Any, Dict, Mapping, Optional

from . import _transport
from .errors import Invalid

MAX_MESSAGE = 16 << 10  # bytes of a failure's message
MAX_KIND = 255
MAX_STDERR = 64 << 10
MAX_DETAILS = 16 << 10  # bytes of the details of progress and of "not yet"
MAX_WAIT = 30 * 86400  # seconds of "not yet"


class Failure(Exception):
    """Raise it to fail an attempt. A ``permanent`` failure is not tried again.

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
    """Raise it to be asked again after some seconds, by any worker."""

    def __init__(self, seconds: float, details: Any = None):
        super().__init__("not yet: ask again in %g s" % seconds)
        if not 0 < seconds <= MAX_WAIT:
            raise ValueError("seconds is %r; it must be above 0, and at most %d" % (seconds, MAX_WAIT))
        self.seconds, self.details = seconds, details


class Stopped(SystemExit):
    """Raised inside a function that goes on after its attempt was cancelled. Do not catch it."""


@dataclasses.dataclass
class FailureRecord:
    """A failure as the flow has recorded it; a revert is given it."""

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


def of_result(result: Any) -> Dict[str, Any]:
    """The outcome of a function that has returned. A result that is no JSON is a failure."""
    try:
        result = plain(result)
        _transport.encode(result)
    except Invalid as error:
        return of_failure(Failure("the result is of the type %s: %s" % (type(result).__name__, error), permanent=True))
    return {"done": True, "result": result}


def of_failure(error: BaseException) -> Dict[str, Any]:
    """The outcome of a function that has raised something."""
    if isinstance(error, NotYet):
        outcome: Dict[str, Any] = {"done": True, "not_yet": "%.6fs" % error.seconds}
        if error.details is not None:
            try:
                outcome["progress"] = {"details": checked_details(error.details)}
            except ValueError as fault:
                return of_failure(fault)
        return outcome
    if not isinstance(error, Failure):
        text = "".join(traceback.format_exception(type(error), error, error.__traceback__))
        outcome = of_failure(Failure("%s: %s" % (type(error).__name__, error)))
        outcome["stderr"] = clip(text, MAX_STDERR, keep_end=True)
        return outcome
    failure: Dict[str, Any] = {"message": clip(str(error.message), MAX_MESSAGE), "kind": _kind(error.kind),
                               "permanent": bool(error.permanent), "code": int(error.code)}
    try:
        details = plain(dict(error.details or {}))
        _transport.encode(details)
    except Invalid as fault:
        details = {"details": clip("left out: %s" % fault, MAX_MESSAGE)}
    if details:
        failure["details"] = details
    return {"done": True, "failure": failure}


def clip(text: str, limit: int, keep_end: bool = False) -> str:
    """Cut a text to so many bytes of UTF-8, and replace halves of surrogate pairs."""
    data = text.encode("utf-8", "replace")
    data = data[-limit:] if keep_end else data[:limit]
    return data.decode("utf-8", "ignore")


def plain(value: Any) -> Any:
    """Replace dataclasses, at any depth, by objects."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if type(value) in (list, tuple):
        return [plain(v) for v in value]
    if type(value) is dict:
        return {k: plain(v) for k, v in value.items()}
    return value


def checked_details(details: Any) -> Any:
    """Details as they are reported. ValueError: they are too large, or no JSON."""
    details = plain(details)
    try:
        size = len(_transport.encode(details))
    except Invalid as error:
        raise ValueError("the details are no JSON: %s" % error) from error
    if size > MAX_DETAILS:
        raise ValueError("the details are %d bytes of JSON, and the limit is %d" % (size, MAX_DETAILS))
    return details


def _kind(kind: Any) -> str:
    return clip("".join(c if c.isprintable() else "_" for c in str(kind)), MAX_KIND) or "error"
