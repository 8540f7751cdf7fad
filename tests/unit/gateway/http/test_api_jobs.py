"""Work on many messages that the server does: each is moved once, or not at all (R46)."""

import json
from collections.abc import Iterator

import pytest

from shardbus.core.errors import Unavailable
from shardbus.core.message import DEAD_LETTER_LINE, MAIN_LINE
from shardbus.core.messages.command import ReceiveNumbered
from shardbus.core.namespace.access import LISTEN, SEND, AccessRule
from shardbus.core.namespace.entity import EntitySpec
from shardbus.core.transactions.command import Transact
from shardbus.gateway.http.api.places import EntityPlaces
from shardbus.gateway.http.jobs.job import RUNNING_MAX, Aside
from shardbus.gateway.http.jobs.jobs import Jobs
from shardbus.gateway.http.server.message import HttpResponse
from tests.unit.gateway.http.memory_shelf import at_once
from tests.unit.gateway.http.messages_web import Stubborn
from tests.unit.gateway.http.web import Web, header

Json = dict[str, object]
DEAD = "%2F$DeadLetterQueue"


class Desk(Web):
    """A gateway that runs jobs."""

    def __init__(self, aside: Aside = at_once) -> None:
        super().__init__()
        self._aside = aside
        self.serve()

    def serve(self) -> None:
        self.jobs = Jobs(EntityPlaces(self.bus, self.counts, None), self.shelf, self._aside)
        self.with_groups(self.groups())
        self.run(self.jobs.load())
        self.serving = self.loop.create_task(self.jobs.run())
        self.pass_s()

    def restart(self) -> None:
        """As after the end of the process: a new gateway over the same shelf."""
        self.serving.cancel()
        self.pass_s()
        self.serve()

    def call(self, method: str, path: str, body: object = None, *, status: int = 200) -> Json:
        content = b"" if body is None else json.dumps(body).encode()
        response = self.fetch(method, f"/api/v1/{path}", content)
        assert response.status == status, response.body
        document: Json = json.loads(response.body)
        return document

    def bury(self, entity: str, count: int, *, of: str = "") -> None:
        """Make dead letters."""
        messages = [
            {"body": f"m{n}", "message_id": f"{n}", "properties": {"n": n}, "partition_key": f"{n}"}
            for n in range(count)
        ]
        for at in range(0, count, 1_000):
            some = {"messages": messages[at : at + 1_000]}
            self.call("POST", f"entities/{of or entity}/messages", some)
        left = count
        while left:
            wish = {"count": min(left, 250)}
            received = self.call("POST", f"entities/{entity}/messages/receive", wish)["messages"]
            assert isinstance(received, list) and received
            settlement = {
                "action": "dead_letter",
                "lock_tokens": [one["lock_token"] for one in received],
                "reason": "tested",
            }
            self.call("POST", f"entities/{entity}/messages/settle", settlement)
            left -= len(received)

    def begin(self, entity: str, action: str, *, status: int = 201, **more: object) -> Json:
        return self.call(
            "POST", f"entities/{entity}/jobs", {"action": action, **more}, status=status
        )

    def wait(self, job: Json) -> Json:
        found: Json = {}
        for _ in range(300):
            entity = str(job["entity"]).replace("/", "%2F")
            found = self.call("GET", f"entities/{entity}/jobs/{job['id']}")
            if found["state"] not in ("running", "stopping"):
                return found
            self.pass_s(1)
        raise AssertionError(found)

    def bodies(self, entity: str) -> list[str]:
        found: list[str] = []
        cursor = None
        while True:
            page = self.call(
                "POST", f"entities/{entity}/messages/search", {"count": 250, "cursor": cursor}
            )
            messages, cursor = page["messages"], page["next"]
            assert isinstance(messages, list)
            found += [str(one["body"]) for one in messages]
            if cursor is None:
                return found


@pytest.fixture
def desk() -> Iterator[Desk]:
    desk = Desk()
    yield desk
    desk.serving.cancel()
    desk.pass_s()
    desk.shelf.close()
    desk.close()


@pytest.mark.parametrize("queue", ["q", "many"])
def test_all_dead_letters_are_resubmitted_once(desk: Desk, queue: str) -> None:
    desk.bury(queue, 300)

    job = desk.wait(desk.begin(f"{queue}{DEAD}", "resubmit"))

    assert (job["state"], job["done"], job["skipped"], job["examined"]) == ("done", 300, 0, 300)
    assert sorted(desk.bodies(queue)) == sorted(f"m{n}" for n in range(300))
    assert desk.bodies(f"{queue}{DEAD}") == []


