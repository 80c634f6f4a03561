"""The client of a cluster: post jobs and flows, wait for them, watch events."""

from __future__ import annotations

import datetime
import getpass
import json
import os
import ssl
import stat
import time
from typing import Any, Dict, Iterable, Iterator, List, Mapping, Optional, Sequence, Union

from . import _transport
from ._ids import derive_id, new_id
from ._results import by_symbol
from .errors import ConductordError, Invalid, NotFound, Unavailable, of_detail

DEFAULT_SERVER = "127.0.0.1:7070"
MAX_TOKEN = 16 << 10  # bytes of a token's file
POLL_TIME = 30.0  # seconds of each long poll
POLL_GRACE = 5.0  # extra seconds for the answer to a long poll
WATCH_SILENCE = 10.0  # nodes send a sign of life every 3 s

When = Union[float, datetime.datetime]


class Job(Dict[str, Any]):
    """A job in the form of the API: a dict with the fields of docs/protocol.md, and shortcuts."""

    existed = False  # the job that a posting found, because it has the posting's id or key
    signalled: Optional[str] = None  # the answer to the posting's signal: taken, kept or repeated

    @property
    def id(self) -> str:
        """The job's id."""
        return str(self["id"])

    @property
    def state(self) -> str:
        """The state, such as claimable, claimed or completed."""
        return str(self["state"])

    @property
    def outcome(self) -> Optional[str]:
        """The outcome of a finished job: success, reverted, failed or cancelled."""
        return self.get("outcome")

    @property
    def iteration(self) -> int:
        """The number of the current iteration of a flow that continues, from 1."""
        return int(self.get("iteration", 1))

    @property
    def finished(self) -> bool:
        """Whether the job has ended. A trashed job has ended without an outcome."""
        return self.state in ("completed", "trashed")

    @property
    def needs_operator(self) -> bool:
        """Whether the job is held, parked or suspended, and needs an operator to continue."""
        return self.state in ("held", "suspended")


