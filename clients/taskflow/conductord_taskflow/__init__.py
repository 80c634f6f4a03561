"""TaskFlow programs on conductord: a jobboard and a persistence backend.

    from taskflow.jobs import backends as boards
    from taskflow.persistence import backends as logbooks

    logbook = logbooks.fetch("conductord://node1,node2,node3:7070/")
    board = boards.fetch("orders", "conductord://node1,node2,node3:7070/?board=orders", persistence=logbook)
"""

from .board import Board
from .job import Job, UnknownExpire
from .logbook import Backend, Connection

__version__ = "0.1.0"

__all__ = ["Backend", "Board", "Connection", "Job", "UnknownExpire"]