@pytest.mark.parametrize(
    ("selection", "expected"),
    [
        ({"where": "n < 3"}, ["m0", "m1", "m2"]),
        ({"text": "m29"}, ["m29"]),
        ({"reason": "another"}, []),
    ],
)
def test_only_what_is_selected_is_moved(desk: Desk, selection: Json, expected: list[str]) -> None:
    desk.bury("many", 30)
    desk.create("other")

    job = desk.wait(desk.begin(f"many{DEAD}", "move", destination="other", selection=selection))

    assert sorted(desk.bodies("other")) == expected
    assert len(desk.bodies(f"many{DEAD}")) == 30 - len(expected)
    assert (job["done"], job["examined"]) == (len(expected), 30)


def test_messages_are_selected_by_numbers_deep_in_a_line(desk: Desk) -> None:
    desk.bury("q", 3_000)
    page = desk.call(
        "POST", f"entities/q{DEAD}/messages/search", {"newest_first": True, "count": 2}
    )
    last, other = (one["number"] for one in page["messages"])  # type: ignore[attr-defined]  # a list

    job = desk.wait(desk.begin(f"q{DEAD}", "delete", selection={"numbers": [last, other]}))

    assert job["done"] == 2
    assert len(desk.bodies(f"q{DEAD}")) == 2_998
    rest = desk.wait(desk.begin(f"q{DEAD}", "resubmit"))
    assert rest["done"] == 2_998


def test_letters_are_edited_and_resubmitted(desk: Desk) -> None:
    desk.bury("many", 3)
    edit = {
        "body": "new",
        "properties": {"set": {"fixed": True}, "remove": ["n"]},
        "fields": {"subject": "again", "message_id": None},
    }

    desk.wait(desk.begin(f"many{DEAD}", "resubmit", edit=edit, selection={"where": "n = 1"}))

    [message] = desk.call("POST", "entities/many/messages/search", {})["messages"]  # type: ignore[misc]  # a list of one
    assert (message["body"], message["subject"]) == ("new", "again")  # type: ignore[has-type]  # an object
    assert message["properties"] == {"fixed": True}  # type: ignore[has-type]  # an object
    assert message["partition_key"] == "1"  # type: ignore[has-type]  # an object


def test_an_export_has_every_message_and_can_be_sent_again(desk: Desk) -> None:
    desk.bury("many", 20)

    job = desk.wait(desk.begin(f"many{DEAD}", "export"))
    answer = desk.fetch("GET", f"/api/v1/entities/many{DEAD}/jobs/{job['id']}/export")

    lines = [json.loads(line) for line in answer.body.splitlines()]
    assert {line["body"] for line in lines} == {f"m{n}" for n in range(20)}
    assert header(answer, "X-Export-Size") == str(len(answer.body))
    assert "X-Export-Next" not in dict(answer.headers)
    assert len(desk.bodies(f"many{DEAD}")) == 20
    desk.call("POST", "entities/q/messages", {"messages": lines})
    assert len(desk.bodies("q")) == 20


def test_a_job_keeps_what_its_client_calls_the_messages(desk: Desk) -> None:
    """R46: the key of a group says nothing to people."""
    desk.bury("q", 1)
    about = "NoStock \N{MIDDLE DOT} out of stock: item <n>"
    job = desk.begin(f"q{DEAD}", "export", about=about)
    desk.restart()

    assert desk.call("GET", f"entities/q{DEAD}/jobs/{job['id']}")["about"] == about
    desk.begin(f"q{DEAD}", "export", status=400, about="x" * 301)


def test_what_is_deleted_is_written_before_if_asked(desk: Desk) -> None:
    desk.bury("q", 5)

    job = desk.wait(desk.begin(f"q{DEAD}", "delete", backup=True))
    answer = desk.fetch("GET", f"/api/v1/entities/q/jobs/{job['id']}/export")

    assert (job["done"], job["export_lines"], len(answer.body.splitlines())) == (5, 5, 5)
    assert desk.bodies(f"q{DEAD}") == []


