"""A program for test_chaos: a conductor whose tasks write each start and end to a file.

    python3 ledger.py work SERVER BOARD NAME LEDGER
"""

import os
import sys
import time

import node  # noqa: F401  first: it makes the packages importable
from taskflow import task
from taskflow.conductors import backends as conductors
from taskflow.patterns import linear_flow

from conductord_taskflow import Backend, Board


class Noted(task.Task):
    """Writes its start and its end to the ledger."""

    def execute(self, order, ledger, seconds):
        for word in ("start", "end"):
            line = "%s %s %s %d %.6f\n" % (word, order, self.name, os.getpid(), time.monotonic())
            with open(ledger, "a") as file:
                file.write(line)
            if word == "start":
                time.sleep(seconds)


def noted_flow():
    return linear_flow.Flow("noted").add(Noted("one"), Noted("two"), Noted("three"))


if __name__ == "__main__":
    server, board, name = sys.argv[2:5]
    logbook = Backend({"servers": server, "board": board})
    made = Board("chaos", {"servers": server, "board_name": board}, persistence=logbook)
    made.connect()
    conductors.fetch("nonblocking", name, made, persistence=logbook, engine="serial", wait_timeout=0.2, max_simultaneous_jobs=4).run()
