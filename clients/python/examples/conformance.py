"""The worker that `conductord step test -- python3 conformance.py` starts: it has the test steps."""

from __future__ import annotations

import logging
import math
import pathlib
import sys
from typing import Any, Dict

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))  # without an installation

from conductord import Client, Context, Failure, NotYet, Worker  # noqa: E402

worker = Worker(Client(), name="conformance in Python", ttl=3)


@worker.step("test.echo")
def echo(context: Context, **arguments: Any) -> Dict[str, Any]:
    return {"arguments": arguments, "attempt": context.attempt, "key": context.key}


@worker.step("test.fail")
def fail(message: str = "", kind: str = "error", permanent: bool = False) -> None:
    raise Failure(message, kind=kind, permanent=permanent)


@worker.step("test.sleep")
def sleep(seconds: float, context: Context) -> Dict[str, Any]:
    context.sleep(seconds)  # raises Cancelled, a failure
    return {"slept": seconds, "attempt": context.attempt}


@worker.step("test.progress")
def progress(context: Context) -> Dict[str, Any]:
    for at in (1, 2, 3):
        context.progress(at, 3, {"at": at})
        context.log("line %d" % at)
    return {"reported": 3}


@worker.step("test.later")
def later(times: int, context: Context) -> Dict[str, Any]:
    if context.asked < times:
        raise NotYet(0.1)
    return {"asked": times}


@worker.step("test.checkpoint")
def checkpoint(rows: int, context: Context) -> Dict[str, Any]:
    row = context.checkpoints.get("row", 0) + 1
    context.checkpoint("row", row)
    if row < rows:
        raise Failure("row %d of %d" % (row, rows))
    return {"row": row}


@worker.step("test.signal")
def signal(name: str, context: Context) -> Dict[str, Any]:
    context.signal(context.job, name)
    return {"sent": name}


@worker.step("test.keep")
def keep(value: Any = None) -> Dict[str, Any]:
    return {"kept": value}


@keep.revert("test.unkeep")
def unkeep(result: Any, context: Context, **arguments: Any) -> None:
    if "value" not in arguments or result != {"kept": arguments["value"]}:
        raise Failure("the result %r does not fit the arguments %r" % (result, arguments), permanent=True)


@worker.step("test.big")
def big(bytes: int) -> Dict[str, Any]:
    return {"data": "x" * bytes}


@worker.step("test.garbage")
def garbage() -> Any:
    return {"function": garbage, "bytes": b"\xff", "number": math.nan}


@worker.step("test.crash")
def crash() -> Any:
    return 1 // 0


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    worker.run()
