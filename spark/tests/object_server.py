"""A store of objects in memory that speaks as much of S3 as tables need, and fails when told to.

Like the real ones it has no renames, no locks and no appends: an object appears as a whole, is
replaced on conditions, and is found by listing. It does not check signatures, only who signs.
"""

from __future__ import annotations

import hashlib
from email.utils import formatdate
from typing import Final, final
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

from spark.tests.fated_server import FatedHandler, FatedServer

BUCKET: Final = "tables"
KEY_NAME: Final = "AKIATESTSTORE"
SECRET: Final = "wJalr-the-secret-of-the-store"
LISTED_MAX: Final = 100
_WHEN: Final = 1_769_842_800


@final
class ObjectServer(FatedServer):
    """`uploads` are the parts of uploads that are neither completed nor aborted."""

    root: Final = f"s3a://{BUCKET}"

    def __init__(self) -> None:
        super().__init__(_Handler)
        self.objects: dict[str, bytes] = {}
        self.uploads: dict[str, dict[int, bytes]] = {}
        self.listed_max = LISTED_MAX
        self.listings = 0

    def environment(self, secret: str = SECRET, key_name: str = KEY_NAME) -> dict[str, str]:
        """The environment of a process that uses the store."""
        return {
            "AWS_ENDPOINT_URL": self.url,
            "AWS_ACCESS_KEY_ID": key_name,
            "AWS_SECRET_ACCESS_KEY": secret,
            "AWS_REGION": "us-east-1",
        }

    def keys(self, prefix: str) -> list[str]:
        return sorted(key for key in self.objects if key.startswith(prefix))


def etag(content: bytes) -> str:
    return f'"{hashlib.md5(content, usedforsecurity=False).hexdigest()}"'


class _Handler(FatedHandler[ObjectServer]):
    def refusal(self, code: str, message: str) -> bytes:
        return _error(code, message)

    def do(self, bucket: str, key: str, body: bytes) -> None:
        self._asked = parse_qs(urlsplit(self.path).query, keep_blank_values=True)
        if f"Credential={KEY_NAME}/" not in self.headers.get("authorization", ""):
            self.answer(403, _error("InvalidAccessKeyId", "The key id does not exist."))
        elif bucket != BUCKET:
            self.answer(404, _error("NoSuchBucket", "The bucket does not exist."))
        elif self.command == "POST" and "delete" in self._asked:
            self._delete_some(body.decode())
        elif "uploads" in self._asked or "uploadId" in self._asked:
            self._upload(key, self._one("uploadId"), body)
        elif self.command == "PUT":
            self._put(key, body)
        elif self.command == "DELETE":
            self.store.objects.pop(key, None)
            self.answer(204)
        elif "list-type" in self._asked:
            self.answer(200, self._listing())
        else:
            self._get(key)

    def _upload(self, key: str, number: str, body: bytes) -> None:
        """In parts: an object appears when they are put together."""
        if not number:
            number = f"upload-{len(self.store.requests)}"
            self.store.uploads[number] = {}
            told = f"<InitiateMultipartUploadResult><UploadId>{number}</UploadId>"
            self.answer(200, f"{told}</InitiateMultipartUploadResult>".encode())
        elif number not in self.store.uploads:
            self.answer(404, _error("NoSuchUpload", "The upload does not exist."))
        elif self.command == "PUT":
            self.store.uploads[number][int(self._one("partNumber"))] = body
            self.answer(200, headers={"ETag": etag(body)})
        elif self.command == "DELETE":
            self.store.uploads.pop(number)
            self.answer(204)
        else:
            parts = self.store.uploads.pop(number)
            self.store.objects[key] = b"".join(parts[at] for at in sorted(parts))
            made = f"<ETag>{escape(etag(self.store.objects[key]))}</ETag>"
            told = f"<CompleteMultipartUploadResult>{made}</CompleteMultipartUploadResult>"
            self.answer(200, told.encode())

    def _put(self, key: str, body: bytes) -> None:
        there = self.store.objects.get(key)
        wanted = self.headers.get("if-match")
        if (self.headers.get("if-none-match") == "*" and there is not None) or (
            wanted is not None and (there is None or etag(there) != wanted)
        ):
            self.answer(412, _error("PreconditionFailed", "A condition did not hold."))
            return
        source = self.headers.get("x-amz-copy-source")
        if source is None:
            self.store.objects[key] = body
            self.answer(200, headers={"ETag": etag(body)})
            return
        copied = self.store.objects.get(unquote(source).lstrip("/").partition("/")[2])
        if copied is None:
            self.answer(404, _error("NoSuchKey", "The object does not exist."))
            return
        self.store.objects[key] = copied
        result = f"<CopyObjectResult><ETag>{escape(etag(copied))}</ETag></CopyObjectResult>"
        self.answer(200, result.encode())

    def _get(self, key: str) -> None:
        content = self.store.objects.get(key)
        if content is None:
            self.answer(404, _error("NoSuchKey", "The object does not exist."))
            return
        headers = {"ETag": etag(content), "Last-Modified": formatdate(_WHEN, usegmt=True)}
        asked = self.headers.get("range", "")
        if not asked:
            self.answer(200, content, headers)
            return
        low, _, high = asked.removeprefix("bytes=").partition("-")
        first = int(low) if low else max(len(content) - int(high), 0)
        last = min(int(high) if low and high else len(content) - 1, len(content) - 1)
        headers["Content-Range"] = f"bytes {first}-{last}/{len(content)}"
        self.answer(206, content[first : last + 1], headers)

    def _delete_some(self, body: str) -> None:
        keys = [part.partition("</Key>")[0] for part in body.split("<Key>")[1:]]
        for key in keys:
            self.store.objects.pop(key, None)
        deleted = "".join(f"<Deleted><Key>{key}</Key></Deleted>" for key in keys)
        self.answer(200, f"<DeleteResult>{deleted}</DeleteResult>".encode())

    def _listing(self) -> bytes:
        self.store.listings += 1
        prefix = self._one("prefix")
        after = self._one("continuation-token") or self._one("start-after")
        slash = self._one("delimiter")
        folded: dict[str, str] = {}
        for key in self.store.keys(prefix):
            rest = key[len(prefix) :]
            is_below = bool(slash) and slash in rest
            shown = prefix + rest.partition(slash)[0] + slash if is_below else key
            if shown > after:
                folded[shown] = "" if is_below else key
        some = dict(
            list(folded.items())[
                : min(int(self._one("max-keys") or LISTED_MAX), self.store.listed_max)
            ]
        )
        more = len(some) < len(folded)
        last = next(reversed(some), "")
        token = f"<NextContinuationToken>{escape(last)}</NextContinuationToken>"
        parts = [_listed(shown, key, self.store) for shown, key in some.items()]
        told = f"<IsTruncated>{str(more).lower()}</IsTruncated>{token if more else ''}"
        return f"<ListBucketResult>{told}{''.join(parts)}</ListBucketResult>".encode()

    def _one(self, name: str) -> str:
        return self._asked.get(name, [""])[0]


def _listed(shown: str, key: str, store: ObjectServer) -> str:
    if not key:
        return f"<CommonPrefixes><Prefix>{escape(shown)}</Prefix></CommonPrefixes>"
    content = store.objects[key]
    return (
        f"<Contents><Key>{escape(key)}</Key><Size>{len(content)}</Size>"
        f"<LastModified>2026-01-31T07:00:00.000Z</LastModified>"
        f"<ETag>{escape(etag(content))}</ETag></Contents>"
    )


def _error(code: str, message: str) -> bytes:
    return f"<Error><Code>{code}</Code><Message>{message}</Message></Error>".encode()
