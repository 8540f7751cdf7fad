"""ARM templates: the resources of Service Bus, however they are nested and named."""

import pytest

from shardbus.app.cli.entities.rule_atom import SQL, TRUE, AtomRule
from shardbus.app.setup.model import DeclaredAccessRule, SetupError
from tests.unit.app.setup.reading import by_path, elements, from_document, resource, template

BUS = resource("", "[parameters('bus')]", sku={"name": "Premium"})
NO_VALUE = {"bus": {"type": "string"}}


def test_flat_resources_are_put_together_whatever_their_order() -> None:
    """R31."""
    rule = {"filterType": "SqlFilter", "sqlFilter": {"sqlExpression": "a = 1"}, "action": {}}
    said = from_document(
        template(
            resource("/topics/subscriptions/rules", "b/t/s/r", properties=rule),
            resource("/topics/subscriptions", "b/t/s", properties={"lockDuration": "PT5M"}),
            resource("/topics", "b/t", properties={"enablePartitioning": True}),
            resource("/queues", "b/a~b", properties={"maxSizeInMegabytes": 2048}),
            resource("", "b", sku={"name": "Standard", "tier": "Standard"}),
        )
    )

    assert said.tier == "standard"
    assert said.warnings == []
    assert elements(said) == {
        "t/Subscriptions/s": {"LockDuration": "PT5M"},
        "t": {"EnablePartitioning": "true"},
        "a/b": {"MaxSizeInMegabytes": "2048"},
    }
    assert by_path(said)["t/Subscriptions/s"].rules == (AtomRule("r", SQL, "a = 1"),)


def test_nested_resources_have_the_names_of_their_parents() -> None:
    always = {"filterType": "SqlFilter", "sqlFilter": {"sqlExpression": "1=1"}}
    rule = {"type": "rules", "name": "everything", "properties": always}
    subscription = {"type": "subscriptions", "name": "s", "resources": [rule]}
    topic = {"type": "topics", "name": "t", "resources": [subscription]}
    access = {"type": "authorizationRules", "name": "k", "properties": {"rights": ["Manage"]}}
    queue = {"type": "queues", "name": "q", "resources": [access]}

    said = from_document(template(resource("", "b", resources=[topic, queue, access])))

    all_rights = DeclaredAccessRule("k", ("Manage", "Send", "Listen"))
    assert set(by_path(said)) == {"t", "t/Subscriptions/s", "q"}
    assert by_path(said)["t/Subscriptions/s"].rules == (AtomRule("everything", TRUE),)
    assert by_path(said)["q"].access_rules == (all_rights,)
    assert said.access_rules == [all_rights]


def test_parameters_variables_and_functions_are_worked_out() -> None:
    document = template(
        resource(
            "/queues",
            "[concat(parameters('bus'), '/', variables('names').first)]",
            properties={
                "lockDuration": "[parameters('lock')]",
                "maxDeliveryCount": "[parameters('limits')[1]]",
                "requiresSession": "[equals(toLower(parameters('kind')), 'session')]",
                "userMetadata": "[[not an expression]",
                "forwardTo": "[if(not(false()), format('{0}-{1}', 'a', 2), null())]",
            },
        ),
        parameters={
            "bus": {"type": "string", "defaultValue": "[uniqueString(resourceGroup().id)]"},
            "lock": {"type": "string", "defaultValue": "PT1M"},
            "limits": {"type": "array", "defaultValue": [1, 7]},
            "kind": {"type": "string", "defaultValue": "SESSION"},
        },
        variables={"names": {"first": "[concat('o', variables('end'))]"}, "end": "rders"},
    )

    assert elements(from_document(document, lock="PT2M")) == {
        "orders": {
            "LockDuration": "PT2M",
            "MaxDeliveryCount": "7",
            "RequiresSession": "true",
            "UserMetadata": "[not an expression]",
            "ForwardTo": "a-2",
        }
    }


def test_copies_conditions_existing_resources_and_modules_are_followed() -> None:
    inner = template(
        resource("/queues", "[format('{0}/{1}', parameters('bus'), parameters('name'))]"),
        parameters={"bus": {"type": "string"}, "name": {"type": "string"}},
    )
    module = {
        "type": "Microsoft.Resources/deployments",
        "name": "m",
        "properties": {
            "template": inner,
            "parameters": {
                "bus": {"value": "[parameters('bus')]"},
                "name": {"value": "[concat('in', '-module')]"},
            },
        },
    }
    document = template(
        resource(
            "/queues",
            "[concat(parameters('bus'), '/', parameters('names')[copyIndex()])]",
            copy={"name": "each", "count": "[length(parameters('names'))]"},
        ),
        resource("/queues", "b/no", condition="[equals('a', 'b')]"),
        resource("/queues", "b/old", existing=True),
        module,
        {"type": "Microsoft.Storage/storageAccounts", "name": "[unknown()]"},
        parameters={
            "bus": {"type": "string"},
            "names": {"type": "array", "defaultValue": ["one", "two"]},
        },
    )

    said = from_document(document)

    assert set(by_path(said)) == {"one", "two", "in-module"}
    assert said.warnings == ["1 resources do not belong to Service Bus and are ignored"]


