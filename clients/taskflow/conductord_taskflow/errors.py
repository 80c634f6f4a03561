"""The errors of conductord as TaskFlow's types."""

from __future__ import annotations

import contextlib
from typing import Any, Iterator, Type

from conductord import ConductordError
from oslo_serialization import jsonutils
from taskflow import exceptions as exc


@contextlib.contextmanager
def translated(kind: Type[exc.TaskFlowException], action: str, missing: Type[exc.TaskFlowException] = exc.NotFound) -> Iterator[None]:
    """Raise each error of conductord as ``kind``, with its cause; a missing object as ``missing``."""
    try:
        yield
    except ConductordError as error:
        wanted = missing if error.code == "not_found" else kind
        exc.raise_with_cause(wanted, "cannot %s: %s" % (action, error.message), cause=error)


def as_json(value: Any) -> Any:
    """A value in the form in which TaskFlow's other backends write it: dates as texts, sets and tuples as
    lists."""
    return jsonutils.loads(jsonutils.dumps(value))
