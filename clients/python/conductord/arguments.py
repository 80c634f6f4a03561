"""The arguments of a step's function, by name, checked against its type hints."""

from __future__ import annotations

import dataclasses
import inspect
import keyword
import types
import typing
from typing import Any, Callable, Dict, List, Mapping, Optional

from .outcome import BadArgument

_PLAIN = (bool, int, float, str, list, dict, type(None))
_GIVEN = ("result", "failure", "failures")  # parameters of a revert, besides the arguments


class Signature:
    """The parameters of a function, filled from the arguments of a step. The parameter ``from_``
    takes the argument ``from``: an underscore follows keywords of Python. A parameter ``**name``
    takes all other arguments.
    """

    def __init__(self, function: Callable[..., Any], step: str, context: type, reverts: bool = False):
        self._step, self._reverts = step, reverts
        self._context: List[str] = []
        self._hints: Dict[str, Any] = {}
        self._required: List[str] = []
        self._rest = False
        hints = typing.get_type_hints(function)
        for name, parameter in inspect.signature(function).parameters.items():
            hint = hints.get(name, Any)
            if parameter.kind is parameter.VAR_KEYWORD:
                self._rest = True
                continue
            if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.VAR_POSITIONAL):
                raise TypeError("the parameter %s of %s cannot be given by name" % (name, function.__qualname__))
            if hint is context:
                self._context.append(name)
                continue
            if not (reverts and name in ("failure", "failures")):
                _must_know(hint, "the parameter %s of %s" % (name, function.__qualname__))
            self._hints[name] = hint
            if parameter.default is parameter.empty:
                self._required.append(name)

    def bind(self, arguments: Mapping[str, Any], context: Any, given: Optional[Mapping[str, Any]] = None) -> Dict[str, Any]:
        """Make the keyword arguments of a call. BadArgument: they do not fit the hints."""
        bound: Dict[str, Any] = {name: context for name in self._context}
        left = dict(arguments)
        for name, hint in self._hints.items():
            source = name[:-1] if name.endswith("_") and keyword.iskeyword(name[:-1]) else name
            if given is not None and name in _GIVEN:
                value = given[name]
                # Null: the execution has failed, or its result is unknown.
                bound[name] = self._convert("result", hint, value) if name == "result" and value is not None else value
                left.pop(name, None)
            elif source in left:
                bound[name] = self._convert(source, hint, left.pop(source))
            elif name in self._required:
                raise BadArgument('the step does not give the argument "%s" of "%s", of the type %s' % (source, self._step, type_name(hint)))
        if self._rest:
            bound.update(left)
        elif left and not self._reverts:
            raise BadArgument('the step gives the argument "%s", which "%s" does not take' % (min(left), self._step))
        return bound

    def _convert(self, name: str, hint: Any, value: Any) -> Any:
        try:
            return convert(value, hint)
        except _Mismatch as found:
            raise BadArgument('the argument "%s%s" of "%s" is of the type %s, and must be %s'
                              % (name, found.path, self._step, found.got, found.want)) from None


class _Mismatch(Exception):
    def __init__(self, got: str, want: str, path: str = ""):
        super().__init__(got, want)
        self.got, self.want, self.path = got, want, path

    def below(self, path: str) -> _Mismatch:
        return _Mismatch(self.got, self.want, path + self.path)


def convert(value: Any, hint: Any) -> Any:
    """Check a value from JSON against a hint, and convert it to the hinted type."""
    if hint is Any or hint is object or hint is inspect.Parameter.empty:
        return value
    origin, parts = typing.get_origin(hint), typing.get_args(hint)
    if _is_union(origin):
        return _convert_union(value, hint, parts)
    if origin is typing.Literal:
        if any(type(value) is type(p) and value == p for p in parts):
            return value
        raise _Mismatch("%s (%.100r)" % (type(value).__name__, value), type_name(hint))
    if dataclasses.is_dataclass(hint):
        return _convert_dataclass(value, hint)
    want = origin or hint
    if want is type(None) or hint is None:
        want = type(None)
    if want is float and type(value) is int:
        return float(value) if abs(value) <= 1 << 1000 else _mismatch(value, hint)
    if want is int and type(value) is float and value.is_integer() and abs(value) <= 1 << 53:
        return int(value)  # JSON has one kind of number: some writers say 3.0
    if type(value) is not want:
        raise _Mismatch(type(value).__name__, type_name(hint))
    if want is list and parts:
        return [_inner(v, parts[0], "[%d]" % i) for i, v in enumerate(value)]
    if want is dict and parts:
        return {k: _inner(v, parts[1], ".%s" % k) for k, v in value.items()}
    return value


def type_name(hint: Any) -> str:
    """The name of a type, for messages."""
    if typing.get_origin(hint) is None and isinstance(hint, type):
        return "None" if hint is type(None) else hint.__name__
    return str(hint).replace("typing.", "")


def _mismatch(value: Any, hint: Any) -> Any:
    raise _Mismatch(type(value).__name__, type_name(hint))


def _inner(value: Any, hint: Any, path: str) -> Any:
    try:
        return convert(value, hint)
    except _Mismatch as found:
        raise found.below(path) from None


def _convert_union(value: Any, hint: Any, parts: Any) -> Any:
    found: Optional[_Mismatch] = None
    # An exact type first: 1 of Union[float, int] stays an int.
    for part in sorted(parts, key=lambda p: type(value) is not p):
        try:
            return convert(value, part)
        except _Mismatch as mismatch:
            if mismatch.path:
                found = mismatch
    raise found or _Mismatch(type(value).__name__, type_name(hint))


def _convert_dataclass(value: Any, hint: Any) -> Any:
    if type(value) is not dict:
        raise _Mismatch(type(value).__name__, "%s, an object" % type_name(hint))
    hints, made = typing.get_type_hints(hint), {}
    fields = {f.name: f for f in dataclasses.fields(hint) if f.init}
    for name in value:
        if name not in fields:
            raise _Mismatch("an unknown field", "a field of %s" % type_name(hint), "." + name)
    for name, field in fields.items():
        if name in value:
            made[name] = _inner(value[name], hints[name], "." + name)
        elif field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING:
            raise _Mismatch("nothing", type_name(hints[name]), "." + name)
    return hint(**made)


def _is_union(origin: Any) -> bool:
    return origin is typing.Union or origin is getattr(types, "UnionType", typing.Union)


def _must_know(hint: Any, where: str) -> None:
    """When a step is declared, refuse a hint that cannot be checked against JSON values."""
    origin, parts = typing.get_origin(hint), typing.get_args(hint)
    if hint in (Any, object, None) or origin is typing.Literal:
        return
    if _is_union(origin) or origin is list:
        inner = list(parts)
    elif origin is dict:
        inner = [parts[1]]
        if parts[0] is not str:
            raise TypeError("%s has keys of the type %s; in JSON they are text" % (where, type_name(parts[0])))
    elif dataclasses.is_dataclass(hint):
        hints = typing.get_type_hints(hint)
        inner = [hints[f.name] for f in dataclasses.fields(hint) if hints[f.name] is not hint]
    elif hint in _PLAIN:
        return
    else:
        raise TypeError("%s has the type %s, which JSON has not: use bool, int, float, str, list, dict, Optional, Union, "
                        "Literal or a dataclass" % (where, type_name(hint)))
    for part in inner:
        _must_know(part, where)
