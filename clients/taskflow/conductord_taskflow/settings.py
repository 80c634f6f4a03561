"""The configuration of a driver: a dict, or the URI of TaskFlow's ``fetch``."""

from __future__ import annotations

import os
import stat
from typing import Any, Dict, Mapping, Optional
from urllib.parse import parse_qsl, urlsplit

from conductord import Client
from conductord.client import DEFAULT_SERVER, MAX_TOKEN

DEFAULT_BOARD = "default"
DEFAULT_KIND = "taskflow"
DEFAULT_TTL = 4.0  # seconds; the default of the cluster
DEFAULT_PORT = DEFAULT_SERVER.rpartition(":")[2]

_KEYS = ("servers", "board_name", "kind", "ttl", "timeout", "max_crashes", "token_file", "ca_file", "cert_file", "key_file")
# Keys that TaskFlow adds when it parses the URI.
_TASKFLOW_KEYS = ("board", "connection", "hostname", "port", "username", "password")


class Settings:
    """The parsed configuration. ``driver`` is the key under which TaskFlow keeps the driver's name or
    URI: ``board`` of a jobboard, ``connection`` of a persistence backend."""

    def __init__(self, conf: Optional[Mapping[str, Any]], driver: str):
        given = dict(conf or {})
        uri = str(given.pop(driver, ""))
        found: Dict[str, Any] = _of_uri(uri) if "://" in uri else {}
        if driver != "board" and "board" in given:
            found["board_name"] = given.pop("board")
        found.update((k, v) for k, v in given.items() if k not in _TASKFLOW_KEYS)
        unknown = sorted(set(found) - set(_KEYS))
        if unknown:
            raise ValueError("the conductord driver has no setting %r; the settings are %s" % (unknown[0], ", ".join(_KEYS)))
        self.servers = _with_ports(found.get("servers"))
        self.board = str(found.get("board_name") or DEFAULT_BOARD)
        self.kind = str(found.get("kind") or DEFAULT_KIND)
        self.ttl = float(found.get("ttl") or DEFAULT_TTL)
        self.timeout = float(found.get("timeout") or 30.0)
        self.max_crashes = int(found.get("max_crashes") or 0)  # 0: the default of the cluster
        self._files = {key: found.get(key) for key in ("token_file", "ca_file", "cert_file", "key_file")}

    def client(self) -> Client:
        """Make a client of the cluster. It connects when it makes its first call."""
        files = self._files
        token = _read_token(files["token_file"]) if files["token_file"] else None
        return Client(self.servers, token=token, ca=files["ca_file"], cert=files["cert_file"], key=files["key_file"],
                      board=self.board, timeout=self.timeout)


def _of_uri(uri: str) -> Dict[str, Any]:
    parts = urlsplit(uri)
    found: Dict[str, Any] = dict(parse_qsl(parts.query))
    if "board" in found:
        found["board_name"] = found.pop("board")
    if parts.netloc and "servers" not in found:
        found["servers"] = parts.netloc
    return found


def _with_ports(servers: Any) -> Optional[str]:
    """The servers with their ports. TaskFlow refuses a URI with several ports: a host without a port has
    the port of the last server."""
    if not servers:
        return None  # the client's default, which is CONDUCTORD_SERVER
    names = [s.strip() for s in (servers.split(",") if isinstance(servers, str) else servers) if s.strip()]
    last = names[-1].rpartition("]")[2].partition(":")[2] or DEFAULT_PORT
    return ",".join(n if n.startswith("unix://") or ":" in n.rpartition("]")[2] else "%s:%s" % (n, last) for n in names)


def _read_token(path: str) -> str:
    with open(path, "rb") as file:
        found = os.fstat(file.fileno())
        if os.name == "posix" and stat.S_IMODE(found.st_mode) & 0o077:
            raise ValueError("cannot use the token in %s: others can read it: chmod 600 %s" % (path, path))
        if found.st_size > MAX_TOKEN:
            raise ValueError("cannot use %s: a token has at most %d bytes, and this file has %d" % (path, MAX_TOKEN, found.st_size))
        return file.read().decode("utf-8").strip()
