import http.server
import json
import os
import pathlib
import sys
import tempfile
import threading
import unittest
import uuid

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

from conductord import (  # noqa: E402
    Client, Compacted, Conflict, Internal, Invalid, Job, NotAllowed, NotDone, NotFound, Overloaded, OverLimit, Unavailable, Uncertain, Unclaimable,
    Unknown, new_id,
)
from conductord._ids import derive_id  # noqa: E402
from conductord._transport import SHUN_TIME, Endpoints, Retry, Unreached, encode  # noqa: E402
from conductord.client import duration, moment, seconds_of  # noqa: E402
from conductord.errors import of_answer  # noqa: E402


class Errors(unittest.TestCase):
    def test_by_code(self):
        shown = {"code": "over_limit", "message": "result is too large", "field": "result", "limit": "10", "size": "12", "unit": "bytes"}
        error = of_answer(429, json.dumps({"code": "resource_exhausted", "details": [{"type": "conductord.v1.Error", "debug": shown}]}).encode())
        self.assertIs(type(error), OverLimit)
        self.assertEqual((str(error), error.field, error.limit, error.size, error.unit), ("result is too large", "result", 10, 12, "bytes"))

    def test_without_a_detail(self):
        for status, body, want in [
            (400, {"code": "invalid_argument", "message": "bad"}, Invalid), (401, {"code": "unauthenticated"}, NotAllowed),
            (500, {"code": "unknown"}, Uncertain), (500, {"code": "data_loss"}, Internal), (503, {"code": "unavailable"}, Unavailable),
            (404, "404 page not found", NotFound), (502, "<html>", Uncertain), (429, "slow down", Overloaded), (200, [], Uncertain),
        ]:
            with self.subTest(body):
                self.assertIs(type(of_answer(status, (body if isinstance(body, str) else json.dumps(body)).encode())), want)

    def test_kinds(self):
        for error, kind in [(Unclaimable, Conflict), (Overloaded, Unavailable), (Unavailable, NotDone), (Uncertain, Unknown), (Internal, Unknown)]:
            self.assertTrue(issubclass(error, kind))


class Retries(unittest.TestCase):
    def retry(self, servers="abc", reads=False):
        self.now = 0.0
        self.endpoints = Endpoints(["%s:1" % s for s in servers], clock=lambda: self.now)
        return Retry(self.endpoints, reads, chance=lambda: 0.5)

    def test_each_node_once_and_then_a_pause(self):
        retry, seen = self.retry(), []
        for _ in range(7):
            server, pause = retry.next()
            seen.append((server[0], pause))
            self.assertIsNone(retry.failed(server, Unreached("refused")))
        self.assertEqual(seen, [("a", 0), ("b", 0), ("c", 0), ("a", 0.05), ("b", 0), ("c", 0), ("a", 0.1)])

    def test_the_leader_first(self):
        retry = self.retry()
        self.endpoints.heard("a:1", "c:1")
        self.assertEqual(retry.next()[0], "c:1")
        retry.failed("c:1", Unreached("refused"))
        self.assertEqual(retry.next()[0], "a:1")

    def test_a_learned_leader_that_is_out_of_reach_is_shunned(self):
        retry = self.retry("a")
        self.endpoints.heard("a:1", "x:1")
        self.assertEqual(retry.next()[0], "x:1")
        retry.failed("x:1", Unreached("refused"))
        self.endpoints.heard("a:1", "x:1")
        self.assertEqual(retry.next()[0], "a:1")
        self.now = SHUN_TIME + 1
        self.endpoints.heard("a:1", "x:1")
        self.assertEqual(self.endpoints.pick(set()), "x:1")

    def test_overloaded_waits_as_the_node_says(self):
        retry, error = self.retry(), Overloaded("full")
        error.retry_after = 2.0
        retry.failed("a:1", error)
        self.assertEqual(retry.next()[1], 2.0)
        self.assertIs(type(retry.give_up()), Overloaded)

    def test_what_settles_a_call(self):
        for error in (Invalid("x"), Conflict("x"), Internal("x"), NotFound("x")):
            self.assertIs(self.retry().failed("a:1", error), error)

    def test_the_error_in_the_end(self):
        lost, none = Uncertain("lost"), Unreached("refused")
        for reads, failures, want in [
            (False, [none, none], Unavailable), (False, [lost, none], Uncertain), (True, [lost, none], Unavailable), (False, [none, lost], Uncertain),
        ]:
            retry = self.retry(reads=reads)
            for server, failure in zip(("a:1", "b:1"), failures):
                self.assertIsNone(retry.failed(server, failure))
            self.assertIs(type(retry.give_up()), want)
            self.assertIn("a:1: " + failures[0].message, str(retry.give_up()))
        retry = self.retry()
        retry.stale()
        retry.failed("a:1", none)
        self.assertIs(type(retry.give_up()), Uncertain)


