"""Two brokers, one slot, three commits: whatever happens in whichever order, the log is right."""

import pytest

from tests.model.core.slot_search import Bounds, Scene, search
from tests.simulation.sending import Violation


@pytest.mark.parametrize(
    ("bounds", "moments"),
    [
        (Bounds((1, 1), (1, 1)), 15_000),
        (Bounds((1, 0), (2, 1)), 8_000),
        (Bounds((2, 0), (1, 1)), 20_000),
        (Bounds((2, 0), (1, 1), gives=(1, 0), commits=1), 20_000),
    ],
    ids=["both break", "there and back", "broken twice", "handed over"],
)
def test_no_order_of_steps_breaks_the_log(bounds: Bounds, moments: int) -> None:
    """R40."""
    seen, ends = search(bounds)

    assert seen > moments
    assert ends > 100


def test_the_search_would_see_a_commit_of_an_old_epoch() -> None:
    """A broker that was fenced stores nothing; the search says so if it does."""
    scene = Scene(Bounds((0, 0), (1, 1)))
    for what, which in [("take", 0), ("step", 0), ("step", 0), ("answer", 0), ("commit", 0)]:
        scene.make(what, which)
    scene.make("step", 0)
    scene.database.abort([])
    scene.database._locked.clear()
    for what, which in [("take", 1), ("step", 1), ("step", 1)]:
        scene.make(what, which)

    with pytest.raises(Violation, match="of epoch 1 was stored at 2"):
        scene.make("step", 0)
