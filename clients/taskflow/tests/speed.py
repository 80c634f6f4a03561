"""Compare the boards of TaskFlow: conductord, Redis and ZooKeeper, each with one server on this machine.

    python3 speed.py CONDUCTORD [PAIRS]          # CONDUCTORD is the binary of conductord

Each round measures all boards one after the other, in an order that changes with the round. The table has the
medians, and the median of the ratios to conductord in the same round. conductord is also the logbook of its
jobs. The jobs of Redis and ZooKeeper have their logbooks in SQLite, which syncs each write to the disk.
"""

import contextlib
import json
import logging
import os
import pathlib
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time

import node  # first: it makes the packages importable
from taskflow import engines, task
from taskflow.conductors import backends as conductors
from taskflow.jobs import backends as boards
from taskflow.patterns import linear_flow
from taskflow.persistence import backends as logbooks
from taskflow.persistence import models
from taskflow.utils import persistence_utils

JOBS, FLOWS = 20, 3
GIVE_UP = 20.0  # seconds to wait for a takeover
ZOOKEEPER = "/usr/share/java/zookeeper.jar"
MEASURES = ("post, ms", "claim + consume, ms", "job of three tasks, ms", "takeover, s")


class Nothing(task.Task):
    def execute(self):
        return 1


def three_tasks():
    return linear_flow.Flow("three").add(Nothing("a"), Nothing("b"), Nothing("c"))


class Noted(task.Task):
    """Notes its start, and then hangs if its start is the first."""

    def execute(self, notes):
        with open(notes, "a") as file:
            file.write("%f\n" % time.monotonic())
        if len(pathlib.Path(notes).read_text().split()) == 1:
            time.sleep(600)


def noted():
    return linear_flow.Flow("noted").add(Noted())


def free_port():
    with contextlib.closing(socket.socket()) as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


def serve(stack, command, port, ready=b""):
    """Start a server in its own folder, and wait until it answers."""
    folder = tempfile.mkdtemp()
    stack.callback(shutil.rmtree, folder, True)
    log = stack.enter_context(open(os.path.join(folder, "log"), "wb"))
    server = subprocess.Popen([word.replace("FOLDER", folder) for word in command], cwd=folder, stdout=log, stderr=log)
    stack.callback(server.wait)
    stack.callback(server.terminate)
    until = time.monotonic() + 60
    while True:
        try:
            with socket.create_connection(("127.0.0.1", port), 1) as wire:
                wire.sendall(ready)
                if not ready or wire.recv(100):
                    return folder
        except OSError:
            pass
        if time.monotonic() > until:
            raise SystemExit("%s does not answer" % command[0])
        time.sleep(0.05)


def start_all(stack, binary):
    """The servers: for each name, a function that makes the configurations of a new board and of its logbook."""
    found, sqlite = {}, "sqlite:///" + stack.enter_context(tempfile.TemporaryDirectory()) + "/logbooks"
    port = free_port()
    serve(stack, [binary, "dev", "--data-dir", "FOLDER/data", "--api-listen", "127.0.0.1:%d" % port], port)
    ours = "127.0.0.1:%d" % port
    found["conductord"] = lambda name: ({"board": "conductord", "servers": ours, "board_name": name},
                                        {"connection": "conductord", "servers": ours, "board": name})
    for title, fsync in (("Redis", "everysec"), ("Redis, fsync always", "always")):
        port = free_port()
        serve(stack, ["redis-server", "--port", str(port), "--save", "", "--bind", "127.0.0.1", "--appendonly", "yes", "--appendfsync", fsync], port)
        found[title] = lambda name, port=port: ({"board": "redis", "host": "127.0.0.1", "port": port, "namespace": name}, {"connection": sqlite})
    port = free_port()
    serve(stack, ["java", "-Dzookeeper.4lw.commands.whitelist=*", "-cp", ZOOKEEPER, "org.apache.zookeeper.server.ZooKeeperServerMain", str(port),
                  "FOLDER/data"], port, b"srvr\n")
    found["ZooKeeper"] = lambda name: ({"board": "zookeeper", "hosts": "127.0.0.1:%d" % port, "path": "/" + name},
                                       {"connection": sqlite})
    return found