class Waiting(unittest.TestCase):
    def test_a_wait_ends_when_the_job_is_finished_or_needs_an_operator(self):
        for state, operator in (("completed", False), ("trashed", False), ("held", True), ("suspended", True)):
            states = iter(["claimed", "cooling", state])
            client = Client("127.0.0.1:1")
            client.call = lambda *_, **__: {"job": {"id": "x", "state": next(states)}}
            job = client.wait("x")
            self.assertEqual((job.state, job.needs_operator, job.finished), (state, operator, not operator))

    def test_a_wait_for_a_step_ends_with_its_outcome_or_when_the_job_needs_an_operator(self):
        for last in ({"job_state": "claimed", "outcome": "skipped"}, {"job_state": "held"}, {"job_state": "suspended"}):
            answers = iter([{"job_state": "claimable"}, {"job_state": "claimed", "atom": {"state": "running"}}, last])
            client = Client("127.0.0.1:1")
            requests = []
            client.call = lambda path, request, **_: requests.append((path, request)) or {"step": next(answers)}
            self.assertEqual(client.wait_step("x", "send[2]"), last)
            self.assertEqual([(p, r["job"], r["step"]) for p, r in requests], [("BoardService/WaitStep", "x", "send[2]")] * 3)
        client.call = lambda *_, **__: {"step": {"job_state": "claimed"}}
        self.assertEqual(client.step("x", "copy"), {"job_state": "claimed"})
        with self.assertRaises(TimeoutError):
            client.wait_step("x", "copy", timeout=0)


