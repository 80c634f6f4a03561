"""Logbooks of TaskFlow in the logbook of conductord.

A logbook is a book. The logbook itself, each flow detail and each atom detail is one row of this book: a
flow detail of conductord that stays pending, has the id of TaskFlow's detail, and has TaskFlow's dict as the
value ``detail`` of its meta. So each state of an atom is one small write, each detail can be read by its id,
and a whole logbook is one read. TaskFlow's states do not become states of conductord: TaskFlow changes them
in ways that conductord's transitions exclude, and the values would not be those that TaskFlow has written.
"""

from __future__ import annotations

from typing import Any, Dict, Iterator, List, Optional

from conductord import Client, ConductordError, OverLimit
from oslo_serialization import jsonutils
from taskflow import exceptions as exc
from taskflow import states
from taskflow.persistence import base, models
from taskflow.storage import Storage

from .claim import Claim, held
from .errors import as_json, translated
from .ids import row_id
from .settings import Settings

MARK = {"taskflow": 1}  # meta of a book with a logbook
MAX_WRITE = 700 << 10  # bytes of details in one write; the cluster's limit is 1 MiB
BOOK, FLOW = "taskflow.book", "taskflow.flow"
ATOMS = {"TASK_DETAIL": "taskflow.task", "RETRY_DETAIL": "taskflow.retry"}

Row = Dict[str, Any]


class Backend(base.Backend):
    """A persistence backend on conductord."""

    def __init__(self, conf: Any, client: Optional[Client] = None):
        super().__init__(conf)
        settings = Settings(conf, "connection")
        self.board = settings.board
        self._given = client
        self._settings = settings
        self.client = client or settings.client()

    def get_connection(self) -> "Connection":
        return Connection(self)

    def close(self) -> None:
        if self._given is None:
            self.client.close()


class Connection(base.Connection):
    """A connection. Threads may share it."""

    def __init__(self, backend: Backend):
        self._backend = backend

    @property
    def backend(self) -> Backend:
        return self._backend

    def close(self) -> None:
        """Nothing to close: the backend has the client."""

    def upgrade(self) -> None:
        """There is nothing to migrate."""

    def validate(self) -> None:
        self._call("use the logbooks", "ListBooks", {"limit": 1}, reads=True)

    def clear_all(self) -> None:
        for book in list(self._books()):
            try:
                self._call("destroy logbook %s" % book["name"], "DestroyBook", {"book": book["id"]})
            except exc.NotFound:
                pass  # another program was faster

    def save_logbook(self, book: models.LogBook) -> models.LogBook:
        rows = [_row(BOOK, book.uuid, book.name, book.to_dict(marshal_time=True), {})]
        for flow in book:
            rows += _flow_rows(flow)
        self._save(row_id(book.uuid), book.name, rows)
        return book

    def update_flow_details(self, flow_detail: models.FlowDetail) -> models.FlowDetail:
        row = self._get(flow_detail.uuid, "flow detail", FLOW)
        self._save(row["book"], row["factory"]["args"]["book"], _flow_rows(flow_detail))
        return flow_detail

    def update_atom_details(self, atom_detail: models.AtomDetail) -> models.AtomDetail:
        row = self._get(atom_detail.uuid, "atom detail", *ATOMS.values())
        args = row["factory"]["args"]
        self._save(row["book"], args["book"], [_atom_row(atom_detail, args["flow"])])
        return atom_detail

    def destroy_logbook(self, book_uuid: str) -> None:
        self._call("destroy logbook %s" % book_uuid, "DestroyBook", {"book": row_id(book_uuid)})

    def get_logbook(self, book_uuid: str, lazy: bool = False) -> models.LogBook:
        rows = self._rows(book_uuid)
        heads = [row for row in rows if row["factory"]["name"] == BOOK]
        if not heads:
            raise exc.NotFound("book %s is not a logbook of TaskFlow" % book_uuid)
        book = models.LogBook.from_dict(_detail(heads[0]), unmarshal_time=True)
        if not lazy:
            for flow in _flows(rows):
                book.add(flow)
            book.updated_at = models._safe_unmarshal_time(_detail(heads[0])["updated_at"])
        return book

    def get_logbooks(self, lazy: bool = False) -> Iterator[models.LogBook]:
        for book in self._books():
            try:
                yield self.get_logbook(book["id"], lazy=lazy)
            except exc.NotFound:
                pass  # destroyed since it was listed

    def get_flows_for_book(self, book_uuid: str) -> Iterator[models.FlowDetail]:
        return iter(_flows(self._rows(book_uuid)))

    def get_flow_details(self, fd_uuid: str, lazy: bool = False) -> models.FlowDetail:
        row = self._get(fd_uuid, "flow detail", FLOW)
        if lazy:
            return models.FlowDetail.from_dict(_detail(row))
        return next(flow for flow in _flows(self._rows(row["book"])) if flow.uuid == fd_uuid)

    def get_atom_details(self, ad_uuid: str) -> models.AtomDetail:
        return _atom(self._get(ad_uuid, "atom detail", *ATOMS.values()))

    def get_atoms_for_flow(self, fd_uuid: str) -> Iterator[models.AtomDetail]:
        return iter(list(self.get_flow_details(fd_uuid)))

    def _call(self, action: str, method: str, request: Row, **how: Any) -> Row:
        with translated(exc.StorageFailure, action):
            return self._backend.client.call("LogbookService/" + method, request, **how)

    def _books(self) -> Iterator[Row]:
        query: Row = {}
        while True:
            page = self._call("list the logbooks", "ListBooks", query, reads=True)
            yield from (b for b in page.get("books", []) if b.get("meta") == MARK and b.get("board") == self._backend.board)
            if not page.get("next"):
                return
            query = {"after": page["next"]}

    def _rows(self, book_uuid: str) -> List[Row]:
        rows: List[Row] = []
        while True:
            answer = self._call("read logbook %s" % book_uuid, "GetBook", {"id": row_id(book_uuid), "skip": len(rows)}, reads=True)
            part = answer["book"].get("flows", [])
            rows += part
            if not answer.get("more"):
                return rows

    def _get(self, id: str, what: str, *kinds: str) -> Row:
        row = self._call("find %s %s" % (what, id), "GetFlow", {"id": row_id(id)}, reads=True)["flow"]
        if row["factory"]["name"] not in kinds:
            raise exc.NotFound("%s is not the id of a TaskFlow %s, but of a %s" % (id, what, row["factory"]["name"]))
        return row

    def _save(self, book: str, name: str, rows: List[Row]) -> None:
        """Write rows, in as few calls as the limit of one write allows. The row of the logbook comes first."""
        claim = held.of_book(book)
        if claim is not None and claim.ended():
            # TaskFlow repeats a write for 10 s after a StorageFailure, and a lost claim does not come back.
            raise exc.JobFailure("cannot write to logbook %s: the claim of %s on job %s is lost, and another owner can have the job"
                                     % (book, claim.who, claim.job))
        for part in _parts(rows):
            for row in part:
                row["book"] = book
                row["factory"]["args"]["book"] = name
            request = {"id": book, "name": name, "meta": MARK, "board": self._backend.board, "flows": part}
            with translated(exc.StorageFailure, "save logbook %s" % name):
                try:
                    self._backend.client.call("LogbookService/SaveBook", request)
                except ConductordError as error:
                    _note(claim, part, error)
                    if isinstance(error, OverLimit):
                        exc.raise_with_cause(exc.StorageFailure, "cannot save logbook %s: %s. Keep large results elsewhere, and return "
                                             "their address" % (name, error.message), cause=error)
                    raise
            _note(claim, part, None)


