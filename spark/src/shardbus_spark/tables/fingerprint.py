"""The fingerprint of the rows of a batch, whatever tasks wrote them and in whatever order.

Each row has a digest of its numbers and times and of the lengths of its texts, computed by Arrow
column by column; the fingerprint of a batch is the number of rows and the sum of the digests. Texts
of equal length are not distinguished: rows of the bus have their numbers and times.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as compute

_MASK: Final = (1 << 64) - 1
_SEED: Final = 0x9E3779B97F4A7C15
_FACTOR: Final = 0xBF58476D1CE4E5B9
_HALF: Final = 32
_LOW: Final = 0xFFFFFFFF
# In place of a missing value.
_MISSING: Final = 0x94D049BB133111EB

if TYPE_CHECKING:
    Numbers = pa.ChunkedArray[pa.Scalar[pa.DataType]]


def digest_of(rows: pa.Table) -> int:
    """The sum of the digests of all rows, modulo 2 ** 64."""
    if not rows.num_rows:
        return 0
    digests = _folded(_numbers(rows.column(0)))
    for column in rows.columns[1:]:
        mixed = _called("add", _called("multiply", digests, _SEED), _numbers(column))
        digests = _folded(mixed)
    # Arrow's sums are bounded: the halves of this many numbers do not overflow.
    high = _sum(_called("shift_right", digests, _HALF))
    low = _sum(_called("bit_wise_and", digests, _LOW))
    return ((high << 32) + low) & _MASK


def fingerprint_of(rows: int, digests: list[int]) -> str:
    """The fingerprint of a batch with that many rows, in files with these digests."""
    return f"{rows}:{sum(digests) & _MASK:016x}"


def _folded(numbers: Numbers) -> Numbers:
    """Mixes the bits of each number."""
    for _ in range(2):
        halved = _called("bit_wise_xor", numbers, _called("shift_right", numbers, _HALF))
        numbers = _called("multiply", halved, _FACTOR)
    return numbers


def _numbers(column: Numbers) -> Numbers:
    kind = column.type
    if isinstance(kind, pa.MapType):
        pairs = pa.list_(pa.struct([("key", kind.key_type), ("value", kind.item_type)]))
        column = _called("list_value_length", column.cast(pairs))
    elif pa.types.is_string(kind) or pa.types.is_binary(kind):
        column = _called("binary_length", column)
    elif pa.types.is_floating(kind):
        bits = pa.chunked_array([column.combine_chunks().cast(pa.float64()).view(pa.int64())])
        return _called("coalesce", bits.cast(pa.uint64(), safe=False), _MISSING)
    elif pa.types.is_date(kind):
        column = column.cast(pa.int32())
    return _called("coalesce", column.cast(pa.int64()).cast(pa.uint64(), safe=False), _MISSING)


def _sum(numbers: Numbers) -> int:
    [total] = pa.array([compute.call_function("sum", [numbers])]).to_pylist()
    assert isinstance(total, int)
    return total


def _called(function: str, *arguments: Numbers | int) -> Numbers:
    given = [_scalar(each) if isinstance(each, int) else each for each in arguments]
    result: Numbers = compute.call_function(function, given)
    return result


@cache
def _scalar(number: int) -> pa.UInt64Scalar:
    """Not made when the module is loaded: Arrow would load pandas for it, which takes a second."""
    return pa.scalar(number, pa.uint64())
