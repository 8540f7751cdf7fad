"""The Python SDK's administration client, unmodified, and topics (R30, R31)."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from azure.core.exceptions import (
    ResourceExistsError,
    ResourceNotFoundError,
)
from azure.servicebus.management import (
    AccessRights,
    AuthorizationRule,
    CorrelationRuleFilter,
    FalseRuleFilter,
    ServiceBusAdministrationClient,
    SqlRuleAction,
    SqlRuleFilter,
    TrueRuleFilter,
)

from shardbus.core.namespace.tier import BASIC
from tests.support.answers import refused_with
from tests.unit.gateway.site import Endpoint, run_client

Client = ServiceBusAdministrationClient


def with_client(
    tmp_path: Path, work: Callable[[Client], None], endpoint: Endpoint | None = None
) -> Endpoint:
    """Run work with a client that trusts the development authority, over HTTPS."""
    served = Endpoint() if endpoint is None else endpoint

    def run() -> None:
        with Client.from_connection_string(
            served.connection_string(), connection_verify=str(served.authority), retry_total=0
        ) as client:
            work(client)

    run_client(served, tmp_path, run)
    return served


def test_a_topic_is_created_shown_updated_and_deleted(tmp_path: Path) -> None:
    """R5, R7, R9, R31."""

    def work(client: Client) -> None:
        created = client.create_topic(
            "Eu/News",
            max_size_in_megabytes=2048,
            requires_duplicate_detection=True,
            authorization_rules=[
                AuthorizationRule(
                    type="SharedAccessAuthorizationRule",
                    claim_type="SharedAccessKey",
                    claim_value="None",
                    rights=[AccessRights.SEND],
                    key_name="writers",
                    primary_key="first",
                    secondary_key="second",
                )
            ],
        )
        assert created.name == "Eu/News"
        assert created.enable_partitioning is True
        assert created.max_size_in_megabytes == 32_768
        assert created.support_ordering is False
        assert created.requires_duplicate_detection is True

        shown = client.get_topic("eu/news")
        assert [rule.key_name for rule in shown.authorization_rules or []] == ["writers"]
        shown.default_message_time_to_live = timedelta(days=3)
        shown.duplicate_detection_history_time_window = timedelta(minutes=5)
        shown.status = "SendDisabled"
        shown.user_metadata = "<for> & 'all'"
        client.update_topic(shown)
        again = client.get_topic("Eu/News")
        assert again.default_message_time_to_live == timedelta(days=3)
        assert again.duplicate_detection_history_time_window == timedelta(minutes=5)
        assert again.status == "SendDisabled"
        assert again.user_metadata == "<for> & 'all'"
        assert again.max_size_in_megabytes == 32_768

        client.delete_topic("Eu/News")
        with pytest.raises(ResourceNotFoundError):
            client.get_topic("Eu/News")

    with_client(tmp_path, work)


def test_a_subscription_is_created_shown_updated_and_deleted(tmp_path: Path) -> None:
    """R30, R31."""

    def work(client: Client) -> None:
        client.create_topic("News")
        created = client.create_subscription("news", "Sport", requires_session=True)
        assert created.name == "Sport"
        assert created.requires_session is True
        assert created.dead_lettering_on_filter_evaluation_exceptions is True
        assert isinstance(created.auto_delete_on_idle, timedelta)
        assert created.auto_delete_on_idle.days > 10**6

        shown = client.get_subscription("NEWS", "sport")
        shown.lock_duration = timedelta(seconds=30)
        shown.max_delivery_count = 3
        shown.dead_lettering_on_message_expiration = True
        shown.dead_lettering_on_filter_evaluation_exceptions = False
        shown.status = "ReceiveDisabled"
        client.update_subscription("News", shown)
        again = client.get_subscription("News", "Sport")
        assert again.lock_duration == timedelta(seconds=30)
        assert again.max_delivery_count == 3
        assert again.dead_lettering_on_message_expiration is True
        assert again.dead_lettering_on_filter_evaluation_exceptions is False
        assert again.status == "ReceiveDisabled"

        client.delete_subscription("News", "Sport")
        with pytest.raises(ResourceNotFoundError):
            client.get_subscription("News", "Sport")

    with_client(tmp_path, work)


def test_a_rule_of_each_kind_is_kept_as_it_was_given(tmp_path: Path) -> None:
    """R30: filters, typed properties, parameters and actions."""
    moment = datetime(2026, 11, 15, 12, 30, 15, tzinfo=UTC)
    typed: dict[str, str | int | float | bool | datetime | timedelta] = {
        "text": "a <b>",
        "small": 7,
        "large": 1 << 40,
        "half": 0.5,
        "flag": True,
        "span": timedelta(days=1, seconds=2),
        "moment": moment,
    }

    def work(client: Client) -> None:
        client.create_topic("t")
        client.create_subscription("t", "s")
        default = client.get_rule("t", "s", "$Default")
        assert isinstance(default.filter, TrueRuleFilter)
        assert default.action is None
        client.create_rule("t", "s", "none", filter=FalseRuleFilter())
        client.create_rule(
            "t",
            "s",
            "sql",
            filter=SqlRuleFilter("amount > @low", {"@low": 5}),
            action=SqlRuleAction("SET tag = @word", {"@word": "big"}),
        )
        client.create_rule(
            "t", "s", "same", filter=CorrelationRuleFilter(label="x", to="y", properties=typed)
        )

        rules = {rule.name: rule for rule in client.list_rules("t", "s")}
        assert list(rules) == ["$Default", "none", "same", "sql"]
        assert isinstance(rules["none"].filter, FalseRuleFilter)
        assert rules["none"].action is None
        sql = client.get_rule("t", "s", "SQL")
        assert isinstance(sql.filter, SqlRuleFilter)
        assert sql.filter.sql_expression == "amount > @low"
        assert sql.filter.parameters == {"@low": 5}
        assert isinstance(sql.action, SqlRuleAction)
        assert sql.action.sql_expression == "SET tag = @word"
        assert sql.action.parameters == {"@word": "big"}
        assert sql.created_at_utc is not None
        assert sql.created_at_utc > datetime.now(UTC) - timedelta(minutes=5)
        same = rules["same"].filter
        assert isinstance(same, CorrelationRuleFilter)
        assert (same.label, same.to, same.message_id) == ("x", "y", None)
        assert same.properties == typed

    with_client(tmp_path, work)


def test_a_rule_is_updated_and_deleted(tmp_path: Path) -> None:
    """R30."""

    def work(client: Client) -> None:
        client.create_topic("t")
        client.create_subscription("t", "s")
        rule = client.create_rule("t", "s", "r", filter=SqlRuleFilter("a = 1"))
        rule.filter = CorrelationRuleFilter(correlation_id="c")
        client.update_rule("t", "s", rule)
        again = client.get_rule("t", "s", "r")
        assert isinstance(again.filter, CorrelationRuleFilter)
        assert again.filter.correlation_id == "c"
        client.delete_rule("t", "s", "$Default")
        assert [rule.name for rule in client.list_rules("t", "s")] == ["r"]
        with pytest.raises(ResourceNotFoundError):
            client.delete_rule("t", "s", "$Default")
        with pytest.raises(ResourceExistsError):
            client.create_rule("t", "s", "R", filter=TrueRuleFilter())

    with_client(tmp_path, work)


def test_a_bad_expression_is_refused_with_its_place_and_nothing_changes(tmp_path: Path) -> None:
    """R30."""

    def work(client: Client) -> None:
        client.create_topic("t")
        client.create_subscription("t", "s")
        with refused_with(400, "line 1, column 9") as refused:
            client.create_rule("t", "s", "r", filter=SqlRuleFilter("amount >> 5"))
        assert refused.value.status_code == 400
        with refused_with(400, "@low"):
            client.create_rule("t", "s", "r", filter=SqlRuleFilter("amount > @low"))
        assert [rule.name for rule in client.list_rules("t", "s")] == ["$Default"]

    with_client(tmp_path, work)


def test_topics_subscriptions_and_rules_are_listed_over_pages(tmp_path: Path) -> None:
    names = [f"n{number}" for number in range(5)]

    def work(client: Client) -> None:
        assert list(client.list_topics()) == []
        for name in reversed(names):
            client.create_topic(name, enable_partitioning=False)
        client.create_queue("q")
        assert [topic.name for topic in client.list_topics(max_page_size=2)] == names
        assert [topic.name for topic in client.list_topics_runtime_properties()] == names
        assert [queue.name for queue in client.list_queues()] == ["q"]
        assert list(client.list_subscriptions("n0")) == []
        for name in reversed(names):
            client.create_subscription("n0", name)
        listed = client.list_subscriptions("n0", max_page_size=2)
        assert [subscription.name for subscription in listed] == names
        runtime = client.list_subscriptions_runtime_properties("n0")
        assert [subscription.name for subscription in runtime] == names
        for name in names:
            client.create_rule("n0", "n0", name, filter=FalseRuleFilter())
        rules = client.list_rules("n0", "n0", max_page_size=2)
        assert [rule.name for rule in rules] == ["$Default", *names]

    with_client(tmp_path, work)


def test_runtime_properties_of_topics_and_subscriptions_are_read(tmp_path: Path) -> None:
    """R29."""

    def work(client: Client) -> None:
        client.create_topic("t")
        client.create_subscription("t", "a")
        client.create_subscription("t", "b")
        topic = client.get_topic_runtime_properties("t")
        assert topic.subscription_count == 2
        assert topic.size_in_bytes == 0
        assert topic.scheduled_message_count == 0
        subscription = client.get_subscription_runtime_properties("t", "a")
        assert subscription.total_message_count == 0
        assert subscription.active_message_count == 0
        assert subscription.dead_letter_message_count == 0

    with_client(tmp_path, work)


def test_names_are_shared_with_queues_and_taken_once(tmp_path: Path) -> None:
    def work(client: Client) -> None:
        client.create_queue("q")
        client.create_topic("t")
        client.create_subscription("t", "s")
        with pytest.raises(ResourceExistsError):
            client.create_topic("Q")
        with pytest.raises(ResourceExistsError):
            client.create_queue("T")
        with pytest.raises(ResourceExistsError):
            client.create_subscription("t", "S")
        with pytest.raises(ResourceNotFoundError):
            client.create_subscription("q", "s")
        with pytest.raises(ResourceNotFoundError):
            client.create_subscription("none", "s")

    with_client(tmp_path, work)


def test_what_is_fixed_at_creation_cannot_be_changed(tmp_path: Path) -> None:
    """R6."""

    def work(client: Client) -> None:
        topic = client.create_topic("t")
        subscription = client.create_subscription("t", "s")
        topic.requires_duplicate_detection = True
        with refused_with(400):
            client.update_topic(topic)
        subscription.requires_session = True
        with refused_with(400):
            client.update_subscription("t", subscription)

    with_client(tmp_path, work)


def test_a_basic_namespace_has_no_topics(tmp_path: Path) -> None:
    """R7."""

    def work(client: Client) -> None:
        with refused_with(400):
            client.create_topic("t")
        assert list(client.list_topics()) == []

    with_client(tmp_path, work, Endpoint(BASIC))
