"""Run examples/orders.py on conductord or on Redis, and kill a conductor while it works.

    python3 compare.py conductord CONDUCTORD [leader]    # CONDUCTORD is the binary; "leader": kill the leader of the three nodes too
    python3 compare.py redis [EXPIRY]                    # EXPIRY: seconds until a claim ends. Default: without end

One producer posts orders, and three conductors work on them. Only the address of the board differs, and the logbooks of Redis,
which are in files. All executes and reverts go to a ledger, and the output is a summary of the ledger.
"""

import collections
import contextlib
import datetime
import json
import logging
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

import node  # first: it makes the packages importable
import speed
from taskflow import exceptions as exc

EXAMPLES = node.ROOT / "examples"
sys.path.insert(0, str(EXAMPLES))
import orders  # noqa: E402

COUNT, STEP = 60, 0.5  # orders, and seconds of a task
START_LIMIT = 120.0  # seconds until all orders are posted, and until all conductors work
LIMIT = 90.0  # seconds to wait for the orders after the kill
ENDS = ("SUCCESS", "REVERTED", "FAILURE")

Line = collections.namedtuple("Line", ["at", "who", "order", "what"])


class Programs:
    """The programs of the example. Each writes its part of the ledger to a file."""

    def __init__(self, stack, environ):
        self.folder = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory()))
        self.stack, self.environ = stack, environ

    def start(self, name, *args):
        log = self.stack.enter_context(open(self.folder / name, "wb"))
        started = subprocess.Popen([sys.executable, "-B", "-W", "ignore", str(EXAMPLES / "orders.py"), *args], env=self.environ,
                                   stdout=log, stderr=log)
        self.stack.callback(started.wait)
        self.stack.callback(started.kill)
        return started

    def ledger(self):
        """The lines of all conductors, by time."""
        found = []
        for file in self.folder.glob("[abc]"):
            for line in file.read_text().splitlines():
                words = line.split()
                if len(words) >= 4 and words[2].startswith("order-"):
                    at = datetime.datetime.strptime(" ".join(words[:2]), "%Y-%m-%d %H:%M:%S,%f").timestamp()
                    found.append(Line(at, file.name, words[2], words[3]))
        return sorted(found)


def conductord(stack, binary, environ):
    """Start three nodes. Returns their address, and a function that kills the leader."""
    port = speed.free_port()
    servers = ",".join("127.0.0.1:%d" % (port + i) for i in range(3))
    folder = speed.serve(stack, [binary, "dev", "--nodes", "3", "--data-dir", "FOLDER/data", "--api-listen", "127.0.0.1:%d" % port], port)

    def kill_leader():
        status = subprocess.run([binary, "cluster", "status", "--server", servers, "-o", "json"], capture_output=True, check=True)
        name = next(row["status"]["leader"] for row in json.loads(status.stdout)["nodes"] if "status" in row)
        line = next(row for row in pathlib.Path(folder, "log").read_text().splitlines() if row.startswith(name + " "))
        os.kill(int(line.split()[2].rstrip(";")), 9)
        print("the leader %s was killed too" % name)

    return "conductord:///?servers=" + servers, kill_leader


def redis(stack, environ):
    """Start Redis, with logbooks in files. Returns the address of the board."""
    port = speed.free_port()
    speed.serve(stack, ["redis-server", "--port", str(port), "--save", "", "--bind", "127.0.0.1", "--appendonly", "yes"], port)
    environ["LOGBOOK"] = os.environ["LOGBOOK"] = "file:///?path=" + stack.enter_context(tempfile.TemporaryDirectory())
    return "redis://127.0.0.1:%d" % port


def states(logbook):
    """The state of each order's flow. While a program writes, reads of logbooks in files can fail."""
    for _ in range(100):
        with contextlib.suppress(exc.NotFound, exc.StorageFailure), contextlib.closing(logbook.get_connection()) as connection:
            return {book.name: next(iter(book)).state for book in connection.get_logbooks() if len(book)}
    raise SystemExit("the logbooks cannot be read")


def wait_until(reached):
    until = time.monotonic() + START_LIMIT
    while not reached():
        if time.monotonic() > until:
            raise SystemExit("the programs did not start within %g s" % START_LIMIT)
        time.sleep(0.1)


def run(stack, environ, address, kill_more):
    with orders.connected(address) as (_, logbook):
        programs = Programs(stack, environ)
        programs.start("producer", "post", address, str(COUNT), str(STEP))
        wait_until(lambda: len(states(logbook)) == COUNT)
        first, *_ = [programs.start(name, "work", address, name) for name in "abc"]
        wait_until(lambda: {line.who for line in programs.ledger() if line.what == "charge"} == set("abc"))
        time.sleep(2 * STEP)
        before = states(logbook)
        first.kill()
        killed = time.time()
        owners = {line.order: line.who for line in programs.ledger() if line.at < killed}
        kill_more()
        found = {}
        while time.time() < killed + LIMIT and not (len(found) == COUNT and all(state in ENDS for state in found.values())):
            time.sleep(0.5)
            found = states(logbook)
        orphans = [order for order, who in owners.items() if who == "a" and before[order] not in ENDS]
        report(programs.ledger(), killed, orphans, found)


def report(ledger, killed, orphans, found):
    words = collections.Counter(line.what for line in ledger)
    runs = collections.Counter((line.order, line.what) for line in ledger)
    twice = [order for (order, _), n in runs.items() if n > 1]
    print("states of %d orders: %s" % (COUNT, dict(collections.Counter(found.values()))))
    print("executes and reverts: %s" % dict(sorted(words.items())))
    print("ran twice: %d, of orders of other conductors: %d" % (len(twice), len([order for order in twice if order not in orphans])))
    again = {order: next((line.at - killed for line in ledger if line.order == order and line.at > killed), None) for order in orphans}
    taken = sorted(seconds for seconds in again.values() if seconds is not None)
    # An order that ended between the look and the kill needs no other conductor.
    stuck = sum(seconds is None and found[order] not in ENDS for order, seconds in again.items())
    print("orders of the killed conductor: %d continued, %d not within %g s" % (len(taken), stuck, LIMIT))
    if taken:
        print("takeover: %.1f s to %.1f s, median %.1f s" % (taken[0], taken[-1], statistics.median(taken)))


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)
    environ = dict(os.environ, PYTHONPATH=os.pathsep.join(p for p in sys.path if p))
    with contextlib.ExitStack() as stack:
        if sys.argv[1] == "redis":
            environ["EXPIRY"] = os.environ["EXPIRY"] = (sys.argv + ["0"])[2]
            run(stack, environ, redis(stack, environ), lambda: None)
        else:
            address, kill_leader = conductord(stack, os.path.abspath(sys.argv[2]), environ)
            run(stack, environ, address, kill_leader if "leader" in sys.argv else lambda: None)
