"""Faults that TaskFlow's boards have had in production."""

import contextlib
import os
import pathlib
import signal
import subprocess
import sys
import threading
import time
import unittest

import fixtures
import node  # first: it makes the packages importable
from conductord import Client, Unavailable
from oslo_utils import uuidutils
from taskflow import engines, states, task, test
from taskflow import exceptions as exc
from taskflow.conductors import backends as conductors
from taskflow.patterns import linear_flow
from taskflow.persistence import models
from taskflow.utils import persistence_utils

from conductord_taskflow import Backend, Board
from conductord_taskflow.claim import held
from conductord_taskflow.settings import Settings

LONG = bool(os.environ.get("CONDUCTORD_TEST"))
EXAMPLES = node.ROOT / "examples"
sys.path.append(str(EXAMPLES))
started, release = threading.Event(), threading.Event()


class Slow(task.Task):
    """Runs until a test releases it."""

    def execute(self):
        started.set()
        release.wait(90)
        return 1


class Huge(task.Task):
    """Returns a result over the limit of a value."""

    def execute(self):
        return "x" * 300_000


def huge_flow():
    return linear_flow.Flow("huge").add(Huge())


class Failing(task.Task):
    def execute(self):
        raise RuntimeError("no")


def failing_flow():
    return linear_flow.Flow("failing").add(Failing())


class After(task.Task):
    ran = 0

    def execute(self):
        After.ran += 1


def after_flow():
    return linear_flow.Flow("after").add(After())


def slow_flow():
    return linear_flow.Flow("slow").add(Slow(), After())


class FaultCase(test.TestCase):
    def setUp(self):
        super().setUp()
        started.clear()
        release.clear()
        After.ran = 0
        self.name = node.new_board()
        self.client = Client(node.SERVER)
        self.logbook = Backend({"servers": node.SERVER, "board": self.name})
        self.board = self.new_board()
        for close in (self.client.close, self.logbook.close, self.board.close):
            self.addCleanup(close)
        self.board.connect()

    def new_board(self, **conf):
        return Board("faults", dict(conf, servers=node.SERVER, board_name=self.name), persistence=self.logbook)

    def post(self, factory=slow_flow):
        book = models.LogBook("book")
        detail = persistence_utils.create_flow_detail(factory(), book, self.logbook)
        engines.save_factory_details(detail, factory, [], {}, backend=self.logbook)
        return self.board.post("job", book, details={"flow_uuid": detail.uuid})

    def flow(self, job):
        with contextlib.closing(self.logbook.get_connection()) as conn:
            return next(iter(conn.get_logbook(job.book_uuid)))

    def claim_of(self, job):
        """The claim that this process has noted for a job."""
        return held.of_job(job.uuid)

    def lose(self, who):
        """End the session of an owner at the cluster; the owner does not know."""
        for session in self.client.call("SessionService/ListSessions", {})["sessions"]:
            if session["name"] == who:
                self.client.call("SessionService/Close", {"session": session["id"]})

    def conductor(self, board, name):
        made = conductors.fetch("blocking", name, board, persistence=self.logbook, engine="serial", wait_timeout=0.1)
        thread = threading.Thread(target=made.run, daemon=True)
        thread.start()
        self.addCleanup(thread.join, 20)
        self.addCleanup(made.stop)
        self.addCleanup(release.set)
        return made


