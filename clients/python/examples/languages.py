"""The worker in Python of examples/languages/trip.toml: it books cars, and cancels them.

    python3 clients/python/examples/languages.py
"""

from __future__ import annotations

import pathlib
import sys
from typing import Optional

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))  # without an installation

from conductord import Client, Context, Failure, Worker  # noqa: E402

worker = Worker(Client(), name="python", ttl=3)  # after a kill, another worker gets the step this soon


@worker.step("book-car")
def book_car(dir: str, fail_at: str, hotel: str, context: Context) -> str:
    note(dir, context, "begins")
    while pathlib.Path(dir, context.step + ".busy").exists():  # time to kill the worker in
        context.sleep(0.1)
    if fail_at == context.step:
        raise Failure("no cars left", kind="refused", permanent=True)
    # A real step passes context.key to the rental, which makes one booking for all attempts.
    note(dir, context, "books")
    return "CR-93"


@book_car.revert("cancel-car")
def cancel_car(dir: str, result: Optional[str], context: Context) -> None:
    note(dir, context, "cancels")  # result is None if nothing was booked


def note(dir: str, context: Context, what: str) -> None:
    with open(pathlib.Path(dir, "log"), "a") as log:
        log.write("%s %s %d %s %s\n" % (context.step, context.action, context.attempt, context.key, what))


if __name__ == "__main__":
    worker.run()
