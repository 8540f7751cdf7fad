"""The source tree as the rules about it see it."""

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
_CODE: Final = ("src", "spark", "tests", "bench")
_TEXT_SUFFIXES: Final = frozenset(
    {".cfg", ".in", ".js", ".json", ".md", ".mjs", ".py", ".sh", ".sql", ".toml", ".txt", ".yml"}
)
_MADE: Final = frozenset({"__pycache__", "node_modules", "build", "dist"})

Function = ast.FunctionDef | ast.AsyncFunctionDef


def python_files(*roots: str) -> list[Path]:
    """Every Python file under the roots (all code when none is named), sorted."""
    found = (path for root in roots or _CODE for path in (ROOT / root).rglob("*.py"))
    return sorted(path for path in found if not _is_made(path))


def text_files() -> list[Path]:
    """Every file that people write, in the code, the documents and the root."""
    below = (
        path for root in (*_CODE, "docs", "requirements", ".ci") for path in _walk(ROOT / root)
    )
    top = (path for path in ROOT.iterdir() if path.suffix in _TEXT_SUFFIXES)
    named = (ROOT / "Makefile", ROOT / ".ci" / "run")
    return sorted({*below, *top, *(path for path in named if path.is_file())})


def _walk(root: Path) -> Iterator[Path]:
    for path in root.rglob("*"):
        if path.suffix in _TEXT_SUFFIXES and path.is_file() and not _is_made(path):
            yield path


def _is_made(path: Path) -> bool:
    parts = path.relative_to(ROOT).parts
    return any(part in _MADE or part.endswith(".egg-info") for part in parts)


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), filename=str(path))


def imports(path: Path) -> set[str]:
    """Dotted names a module imports: `from a import b` gives both `a` and `a.b`."""
    names: set[str] = set()
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module)
            names.update(f"{node.module}.{alias.name}" for alias in node.names)
    return names


def functions(path: Path) -> Iterator[Function]:
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def shown(path: Path, line: int = 0) -> str:
    name = str(path.relative_to(ROOT))
    return f"{name}:{line}" if line else name
