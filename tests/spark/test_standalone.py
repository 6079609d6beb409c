"""The settings by which a job's executors begin on the workers of nodes: one on each that has what it needs."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from cdc_core.errors import ConfigError
from cdc_core.locality import Locality
from cdc_core.spark import host_limits, standalone
from cdc_core.spark.class_archive import VARIABLE, ClassArchive
from cdc_core.spark.standalone import WorkerProcess, application_settings

INSTALLED = {"cdc-core": "1.2.0", "cdc-sink-kafka": "1.2.0+local"}
SECRET = "only-the-nodes-know-it"


def worker(directory: Path, versions: Mapping[str, str], place: str) -> WorkerProcess:
    where = Locality.parse(place)
    return WorkerProcess(
        directory, address="a", secret=SECRET, cores=1, memory=1 << 30, locality=where, versions=versions
    )


def offered(directory: Path, versions: Mapping[str, str]) -> set[str]:
    """Return the resources of a worker that has these *versions*."""
    worker(directory, versions, "region=eu")
    lines = (directory / "worker.properties").read_text()
    return set(re.findall(r"^spark\.worker\.resource\.(\S+)\.amount [1-9]", lines, re.MULTILINE))


def settings_of(own: Mapping[str, str], versions: Mapping[str, str] = INSTALLED) -> Mapping[str, str]:
    where = "spark://a:7077"
    return application_settings(
        own, master=where, secret=SECRET, address="a", cores=1, executors=1, slot=3, versions=versions
    )


def asked(versions: Mapping[str, str]) -> set[str]:
    """Return the resources that the executors of a job with these *versions* ask for."""
    settings = settings_of({}, versions)
    found = (re.fullmatch(r"spark\.executor\.resource\.(\S+)\.amount", name) for name in settings)
    return {match[1] for match in found if match}


def test_an_executor_begins_where_the_versions_of_its_job_are(tmp_path: Path) -> None:
    assert "cdc_has_cdc-sink-kafka_1_2_0_local" in asked(INSTALLED)
    assert asked(INSTALLED) <= offered(tmp_path, {**INSTALLED, "cdc-sink-null": "1.0"})


@pytest.mark.parametrize("other", [{"cdc-core": "1.3.0"}, {"cdc-sink-null": "1.0"}], ids=["another version", "missing"])
def test_none_begins_where_a_version_differs(tmp_path: Path, other: dict[str, str]) -> None:
    assert asked(INSTALLED | other) - offered(tmp_path, INSTALLED)


def test_no_other_user_reads_what_is_in_the_directory_of_a_master_or_worker(tmp_path: Path) -> None:
    home = tmp_path / "cluster"
    home.mkdir(mode=0o755)
    worker(home, INSTALLED, "")
    assert (home.stat().st_mode & 0o777, (home / "worker.properties").stat().st_mode & 0o777) == (0o700, 0o600)


def test_logs_of_executors_have_a_limit(tmp_path: Path) -> None:
    worker(tmp_path, INSTALLED, "")
    rolling = re.findall(
        r"^spark\.executor\.logs\.rolling\.(.*)", (tmp_path / "worker.properties").read_text(), re.MULTILINE
    )
    assert rolling == ["strategy size", "maxSize 16777216", "maxRetainedFiles 2"]


@pytest.mark.parametrize(("parent", "printed"), [(os.getpid(), "run\n"), (1, "")], ids=["lives", "has ended"])
def test_a_program_runs_only_while_the_process_that_started_it_lives(parent: int, printed: str) -> None:
    tied = [sys.executable, "-I", "-S", "-c", standalone._TIED, str(parent), "/bin/echo", "run"]
    assert subprocess.check_output(tied, text=True) == printed


def test_a_definition_changes_what_it_needs_but_not_the_encryption() -> None:
    open_ = {"spark.authenticate": "false", "spark.authenticate.secret": "", "spark.network.crypto.enabled": "false"}
    wanted = {"spark.executor.memory": "2g", "spark.executor.cores": "3"}
    settings = settings_of({"master": "nodes", **wanted, **open_})
    assert settings == settings_of({}) | wanted


def test_a_definition_takes_no_slot() -> None:
    with pytest.raises(ConfigError, match=r"cdc_job_4\.amount': only the node"):
        settings_of({"master": "nodes", "spark.executor.resource.cdc_job_4.amount": "1"})


@pytest.mark.parametrize(
    ("answer", "state"),
    [
        (b"", None),
        (b"no words of HTTP\r\n\r\n", None),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n{}", None),
        (b"HTTP/1.1 200 OK\r\n\r\n[]", None),
        (b'HTTP/1.1 200 OK\r\n\r\n{"coresused": 1}', {"coresused": 1}),
    ],
)
def test_a_worker_is_asked_through_no_proxy_and_says_nothing_if_its_answer_is_cut_off_or_no_object(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: bytes, state: Mapping[str, Any] | None
) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    one = worker(tmp_path, INSTALLED, "")
    with socket.create_server(("127.0.0.1", 0)) as server, ThreadPoolExecutor(1) as pool:
        server.settimeout(10)
        one._web_port = server.getsockname()[1]
        asking = pool.submit(one.state)
        with server.accept()[0] as connection:
            connection.recv(1 << 16)
            connection.sendall(answer)
        assert asking.result() == state


def test_executors_leave_no_temporary_files_after_a_restart_of_their_worker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[dict[str, Any]] = []
    monkeypatch.setattr(subprocess, "Popen", lambda _command, **how: made.append(how))
    one = worker(tmp_path, INSTALLED, "")
    left = tmp_path / "tmp" / "spark-1"
    left.mkdir(parents=True)
    one.start("spark://a:7077")
    assert {how["env"]["SPARK_LOCAL_DIRS"] for how in made} == {str(tmp_path / "tmp")}
    assert not left.exists()
    python, java = (how["env"]["PATH"].split(os.pathsep)[0] for how in made)
    assert python == java, "executors find a Python there that the first of them forks"


def test_a_worker_ends_executors_that_one_before_it_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    where = tmp_path / "work" / "app-1" / "0"
    where.mkdir(parents=True)
    sleep = ["sleep", "600"]
    left = [subprocess.Popen(sleep, cwd=at, start_new_session=True) for at in (where, tmp_path)]
    monkeypatch.setattr(subprocess, "Popen", lambda _command, **_: None)
    worker(tmp_path, INSTALLED, "").start("spark://a:7077")
    assert left[0].wait(10) == -signal.SIGKILL
    assert left[1].poll() is None, "it is none of the worker's"
    left[1].kill()
    left[1].wait()


def test_executors_know_the_locality_of_their_node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CDC_LOCALITY", raising=False)
    made: list[dict[str, Any]] = []
    monkeypatch.setattr(subprocess, "Popen", lambda _command, **how: made.append(how))
    for place in ("region=eu,zone=a", ""):
        worker(tmp_path, INSTALLED, place).start("spark://a:7077")
    assert [how["env"].get("CDC_LOCALITY") for how in made] == 2 * ["region=eu,zone=a"] + 2 * [None]


def test_executors_map_the_archive_of_classes_of_their_own_host(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, str(tmp_path / "cache"))
    monkeypatch.setenv("JDK_JAVA_OPTIONS", "-Down=1")
    made: list[dict[str, Any]] = []
    monkeypatch.setattr(subprocess, "Popen", lambda _command, **how: made.append(how))
    archive = ClassArchive.find()
    assert archive is not None
    worker(tmp_path, INSTALLED, "").start("spark://a:7077")
    archive.file.touch()
    worker(tmp_path, INSTALLED, "").start("spark://a:7077")
    options = [how["env"]["JDK_JAVA_OPTIONS"] for how in made if "SPARK_HOME" in how["env"]]
    assert options == ["-Down=1", f"-Down=1 {archive.java_options()}"]


@pytest.mark.parametrize(
    ("groups", "limit"),
    [
        ("0::/system.slice/cdc-node.service\n", "system.slice/cdc-node.service/memory.max"),
        ("0::/system.slice/cdc-node.service\n", "system.slice/memory.max"),
        ("0::/of/the/host\n", "memory.max"),
        ("5:cpu,cpuacct:/a\n3:memory:/docker/1\n", "memory/docker/1/memory.limit_in_bytes"),
    ],
    ids=["of a unit", "of what it is in", "of a container", "of the first version"],
)
def test_the_memory_of_a_host_is_what_its_control_groups_leave(
    groups: str, limit: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host_limits, "_GROUPS", tmp_path / "cgroup")
    monkeypatch.setattr(host_limits, "_LIMITS", tmp_path / "limits")
    whole = host_limits.host_memory()
    (tmp_path / "cgroup").write_text(groups)
    file = tmp_path / "limits" / limit
    file.parent.mkdir(parents=True)
    file.write_text("max\n")
    assert host_limits.host_memory() == whole
    file.write_text("1073741824\n")
    assert host_limits.host_memory() == 1 << 30


@pytest.mark.parametrize(
    ("groups", "files"),
    [
        ("0::/of/the/host\n", {"cpu.max": ("max 100000\n", "50000 100000\n")}),
        (
            "5:cpu,cpuacct:/a\n3:memory:/b\n",
            {"cpu/a/cpu.cfs_quota_us": ("-1\n", "50000\n"), "cpu/a/cpu.cfs_period_us": ("100000\n", "100000\n")},
        ),
    ],
    ids=["of a container", "of the first version"],
)
def test_the_cores_of_a_host_are_what_its_control_groups_leave(
    groups: str, files: Mapping[str, tuple[str, str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host_limits, "_GROUPS", tmp_path / "cgroup")
    monkeypatch.setattr(host_limits, "_LIMITS", tmp_path / "limits")
    monkeypatch.setattr("os.sched_getaffinity", lambda _: range(64))
    (tmp_path / "cgroup").write_text(groups)
    for limit, cores in enumerate((64, 1)):
        for name, contents in files.items():
            file = tmp_path / "limits" / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(contents[limit])
        assert host_limits.host_cores() == cores


def test_the_port_of_a_page_is_free_and_stays_so_until_java_listens(monkeypatch: pytest.MonkeyPatch) -> None:
    first = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    assert standalone._free_port() < first, "the kernel would give it to a connection"
    with socket.create_server(("127.0.0.1", 0)) as taken:
        monkeypatch.setattr(standalone, "_WEB_PORTS", [taken.getsockname()[1]])
        monkeypatch.setattr(standalone, "_MAX_PROBES", 1)
        with pytest.raises(OSError, match="is free"):
            standalone._free_port()
