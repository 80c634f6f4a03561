"""The move of jobs from Redis to conductord and back, with real servers."""

import contextlib
import io
import pathlib
import shutil
import socket
import subprocess
import tempfile
import time
import unittest

import node  # first: it makes the packages importable
from taskflow import states, test
from taskflow.jobs import backends as boards
from taskflow.jobs import base
from taskflow.persistence import backends as logbooks
from taskflow.utils import persistence_utils

from conductord_taskflow import move


def free_port():
    with contextlib.closing(socket.socket()) as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


@unittest.skipUnless(shutil.which("redis-server"), "needs redis-server")
class MoveTest(test.TestCase):
    def setUp(self):
        super().setUp()
        folder, port = tempfile.mkdtemp(), free_port()
        server = subprocess.Popen(["redis-server", "--port", str(port), "--save", "", "--bind", "127.0.0.1"], cwd=folder,
                                  stdout=subprocess.DEVNULL)
        self.addCleanup(shutil.rmtree, folder)
        self.addCleanup(server.wait)
        self.addCleanup(server.terminate)
        until = time.monotonic() + 20
        while True:
            try:
                socket.create_connection(("127.0.0.1", port), 1).close()
                break
            except OSError:
                self.assertLess(time.monotonic(), until)
                time.sleep(0.05)
        self.redis = "redis://127.0.0.1:%d" % port
        self.ours = "conductord://%s/?board=%s" % (node.SERVER, node.new_board())
        self.books = "dir:///?path=" + str(pathlib.Path(folder) / "books")

    def run_move(self, *args):
        said = io.StringIO()
        with contextlib.redirect_stdout(said):
            status = move.main(list(args))
        return status, said.getvalue().strip()

    def rows(self, address):
        with boards.backend("test", address) as board:
            return [(j.name, j.details, j.priority, j.book_uuid, j.book_name) for j in board.iterjobs(ensure_fresh=True)]

    def test_there_and_back(self):
        with logbooks.backend(self.books) as logbook, boards.backend("test", self.redis) as board:
            book, flow = persistence_utils.temporary_flow_detail(logbook, meta={"store": {"a": 1}})
            board.post("first", book, details={"flow_uuid": flow.uuid})
            board.post("second", details={"n": 2})
            board.post("urgent", priority=base.JobPriority.HIGH)
            held = board.post("held")
            board.claim(held, "somebody")
        want = [("urgent", {}, base.JobPriority.HIGH, None, None), ("first", {"flow_uuid": flow.uuid}, base.JobPriority.NORMAL, book.uuid, book.name),
                ("second", {"n": 2}, base.JobPriority.NORMAL, None, None)]
        status, said = self.run_move(self.redis, self.ours, "--logbooks", self.books, self.ours)
        self.assertEqual((1, "moved 3 jobs and 1 logbooks; left 1 claimed jobs and 0 that could not be moved"), (status, said))
        self.assertEqual(want, self.rows(self.ours))
        with logbooks.backend(self.ours) as logbook:
            with contextlib.closing(logbook.get_connection()) as conn:
                self.assertEqual({"store": {"a": 1}}, conn.get_logbook(book.uuid).find(flow.uuid).meta)
                conn.clear_all()
        self.assertEqual((1, "moved 0 jobs and 0 logbooks; left 1 claimed jobs and 0 that could not be moved"), self.run_move(self.redis, self.ours))
        self.assertEqual((0, "moved 3 jobs and 0 logbooks; left 0 claimed jobs and 0 that could not be moved"), self.run_move(self.ours, self.redis))
        self.assertEqual([], self.rows(self.ours))
        self.assertEqual(sorted(map(str, want)), sorted(str(r) for r in self.rows(self.redis) if r[0] != "held"))

    def test_a_move_that_was_stopped(self):
        # The job was posted, but not consumed.
        with boards.backend("test", self.redis) as old, boards.backend("test", self.ours) as new:
            job = old.post("one", details={"n": 1})
            move._post(new, job)
            self.assertEqual(states.UNCLAIMED, job.state)
        self.assertEqual((0, "moved 1 jobs and 0 logbooks; left 0 claimed jobs and 0 that could not be moved"), self.run_move(self.redis, self.ours))
        self.assertEqual(["one"], [row[0] for row in self.rows(self.ours)])

    def test_the_host_of_a_redis_address(self):
        self.assertEqual("far", move._conf("redis://far:6380/", "board")["host"])
        self.assertEqual({"board": "conductord://far"}, move._conf("conductord://far", "board"))
        self.assertEqual({"board": "zookeeper", "hosts": "z:2181"}, move._conf('{"board": "zookeeper", "hosts": "z:2181"}', "board"))