class FaultTest(FaultCase):
    def test_an_owner_that_lost_its_session_cannot_write_or_end(self):
        job = self.post()
        self.board.claim(job, "w")
        flow = self.flow(job)
        conn = self.logbook.get_connection()
        conn.update_flow_details(flow)
        self.lose("w")
        other = self.new_board()
        self.addCleanup(other.close)
        other.connect()
        until = time.monotonic() + 10
        while True:  # the keep-alive of the owner is refused within a fifth of the TTL
            try:
                conn.update_flow_details(flow)
            except exc.JobFailure as error:  # TaskFlow repeats the write for 10 s after a StorageFailure
                self.assertIn("the claim of w on job %s is lost" % job.uuid, str(error))
                break
            self.assertLess(time.monotonic(), until)
            time.sleep(0.1)
        self.assertRaises(exc.JobFailure, self.board.consume, job, "w")
        self.assertFalse(job.extend_expiry(30))
        other.claim(job, "v")
        conn.update_flow_details(flow)  # the process owns the job again
        self.assertRaises(exc.JobFailure, self.board.abandon, job, "w")
        self.assertEqual("v", other.find_owner(job))

    def test_a_process_claims_its_lost_job_after_its_work(self):
        job = self.post()
        self.board.claim(job, "w")
        self.lose("w")
        until = time.monotonic() + 10
        while not self.claim_of(job).ended():
            self.assertLess(time.monotonic(), until)
            time.sleep(0.05)
        other = self.new_board()
        self.addCleanup(other.close)
        other.connect()
        # The end of the old work must not end the claim for new work.
        for board in (self.board, other):
            self.assertRaises(exc.UnclaimableJob, board.claim, job, "w")
        self.assertRaises(exc.JobFailure, self.board.consume, job, "w")
        self.assertEqual(states.UNCLAIMED, job.state)
        other.claim(job, "w")
        other.consume(job, "w")

    def test_a_board_sets_the_limit_of_lost_owners(self):
        board = self.new_board(max_crashes=7)
        self.addCleanup(board.close)
        board.connect()
        self.assertEqual(7, self.client.get(board.post("job").uuid)["max_crashes"])
        self.assertEqual(7, Settings({"board": "conductord://node1/?max_crashes=7"}, "board").max_crashes)

    def test_an_engine_stops_when_its_claim_is_lost(self):
        job = self.post()
        self.conductor(self.board, "w")
        self.assertTrue(started.wait(10))
        self.client.call("BoardService/PauseBoard", {"board": self.name})
        self.lose("w")
        time.sleep(1.5)
        release.set()
        time.sleep(0.5)
        self.assertEqual(0, After.ran)
        self.assertEqual(states.UNCLAIMED, job.state)
        self.client.call("BoardService/ResumeBoard", {"board": self.name})
        self.assertTrue(job.wait(60))
        self.assertEqual((1, "SUCCESS"), (After.ran, self.flow(job).state))

    def test_a_bad_posting_goes_to_the_trash_with_a_reason(self):
        bad = [self.client.post("bad", kind="taskflow", board=self.name, details=details).id for details in ([1], {"x": 1}, {"details": 2})]
        good = self.post()
        self.conductor(self.board, "w")
        release.set()
        self.assertTrue(good.wait(60))
        for id in bad:
            row = self.client.wait(id, timeout=60)
            self.assertEqual("trashed", row.state)
            self.assertIn("not a TaskFlow posting", row["reason"])

    def test_a_logbook_of_another_store(self):
        job = self.board.post("job", models.LogBook("elsewhere"), details={"flow_uuid": str(node.uuid.uuid4())})
        found, = self.board.iterjobs()
        error = self.assertRaises(exc.NotFound, lambda: found.book)
        self.assertIn("give the board the backend in which the poster saved the logbook", str(error))
        self.assertEqual("elsewhere", found.book_name)
        self.assertEqual(job, found)

    def test_private_values_are_not_logged(self):
        job = self.board.post("job", details={"password": "secret"})
        self.assertNotIn("secret", str(job) + repr(job))
        self.assertEqual({"password": "secret"}, job.details)

    def test_a_result_over_the_limit_trashes_the_job(self):
        job = self.post(huge_flow)
        self.conductor(self.board, "w")
        row = self.client.wait(job.uuid, timeout=60)
        self.assertEqual("trashed", row.state)
        self.assertIn("its logbook could not be written", row["reason"])
        self.assertIn("262144", row["reason"])

    def test_a_job_is_not_consumed_while_its_logbook_is_away(self):
        call, refused = self.logbook.client.call, []

        def away(method, request, **how):
            if started.is_set() and method.endswith("SaveBook") and not release.wait(0):
                refused.append(request)
                raise Unavailable("nothing happened: away")
            return call(method, request, **how)

        self.logbook.client.call = away
        started.set()
        self.assertRaises(exc.StorageFailure, self.post, failing_flow)
        started.clear()
        job = self.post(after_flow)
        started.set()
        self.conductor(self.board, "w")
        until = time.monotonic() + 60
        while int(self.client.get(job.uuid).get("failures", 0)) < 2 and time.monotonic() < until:
            time.sleep(0.05)
        self.assertEqual(0, After.ran)
        release.set()
        self.assertTrue(job.wait(60))
        self.assertEqual("success", self.client.get(job.uuid).outcome)
        self.assertEqual("SUCCESS", self.flow(job).state)

    def test_the_outcome_follows_from_the_flow(self):
        job = self.post(failing_flow)
        self.conductor(self.board, "w")
        self.assertEqual("reverted", self.client.wait(job.uuid, timeout=60).outcome)
        failure = next(iter(self.flow(job))).failure
        self.assertEqual("no", failure.exception_str)
        self.assertIn('raise RuntimeError("no")', failure.traceback_str)

    def test_a_job_that_no_engine_can_load(self):
        book = models.LogBook("book")
        with contextlib.closing(self.logbook.get_connection()) as conn:
            conn.save_logbook(book)
        job = self.board.post("job", book, details={"flow_uuid": uuidutils.generate_uuid()})
        self.conductor(self.board, "w")
        time.sleep(5)  # the conductor claims the job at once, at once again, and after pauses of 1 s and 2 s
        claims = int(self.client.get(job.uuid)["claims"])
        self.assertTrue(2 <= claims <= 4, claims)
        self.assertRaises(exc.NotFound, self.board.wait, 0.1)
        self.assertIn("pause", str(self.assertRaises(exc.UnclaimableJob, self.board.claim, job, "w")))
        self.board.claim(job, "another")
        self.board.consume(job, "another")

    def test_a_board_that_is_away_for_a_call(self):
        board = Board("away", {"servers": "127.0.0.1:1", "timeout": 0.1})
        self.assertRaises(exc.JobFailure, board.connect)
        self.assertFalse(board.connected)
        self.assertRaises(exc.JobFailure, board.iterjobs)
        self.assertRaises(exc.JobFailure, board.post, "x")


