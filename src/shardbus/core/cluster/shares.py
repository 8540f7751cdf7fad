"""Which member should own which slot; every member computes the same answer."""

from __future__ import annotations

from typing import final

import xxhash


def cap(slots: int, members: int) -> int:
    """The most slots that a member takes, so that no member takes all of them."""
    return -(-slots // members)


def score(slot: int, name: str) -> int:
    """Rendezvous hashing: the member with the highest score comes first for a slot."""
    return xxhash.xxh64_intdigest(f"{slot}/{name}".encode())


def ranked(slot: int, former: str, counts: dict[str, int], most: int) -> list[str]:
    """The members that should take a free slot, best first, without those that have the maximum
    number.

    A new incarnation of the previous owner comes first, because clients are connected to it.
    """
    names = [name for name, count in counts.items() if count < most]
    order = [(name != former, -score(slot, name), name) for name in names]
    order.sort()
    return [item[2] for item in order]


@final
class Move:
    """A slot that should go from one member to another."""

    def __init__(self, slot: int, giver: str, taker: str) -> None:
        self.slot = slot
        self.giver = giver
        self.taker = taker


def moves(owners: dict[int, str], names: list[str]) -> list[Move]:
    """The moves after which the numbers of slots of all members are equal or differ by one.

    A slot moves only if that reduces the difference of two members, so that no slot returns.
    """
    slots: dict[str, list[int]] = {name: [] for name in names}
    for slot, owner in owners.items():
        if owner in slots:
            slots[owner].append(slot)
    planned: list[Move] = []
    while len(slots) > 1:
        by_size = sorted([(len(owned), name) for name, owned in slots.items()])
        taker, giver = by_size[0][1], by_size[-1][1]
        if by_size[-1][0] - by_size[0][0] < 2:
            break
        best = slots[giver][0]
        for slot in slots[giver]:
            if score(slot, taker) > score(best, taker):
                best = slot
        slots[giver].remove(best)
        slots[taker].append(best)
        planned.append(Move(best, giver, taker))
    return planned
