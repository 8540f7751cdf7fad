"""The definition of a transform in SQL: messages through a query to an entity or a table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, ClassVar, Final, Literal, Self, final

from msgspec import Meta
from msgspec.structs import replace

from shardbus.app.pipelines.streaming import Streaming
from shardbus.app.pipelines.task import option
from shardbus.app.pipelines.transform import Transform
from shardbus.gateway.http.api.places import EntityPlaces
from shardbus.gateway.http.server.refusal import invalid

QUERY_CHARACTERS_MAX: Final = 16_384
SPARK: Final = "spark"


@final
class Sql(Transform, kw_only=True, frozen=True):
    """Messages through a SQL query to an entity or a table."""

    kind: Literal["sql"]
    query: Annotated[
        str,
        Meta(
            min_length=1,
            max_length=QUERY_CHARACTERS_MAX,
            description="SELECT expressions FROM messages WHERE condition. Where the operator "
            "allows code, any query of Spark SQL over the view messages.",
            examples=["SELECT message_id, upper(subject) AS subject, body FROM messages"],
        ),
        option("SELECT expressions FROM messages WHERE condition.", metavar="QUERY"),
    ] = ""

    computed: ClassVar[Mapping[str, str]] = {
        **Streaming.computed,
        "dialect": f"{SPARK}: the query is text for Spark; otherwise it is parsed by the driver.",
    }

    @property
    def has_texts(self) -> bool:
        return True

    def checked(self, name: str) -> Self:
        made = super().checked(name)
        query = made.query.strip().rstrip(";").strip()
        if not query:
            raise invalid("query is missing: SELECT expressions FROM messages WHERE condition.")
        return replace(made, query=query)

    def compute(self, places: EntityPlaces, code_dir: str = "") -> dict[str, str]:
        return {**super().compute(places, code_dir), "dialect": SPARK if code_dir else ""}
