"""The move of jobs from Redis or ZooKeeper to conductord and back, with real servers."""

import contextlib
import io
import json
import pathlib
import shutil
import socket
import subprocess
import tempfile
import time
import unittest
from importlib.util import find_spec

import node  # first: it makes the packages importable
from taskflow import states, test
from taskflow.jobs import backends as boards
from taskflow.jobs import base
from taskflow.persistence import backends as logbooks
from taskflow.utils import persistence_utils

from conductord_taskflow import move


ZOOKEEPER = pathlib.Path("/usr/share/java/zookeeper.jar")


def free_port():
    with contextlib.closing(socket.socket()) as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


def zookeeper_missing():
    """Why ZooKeeper cannot be started, or None."""
    missing = [name for name, found in (("java", shutil.which("java")), ("zookeeper", ZOOKEEPER.exists()), ("python3-kazoo", find_spec("kazoo")))
               if not found]
    return "needs ZooKeeper (apt-get install zookeeper python3-kazoo): no " + ", no ".join(missing) if missing else None


class MoveCase(test.TestCase):
    """Starts a server, and names its board ``theirs``."""

    def setUp(self):
        super().setUp()
        self.folder, self.port = tempfile.mkdtemp(), free_port()
        self.addCleanup(shutil.rmtree, self.folder)
        server = subprocess.Popen(self.command(), cwd=self.folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.addCleanup(server.wait)
        self.addCleanup(server.terminate)
        until = time.monotonic() + 60
        while not self.ready():
            self.assertLess(time.monotonic(), until)
            time.sleep(0.05)
        self.ours = "conductord://%s/?board=%s" % (node.SERVER, node.new_board())
        self.books = "dir:///?path=" + str(pathlib.Path(self.folder) / "books")

    def ready(self):
        """Whether the server answers a request. Redis takes the word for a wrong command."""
        try:
            with socket.create_connection(("127.0.0.1", self.port), 1) as wire:
                wire.sendall(b"srvr\n")
                return wire.recv(100) != b""
        except OSError:
            return False

    def run_move(self, *args):
        said = io.StringIO()
        with contextlib.redirect_stdout(said):
            status = move.main(list(args))
        return status, said.getvalue().strip()

    def rows(self, address):
        with boards.backend("test", move._conf(address, "board")) as board:
            return [(j.name, j.details, j.priority, j.book_uuid, j.book_name) for j in board.iterjobs(ensure_fresh=True)]

    def move_there_and_back(self):
        holder = contextlib.ExitStack()
        self.addCleanup(holder.close)
        board = holder.enter_context(boards.backend("test", move._conf(self.theirs, "board")))
        with logbooks.backend(self.books) as logbook:
            book, flow = persistence_utils.temporary_flow_detail(logbook, meta={"store": {"a": 1}})
        board.post("first", book, details={"flow_uuid": flow.uuid})
        board.post("second", details={"n": 2})
        board.post("urgent", priority=base.JobPriority.HIGH)
        board.claim(board.post("held"), "somebody")  # ZooKeeper ends this claim when the board is closed
        want = [("urgent", {}, base.JobPriority.HIGH, None, None), ("first", {"flow_uuid": flow.uuid}, base.JobPriority.NORMAL, book.uuid, book.name),
                ("second", {"n": 2}, base.JobPriority.NORMAL, None, None)]
        status, said = self.run_move(self.theirs, self.ours, "--logbooks", self.books, self.ours)
        self.assertEqual((1, "moved 3 jobs and 1 logbooks; left 1 claimed jobs and 0 that could not be moved"), (status, said))
        self.assertEqual(want, self.rows(self.ours))
        with logbooks.backend(self.ours) as logbook:
            with contextlib.closing(logbook.get_connection()) as conn:
                self.assertEqual({"store": {"a": 1}}, conn.get_logbook(book.uuid).find(flow.uuid).meta)
                conn.clear_all()
        self.assertEqual((1, "moved 0 jobs and 0 logbooks; left 1 claimed jobs and 0 that could not be moved"), self.run_move(self.theirs, self.ours))
        self.assertEqual((0, "moved 3 jobs and 0 logbooks; left 0 claimed jobs and 0 that could not be moved"), self.run_move(self.ours, self.theirs))
        self.assertEqual([], self.rows(self.ours))
        self.assertEqual(sorted(map(str, want)), sorted(str(r) for r in self.rows(self.theirs) if r[0] != "held"))

    def move_again_after_a_stop(self):
        # The job was posted, but not consumed.
        with boards.backend("test", move._conf(self.theirs, "board")) as old, boards.backend("test", self.ours) as new:
            job = old.post("one", details={"n": 1})
            move._post(new, job)
            self.assertEqual(states.UNCLAIMED, job.state)
        self.assertEqual((0, "moved 1 jobs and 0 logbooks; left 0 claimed jobs and 0 that could not be moved"), self.run_move(self.theirs, self.ours))
        self.assertEqual(["one"], [row[0] for row in self.rows(self.ours)])


@unittest.skipUnless(shutil.which("redis-server"), "needs redis-server")
class RedisMoveTest(MoveCase):
    def command(self):
        self.theirs = "redis://127.0.0.1:%d" % self.port
        return ["redis-server", "--port", str(self.port), "--save", "", "--bind", "127.0.0.1"]

    def test_there_and_back(self):
        self.move_there_and_back()

    def test_a_move_that_was_stopped(self):
        self.move_again_after_a_stop()


@unittest.skipIf(zookeeper_missing(), zookeeper_missing())
class ZooKeeperMoveTest(MoveCase):
    def command(self):
        self.theirs = json.dumps({"board": "zookeeper", "hosts": "127.0.0.1:%d" % self.port, "path": "/taskflow", "timeout": 60})
        return ["java", "-Dzookeeper.4lw.commands.whitelist=*", "-cp", str(ZOOKEEPER), "org.apache.zookeeper.server.ZooKeeperServerMain", str(self.port), self.folder]

    def test_there_and_back(self):
        self.move_there_and_back()

    def test_a_move_that_was_stopped(self):
        self.move_again_after_a_stop()


class AddressTest(test.TestCase):
    def test_the_host_of_a_redis_address(self):
        self.assertEqual("far", move._conf("redis://far:6380/", "board")["host"])
        self.assertEqual({"board": "conductord://far"}, move._conf("conductord://far", "board"))
        self.assertEqual({"board": "zookeeper", "hosts": "z:2181"}, move._conf('{"board": "zookeeper", "hosts": "z:2181"}', "board"))
