import ast
import dataclasses
import pathlib
import sys
import unittest
from typing import Any, Dict, List, Literal, Optional, Union

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from conductord import BadArgument, Context, FailureRecord  # noqa: E402
from conductord.arguments import Signature, convert  # noqa: E402


@dataclasses.dataclass
class Size:
    width: int
    height: int = 100
    names: List[str] = dataclasses.field(default_factory=list)


class Hints(unittest.TestCase):
    def test_fit(self):
        for value, hint, want in [
            (1, int, 1), (3.0, int, 3), (2**70, int, 2**70), (1, float, 1.0), (1.5, float, 1.5), ("ü", str, "ü"), (True, bool, True),
            ([1], list, [1]), ([1, 2], List[int], [1, 2]), ({"a": 1}, dict, {"a": 1}), ({"a": 1}, Dict[str, float], {"a": 1.0}),
            (None, Optional[int], None), (5, Optional[int], 5), (None, type(None), None), (object, Any, object),
            (1, Union[float, int], 1), ("a", Literal["a", "b"], "a"), ({"width": 5}, Size, Size(5)),
            ([{"width": 5, "names": ["x"]}], List[Size], [Size(5, names=["x"])]), ({"a": None}, Dict[str, Optional[Size]], {"a": None}),
        ]:
            with self.subTest(value=value, hint=hint):
                got = convert(value, hint)
                self.assertEqual((got, type(got)), (want, type(want)))

    def test_do_not_fit(self):
        for value, hint in [
            (True, int), (1.5, int), ("1", int), (1, str), (1, bool), (True, float), (None, int), ({}, list), ([], dict), (["a"], List[int]),
            ({"a": "b"}, Dict[str, int]), ("x", Optional[int]), ("c", Literal["a", "b"]), (1, Literal[True]), ({}, Size), ({"width": "5"}, Size),
            ({"width": 5, "wdth": 5}, Size), (5, Size), (10**400, float),
        ]:
            with self.subTest(value=value, hint=hint), self.assertRaises(Exception) as caught:
                convert(value, hint)
            self.assertEqual(type(caught.exception).__name__, "_Mismatch")


class Bind(unittest.TestCase):
    def bind(self, function, arguments, given=None):
        return Signature(function, "resize", Context, given is not None).bind(arguments, "context", given)

    def test_by_name(self):
        def resize(width: int, context: Context, from_: str, quality: float = 0.5): ...

        self.assertEqual(self.bind(resize, {"width": 2, "from": "a"}), {"width": 2, "from_": "a", "context": "context"})

    def test_the_rest(self):
        self.assertEqual(self.bind(lambda a, **rest: 0, {"a": 1, "b-c": 2}), {"a": 1, "b-c": 2})

    def test_failures_name_the_argument_and_both_types(self):
        def resize(sizes: List[Size], name: str = ""): ...

        for arguments, want in [
            ({}, 'the step does not give the argument "sizes" of "resize", of the type List[%s.Size]' % __name__),
            ({"sizes": [{"width": "wide"}]}, 'the argument "sizes[0].width" of "resize" is of the type str, and must be int'),
            ({"sizes": [], "name": None}, 'the argument "name" of "resize" is of the type NoneType, and must be str'),
            ({"sizes": [], "nam": "x"}, 'the step gives the argument "nam", which "resize" does not take'),
        ]:
            with self.subTest(want), self.assertRaises(BadArgument) as caught:
                self.bind(resize, arguments)
            self.assertEqual(str(caught.exception), want)
            self.assertEqual((caught.exception.kind, caught.exception.permanent), ("bad_argument", True))

    def test_revert(self):
        def undo(width: int, result: Optional[Size], failure: Optional[FailureRecord], failures: Dict[str, FailureRecord]): ...

        given = {"result": {"width": 5}, "failure": None, "failures": {}}
        self.assertEqual(self.bind(undo, {"width": 1, "other": 2}, given), {"width": 1, "result": Size(5), "failure": None, "failures": {}})
        self.assertEqual(self.bind(lambda result: 0, {}, {"result": None}), {"result": None})

    def test_refused_when_declared(self):
        def positional(*values): ...
        def of_bytes(data: bytes): ...
        def of_keys(data: Dict[int, str]): ...

        for function in (positional, of_bytes, of_keys):
            with self.subTest(function.__name__), self.assertRaises(TypeError):
                Signature(function, "resize", Context)


class Floor(unittest.TestCase):
    def test_syntax_of_python_3_9(self):
        files = [p for folder in ("conductord", "examples", "tests") for p in (ROOT / folder).glob("*.py")]
        self.assertGreater(len(files), 10)
        for path in files:
            ast.parse(path.read_text("utf-8"), str(path), feature_version=(3, 9))


if __name__ == "__main__":
    unittest.main()
