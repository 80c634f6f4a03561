"""TaskFlow's tests of jobboards, and what its Redis and ZooKeeper tests add."""

import contextlib
import json
import threading
import time
import urllib.request

import node  # first: it makes the packages importable
from conductord import Client
from taskflow import exceptions as excp
from taskflow import states, test
from taskflow.jobs import backends, base as jobs_base
from taskflow.tests.unit.jobs import base
from taskflow.types import entity
from taskflow.utils import persistence_utils as p_utils

from conductord_taskflow import Board, UnknownExpire


class BoardCase(test.TestCase):
    def create_board(self, persistence=None, **conf):
        client = Client(node.SERVER)
        conf.setdefault("board_name", node.new_board())
        board = Board("test-board", dict(conf, servers=node.SERVER), client=client, persistence=persistence)
        self.addCleanup(client.close)
        self.addCleanup(board.close)
        return client, board

    def setUp(self):
        super().setUp()
        self.client, self.board = self.create_board()

    def post(self, name="test", **fields):
        return self.board.post(name, p_utils.temporary_log_book(), **fields)

    def jobs(self, **how):
        return list(self.board.iterjobs(**how))

    @contextlib.contextmanager
    def connected(self):
        with base.connect_close(self.board):
            yield


class TaskFlowBoardTest(BoardCase, base.BoardTestMixin):
    """TaskFlow's own BoardTestMixin."""

    def close_client(self, client):
        client.close()


class RedisAndZookeeperTest(BoardCase):
    """The tests that TaskFlow's Redis and ZooKeeper boards have beside the mixin."""

    def test_posting_claim_expiry(self):
        with self.connected():
            job = self.post()
            self.board.claim(job, "w", expiry=0.5)
            self.assertEqual("w", self.board.find_owner(job))
            self.assertEqual(states.CLAIMED, job.state)
            until = time.monotonic() + 5
            while job.state != states.UNCLAIMED and time.monotonic() < until:
                time.sleep(0.1)
            self.assertEqual(states.UNCLAIMED, job.state)
            self.assertEqual(1, len(self.jobs(only_unclaimed=True)))

    def test_posting_claim_same_owner(self):
        with self.connected():
            self.post()
            job, = self.jobs(only_unclaimed=True)
            self.board.claim(job, self.board.name)
            again, = self.jobs()
            self.assertRaises(excp.UnclaimableJob, self.board.claim, again, self.board.name)
            self.assertEqual([], self.jobs(only_unclaimed=True))

    def test_posting_no_post(self):
        with self.connected():
            self.assertRaises(excp.JobFailure, self.post, "x" * 256)
            self.assertEqual(0, self.board.job_count)

    def test_board_iter(self):
        with self.connected():
            it = self.board.iterjobs()
            self.assertEqual(self.board, it.board)
            self.assertFalse(it.only_unclaimed)
            self.assertFalse(it.ensure_fresh)

    def test_posting_dates(self):
        with self.connected():
            job = self.post()
            self.assertEqual(job.created_on, job.last_modified)
            self.board.claim(job, "w")
            self.assertTrue(job.last_modified > job.created_on)

    def test_posting_owner_lost(self):
        with self.connected():
            job = self.post()
            self.board.claim(job, "w")
            self.assertEqual(states.CLAIMED, job.state)
            for session in self.client.call("SessionService/ListSessions", {})["sessions"]:
                if session["name"] == "w":
                    self.client.call("SessionService/Close", {"session": session["id"]})
            self.assertEqual(states.UNCLAIMED, job.state)
            self.assertRaises(excp.JobFailure, self.board.consume, job, "w")
            self.board.claim(job, "w")  # under a new session
            self.board.consume(job, "w")

    def test_trashing_claimed_job(self):
        with self.connected():
            job = self.post()
            self.board.claim(job, "w")
            self.board.trash(job, "w")
            row = self.client.get(job.uuid)
            self.assertEqual(("trashed", "trashed by w"), (row.state, row["reason"]))
            self.assertEqual([], self.jobs())
            self.assertRaises(excp.NotFound, self.board.trash, job, "w")

    def test_posting_received_raw(self):
        book = p_utils.temporary_log_book()
        with self.connected():
            job = self.board.post("test", book, details={"a": 1})
            self.assertEqual(self.board, job.board)
            self.assertIn(job.uuid, [j.uuid for j in self.jobs()])
            row = self.client.get(job.uuid)
        self.assertEqual({"book": {"name": book.name, "uuid": book.uuid}, "details": {"a": 1}}, row["details"])
        self.assertEqual(("test", "taskflow", 0), (row["name"], row["kind"], row.get("priority", 0)))

    def test_register_entity(self):
        with self.connected():
            self.board.register_entity(entity.Entity("conductor", "abc@localhost:4123", {"hostname": "localhost", "pid": 4123}))
            found = [e for e in self.client.call("SessionService/ListEntities", {"kind": "conductor"})["entities"] if e["name"] == "abc@localhost:4123"]
            self.assertEqual(1, len(found))
            self.assertEqual({"hostname": "localhost", "pid": 4123}, found[0]["metadata"])
            self.assertRaises(excp.NotImplementedError, self.board.register_entity, entity.Entity("non-sense", "other_name", {}))


