"""A worker whose steps raise, return and report values that are hard to read."""

import dataclasses
import os
import sys

from conductord import Client, Context, Failure, NotYet, Worker
from conductord.outcome import Cancelled

worker = Worker(Client(), name="hostile", slots=16)


def fault(*_):
    raise ValueError("a trap")


def exits(*_):
    sys.exit(3)


def made(name, base=Exception, **members):
    """An exception of a class with these members."""
    return type(name, (base,), members)("said")


class Text(str):
    encode = fault
    __str__ = lambda self: self  # noqa: E731
    __format__ = fault


class Meta(type):
    @property
    def __name__(cls):
        return fault()


cyclic = []
cyclic.append(cyclic)


class Lazy(Failure):
    def __init__(self):
        pass


def changed(error, **fields):
    for name, value in fields.items():
        setattr(error, name, value)
    return error


def loop():
    first, second = ValueError("first"), ValueError("second")
    first.__cause__, second.__cause__ = second, first
    return first


raised = {
    "str-raises": lambda: made("Odd", __str__=fault),
    "str-and-repr": lambda: made("Odd", __str__=fault, __repr__=fault),
    "str-exits": lambda: made("Odd", __str__=exits),
    "str-none": lambda: made("Odd", __str__=lambda self: None),
    "str-bytes": lambda: made("Odd", __str__=lambda self: b"x"),
    "str-subclass": lambda: made("Odd", __str__=lambda self: Text("mine")),
    "str-huge": lambda: ValueError("x" * 30_000_000),
    "str-surrogate": lambda: ValueError("half \ud800 of a pair"),
    "args": lambda: ValueError(made("Odd", __str__=fault, __repr__=fault), 2),
    "args-property": lambda: made("Odd", args=property(fault)),
    "attribute": lambda: made("Odd", __getattribute__=fault),
    "class": lambda: made("Odd", __class__=property(fault)),
    "class-lie": lambda: made("Odd", __class__=property(lambda self: NotYet)),
    "cause": lambda: made("Odd", __cause__=property(fault)),
    "context": lambda: made("Odd", __context__=property(lambda self: 7)),
    "traceback": lambda: made("Odd", __traceback__=property(fault)),
    "notes": lambda: changed(ValueError("noted"), __notes__=7),
    "cause-loop": loop,
    "meta": lambda: Meta("Odd", (Exception,), {})("said"),
    "base": lambda: made("Odd", BaseException, __str__=fault),
    "exit": lambda: SystemExit(7),
    "interrupt": lambda: KeyboardInterrupt(),
    "generator": lambda: GeneratorExit(),
    "group": lambda: ExceptionGroup("several", [ValueError("one"), made("Odd", __str__=fault)]),  # noqa: F821
    "unicode": lambda: UnicodeDecodeError("utf-8", b"\xff" * 9, 0, 1, "bad"),
    "failure-lazy": lambda: Lazy(),
    "failure-message": lambda: Failure({"code": 7}, kind="mine"),
    "failure-text": lambda: Failure(Text("text"), kind=Text("mine")),
    "failure-odd": lambda: Failure(made("Odd", __str__=fault), kind="mine"),
    "failure-kind": lambda: Failure("odd", kind={"a": 1}),
    "failure-kind-odd": lambda: Failure("odd", kind=made("Odd", __str__=fault)),
    "failure-permanent": lambda: Failure("odd", kind="mine", permanent=made("Odd", __bool__=fault)),
    "failure-code": lambda: Failure("odd", kind="mine", code="seven"),
    "failure-code-huge": lambda: Failure("odd", kind="mine", code=10**5000),
    "failure-property": lambda: made("Odd", Failure, message=property(fault, lambda *_: None), kind=property(exits, lambda *_: None)),
    "details-cyclic": lambda: Failure("odd", kind="mine", details={"a": cyclic}),
    "details-list": lambda: Failure("odd", kind="mine", details=[1]),
    "details-exit": lambda: Failure("odd", kind="mine", details=made("Odd", __bool__=exits)),
    "details-twice": lambda: Failure("odd", kind="mine", details={"a": {1: 1, "1": 2}}),
    "details-huge": lambda: Failure("odd", kind="mine", details={"a": "x" * 3_000_000}),
    "not-yet-seconds": lambda: changed(NotYet(1), seconds="soon"),
    "not-yet-cyclic": lambda: NotYet(1, cyclic),
    "not-yet-bytes": lambda: NotYet(1, b"x"),
}


@dataclasses.dataclass
class Wide:
    a: int = 1

    def __getattribute__(self, name):
        return fault() if name == "a" else object.__getattribute__(self, name)


def grows(context):
    details = [1]
    context.progress(1, 2, details)
    details.append(details)
    return "kept"


returned = {
    "result-cyclic": lambda context: cyclic,
    "result-dataclass": lambda context: Wide(),
    "result-twice": lambda context: {1: 1, "1": 2},
    "result-integer": lambda context: 10**5000,
    "progress-nan": lambda context: context.progress(float("nan")),
    "progress-cyclic": lambda context: context.progress(1, 2, cyclic),
    "progress-changes": grows,
    "log-odd": lambda context: context.log(made("Odd", __str__=fault)),
}


@worker.step("hostile")
def hostile(case: str, context: Context):
    if case in raised:
        raise raised[case]()
    return returned[case](context)


worker.run()
