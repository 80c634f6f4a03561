"""Ids that the caller makes, which is what makes a repeat of a call harmless."""

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
    """Make the id of what belongs to a job from the job's, as the command line does: posting
    again under the same id is then the same posting as a whole."""
    data = uuid.UUID(job).bytes
    return str(uuid.UUID(bytes=data[:9] + hashlib.sha256(data + what.encode()).digest()[:7]))