def test_a_job_continues_after_a_restart(desk: Desk) -> None:
    desk.bury("many", 600)
    job = desk.begin(f"many{DEAD}", "resubmit")
    desk.pass_s(0.03)
    desk.restart()

    ended = desk.wait(job)

    assert (ended["state"], ended["restarts"]) == ("done", 1)
    assert sorted(desk.bodies("many")) == sorted(f"m{n}" for n in range(600))
    assert desk.bodies(f"many{DEAD}") == []


def test_a_gateway_among_others_says_that_jobs_may_be_elsewhere(desk: Desk) -> None:
    """R46, R41"""
    desk.bury("q", 1)
    alone = desk.call("GET", "jobs")
    assert isinstance(desk.jobs, Jobs)
    desk.jobs.is_complete = False
    among = desk.call("GET", f"entities/q{DEAD}/jobs")
    missing = desk.call("GET", f"entities/q{DEAD}/jobs/20260131-120000-0a1b2c", status=404)

    assert (alone["is_complete"], among["is_complete"]) == (True, False)
    assert "gateway that started" in str(missing["error"])


def test_what_fails_again_is_not_resubmitted_for_ever(desk: Desk) -> None:
    desk.bury("q", 3)
    job = desk.wait(desk.begin(f"q{DEAD}", "resubmit"))
    desk.bury("q", 3)

    assert (job["done"], len(desk.bodies(f"q{DEAD}"))) == (3, 3)


def test_a_job_is_stopped_after_its_chunk(desk: Desk) -> None:
    desk.bury("q", 1_000)
    job = desk.begin(f"q{DEAD}", "resubmit")
    stopping = desk.call("POST", f"entities/q{DEAD}/jobs/{job['id']}/stop")

    ended = desk.wait(job)

    assert (stopping["state"], ended["state"]) == ("stopping", "stopped")
    done = int(str(ended["done"]))
    assert done < 1_000
    assert len(desk.bodies("q")) == done
    assert len(desk.bodies(f"q{DEAD}")) == 1_000 - done


def test_an_unavailable_fragment_is_waited_for(desk: Desk) -> None:
    desk.bury("many", 64)
    handle = desk.bus.find("many")
    assert handle is not None
    ports, whole = handle.router.ports, handle.router.ports[3]
    ports[3] = Stubborn(whole, ReceiveNumbered)

    job = desk.begin(f"many{DEAD}", "resubmit")
    desk.pass_s(5)
    waiting = desk.call("GET", f"entities/many{DEAD}/jobs/{job['id']}")
    ports[3] = whole
    ended = desk.wait(job)

    assert (waiting["state"], "away" in str(waiting["error"])) == ("running", True)
    assert (ended["state"], ended["done"], ended["error"]) == ("done", 64, "")
    assert len(desk.bodies("many")) == 64


def test_a_full_destination_ends_the_job_and_nothing_is_lost(desk: Desk) -> None:
    desk.bury("q", 4)
    desk.create("other")
    handle = desk.bus.find("other")
    assert handle is not None
    handle.entity.spec.status = "Disabled"

    answer = desk.begin(f"q{DEAD}", "move", destination="other", status=400)

    assert answer["error"]
    assert len(desk.bodies(f"q{DEAD}")) == 4


@pytest.mark.parametrize("is_edited", [False, True])
def test_letters_in_former_fragments_of_a_subscription_are_resubmitted(
    desk: Desk, is_edited: bool
) -> None:
    """P6: to the present fragments of the topic, from which they reach the subscription."""
    desk.create_topic("news", is_partitioned=False)
    desk.subscribe("news", "eu")
    desk.bury("news%2FSubscriptions%2Feu", 5, of="news")
    desk.run(desk.namespace.maps.change("news", 3))
    line = f"news%2FSubscriptions%2Feu{DEAD}"

    edit = {"properties": {"set": {"again": True}}}
    begun = desk.begin(line, "resubmit", edit=edit) if is_edited else desk.begin(line, "resubmit")
    job = desk.wait(begun)

    assert job["done"] == 5, job
    assert len(desk.bodies("news%2FSubscriptions%2Feu")) == 5 and desk.bodies(line) == []


