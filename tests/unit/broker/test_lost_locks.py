"""What becomes of the order when locks are lost, on a queue whose map never changed."""

from shardbus.core.messages.command import COMPLETE
from tests.unit.broker.house import House, payloads_of, send_of


def test_of_two_receivers_one_gets_what_the_other_held_after_later_messages(house: House) -> None:
    """P6: a restart releases all locks, so this is no fault of a repartition."""
    runner = house.runner()
    house.answer(runner, send_of(b"1", b"2", b"3", b"4"))
    held = house.receive(runner, 2)
    later = house.receive(runner, 2)
    house.settle(runner, COMPLETE, *later)

    restarted = House(house.disk)
    again = restarted.receive(restarted.runner(), 4)
    restarted.close()

    assert (payloads_of(held), payloads_of(later)) == ([b"1", b"2"], [b"3", b"4"])
    assert payloads_of(again) == [b"1", b"2"], "whoever asks next, perhaps the other receiver"
