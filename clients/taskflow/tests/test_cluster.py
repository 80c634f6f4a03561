"""A cluster of three nodes with TLS and access control, whose leader dies. test/taskflow_test.go starts it.

CONDUCTORD_CA is the authority. CONDUCTORD_TOKENS is a folder with two tokens: ``orders`` may post and work on the
board ``orders``, and ``other`` on another board. The leader is killed when the file CONDUCTORD_KILL appears.
"""

import contextlib
import os
import pathlib
import threading
import time
import unittest

import node  # first: it makes the packages importable
from conductord import NotAllowed
from taskflow import engines, task, test
from taskflow import exceptions as exc
from taskflow.conductors import backends as conductors
from taskflow.jobs import backends as boards
from taskflow.patterns import linear_flow
from taskflow.persistence import backends as logbooks
from taskflow.persistence import models
from taskflow.utils import persistence_utils

JOBS = 12


class Counted(task.Task):
    ran = []

    def execute(self, order):
        Counted.ran.append((order, self.name))
        time.sleep(0.3)


def counted_flow():
    return linear_flow.Flow("counted").add(Counted("one"), Counted("two"), Counted("three"))


@unittest.skipUnless("CONDUCTORD_CA" in os.environ, "needs the cluster of TestTaskFlowCluster")
class ClusterTest(test.TestCase):
    def address(self, token):
        files = "token_file=%s&ca_file=%s" % (pathlib.Path(os.environ["CONDUCTORD_TOKENS"]) / token, os.environ["CONDUCTORD_CA"])
        # On a busy machine, an election can take longer than the default TTL.
        return "conductord:///?servers=%s&board=orders&ttl=20&%s" % (node.SERVER, files)

    def connect(self, token):
        """A board and a logbook with a token."""
        logbook = logbooks.fetch({"connection": self.address(token)})
        self.addCleanup(logbook.close)
        board = boards.fetch("orders", {"board": self.address(token)}, persistence=logbook)
        self.addCleanup(board.close)
        board.connect()
        return board, logbook

    def post(self, board, logbook, order):
        book = models.LogBook("order")
        detail = persistence_utils.create_flow_detail(counted_flow(), book, logbook, meta={"store": {"order": order}})
        engines.save_factory_details(detail, counted_flow, [], {}, backend=logbook)
        return board.post("order", book, details={"flow_uuid": detail.uuid})

    def test_the_leader_dies(self):
        board, logbook = self.connect("orders")
        jobs = [self.post(board, logbook, i) for i in range(JOBS)]
        conductor = conductors.fetch("nonblocking", "w", board, persistence=logbook, engine="serial", wait_timeout=0.1, max_simultaneous_jobs=2)
        thread = threading.Thread(target=conductor.run, daemon=True)
        thread.start()
        self.addCleanup(thread.join, 20)
        self.addCleanup(conductor.stop)
        self.assertTrue(jobs[0].wait(30))
        kill = pathlib.Path(os.environ["CONDUCTORD_KILL"])
        kill.touch()
        until = time.monotonic() + 30
        while kill.exists():
            self.assertLess(time.monotonic(), until)
            time.sleep(0.01)
        left = sum(job.state != "COMPLETE" for job in jobs)
        self.assertTrue(left > 1)
        jobs.append(self.post(board, logbook, JOBS))  # a new leader takes it
        for job in jobs:
            self.assertTrue(job.wait(60))
        # The session outlives the leader, so no task runs again.
        self.assertEqual(sorted((i, name) for i in range(JOBS + 1) for name in ("one", "two", "three")), sorted(Counted.ran))
        with contextlib.closing(logbook.get_connection()) as conn:
            self.assertEqual({"SUCCESS"}, {next(iter(conn.get_logbook(job.book_uuid))).state for job in jobs})

    def test_a_token_of_another_board(self):
        board, logbook = self.connect("orders")
        book = models.LogBook("private")
        with contextlib.closing(logbook.get_connection()) as conn:
            conn.save_logbook(book)
        job = board.post("job", book)
        self.addCleanup(board.trash, job, "w")
        board.claim(job, "w")
        other, others = self.connect("other")
        refused = [self.assertRaises(exc.JobFailure, other.post, "job"), self.assertRaises(exc.JobFailure, lambda: list(other.iterjobs())),
                   self.assertRaises(exc.JobFailure, other.wait, 1)]
        with contextlib.closing(others.get_connection()) as conn:
            refused.append(self.assertRaises(exc.StorageFailure, conn.save_logbook, models.LogBook("mine")))
            # A caller cannot find out whether an object of another tenant exists.
            self.assertRaises(exc.NotFound, conn.get_logbook, book.uuid)
            self.assertRaises(exc.NotFound, conn.destroy_logbook, book.uuid)
        for error in refused:
            self.assertIsInstance(error.cause, NotAllowed, str(error))
            self.assertIn("orders", str(error))
        found = other.job({"id": job.uuid, "name": job.name})
        self.assertRaises(exc.NotFound, other.claim, found, "v")
        self.assertRaises(exc.NotFound, lambda: found.details)
        self.assertEqual("w", board.find_owner(job))

    def test_without_a_token(self):
        address = "conductord:///?servers=%s&board=orders&ca_file=%s" % (node.SERVER, os.environ["CONDUCTORD_CA"])
        board = boards.fetch("orders", {"board": address})
        self.addCleanup(board.close)
        error = self.assertRaises(exc.JobFailure, board.connect)
        self.assertIn("token", str(error))
