import dataclasses
import pathlib
import sys
import threading
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

from conductord import Client, Context, Failure, FailureRecord, Invalid, NotYet, OverLimit, ProgressRecord, RevertCause, Worker  # noqa: E402
from conductord._attempt import Attempt, DROPPED, MAX_BUFFER, MAX_OUTPUT, refusal  # noqa: E402
from conductord._session import Session  # noqa: E402
from conductord.outcome import MAX_DETAILS, of_failure, of_result  # noqa: E402
from conductord.worker import key_of  # noqa: E402

ID = {"flow": "f", "step": "s", "action": "execute", "attempt": 1}


class Contexts(unittest.TestCase):
    def test_what_a_try_is_told(self):
        first = Context({"id": ID, "type": "t"}, threading.Event())
        self.assertEqual((first.try_, first.tries, first.last_failure, first.cause), (1, 1, None, None))
        failure, cause = {"kind": "card.declined", "message": "no"}, {"kind": "cancel", "by": "ann", "reason": "late"}
        second = Context({"id": ID, "type": "t", "try": 2, "tries": 3, "last_failure": failure, "cause": cause}, threading.Event())
        self.assertEqual((second.try_, second.tries), (2, 3))
        self.assertEqual(second.last_failure, FailureRecord("no", "card.declined"))
        self.assertEqual(second.cause, RevertCause("cancel", "ann", "late"))


    def test_checkpoints(self):
        recorded = []

        def record(checkpoint):
            if checkpoint["name"] == "large":
                raise OverLimit("too large")
            recorded.append(checkpoint)

        work = {"id": ID, "type": "t", "checkpoints": [{"name": "a", "value": [1]}, {"name": "none"}],
                "last_progress": {"done": "7", "total": "9", "details": {"at": 7}}}
        context = Context(work, threading.Event(), record)
        self.assertEqual(context.checkpoints, {"a": [1], "none": None})
        self.assertEqual(context.last_progress, ProgressRecord(7, 9, {"at": 7}))
        for refused, value in ((OverLimit, 1), (Invalid, {1})):
            with self.assertRaises(refused):
                context.checkpoint("large", value)
        self.assertEqual(context.once("a", lambda: self.fail("it has run before")), [1])
        self.assertEqual(context.once("b", lambda: (1, 2)), [1, 2])  # as every later attempt gets it
        self.assertEqual(context.once("b", lambda: 3), [1, 2])
        self.assertEqual(recorded, [{"name": "b", "value": [1, 2], "number": 2}])  # the refused one has a number of its own
        self.assertEqual(context.checkpoints, {"a": [1], "none": None, "b": [1, 2]})
        self.assertEqual(Context({"id": ID, "type": "t"}, threading.Event()).last_progress, None)


class SessionAge(unittest.TestCase):
    def test_what_is_allowed(self):
        now = [100.0]
        session = Session(None, "id", 10.0, 100.0, clock=lambda: now[0])
        for at, start, failing in [(100, True, False), (105.9, True, False), (106, False, False), (107.9, False, False)]:
            now[0] = at
            self.assertEqual((session.may_start(), session.failing()), (start, failing), at)
        session.renewed = 107
        self.assertTrue(session.may_start())
        now[0] = 115
        self.assertTrue(session.failing())
        session.renewed = 115  # too late: the attempts are told to end
        self.assertTrue(session.failing())
        self.assertFalse(session.may_start())


class Outcomes(unittest.TestCase):
    def test_results(self):
        @dataclasses.dataclass
        class Point:
            x: int

        self.assertEqual(of_result([Point(1), {"p": Point(2)}]), {"done": True, "result": [{"x": 1}, {"p": {"x": 2}}]})
        self.assertEqual(of_result(None), {"done": True, "result": None})
        for garbage in (float("nan"), b"x", print, Point, {"a": {1}}):
            failure = of_result(garbage)["failure"]
            self.assertEqual((failure["kind"], failure["permanent"]), ("error", True))

    def test_failures(self):
        got = of_failure(Failure("no seats", kind="full", permanent=True, details={"seats": 0}))
        self.assertEqual(got, {"done": True, "failure": {"message": "no seats", "kind": "full", "permanent": True, "code": 0, "details": {"seats": 0}}})
        self.assertEqual(of_failure(NotYet(1.5, {"at": 1})), {"done": True, "not_yet": "1.500000s", "progress": {"details": {"at": 1}}})
        got = of_failure(ZeroDivisionError("oh"))
        self.assertEqual((got["failure"]["message"], got["failure"]["permanent"]), ("ZeroDivisionError: oh", False))
        self.assertLessEqual(len(of_failure(Failure("ü" * 10000))["failure"]["message"].encode()), 16 << 10)
        self.assertIn("and the limit is", of_failure(NotYet(1, "x" * MAX_DETAILS))["failure"]["message"])
        self.assertEqual(of_failure(Failure("a\ud800"))["failure"]["message"], "a?")
        self.assertIn("left out", of_failure(Failure("a", details={"x": b""}))["failure"]["details"]["details"])

    def test_refused(self):
        got = refusal(of_result("x"), OverLimit("result is too large"), 1)["failure"]
        self.assertEqual((got["kind"], got["permanent"]), ("over_limit", True))
        got = refusal(of_failure(Failure("why", kind="mine", details={"a": 1})), Invalid("details"), 1)["failure"]
        self.assertEqual((got["kind"], got["permanent"], "details" in got), ("mine", False, False))


