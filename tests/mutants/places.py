"""Finds code by the name of what it stands in and by what it says, however it is laid out."""

import ast
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Final, Protocol

PACKAGE: Final = "shardbus"


class Misplaced(Exception):
    """An edit that does not fit the source; the text says why."""


class Edit:
    """In what is called `at`, the code `old` becomes `new`."""

    def __init__(self, at: str, old: str, new: str) -> None:
        self.at = at
        self.old = old
        self.new = new

    @property
    def is_text(self) -> bool:
        """Whether it edits a file that holds no Python, which goes by the name of the file."""
        return self.at.endswith(".sql")


class Change(Protocol):
    """Where an edit belongs in a tree, and what it puts there."""

    def make(self) -> None: ...


class Sources:
    """The files under a directory of sources, and the names of everything defined in them."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._trees = {path: _parsed(path) for path in sorted((root / PACKAGE).rglob("*.py"))}
        # The last part of a name -> the whole names that end so -> the file of each.
        self._files: dict[str, dict[str, Path]] = {}
        for path, tree in self._trees.items():
            for name, _ in named(module_name(root, path), tree):
                self._files.setdefault(name.rpartition(".")[2], {})[name] = path

    def check(self, edits: list[Edit]) -> None:
        """Raise `Misplaced` unless each edit has exactly one place."""
        for edit in edits:
            if edit.is_text:
                self._edited_text(edit)
            else:
                name, path = self.find(edit.at)
                self._located(edit, name, path, self._trees[path])

    def apply(self, edits: list[Edit]) -> dict[Path, str]:
        """The files that the edits change, with what they hold afterwards.

        The places of all edits are found before anything changes.
        """
        texts = dict(self._edited_text(edit) for edit in edits if edit.is_text)
        trees: dict[Path, ast.Module] = {}
        changes: list[Change] = []
        for edit in edits:
            if not edit.is_text:
                name, path = self.find(edit.at)
                if path not in trees:
                    trees[path] = _parsed(path)
                changes.append(self._located(edit, name, path, trees[path]))
        for change in changes:
            change.make()
        for path, tree in trees.items():
            texts[path] = ast.unparse(ast.fix_missing_locations(tree))
        return texts

    def find(self, at: str) -> tuple[str, Path]:
        """The one whole name that is `at` or ends with it, and its file."""
        candidates = self._files.get(at.rpartition(".")[2], {})
        found = [name for name in candidates if name == at or name.endswith(f".{at}")]
        if not found:
            raise Misplaced(
                f"nothing in {PACKAGE} is called {at!r}: name the function, method, class or "
                "constant that the code stands in now"
            )
        if len(found) > 1:
            raise Misplaced(f"{at!r} may be any of {', '.join(found)}: write more of the name")
        return found[0], candidates[found[0]]

    def _located(self, edit: Edit, name: str, path: Path, tree: ast.Module) -> Change:
        places = [
            node for found, node in named(module_name(self._root, path), tree) if found == name
        ]
        return located(places, edit)

    def _edited_text(self, edit: Edit) -> tuple[Path, str]:
        found = sorted((self._root / PACKAGE).rglob(edit.at))
        if len(found) != 1:
            raise Misplaced(f"{len(found)} files are called {edit.at!r}, and not one")
        text = found[0].read_text(encoding="utf-8")
        _check_once(text.count(edit.old), edit)
        return found[0], text.replace(edit.old, edit.new)


def _parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), str(path))


def module_name(root: Path, path: Path) -> str:
    parts = path.relative_to(root).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def named(prefix: str, node: ast.AST) -> Iterator[tuple[str, ast.stmt]]:
    """Each class, function and assigned name of a module, with whole names.

    A name may come more than once: a property and its setter share theirs.
    """
    for child in _statements(node):
        if isinstance(child, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            name = f"{prefix}.{child.name}"
            yield name, child
            yield from named(name, child)
        elif isinstance(child, ast.Assign | ast.AnnAssign):
            if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                for target in child.targets if isinstance(child, ast.Assign) else [child.target]:
                    if isinstance(target, ast.Name):
                        yield f"{prefix}.{target.id}", child
        else:
            yield from named(prefix, child)


def _statements(node: ast.AST) -> Iterator[ast.stmt]:
    """The statements right under a node, those of its branches and handlers included."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.stmt):
            yield child
        elif isinstance(child, ast.ExceptHandler | ast.match_case):
            yield from _statements(child)