def test_letters_of_a_subscription_warn_of_its_sisters(desk: Desk) -> None:
    desk.create_topic("news", is_partitioned=True)
    for name in ("eu", "us"):
        desk.subscribe("news", name)
    desk.bury("news%2FSubscriptions%2Feu", 5, of="news")
    line = f"news%2FSubscriptions%2Feu{DEAD}"

    planned = desk.begin(line, "resubmit", is_dry_run=True)
    assert desk.call("GET", "jobs")["jobs"] == []
    job = desk.wait(desk.begin(line, "resubmit"))

    assert "us" in str(planned["warnings"]) and planned["total"] == 5
    assert (job["done"], job["destination"]) == (5, "news")
    assert len(desk.bodies("news%2FSubscriptions%2Feu")) == 5
    assert len(desk.bodies("news%2FSubscriptions%2Fus")) == 10


def test_active_messages_become_dead_letters_with_a_reason_and_can_come_back(desk: Desk) -> None:
    """R46"""
    desk.call("POST", "entities/many/messages", {"messages": [{"body": f"m{n}"} for n in range(9)]})
    desk.call("POST", "entities/many/messages/receive", {"count": 1})
    page = desk.call("POST", "entities/many/messages/search", {})
    numbers = [one["number"] for one in page["messages"]]  # type: ignore[attr-defined]  # a list
    job = desk.begin(
        "many",
        "dead_letter",
        selection={"numbers": numbers},
        reason="no stock",
        description="wait for the truck",
    )

    ended = desk.wait(job)
    letters = desk.call("POST", f"entities/many{DEAD}/messages/search", {})["messages"]
    again = desk.wait(desk.begin(f"many{DEAD}", "resubmit"))

    assert (ended["done"], ended["skipped"], ended["reason"]) == (8, 1, "no stock")
    assert isinstance(letters, list) and len(letters) == 8
    assert {one["dead_letter_reason"] for one in letters} == {"no stock"}
    assert {one["dead_letter_description"] for one in letters} == {"wait for the truck"}
    assert (again["done"], len(desk.bodies("many"))) == (8, 9)


def test_a_job_that_makes_dead_letters_continues_after_a_restart(desk: Desk) -> None:
    """R46"""
    some = {"messages": [{"body": f"m{n}", "partition_key": f"{n}"} for n in range(600)]}
    desk.call("POST", "entities/many/messages", some)
    job = desk.begin("many", "dead_letter", reason="tested")
    desk.pass_s(0.03)
    desk.restart()

    ended = desk.wait(job)

    assert (ended["state"], ended["restarts"]) == ("done", 1)
    assert sorted(desk.bodies(f"many{DEAD}")) == sorted(f"m{n}" for n in range(600))
    letters = desk.call("POST", f"entities/many{DEAD}/messages/search", {})["messages"]
    assert isinstance(letters, list)
    assert {one["dead_letter_reason"] for one in letters} == {"tested"}


def test_locked_messages_are_skipped(desk: Desk) -> None:
    desk.bury("q", 3)
    desk.call("POST", f"entities/q{DEAD}/messages/receive", {"count": 1})

    job = desk.wait(desk.begin(f"q{DEAD}", "delete"))

    assert (job["done"], job["skipped"]) == (2, 1)


@pytest.mark.parametrize(
    ("line", "body"),
    [
        ("q", {"action": "resubmit"}),
        (f"q{DEAD}", {"action": "move"}),
        (f"q{DEAD}", {"action": "delete", "edit": {}}),
        (f"q{DEAD}", {"action": "delete", "destination": "many"}),
        (f"q{DEAD}", {"action": "resubmit", "edit": {"fields": {"nope": "x"}}}),
        (f"q{DEAD}", {"action": "resubmit", "edit": {"properties": {"set": {"a": [1]}}}}),
        (f"q{DEAD}", {"action": "delete", "selection": {"where": "n >"}}),
        (f"q{DEAD}", {"action": "delete", "selection": {"numbers": ["0"]}}),
        (f"q{DEAD}", {"action": "explode"}),
        ("q", {"action": "move", "destination": "q"}),
        (f"q{DEAD}", {"action": "dead_letter"}),
        ("q", {"action": "dead_letter", "destination": "many"}),
        ("q", {"action": "dead_letter", "edit": {}}),
        ("q", {"action": "dead_letter", "mark": "x"}),
        ("q", {"action": "dead_letter", "reason": "x" * 4_097}),
        ("q", {"action": "delete", "reason": "x"}),
        ("q", {"action": "export", "description": "x"}),
    ],
)
def test_a_wrong_job_is_refused(desk: Desk, line: str, body: Json) -> None:
    desk.call("POST", f"entities/{line}/jobs", body, status=400)


