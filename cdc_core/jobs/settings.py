"""What the operator of a node decides."""

from __future__ import annotations

import os
import re
import socket
import stat
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

import sqlalchemy as sa

from cdc_core.errors import ConfigError
from cdc_core.locality import Locality
from cdc_core.options import ByteSize, Duration, Tiers, option
from cdc_core.store.job_values import NodeRecord
from cdc_core.store.progress import sqlite_file

_SECRET_LENGTH = 16
_REMEDY = "`openssl rand -hex 32` generates a secret"
_MIN_MEMORY = 512 << 20
_CHARACTERS = "A-Z a-z 0-9 . _ -"
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,79}")
"""Of a host or a pod, and of a directory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSettings:
    """The options of `cdc node`, parsed by `cdc_core.options.parse_options`. `spark` are Spark settings by key."""

    store: str = option(doc="SQLAlchemy URL of the store: PostgreSQL, or SQLite for nodes on one host.", uri=True)
    name: str = option(doc="Unique name of the node. Default: the hostname.")
    directory: str = option(doc="Directory for locks, logs and scratch files. Default: .cdc/nodes/NAME.")
    locality: Tiers = option(
        Tiers(""), doc="The node's locality, outermost tier first, such as region=eu-west-1,zone=a."
    )
    max_jobs: int = option(20, doc="Maximum number of jobs that the node runs at a time.")
    lease: Duration = option(
        Duration(15.0), doc="Time since a node's last heartbeat after which other nodes may take over its jobs."
    )
    heartbeat: Duration = option(Duration(5.0), doc="Heartbeat interval, at most half of `lease`.")
    poll: Duration = option(Duration(1.0), doc="How often the node polls the store.")
    drain_limit: Duration = option(
        Duration(140.0),
        doc="How long a drain may take before the process exits with status 1. Set it to more than two minutes, because"
        " a running step is abandoned only after two minutes.",
    )
    retention: Duration = option(Duration(14 * 86_400.0), doc="How long finished jobs are kept.")
    cores: int = option(
        0,
        doc="Number of cores that jobs with master=nodes may use on this node, whichever node coordinates the jobs.",
    )
    memory: ByteSize | None = option(
        None,
        doc="How much memory the executors of jobs with master=nodes may use on this node. Default: half of the host's"
        " memory.",
    )
    spares: int = option(
        1,
        doc="Number of idle processes to keep with Spark already loaded, so that the next job with master=nodes"
        " delivers sooner. Used only on a node with cores. 0 keeps none.",
    )
    address: str = option(
        "",
        doc="Address at which other nodes reach this node. Default: the address from which it connects to the store.",
    )
    master_port: int = option(
        7077,
        doc="Port of the Spark master, which runs on one of the nodes with cores. All nodes with cores must be able to"
        " connect to this port.",
    )
    cluster_secret_file: str = option(
        "",
        doc="File with the secret that all nodes with cores share, which must have at least 16 characters. By default,"
        " the secret is taken from the environment variable CDC_CLUSTER_SECRET.",
    )
    owners: tuple[str, ...] = option((), doc="Run only the jobs of these owners, such as ann,bob. Default: all jobs.")
    spark: dict[str, str] | None = option(
        None,
        doc="Setting for the node's Spark session, as key=value. May be repeated. A job with other settings runs in its"
        " own process. With master=nodes, jobs without settings of their own run across the nodes.",
    )

    def __post_init__(self) -> None:
        if not 0 < self.heartbeat <= self.lease / 2:
            raise ValueError(
                f"'heartbeat' ({self.heartbeat:g}s) must be above 0 and at most half of 'lease' ({self.lease:g}s), or"
                " the node would lose its jobs when one heartbeat is late"
            )
        if not _NAME.fullmatch(self.name):
            raise ValueError(f"'{self.name}' is not a valid node name; use 1 to 80 of the characters {_CHARACTERS}")
        if self.poll <= 0:
            raise ValueError(f"'poll' is {self.poll:g}s; it must be above zero")
        if self.drain_limit <= 0:
            raise ValueError(f"'drain_limit' is {self.drain_limit:g}s; it must be above zero")
        if self.max_jobs < 1:
            raise ValueError(f"'max_jobs' is {self.max_jobs}; it must be at least 1")
        if self.cores < 0:
            raise ValueError(f"'cores' is {self.cores}; it must be at least 0")
        if self.spares < 0:
            raise ValueError(f"'spares' is {self.spares}; it must be at least 0")
        if self.cores and self.owners:
            raise ValueError("'owners' and 'cores' cannot be combined: jobs of all owners use the cores of a cluster")
        if self.memory is not None and self.memory < _MIN_MEMORY:
            raise ValueError("'memory' is too small; one executor needs 512mb")
        if ":" in self.address:
            raise ValueError(f"'address' is '{self.address}'; use an IPv4 address, or a name for one, without a port")
        if not 0 < self.master_port < 1 << 16:
            raise ValueError(f"'master_port' is {self.master_port}; it must be a port, from 1 to 65535")

    @property
    def place(self) -> Locality:
        """The option `locality`."""
        return Locality.parse(self.locality)

    @property
    def home(self) -> Path:
        """The option `directory`, absolute."""
        return Path(self.directory).absolute()

    @property
    def reached_at(self) -> str:
        """The option `address`, or the address from which this host reaches the store's."""
        if self.address:
            return self.address
        url = sa.make_url(self.store)
        named = url.normalized_query.get("host", ("",))[0]  # the first of several; a directory for a socket
        host = url.host or named.partition(",")[0].partition(":")[0]
        if not host or host.startswith("/") or sqlite_file(self.store) is not None:
            return "127.0.0.1"
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as found:  # sends nothing
            try:
                found.connect((host, 9))
            except OSError:
                return socket.gethostname()
            return str(found.getsockname()[0])

    def secret(self) -> str | None:
        """Return the secret of the nodes' cluster, None if this node has none. Raises: ConfigError."""
        text, where = os.environ.get("CDC_CLUSTER_SECRET", ""), "the variable CDC_CLUSTER_SECRET"
        if self.cluster_secret_file:
            where = f"the file {self.cluster_secret_file}"
            file = Path(self.cluster_secret_file)
            try:
                text, mode = file.read_text(), file.stat().st_mode
            except OSError as error:
                raise ConfigError(f"{where} with the secret of the cluster cannot be read: {error.strerror}") from error
            except UnicodeDecodeError:
                raise ConfigError(f"{where}: the secret of the cluster is not text; {_REMEDY}") from None
            if mode & (stat.S_IWGRP | stat.S_IWOTH):
                raise ConfigError(f"{where}: other users may write to it; run `chmod go-w {file}`")
        text = text.strip()
        if text and len(text) < _SECRET_LENGTH:
            raise ConfigError(f"{where}: the secret of the cluster needs {_SECRET_LENGTH} characters; {_REMEDY}")
        return text or None

    def record(self) -> NodeRecord:
        """Return the node as it joins the store."""
        return NodeRecord(
            node_id="",
            name=self.name,
            locality=self.place,
            host=socket.gethostname(),
            pid=os.getpid(),
            directory=str(self.home),
            version=version("cdc-core"),
            max_jobs=self.max_jobs,
            owners=self.owners,
            cores=self.cores,
            master=f"{self.reached_at}:{self.master_port}" if self.cores else "",
        )
