"""Conductors that are killed at random, and connections that are cut.

    TASKFLOW_CHAOS_MINUTES=10 TASKFLOW_CHAOS_JOBS=500 CONDUCTORD_TEST=all python3 run.py test_chaos.ChaosTest
"""

import contextlib
import os
import pathlib
import random
import signal
import subprocess
import sys
import time
import unittest

import fixtures
import ledger
import node
import proxy
import test_faults
from conductord import Client
from taskflow import engines
from taskflow.persistence import models
from taskflow.utils import persistence_utils

from conductord_taskflow import Backend, Board

JOBS = int(os.environ.get("TASKFLOW_CHAOS_JOBS", "100"))
SECONDS = 60 * float(os.environ.get("TASKFLOW_CHAOS_MINUTES", "0.75"))
# The time of a task. Three conductors with four jobs each then work for about six tenths of the time.
TASK_TIME = 2.4 * SECONDS / JOBS


@unittest.skipUnless(test_faults.LONG, "a long test")
class CutTest(test_faults.FaultCase):
    def setUp(self):
        super().setUp()
        self.proxy = proxy.Proxy(node.SERVER)
        self.addCleanup(self.proxy.close)
        client = Client(self.proxy.address)
        client._transport.endpoints.heard = lambda server, leader: None  # the leader's address would pass by the proxy
        self.addCleanup(client.close)
        self.logbook = Backend({"board": self.name}, client=client)
        self.far = Board("far", {"board_name": self.name}, client=client, persistence=self.logbook)
        self.addCleanup(self.far.close)
        self.addCleanup(self.proxy.mend)
        self.far.connect()

    def run_with_a_cut(self, seconds):
        job = self.post()
        self.conductor(self.far, "w")
        self.assertTrue(test_faults.started.wait(20))
        self.proxy.cut()
        time.sleep(0.5)
        test_faults.release.set()  # the step ends while the store is away
        time.sleep(seconds - 0.5)
        self.proxy.mend()
        self.assertTrue(job.wait(60))
        self.assertEqual((1, "SUCCESS"), (test_faults.After.ran, self.flow(job).state))
        return self.client.get(job.uuid)

    def test_a_short_cut_changes_nothing(self):
        self.assertEqual(1, int(self.run_with_a_cut(2.0)["claims"]))

    def test_a_long_cut_loses_the_claim_and_no_job(self):
        row = self.run_with_a_cut(30.0)
        self.assertTrue(int(row["claims"]) >= 2)
        self.assertEqual("success", row.outcome)


@unittest.skipUnless(test_faults.LONG, "a long test")
class ChaosTest(test_faults.FaultCase):
    def start(self, name):
        environ = dict(os.environ, PYTHONPATH=os.pathsep.join(p for p in sys.path if p))
        args = [sys.executable, "-B", str(pathlib.Path(ledger.__file__)), "work", node.SERVER, self.name, name, self.ledger]
        return subprocess.Popen(args, env=environ, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def test_no_job_is_lost_or_run_twice_at_once(self):
        self.ledger = str(pathlib.Path(self.useFixture(fixtures.TempDir()).path) / "ledger")
        seed = random.randrange(1 << 32)
        chance, killed = random.Random(seed), {}
        jobs = []
        poster = self.new_board(max_crashes=1000)  # by chance, one job can lose many owners
        self.addCleanup(poster.close)
        poster.connect()
        for i in range(JOBS):
            book = models.LogBook("book")
            store = {"order": str(i), "ledger": self.ledger, "seconds": TASK_TIME}
            detail = persistence_utils.create_flow_detail(ledger.noted_flow(), book, self.logbook, meta={"store": store})
            engines.save_factory_details(detail, ledger.noted_flow, [], {}, backend=self.logbook)
            jobs.append(poster.post("order-%d" % i, book, details={"flow_uuid": detail.uuid}))
        conductors = [self.start("c%d" % i) for i in range(3)]
        try:
            until = time.monotonic() + SECONDS
            while time.monotonic() < until:
                time.sleep(chance.uniform(3, 8))
                i = chance.randrange(3)
                os.kill(conductors[i].pid, signal.SIGKILL)
                conductors[i].wait()
                killed[conductors[i].pid] = time.monotonic()
                conductors[i] = self.start("c%d" % i)
            for job in jobs:
                self.assertTrue(job.wait(120), "seed %d: %s has not ended" % (seed, job))
        finally:
            for conductor in conductors:
                conductor.kill()
                conductor.wait()
        with contextlib.closing(self.logbook.get_connection()) as conn:
            states = [next(iter(conn.get_logbook(job.book_uuid))).state for job in jobs]
        self.assertEqual(["SUCCESS"] * JOBS, states, "seed %d" % seed)
        self.check_ledger(killed, seed)

    def check_ledger(self, killed, seed):
        """Each task has ended, and no task started while another process ran a task of its order."""
        running, ended, repeated, cut_off = {}, set(), 0, 0
        for line in pathlib.Path(self.ledger).read_text().splitlines():
            word, order, name, pid, at = line.split()
            if word == "end":
                self.assertEqual((name, pid), running.pop(order), "seed %d: %s" % (seed, line))
                ended.add((order, name))
                continue
            if order in running:
                before = running[order][1]
                self.assertIn(int(before), killed, "seed %d: %s while process %s ran the order" % (seed, line, before))
                self.assertLess(killed[int(before)], float(at), "seed %d" % seed)
                cut_off += 1
            repeated += (order, name) in ended
            running[order] = name, pid
        self.assertEqual({(str(i), name) for i in range(JOBS) for name in ("one", "two", "three")}, ended)
        # A task runs again only if its end was not yet recorded when its process was killed.
        self.assertLessEqual(repeated, 4 * len(killed), "seed %d" % seed)
        self.assertTrue(cut_off > 0)
        print("%d conductors were killed in %d tasks, and %d of %d ended tasks ran again" % (len(killed), cut_off, repeated, 3 * JOBS))