class Client:
    """Calls a cluster, and repeats a call at other nodes until one answers.

    ``servers`` are addresses (``host:port``, or ``unix:///path``), as a list or separated by
    commas. Defaults come from the environment variables of the command line:
    CONDUCTORD_SERVER, CONDUCTORD_TOKEN or CONDUCTORD_TOKEN_FILE, CONDUCTORD_CA_FILE,
    CONDUCTORD_CERT_FILE, CONDUCTORD_KEY_FILE. The client cannot encrypt values, so it refuses
    CONDUCTORD_VALUE_KEYS. With ``ca`` the client speaks TLS, which a token
    needs. ``board`` is the board of new jobs. ``timeout`` is the number of seconds for which a call is
    tried. Threads may share a client.
    """

    def __init__(self, servers: Union[str, Sequence[str], None] = None, token: Optional[str] = None,
                 ca: Optional[str] = None, cert: Optional[str] = None, key: Optional[str] = None,
                 board: Optional[str] = None, timeout: float = 30.0):
        servers = servers or os.environ.get("CONDUCTORD_SERVER") or DEFAULT_SERVER
        if isinstance(servers, str):
            servers = servers.split(",")
        servers = [s.strip() for s in servers if s.strip()]
        if not servers:
            raise Invalid("servers names no server")
        if os.environ.get("CONDUCTORD_VALUE_KEYS"):
            raise Invalid("CONDUCTORD_VALUE_KEYS is set, and this client cannot encrypt values: unset it to send values in plain text")
        context = _tls(ca or os.environ.get("CONDUCTORD_CA_FILE"), cert or os.environ.get("CONDUCTORD_CERT_FILE"),
                       key or os.environ.get("CONDUCTORD_KEY_FILE"))
        if context is None and any(s.startswith("https://") for s in servers):
            context = ssl.create_default_context()
        token = token or _token()
        plain = [s for s in servers if not s.startswith(_transport.SOCKET)] if context is None and token else []
        if plain:
            raise Invalid("a token would go to %s in plain text: give the ca, or name the server with https://" % plain[0])
        self._transport = _transport.Transport(servers, token, context)
        self.board = board
        self.timeout = timeout

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._transport.close()

    def call(self, method: str, request: Dict[str, Any], **how: Any) -> Dict[str, Any]:
        """Make any call of docs/protocol.md, such as ``"BoardService/GetJob"``."""
        how.setdefault("patience", self.timeout)
        return self._transport.call(method, request, **how)

    def post(self, name: str, kind: Optional[str] = None, **fields: Any) -> Job:
        """Post a job. ``fields`` are fields of a posting in docs/protocol.md, such as ``details``,
        ``store``, ``priority``, ``key``, ``tags``, ``labels``, ``deadline``, ``deadline_after``, ``retry``, ``book_id``.

        With a ``key`` and a ``signal``, such as ``{"name": "paid", "data": 7}``, the unfinished job with the key gets the signal.
        Without such a job, the job is posted with the signal. ``signalled`` of the job is the answer.

        Times are datetimes, or seconds from now; durations are seconds. Without an ``id`` the
        client makes one. After ``Unknown``, post again with the same ``id``, which is harmless.
        """
        return self.post_many([dict(fields, name=name, kind=kind)])[0]

    def post_many(self, postings: Iterable[Mapping[str, Any]]) -> List[Job]:
        """Post up to 1,000 jobs in one call. If some are refused, the error is the first refusal;
        the other jobs are posted. Its ``posted`` has a Job or an error for each posting."""
        wired = [self._posting(p) for p in postings]
        answer = self.call("BoardService/Post", {"postings": wired})
        made: List[Job] = []
        results: List[Union[Job, ConductordError]] = []
        refusal: Optional[ConductordError] = None
        for verdict in answer.get("posted", []):
            if "error" in verdict:
                error = of_detail(verdict["error"])
                refusal = refusal or error
                results.append(error)
                continue
            job = Job(verdict["job"])
            job.existed = bool(verdict.get("existed"))
            job.signalled = verdict.get("signal", {}).get("answer")
            made.append(job)
            results.append(job)
        if refusal is not None:
            refusal.posted = results
            raise refusal
        return made

    def post_flow(self, document: Union[str, "os.PathLike[str]", Mapping[str, Any]], store: Optional[Mapping[str, Any]] = None,
                  only: Sequence[str] = (), **fields: Any) -> Job:
        """Post a flow document as a job, as ``conductord flow run`` does.

        The document is a mapping, or the path of a file: JSON, or TOML with Python 3.11 and later.
        ``store`` gives inputs, ``only`` the steps to run; ``fields`` are as for ``post``. The
        node checks the document: a faulty one is ``Invalid``.
        """
        read = document if isinstance(document, Mapping) else _read_document(document)
        name = str(read.get("name", ""))
        job = str(fields.setdefault("id", new_id()))
        flow: Dict[str, Any] = {
            "id": derive_id(job, "flow"), "book": derive_id(job, "book"), "name": name,
            "factory": {"name": "document", "args": dict(read)}, "store": {**read.get("store", {}), **(store or {})},
            "targets": list(only or read.get("targets", ())), "on_change": read.get("on_change", ""), "state": "pending",
        }
        fields["book"] = {"id": derive_id(job, "book"), "name": name, "flows": [flow]}
        return self.post(fields.pop("name", name), **fields)

    def get(self, id: str) -> Job:
        """Read a job."""
        return Job(self.call("BoardService/GetJob", {"id": id}, reads=True)["job"])

    def list(self, **query: Any) -> Iterator[Job]:
        """List jobs, page by page, by the fields of ListJobs, such as ``board``, ``states``, ``tags``."""
        if self.board is not None:
            query.setdefault("board", self.board)
        while True:
            page = self.call("BoardService/ListJobs", query, reads=True)
            yield from (Job(j) for j in page.get("jobs", []))
            if not page.get("next"):
                return
            query["after"] = page["next"]

    def cancel(self, id: str, revert: bool = True, reason: str = "") -> None:
        """Cancel a job. With ``revert``, the cluster first reverts the finished steps of its flow."""
        self.call("BoardService/Cancel", {"job": id, "revert": revert, "reason": reason, "by": _user()})

    def retry(self, id: str, reason: str = "") -> None:
        """Start a failed, reverted, parked or trashed job again."""
        self.call("BoardService/Retry", {"job": id, "reason": reason, "by": _user()})

    def signal(self, job: str, name: str, data: Any = None, id: Optional[str] = None, reject: str = "") -> Dict[str, Any]:
        """Send a signal to a job. A repeat with the same ``id`` changes nothing.

        The answer is ``{"answer": "taken"}`` if a step has taken the signal, and ``kept`` if no step waits yet.
        """
        return self._signal({"job": job}, name, data, id, reject)

    def signal_key(self, key: str, name: str, data: Any = None, id: Optional[str] = None, reject: str = "",
                   board: Optional[str] = None) -> Dict[str, Any]:
        """Send a signal to the unfinished job with a key. The answer also has the ``job``. ``NotFound``: no unfinished job has the key."""
        to = {"key": key}
        if board or self.board:
            to["board"] = str(board or self.board)
        return self._signal(to, name, data, id, reject)

    def _signal(self, to: Dict[str, str], name: str, data: Any, id: Optional[str], reject: str) -> Dict[str, Any]:
        fields: Dict[str, Any] = dict(to, name=name, id=id or new_id(), by=_user())
        if data is not None:
            fields["data"] = data
        if reject:
            fields["reject"] = reject
        return self.call("BoardService/Signal", fields)

    def publish(self, topic: str, key: str, data: Any = None, id: Optional[str] = None, to: str = "one", keep: str = "",
                reject: str = "", board: Optional[str] = None) -> Dict[str, Any]:
        """Publish to the steps that wait for a topic and a key: to ``one`` step or to ``all``.

        The answer is ``{"answer": "taken", "waits": 1}`` if steps have taken the publication. With ``keep``, such as ``"3600s"``, the board
        keeps it for the next wait, and the answer is ``kept``. Otherwise ``NotFound`` with the code ``nobody_waits``: nothing happened.
        A repeat with the same ``topic``, ``key`` and ``id`` changes nothing.
        """
        fields: Dict[str, Any] = {"topic": topic, "key": key, "id": id or new_id(), "to": to, "by": _user()}
        if board or self.board:
            fields["board"] = str(board or self.board)
        for name, value in (("data", data), ("keep", keep or None), ("reject", reject or None)):
            if value is not None:
                fields[name] = value
        return self.call("BoardService/Publish", fields)

    def decide(
        self, job: str, step: str = "", kind: str = "approve", reason: str = "", answers: Any = None, id: Optional[str] = None, by: str = "",
    ) -> Dict[str, Any]:
        """Approve or reject the approval of a step, or withdraw your approval: ``kind`` is approve, reject or withdraw.

        Without a step, decide the one open approval of the job. A rejection needs a reason. The answer has the ``outcome``, or the needs
        that are ``missing``. A repeat with the same ``id`` changes nothing.
        """
        return self.call("BoardService/Decide", self._decision(job, step, kind, reason, answers, id, by))

    def override(
        self, job: str, reason: str, step: str = "", kind: str = "approve", answers: Any = None, id: Optional[str] = None, by: str = "",
    ) -> Dict[str, Any]:
        """Approve or reject the approval of a step at once, without the needed people."""
        return self.call("BoardService/Override", self._decision(job, step, kind, reason, answers, id, by))

    @staticmethod
    def _decision(job: str, step: str, kind: str, reason: str, answers: Any, id: Optional[str], by: str) -> Dict[str, Any]:
        fields: Dict[str, Any] = {"job": job, "step": step, "kind": kind, "reason": reason, "id": id or new_id(), "by": by or _user()}
        if answers is not None:
            fields["answers"] = answers
        return fields

    def approval(self, job: str, step: str = "") -> Dict[str, Any]:
        """Read the latest approval of a step, even after the approval has ended."""
        return self.call("BoardService/GetApproval", {"job": job, "step": step})["approval"]

    def approvals(self, board: str = "", after: str = "", limit: int = 0) -> Dict[str, Any]:
        """Read a page of the approvals that wait for decisions: ``approvals``, and ``next`` for the next page."""
        return self.call("BoardService/ListApprovals", {"board": board, "after": after, "limit": limit})

    def wait(self, id: str, timeout: Optional[float] = None) -> Job:
        """Wait until a job is finished or needs an operator. TimeoutError: after this many seconds."""
        until = None if timeout is None else time.monotonic() + timeout
        while True:
            left = POLL_TIME if until is None else min(POLL_TIME, max(0.0, until - time.monotonic()))
            request = {"id": id, "timeout": duration(left)}
            job = Job(self.call("BoardService/WaitJob", request, reads=True, try_time=left + POLL_GRACE)["job"])
            if job.finished or job.needs_operator:
                return job
            if until is not None and time.monotonic() >= until:
                raise TimeoutError("job %s is %s after %g s" % (id, job.state, timeout))

    def step(self, job: str, step: str) -> Dict[str, Any]:
        """Read a step of a job's flow, such as ``copy`` or ``send[2]``; see WaitStep in docs/protocol.md."""
        return self.call("BoardService/WaitStep", {"job": job, "step": step}, reads=True)["step"]

    def wait_step(self, job: str, step: str, timeout: Optional[float] = None) -> Dict[str, Any]:
        """Wait until a step has an ``outcome``, or its job needs an operator. TimeoutError: after this many seconds."""
        until = None if timeout is None else time.monotonic() + timeout
        while True:
            left = POLL_TIME if until is None else min(POLL_TIME, max(0.0, until - time.monotonic()))
            request = {"job": job, "step": step, "timeout": duration(left)}
            found = self.call("BoardService/WaitStep", request, reads=True, try_time=left + POLL_GRACE)["step"]
            if found.get("outcome") or found["job_state"] in ("held", "suspended"):
                return found
            if until is not None and time.monotonic() >= until:
                raise TimeoutError("step %s of job %s has not ended after %g s" % (step, job, timeout))

    def flow(self, job: Union[str, Job], iteration: int = 0) -> Dict[str, Any]:
        """The flow of a job with the steps that have begun. ``iteration`` is the number of an earlier
        iteration, from 1; the cluster keeps the latest 10. Default: the current one."""
        if not isinstance(job, Job):
            job = self.get(job)
        if "flow" not in job:
            raise NotFound("job %s has no flow" % job.id)
        flow = self._flow(job["flow"])
        while iteration and flow.get("iteration", 1) > iteration and "previous" in flow:
            flow = self._flow(flow["previous"])
        if iteration and flow.get("iteration", 1) != iteration:
            raise NotFound("iteration %d of job %s does not exist, or is no longer kept" % (iteration, job.id))
        return flow

    def _flow(self, id: str) -> Dict[str, Any]:
        flow: Dict[str, Any] = {}
        more = True
        while more:
            seen = len(flow.get("atoms", []))
            answer = self.call("LogbookService/GetFlow", {"id": id, "skip": seen, "atoms_only": bool(flow)}, reads=True)
            part = answer.get("flow", {})
            flow = dict(flow or part, atoms=flow.get("atoms", []) + part.get("atoms", []))
            more = answer.get("more") or part.get("more")
        return flow

    def results(self, job: Union[str, Job], iteration: int = 0) -> Dict[str, Any]:
        """The results so far of a job's flow, by the names that its steps provide. See ``flow`` for
        ``iteration``."""
        if not isinstance(job, Job):
            job = self.get(job)
        return by_symbol(self.flow(job, iteration)) if "flow" in job else {}

    def watch(self, after: Optional[str] = None, signs: bool = False, **select: Any) -> Iterator[Dict[str, Any]]:
        """Yield events in order, without gaps or repeats; see Watch in docs/protocol.md.

        ``after`` is the ``position`` of an event that you have seen. Without it, the events start
        now. ``Compacted``: the events after that position are no longer kept. If a node is lost,
        the watch continues at another node. It ends when no node has answered for the client's
        timeout. With ``signs``, the watch also yields a dict with only the ``position``, when it
        begins and every few seconds without events.
        """
        if after is not None:
            select["after"] = after
        heard, pause = time.monotonic(), _transport.FIRST_PAUSE
        while True:
            try:
                for message in self._transport.stream("BoardService/Watch", select, WATCH_SILENCE):
                    heard, pause = time.monotonic(), _transport.FIRST_PAUSE
                    for event in message.get("events", []):
                        select["after"] = event["position"]
                        yield event
                    # If the stream starts now, its first position is the start.
                    select["after"] = message.get("position", select.get("after"))
                    if signs and not message.get("events"):
                        yield {"position": select["after"]}
            except Unavailable:
                if time.monotonic() - heard > self.timeout:
                    raise
                time.sleep(pause)
                pause = min(2 * pause, _transport.LAST_PAUSE)

    def _posting(self, given: Mapping[str, Any]) -> Dict[str, Any]:
        posting = {name: value for name, value in given.items() if value is not None}
        posting.setdefault("id", new_id())
        if self.board is not None:
            posting.setdefault("board", self.board)
        for name in ("not_before", "deadline"):
            if name in posting:
                posting[name] = moment(posting[name])
        for name in ("retention", "deadline_after"):
            if name in posting:
                posting[name] = duration(posting[name])
        if "retry" in posting:
            posting["retry"] = {n: duration(v) if n in ("delay", "max_delay") else v for n, v in posting["retry"].items()}
        return posting


