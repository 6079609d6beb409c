"""Large files are uploaded in parts, which are invisible until the file is whole."""

from __future__ import annotations

import errno
import secrets
from typing import Any
from urllib.parse import parse_qsl

import pytest
from cdc_sink_cloudstorage import s3
from cdc_sink_cloudstorage.options import CloudStorageOptions
from cdc_sink_cloudstorage.parts import PART_BYTES, split_parts
from cdc_sink_cloudstorage.store import IN_PROGRESS, Store
from cdc_sink_cloudstorage.temporary_names import TemporaryNames
from cdc_sink_cloudstorage.uris import open_file_system, open_store
from cdc_testing.cloud_rig import CloudRig, rows, slice_of
from cdc_testing.object_stores import Azurite, SeaweedFS
from cdc_testing.runs import eventually
from hypothesis import given
from hypothesis import strategies as st

from cdc_core import RetryableSinkError, parse_options

LARGE = 2 * PART_BYTES + 12_345


class Place:
    """A root in a store, for attempts of changefeeds and for readers."""

    def __init__(self, uri: str) -> None:
        self.uri, _, query = uri.partition("?")
        values = {name.lower(): value for name, value in parse_qsl(query)}
        self.options = parse_options(CloudStorageOptions, values, owner="sink 'cloudstorage'")
        self.fs, self.root = open_file_system(self.uri, self.options)

    def store(self, *, changefeed: str = "feed", epoch: int = 1) -> Store:
        names = TemporaryNames(changefeed=changefeed, epoch=epoch)
        return open_store(self.uri, self.options, temporary_names=names)

    def files(self) -> list[str]:
        self.fs.invalidate_cache()
        found = self.fs.find(self.root)  # SeaweedFS also lists empty directories
        return [path.removeprefix(f"{self.root}/") for path in found if path.startswith(f"{self.root}/")]

    def uploads(self) -> list[str]:
        """Return the keys of the uploads that were neither completed nor aborted."""
        bucket, _, prefix = self.root.partition("/")
        listed = self.fs.call_s3("list_multipart_uploads", Bucket=bucket, Prefix=prefix)
        return sorted(upload["Key"].removeprefix(f"{prefix}/") for upload in listed.get("Uploads", ()))


@pytest.fixture
def s3_place(seaweedfs: SeaweedFS, monkeypatch: pytest.MonkeyPatch) -> Place:
    monkeypatch.setitem(s3._CLIENT, "retries", {"mode": "standard", "max_attempts": 1})
    return Place(seaweedfs.uri(f"parts/{secrets.token_hex(4)}"))


@pytest.fixture(params=["s3", pytest.param("azure", marks=pytest.mark.slow)])
def place(request: pytest.FixtureRequest) -> Place:
    if request.param == "s3":
        found: Place = request.getfixturevalue("s3_place")
        return found
    azurite: Azurite = request.getfixturevalue("azurite")
    return Place(azurite.uri(f"parts/{secrets.token_hex(4)}"))


