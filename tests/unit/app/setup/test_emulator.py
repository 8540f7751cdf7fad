"""The emulator's file, as its tools write it."""

import pytest

from shardbus.app.cli.entities.rule_atom import CORRELATION, SQL, AtomRule, Typed
from shardbus.app.setup.model import SetupError
from tests.unit.app.setup.reading import by_path, elements, emulator, from_document, queue


def test_properties_are_taken_as_they_stand() -> None:
    """R31: partitioning is what the file says, and the bus decides where it says nothing."""
    said = elements(
        from_document(
            emulator(
                queue(
                    "queue.1",
                    DefaultMessageTimeToLive="PT1H",
                    ForwardTo="",
                    MaxDeliveryCount=3,
                    RequiresSession=False,
                    EnablePartitioning=True,
                    MaxSizeInMegabytes=2048,
                ),
                {"Name": "plain"},
            )
        )
    )

    assert said["queue.1"] == {
        "EnablePartitioning": "true",
        "MaxSizeInMegabytes": "2048",
        "MaxDeliveryCount": "3",
        "DefaultMessageTimeToLive": "PT1H",
        "RequiresSession": "false",
        "ForwardTo": "",
    }
    assert said["plain"] == {}


def test_rules_of_both_kinds_are_read() -> None:
    rules = [
        {
            "Name": "c",
            "Properties": {
                "FilterType": "Correlation",
                "CorrelationFilter": {
                    "Subject": "s",
                    "To": "t",
                    "Properties": {"text": "v", "number": 5, "flag": True, "part": 0.5},
                },
            },
        },
        {
            "Name": "q",
            "Properties": {
                "FilterType": "Sql",
                "SqlFilter": {"SqlExpression": "a = 1"},
                "Action": {"SqlExpression": "SET b = 2"},
            },
        },
    ]
    topic = {
        "Name": "t",
        "Subscriptions": [{"Name": "s", "Rules": rules}, {"Name": "e", "Rules": []}],
    }

    said = by_path(from_document(emulator(topics=[topic])))

    assert said["t/Subscriptions/s"].rules == (
        AtomRule(
            "c",
            CORRELATION,
            fields={"Label": "s", "To": "t"},
            properties=(
                Typed("flag", "boolean", "true"),
                Typed("number", "int", "5"),
                Typed("part", "double", "0.5"),
                Typed("text", "string", "v"),
            ),
        ),
        AtomRule("q", SQL, "a = 1", action="SET b = 2"),
    )
    assert said["t/Subscriptions/e"].rules is None


def test_a_type_that_does_not_fit_its_filter_is_told_and_the_filter_is_used() -> None:
    rule = {"Name": "r", "Properties": {"FilterType": "Sql", "CorrelationFilter": {"Label": "x"}}}
    topic = {"Name": "t", "Subscriptions": [{"Name": "s", "Rules": [rule]}]}

    said = from_document(emulator(topics=[topic]))

    assert by_path(said)["t/Subscriptions/s"].rules == (
        AtomRule("r", CORRELATION, fields={"Label": "x"}),
    )
    assert "only a CorrelationFilter" in said.warnings[0]


def test_what_is_unknown_is_told_and_passed_over() -> None:
    said = from_document(emulator(queue("q", Colour="red", lockduration="PT5S")))

    place = "bus.json: UserConfig.Namespaces[0].Queues[0].Properties.Colour"
    assert said.warnings == [f"{place}: this is unknown and ignored"]
    assert elements(said)["q"] == {"LockDuration": "PT5S"}


def test_a_window_that_only_the_emulator_has_becomes_the_shortest_there_is() -> None:
    said = from_document(emulator(queue("q", DuplicateDetectionHistoryTimeWindow="PT5S")))

    assert elements(said)["q"] == {"DuplicateDetectionHistoryTimeWindow": "PT20S"}
    assert "shorter than PT20S" in said.warnings[0]


@pytest.mark.parametrize(
    ("properties", "told"),
    [
        ({"LockDuration": "soon"}, "Properties.LockDuration: 'soon' is not a duration: write it"),
        ({"MaxDeliveryCount": "many"}, "Properties.MaxDeliveryCount: 'many' is not a whole number"),
        ({"RequiresSession": 1}, "Properties.RequiresSession: '1' is neither true nor false"),
        ({"ForwardTo": ["a"]}, "Properties.ForwardTo: ['a'] is given where a text"),
    ],
)
def test_a_bad_value_is_refused_with_its_path(properties: dict[str, object], told: str) -> None:
    document = {
        "UserConfig": {"Namespaces": [{"Queues": [{"Name": "q", "Properties": properties}]}]}
    }

    with pytest.raises(SetupError) as caught:
        from_document(document)

    assert told in str(caught.value)
    assert str(caught.value).startswith("bus.json: UserConfig.Namespaces[0].Queues[0].")


@pytest.mark.parametrize(
    ("rule", "told"),
    [
        ({"FilterType": "Xml"}, "'Xml' is not a type of filter; types are Sql"),
        ({"FilterType": "Correlation"}, "CorrelationFilter is missing"),
        ({"FilterType": "Sql"}, "SqlFilter is missing"),
        ({"SqlFilter": {}}, "SqlExpression is missing"),
        ({"CorrelationFilter": {"Label": 5}}, "5 is given where a text in quotes is expected"),
    ],
)
def test_a_bad_rule_is_refused_with_its_path(rule: dict[str, object], told: str) -> None:
    rules = [{"Name": "r", "Properties": rule}]
    topic = {"Name": "t", "Subscriptions": [{"Name": "s", "Rules": rules}]}

    with pytest.raises(SetupError) as caught:
        from_document(emulator(topics=[topic]))

    assert told in str(caught.value)
    assert "Topics[0].Subscriptions[0].Rules[0].Properties" in str(caught.value)


def test_a_second_namespace_is_refused() -> None:
    document = {"UserConfig": {"Namespaces": [{"Name": "a"}, {"Name": "b"}]}}

    with pytest.raises(SetupError, match="a second namespace"):
        from_document(document)


def test_a_document_of_neither_form_is_refused() -> None:
    with pytest.raises(SetupError, match=r"neither an emulator's Config\.json"):
        from_document({"queues": []})