class Reverts(unittest.TestCase):
    def test_a_step_that_never_executed_has_nothing_to_undo(self):
        worker, undone = Worker(Client("127.0.0.1:1")), []

        @worker.step("pay")
        def pay(euros: int):
            return euros

        @pay.revert("refund")
        def refund(euros: int):
            undone.append(euros)

        def end(action, failure=None, euros="ten"):
            type = {"execute": "pay", "revert": "refund"}[action]
            work = {"id": dict(ID, action=action), "type": type, "arguments": {"euros": euros}, "failure": failure}
            attempt = Attempt(worker, None, work)
            worker.running.acquire()
            attempt._make()
            return attempt._outcome

        unfit = end("execute")["failure"]
        self.assertEqual(unfit["kind"], "bad_argument")
        self.assertEqual(end("revert", unfit), {"done": True, "result": None})
        self.assertEqual(end("revert", {"kind": "error"})["failure"]["kind"], "bad_argument")  # it may have executed
        self.assertEqual((end("revert", unfit, euros=10), undone), ({"done": True, "result": None}, [10]))


class EncryptedValues(unittest.TestCase):
    def test_no_function_gets_them(self):
        value = "$encrypted:1:2026-12:AAAA$"
        worker, started = Worker(Client("127.0.0.1:1")), []

        @worker.step("pay")
        def pay(card: str = ""):
            started.append(card)

        @pay.revert("refund")
        def refund(card: str = ""):
            started.append(card)

        def end(action="execute", asked=0, **fields):
            work = dict({"id": dict(ID, action=action, asked=asked), "type": {"execute": "pay", "revert": "refund"}[action]}, **fields)
            attempt = Attempt(worker, None, work)
            worker.running.acquire()
            attempt._make()
            return attempt._outcome, attempt._context.take_news().get("output", "")

        logs = self.assertLogs("conductord.worker")
        logs.__enter__()
        self.addCleanup(logs.__exit__, None, None, None)
        for fields in ({"arguments": {"card": value}}, {"checkpoints": [{"name": "row", "value": value}]}, {"last_progress": {"details": value}},
                       {"last_failure": {"message": "m", "details": {"card": value}}}):
            outcome, said = end(**fields)
            self.assertEqual(outcome, {"done": True, "not_yet": "1.000000s"}, fields)
            self.assertRegex(said, "not started: a value is encrypted with key 2026-12.* CONDUCTORD_VALUE_KEYS")
        for fields in ({"arguments": {"card": value}}, {"result": value}, {"failure": {"details": {"card": value}}}, {"failures": [{"details": {"card": value}}]}):
            self.assertIn("not_yet", end("revert", **fields)[0], fields)
        self.assertEqual(end(asked=9, result=value)[0]["not_yet"], "60.000000s")
        self.assertEqual(started, [])
        end(arguments={"card": value + "!"}, last_failure={"message": value})  # a text that contains such a value is none
        self.assertEqual(started, [value + "!"])


class Lines(unittest.TestCase):
    def context(self):
        return Context({"id": ID, "type": "t"}, threading.Event())

    def test_reports_are_whole_lines_within_the_limit(self):
        context, got = self.context(), ""
        lines = ["line %d ü" % i for i in range(10000)]
        for line in lines:
            context.log(line)
        while context.has_output():
            text = context.take_news()["output"]
            self.assertLessEqual(len(text.encode()), MAX_OUTPUT)
            self.assertTrue(text.endswith("\n"))
            got += text
        self.assertEqual(got.splitlines(), lines)
        self.assertEqual(context.take_news(), {})

    def test_too_much(self):
        context, got = self.context(), ""
        for _ in range(3):
            context.log("x" * (MAX_BUFFER // 2))
        while context.has_output():
            got += context.take_news()["output"]
        self.assertTrue(got.endswith(DROPPED))

    def test_progress(self):
        context = self.context()
        context.progress(1, 3, {"at": 1})
        context.progress(2, 3)
        self.assertEqual(context.take_news(), {"progress": {"done": 2, "total": 3}})
        for bad in ((4, 3), (-1, 0), (1 << 63, 0), (1, 3, "x" * MAX_DETAILS), (1, 3, {1, 2})):
            with self.assertRaises(ValueError):
                context.progress(*bad)


class Held(unittest.TestCase):
    def test_names_of_attempts(self):
        self.assertEqual(key_of(ID), key_of({**ID, "asked": 0}))
        self.assertNotEqual(key_of(ID), key_of({**ID, "asked": 1}))
        self.assertNotEqual(key_of(ID), key_of({**ID, "action": "revert"}))

    def test_declarations(self):
        worker = Worker(Client("a:1"))

        @worker.step("a")
        def act(x: int):
            return x + 1

        @act.revert
        def undo(result):
            return result

        self.assertEqual((act(1), undo(5)), (2, 5))
        self.assertIs(worker.function_of("a", "revert")[0], undo)
        with self.assertRaises(ValueError):
            worker.step("a")(print)
        with self.assertRaises(Failure) as caught:
            worker.function_of("b", "execute")
        self.assertTrue(caught.exception.permanent)
        for bad in ({"slots": 0}, {"slots": 1025}, {"ttl": 0.1}):
            with self.assertRaises(Invalid):
                Worker(Client("a:1"), **bad)
        with self.assertRaises(Invalid):
            Worker(Client("a:1")).run()


if __name__ == "__main__":
    unittest.main()
