"""The one table of entity properties agrees with the typed attributes it is about."""

import pytest

from shardbus.core.namespace.entity import EntitySpec
from shardbus.core.namespace.property import (
    DURATION,
    FLAG,
    MEGABYTES,
    NUMBER,
    PROPERTIES,
    QUEUE,
    SUBSCRIPTION,
    TOPIC,
    EntityProperty,
    options_of,
    properties_of,
    shown_of,
)

# What is no single value, and what a destination was written as.
BESIDE = {"access_rules", "forward_to_written", "forward_dead_letters_to_written"}
EVERY = pytest.mark.parametrize("each", PROPERTIES, ids=lambda each: each.name)


def test_every_attribute_of_a_spec_has_a_row_and_every_row_an_attribute() -> None:
    spec = EntitySpec()
    names = {name for name in dir(spec) if not name.startswith("_")}
    attributes = {name for name in names if not callable(getattr(spec, name))}

    assert {each.name for each in PROPERTIES} == attributes - BESIDE


@EVERY
def test_a_property_has_a_value_of_its_form(each: EntityProperty) -> None:
    kind = bool if each.form == FLAG else int if _is_number(each) else str

    assert type(each.value(EntitySpec())) is kind


@EVERY
def test_a_property_that_is_put_is_read(each: EntityProperty) -> None:
    spec = EntitySpec()
    value = (not each.value(spec)) if each.form == FLAG else 7 if _is_number(each) else "x"

    each.put(spec, value)

    assert each.value(spec) == value
    assert EntitySpec().to_document() != spec.to_document()


@EVERY
def test_a_range_holds_the_default(each: EntityProperty) -> None:
    if each.high:
        assert each.low <= each.integer(EntitySpec()) <= each.high


@pytest.mark.parametrize("kind", [QUEUE, TOPIC, SUBSCRIPTION])
def test_names_are_given_once_and_options_have_help(kind: str) -> None:
    names = [each.element for each in properties_of(kind)]
    options = [each.option for each in options_of(kind)]

    assert len(set(names)) == len(names)
    assert len(set(options)) == len(options)
    assert all(each.help for each in options_of(kind))


def test_a_subscription_shows_what_it_has_of_its_topic_and_is_not_told_it() -> None:
    told = {each.name for each in properties_of(SUBSCRIPTION)}

    assert {each.name for each in shown_of(SUBSCRIPTION)} - told == {
        "is_partitioned",
        "size_mb",
        "message_kb_max",
        "supports_ordering",
    }


def _is_number(each: EntityProperty) -> bool:
    return each.form in (NUMBER, MEGABYTES, DURATION)