def test_symbolic_names_are_a_way_to_list_resources() -> None:
    named = {"$schema": "s", "resources": {"mine": resource("/queues", "b/q")}}

    assert set(by_path(from_document(named))) == {"q"}


def test_a_name_that_cannot_be_worked_out_matters_only_where_it_is_needed() -> None:
    document = template(
        BUS, resource("/queues", "[concat(parameters('bus'), '/q')]"), parameters=NO_VALUE
    )

    assert set(by_path(from_document(document))) == {"q"}


def test_theirs_may_be_written_in_any_case_and_with_old_durations() -> None:
    properties = {"LOCKDURATION": "00:00:30", "autoDeleteOnIdle": "10675199.02:48:05.4775807"}
    kind = "microsoft.servicebus/NAMESPACES/Queues"
    document = template({"TYPE": kind, "Name": "b/q", "Properties": properties})

    assert elements(from_document(document))["q"] == {
        "LockDuration": "PT30S",
        "AutoDeleteOnIdle": "P10675199DT2H48M5.4775807S",
    }


@pytest.mark.parametrize(
    ("made", "told"),
    [
        (
            resource("/queues", "b/q", properties={"lockDuration": "[reference('x').y]"}),
            "resources[0].properties.lockDuration: [reference('x').y] cannot be evaluated: "
            "reference is not one of the functions concat,",
        ),
        (
            resource("/queues", "[concat('b/', guid('x'))]"),
            "resources[0].name: [guid('x')] cannot be evaluated",
        ),
        (
            resource("/queues", "[concat('b/', parameters('bus'))]"),
            "the parameter bus has no value: give it a defaultValue",
        ),
        (
            resource("/queues", "b/q", properties={"lockDuration": "[parameters('gone')]"}),
            "the template has no parameter 'gone'",
        ),
        (
            resource("/queues", "b/q", properties={"lockDuration": "[concat('a'"}),
            "is not a duration: write it like PT30S or P14D",
        ),
        (
            resource("/queues", "b/q", properties={"lockDuration": "[concat('a']"}),
            "[concat('a'] is not a valid expression from its character",
        ),
        (
            resource("/queues", "b/q", properties={"forwardTo": "[variables('a')]"}),
            "variables refer to each other in a circle",
        ),
        (resource("/queues", "q"), "'q' does not have the 2 parts of a name of"),
        (resource("", "b", sku={"name": "Gold"}), "'gold' is not a tier; tiers are basic,"),
        (
            resource("/authorizationRules", "b/r", properties={"rights": ["Own"]}),
            "resources[0].properties.rights: 'Own' is not a right",
        ),
        (resource("/topics/subscriptions/rules", "b/t/s/r"), "belongs to t/subscriptions/s"),
        (
            resource("/queues", "b/q", copy={"name": "c", "count": 5000}),
            "the number of copies must be from 0 to 800, not 5000",
        ),
        ({"type": "Microsoft.Resources/deployments", "properties": {}}, "a linked template"),
    ],
)
def test_what_cannot_be_read_is_refused_with_expression_and_place(made: object, told: str) -> None:
    document = template(made, parameters=NO_VALUE, variables={"a": "[variables('a')]"})

    with pytest.raises(SetupError) as caught:
        from_document(document)

    assert told in str(caught.value)


@pytest.mark.parametrize("start", ["12345678", ["1", "2"]])
def test_a_text_or_list_that_doubles_all_the_time_is_refused(start: object) -> None:
    parameters: dict[str, object] = {"p0": {"defaultValue": start}}
    for number in range(1, 40):
        before = f"parameters('p{number - 1}')"
        parameters[f"p{number}"] = {"defaultValue": f"[concat({before}, {before})]"}
    queue = resource("/queues", "b/q", properties={"userMetadata": "[parameters('p39')]"})

    with pytest.raises(SetupError, match="may have at most"):
        from_document(template(queue, parameters=parameters))


def test_a_parameter_that_the_template_has_not_is_refused() -> None:
    with pytest.raises(SetupError, match="there is no parameter 'colour'; the parameters are bus"):
        from_document(template(parameters=NO_VALUE), colour="red")


def test_partitions_of_a_premium_namespace_are_a_setting_of_the_bus() -> None:
    """R7."""
    properties = {"premiumMessagingPartitions": 2, "zoneRedundant": True}
    said = from_document(
        template(resource("", "b", sku={"name": "Premium"}, properties=properties))
    )

    assert said.tier == "premium"
    assert "the setting premium-generation decides" in said.warnings[0]


def test_two_namespaces_are_refused() -> None:
    with pytest.raises(SetupError, match="a second namespace"):
        from_document(template(resource("", "a"), resource("", "b")))


def test_what_is_unknown_is_told_and_passed_over() -> None:
    queue = resource("/queues", "b/q", properties={"colour": "red"}, plan="x")
    said = from_document(template(queue, resource("/networkRuleSets", "b/default")))

    assert said.warnings == [
        "bus.json: resources[0].plan: this is unknown and ignored",
        "bus.json: resources[0].properties.colour: this is unknown and ignored",
        "bus.json: resources[1]: microsoft.servicebus/namespaces/networkrulesets is ignored",
    ]
