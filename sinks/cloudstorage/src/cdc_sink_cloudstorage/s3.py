"""S3 and compatible stores, through s3fs."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hashlib
import json
import logging
import secrets
import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import botocore.session
import s3fs

from cdc_core import OptionError
from cdc_sink_cloudstorage.authentication import is_specified
from cdc_sink_cloudstorage.options import CloudStorageOptions
from cdc_sink_cloudstorage.parts import PART_BYTES, split_parts
from cdc_sink_cloudstorage.remote import FsspecStore
from cdc_sink_cloudstorage.s3_problems import s3_problem
from cdc_sink_cloudstorage.store import IN_PROGRESS, Chunk, Staged
from cdc_sink_cloudstorage.store_problem import NotStoredError, StoreProblem

_CLIENT = {"connect_timeout": 10, "read_timeout": 30, "retries": {"mode": "standard", "max_attempts": 3}}
_DISCONNECT_S = 2.0
_ENCRYPTION = {"aes256": "AES256", "aws:kms": "aws:kms", None: None}
_PUT_BYTES = 32 * 1024 * 1024
"""Largest file that `put` uploads in one request."""
_log = logging.getLogger(__name__)
for _name in ("botocore.auth", "botocore.endpoint"):  # at DEBUG they log headers with tokens and signatures
    logging.getLogger(_name).setLevel(logging.INFO)


class S3Store(FsspecStore):
    """Writes small files with one put and large ones in parts, which stay invisible until the upload is completed.

    The parts of an upload that is never completed stay invisible too, but they cost storage. So before the first part,
    the store writes a note: a small object in `.inprogress` that names the upload. `sweep` of a later attempt aborts
    the uploads that it finds in notes. The key of an upload does not tell which attempt began it: several changefeeds
    may share a root, and a repeated slice uses the names of the slice that it repeats. A writer that dies before it has
    written the note leaves an upload without parts, which costs nothing.

    A file counts as stored when the answer has its checksum, and an upload when the answer names its key. Where the
    store gives another checksum, as with keys of KMS, it is asked for the size of the object.
    """

    @staticmethod
    def new_client(options: CloudStorageOptions) -> Any:
        """Return a new file system that shares no connections with others. Does not connect."""
        settings: dict[str, Any] = {"config_kwargs": dict(_CLIENT), "use_listings_cache": False}
        if is_specified(options, "S3"):
            settings |= {"key": options.aws_access_key_id, "secret": options.aws_secret_access_key}
            settings |= {"token": options.aws_session_token} if options.aws_session_token else {}
        if options.aws_endpoint:
            settings["endpoint_url"] = options.aws_endpoint
        if options.aws_region:
            settings["client_kwargs"] = {"region_name": options.aws_region}
        of_objects = {
            "StorageClass": options.s3_storage_class,
            "ServerSideEncryption": _ENCRYPTION[options.aws_server_enc_mode],
            "SSEKMSKeyId": options.aws_server_kms_id,
        }
        settings["s3_additional_kwargs"] = {name: value for name, value in of_objects.items() if value}
        fs = s3fs.S3FileSystem(skip_instance_cache=True, **settings)
        fs.retries = 2  # of s3fs; botocore retries as well
        return fs

    def stage(self, path: str, chunks: Sequence[Chunk]) -> Staged:
        nbytes = _size(chunks)
        if nbytes < 2 * PART_BYTES:
            return super().stage(path, chunks)
        upload = _Multipart(self, path)
        self._translate_errors(f"{self._shown}/{path}", lambda: upload.begin(chunks, nbytes))
        return upload

    def put(self, path: str, chunks: Sequence[Chunk]) -> None:
        if _size(chunks) <= _PUT_BYTES:
            super().stage(path, chunks).publish()  # one request instead of six or more
        else:
            super().put(path, chunks)

    def _put(self, path: str, body: bytes) -> None:
        where = self.location(path)
        answer = self.call("put_object", **where, Body=body)
        if not _confirms(answer, body) and not self.holds(where, len(body)):
            raise NotStoredError

    def holds(self, where: dict[str, str], nbytes: int) -> bool:
        """Return whether the store has an object of *nbytes* at this bucket and key."""
        try:
            return bool(self.call("head_object", **where).get("ContentLength") == nbytes)
        except FileNotFoundError:
            return False

    def complete(self, path: str, action: Callable[[], None]) -> None:
        """Run *action*, which makes *path* visible. Raises: as `Store`."""
        self._translate_errors(f"{self._shown}/{path}", action)

    def call(self, method: str, **arguments: Any) -> Any:
        """Send one request and return the response, for `_Multipart`."""
        fs, _ = self._place
        return self._run(fs._call_s3(method, **arguments))

    def location(self, path: str) -> dict[str, str]:
        """Return bucket and key of *path*, as arguments of a request."""
        bucket, _, key = f"{self._place[1]}/{path}".partition("/")
        return {"Bucket": bucket, "Key": key}

    def _disconnect(self, fs: Any) -> None:
        client = getattr(fs, "_s3creator", None)
        if client is not None:
            asyncio.run_coroutine_threadsafe(client.__aexit__(None, None, None), fs.loop).result(_DISCONNECT_S)

    def _check(self) -> None:
        self._check_storage_class()
        where = self.location(f"{IN_PROGRESS}/check")
        prefix = where["Key"].removesuffix(f"{IN_PROGRESS}/check")
        if "IsTruncated" not in self.call("list_objects_v2", Bucket=where["Bucket"], Prefix=prefix, MaxKeys=1):
            raise NotStoredError
        try:  # a part of an upload that does not exist: needs the permission to write, and writes nothing
            self.call("upload_part", **where, UploadId="0" * 32, PartNumber=1, Body=b"")
        except FileNotFoundError as error:
            if getattr(error.__cause__, "response", {}).get("Error", {}).get("Code") != "NoSuchUpload":
                raise
        else:
            raise NotStoredError

    def _check_storage_class(self) -> None:
        wanted = self._options.s3_storage_class
        if wanted is None or self._options.aws_endpoint:  # other stores have other classes
            return
        known = botocore.session.get_session().get_service_model("s3").shape_for("StorageClass").enum
        if wanted not in known:
            raise OptionError(
                f"sink '{self._shown}' has S3_STORAGE_CLASS={wanted}, which S3 does not know. Choose one of"
                f" {', '.join(known)}"
            )

    def sweep(self) -> None:
        self._translate_errors(f"{self._shown}/{IN_PROGRESS}", self._sweep)

    def _sweep(self) -> None:
        fs, root = self._place
        where = self.location(f"{IN_PROGRESS}/{self._temporary_names.owner}-")  # others may have many
        listed = self.call("list_objects_v2", Bucket=where["Bucket"], Prefix=where["Key"])
        names = [entry["Key"].rpartition("/")[2] for entry in listed.get("Contents", ())]
        for name in self._temporary_names.leftovers(names):
            note = f"{root}/{IN_PROGRESS}/{name}"
            try:
                self._abort(note, bytes(self._run(fs._cat_file(note))))
                self._run(fs._rm_file(note))
            except FileNotFoundError:  # another task sweeps at the same time
                continue
            except PermissionError as error:
                _log.warning("cannot abort the unfinished upload named in %s: %s", note, error)

    def _abort(self, note: str, text: bytes) -> None:
        """Abort the upload that *text*, the content of *note*, names. The upload may have ended already."""
        try:
            named = json.loads(text)
            where = {"Key": str(named["key"]), "UploadId": str(named["upload"])}
        except (ValueError, KeyError, TypeError):
            _log.warning("removing %s, which does not name an upload; a lifecycle rule can remove the upload", note)
            return
        with contextlib.suppress(FileNotFoundError):
            self.call("abort_multipart_upload", Bucket=self.location("")["Bucket"], **where)

    def _problem(self, error: BaseException) -> StoreProblem | None:
        return s3_problem(error, self._options)

    def new_note(self) -> dict[str, str]:
        """Return bucket and key for a note, different from those of all other writers."""
        return self.location(f"{IN_PROGRESS}/{self._temporary_names.new(secrets.token_hex(16))}")

    def write_note(self, note: dict[str, str], upload: dict[str, str]) -> None:
        """Write the note that names *upload*."""
        body = json.dumps({"key": upload["Key"], "upload": upload["UploadId"]}).encode()
        # Other storage classes bill an object for at least a month.
        cheap = {"StorageClass": "STANDARD"} if self._options.s3_storage_class else {}
        self.call("put_object", **note, **cheap, Body=body)


class _Multipart(Staged):
    """One multipart upload."""

    def __init__(self, store: S3Store, path: str) -> None:
        self._store = store
        self._path = path
        self._where = store.location(path)
        self._note = store.new_note()
        self._nbytes = 0
        self._parts: list[dict[str, Any]] = []

    def begin(self, chunks: Sequence[Chunk], nbytes: int) -> None:
        """Upload all parts. After a failure, removes what was uploaded as far as possible."""
        self._nbytes = nbytes
        self._where["UploadId"] = _member(self._store.call("create_multipart_upload", **self._where), "UploadId")
        try:
            self._store.write_note(self._note, self._where)
            for number, body in enumerate(split_parts(chunks, nbytes), 1):
                answer = self._store.call("upload_part", **self._where, PartNumber=number, Body=body)
                self._parts.append({"PartNumber": number, "ETag": _member(answer, "ETag")})
        except BaseException:
            self.discard()
            raise

    def publish(self) -> None:
        self._store.complete(self._path, self._complete)
        self._delete_note()

    def discard(self) -> None:
        with contextlib.suppress(Exception):  # a later attempt sweeps what is left
            self._store.call("abort_multipart_upload", **self._where)
            self._delete_note()

    def _complete(self) -> None:
        where = {name: self._where[name] for name in ("Bucket", "Key")}
        try:
            answer = self._store.call(
                "complete_multipart_upload", **self._where, MultipartUpload={"Parts": self._parts}
            )
        except FileNotFoundError:
            # A client that lost the first response asks again, and some stores then no longer know the upload.
            if not self._store.holds(where, self._nbytes):
                raise
            return
        # The store has compared its parts with those named; its answer names the object.
        if answer.get("Key") != where["Key"] and not self._store.holds(where, self._nbytes):
            raise NotStoredError

    def _delete_note(self) -> None:
        with contextlib.suppress(Exception):
            self._store.call("delete_object", **self._note)


def _confirms(answer: Mapping[str, Any], body: bytes) -> bool:
    """Return whether *answer* has a checksum of *body*: the CRC that the client sent, or MD5."""
    if "ChecksumCRC32" in answer:
        return bool(answer["ChecksumCRC32"] == base64.b64encode(zlib.crc32(body).to_bytes(4, "big")).decode())
    return str(answer.get("ETag", "")).strip('"') == hashlib.md5(body, usedforsecurity=False).hexdigest()


def _member(answer: Mapping[str, Any], name: str) -> str:
    """Return what every answer of S3 to this request has. Raises: NotStoredError."""
    if name not in answer:
        raise NotStoredError
    return str(answer[name])


def _size(chunks: Sequence[Chunk]) -> int:
    return sum(len(memoryview(chunk)) for chunk in chunks)
