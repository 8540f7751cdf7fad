"""The shape of the source: lengths, docstrings, printing, names."""

import ast
import re

from tests.tidy.source import Function, functions, python_files, shown, tree

MODULE_LINES_MAX = 600
FUNCTION_LINES_MAX = 60
_VAGUE = re.compile(r"(Manager|Helper|Util|Utils|Impl)$|^_*process_|^(utils?|helpers?)$")


def test_no_module_is_longer_than_six_hundred_lines() -> None:
    lengths = {path: len(path.read_text(encoding="utf-8").splitlines()) for path in python_files()}

    assert [shown(path, n) for path, n in lengths.items() if n > MODULE_LINES_MAX] == []


def test_no_function_is_longer_than_sixty_lines_without_its_docstring() -> None:
    offences = [
        f"{shown(path, function.lineno)} {function.name}: {_length(function)} lines"
        for path in python_files()
        for function in functions(path)
        if _length(function) > FUNCTION_LINES_MAX
    ]

    assert offences == []


def test_every_package_says_in_its_docstring_what_lives_there() -> None:
    inits = [path for path in python_files("src", "spark/src") if path.name == "__init__.py"]

    assert len(inits) > 3
    assert [shown(path) for path in inits if not ast.get_docstring(tree(path))] == []


def test_every_module_of_the_product_opens_with_a_docstring() -> None:
    modules = python_files("src", "spark/src")

    assert [shown(path) for path in modules if not ast.get_docstring(tree(path))] == []


def test_nothing_prints_but_the_command_line_and_the_bench() -> None:
    offences = [
        shown(path, node.lineno)
        for path in python_files("src", "spark/src", "tests")
        for node in ast.walk(tree(path))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id == "print"
    ]

    assert offences == []


def test_no_name_hides_behind_manager_helper_util_or_process() -> None:
    offences = [
        f"{shown(path, node.lineno)} {node.name}"
        for path in python_files("src", "spark/src")
        for node in ast.walk(tree(path))
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        and _VAGUE.search(node.name)
    ]

    assert offences == []


def _length(function: Function) -> int:
    last = function.end_lineno
    assert last is not None
    return last - function.lineno + 1 - _docstring_length(function)


def _docstring_length(function: Function) -> int:
    first = function.body[0]
    if ast.get_docstring(function) is None or first.end_lineno is None:
        return 0
    return first.end_lineno - first.lineno + 1
