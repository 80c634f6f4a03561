"""TaskFlow's tests of engines, resumption and storage, on the persistence driver."""

import unittest

import node  # first: it makes the packages importable
from taskflow.tests.unit import test_arguments_passing, test_engines, test_retries, test_storage, test_suspend

from conductord_taskflow import Backend


class OnConductord:
    """Replaces the backend of a test."""

    def setUp(self):
        super().setUp()
        self.backend = Backend({"servers": node.SERVER, "board": node.new_board()})


def on_conductord(module, *names):
    """TaskFlow's test cases of a module, with the backend of conductord."""
    return [type(name, (OnConductord, getattr(module, name)), {}) for name in names]


CASES = (
    on_conductord(test_engines, "SerialEngineTest", "ParallelEngineWithThreadsTest")
    + on_conductord(test_retries, "SerialEngineTest", "ParallelEngineWithThreadsTest")
    + on_conductord(test_suspend, "SerialEngineTest", "ParallelEngineWithThreadsTest")
    + on_conductord(test_arguments_passing, "SerialEngineTest", "ParallelEngineWithThreadsTest")
    + on_conductord(test_storage, "StorageMemoryTest")
)


def load_tests(loader, tests, pattern):
    return unittest.TestSuite(loader.loadTestsFromTestCase(case) for case in CASES)
