"""The ids of rows."""

from __future__ import annotations

import uuid

NAMES = uuid.UUID("0b8f5a0e-3a7b-4d0e-9a53-6a0d3c1e7f42")  # for ids that are not UUIDs


def row_id(given: str) -> str:
    """The id of a row. TaskFlow accepts any text as an id; the row of another text has a derived UUID."""
    try:
        return str(uuid.UUID(given))
    except ValueError:
        return str(uuid.uuid5(NAMES, given))