def _note(claim: Optional[Claim], rows: List[Row], error: Optional[ConductordError]) -> None:
    """Tell the claim on the job of a logbook what was written, because the end of the job depends on it."""
    if claim is None:
        return
    for row in rows:
        id, detail = row["id"], _detail(row)
        if error is not None:
            claim.unsaved[id] = (detail, error)
        elif id in claim.unsaved and claim.unsaved[id][0] == detail:
            del claim.unsaved[id]  # the repeat of a failed write
        if error is None and row["factory"]["name"] == FLOW:
            claim.flow_state = detail["state"]
            if claim.flow_state in (states.SUCCESS, states.REVERTED):
                claim.unsaved.clear()  # the engine coped with the failed writes


def _row(kind: str, id: str, name: str, detail: Row, args: Row) -> Row:
    return {"id": row_id(id), "name": name or id, "factory": {"name": kind, "args": args}, "meta": {"detail": as_json(detail)}, "state": "pending"}


def _atom_row(atom: models.AtomDetail, flow: str) -> Row:
    return _row(ATOMS[models.atom_detail_type(atom)], atom.uuid, atom.name, atom.to_dict(), {"flow": flow})


def _flow_rows(flow: models.FlowDetail) -> List[Row]:
    return [_row(FLOW, flow.uuid, flow.name, flow.to_dict(), {})] + [_atom_row(atom, flow.uuid) for atom in flow]


def _parts(rows: List[Row]) -> Iterator[List[Row]]:
    part: List[Row] = []
    size = 0
    for row in rows:
        length = len(jsonutils.dump_as_bytes(row))
        if part and size + length > MAX_WRITE:
            yield part
            part, size = [], 0
        part.append(row)
        size += length
    if part:
        yield part


def _detail(row: Row) -> Row:
    return row["meta"]["detail"]


def _atom(row: Row) -> models.AtomDetail:
    types = {kind: type for type, kind in ATOMS.items()}
    atom = models.atom_detail_class(types[row["factory"]["name"]]).from_dict(_detail(row))
    if atom.name == Storage.injector_name and atom.results is None:
        # TaskFlow saves the detail of the store first, and its values in a second write. If the process dies
        # between these writes, TaskFlow cannot build the engine again: it adds the values to None.
        atom.results, atom.state = {}, states.SUCCESS
    return atom


def _flows(rows: List[Row]) -> List[models.FlowDetail]:
    flows = {}
    for row in rows:
        if row["factory"]["name"] == FLOW:
            flow = models.FlowDetail.from_dict(_detail(row))
            flows[flow.uuid] = flow
    for row in rows:
        if row["factory"]["name"] in ATOMS.values():
            flows[row["factory"]["args"]["flow"]].add(_atom(row))
    return list(flows.values())

