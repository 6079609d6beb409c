"""The database of the demo: shared vehicles, after CockroachDB's MovR, and writers that change it."""

from __future__ import annotations

import json
import random
import threading
import uuid
from collections.abc import Callable
from typing import Any

import psycopg
from psycopg import errors

TABLES = ("users", "vehicles", "rides")
_CITIES = (
    "amsterdam",
    "boston",
    "los angeles",
    "new york",
    "paris",
    "rome",
    "san francisco",
    "seattle",
    "washington dc",
)
_SCHEMA = """
CREATE TABLE users (
    id uuid NOT NULL, city text NOT NULL, name text, address text, credit_card text,
    PRIMARY KEY (city, id)
);
CREATE TABLE vehicles (
    id uuid NOT NULL, city text NOT NULL, type text, owner_id uuid, creation_time timestamp, status text,
    current_location text, ext jsonb,
    PRIMARY KEY (city, id)
);
CREATE TABLE rides (
    id uuid NOT NULL, city text NOT NULL, rider_id uuid, vehicle_id uuid, start_address text, end_address text,
    start_time timestamptz, end_time timestamptz, revenue numeric(10,2),
    PRIMARY KEY (city, id)
);
"""
_USER = "INSERT INTO users VALUES (%s, %s, %s, %s, %s)"
_VEHICLE = "INSERT INTO vehicles VALUES (%s, %s, %s, %s, localtimestamp, %s, %s, %s)"
_RIDE = "INSERT INTO rides VALUES (%s, %s, %s, %s, %s, NULL, now(), NULL, NULL)"


def load(uri: str, *, users: int = 2000, vehicles: int = 1000, rides: int = 3000) -> int:
    """Create and fill the tables in the empty database at *uri*, and return the number of rows."""
    chance = random.Random(7)
    with psycopg.connect(uri) as connection, connection.cursor() as cursor:
        cursor.execute(_SCHEMA)
        cursor.executemany(_USER, [_user(chance) for _ in range(users)])
        cursor.executemany(_VEHICLE, [_vehicle(chance) for _ in range(vehicles)])
        cursor.executemany(_RIDE, [_ride(chance) for _ in range(rides)])
    return users + vehicles + rides


class Workload:
    """Writers that run random transactions until `stop`, each in a thread with its own connection."""

    def __init__(self, uri: str, *, writers: int = 3, seed: int = 0) -> None:
        self._uri = uri
        self._stop = threading.Event()
        self._counts = [0] * writers
        self._failure: BaseException | None = None
        self._threads = [
            threading.Thread(target=self._write, args=(number, random.Random(seed * 1000 + number)), daemon=True)
            for number in range(writers)
        ]

    @property
    def changes(self) -> int:
        """The number of committed statements. Each changed about one row."""
        return sum(self._counts)

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Return when every writer has ended. Raises: the error of a writer that ended early."""
        self._stop.set()
        for thread in self._threads:
            thread.join()
        if self._failure is not None:
            raise self._failure

    def _write(self, number: int, chance: random.Random) -> None:
        try:
            with psycopg.connect(self._uri) as connection:
                while not self._stop.is_set():
                    statements = chance.randint(1, 5)
                    try:
                        for _ in range(statements):
                            _change(connection, chance)
                        connection.commit()
                        self._counts[number] += statements
                    except (errors.DeadlockDetected, errors.UniqueViolation):
                        connection.rollback()
        except BaseException as error:
            self._failure = error


def _change(connection: psycopg.Connection[Any], chance: random.Random) -> None:
    change: Callable[[psycopg.Connection[Any], random.Random], None] = chance.choices(
        (_begin_ride, _end_ride, _move_vehicle, _move_user, _forget_ride, _new_user, _forget_user),
        weights=(30, 25, 20, 5, 10, 7, 3),
    )[0]
    change(connection, chance)


def _begin_ride(connection: psycopg.Connection[Any], chance: random.Random) -> None:
    connection.execute(_RIDE, _ride(chance))


def _end_ride(connection: psycopg.Connection[Any], chance: random.Random) -> None:
    connection.execute(
        "UPDATE rides SET end_address = %s, end_time = now(), revenue = %s"
        " WHERE (city, id) IN (SELECT city, id FROM rides WHERE city = %s AND id >= %s ORDER BY id LIMIT 1)",
        [_street(chance), chance.randint(100, 9999) / 100, *_somewhere(chance)],
    )


def _move_vehicle(connection: psycopg.Connection[Any], chance: random.Random) -> None:
    connection.execute(
        "UPDATE vehicles SET current_location = %s, ext = ext || %s"
        " WHERE (city, id) IN (SELECT city, id FROM vehicles WHERE city = %s AND id >= %s ORDER BY id LIMIT 1)",
        [_street(chance), json.dumps({"battery": chance.randint(0, 100)}), *_somewhere(chance)],
    )


def _move_user(connection: psycopg.Connection[Any], chance: random.Random) -> None:
    """Change a key: the city is part of it."""
    connection.execute(
        "UPDATE users SET city = %s, address = %s"
        " WHERE (city, id) IN (SELECT city, id FROM users WHERE city = %s AND id >= %s ORDER BY id LIMIT 1)",
        [chance.choice(_CITIES), _street(chance), *_somewhere(chance)],
    )


def _forget_ride(connection: psycopg.Connection[Any], chance: random.Random) -> None:
    connection.execute(
        "DELETE FROM rides"
        " WHERE (city, id) IN (SELECT city, id FROM rides WHERE city = %s AND id >= %s ORDER BY id LIMIT 1)",
        _somewhere(chance),
    )


def _new_user(connection: psycopg.Connection[Any], chance: random.Random) -> None:
    connection.execute(_USER, _user(chance))


def _forget_user(connection: psycopg.Connection[Any], chance: random.Random) -> None:
    connection.execute(
        "DELETE FROM users"
        " WHERE (city, id) IN (SELECT city, id FROM users WHERE city = %s AND id >= %s ORDER BY id LIMIT 1)",
        _somewhere(chance),
    )


def _user(chance: random.Random) -> list[Any]:
    name = chance.choice(("Ada", "Blaise", "Çelik", "Dörte", "Émile", "Fumiko 史子")) + f" {chance.randint(1, 999)}"
    return [_id(chance), chance.choice(_CITIES), name, _street(chance), str(chance.randint(10**9, 10**10))]


def _vehicle(chance: random.Random) -> list[Any]:
    kind = chance.choice(("bike", "scooter", "skateboard"))
    ext = {"brand": chance.choice(("Kona", "Schwinn", "Pinarello")), "color": "red", "tags": ["a", 'b "c"', None]}
    status = chance.choice(("available", "in_use", "lost"))
    return [_id(chance), chance.choice(_CITIES), kind, _id(chance), status, _street(chance), json.dumps(ext)]


def _ride(chance: random.Random) -> list[Any]:
    return [_id(chance), chance.choice(_CITIES), _id(chance), _id(chance), _street(chance)]


def _somewhere(chance: random.Random) -> list[Any]:
    return [chance.choice(_CITIES), _id(chance)]


def _street(chance: random.Random) -> str:
    return f"{chance.randint(1, 9999)} Main Street\\{chance.randint(1, 99)}"


def _id(chance: random.Random) -> uuid.UUID:
    return uuid.UUID(int=chance.getrandbits(128), version=4)
