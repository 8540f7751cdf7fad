"""The values of an expression's @names, given beside it."""

from __future__ import annotations

from shardbus.core.errors import INVALID_ARGUMENT, Refused
from shardbus.rules.limits import PARAMETERS_MAX
from shardbus.rules.values import Property, fold


def parameters_by_name(parameters: list[Property]) -> dict[str, Property]:
    """Parameters by folded name, with or without the leading @.

    Refuses too many, one without a name, and two of one name.
    """
    if len(parameters) > PARAMETERS_MAX:
        raise Refused(
            INVALID_ARGUMENT,
            f"The expression has {len(parameters)} parameters; at most {PARAMETERS_MAX} are "
            "allowed.",
        )
    found: dict[str, Property] = {}
    for parameter in parameters:
        name = fold(parameter.name.removeprefix("@"))
        if not name:
            raise Refused(INVALID_ARGUMENT, "A parameter has no name: give it one.")
        if name in found:
            raise Refused(INVALID_ARGUMENT, f"The parameter @{name} is given twice: give it once.")
        found[name] = parameter
    return found
