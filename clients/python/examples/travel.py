"""A worker that books a trip, and cancels the bookings when the flow is undone.

    python3 travel.py
    conductord flow run travel.toml --wait --set fail_at=charge-card
"""

from __future__ import annotations

import logging
import pathlib
import sys
import zlib
from dataclasses import dataclass
from typing import Optional

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))  # without an installation

from conductord import Client, Context, Failure, Worker  # noqa: E402

worker = Worker(Client())


@dataclass
class Flight:
    flight: str
    flight_price: int


@dataclass
class Hotel:
    hotel: str
    hotel_price: int


@dataclass
class Car:
    car: str
    car_price: int


@dataclass
class Receipt:
    number: str
    total: int


def number_for(context: Context, prefix: str) -> str:
    # The key is the same in every attempt, so booking again after a crash gives the same booking.
    return "%s-%05d" % (prefix, zlib.crc32(context.key.encode()) % 100000)


def work(context: Context, pace: float, fail_at: str, why: str) -> None:
    context.sleep(pace)  # ends early, with a failure, when the attempt must end
    if fail_at == context.step:
        raise Failure(why, permanent=True)


@worker.step("check-customer")
def check_customer(customer: str, pace: float, fail_at: str, context: Context) -> str:
    context.log("looking up " + customer)
    work(context, pace, fail_at, customer + " has no account")
    return "AC-%05d" % (zlib.crc32(customer.encode()) % 100000)


@worker.step("book-flight")
def book_flight(account: str, from_: str, to: str, pace: float, fail_at: str, context: Context) -> Flight:
    context.log("asking for a seat from %s to %s for %s" % (from_, to, account))
    work(context, pace, fail_at, "no seats left")
    return Flight(number_for(context, "FL"), 189)


@book_flight.revert("cancel-flight")
def cancel_flight(result: Optional[Flight], pace: float, context: Context) -> None:
    cancel(result and result.flight, pace, context)


@worker.step("book-hotel")
def book_hotel(account: str, city: str, nights: int, pace: float, fail_at: str, context: Context) -> Hotel:
    context.log("asking for a room in %s for %d nights" % (city, nights))
    work(context, pace, fail_at, "no rooms left")
    return Hotel(number_for(context, "HT"), nights * 95)


@book_hotel.revert("cancel-hotel")
def cancel_hotel(result: Optional[Hotel], pace: float, context: Context) -> None:
    cancel(result and result.hotel, pace, context)


@worker.step("book-car")
def book_car(account: str, city: str, days: int, pace: float, fail_at: str, context: Context) -> Car:
    context.log("asking for a small car in %s for %d days" % (city, days))
    work(context, pace, fail_at, "no cars left")
    return Car(number_for(context, "CR"), days * 31)


@book_car.revert("cancel-car")
def cancel_car(result: Optional[Car], pace: float, context: Context) -> None:
    cancel(result and result.car, pace, context)


@worker.step("charge-card")
def charge_card(account: str, flight_price: int, hotel_price: int, car_price: int, pace: float, fail_at: str,
                context: Context) -> Receipt:
    total = flight_price + hotel_price + car_price
    context.log("charging %d to %s" % (total, account))
    work(context, pace, fail_at, "card declined: %d is over the limit" % total)
    return Receipt(number_for(context, "RC"), total)


@charge_card.revert("refund-card")
def refund_card(result: Optional[Receipt], pace: float, context: Context) -> None:
    cancel(result and result.number, pace, context)


def cancel(booking: Optional[str], pace: float, context: Context) -> None:
    # The booking is None if it failed, or if its outcome is unknown. A real step would then look up the
    # booking by its key.
    context.sleep(pace)
    context.log("%s is cancelled" % booking if booking else "nothing was booked, so there is nothing to cancel")


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    worker.run()
