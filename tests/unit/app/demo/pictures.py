"""Pictures of a demo, as tests draw them."""

from typing import Final

from shardbus.demo.picture import Capturing, FragmentBar, Picture, PlacePicture, Subscribed
from shardbus.demo.tally import Counts

PLACE: Final = PlacePicture("http://localhost:5300", ".venv/bin/shardbus", ".venv/bin/python")
RUNNING: Final = Capturing(
    "demo-archive",
    "running",
    rows=4_100,
    backlog=120,
    batch=12,
    batch_rows=240,
    batch_ms=1_830,
    files=32,
    size_bytes=1_234_567,
    location="/data/captured/demo-archive",
)
PICTURE: Final = Picture(
    PLACE,
    192.4,
    queue="demo-orders",
    topic="demo-events",
    counts=Counts(4_021, 160, 3_990, 3_910, 80, 3_910),
    sent_per_s=20.13,
    received_per_s=19.8,
    completed_per_s=19.6,
    published_per_s=19.6,
    fragments=tuple(FragmentBar(number, number, 1.25) for number in range(16)),
    scheduled=4,
    dead_letters=12,
    subscriptions=(
        Subscribed("large", "total >= 200", 3),
        Subscribed("archive", "kind <> 'test'", 212),
    ),
    capturing=RUNNING,
)
