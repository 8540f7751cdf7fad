"""Every scenario there is, by the name that the table and the command line use."""

from collections.abc import Callable
from typing import Final

from tests.simulation.batch_scenario import run_batches
from tests.simulation.catalogue_scenario import run_catalogue
from tests.simulation.follower_scenario import run_followers
from tests.simulation.forward_map_scenario import run_forward_maps
from tests.simulation.forward_scenario import run_forwarding
from tests.simulation.lease_scenario import run_leases
from tests.simulation.map_scenario import run_id_maps, run_maps, run_topic_maps
from tests.simulation.moment_scenario import run_moments
from tests.simulation.reader_scenario import run_reader_maps, run_readers
from tests.simulation.scenario import run, run_clocks, run_linked, run_linked_clocks
from tests.simulation.session_map_scenario import run_session_maps, run_topic_session_maps
from tests.simulation.session_reader_map_scenario import run_session_reader_maps
from tests.simulation.session_reader_scenario import run_session_readers
from tests.simulation.stage_scenario import run_stage_maps, run_stages
from tests.simulation.taker_scenario import run_takers
from tests.simulation.topic_scenario import run_mapped_topics, run_topics
from tests.simulation.transaction_scenario import run_transactions

Play = Callable[[int], object]

PLAYS: Final[dict[str, Play]] = {
    "queues": run,
    "links": run_linked,
    "clocks": run_clocks,
    "linked clocks": run_linked_clocks,
    "moments": run_moments,
    "topics": run_topics,
    "transactions": run_transactions,
    "batches": run_batches,
    "forwarding": run_forwarding,
    "stages": run_stages,
    "readers": run_readers,
    "holders": run_session_readers,
    "takers": run_takers,
    "followers": run_followers,
    "catalogue": run_catalogue,
    "leases": run_leases,
    "maps": run_maps,
    "id maps": run_id_maps,
    "session maps": run_session_maps,
    "stage maps": run_stage_maps,
    "topic maps": run_topic_maps,
    "subscription maps": run_topic_session_maps,
    "mapped topics": run_mapped_topics,
    "forward maps": run_forward_maps,
    "reader maps": run_reader_maps,
    "holder maps": run_session_reader_maps,
}
