"""The owner of claims: one session for each name under which a board claims jobs."""

from __future__ import annotations

import os
import socket
import threading
from typing import Any, Dict, List

from conductord import Client, ConductordError, new_id
from conductord._session import Session, boot_time
from conductord.client import duration


class Owner:
    """A session under the name of an owner, with a thread that keeps it alive until it is closed or lost.

    A board has one name in almost all programs: the name of its conductor. find_owner must return this
    name, therefore the session has it too.
    """

    clock = staticmethod(boot_time)

    def __init__(self, client: Client, name: str, ttl: float):
        self.name, self._client = name, client
        opening = {"id": new_id(), "name": name, "host": socket.gethostname(), "pid": os.getpid(), "ttl": duration(ttl)}
        sent = boot_time()
        client.call("SessionService/Open", {"opening": opening})
        self._session = Session(client, str(opening["id"]), ttl, sent)
        # Ends when the session is closed or lost.
        threading.Thread(target=self._session.keep_alive, name="conductord-%s" % name, daemon=True).start()

    @property
    def session(self) -> str:
        """The id of the session."""
        return self._session.id

    def failing(self) -> bool:
        """Whether the session is lost, or so old that other owners may get its jobs soon."""
        return self._session.failing()

    def lose(self) -> None:
        """Treat the session as lost."""
        self._session.lose()

    def register(self, entity: Dict[str, Any]) -> None:
        """Register an entity, which ends with the session."""
        self._client.call("SessionService/Register", {"session": self.session, "entity": entity})

    def close(self) -> None:
        """End the session: its jobs are claimable at once."""
        lost = self.failing()
        self.lose()  # ends the keep-alives
        try:
            self._client.call("SessionService/Close", {"session": self.session}, patience=0 if lost else 2.0)
        except ConductordError:
            pass  # the session expires


class Owners:
    """The owners of one board, by name. A lost session is replaced when its name claims again."""

    def __init__(self, client: Client, ttl: float):
        self._client, self._ttl = client, ttl
        self._lock = threading.Lock()
        self._owners: Dict[str, Owner] = {}
        self._entities: Dict[str, List[Dict[str, Any]]] = {}

    def get(self, name: str) -> Owner:
        """The owner of a name, with a live session."""
        with self._lock:
            owner = self._owners.get(name)
            if owner is None or owner.failing():
                owner = Owner(self._client, name, self._ttl)
                for entity in self._entities.get(name, []):
                    owner.register(entity)
                self._owners[name] = owner
            return owner

    def register(self, name: str, entity: Dict[str, Any]) -> None:
        """Register an entity for an owner, also after its session was replaced."""
        self.get(name).register(entity)
        with self._lock:
            known = self._entities.setdefault(name, [])
            known[:] = [e for e in known if (e["kind"], e["name"]) != (entity["kind"], entity["name"])] + [entity]

    def close(self) -> None:
        """End all sessions."""
        with self._lock:
            owners, self._owners = list(self._owners.values()), {}
        for owner in owners:
            owner.close()
