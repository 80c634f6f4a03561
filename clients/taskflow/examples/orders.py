"""A shop on TaskFlow: programs post orders, conductors carry them out.

    python3 orders.py work "conductord://127.0.0.1:7070/" a       # a conductor; start several
    python3 orders.py post "conductord://127.0.0.1:7070/" 20      # post 20 orders, and wait until they end

Only the address differs between the backends of TaskFlow. For a board without logbooks, such as
redis://127.0.0.1:6379, LOGBOOK is the address of the logbooks. Kill a conductor with ``kill -9``: another
conductor continues its orders after the last recorded task.
"""

import contextlib
import functools
import logging
import os
import sys
import time

from taskflow import engines, task
from taskflow.conductors import backends as conductors
from taskflow.jobs import backends as boards
from taskflow.patterns import linear_flow, unordered_flow
from taskflow.persistence import backends as logbooks
from taskflow.persistence import models
from taskflow.utils import persistence_utils

LOG = logging.getLogger("orders")
EXPIRY = float(os.environ.get("EXPIRY", "0"))  # seconds until a claim ends, for Redis; 0: the default of the board


class Reserve(task.Task):
    """Reserves the goods."""

    default_provides = "reservation"

    def execute(self, order, seconds):
        LOG.info("%s reserve", order)
        time.sleep(seconds)
        return "goods of " + order

    def revert(self, order, result, **kwargs):
        LOG.info("%s release %s", order, result)


class Charge(task.Task):
    """Takes the money. The task can run again after a crash, therefore the order is the key of the payment."""

    default_provides = "payment"

    def execute(self, order, amount, seconds):
        LOG.info("%s charge", order)
        time.sleep(seconds)
        if amount > 1000:
            raise ValueError("the card of %s has a limit of 1000" % order)
        return {"key": order, "amount": amount}

    def revert(self, order, **kwargs):
        LOG.info("%s refund", order)


class Ship(task.Task):
    """Sends the goods."""

    def execute(self, order, reservation, payment, seconds):
        LOG.info("%s ship", order)
        time.sleep(seconds)


class Invoice(task.Task):
    """Sends the invoice."""

    def execute(self, order, payment, seconds):
        LOG.info("%s invoice", order)
        time.sleep(seconds)


def order_flow():
    """The flow of an order. A conductor imports this function by its name, and builds the flow."""
    last = unordered_flow.Flow("last").add(Ship(), Invoice())
    return linear_flow.Flow("order").add(Reserve(), Charge(), last)


@contextlib.contextmanager
def connected(address):
    """The board and the logbooks at an address."""
    with logbooks.backend({"connection": os.environ.get("LOGBOOK", address)}) as logbook:
        with boards.backend("orders", {"board": address}, persistence=logbook) as board:
            yield board, logbook


def post(address, count, seconds):
    """Post orders, and wait for their ends. Each tenth order is too expensive, and is reverted."""
    with connected(address) as (board, logbook):
        jobs = []
        for i in range(count):
            book = models.LogBook("order-%d" % i)
            store = {"order": "order-%d" % i, "amount": 5000 if i % 10 == 9 else 20, "seconds": seconds}
            detail = persistence_utils.create_flow_detail(order_flow(), book, logbook, meta={"store": store})
            engines.save_factory_details(detail, order_flow, [], {}, backend=logbook)
            jobs.append(board.post(store["order"], book, details={"flow_uuid": detail.uuid}))
        for job in jobs:
            job.wait()
            with contextlib.closing(logbook.get_connection()) as connection:
                detail, = connection.get_logbook(job.book_uuid)
            print(job.name, detail.state, flush=True)


def work(address, name):
    """Run a conductor until it is interrupted."""
    with connected(address) as (board, logbook):
        if EXPIRY:
            board.claim = functools.partial(board.claim, expiry=EXPIRY)
        conductor = conductors.fetch("nonblocking", name, board, persistence=logbook, engine="serial", wait_timeout=0.2,
                                     max_simultaneous_jobs=4)
        conductor.run()


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, stream=sys.stdout, format="%(asctime)s %(message)s")
    logging.getLogger("taskflow").setLevel(logging.ERROR)
    if sys.argv[1] == "post":
        import orders  # the factory has the name orders.order_flow, not __main__.order_flow
        orders.post(sys.argv[2], int(sys.argv[3]), float(sys.argv[4]) if len(sys.argv) > 4 else 0.2)
    else:
        work(sys.argv[2], sys.argv[3])
