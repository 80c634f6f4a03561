"""Ids that the caller makes. They make repeats of a call safe."""

from __future__ import annotations

import hashlib
import os
import time
import uuid


def new_id() -> str:
    """Make a UUID of version 7, which sorts by time."""
    number = (time.time_ns() // 1_000_000) << 80 | int.from_bytes(os.urandom(10), "big")
    number = number & ~(0xF << 76) | 0x7 << 76
    number = number & ~(0x3 << 62) | 0x2 << 62
    return str(uuid.UUID(int=number))


def derive_id(job: str, what: str) -> str:
    """Derive the id of a job's book or flow from the job's id, as the command line does. A repeated
    post with the same id is then identical as a whole."""
    data = uuid.UUID(job).bytes
    return str(uuid.UUID(bytes=data[:9] + hashlib.sha256(data + what.encode()).digest()[:7]))
