"""A board of conductord as a jobboard of TaskFlow."""

from __future__ import annotations

import threading
import time
from typing import Any, Dict, Optional

from conductord import Client, ConductordError, Conflict, Fenced, Invalid, NotFound, OverLimit, SessionExpired, Unclaimable, new_id
from conductord.client import duration
from conductord.errors import of_detail
from taskflow import exceptions as exc
from taskflow import logging, states
from taskflow.jobs import base

from .claim import FIRST_PAUSE, Claim, abandoned, held, posting_book
from .errors import as_json, translated
from .iterator import PAGE, JobIterator
from .job import PRIORITIES, Job, posting_of, state_of
from .owner import Owners
from .settings import Settings
from .watcher import Watcher

LOG = logging.getLogger(__name__)

LOOK_TIME = 10.0  # seconds between reads of the board while no event arrives
STORAGE_PAUSE = 1.0  # seconds until a job whose logbook could not be written can be claimed again

# Outcomes of jobs by TaskFlow's state of their flow; others are a success.
OUTCOMES = {states.REVERTED: "reverted", states.FAILURE: "failed"}


class Board(base.NotifyingJobBoard):
    """A jobboard on conductord.

    A claim belongs to a session. The board keeps the session alive until the board is closed, and does not extend claims.
    Each ending carries the fencing token of the claim, so an owner that was lost cannot end the job of the
    next owner. Threads may share a board.
    """

    def __init__(self, name: str, conf: Any, client: Optional[Client] = None, persistence: Any = None, emit_notifications: bool = True):
        super().__init__(name, conf)
        settings = Settings(conf, "board")
        self.board, self.kind = settings.board, settings.kind
        self._settings, self._given, self._persistence, self._emit = settings, client, persistence, emit_notifications
        self._lock = threading.RLock()
        self._client: Optional[Client] = None
        self._owners: Optional[Owners] = None
        self._watcher: Optional[Watcher] = None

    @property
    def connected(self) -> bool:
        return self._client is not None

    def connect(self) -> None:
        with self._lock:
            self.close()
            client = self._given or self._settings.client()
            with translated(exc.JobFailure, "connect to board %s" % self.board):
                client.call("BoardService/ListBoards", {"limit": 1}, reads=True)
            self._client = client
            self._owners = Owners(client, self._settings.ttl)
            self._watcher = Watcher(client, self.board, self.kind, self._tell)
            self._watcher.wait_begun()

    def close(self) -> None:
        with self._lock:
            client, owners, watcher = self._client, self._owners, self._watcher
            self._client = self._owners = self._watcher = None
            if watcher is not None:
                watcher.close()
            if owners is not None:
                owners.close()
            if client is not None and client is not self._given:
                client.close()

    def call(self, method: str, request: Dict[str, Any], **how: Any) -> Dict[str, Any]:
        """Make a call. JobFailure if the board is not connected."""
        client = self._client
        if client is None:
            raise exc.JobFailure("board %s is not connected: call connect() first" % self.name)
        return client.call(method, request, **how)

    def job(self, row: Dict[str, Any], book: Any = None) -> Job:
        """The job of a row in the form of docs/protocol.md."""
        return Job(self, row, backend=self._persistence, book=book)

    @property
    def job_count(self) -> int:
        with translated(exc.JobFailure, "count the jobs of board %s" % self.board):
            try:
                counts = self.call("BoardService/GetBoard", {"board": self.board}, reads=True)["board"].get("counts", {})
            except NotFound:
                return 0  # a board exists only after its first job
        kinds = [k for k in counts.get("kinds", []) if k["kind"] == self.kind]
        return sum(int(n) for k in kinds for state, n in k.get("jobs", {}).items() if state not in ("completed", "trashed"))

    def iterjobs(self, only_unclaimed: bool = False, ensure_fresh: bool = False) -> JobIterator:
        # Lists are always fresh: reads are linearizable.
        if not self.connected:
            raise exc.JobFailure("board %s is not connected: call connect() first" % self.name)
        return JobIterator(self, only_unclaimed=only_unclaimed, ensure_fresh=ensure_fresh)

    def wait(self, timeout: Optional[float] = None) -> JobIterator:
        """Wait for a job that can be claimed, and is not in a pause of this process. NotFound after
        ``timeout`` seconds."""
        until = None if timeout is None else time.monotonic() + timeout
        query = {"board": self.board, "kind": self.kind, "states": ["claimable"], "order": "claim"}
        while True:
            watcher = self._watcher
            count = watcher.count() if watcher is not None else 0
            with translated(exc.JobFailure, "wait for jobs of board %s" % self.board):
                listed = self.call("BoardService/ListJobs", dict(query, limit=min(PAGE, abandoned.count() + 1)), reads=True)
            pauses = [abandoned.pause(row["id"]) for row in listed.get("jobs", [])]
            if not all(pauses):
                return self.iterjobs()
            left = LOOK_TIME if until is None else until - time.monotonic()
            if left <= 0:
                raise exc.NotFound("no job was claimable within %g seconds" % (timeout or 0))
            if watcher is not None:
                watcher.wait(count, min([left, LOOK_TIME] + pauses))

    def find_owner(self, job: Job) -> Optional[str]:
        row = job.refresh()
        return row["claim"]["owner"] if row["state"] == "claimed" else None

    def post(self, name: str, book: Any = None, details: Optional[Dict[str, Any]] = None,
             priority: Any = base.JobPriority.NORMAL, uuid: Optional[str] = None) -> Job:
        """Post a job. With ``uuid``, a repeat of the same posting creates no second job."""
        number = PRIORITIES[base.JobPriority.convert(priority)]
        posting: Dict[str, Any] = {"details": details or {}}
        if book is not None:
            posting["book"] = {"name": book.name, "uuid": book.uuid}
        # A repeat after a lost answer has the same id, and creates no second job.
        request = {"id": uuid or new_id(), "board": self.board, "kind": self.kind, "name": name, "priority": number, "details": as_json(posting),
                   "max_crashes": self._settings.max_crashes}
        with translated(exc.JobFailure, "post job %s" % name):
            verdict = self.call("BoardService/Post", {"postings": [request], "brief": True})["posted"][0]
            if "error" in verdict:
                raise of_detail(verdict["error"])
        return self.job(dict(verdict["job"], details=request["details"]), book=book)

    @base.check_who
    def claim(self, job: Job, who: str, expiry: Optional[float] = None) -> None:
        """Claim a job for a name. With ``expiry``, the claim ends after that many seconds unless
        ``job.extend_expiry`` is called; otherwise it ends with the session that the board keeps alive."""
        if expiry is not None and expiry <= 0:
            raise ValueError("the expiry is %s: it must be above zero" % expiry)
        before = held.of_job(job.uuid)
        if before is not None and before.ended() and not before.ending:
            # The engine of the lost claim can still run. Its writes and its end would apply to the new claim.
            raise exc.UnclaimableJob("cannot claim job %s: this process lost its claim, and its work on the job has not ended; "
                                     "end it with consume, abandon or trash" % job.uuid)
        pause = abandoned.pause(job.uuid, who)
        if pause:
            raise exc.UnclaimableJob("cannot claim job %s: %s abandoned it several times in a row, and its pause lasts %.1f s" % (job.uuid, who, pause))
        claimed, owner = self._grant(job, who)
        row = claimed["job"]
        try:
            posting = posting_of(row.get("details"))
        except exc.JobFailure as error:
            self._end("Trash", row, {"reason": str(error)})
            raise exc.UnclaimableJob("job %s is in the trash: %s" % (job.uuid, error))
        claim = Claim(job.uuid, who, row["claim"]["token"], owner, posting_book(posting))
        held.add(claim)
        job.note(row)
        if expiry is not None:
            self.extend(claim, expiry)

    @base.check_who
    def consume(self, job: Job, who: str) -> None:
        """Complete a job. Its outcome follows from the state of its flow, if the logbook is on conductord too.

        TaskFlow's conductors also consume a job whose logbook could not be written. Such a job is abandoned, or
        trashed if no repeat can help, and the call raises JobFailure.
        """
        claim = held.of_job(job.uuid)
        failed = next((error for _, error in claim.unsaved.values()), None) if claim is not None else None
        if failed is not None:
            reason = "its logbook could not be written: " + failed.message
            if isinstance(failed, (Invalid, OverLimit)):
                self._finish("Trash", job, who, {"reason": reason})
            else:
                failure = {"kind": "storage", "message": reason}
                self._finish("Abandon", job, who, {"reason": reason, "failure": failure, "delay": duration(STORAGE_PAUSE)})
            raise exc.JobFailure("cannot consume job %s: %s" % (job.uuid, reason))
        state = claim.flow_state if claim is not None else None
        self._finish("Consume", job, who, {"outcome": OUTCOMES.get(state or "", "success")})

    @base.check_who
    def abandon(self, job: Job, who: str) -> None:
        self._finish("Abandon", job, who, {})

    @base.check_who
    def trash(self, job: Job, who: str) -> None:
        self._finish("Trash", job, who, {"reason": "trashed by %s" % who})

    def extend(self, claim: Claim, expiry: float) -> None:
        """Give a claim its own time to live, from now."""
        sent = claim.owner.clock()
        with translated(exc.JobFailure, "extend the claim of job %s" % claim.job):
            try:
                self.call("BoardService/Extend", {"job": claim.job, "token": claim.token, "expiry": duration(expiry)})
                claim.expires = sent + expiry
            except Fenced:
                claim.lost = True

    def register_entity(self, entity: Any) -> None:
        if entity.kind != "conductor":
            raise exc.NotImplementedError("only conductors can be registered, and this entity is a %r" % entity.kind)
        # A conductor names its entity NAME@HOST:PID, and claims as NAME.
        name = entity.name.rpartition("@")[0] or entity.name
        metadata = as_json(dict(entity.metadata or {}))
        row = {"kind": entity.kind, "name": entity.name, "boards": [self.board], "job_kinds": [self.kind], "metadata": metadata,
               "host": str(metadata.get("hostname", "")), "pid": metadata.get("pid", 0)}
        with translated(exc.JobFailure, "register %s" % entity.name):
            self._owners_now().register(name, row)

    def _owners_now(self) -> Owners:
        owners = self._owners
        if owners is None:
            raise exc.JobFailure("board %s is not connected: call connect() first" % self.name)
        return owners

    def _grant(self, job: Job, who: str) -> Any:
        """Claim a job, with a new session if the session was lost."""
        request = {"job": job.uuid, "nonce": new_id()}
        for last in (False, True):
            with translated(exc.JobFailure, "claim job %s" % job.uuid):
                owner = self._owners_now().get(who)
                try:
                    return self.call("BoardService/Claim", dict(request, session=owner.session))["claimed"], owner
                except SessionExpired:
                    owner.lose()
                    if last:
                        raise
                except (Unclaimable, Conflict) as error:
                    exc.raise_with_cause(exc.UnclaimableJob, "cannot claim job %s: %s" % (job.uuid, error.message), cause=error)

    def _finish(self, verb: str, job: Job, who: str, fields: Dict[str, Any]) -> None:
        """End the claim that this process holds for a name."""
        action = verb.lower()
        claim = held.of_job(job.uuid)
        if claim is None:
            self._refuse(action, job, who)
        elif claim.who != who:
            raise exc.JobFailure("cannot %s job %s: it is owned by %s, not by %s" % (action, job.uuid, claim.who, who))
        elif verb != "Abandon" and claim.ended():
            # The cluster may keep the claim a little longer, but the work was cut off.
            held.remove(claim, lost=True)
            raise exc.JobFailure("cannot %s job %s: the session of %s is lost" % (action, job.uuid, who))
        else:
            claim.ending = True
            try:
                self._end(verb, {"id": job.uuid, "token": claim.token}, fields)
            except Fenced as error:
                held.remove(claim, lost=True)
                exc.raise_with_cause(exc.JobFailure, "cannot %s job %s: the claim of %s is lost, and another owner can have the job"
                                     % (action, job.uuid, who), cause=error)
            except ConductordError as error:
                # The claim stays: a repeat is harmless.
                kind = exc.NotFound if isinstance(error, NotFound) else exc.JobFailure
                exc.raise_with_cause(kind, "cannot %s job %s: %s" % (action, job.uuid, error.message), cause=error)
            held.remove(claim)
            if verb != "Abandon":
                abandoned.remove(job.uuid)
            elif abandoned.add(job.uuid, who) == FIRST_PAUSE:
                LOG.warning("Job %s was abandoned twice by %s, which pauses before each further claim", job, who)

    def _end(self, verb: str, row: Dict[str, Any], fields: Dict[str, Any]) -> None:
        self.call("BoardService/" + verb, dict(fields, job=row["id"], token=row.get("token") or row["claim"]["token"]))

    def _refuse(self, action: str, job: Job, who: str) -> None:
        """Raise the error for the end of a claim that this process does not hold."""
        row = job.refresh()
        state = state_of(row)
        if state == states.COMPLETE:
            raise exc.NotFound("cannot %s job %s: it is %s" % (action, job.uuid, row["state"]))
        if state == states.UNCLAIMED:
            raise exc.NotFound("cannot %s job %s: it has no owner" % (action, job.uuid))
        raise exc.JobFailure("cannot %s job %s: it is claimed by %s, and not by this process as %s"
                             % (action, job.uuid, row["claim"]["owner"], who))

    def _tell(self, event: Dict[str, Any]) -> None:
        kinds = {"posted": base.POSTED, "completed": base.REMOVAL, "trashed": base.REMOVAL}
        kind = kinds.get(event["kind"])
        if kind is not None and self._emit:
            self.notifier.notify(kind, {"job": self.job({"id": event["job"], "name": event.get("name", "")})})