@unittest.skipUnless(LONG, "a long test")
class LongStepTest(FaultCase):
    def test_a_claim_outlives_a_step_of_sixty_seconds(self):
        job = self.post()
        self.conductor(self.board, "w")
        self.assertTrue(started.wait(10))
        time.sleep(60)  # fifteen times the TTL
        self.assertEqual("w", self.board.find_owner(job))
        self.assertEqual(1, int(self.client.get(job.uuid)["claims"]))
        release.set()
        self.assertTrue(job.wait(60))
        self.assertEqual("SUCCESS", self.flow(job).state)


@unittest.skipUnless(LONG, "a long test")
class TakeoverTest(FaultCase):
    """The example program, with conductors that are killed."""

    def start(self, *args):
        environ = dict(os.environ, PYTHONPATH=os.pathsep.join(p for p in sys.path if p))
        address = "conductord://%s/?board=%s" % (node.SERVER, self.name)
        log = open(pathlib.Path(self.useFixture(fixtures.TempDir()).path) / "log", "w+")
        started = subprocess.Popen([sys.executable, "-B", str(EXAMPLES / "orders.py"), args[0], address, *args[1:]], env=environ, stdout=log,
                                   stderr=subprocess.STDOUT, text=True)
        started.log = log
        self.addCleanup(log.close)
        self.addCleanup(started.wait)
        self.addCleanup(started.kill)
        return started

    def lines(self, process):
        process.log.flush()
        return pathlib.Path(process.log.name).read_text().splitlines()

    def test_a_killed_conductor(self):
        first, second = self.start("work", "a"), None
        poster = self.start("post", "20", "0.3")
        until = time.monotonic() + 90  # on a busy machine, Python takes long to start
        while not any("ship" in line for line in self.lines(first)):
            self.assertLess(time.monotonic(), until, self.lines(first) + self.lines(poster))
            time.sleep(0.05)
        claimed = [c["job"] for c in self.client.call("BoardService/ListClaims", {"board": self.name}).get("claims", [])]
        self.assertTrue(claimed)
        second = self.start("work", "b")
        os.kill(first.pid, signal.SIGKILL)
        killed = time.monotonic()
        while any(c["claim"]["owner"] == "a" for c in self.client.call("BoardService/ListClaims", {"board": self.name}).get("claims", [])):
            time.sleep(0.05)
        took = time.monotonic() - killed
        print("the claims of the killed conductor ended after %.1f s" % took)
        self.assertLess(took, 4 * 2 + 1)  # the TTL, and the grace of the leader
        self.assertEqual(0, poster.wait(90), self.lines(poster))
        ends = dict(line.split() for line in self.lines(poster))
        self.assertEqual({"order-%d" % i: "REVERTED" if i % 10 == 9 else "SUCCESS" for i in range(20)}, ends)
        # No recorded task ran again: each order was charged once, or twice if the conductor died in its task.
        charged = [line.split()[2] for p in (first, second) for line in self.lines(p) if line.endswith(" charge")]
        again = {order for order in charged if charged.count(order) > 1}
        self.assertLessEqual(len(again), len(claimed))
        self.assertEqual(20, len(set(charged)))