def large_body() -> list[bytes]:
    """Return a body in chunks with other borders than parts have."""
    body = bytes(range(256)) * (LARGE // 256) + b"x" * (LARGE % 256)
    return [body[start : start + 1_000_001] for start in range(0, len(body), 1_000_001)]


@given(sizes=st.lists(st.integers(0, 40), max_size=30))
def test_parts_add_up_to_the_body_and_are_never_too_small(sizes: list[int]) -> None:
    chunks = [bytes([number]) * size for number, size in enumerate(sizes)]
    nbytes = sum(sizes)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("cdc_sink_cloudstorage.parts.PART_BYTES", 8)
        parts = list(split_parts(chunks, nbytes))
    assert b"".join(parts) == b"".join(chunks)
    assert all(8 <= len(part) < 16 for part in parts[:-1])


def test_a_published_large_file_is_one_object(place: Place) -> None:
    body = large_body()
    staged = place.store().stage("day/large", body)
    assert [path for path in place.files() if IN_PROGRESS not in path] == []
    staged.publish()
    assert place.files() == ["day/large"]
    assert place.fs.cat_file(f"{place.root}/day/large") == b"".join(body)


def test_a_large_file_has_no_parts_of_another_writer(place: Place) -> None:
    """The worker of an earlier attempt may still be alive. Its parts may arrive late and have other borders."""
    body = large_body()
    staged = place.store().stage("day/large", body)
    place.store().stage("day/large", [b"late" * (LARGE // 4)])
    staged.publish()
    assert place.fs.cat_file(f"{place.root}/day/large") == b"".join(body)


def test_a_discarded_large_file_leaves_no_files(place: Place) -> None:
    place.store().stage("day/large", large_body()).discard()
    assert place.files() == []


def test_a_discarded_upload_is_aborted(s3_place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(s3, "PART_BYTES", 1)
    staged = s3_place.store().stage("day/large", [b"large"])
    assert s3_place.uploads() == ["day/large"]
    staged.discard()
    assert s3_place.uploads() == []


def test_a_sweep_aborts_only_uploads_of_earlier_attempts_of_its_changefeed(
    s3_place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(s3, "PART_BYTES", 1)
    for changefeed, epoch, path in (
        ("feed", 1, "dead"),
        ("feed", 2, "sibling"),
        ("feed", 3, "later"),
        ("another", 1, "other-feed"),
        ("feed", 1, "dead-too"),
    ):
        s3_place.store(changefeed=changefeed, epoch=epoch).stage(path, [b"large"])
    s3_place.store(epoch=2).sweep()
    assert s3_place.uploads() == ["later", "other-feed", "sibling"]
    assert len(s3_place.files()) == 3
    s3_place.store(epoch=2).sweep()


def test_a_sweep_aborts_no_upload_of_its_own_attempt(s3_place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """A repeated slice uses the names of the slice that it repeats. Only the older upload of the key is aborted."""
    monkeypatch.setattr(s3, "PART_BYTES", 1)
    s3_place.store(epoch=1).stage("day/large", [b"large"])
    staged = s3_place.store(epoch=2).stage("day/large", [b"large"])
    s3_place.store(epoch=2).sweep()
    assert s3_place.uploads() == ["day/large"]
    staged.publish()
    assert s3_place.files() == ["day/large"]
    assert s3_place.uploads() == []


def test_an_unfinished_upload_is_aborted_even_if_its_attempt_repeated_it(
    s3_place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(s3, "PART_BYTES", 1)
    s3_place.store(epoch=1).stage("day/large", [b"large"])
    s3_place.store(epoch=1).stage("day/large", [b"large"]).publish()
    s3_place.store(epoch=2).sweep()
    assert s3_place.uploads() == []
    assert s3_place.files() == ["day/large"]


def test_a_sweep_removes_the_notes_of_uploads_that_ended(
    s3_place: Place, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(s3, "PART_BYTES", 1)
    with monkeypatch.context() as patch:
        patch.setattr(s3._Multipart, "_delete_note", lambda _: None)
        s3_place.store(epoch=1).stage("day/large", [b"large"]).publish()
        s3_place.store(epoch=1).stage("day/other", [b"other"]).discard()
    assert len(s3_place.files()) == 3
    s3_place.store(epoch=2).sweep()
    assert s3_place.files() == ["day/large"]
    assert caplog.messages == []


def test_a_sweep_removes_a_note_that_it_cannot_read(s3_place: Place, caplog: pytest.LogCaptureFixture) -> None:
    name = TemporaryNames(changefeed="feed", epoch=1).new("0" * 32)
    s3_place.fs.pipe_file(f"{s3_place.root}/{IN_PROGRESS}/{name}", b"day/large")
    s3_place.store(epoch=2).sweep()
    assert s3_place.files() == []
    assert "does not name an upload" in caplog.text


def test_no_part_is_uploaded_when_the_note_cannot_be_written(s3_place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(s3, "PART_BYTES", 1)
    call = s3.S3Store.call
    requests: list[str] = []

    def failing(store: s3.S3Store, method: str, **arguments: Any) -> Any:
        requests.append(method)
        if method == "put_object":
            raise OSError(errno.EIO, "broken")
        return call(store, method, **arguments)

    with monkeypatch.context() as patch:
        patch.setattr(s3.S3Store, "call", failing)
        with pytest.raises(RetryableSinkError, match="Input/output error"):
            s3_place.store().stage("day/large", [b"large"])
    assert "upload_part" not in requests
    assert s3_place.uploads() == []


def test_a_lost_response_to_the_last_request_is_not_a_failure(s3_place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    store: Any = s3_place.store()
    staged = store.stage("day/large", large_body())
    call = store.call

    def repeating(method: str, **arguments: Any) -> Any:
        response = call(method, **arguments)
        return call(method, **arguments) if method == "complete_multipart_upload" else response

    monkeypatch.setattr(store, "call", repeating)
    staged.publish()
    assert s3_place.files() == ["day/large"]


def takes_objects(place: Place) -> bool:
    """Return whether the store stores: after a start it answers before it does."""
    try:
        place.fs.pipe_file(f"{place.root}-probe", b"probe")
    except OSError:
        return False
    return True


@pytest.mark.slow
def test_a_store_killed_during_an_upload_shows_nothing_and_the_next_attempt_delivers(
    cloud: CloudRig, s3_place: Place, seaweedfs: SeaweedFS, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(s3, "_PUT_BYTES", 0)
    monkeypatch.setattr(s3, "PART_BYTES", 6_000_000)
    monkeypatch.setattr("cdc_sink_cloudstorage.parts.PART_BYTES", 6_000_000)
    batch = rows(range(400_000))
    options = {name: value for name in s3_place.options.__slots__ if (value := getattr(s3_place.options, name))}
    options |= {"file_size": "12MB", "partition_format": "flat"}
    call = s3.S3Store.call
    requests: list[str] = []

    def killing(store: s3.S3Store, method: str, **arguments: Any) -> Any:
        requests.append(method)
        if requests.count("upload_part") == 2 and method == "upload_part":
            seaweedfs.kill()
        return call(store, method, **arguments)

    def write(epoch: int) -> None:
        sink = cloud.sink(options, uri=s3_place.uri, epoch=epoch)
        sink.begin(slice_of())
        for _ in range(2):
            sink.emit(batch)
        sink.flush()

    with monkeypatch.context() as patch:
        patch.setattr(s3.S3Store, "call", killing)
        with pytest.raises(RetryableSinkError, match="cannot be reached"):
            write(1)
    seaweedfs.start()
    eventually("the store takes objects again", lambda: takes_objects(s3_place))
    assert [path for path in s3_place.files() if path.endswith(".lines")] == []
    write(2)
    data = [path for path in s3_place.files() if path.endswith(".lines")]
    assert all("-0000000000000002-" in path for path in data)
    assert sum(s3_place.fs.cat_file(f"{s3_place.root}/{path}").count(b"\n") for path in data) == 800_000
    assert s3_place.uploads() == []
    assert [path for path in s3_place.files() if IN_PROGRESS in path] == []
