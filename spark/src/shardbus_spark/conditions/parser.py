"""Parses conditions to trees, with the precedence of Spark's SQL; the unsupported is refused."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from datetime import date, datetime
from decimal import Decimal
from typing import Final, final

from shardbus_spark.conditions.lexer import (
    COMMENT,
    END,
    NUMBER,
    QUOTED,
    TEXT,
    WORD,
    Token,
    name_of,
    refused,
    text_of,
    tokens_of,
)
from shardbus_spark.conditions.tree import (
    Between,
    Binary,
    Call,
    Case,
    Cast,
    Expression,
    In,
    Is,
    Item,
    Literal,
    Match,
    Moment,
    Name,
    Query,
    Unary,
)
from shardbus_spark.conditions.vocabulary import (
    CASTS,
    FUNCTIONS,
    KEYWORDS,
    LEVELS,
    MOMENTS,
    RESERVED,
    SIGNS,
    TYPES,
)
from shardbus_spark.errors import OptionError

CHARACTERS_MAX: Final = 4_096
DEPTH_MAX: Final = 32
OPERATORS_MAX: Final = 256
QUERY_CHARACTERS_MAX: Final = 16_384
VIEW: Final = "messages"
QUERIES_MAX: Final = 16
DIGITS_MAX: Final = 38

_TRUTH: Final[dict[str, bool | None]] = {"null": None, "true": True, "false": False}
_MATCHES: Final = {"like": "like", "ilike": "ilike", "rlike": "rlike", "regexp": "rlike"}
_ESCAPABLE: Final = "%_"


def parse_condition(text: str, columns: Collection[str] | None) -> Expression:
    """The tree of a condition on these columns, whose names are compared without regard to case, as
    in Spark; on any columns where they are not known. OptionError, with the position, for anything
    unsupported.
    """
    if len(text) > CHARACTERS_MAX:
        raise OptionError(f"where has more than {CHARACTERS_MAX} characters")
    tokens = tokens_of(text)
    if len(tokens) == 1:
        raise OptionError("where is empty: leave it out")
    return _Parser(tokens, columns).whole()


def parse_query(text: str, columns: Collection[str], views: Collection[str] = (VIEW,)) -> Query:
    """The tree of `select ... from messages where ...`, without joins, groups or subqueries.

    Several of these may be joined by `union all`; all views have these columns.

    OptionError, with the position, for anything unsupported.
    """
    if len(text) > QUERY_CHARACTERS_MAX:
        raise OptionError(f"query has more than {QUERY_CHARACTERS_MAX} characters")
    try:
        return _Parser(tokens_of(text), columns, views).query()
    except OptionError as error:
        # Errors about an expression begin with "where", because elsewhere it is a condition.
        raise OptionError("query" + str(error).removeprefix("where")) from error


@final
class _Parser:
    """Recursive descent, one method for each level of precedence."""

    def __init__(
        self,
        tokens: Sequence[Token],
        columns: Collection[str] | None,
        views: Collection[str] = (VIEW,),
    ) -> None:
        self._tokens = tokens
        self._at = 0
        self._depth = 0
        self._operators = 0
        self._columns = {name.lower(): name for name in columns or ()}
        self._has_columns = columns is not None
        self._views = {name.lower(): name for name in views}
        self._queries = 0

    def whole(self) -> Expression:
        found = self._expression()
        if self._token.kind != END:
            raise self._unexpected()
        return found

    def query(self) -> Query:
        self._queries += 1
        if self._queries > QUERIES_MAX:
            why = f"a query has at most {QUERIES_MAX} parts"
            raise refused(self._token.text, self._token.at, why)
        self._expect("select", "a query begins with select")
        columns = [self._column()]
        while self._takes(","):
            columns.append(self._column())
        view = self._view() if self._takes("from") else VIEW
        where = self._expression() if self._takes("where") else None
        if self._token.kind == END:
            return Query(columns, where, view)
        if self._takes("union"):
            self._expect("all", "only union all is supported")
            return Query(columns, where, view, self.query())
        if self._token.word in RESERVED:
            why = (
                "a query has select, from a view, where and union all; more needs a server that "
                "allows code"
            )
            raise refused(self._token.text, self._token.at, why)
        raise self._unexpected()

    def _view(self) -> str:
        token = self._token
        found = self._views.get(token.text.lower()) if token.kind == WORD else None
        if found is None:
            raise self._unexpected(f"a query reads from {' or '.join(self._views.values())}")
        self._step()
        return found

    def _column(self) -> tuple[str, Expression | None]:
        """The name and the expression of a result."""
        if self._takes("*"):
            return "*", None
        token, found = self._token, self._expression()
        if self._takes("as"):
            alias = self._token
            if alias.kind not in (WORD, QUOTED):
                raise self._unexpected("a name is missing after as")
            self._step()
            return (alias.text if alias.kind == WORD else name_of(alias)), found
        match found:
            case Name(name):
                return name, found
            case Item(_, Literal(str(key))):
                return key, found
        raise refused(token.text, token.at, "give the expression a name: as total")

    # Advancing.

    @property
    def _token(self) -> Token:
        return self._tokens[self._at]

    @property
    def _next(self) -> Token:
        return self._tokens[min(self._at + 1, len(self._tokens) - 1)]

    def _step(self) -> Token:
        token = self._token
        self._at += token.kind != END
        return token

    def _takes(self, *words: str) -> str:
        """Skip and return the word or sign here, if it is one of these."""
        here = self._token.word or self._token.sign
        if here not in words:
            return ""
        self._step()
        return here

    def _expect(self, what: str, why: str = "") -> None:
        if not self._takes(what):
            if what in ")]" and self._token.kind == END:
                raise OptionError("where has a parenthesis that is not closed")
            raise self._unexpected(why or f"{what} is missing here")

    @contextmanager
    def _deeper(self) -> Iterator[None]:
        self._depth += 1
        # The condition itself is one level.
        if self._depth > DEPTH_MAX + 1:
            raise OptionError(f"where has more than {DEPTH_MAX} nested parentheses")
        yield
        self._depth -= 1

    def _counted(self, operator: str) -> str:
        self._operators += 1
        if self._operators > OPERATORS_MAX:
            raise OptionError(f"where has more than {OPERATORS_MAX} operators")
        return operator

    def _unexpected(self, why: str = "") -> OptionError:
        token = self._token
        if token.kind == END:
            return OptionError(f"where ends too early: {why or 'a value is missing'}")
        if token.kind == COMMENT:
            return refused(token.text, token.at, "comments are not allowed")
        if token.sign and token.sign not in SIGNS:
            return refused(token.text, token.at, "this operator is not allowed")
        if token.sign in (")", "]"):
            return refused(token.text, token.at, "it closes nothing that was opened")
        if token.word in RESERVED:
            return self._reserved(token)
        return refused(token.text, token.at, why or "it is not supported here")

    def _reserved(self, token: Token) -> OptionError:
        why = f"queries are not allowed; write a column of this name as `{token.text}`"
        return refused(token.text, token.at, why)

    # Loosest binding first.

    def _expression(self) -> Expression:
        with self._deeper():
            return self._joined("or", lambda: self._joined("and", self._negation))

    def _joined(self, word: str, part: Callable[[], Expression]) -> Expression:
        found = part()
        while self._takes(word):
            found = Binary(self._counted(word), found, part())
        return found

    def _negation(self) -> Expression:
        if self._takes("not"):
            with self._deeper():
                return Unary(self._counted("not"), self._negation())
        return self._predicate()

    def _predicate(self) -> Expression:
        value = self._value()
        if self._takes("is"):
            return self._is(value)
        is_not = self._token.word == "not"
        if is_not:
            self._step()
        found = self._tested(value)
        if found is None:
            if is_not:
                raise self._unexpected("between, in, like, ilike or rlike is missing after not")
            return value
        return Unary("not", found) if is_not else found

    def _is(self, value: Expression) -> Expression:
        is_not = bool(self._takes("not"))
        word = self._takes(*_TRUTH)
        if not word:
            raise self._unexpected("null, true or false is missing after is")
        self._counted("is")
        return Unary("not", Is(value, _TRUTH[word])) if is_not else Is(value, _TRUTH[word])

    def _tested(self, value: Expression) -> Expression | None:
        """The test after a value, if there is one."""
        if self._takes("between"):
            low = self._value()
            self._expect("and")
            return Between(value, low, self._value())
        if self._takes("in"):
            self._expect("(")
            return In(value, self._list())
        how = self._takes(*_MATCHES)
        return self._match(_MATCHES[how], value) if how else None

    def _match(self, how: str, value: Expression) -> Expression:
        self._counted(how)
        at = self._token
        pattern = self._value()
        escape = ""
        if how != "rlike" and self._takes("escape"):
            token = self._step()
            escape = text_of(token) if token.kind == TEXT else ""
            if len(escape) != 1:
                raise refused(token.text, token.at, "escape must be followed by one character")
        if how != "rlike" and isinstance(pattern, Literal) and isinstance(pattern.value, str):
            _check_pattern(pattern.value, escape or "\\", at)
        return Match(how, value, pattern, escape)

    def _value(self, level: int = len(LEVELS) - 1) -> Expression:
        if level < 0:
            return self._signed()
        found = self._value(level - 1)
        while sign := self._takes(*LEVELS[level]):
            found = Binary(self._counted(sign), found, self._value(level - 1))
        return found

    def _signed(self) -> Expression:
        if sign := self._takes("-", "+", "~"):
            with self._deeper():
                return Unary(self._counted(sign), self._signed())
        return self._with_items()

    def _with_items(self) -> Expression:
        found = self._primary()
        while True:
            if self._takes("["):
                with self._deeper():
                    found = Item(found, self._value())
                self._expect("]")
            elif self._takes("."):
                found = Item(found, Literal(self._member()))
            else:
                return found
            self._counted(".")

    def _member(self) -> str:
        token = self._token
        if token.kind not in (WORD, QUOTED):
            raise self._unexpected("a name is missing after the dot")
        self._check_no_call()
        self._step()
        return token.text if token.kind == WORD else name_of(token)

    def _check_no_call(self) -> None:
        if self._next.sign == "(":
            why = "a function must have a plain name without dots or backticks"
            raise refused(self._token.text, self._token.at, why)

    # Tightest binding.

    def _primary(self) -> Expression:
        token = self._token
        if token.kind == NUMBER:
            return Literal(_number(self._step()))
        if token.kind == TEXT:
            return Literal(text_of(self._step()))
        if token.kind == QUOTED:
            self._check_no_call()
            return self._name(name_of(token), self._step())
        if self._takes("("):
            found = self._expression()
            self._expect(")")
            return found
        if token.kind != WORD:
            raise self._unexpected()
        return self._of_word()

    def _of_word(self) -> Expression:
        token, word = self._token, self._token.word
        if self._next.sign == "(" and (word in FUNCTIONS or word not in KEYWORDS):
            return self._call()
        if word in _TRUTH:
            self._step()
            return Literal(_TRUTH[word])
        if word == "case":
            return self._case()
        if self._next.kind == TEXT and word not in KEYWORDS:
            return self._moment()
        if word in RESERVED:
            raise self._reserved(token)
        if word in KEYWORDS:
            raise self._unexpected("a value is missing before it")
        return self._name(token.text, self._step())

    def _name(self, name: str, token: Token) -> Name:
        found = self._columns.get(name.lower())
        if found is None and not self._has_columns:
            return Name(name)
        if found is None:
            known = ", ".join(sorted(self._columns.values()))
            raise refused(token.text, token.at, f"the table has the columns {known}")
        return Name(found)

    def _call(self) -> Expression:
        token = self._step()
        self._step()
        if token.word in CASTS:
            return self._cast(is_try=token.word == "try_cast")
        if token.word not in FUNCTIONS:
            known = ", ".join(sorted([*FUNCTIONS, *CASTS]))
            raise refused(token.text, token.at, f"functions are {known}")
        self._counted(token.word)
        return Call(token.word, [] if self._takes(")") else self._list())

    def _list(self) -> list[Expression]:
        """Expressions separated by commas, up to the closing parenthesis."""
        found = [self._expression()]
        while self._takes(","):
            found.append(self._expression())
        self._expect(")")
        return found

    def _cast(self, *, is_try: bool) -> Cast:
        self._counted("cast")
        value = self._expression()
        self._expect("as")
        token = self._step()
        if token.word not in TYPES:
            raise refused(
                token.text,
                token.at,
                f"the type of a cast must be one of {', '.join(sorted(TYPES))}",
            )
        kind = token.word
        if kind == "decimal" and self._takes("("):
            kind = f"decimal({self._digits()}{self._scale()})"
            self._expect(")")
        self._expect(")")
        return Cast(value, kind, is_try)

    def _scale(self) -> str:
        return f",{self._digits()}" if self._takes(",") else ""

    def _digits(self) -> int:
        token = self._step()
        if not token.text.isdigit() or int(token.text) > DIGITS_MAX:
            raise refused(token.text, token.at, f"a decimal may have at most {DIGITS_MAX} digits")
        return int(token.text)

    def _moment(self) -> Moment:
        token, text = self._step(), self._step()
        if token.word not in MOMENTS:
            why = "only date and timestamp are allowed before a text"
            raise refused(token.text, token.at, why)
        moment = Moment(token.word, text_of(text))
        try:
            read = date.fromisoformat if moment.kind == "date" else datetime.fromisoformat
            read(moment.text.strip())
        except ValueError as error:
            why = "write it as date '2026-01-31' or timestamp '2026-01-31 08:00:00'"
            raise refused(text.text, text.at, why) from error
        return moment

    def _case(self) -> Case:
        self._counted("case")
        self._step()
        subject = None if self._token.word == "when" else self._expression()
        branches: list[tuple[Expression, Expression]] = []
        while self._takes("when"):
            condition = self._expression()
            self._expect("then")
            branches.append((condition, self._expression()))
        if not branches:
            raise self._unexpected("when is missing here")
        otherwise = self._expression() if self._takes("else") else None
        self._expect("end")
        return Case(subject, branches, otherwise)


def _number(token: Token) -> int | float | Decimal:
    """As Spark reads it: with an exponent a double, with a point a decimal."""
    text = token.text
    if "e" in text.lower():
        return float(text)
    if len(text.replace(".", "")) > DIGITS_MAX:
        raise refused(text, token.at, f"a number may have at most {DIGITS_MAX} digits")
    return Decimal(text) if "." in text else int(text)


def _check_pattern(pattern: str, escape: str, token: Token) -> None:
    """Spark refuses such a pattern too, but only at the first row."""
    at = pattern.find(escape)
    while at >= 0:
        after = pattern[at + 1 : at + 2]
        if not after or after not in _ESCAPABLE + escape:
            why = f"{escape!r} in a pattern must be followed by %, _ or {escape!r}"
            raise refused(token.text, token.at, why)
        at = pattern.find(escape, at + 2)