@contextlib.contextmanager
def connected(confs):
    """A connected board and its logbook."""
    with logbooks.backend(dict(confs[1])) as logbook:
        with contextlib.closing(logbook.get_connection()) as connection:
            connection.upgrade()
        with boards.backend("speed", dict(confs[0]), persistence=logbook) as board:
            yield board, logbook


def post_flow(board, logbook, factory, store):
    book = models.LogBook("book")
    detail = persistence_utils.create_flow_detail(factory(), book, logbook, meta={"store": store})
    engines.save_factory_details(detail, factory, [], {}, backend=logbook)
    return board.post("job", book, details={"flow_uuid": detail.uuid})


def calls(confs):
    """Milliseconds for each post, for each claim with its consume, and for each job of three tasks."""
    with connected(confs) as (board, logbook):
        start = time.monotonic()
        jobs = [board.post("job-%d" % i, details={"number": i}) for i in range(JOBS)]
        posted = time.monotonic()
        for job in jobs:
            board.claim(job, "w")
            board.consume(job, "w")
        consumed = time.monotonic()
        for _ in range(FLOWS):
            post_flow(board, logbook, three_tasks, {})
        ready = time.monotonic()
        conductor = conductors.fetch("blocking", "w", board, persistence=logbook, engine="serial", wait_timeout=0.05)
        conductor.run(max_dispatches=FLOWS - 1)  # TaskFlow dispatches one job more than the limit
        return [1000 * (posted - start) / JOBS, 1000 * (consumed - posted) / JOBS, 1000 * (time.monotonic() - ready) / FLOWS]


def takeover(confs):
    """A list with the seconds from the kill of a conductor until another one starts the task again."""
    with tempfile.TemporaryDirectory() as folder, connected(confs) as (board, logbook), contextlib.ExitStack() as stack:
        notes = pathlib.Path(folder) / "notes"
        notes.touch()
        post_flow(board, logbook, noted, {"notes": str(notes)})

        def conductor(name):
            started = subprocess.Popen([sys.executable, "-W", "ignore", __file__, "work", name, json.dumps(confs)], stdout=subprocess.PIPE)
            stack.callback(started.wait)
            stack.callback(started.kill)
            started.stdout.readline()  # the conductor is connected
            return started

        first = conductor("a")
        while not notes.read_text():
            time.sleep(0.01)
        conductor("b")
        first.kill()
        killed = time.monotonic()
        while time.monotonic() < killed + GIVE_UP:
            if len(notes.read_text().split()) == 2:
                return [float(notes.read_text().split()[1]) - killed]
            time.sleep(0.01)
        return [float("inf")]


def work(name, confs):
    with connected(confs) as (board, logbook):
        print("connected", flush=True)
        conductors.fetch("blocking", name, board, persistence=logbook, engine="serial", wait_timeout=0.2).run()


def compare(binary, pairs):
    with contextlib.ExitStack() as stack:
        found = start_all(stack, binary)
        rounds = [{} for _ in range(pairs)]
        for measure in (calls, takeover):  # the conductors of a takeover would disturb the calls
            for i, figures in enumerate(rounds):
                for name in list(found)[i % len(found):] + list(found)[:i % len(found)]:
                    # A claim of Redis without an expiry never ends: one try is enough.
                    known = measure is takeover and i > 0 and rounds[0][name][-1] == float("inf")
                    taken = [float("inf")] if known else measure(found[name]("%s-%d" % (measure.__name__, i)))
                    figures[name] = figures.get(name, []) + taken
                    print(i + 1, name, ["%.2f" % f for f in taken], file=sys.stderr, flush=True)
        print("| Board | " + " | ".join(MEASURES) + " |\n|---|" + "---|" * len(MEASURES))
        for name in found:
            print("| %s | %s |" % (name, " | ".join(cell(rounds, name, i) for i in range(len(MEASURES)))))


def cell(rounds, name, i):
    middle = statistics.median(r[name][i] for r in rounds)
    if middle == float("inf"):
        return "none in %g s" % GIVE_UP
    ratio = statistics.median(r[name][i] / r["conductord"][i] for r in rounds)
    return "%.1f" % middle if name == "conductord" else "%.1f (%.2f)" % (middle, ratio)


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)
    import speed  # the factories have the names speed.three_tasks and speed.noted
    if sys.argv[1] == "work":
        speed.work(sys.argv[2], json.loads(sys.argv[3]))
    else:
        speed.compare(os.path.abspath(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 5)
