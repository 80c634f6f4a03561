"""A client for conductord: post jobs and flows, wait until they end, and run steps of flows.

    from conductord import Client, Context, Failure, Worker

    client = Client()                        # CONDUCTORD_SERVER, or 127.0.0.1:7070
    worker = Worker(client)

    @worker.step("resize")
    def resize(path: str, width: int, context: Context) -> dict:
        context.progress(1, 2)
        return {"path": path}

    worker.run()                             # until SIGTERM; then running steps finish
"""

from ._attempt import Context
from ._ids import new_id
from .client import Client, Job
from .errors import (
    Compacted, ConductordError, Conflict, Fenced, Internal, Invalid, NotAllowed, NotDone, NotFound, Overloaded,
    OverLimit, SessionExpired, Unavailable, Uncertain, Unclaimable, Unknown,
)
from .outcome import BadArgument, Cancelled, Failure, FailureRecord, NotYet, ProgressRecord, RevertCause, Stopped
from .worker import Step, Worker

__version__ = "0.1.0"

__all__ = [
    "BadArgument", "Cancelled", "Client", "Compacted", "ConductordError", "Conflict", "Context", "Failure", "FailureRecord",
    "Fenced", "Internal", "Invalid", "Job", "NotAllowed", "NotDone", "NotFound", "NotYet", "OverLimit", "Overloaded",
    "ProgressRecord", "RevertCause", "SessionExpired", "Step", "Stopped", "Unavailable", "Uncertain", "Unclaimable", "Unknown", "Worker", "new_id",
]