class BoardTest(BoardCase):
    """What TaskFlow's documentation promises, and its tests leave out."""

    def test_claim_order(self):
        with self.connected():
            for name, priority in [("1", "LOW"), ("2", "HIGH"), ("3", "HIGH"), ("4", "NORMAL"), ("5", "VERY_HIGH"), ("6", "VERY_LOW")]:
                job = self.post(name, priority=priority)
                self.assertEqual(jobs_base.JobPriority(priority), job.priority)
            self.assertEqual("523416", "".join(j.name for j in self.jobs()))
            found = self.jobs()
            self.board.claim(found[0], "w")
            self.assertEqual("234165", "".join(j.name for j in self.jobs()))
            self.assertEqual([j.name for j in sorted(found)], [j.name for j in found])

    def test_many_pages(self):
        with self.connected():
            postings = [{"name": str(i), "kind": "taskflow", "board": self.board.board} for i in range(1000)]
            self.client.post_many(postings)
            self.client.post_many(postings[:5])
            self.assertEqual(1005, self.board.job_count)
            self.assertEqual(1005, len(self.jobs()))

    def test_other_kinds_are_left_out(self):
        with self.connected():
            self.client.post("go", kind="paint", board=self.board.board)
            self.post("py")
            self.assertEqual(["py"], [j.name for j in self.jobs()])
            self.assertEqual(1, self.board.job_count)

    def test_errors_of_endings(self):
        with self.connected():
            job = self.post()
            for end in (self.board.consume, self.board.abandon, self.board.trash):
                self.assertRaises(excp.NotFound, end, job, "w")
                self.assertRaises(ValueError, end, job, "")
                self.assertRaises(TypeError, end, job, 7)
            self.board.claim(job, "w")
            for end in (self.board.consume, self.board.abandon, self.board.trash):
                self.assertRaises(excp.JobFailure, end, job, "v")
            self.assertEqual("w", self.board.find_owner(job))
            self.board.abandon(job, "w")
            self.assertIsNone(self.board.find_owner(job))
            self.board.claim(job, "v")
            self.board.consume(job, "v")
            self.assertEqual(states.COMPLETE, job.state)
            self.assertRaises(excp.UnclaimableJob, self.board.claim, job, "w")

    def test_removed_job(self):
        with self.connected():
            job = self.post()
            self.board.claim(job, "w")
            self.board.consume(job, "w")
            self.client.call("BoardService/Purge", {"job": job.uuid})
            self.assertRaises(excp.NotFound, self.board.claim, job, "w")
            self.assertRaises(excp.NotFound, self.board.consume, job, "w")
            self.assertEqual(states.COMPLETE, job.state)
            self.assertTrue(job.wait(1))

    def test_expiry(self):
        with self.connected():
            job = self.post()
            self.assertEqual(UnknownExpire.KEY_NOT_FOUND, job.expires_in())
            self.assertFalse(job.extend_expiry(30))
            self.assertRaises(ValueError, self.board.claim, job, "w", expiry=0)
            self.board.claim(job, "w")
            self.assertEqual(UnknownExpire.DOES_NOT_EXPIRE, job.expires_in())
            _, other = self.create_board(board_name=self.board.board)
            with base.connect_close(other):
                found, = other.iterjobs()
                self.assertTrue(found.extend_expiry(30))  # Octavia extends on another board of the process
                self.assertTrue(25 < found.expires_in() <= 30)

    def test_wait_skips_claimed_jobs(self):
        with self.connected():
            self.board.claim(self.post(), "w")
            self.assertRaises(excp.NotFound, self.board.wait, timeout=0.3)

    def test_wait_wakes_after_an_abandon(self):
        _, other = self.create_board(board_name=self.board.board)
        with base.connect_close(self.board, other):
            job = self.post()
            self.board.claim(job, "w")
            found = []

            def wait():
                found.append((list(other.wait(timeout=10)), time.monotonic()))

            waiter = threading.Thread(target=wait)
            waiter.start()
            time.sleep(0.5)
            abandoned = time.monotonic()
            self.board.abandon(job, "w")
            waiter.join()
            self.assertEqual([job.uuid], [j.uuid for j in found[0][0]])
            self.assertLess(found[0][1] - abandoned, 1.0)

    def test_notifications(self):
        told = []
        _, other = self.create_board(board_name=self.board.board)
        for kind in (jobs_base.POSTED, jobs_base.REMOVAL):
            other.notifier.register(kind, lambda kind, details: told.append((kind, details["job"].name, details["job"].details)))
        with base.connect_close(self.board, other):
            for name, end in [("a", self.board.consume), ("b", self.board.trash)]:
                job = self.post(name, details={"n": name})
                self.board.claim(job, "w")
                end(job, "w")
            until = time.monotonic() + 10
            while len(told) < 4 and time.monotonic() < until:
                time.sleep(0.05)
        self.assertEqual([("POSTED", "a", {"n": "a"}), ("REMOVAL", "a", {"n": "a"}), ("POSTED", "b", {"n": "b"}), ("REMOVAL", "b", {"n": "b"})], told)

    def test_operators(self):
        with self.connected():
            self.board.register_entity(entity.Entity("conductor", "w@localhost:1", {}))
            cancelled, moved, paused = self.post("cancelled"), self.post("moved"), self.post("paused")
            self.assertEqual("ready", self.client.call("BoardService/Explain", {"id": cancelled.uuid})["cause"])
            self.client.cancel(cancelled.uuid, reason="no")
            self.assertTrue(cancelled.wait(5))
            _, other = self.create_board()
            with base.connect_close(other):
                other.post("first")
                self.client.call("BoardService/Change", {"job": moved.uuid, "board": other.board})
                self.assertEqual({"first", "moved"}, {j.name for j in other.iterjobs()})
            self.client.call("BoardService/PauseBoard", {"board": self.board.board})
            self.assertRaises(excp.UnclaimableJob, self.board.claim, paused, "w")
            self.client.call("BoardService/ResumeBoard", {"board": self.board.board})
            self.board.claim(paused, "w")
            self.client.call("BoardService/Suspend", {"job": paused.uuid})
            self.board.abandon(paused, "w")  # the suspension takes effect
            self.assertEqual([], self.jobs())
            self.assertEqual(states.UNCLAIMED, paused.state)
            self.assertEqual(1, self.board.job_count)
            self.assertFalse(paused.wait(0.1))

    def test_two_processes_of_one_name(self):
        # Another session with the same name cannot end the claim.
        with self.connected():
            job = self.post()
            mine = self.client.call("SessionService/Open", {"opening": {"id": str(node.uuid.uuid4()), "name": "w", "ttl": "60s"}})["session"]
            self.client.call("BoardService/Claim", {"session": mine["id"], "job": job.uuid, "nonce": str(node.uuid.uuid4())})
            self.assertRaises(excp.JobFailure, self.board.consume, job, "w")
            self.assertEqual("w", self.board.find_owner(job))


