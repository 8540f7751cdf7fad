"""Who has to go when the lobby is full."""

import random
from collections import Counter

from shardbus.gateway.admission.guests import Guests


class Guest:
    """Remembers whether it was expelled."""

    def __init__(self, peer: str) -> None:
        self.peer = peer
        self.is_expelled = False

    def expel(self) -> None:
        self.is_expelled = True


def lobby_of(*peers: str) -> tuple[Guests, list[Guest]]:
    lobby, guests = Guests(), [Guest(peer) for peer in peers]
    for moment, guest in enumerate(guests):
        lobby.enter(guest, moment)
    return lobby, guests


def expelled(guests: list[Guest]) -> list[int]:
    return [position for position, guest in enumerate(guests) if guest.is_expelled]


def test_room_is_made_by_the_oldest_guest_of_the_noisiest_peer() -> None:
    lobby, guests = lobby_of("quiet", "noisy", "noisy", "quiet", "noisy")

    assert lobby.make_room()

    assert expelled(guests) == [1]
    assert len(lobby) == 4
    assert guests[1] not in lobby


def test_a_noisy_peer_is_cut_down_to_what_the_others_have() -> None:
    lobby, guests = lobby_of("quiet", "noisy", "noisy", "noisy", "noisy", "quiet")

    for _ in range(2):
        lobby.make_room()

    assert expelled(guests) == [1, 2]


def test_an_empty_lobby_has_no_room_to_make() -> None:
    lobby, guests = lobby_of("one")
    lobby.leave(guests[0])

    assert not lobby.make_room()
    assert expelled(guests) == []


def test_who_has_left_leaves_once_and_is_not_expelled() -> None:
    lobby, guests = lobby_of("noisy", "noisy", "quiet")

    assert lobby.leave(guests[0])
    assert not lobby.leave(guests[0])
    lobby.leave(guests[1])
    lobby.make_room()

    assert expelled(guests) == [2]


def test_the_overdue_are_those_who_came_before_a_moment() -> None:
    lobby, guests = lobby_of("a", "b", "a")
    lobby.leave(guests[0])

    assert lobby.overdue(2) == [guests[1]]
    assert lobby.overdue(1) == []


def test_the_oldest_of_all_goes_only_if_it_is_old_enough() -> None:
    lobby, guests = lobby_of("a", "b", "b")

    assert not lobby.expel_one_before(0)
    assert lobby.expel_one_before(1)
    assert not lobby.expel_one_before(1)

    assert expelled(guests) == [0]
    assert not Guests().expel_one_before(1)


def test_whatever_happens_the_peer_with_the_most_goes_first() -> None:
    dice = random.Random(1)
    lobby, inside = Guests(), list[Guest]()
    for moment in range(3_000):
        if dice.random() < 0.55:
            guest = Guest(f"peer-{dice.randrange(8)}")
            lobby.enter(guest, moment)
            inside.append(guest)
        elif inside and dice.random() < 0.5:
            lobby.leave(inside.pop(dice.randrange(len(inside))))
        elif lobby.make_room():
            counts = Counter(guest.peer for guest in inside)
            [gone] = [guest for guest in inside if guest.is_expelled]
            assert counts[gone.peer] == max(counts.values())
            assert gone is next(guest for guest in inside if guest.peer == gone.peer)
            inside.remove(gone)
        assert lobby.guests() == inside