class Values(unittest.TestCase):
    def test_ids(self):
        ids = [new_id() for _ in range(100)]
        self.assertEqual(len(set(ids)), 100)
        for text in ids:
            parsed = uuid.UUID(text)
            self.assertEqual((parsed.version, parsed.variant), (7, uuid.RFC_4122))
        self.assertEqual(derive_id(ids[0], "book"), derive_id(ids[0], "book"))
        self.assertNotEqual(derive_id(ids[0], "book"), derive_id(ids[0], "flow"))

    def test_json(self):
        self.assertEqual(encode({"ü😀": 10**30}), '{"ü😀":1000000000000000000000000000000}'.encode())
        loop = []
        loop.append(loop)
        for bad in (float("nan"), b"x", "\ud800", object(), {1, 2}, loop):
            with self.subTest(repr(bad)[:20]), self.assertRaises(Invalid):
                encode(bad)

    def test_times(self):
        self.assertEqual((duration(1.5), duration("3s"), seconds_of("1.500s"), seconds_of(None)), ("1.500000s", "3s", 1.5, None))
        self.assertRegex(moment(5), r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z$")


class Jobs(unittest.TestCase):
    def test_finished(self):
        for state, finished in [("claimable", False), ("claimed", False), ("suspended", False), ("completed", True), ("trashed", True)]:
            self.assertEqual(Job({"id": "x", "state": state}).finished, finished)

    def test_iterations(self):
        flows = {
            "f3": {"id": "f3", "iteration": 3, "previous": "f2", "store": {"month": 3}},
            "f2": {"id": "f2", "iteration": 2, "continued": True, "store": {"month": 2}, "atoms": [{"name": "a"}]},
        }
        client, read = Client(), []
        def call(method, request, **how):
            if method == "BoardService/GetJob":
                return {"job": {"id": "j", "state": "claimed", "flow": "f3", "iteration": 3}}
            read.append(request["id"])
            return {"flow": flows[request["id"]]}
        client.call = call
        job = client.get("j")
        self.assertEqual((job.iteration, Job({"id": "x"}).iteration), (3, 1))
        self.assertEqual((client.flow("j")["id"], client.flow(job, 3)["id"], client.flow(job, 2)["store"], read), ("f3", "f3", {"month": 2}, ["f3", "f3", "f3", "f2"]))
        self.assertEqual(client.results("j", iteration=2), {})
        for iteration in (1, 4):
            with self.assertRaises(NotFound):
                client.flow(job, iteration)
        with self.assertRaises(NotFound):
            client.flow(Job({"id": "x", "state": "claimed"}))
        self.assertEqual(client.results(Job({"id": "x", "state": "claimed"})), {})


class Signals(unittest.TestCase):
    def test_fields(self):
        client, sent = Client(), []
        client.call = lambda method, request, **how: sent.append((method, request)) or {"answer": "taken"}
        self.assertEqual(client.signal("j", "paid", {"amount": 7}, id="evt_17"), {"answer": "taken"})
        client.signal("j", "paid", reject="no money")
        client.signal("j", "paid")
        methods, (data, reject, plain) = {method for method, _ in sent}, [request for _, request in sent]
        self.assertEqual(methods, {"BoardService/Signal"})
        self.assertEqual((data["job"], data["name"], data["data"], data["id"]), ("j", "paid", {"amount": 7}, "evt_17"))
        self.assertEqual((reject["reject"], "data" in reject), ("no money", False))
        self.assertTrue(plain["id"] and plain["id"] != reject["id"])

    def test_by_key(self):
        client, sent = Client(board="mail"), []
        client.call = lambda method, request, **how: sent.append(request) or {"answer": "kept", "job": "j"}
        self.assertEqual(client.signal_key("order 7", "paid", 7)["job"], "j")
        client.signal_key("order 7", "paid", board="other")
        self.assertEqual([(r["key"], r["board"], "job" in r) for r in sent], [("order 7", "mail", False), ("order 7", "other", False)])

    def test_publish(self):
        client, sent = Client(board="mail"), []
        client.call = lambda method, request, **how: sent.append((method, request)) or {"answer": "taken", "waits": 1}
        self.assertEqual(client.publish("payments", "17", {"amount": 7}, id="evt_17", keep="60s")["waits"], 1)
        client.publish("payments", "17", to="all", board="other")
        (method, kept), (_, plain) = sent
        self.assertEqual(method, "BoardService/Publish")
        self.assertEqual({**kept, "by": ""}, {
            "topic": "payments", "key": "17", "id": "evt_17", "to": "one", "by": "", "board": "mail", "data": {"amount": 7}, "keep": "60s"})
        self.assertEqual((plain["to"], plain["board"], "keep" in plain, "data" in plain), ("all", "other", False, False))
        self.assertTrue(plain["id"])

    def test_with_a_posting(self):
        client, sent = Client(), []
        answer = {"posted": [{"job": {"id": "j", "state": "claimable"}, "existed": True, "signal": {"answer": "taken", "job": "j"}}]}
        client.call = lambda method, request, **how: sent.append(request) or answer
        job = client.post("order", kind="order", key="order 7", signal={"name": "paid", "data": 7})
        self.assertEqual((job.existed, job.signalled), (True, "taken"))
        self.assertEqual(sent[0]["postings"][0]["signal"], {"name": "paid", "data": 7})


class PostingMany(unittest.TestCase):
    def test_a_refusal_has_the_accepted_jobs(self):
        client = Client()
        refusals = [{"error": {"code": "invalid", "message": "a tag is empty", "field": "tags"}}, {"error": {"code": "conflict", "message": "the id is used"}}]
        answer = {"posted": [{"job": {"id": "a"}}, refusals[0], {"job": {"id": "b"}, "existed": True}, refusals[1]]}
        client.call = lambda method, request, **how: answer
        with self.assertRaisesRegex(Invalid, "a tag is empty") as raised:
            client.post_many([{"name": "n"}] * 4)
        first, second, third, fourth = raised.exception.posted
        self.assertEqual((first["id"], third["id"], third.existed), ("a", "b", True))
        self.assertIs(second, raised.exception)
        self.assertIsInstance(fourth, Conflict)
        self.assertEqual(Invalid("other").posted, [])


class Deciding(unittest.TestCase):
    def test_fields(self):
        client, sent = Client(), []
        client.call = lambda method, request, **how: sent.append((method, request)) or {
            "outcome": "approved", "approval": {"step": "ask", "wait": {"approval": {"remind": [{"at": "2026-11-28T10:00:00Z"}]}}}}
        self.assertEqual(client.decide("j", "ask", answers={"ticket": "CHG-1"}, id="d1", by="ann")["outcome"], "approved")
        client.decide("j", kind="reject", reason="in use")
        client.override("j", "outage")
        asked = client.approval("j", "ask")
        self.assertEqual((asked["step"], asked["wait"]["approval"]["remind"][0]["at"]), ("ask", "2026-11-28T10:00:00Z"))
        client.approvals("orders")
        self.assertEqual([method.split("/")[1] for method, _ in sent], ["Decide", "Decide", "Override", "GetApproval", "ListApprovals"])
        approve, reject, override = sent[0][1], sent[1][1], sent[2][1]
        self.assertEqual((approve["kind"], approve["answers"], approve["id"], approve["by"]), ("approve", {"ticket": "CHG-1"}, "d1", "ann"))
        self.assertEqual((reject["kind"], reject["reason"], "answers" in reject), ("reject", "in use", False))
        self.assertTrue(override["id"] and override["id"] != reject["id"] and override["reason"] == "outage")


class Watching(unittest.TestCase):
    def test_the_last_line_is_an_error(self):
        shown = {"code": "compacted", "message": "no longer kept", "since": "1-7"}
        fault = {"code": "out_of_range", "details": [{"type": "conductord.v1.Error", "debug": shown}]}
        lines = [{"position": "1-0"}, {"events": [{"position": "1-1"}], "position": "1-1"}, {"error": fault}]

        class Node(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                self.send_response(200)
                self.end_headers()
                self.wfile.write("".join(json.dumps(line) + "\n" for line in lines).encode())

            def log_message(self, *_):
                pass

        with http.server.HTTPServer(("127.0.0.1", 0), Node) as node:
            threading.Thread(target=node.handle_request, daemon=True).start()
            events = Client("127.0.0.1:%d" % node.server_port).watch(signs=True)
            self.assertEqual(next(events), {"position": "1-0"})
            self.assertEqual(next(events)["position"], "1-1")
            with self.assertRaises(Compacted) as raised:
                next(events)
        self.assertEqual(raised.exception.since, "1-7")


class Settings(unittest.TestCase):
    def test_servers(self):
        for bad in ("localhost", "a:b", ":7070", ","):
            with self.subTest(bad), self.assertRaises(Invalid):
                Client(bad)
        Client(["a:1", "[::1]:2", "https://b:3", "unix:///run/x"])

    def test_a_token_in_plain_text(self):
        with self.assertRaisesRegex(Invalid, "a token would go to h:1 in plain text"):
            Client("unix:///run/api.sock,h:1", token="t")
        Client("unix:///run/api.sock", token="t")
        Client("https://h:1", token="t")

    def test_value_keys_that_it_cannot_use(self):
        os.environ["CONDUCTORD_VALUE_KEYS"] = "keys"
        try:
            with self.assertRaisesRegex(Invalid, "CONDUCTORD_VALUE_KEYS is set, and this client cannot encrypt values"):
                Client("a:1")
        finally:
            del os.environ["CONDUCTORD_VALUE_KEYS"]

    def test_a_token_that_others_can_read(self):
        with tempfile.NamedTemporaryFile() as file:
            os.chmod(file.name, 0o644)
            os.environ["CONDUCTORD_TOKEN_FILE"] = file.name
            try:
                with self.assertRaises(Invalid):
                    Client("a:1")
            finally:
                del os.environ["CONDUCTORD_TOKEN_FILE"]


if __name__ == "__main__":
    unittest.main()