class OtherProgramsTest(BoardCase):
    """Programs without TaskFlow see TaskFlow's jobs and carry them out. They use HTTP, as a shell script with curl does."""

    def fetch(self, path, body=None):
        request = urllib.request.Request("http://%s/%s" % (node.SERVER, path), body, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=20) as answer:
            return answer.read().decode()

    def curl(self, method, **request):
        return json.loads(self.fetch("conductord.v1." + method, json.dumps(request).encode()))

    def claim_next(self):
        session = str(node.uuid.uuid4())
        self.curl("SessionService/Open", opening={"id": session, "name": "shell", "ttl": "60s"})
        claim = {"session": session, "nonce": str(node.uuid.uuid4()), "boards": [self.board.board], "kinds": ["taskflow"], "max": 1}
        claimed, = self.curl("BoardService/ClaimNext", wait="5s", claim=claim)["claimed"]
        return claimed["job"]

    def test_a_worker(self):
        with self.connected():
            job = self.post(details={"image": 17})
            row = self.claim_next()
            self.assertEqual((job.uuid, {"image": 17}, job.book_uuid), (row["id"], row["details"]["details"], row["details"]["book"]["uuid"]))
            self.assertEqual((states.CLAIMED, "shell"), (job.state, self.board.find_owner(job)))
            self.assertRaises(excp.UnclaimableJob, self.board.claim, job, "w")
            self.assertRaises(excp.JobFailure, self.board.consume, job, "w")
            self.curl("BoardService/Consume", job=job.uuid, token=row["token"], outcome="success")
            self.assertTrue(job.wait(5))
            self.assertEqual((states.COMPLETE, []), (job.state, self.jobs()))

    def test_the_trash(self):
        with self.connected():
            job = self.post()
            self.curl("BoardService/Trash", job=job.uuid, token=self.claim_next()["token"], reason="no such image")
            self.assertEqual((states.COMPLETE, 0), (job.state, self.board.job_count))
            self.assertEqual(("trashed", "no such image"), (self.client.get(job.uuid).state, self.client.get(job.uuid)["reason"]))

    def test_dashboard_and_metrics(self):
        with self.connected():
            job = self.post("resize-17")
            for path in ("jobs/" + job.uuid, "jobs?board=" + self.board.board):
                page = self.fetch("dashboard/" + path)
                self.assertIn("resize-17", page)
                self.assertIn("taskflow", page)
            self.assertIn('conductord_board_jobs{board="%s",state="claimable"} 1\n' % self.board.board, self.fetch("metrics"))
            self.assertEqual("no_conductor", self.client.call("BoardService/Explain", {"id": job.uuid})["cause"])


class FetchTest(test.TestCase):
    def fetch(self, conf):
        with contextlib.closing(backends.fetch("test", conf)) as board:
            self.assertIsInstance(board, Board)
            return board._settings

    def test_forms(self):
        for conf, servers, board in [
            ("conductord", None, "default"),
            ({"board": "conductord", "servers": "a:1,b:2", "board_name": "x"}, "a:1,b:2", "x"),
            ({"board": "conductord", "servers": ["a:1", "b"]}, "a:1,b:7070", "default"),
            ("conductord://a:1/?board=x", "a:1", "x"),
            ("conductord://a,b,c:9/?board=x", "a:9,b:9,c:9", "x"),
            ("conductord://a", "a:7070", "default"),
            ("conductord:///?servers=a:1,b:2", "a:1,b:2", "default"),
            ("conductord://[::1]:9/", "[::1]:9", "default"),
        ]:
            found = self.fetch(conf)
            self.assertEqual((servers, board), (found.servers, found.board), conf)

    def test_an_unknown_setting(self):
        error = self.assertRaises(ValueError, self.fetch, {"board": "conductord", "tll": 4})
        self.assertIn("no setting 'tll'; the settings are servers, ", str(error))
