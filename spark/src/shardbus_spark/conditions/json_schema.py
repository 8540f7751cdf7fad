"""Schemas of JSON, as in `id bigint, items array<string>`: parsed here, and not by Spark."""

from __future__ import annotations

from typing import Final, final

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from shardbus_spark.conditions.lexer import END, QUOTED, WORD, Token, name_of, tokens_of
from shardbus_spark.errors import OptionError

DEPTH_MAX: Final = 16
DIGITS_MAX: Final = 38
_PLAIN: Final[dict[str, DataType]] = {
    "bigint": LongType(),
    "binary": BinaryType(),
    "boolean": BooleanType(),
    "date": DateType(),
    "double": DoubleType(),
    "float": FloatType(),
    "int": IntegerType(),
    "integer": IntegerType(),
    "long": LongType(),
    "smallint": ShortType(),
    "string": StringType(),
    "timestamp": TimestampType(),
}


def parse_schema(text: str) -> StructType:
    """OptionError, with the position, for an invalid one."""
    try:
        return _Schema(text).whole()
    except OptionError as error:
        raise OptionError("json_schema" + str(error).removeprefix("where")) from error


@final
class _Schema:
    def __init__(self, text: str) -> None:
        self._tokens = tokens_of(text)
        self._at = 0
        self._depth = 0

    def whole(self) -> StructType:
        found = self._fields()
        if self._token.kind != END:
            raise self._wrong("a comma, or the end, is expected here")
        return found

    @property
    def _token(self) -> Token:
        return self._tokens[self._at]

    def _step(self) -> Token:
        token = self._token
        self._at += token.kind != END
        return token

    def _takes(self, sign: str) -> bool:
        is_here = self._token.sign == sign
        self._at += is_here
        return is_here

    def _expect(self, sign: str) -> None:
        if not self._takes(sign):
            raise self._wrong(f"{sign} is missing here")

    def _wrong(self, why: str) -> OptionError:
        token = self._token
        if token.kind == END:
            return OptionError(f"where ends too early: {why}")
        return OptionError(f"where has {token.text!r} at character {token.at + 1}: {why}")

    def _fields(self) -> StructType:
        fields = [self._field()]
        while self._takes(","):
            fields.append(self._field())
        names = [field.name.lower() for field in fields]
        for field in fields:
            if names.count(field.name.lower()) > 1:
                raise OptionError(f"where has {field.name!r} twice")
        return StructType(fields)

    def _field(self) -> StructField:
        token = self._token
        if token.kind not in (WORD, QUOTED):
            raise self._wrong("a name is missing here")
        self._step()
        name = token.text if token.kind == WORD else name_of(token)
        self._takes(":")
        return StructField(name, self._type(), True)

    def _type(self) -> DataType:
        self._depth += 1
        if self._depth > DEPTH_MAX:
            raise OptionError(f"where has more than {DEPTH_MAX} nested types")
        word = self._token.word
        if word in _PLAIN:
            self._step()
            found = _PLAIN[word]
        elif word == "decimal":
            self._step()
            found = self._decimal()
        else:
            found = self._compound(word)
        self._depth -= 1
        return found

    def _compound(self, word: str) -> DataType:
        if word not in ("array", "map", "struct"):
            known = ", ".join([*_PLAIN, "decimal", "array<>", "map<string,>", "struct<>"])
            raise self._wrong(f"types are {known}")
        self._step()
        self._expect("<")
        found: DataType
        if word == "struct":
            found = self._fields()
        elif word == "array":
            found = ArrayType(self._type(), True)
        else:
            if self._step().word != "string":
                raise self._wrong("the keys of a map are string")
            self._expect(",")
            found = MapType(StringType(), self._type(), True)
        self._expect(">")
        return found

    def _decimal(self) -> DataType:
        if not self._takes("("):
            return DecimalType()
        digits = self._number()
        scale = self._number() if self._takes(",") else 0
        self._expect(")")
        if not 1 <= digits <= DIGITS_MAX or scale > digits:
            raise self._wrong(f"a decimal has 1 to {DIGITS_MAX} digits")
        return DecimalType(digits, scale)

    def _number(self) -> int:
        if not self._token.text.isdigit():
            raise self._wrong("a number is missing here")
        return int(self._step().text)
