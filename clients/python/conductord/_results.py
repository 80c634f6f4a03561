"""The results of a flow by the names that its steps provide, computed from the recorded definition."""

from __future__ import annotations

import base64
import json
import zlib
from typing import Any, Dict, List, Mapping, Tuple

from .errors import Invalid


def by_symbol(flow: Mapping[str, Any]) -> Dict[str, Any]:
    """The values of a whole flow, as (*FlowDetail).Values of package logbook finds them."""
    if "definition" not in flow:
        return {}
    packed = base64.b64decode(flow["definition"].get("packed", ""))
    if not packed:
        raise Invalid("the definition of flow %s was too long to be kept: read its steps with LogbookService/GetFlow" % flow.get("id"))
    text = zlib.decompress(packed[1:], -zlib.MAX_WBITS) if packed[:1] == b"d" else packed[1:]
    atoms = {atom["name"]: atom for atom in flow.get("atoms", [])}
    values: Dict[str, Any] = {}
    providers: Dict[str, List[str]] = {}
    for step in json.loads(text):
        for source in step.get("o", []):
            known, found = _value(atoms, dict({"n": step["n"]}, **source), "")
            if known:
                symbol, beside, before = source["s"], source.get("b", []), providers.setdefault(source["s"], [])
                values.pop(symbol, None)  # the value of an earlier step
                if found and not (before and "" in beside or set(before) & set(beside)):
                    values[symbol] = found[0]
                before.append(step["n"])
    return values


def _value(atoms: Dict[str, Any], source: Mapping[str, Any], at: str) -> Tuple[bool, List[Any]]:
    """Whether the value of a source is known in the instance ``at``, such as "[3]", and the value
    if any."""
    outer, bracket, index = at.rpartition("[")
    place = source.get("e") or source.get("i")  # of the list behind the last index
    atom = atoms.get(source["n"] + (outer if place else at), {})
    done = [a for a in atom.get("attempts", []) if a.get("action") == "execute"]
    if place and not bracket or atom.get("state") != "success" or not done:
        return atom.get("state") == "ignored" and at != "", []
    result = done[-1].get("result")
    if not place and "l" not in source:
        field = source.get("f")
        return True, [result] if not field else [result[field]] if isinstance(result, dict) and field in result else []
    if source.get("i"):
        return True, [int(index[:-1])]
    if place:
        return True, [result[int(index[:-1])]]
    gathered: List[Any] = []
    for i in range(len(result)):
        known, found = _value(atoms, source["l"], "%s[%d]" % (at, i))
        if not known:
            return False, []
        gathered += found or [None]
    return True, [gathered]
