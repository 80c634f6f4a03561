"""TaskFlow's tests of engines, resumption and storage, on the persistence driver."""

import os
import threading
import unittest

import node  # first: it makes the packages importable
import test_faults
from taskflow.conductors import backends as conductors
from taskflow.engines.worker_based import worker as server
from taskflow.patterns import linear_flow
from taskflow.tests import utils
from taskflow.tests.unit import test_arguments_passing, test_engines, test_retries, test_storage, test_suspend

from conductord_taskflow import Backend

MODULES = (test_engines, test_retries, test_suspend, test_arguments_passing)

# An engine on processes starts two processes for each run. TaskFlow's tests of this engine then take minutes
# on every backend, so only the tests with these words in their names run, unless TASKFLOW_PROCESSES is "all".
# The tests share no processes: with given processes, TaskFlow's engine can wait forever after a failed task.
PROCESS_TESTS = ("proxied", "resumption", "suspend_one", "correct_load")


class OnConductord:
    """Replaces the backend of a test."""

    def setUp(self):
        super().setUp()
        self.backend = Backend({"servers": node.SERVER, "board": node.new_board()})
        self.addCleanup(self.backend.close)


def on_conductord(module, name):
    """TaskFlow's test case of a module, with the backend of conductord."""
    return type(name, (OnConductord, getattr(module, name)), {"__module__": module.__name__.rpartition(".")[2]})


def suite(cases, words=("",)):
    """The tests of cases that have one of the words in their names."""
    tests = [case(name) for case in cases for name in unittest.defaultTestLoader.getTestCaseNames(case)]
    return unittest.TestSuite(test for test in tests if any(word in test._testMethodName for word in words))


class EngineConductorTest(test_faults.FaultCase):
    """Conductors whose engines run tasks in other processes, and on workers, with both drivers."""

    def run_jobs(self, **options):
        made = conductors.fetch("nonblocking", "w", self.board, persistence=self.logbook, wait_timeout=0.1, **options)
        thread = threading.Thread(target=made.run, daemon=True)
        thread.start()
        self.addCleanup(thread.join, 20)
        self.addCleanup(made.stop)
        jobs = [self.post(factory) for factory in (done_flow, undone_flow)]
        outcomes = [self.client.wait(job.uuid, timeout=100).outcome for job in jobs]
        self.assertEqual((["success", "reverted"], ["SUCCESS", "REVERTED"]), (outcomes, [self.flow(job).state for job in jobs]))
        self.assertEqual([[1], [1, None]], [[a.results for a in self.flow(job)] for job in jobs])

    def test_processes(self):
        self.run_jobs(engine="parallel", engine_options={"executor": "processes", "max_workers": 1})

    def test_workers(self):
        wires = {"exchange": self.name, "transport": "memory", "transport_options": {"polling_interval": 0.01}}
        worker = server.Worker(topic="far", tasks=[utils.__name__], **wires)
        thread = threading.Thread(target=worker.run, daemon=True)
        thread.start()
        self.addCleanup(thread.join, 20)
        self.addCleanup(worker.stop)
        worker.wait()
        self.run_jobs(engine="worker-based", engine_options=dict(wires, topics=["far"]))


def done_flow():
    return utils.TaskOneReturn("done", provides="x")


def undone_flow():
    return linear_flow.Flow("undone").add(utils.TaskOneReturn("done", provides="x"), utils.FailingTask("failing"))


def threads():
    """The tests of serial engines and of engines on threads."""
    return suite([on_conductord(test_storage, "StorageMemoryTest")]
                 + [on_conductord(m, n) for m in MODULES for n in ("SerialEngineTest", "ParallelEngineWithThreadsTest")])


def processes():
    """The tests of engines on processes."""
    words = ("",) if os.environ.get("TASKFLOW_PROCESSES") == "all" else PROCESS_TESTS
    return suite([on_conductord(m, "ParallelEngineWithProcessTest") for m in MODULES] + [EngineConductorTest], words + ("test_processes",))


def workers():
    """The tests of engines on TaskFlow's workers."""
    return suite([on_conductord(test_engines, "WorkerBasedEngineTest"), EngineConductorTest])


def load_tests(loader, tests, pattern):
    return unittest.TestSuite([threads(), processes(), workers()])