def test_there_is_a_bound_on_jobs(desk: Desk) -> None:
    desk.bury("q", 1)
    for _ in range(RUNNING_MAX):
        desk.begin(f"q{DEAD}", "export")

    desk.begin(f"q{DEAD}", "export", status=403)


def test_a_job_is_forgotten_only_after_its_end(desk: Desk) -> None:
    desk.bury("q", 500)
    job = desk.begin(f"q{DEAD}", "export")
    path = f"entities/q/jobs/{job['id']}"

    desk.call("DELETE", path, status=400)
    desk.wait(job)
    assert desk.call("DELETE", path) == {"deleted": job["id"]}
    desk.call("GET", path, status=404)
    assert desk.shelf.load() == []


def test_a_job_needs_the_rights_of_what_it_does(desk: Desk) -> None:
    """R34."""
    spec = EntitySpec()
    spec.access_rules = [AccessRule("reader", LISTEN, "r"), AccessRule("both", LISTEN | SEND, "b")]
    desk.create("guarded", spec=spec)

    def start(key: str, body: Json, scope: str = "guarded") -> HttpResponse:
        token = desk.token(f"http://bus/{scope}", key_name=key, key=key[0])
        path = f"/api/v1/entities/guarded{DEAD}/jobs"
        return desk.fetch("POST", path, json.dumps(body).encode(), token=token)

    assert start("reader", {"action": "export"}).status == 201
    assert start("reader", {"action": "resubmit"}).status == 401
    assert start("both", {"action": "resubmit"}).status == 201
    for scope in ("guarded", ""):
        elsewhere = start("both", {"action": "move", "destination": "q"}, scope)
        assert elsewhere.status == 401
        # The key is a right one: the refusal names the missing right and the entity.
        assert b"'Send' claim(s) are required" in elsewhere.body
        assert b"InvalidSignature" not in elsewhere.body


# Messages by their numbers.


@pytest.mark.parametrize("line", [MAIN_LINE, DEAD_LETTER_LINE])
def test_messages_are_locked_by_their_numbers_and_wait_again(desk: Desk, line: int) -> None:
    path = "q" if line == MAIN_LINE else f"q{DEAD}"
    desk.bury("q", 10)
    if line == MAIN_LINE:
        desk.wait(desk.begin(f"q{DEAD}", "resubmit"))
    handle = desk.bus.find("q")
    assert handle is not None
    page = desk.call("POST", f"entities/{path}/messages/search", {})
    numbers = [int(one["number"]) for one in page["messages"]]  # type: ignore[attr-defined]  # a list
    wanted = [numbers[7], numbers[2], 99_999]

    locked = desk.run(handle.operations.lock_numbered(line, wanted))
    again = desk.run(handle.operations.lock_numbered(line, wanted))
    rest = desk.call("POST", f"entities/{path}/messages/receive", {"count": 20})["messages"]

    assert [one.entry.sequence_number for one in locked] == wanted[:2]
    assert again == []
    assert len(rest) == 8  # type: ignore[arg-type]  # a list
    handle.router.release([one.token for one in locked])
    desk.pass_s()
    returned = desk.call("POST", f"entities/{path}/messages/receive", {"count": 20})["messages"]
    assert [one["sequence_number"] for one in returned] == sorted(wanted[:2])  # type: ignore[attr-defined]  # a list


def test_a_lost_answer_neither_loses_nor_duplicates(desk: Desk) -> None:
    """The transaction is done, its answer is lost: the job looks again."""
    desk.bury("q", 50)
    handle = desk.bus.find("q")
    assert handle is not None
    outbox = handle.router.outboxes[0]
    port = handle.router.ports[0]

    class Forgetful(Stubborn):
        def submit(self, command, reply_to):  # type: ignore[no-untyped-def]  # as its base
            if isinstance(command, Transact) and not lost:
                lost.append(True)
                port.submit(command, lambda _: reply_to(Unavailable("lost", is_unknown=True)))
            else:
                port.submit(command, reply_to)

    lost: list[bool] = []
    outbox._port = Forgetful(port, Transact)

    job = desk.wait(desk.begin(f"q{DEAD}", "resubmit"))

    assert lost and job["state"] == "done"
    assert sorted(desk.bodies("q")) == sorted(f"m{n}" for n in range(50))
    assert desk.bodies(f"q{DEAD}") == []
