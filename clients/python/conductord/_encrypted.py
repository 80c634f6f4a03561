"""Values that a worker gets in encrypted form: the client has no value keys. docs/value-keys.md describes them."""

from __future__ import annotations

import re
from typing import Any, Dict, Iterator, Optional, Tuple

_ENCRYPTED = re.compile(r"\$encrypted:1:([A-Za-z0-9._-]{1,32}):[A-Za-z0-9+/=]+\$")
MAX_WAIT = 60.0


def missing_key(work: Dict[str, Any]) -> Optional[str]:
    """Why a step must not start: one of its values is encrypted. None: no value is encrypted. Texts of failures may be
    encrypted: they are for readers."""
    for what, value in _values(work):
        found = _ENCRYPTED.fullmatch(value) if isinstance(value, str) else None
        if found:
            return ("a value is encrypted with key %s, and cannot be decrypted here: %s; run the step with `conductord worker` or a worker "
                    "in Go, and set CONDUCTORD_VALUE_KEYS to a file with the key" % (found.group(1), what))
    return None


def wait(work: Dict[str, Any]) -> float:
    """Seconds until a worker gets the attempt again. The time grows with each answer."""
    return min(2.0 ** min(int(work["id"].get("asked", 0)), 6), MAX_WAIT)


def _values(work: Dict[str, Any]) -> Iterator[Tuple[str, Any]]:
    for name, value in work.get("arguments", {}).items():
        yield "the argument %r" % name, value
    for checkpoint in work.get("checkpoints", []):
        yield "the checkpoint %r" % checkpoint["name"], checkpoint.get("value")
    yield "the result of the step", work.get("result")
    yield "the details of the last progress", (work.get("last_progress") or {}).get("details")
    for failure in [work.get("last_failure"), work.get("failure")] + work.get("failures", []):
        for name, value in ((failure or {}).get("details") or {}).items():
            yield "the failure's detail %r" % name, value
