"""TaskFlow's tests of conductors, on both drivers."""

import collections
import sys
import types
import unittest

import node  # first: it makes the packages importable
from conductord import Client
from taskflow.conductors import backends

from conductord_taskflow import Backend, Board

# The module imports zake, a fake of ZooKeeper, which the tests below do not use.
for name in ("zake", "zake.fake_client"):
    sys.modules.setdefault(name, types.ModuleType(name))
sys.modules["zake"].fake_client = sys.modules["zake.fake_client"]

from taskflow.tests.unit import test_conductors  # noqa: E402


class Closing(Client):
    """A client with the attribute that TaskFlow's tests read."""

    connected = True

    def close(self):
        self.connected = False
        super().close()


Components = collections.namedtuple("Components", ["board", "client", "persistence", "conductor"])


class TaskFlowConductorTest(test_conductors.ManyConductorTest):
    """TaskFlow's own ManyConductorTest."""

    def make_components(self):
        client = Closing(node.SERVER)
        name = node.new_board()
        persistence = Backend({"servers": node.SERVER, "board": name})
        self.addCleanup(persistence.close)
        self.addCleanup(lambda: persistence.get_connection().clear_all())
        board = Board("testing", {"servers": node.SERVER, "board_name": name}, client=client, persistence=persistence)
        self.addCleanup(board.close)
        kwargs = dict(self.conductor_kwargs, persistence=persistence)
        return Components(board, client, persistence, backends.fetch(self.kind, "testing", board, **kwargs))


def load_tests(loader, tests, pattern):
    return unittest.TestSuite(testscenarios_of(loader))


def testscenarios_of(loader):
    from testscenarios import generate_scenarios
    return generate_scenarios(loader.loadTestsFromTestCase(TaskFlowConductorTest))
