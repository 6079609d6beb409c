"""S3 and what speaks like it, through s3fs."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import secrets
from collections.abc import Callable, Sequence
from typing import Any

import botocore.session
import s3fs

from cdc_core.errors import OptionError
from cdc_sink_cloudstorage.authentication import is_specified
from cdc_sink_cloudstorage.options import CloudStorageOptions
from cdc_sink_cloudstorage.parts import PART_BYTES, parts_of
from cdc_sink_cloudstorage.remote import FsspecStore
from cdc_sink_cloudstorage.s3_trouble import trouble_of
from cdc_sink_cloudstorage.store import IN_PROGRESS, Chunk, Staged
from cdc_sink_cloudstorage.temporaries import Temporaries
from cdc_sink_cloudstorage.trouble import Trouble

__all__ = ["S3Store", "open_s3"]

_CLIENT = {"connect_timeout": 10, "read_timeout": 30, "retries": {"mode": "standard", "max_attempts": 3}}
_DISCONNECT_S = 2.0
_PUT_BYTES = 32 * 1024 * 1024
"""What one request brings to the store when there is no reason for more."""
_log = logging.getLogger(__name__)
for _name in ("botocore.auth", "botocore.endpoint"):  # they write headers with tokens and signatures, at DEBUG
    logging.getLogger(_name).setLevel(logging.INFO)


def open_s3(options: CloudStorageOptions) -> Any:
    """Return a file system of its own, without connecting."""
    settings: dict[str, Any] = {"config_kwargs": dict(_CLIENT), "use_listings_cache": False}
    if is_specified(options, "S3"):
        settings |= {"key": options.aws_access_key_id, "secret": options.aws_secret_access_key}
        settings |= {"token": options.aws_session_token} if options.aws_session_token else {}
    if options.aws_endpoint:
        settings["endpoint_url"] = options.aws_endpoint
    if options.aws_region:
        settings["client_kwargs"] = {"region_name": options.aws_region}
    if options.s3_storage_class:
        settings["s3_additional_kwargs"] = {"StorageClass": options.s3_storage_class}
    fs = s3fs.S3FileSystem(skip_instance_cache=True, **settings)
    fs.retries = 2  # of s3fs; botocore's own come on top
    return fs


class S3Store(FsspecStore):
    """Small files with one put, large ones in parts, which nobody sees before the upload is completed.

    An upload that is never completed is not seen either, but its parts are paid for. So before the first of them, a
    small object of our run in `.inprogress`, the note, says which upload it is; `sweep` of a later run aborts what it
    finds that way. The key alone does not say whose an upload is: several changefeeds may share a root, and a repeated
    slice has the names of the one that broke off. Who dies before the note leaves an upload without parts, for free.
    """

    def __init__(self, uri: str, options: CloudStorageOptions, *, shown: str, temporaries: Temporaries) -> None:
        super().__init__(uri, shown=shown, temporaries=temporaries, open_client=lambda: open_s3(options))
        self._options = options

    def stage(self, path: str, chunks: Sequence[Chunk]) -> Staged:
        nbytes = _size(chunks)
        if nbytes < 2 * PART_BYTES:
            return super().stage(path, chunks)
        upload = _Multipart(self, path)
        self._translated(f"{self._shown}/{path}", lambda: upload.begin(chunks, nbytes))
        return upload

    def put(self, path: str, chunks: Sequence[Chunk]) -> None:
        if _size(chunks) <= _PUT_BYTES:
            super().stage(path, chunks).publish()  # one request, where parts take six
        else:
            super().put(path, chunks)

    def complete(self, path: str, action: Callable[[], None]) -> None:
        """Run *action*, which makes *path* visible, and say in our words what goes wrong."""
        self._translated(f"{self._shown}/{path}", action)

    def call(self, method: str, **arguments: Any) -> Any:
        """Return the answer to one request, for `_Multipart`."""
        fs, _ = self._place
        return self._run(fs._call_s3(method, **arguments))

    def located(self, path: str) -> dict[str, str]:
        """Return bucket and key of *path*, as requests want them."""
        bucket, _, key = f"{self._place[1]}/{path}".partition("/")
        return {"Bucket": bucket, "Key": key}

    def _disconnect(self, fs: Any) -> None:
        client = getattr(fs, "_s3creator", None)
        if client is not None:
            asyncio.run_coroutine_threadsafe(client.__aexit__(None, None, None), fs.loop).result(_DISCONNECT_S)

    def _check(self) -> None:
        self._check_storage_class()
        where = self.located(f"{IN_PROGRESS}/check")
        prefix = where["Key"].removesuffix(f"{IN_PROGRESS}/check")
        self.call("list_objects_v2", Bucket=where["Bucket"], Prefix=prefix, MaxKeys=1)
        try:  # a part of an upload that there is not: asks for the right to write, and writes nothing
            self.call("upload_part", **where, UploadId="0" * 32, PartNumber=1, Body=b"")
        except FileNotFoundError as error:
            if getattr(error.__cause__, "response", {}).get("Error", {}).get("Code") != "NoSuchUpload":
                raise

    def _check_storage_class(self) -> None:
        wanted = self._options.s3_storage_class
        if wanted is None or self._options.aws_endpoint:  # other stores have classes of their own
            return
        known = botocore.session.get_session().get_service_model("s3").shape_for("StorageClass").enum
        if wanted not in known:
            raise OptionError(
                f"sink '{self._shown}' has S3_STORAGE_CLASS={wanted}, which S3 does not know: choose one of"
                f" {', '.join(known)}"
            )

    def sweep(self) -> None:
        self._translated(f"{self._shown}/{IN_PROGRESS}", self._sweep)

    def _sweep(self) -> None:
        fs, root = self._place
        where = self.located(f"{IN_PROGRESS}/{self._temporaries.owner}-")  # and none of the many that others may have
        listed = self.call("list_objects_v2", Bucket=where["Bucket"], Prefix=where["Key"])
        names = [entry["Key"].rpartition("/")[2] for entry in listed.get("Contents", ())]
        for name in self._temporaries.of_dead_runs(names):
            note = f"{root}/{IN_PROGRESS}/{name}"
            try:
                self._abort(note, bytes(self._run(fs._cat_file(note))))
                self._run(fs._rm_file(note))
            except FileNotFoundError:  # a sibling sweeps too
                continue
            except PermissionError as error:
                _log.warning("cannot abort the unfinished upload that %s names: %s", note, error)

    def _abort(self, note: str, text: bytes) -> None:
        """End the upload that *text* of *note* names, and no other of its key. It may have ended already."""
        try:
            named = json.loads(text)
            where = {"Key": str(named["key"]), "UploadId": str(named["upload"])}
        except (ValueError, KeyError, TypeError):
            _log.warning("%s names no upload and is removed: leave what it was for to a rule of the bucket", note)
            return
        with contextlib.suppress(FileNotFoundError):
            self.call("abort_multipart_upload", Bucket=self.located("")["Bucket"], **where)

    def _trouble(self, error: BaseException) -> Trouble | None:
        return trouble_of(error, self._options)

    def new_note(self) -> dict[str, str]:
        """Return where a note can be that no other writer makes."""
        return self.located(f"{IN_PROGRESS}/{self._temporaries.new(secrets.token_hex(16))}")

    def take_down(self, note: dict[str, str], upload: dict[str, str]) -> None:
        """Write into *note* that *upload* is under way."""
        body = json.dumps({"key": upload["Key"], "upload": upload["UploadId"]}).encode()
        cheap = {"StorageClass": "STANDARD"} if self._options.s3_storage_class else {}  # others bill a month at least
        self.call("put_object", **note, **cheap, Body=body)


class _Multipart(Staged):
    """One multipart upload."""

    def __init__(self, store: S3Store, path: str) -> None:
        self._store = store
        self._path = path
        self._where = store.located(path)
        self._note = store.new_note()
        self._nbytes = 0
        self._parts: list[dict[str, Any]] = []

    def begin(self, chunks: Sequence[Chunk], nbytes: int) -> None:
        """Upload all parts. Leaves nothing when that fails, as far as can be."""
        self._nbytes = nbytes
        self._where["UploadId"] = self._store.call("create_multipart_upload", **self._where)["UploadId"]
        try:
            self._store.take_down(self._note, self._where)
            for number, body in enumerate(parts_of(chunks, nbytes), 1):
                answer = self._store.call("upload_part", **self._where, PartNumber=number, Body=body)
                self._parts.append({"PartNumber": number, "ETag": answer["ETag"]})
        except BaseException:
            self.discard()
            raise

    def publish(self) -> None:
        self._store.complete(self._path, self._complete)
        self._forget_note()

    def discard(self) -> None:
        with contextlib.suppress(Exception):  # what is left, a later run sweeps
            self._store.call("abort_multipart_upload", **self._where)
            self._forget_note()

    def _complete(self) -> None:
        try:
            self._store.call("complete_multipart_upload", **self._where, MultipartUpload={"Parts": self._parts})
        except FileNotFoundError:
            # Asked for a second time, since the first answer was lost, some stores know no such upload any more.
            where = {name: self._where[name] for name in ("Bucket", "Key")}
            if self._store.call("head_object", **where)["ContentLength"] != self._nbytes:
                raise

    def _forget_note(self) -> None:
        with contextlib.suppress(Exception):
            self._store.call("delete_object", **self._note)


def _size(chunks: Sequence[Chunk]) -> int:
    return sum(len(memoryview(chunk)) for chunk in chunks)
