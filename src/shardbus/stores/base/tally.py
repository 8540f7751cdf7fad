"""Tallies of what stores hold, which are compared after a move."""

from __future__ import annotations

from typing import Final, final

from xxhash import xxh3_128_intdigest

_DIGEST_MASK: Final = (1 << 128) - 1


@final
class Tally:
    """A number of things, and a digest over them that does not depend on their order."""

    def __init__(self) -> None:
        self.count = 0
        self.digest = 0

    def add(self, *what: int | str | bytes | None) -> None:
        self.count += 1
        item = xxh3_128_intdigest(repr(what).encode("utf-8", "surrogatepass"))
        self.digest = (self.digest + item) & _DIGEST_MASK

    def to_document(self) -> dict[str, int | str]:
        return {"count": self.count, "digest": f"{self.digest:032x}"}


@final
class StoreTally:
    """What a store holds, by fragment and kind of thing, and the damage in it."""

    def __init__(self) -> None:
        self.namespace_id = ""
        self.highest_entity_id = 0
        self.messages = 0
        self.damages: list[str] = []
        self.fragments: dict[tuple[int, int], dict[str, Tally]] = {}

    def add(self, fragment: tuple[int, int], kind: str, *what: int | str | bytes | None) -> None:
        self.fragments.setdefault(fragment, {}).setdefault(kind, Tally()).add(*what)

    def totals(self) -> dict[str, int]:
        found: dict[str, int] = {}
        for kinds in self.fragments.values():
            for kind, tally in kinds.items():
                found[kind] = found.get(kind, 0) + tally.count
        return found

    def differences(self, moved: StoreTally) -> list[str]:
        """The differences between this store and the store to which it was moved."""
        found: list[str] = []
        if (self.namespace_id, self.highest_entity_id) != (
            moved.namespace_id,
            moved.highest_entity_id,
        ):
            found.append("the namespace or the highest entity id")
        for fragment in sorted({*self.fragments, *moved.fragments}):
            ours, theirs = self.fragments.get(fragment, {}), moved.fragments.get(fragment, {})
            for kind in sorted({*ours, *theirs}):
                here, there = ours.get(kind, Tally()), theirs.get(kind, Tally())
                if (here.count, here.digest) != (there.count, there.digest):
                    found.append(
                        f"{kind} of fragment {fragment[1]} of entity {fragment[0]}: {here.count} "
                        f"(digest {here.digest:032x}) and {there.count} ({there.digest:032x})"
                    )
        return found
