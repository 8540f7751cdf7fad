"""Properties and rules as the emulator's file and ARM templates write them."""

from collections.abc import Sequence

from shardbus.app.cli.console import Json
from shardbus.app.cli.entities.rule_atom import CORRELATION, FALSE, SQL, AtomRule, Typed
from shardbus.app.setup.canonical import INT_MAX, INT_MIN, typed_form
from shardbus.app.setup.model import DEFAULT_RULE, DeclaredEntity
from shardbus.core.namespace.property import FLAG, MEGABYTES, NUMBER


def entity_properties(entity: DeclaredEntity, *, without: Sequence[str] = ()) -> dict[str, Json]:
    """The elements as JSON values, in the order of the table."""
    return {
        each.element: _value(each.form, entity.elements[each.element])
        for each in entity.kind.options
        if each.element in entity.elements and each.element not in without
    }


def written_rules(entity: DeclaredEntity, losses: list[str]) -> tuple[AtomRule, ...]:
    """The rules to write: without any, a subscription would get the rule that matches
    everything.
    """
    if entity.rules is None or entity.rules:
        return entity.rules or ()
    losses.append(f"that {entity.path} has no rule; a rule that matches nothing is written instead")
    return (AtomRule(DEFAULT_RULE, FALSE),)


def rule_properties(
    rule: AtomRule, path: str, losses: list[str], *, suffix: str
) -> dict[str, Json]:
    """The properties of a rule; `suffix` is what the format appends to the type of a filter."""
    where = f"the rule {rule.name} of {path}"
    if rule.parameters or rule.action_parameters:
        losses.append(f"the parameters of {where}, which is refused without them")
    properties: dict[str, Json] = {}
    if rule.filter == CORRELATION:
        filter: dict[str, Json] = dict(rule.fields)
        bag = {value.name: _json_value(value, where, losses) for value in rule.properties}
        properties["FilterType"] = "Correlation" + suffix
        properties["CorrelationFilter"] = {**filter, "Properties": bag} if bag else filter
    else:
        everything = "1=0" if rule.filter == FALSE else "1=1"
        expression = rule.expression if rule.filter == SQL else everything
        properties["FilterType"] = "Sql" + suffix
        properties["SqlFilter"] = {"SqlExpression": expression}
    if rule.action:
        properties["Action"] = {"SqlExpression": rule.action}
    return properties


def _value(form: str, text: str) -> Json:
    if form == FLAG:
        return text == "true"
    return int(text) if form in (NUMBER, MEGABYTES) else text


def _json_value(value: Typed, where: str, losses: list[str]) -> Json:
    canonical = typed_form(value)
    match canonical.type:
        case "string":
            return canonical.text
        case "boolean":
            return canonical.text == "true"
        case "int":
            return int(canonical.text)
        case "long" if not INT_MIN <= int(canonical.text) <= INT_MAX:
            return int(canonical.text)
        case "double" if canonical.text not in ("inf", "-inf", "nan"):
            return float(canonical.text)
    losses.append(f"that the property {value.name} of {where} is a {value.type} and no text")
    return value.text
