"""The errors of calls, by the codes of docs/errors.md.

All errors belong to one of two classes. ``NotDone``: the cluster is unchanged. ``Unknown``: the
call was sent, and may have taken effect. After either error, you can repeat the call with the same
ids.
"""

from __future__ import annotations

import json
from typing import Any, Dict, List, Optional, Type


class ConductordError(Exception):
    """An error of a call: a stable ``code``, a message for people, and further fields of the
    answer."""
    code = "internal"

    def __init__(self, message: str, detail: Optional[Dict[str, Any]] = None):
        super().__init__(message)
        detail = detail or {}
        self.message = message
        self.field: Optional[str] = detail.get("field")
        self.limit = _number(detail.get("limit"))
        self.size = _number(detail.get("size"))
        self.unit: Optional[str] = detail.get("unit")
        self.since: Optional[str] = detail.get("since")
        self.retry_after = 0.0  # seconds, of an overloaded node
        self.posted: List[Any] = []  # of post_many: a Job or an error for each posting


class NotDone(ConductordError):
    """The call changed nothing."""


class Unknown(ConductordError):
    """The call may have taken effect: repeat it with the same ids."""


class Invalid(NotDone):
    """A field of the call is wrong; ``field`` names it."""
    code = "invalid"


class OverLimit(NotDone):
    """Something is too large or too many; see ``field``, ``limit``, ``size`` and ``unit``."""
    code = "over_limit"


class NotFound(NotDone):
    """The job, book, flow or session does not exist."""
    code = "not_found"


class Conflict(NotDone):
    """The state does not allow the call, or the id belongs to another object."""
    code = "conflict"


class Unclaimable(Conflict):
    """The job cannot be claimed now."""
    code = "unclaimable"


class Fenced(NotDone):
    """The claim or the attempt has ended, or belongs to another owner."""
    code = "fenced"


class SessionExpired(NotDone):
    """The session has ended, and with it all its claims."""
    code = "session_expired"


class Compacted(NotDone):
    """The events are no longer kept; events after ``since`` are."""
    code = "compacted"


class NotAllowed(NotDone):
    """The caller has no permission, or is not authenticated."""
    code = "not_allowed"


class Unavailable(NotDone):
    """No leader could take the call, or no node could be reached."""
    code = "unavailable"


class Overloaded(Unavailable):
    """A queue or the memory of the node is full."""
    code = "overloaded"


class Uncertain(Unknown):
    """The call was sent, and its answer was lost."""
    code = "uncertain"


class Internal(Unknown):
    """The server had a fault without a specific code."""
    code = "internal"


_BY_CODE: Dict[str, Type[ConductordError]] = {
    cls.code: cls
    for cls in (
        Invalid, OverLimit, NotFound, Conflict, Unclaimable, Fenced, SessionExpired, Compacted,
        NotAllowed, Unavailable, Overloaded, Uncertain, Internal,
    )
}

# Answers without a detail have only a Connect code: answers to malformed requests, and answers of
# proxies between the caller and the node.
_BY_CONNECT: Dict[str, Type[ConductordError]] = {
    "invalid_argument": Invalid, "resource_exhausted": OverLimit, "not_found": NotFound,
    "permission_denied": NotAllowed, "unauthenticated": NotAllowed, "unavailable": Unavailable,
    "unknown": Uncertain, "canceled": Uncertain, "deadline_exceeded": Uncertain,
}

_BY_STATUS: Dict[int, Type[ConductordError]] = {400: Invalid, 401: NotAllowed, 403: NotAllowed, 404: NotFound, 413: OverLimit, 429: Overloaded}


def of_detail(detail: Dict[str, Any]) -> ConductordError:
    """Make the error for a ``conductord.v1.Error``, as in answers with verdicts."""
    cls = _BY_CODE.get(str(detail.get("code")), Internal)
    return cls(str(detail.get("message", "")), detail)


def of_answer(status: int, body: bytes) -> ConductordError:
    """Make the error of an answer with a status other than 200."""
    try:
        answer = json.loads(body)
    except ValueError:
        answer = None
    if not isinstance(answer, dict):
        # Not an answer of a node: a proxy may have sent the call on.
        cls = _BY_STATUS.get(status, Uncertain)
        return cls("HTTP status %d: %s" % (status, body[:200].decode("utf-8", "replace").strip()))
    for detail in answer.get("details") or []:
        if isinstance(detail, dict) and detail.get("type") == "conductord.v1.Error":
            shown = detail.get("debug")
            if isinstance(shown, dict):
                return of_detail(shown)
    cls = _BY_CONNECT.get(str(answer.get("code")), Internal)
    return cls(str(answer.get("message") or answer.get("code") or "HTTP status %d" % status))


def _number(value: Any) -> Optional[int]:
    return None if value is None else int(value)
