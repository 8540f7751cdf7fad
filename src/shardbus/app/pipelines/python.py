"""The definition of a transform in Python: a function in a file of the operator."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, ClassVar, Final, Literal, Self, final

from msgspec import Meta

from shardbus.app.pipelines.streaming import Streaming
from shardbus.app.pipelines.task import option
from shardbus.app.pipelines.transform import Transform
from shardbus.core.errors import NOT_ALLOWED, NOT_FOUND, Refused
from shardbus.gateway.http.api.places import EntityPlaces
from shardbus.gateway.http.server.refusal import invalid, shown

FILE_CHARACTERS_MAX: Final = 128
FUNCTION_CHARACTERS_MAX: Final = 64
FUNCTION_DEFAULT: Final = "transform"
# A single name, so that it cannot refer to a file outside of the operator's directory.
_FILE: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*\.py")


@final
class Python(Transform, kw_only=True, frozen=True):
    """Messages through a function of the operator to an entity or a table."""

    kind: Literal["python"]
    file: Annotated[
        str,
        Meta(
            max_length=FILE_CHARACTERS_MAX,
            description="A file in the operator's directory of code.",
            examples=["prices.py"],
        ),
        option("File in the server's --pipeline-code.", metavar="NAME.py"),
    ] = ""
    function: Annotated[
        str,
        Meta(
            max_length=FUNCTION_CHARACTERS_MAX,
            description="The function of the file: it gets the Spark session and the messages, and "
            "returns the results.",
        ),
        option("Function in the file.", metavar="NAME", note=f"default: {FUNCTION_DEFAULT}"),
    ] = FUNCTION_DEFAULT

    computed: ClassVar[Mapping[str, str]] = {
        **Streaming.computed,
        "code": "The path of the file.",
    }

    def checked(self, name: str) -> Self:
        if not _FILE.fullmatch(self.file):
            raise invalid(
                f"file is {shown(self.file)}; it must be the name of a Python file in the "
                "server's pipeline-code directory, such as prices.py."
            )
        if not self.function.isidentifier():
            raise invalid(
                f"function is {shown(self.function)}; it must be the name of a Python function."
            )
        return super().checked(name)

    def check_code(self, code_dir: str) -> None:
        if not code_dir:
            raise Refused(
                NOT_ALLOWED,
                "The operator of this bus does not allow code in pipelines: start the server with "
                "--pipeline-code DIRECTORY, or use the kind sql.",
            )
        if not (Path(code_dir) / self.file).is_file():
            raise Refused(
                NOT_FOUND, f"There is no file {self.file} in the pipeline-code directory."
            )

    def compute(self, places: EntityPlaces, code_dir: str = "") -> dict[str, str]:
        self.check_code(code_dir)
        code = str((Path(code_dir) / self.file).absolute())
        return {**super().compute(places, code_dir), "code": code}