def located(places: list[ast.stmt], edit: Edit) -> Change:
    """The change that the edit asks for; the places must say `old` exactly once."""
    old, new = statements_of(edit.old, "old"), statements_of(edit.new, "new")
    if not old:
        raise Misplaced("`old` is empty: quote the statement before or after which `new` adds some")
    if _dumps(old) == _dumps(new):
        raise Misplaced(f"`old` and `new` say the same: {edit.old!r}")
    searched, value = expression_of(old), expression_of(new)
    found: list[Change]
    if searched is not None and value is not None:
        found = [spot for place in places for spot in expressions(place, searched, value)]
    else:
        found = [run for place in places for run in statement_runs(place, old, new)]
    _check_once(len(found), edit)
    return found[0]


def statements_of(code: str, what: str) -> list[ast.stmt]:
    text = textwrap.dedent(code).strip("\n")
    try:
        return ast.parse(text).body
    except SyntaxError as error:
        try:
            # An expression of several lines, which Python takes in brackets only.
            return [ast.Expr(ast.parse(f"({text}\n)", mode="eval").body)]
        except SyntaxError:
            raise Misplaced(
                f"`{what}` is neither an expression nor whole statements: {error}"
            ) from error


def _dumps(statements: list[ast.stmt]) -> list[str]:
    return [ast.dump(statement) for statement in statements]


def expression_of(statements: list[ast.stmt]) -> ast.expr | None:
    """What stands there if it is one expression alone."""
    if len(statements) == 1 and isinstance(statements[0], ast.Expr):
        return statements[0].value
    return None


def _check_once(count: int, edit: Edit) -> None:
    if count != 1:
        times = "nowhere" if count == 0 else f"{count} times"
        raise Misplaced(f"{edit.at} says {times}, and not once: {edit.old!r}")


class Spot:
    """Where an expression hangs: in a field of a node, or in a field that is a list."""

    def __init__(self, parent: ast.AST, field: str, old: ast.expr, new: ast.expr) -> None:
        self._parent = parent
        self._field = field
        self._old = old
        self._new = new

    def make(self) -> None:
        value = getattr(self._parent, self._field)
        if isinstance(value, list):
            value[:] = [self._new if item is self._old else item for item in value]
        else:
            setattr(self._parent, self._field, self._new)


def expressions(place: ast.AST, searched: ast.expr, new: ast.expr) -> Iterator[Spot]:
    """The spots under `place` at which an expression like `searched` hangs."""
    wanted = ast.dump(searched)
    for parent in ast.walk(place):
        for field, value in ast.iter_fields(parent):
            for item in value if isinstance(value, list) else [value]:
                if type(item) is type(searched) and ast.dump(item) == wanted:
                    yield Spot(parent, field, item, new)


class Run:
    """Statements that follow one another in a body."""

    def __init__(self, body: list[ast.stmt], old: list[ast.stmt], new: list[ast.stmt]) -> None:
        self._body = body
        self._old = old
        self._new = new

    def make(self) -> None:
        # Another edit may have moved them since they were found.
        start = next(i for i, statement in enumerate(self._body) if statement is self._old[0])
        self._body[start : start + len(self._old)] = self._new
        if not self._body:
            self._body.append(ast.Pass())


def statement_runs(place: ast.AST, searched: list[ast.stmt], new: list[ast.stmt]) -> Iterator[Run]:
    wanted = _dumps(searched)
    for node in ast.walk(place):
        for _, body in ast.iter_fields(node):
            if not (isinstance(body, list) and body and isinstance(body[0], ast.stmt)):
                continue
            said = _dumps(body)
            for start in range(len(body) - len(wanted) + 1):
                if said[start : start + len(wanted)] == wanted:
                    yield Run(body, body[start : start + len(wanted)], new)
