"""TaskFlow's tests of persistence backends."""

import contextlib

import node  # first: it makes the packages importable
from taskflow import engines, states, storage, test
from taskflow import exceptions as exc
from taskflow.persistence import backends, models
from taskflow.tests import utils
from taskflow.tests.unit.persistence import base

from conductord_taskflow import Backend


class LogbookCase(test.TestCase):
    def setUp(self):
        super().setUp()
        self.backend = Backend({"servers": node.SERVER, "board": node.new_board()})
        self.addCleanup(self.backend.close)
        self.addCleanup(lambda: self._get_connection().clear_all())

    def _get_connection(self):
        return self.backend.get_connection()


class TaskFlowLogbookTest(LogbookCase, base.PersistenceTestMixin):
    """TaskFlow's own PersistenceTestMixin."""


class LogbookTest(LogbookCase):
    """What TaskFlow's tests leave out."""

    def book(self, atoms=1, results=None):
        book, flow = models.LogBook("book"), models.FlowDetail("flow", node.uuid.uuid4().hex)
        for i in range(atoms):
            atom = models.TaskDetail("task-%d" % i, str(node.uuid.uuid4()))
            atom.results = results
            flow.add(atom)
        book.add(flow)
        return book, flow, list(flow)

    def test_fetch(self):
        for conf in ("conductord", {"connection": "conductord", "servers": node.SERVER}, "conductord://%s/?board=b" % node.SERVER):
            with contextlib.closing(backends.fetch(conf)) as backend:
                self.assertIsInstance(backend, Backend)
                if conf != "conductord":
                    backend.get_connection().validate()
        self.assertEqual("b", backend.board)

    def test_a_dead_cluster(self):
        with contextlib.closing(Backend({"servers": "127.0.0.1:1", "timeout": 0.1})) as backend:
            self.assertRaises(exc.StorageFailure, backend.get_connection().validate)

    def test_single_details(self):
        book, flow, (atom,) = self.book()
        conn = self._get_connection()
        conn.save_logbook(book)
        atom.results, atom.state, atom.meta = {"é": [1, None, "x\n"]}, "SUCCESS", {"progress": 0.5}
        conn.update_atom_details(atom)
        found = conn.get_atom_details(atom.uuid)
        self.assertEqual(atom.to_dict(), found.to_dict())
        self.assertEqual([atom.uuid], [a.uuid for a in conn.get_atoms_for_flow(flow.uuid)])
        self.assertEqual([flow.uuid], [f.uuid for f in conn.get_flows_for_book(book.uuid)])
        self.assertRaises(exc.NotFound, conn.get_atom_details, flow.uuid)
        self.assertRaises(exc.NotFound, conn.get_flow_details, atom.uuid)
        conn.destroy_logbook(book.uuid)
        self.assertRaises(exc.NotFound, conn.update_atom_details, atom)
        self.assertRaises(exc.NotFound, conn.get_logbook, book.uuid)

    def test_large_books_are_written_in_parts(self):
        book, _, atoms = self.book(atoms=30, results="x" * 100_000)
        conn = self._get_connection()
        conn.save_logbook(book)
        found = conn.get_logbook(book.uuid)
        self.assertEqual({a.uuid for a in atoms}, {a.uuid for f in found for a in f})
        self.assertEqual({100_000}, {len(a.results) for f in found for a in f})

    def test_a_result_over_the_limit(self):
        book, _, (atom,) = self.book()
        conn = self._get_connection()
        conn.save_logbook(book)
        atom.results = "x" * 300_000
        error = self.assertRaises(exc.StorageFailure, conn.update_atom_details, atom)
        self.assertIn("262144", str(error))
        self.assertIn("Keep large results elsewhere", str(error))
        self.assertIsNone(conn.get_atom_details(atom.uuid).results)

    def test_a_value_that_is_not_json(self):
        book, _, (atom,) = self.book(results=float("nan"))
        self.assertRaises(exc.StorageFailure, self._get_connection().save_logbook, book)

    def test_a_crash_between_the_two_writes_of_a_store(self):
        book, flow, _ = self.book(atoms=0)
        conn = self._get_connection()
        conn.save_logbook(book)
        flow.add(models.TaskDetail(storage.Storage.injector_name, str(node.uuid.uuid4())))  # the first write
        conn.update_flow_details(flow)
        for _ in range(2):
            found = conn.get_flow_details(flow.uuid)
            engine = engines.load(utils.TaskOneArgOneReturn("task", provides="y"), store={"x": 1}, flow_detail=found, backend=self.backend)
        engine.run()
        self.assertEqual({"x": 1, "y": 1}, engine.storage.fetch_all())
        self.assertEqual(states.SUCCESS, conn.get_flow_details(flow.uuid).state)

    def test_any_text_is_an_id(self):
        book = models.LogBook("named", uuid="my-book")
        conn = self._get_connection()
        conn.save_logbook(book)
        self.assertEqual("my-book", conn.get_logbook("my-book").uuid)
        self.assertEqual(["my-book"], [b.uuid for b in conn.get_logbooks()])

    def test_other_books_are_left_alone(self):
        client = self.backend.client
        other = str(node.uuid.uuid4())
        client.call("LogbookService/SaveBook", {"id": other, "name": "go", "board": self.backend.board})
        conn = self._get_connection()
        self.assertEqual([], list(conn.get_logbooks()))
        conn.clear_all()
        self.assertEqual("go", client.call("LogbookService/GetBook", {"id": other})["book"]["name"])
        self.assertRaises(exc.NotFound, conn.get_logbook, other)
        client.call("LogbookService/DestroyBook", {"book": other})
