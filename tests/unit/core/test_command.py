"""The words of commands and replies that others rely on."""

from shardbus.core.messages.command import ABANDON, COMPLETE, DEAD_LETTER, RELEASE, Settle


def test_the_four_ways_to_settle_are_told_apart() -> None:
    assert len({COMPLETE, ABANDON, DEAD_LETTER, RELEASE}) == 4


def test_a_settlement_says_nothing_more_unless_told() -> None:
    settle = Settle(COMPLETE, [b"t"])

    assert (settle.reason, settle.description, settle.modified) == (None, None, b"")
