"""What a user reads about an entity that does not exist: one wording, a guess, the next step."""

import pytest

from shardbus.app.cli.failures import NotFound, ServerUnavailable
from shardbus.app.cli.missing import (
    ENTITY,
    QUEUE,
    RULE,
    SUBSCRIPTION,
    TOPIC,
    already_exists,
    no_entity,
)

KNOWN = {
    (QUEUE, ""): ["orders", "invoices"],
    (TOPIC, ""): ["news"],
    (SUBSCRIPTION, "news"): ["europe"],
    (RULE, "news/Subscriptions/europe"): ["$Default", "large"],
}


def names(word: str, owner: str) -> list[str]:
    return KNOWN[word, owner]


@pytest.mark.parametrize(
    ("path", "word", "text"),
    [
        ("ordrs", ENTITY, "there is no queue or topic ordrs; did you mean orders? ("),
        ("ORDRES/$DeadLetterQueue", ENTITY, "topic ORDRES; did you mean orders?"),
        ("zzz", QUEUE, "there is no queue zzz (`shardbus queue list` shows what there is)"),
        ("news", QUEUE, "news is a topic, not a queue"),
        ("orders", TOPIC, "orders is a queue, not a topic"),
        ("orders/Subscriptions/europe", SUBSCRIPTION, "orders is a queue, and only topics have"),
        ("nws/subscriptions/europe", SUBSCRIPTION, "there is no topic nws; did you mean news?"),
        ("news/Subscriptions/eurpe", ENTITY, "has no subscription eurpe; did you mean europe? ("),
        ("news/Subscriptions/europe/Rules/larg", ENTITY, "has no rule larg; did you mean large?"),
        ("news/Subscriptions/asia/Rules", ENTITY, "topic news has no subscription asia ("),
        ("news/europe", ENTITY, "the subscription is news/Subscriptions/europe"),
    ],
)
def test_what_is_missing_is_told_with_a_guess_and_the_next_step(
    path: str, word: str, text: str
) -> None:
    told = no_entity(path, names, word).explained()

    assert text in told
    assert "shardbus " in told


def test_without_an_answer_there_is_no_guess() -> None:
    def silent(word: str, owner: str) -> list[str]:
        raise ServerUnavailable("gone")

    failure = no_entity("ordrs", silent)

    assert failure.explained() == str(failure) == "there is no queue or topic ordrs"


def test_the_bus_is_not_asked_unless_somebody_reads_the_answer() -> None:
    def refuse(word: str, owner: str) -> list[str]:
        raise AssertionError

    with pytest.raises(NotFound):
        raise no_entity("ordrs", refuse)


def test_a_name_that_is_taken_by_another_kind_is_told_so() -> None:
    assert "as a queue" in already_exists("Orders", names, TOPIC).explained()
    assert "update it" in already_exists("orders", names, QUEUE).explained()
    assert "update it" in already_exists("news/Subscriptions/a", names, SUBSCRIPTION).explained()
