# SPDX-License-Identifier: Apache-2.0
"""Every error code is an exception of its own, with the same next step as in C++."""

import ast
import builtins
import inspect
import pathlib
import pickle
import unittest

import weft
from weft import _weft


class Errors(unittest.TestCase):
    def test_every_code_has_its_class_and_next_step(self):
        native = {code: step for code, _, step in _weft.error_codes()}
        python = {code: kind.next_step for code, kind in weft.errors.BY_CODE.items()}
        self.assertEqual(python, native)

    def test_error_carries_stage_native_and_detail(self):
        error = weft.errors.make_error("io_failed", "apply", 5, "disk gone")
        self.assertIsInstance(error, weft.errors.IoFailedError)
        self.assertIsInstance(error, OSError)
        self.assertEqual((error.code, error.stage, error.native, error.detail, error.next_step),
                         ("io_failed", "apply", 5, "disk gone", "report"))
        self.assertEqual(str(error), "io_failed (apply): disk gone [native 5]")

    def test_builtin_kinds_are_kept(self):
        for kind, base in ((weft.errors.TimeoutError, builtins.TimeoutError),
                           (weft.errors.PeerLostError, ConnectionError), (weft.errors.ConfigError, ValueError),
                           (weft.errors.DeniedError, PermissionError)):
            self.assertTrue(issubclass(kind, base) and issubclass(kind, weft.Error))

    def test_error_travels_between_processes(self):
        error = pickle.loads(pickle.dumps(weft.errors.make_error("busy", "publish", 0, "later")))
        self.assertEqual((error.code, error.stage, error.detail), ("busy", "publish", "later"))

    def test_refused_argument_says_what_and_where(self):
        with self.assertRaises(weft.errors.ConfigError) as caught:
            weft.Publisher(base="/there/is/no/such/directory")
        self.assertEqual(caught.exception.code, "config")
        self.assertIn("coordinator", str(caught.exception))


class Stubs(unittest.TestCase):
    """The stub says what the native part has: names, methods, parameters."""

    def setUp(self):
        package = pathlib.Path(weft.__file__).parent
        self.assertTrue((package / "py.typed").exists())
        self.tree = ast.parse((package / "_weft.pyi").read_text(encoding="utf-8"))

    @staticmethod
    def public(names):
        return {name for name in names if not name.startswith("_") or name in ("__iter__", "__next__", "__enter__",
                                                                               "__exit__", "__getitem__", "__len__")}

    def test_names_of_the_module_and_its_classes(self):
        stubbed = {node.name: node for node in self.tree.body if isinstance(node, (ast.ClassDef, ast.FunctionDef))}
        self.assertEqual(self.public(stubbed), self.public(vars(_weft)))
        for name, node in stubbed.items():
            if isinstance(node, ast.ClassDef):
                with self.subTest(kind=name):
                    members = {each.name for each in node.body if isinstance(each, ast.FunctionDef)}
                    self.assertEqual(self.public(members), self.public(vars(getattr(_weft, name))))

    def test_everything_public_is_documented(self):
        for name in weft.__all__:
            self.assertTrue(inspect.getdoc(getattr(weft, name)), name)
        for kind in (weft.Publisher, weft.Refit):
            for name in self.public(vars(kind)):
                if callable(getattr(kind, name)) and not name.startswith("__"):
                    self.assertGreater(len(getattr(kind, name).__doc__.splitlines()), 1, f"{kind}.{name}")

    def test_parameters_are_those_of_the_native_part(self):
        for node in ast.walk(self.tree):
            if not isinstance(node, ast.ClassDef):
                continue
            for each in node.body:
                if not isinstance(each, ast.FunctionDef) or each.name.startswith("__") and each.name != "__init__":
                    continue
                if any(isinstance(mark, ast.Name) and mark.id == "property" for mark in each.decorator_list):
                    continue
                signature = getattr(getattr(_weft, node.name), each.name).__doc__.splitlines()[0]
                for argument in each.args.args[1:] + each.args.kwonlyargs:
                    self.assertIn(f"{argument.arg}: ", signature, f"{node.name}.{each.name}")


if __name__ == "__main__":
    unittest.main(verbosity=2)