def duration(seconds: Union[float, str, datetime.timedelta]) -> str:
    """A duration in the form of the API's JSON."""
    if isinstance(seconds, str):
        return seconds
    if isinstance(seconds, datetime.timedelta):
        seconds = seconds.total_seconds()
    return "%.6fs" % seconds


def seconds_of(text: Optional[str]) -> Optional[float]:
    """The seconds of a duration in an answer."""
    return None if not text else float(text.rstrip("s"))


def moment(when: Union[When, str]) -> str:
    """A time in the form of the API's JSON; a number means seconds from now."""
    if isinstance(when, str):
        return when
    if not isinstance(when, datetime.datetime):
        when = datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(seconds=when)
    return when.astimezone(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def _user() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError, ImportError):
        return ""


def _token() -> Optional[str]:
    path = os.environ.get("CONDUCTORD_TOKEN_FILE")
    if not path:
        return os.environ.get("CONDUCTORD_TOKEN")
    with open(path, "rb") as file:
        found = os.fstat(file.fileno())
        if os.name == "posix" and stat.S_IMODE(found.st_mode) & 0o077:
            raise Invalid("cannot use the token in %s: others can read it: chmod 600 %s" % (path, path))
        if found.st_size > MAX_TOKEN:
            raise Invalid("cannot use %s: a token has at most %d bytes, and this file has %d" % (path, MAX_TOKEN, found.st_size))
        return file.read().decode("utf-8").strip()


def _tls(ca: Optional[str], cert: Optional[str], key: Optional[str]) -> Optional[ssl.SSLContext]:
    if not (ca or cert or key):
        return None
    if bool(cert) != bool(key):
        raise Invalid("cert and key are one without the other: give both")
    context = ssl.create_default_context(cafile=ca)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    if cert:
        context.load_cert_chain(cert, key)
    return context


def _read_document(path: Union[str, "os.PathLike[str]"]) -> Mapping[str, Any]:
    with open(path, "rb") as file:
        text = file.read().decode("utf-8")
    if not os.fspath(path).endswith(".toml"):
        return json.loads(text)
    try:
        import tomllib
    except ImportError as error:
        raise Invalid("cannot read %s: TOML needs Python 3.11; write the document as JSON" % (path,)) from error
    return tomllib.loads(text)
