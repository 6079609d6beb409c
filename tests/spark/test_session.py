from __future__ import annotations

import os
import signal
import stat
import threading
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from unittest.mock import Mock

import psutil
import pytest
from cdc_testing.engine import counter_feed
from cdc_testing.kept_spark import KeptSpark
from cdc_testing.processes import lives, runs_tasks
from cdc_testing.runs import eventually
from cdc_testing.scripted import TABLE
from cdc_testing.strangers import as_stranger, listening
from pyspark import SparkContext
from pyspark.errors import PySparkException

from cdc_core.engine.query_host import QueryHostError
from cdc_core.engine.run_control import Stopped
from cdc_core.errors import ConfigError, TerminalError
from cdc_core.spark.class_archive import VARIABLE, ClassArchive
from cdc_core.spark.evaluation import SparkEvaluation
from cdc_core.spark.host import SparkHost
from cdc_core.spark.jvm import forget_jvm, forked_python
from cdc_core.spark.private_api import jvm_process
from cdc_core.spark.runner import Runner
from cdc_core.spark.session import close_session, end_jvm, is_alive, open_session, require_java
from cdc_core.spark.session_settings import DEFAULT_MASTER
from cdc_core.spark.standalone import application_settings


def java(directory: Path, shown: str, *, status: int = 0) -> None:
    """Put a `java` into *directory* that shows *shown* as its version."""
    path = directory / "java"
    path.write_text(f"#!/bin/sh\necho '{shown}' >&2\nexit {status}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The only directory on the PATH."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    return tmp_path


@pytest.mark.parametrize("shown", ['openjdk version "17.0.9" 2023-10-17', 'java version "21" 2023-09-19 LTS'])
def test_java_17_or_newer_will_do(shown: str, path: Path) -> None:
    java(path, shown)
    require_java()


@pytest.mark.parametrize("shown", ['openjdk version "11.0.2"', 'java version "1.8.0_372"', "what?"])
def test_an_older_java_is_refused_with_the_remedy(shown: str, path: Path) -> None:
    java(path, shown)
    with pytest.raises(ConfigError, match=r"needs Java 17 or newer, .*java' is .*; install Java 17 or newer"):
        require_java()


def test_a_java_that_has_written_an_archive_is_not_asked_again(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    java(path, "what?")
    monkeypatch.setenv(VARIABLE, str(tmp_path / "cache"))
    archive = ClassArchive.find()
    assert archive is not None
    archive.file.touch()
    require_java()


def test_no_java_is_refused_with_the_remedy(path: Path) -> None:
    with pytest.raises(ConfigError, match=r"there is none on the PATH; install Java 17 or newer"):
        require_java()


def test_a_java_that_does_not_run_is_named(path: Path) -> None:
    java(path, "broken", status=1)
    with pytest.raises(ConfigError, match="java' does not run: broken; install"):
        require_java()


def test_java_home_comes_before_the_path(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    java(path, 'openjdk version "17"')
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "jdk"))
    with pytest.raises(ConfigError, match=r"jdk/bin/java' does not run: .*; install .*, or correct JAVA_HOME$"):
        require_java()


def test_a_user_without_a_name_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.getuid", lambda: 2**31)
    with pytest.raises(ConfigError, match=r"user ID 2147483648 has none; run as a user in /etc/passwd$"):
        require_java()


def process_name(_: int) -> str:
    return Path("/proc/self/comm").read_text().strip()


def network_connections(_: int) -> int:
    return len(psutil.Process().net_connections("inet"))


@pytest.fixture
def no_session(kept_spark: KeptSpark) -> None:
    """There is no session in this process yet. There may be a JVM, of an earlier test here."""
    kept_spark.close()


@pytest.fixture
def no_jvm(no_session: None) -> None:
    """Nor is there a JVM: the next session starts one."""
    forget_jvm(grace_s=0.0)


@pytest.mark.usefixtures("no_session")
def test_a_session_has_the_settings_that_the_engine_relies_on(tmp_path: Path) -> None:
    session = open_session("t", {"spark.ui.retainedJobs": "7"}, log_path=tmp_path / "log")
    try:
        conf = session.conf
        assert session.sparkContext.master == DEFAULT_MASTER == "local[*,4]"  # four attempts for a task
        assert conf.get("spark.sql.execution.arrow.maxRecordsPerBatch") == "1"  # large rows pass one by one
        assert conf.get("spark.sql.session.timeZone") == "UTC"
        assert conf.get("spark.driver.memory")
        assert conf.get("spark.driver.bindAddress") == "127.0.0.1"
        assert conf.get("spark.ui.retainedJobs") == "7"  # the user's own
        assert os.environ["PYSPARK_PYTHON"]
        assert session.sparkContext.pythonExec == forked_python()  # starts at once
        assert session.sparkContext.parallelize([1]).map(process_name).collect() == ["cdc-worker"]
        assert session.sparkContext.parallelize([1]).map(network_connections).collect() == [0]  # no wait for TCP
    finally:
        close_session(session)
    assert not is_alive(session)


ASK = """
port, request = int(sys.argv[1]), bytes.fromhex(sys.argv[2])
with socket.socket() as spark, spark.makefile("rb") as answers:
    spark.connect(("127.0.0.1", port))
    spark.sendall(struct.pack(">QBQI", 21 + len(request), 3, 1, len(request)) + request)
    head = answers.read(9)
    sys.stdout.buffer.write(head[8:] + answers.read(int.from_bytes(head[:8], "big") - 9))
"""
"""Asks one of Spark's servers, and prints its answer: a 4 is an answer, and a 5 an error."""


@pytest.mark.usefixtures("no_session")
def test_another_user_of_the_host_gets_nothing_from_spark(tmp_path: Path) -> None:
    """Neither a password of a task, which travels in a broadcast, nor has it objects of its own deserialized."""
    session = open_session("t", {"spark.ui.enabled": "true", "spark.ui.port": "0"}, log_path=tmp_path / "log")
    try:
        context, gateway = session.sparkContext, SparkContext._gateway
        assert gateway is not None
        assert context.uiWebUrl is not None
        sent = context._jsc.broadcast("postgresql://cdc:the-password@shop.example/shop")
        blocks = gateway.new_array(gateway.jvm.java.lang.String, 1)
        blocks[0] = f"broadcast_{sent.id()}_piece0"
        protocol = gateway.jvm.org.apache.spark.network.shuffle.protocol
        request = bytes(protocol.OpenBlocks(context.applicationId, "driver", blocks).toByteBuffer().array())
        jvm = psutil.Process(gateway.proc.pid)
        places = listening([jvm, *jvm.children(recursive=True)])
        assert {place.removeprefix("::ffff:") for place in places.values()} == {"127.0.0.1"}
        page = int(context.uiWebUrl.rpartition(":")[2])
        servers = places.keys() - {page, gateway.gateway_parameters.port}  # that of py4j has a secret of its own
        assert len(servers) == 2
        for port in servers:
            answer = as_stranger(ASK, str(port), request.hex())
            assert answer[0] == 5
            assert b"java.io.ObjectInputStream" not in answer
    finally:
        close_session(session)


def test_a_jvm_that_has_nothing_to_finish_is_killed_and_leaves_no_files_and_no_processes(kept_spark: KeptSpark) -> None:
    session = kept_spark.session()
    assert session.sparkContext.parallelize([1]).map(process_name).collect() == ["cdc-worker"]
    jvm = jvm_process()
    assert jvm is not None
    workers = [each for each in psutil.Process().children(recursive=True) if runs_tasks(each)]
    assert workers != []
    scratch = Path(session.conf.get("spark.local.dir") or "")
    assert list(scratch.iterdir()) != []
    end_jvm(session)
    assert jvm.returncode == -signal.SIGKILL
    assert not is_alive(session)
    assert list(scratch.iterdir()) == []
    eventually("the end of the workers", lambda: not any(map(lives, workers)))


@pytest.mark.parametrize(
    ("settings", "variables", "killed"),
    [
        ({}, {}, True),
        ({"spark.eventLog.enabled": "false"}, {}, True),
        ({"spark.eventLog.enabled": "TRUE"}, {}, False),
        ({"spark.driver.log.persistToDfs.enabled": "true"}, {}, False),
        ({}, {"JAVA_TOOL_OPTIONS": "-javaagent:a.jar"}, False),
        ({}, {"JDK_JAVA_OPTIONS": "-javaagent:a.jar"}, False),
        ({}, {"SPARK_SUBMIT_OPTS": "-javaagent:a.jar"}, False),
    ],
)
def test_a_jvm_is_killed_only_if_nothing_is_written_at_its_end(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    settings: Mapping[str, str],
    variables: Mapping[str, str],
    killed: bool,
) -> None:
    for name in ("JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "SPARK_SUBMIT_OPTS"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    own = {
        "spark.local.dir": str(tmp_path),
        "spark.driver.extraJavaOptions": f'"-Djava.io.tmpdir={tmp_path}"',
        **settings,
    }
    conf = Mock(get=own.get, toDebugString=lambda: "\n".join(f"{key}={value}" for key, value in own.items()))
    session = Mock(sparkContext=Mock(master="local[*]", getConf=lambda: conf))
    graces: list[float] = []
    monkeypatch.setattr("cdc_core.spark.session.is_alive", lambda _: True)
    monkeypatch.setattr("cdc_core.spark.session.ClassArchive.due", lambda _: None)
    monkeypatch.setattr("cdc_core.spark.session.close_session", lambda _: None)
    monkeypatch.setattr("cdc_core.spark.session.forget_jvm", lambda *, grace_s: graces.append(grace_s))
    end_jvm(session)
    assert (graces == [0.0]) is killed


@pytest.mark.usefixtures("no_session")
def test_a_log_of_events_is_complete_when_the_jvm_has_ended(tmp_path: Path) -> None:
    events = tmp_path / "events"
    events.mkdir()
    log = {"spark.eventLog.enabled": "true", "spark.eventLog.dir": f"file://{events}"}
    end_jvm(open_session("t", log, log_path=tmp_path / "log"))
    files = [path.name for path in events.rglob("*") if path.is_file()]
    assert files != []
    assert not [name for name in files if name.endswith(".inprogress")]


@pytest.mark.usefixtures("no_session")
def test_a_session_can_be_closed_twice_and_followed_by_another_in_any_thread(tmp_path: Path) -> None:
    first = open_session("t", {}, log_path=tmp_path / "log")
    close_session(first)
    close_session(first)
    with ThreadPoolExecutor(1) as pool:
        second = pool.submit(open_session, "t", {}, log_path=tmp_path / "log").result()
    assert is_alive(second)
    close_session(second)


@pytest.mark.usefixtures("no_session")
def test_a_session_that_cannot_be_made_leaves_no_jvm(tmp_path: Path) -> None:
    """Not even the one of an earlier session."""
    before = set(psutil.Process().children())
    if SparkContext._gateway is not None:
        before -= {psutil.Process(SparkContext._gateway.proc.pid)}
    with pytest.raises(TerminalError, match=r"Spark cannot start: .*local\[no\].*; see "):
        open_session("t", {"master": "local[no]"}, log_path=tmp_path / "log")
    assert set(psutil.Process().children()) <= before


@pytest.fixture
def refused(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Mapping[str, str], Path | None]]:
    """The settings and Spark homes of JVMs whose master refuses them, after a minute that this leaves out."""
    asked: list[tuple[Mapping[str, str], Path | None]] = []

    def refuse(settings: Mapping[str, str], *, home: Path | None, **_: object) -> None:
        asked.append((settings, home))
        raise PySparkException("Cannot call methods on a stopped SparkContext")

    monkeypatch.setattr("cdc_core.spark.session.start_jvm", refuse)
    monkeypatch.setattr("cdc_core.spark.session.is_connected", lambda: False)
    monkeypatch.setattr("cdc_core.spark.session.forget_jvm", lambda **_: None)
    return asked


def test_a_master_that_does_not_answer_is_an_outage_and_the_next_session_may_have_another(
    tmp_path: Path, refused: list[tuple[Mapping[str, str], Path | None]]
) -> None:
    masters = ["spark://a:7077", "spark://b:7077"]
    settings = {"master": "spark://gone:7077", "spark.authenticate": "true", "spark.network.crypto.enabled": "true"}
    host = SparkHost("t", settings, state_dir=tmp_path, master=Mock(url=Mock(side_effect=masters)))
    for master in masters:
        with pytest.raises(QueryHostError, match=f"the master {master} does not respond, or refused the") as raised:
            host.acquire("t")
        assert raised.value.outage
    assert [settings["spark.master"] for settings, _ in refused] == masters


def test_a_driver_of_the_nodes_has_the_archive_of_classes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refused: list[tuple[Mapping[str, str], Path | None]]
) -> None:
    monkeypatch.setenv(VARIABLE, str(tmp_path / "cache"))
    archive = ClassArchive.find()
    assert archive is not None
    spark = application_settings(
        {}, master="spark://a:7077", secret="s" * 16, address="a", cores=1, executors=1, slot=3, versions={}
    )
    with pytest.raises(QueryHostError):
        open_session("t", spark, log_path=tmp_path / "log")
    ((settings, home),) = refused
    assert home == archive.home
    assert archive.java_options() in settings["spark.driver.extraJavaOptions"]
    assert settings["spark.local.dir"] == str(tmp_path / "log.tmp")
    assert settings["spark.python.unix.domain.socket.enabled"] == "false", "not those of this host, by a spare JVM"


def test_the_jvm_has_the_second_compiler_only_for_queries(
    tmp_path: Path, refused: list[tuple[Mapping[str, str], Path | None]]
) -> None:
    for queries in (False, True):
        with pytest.raises(TerminalError):
            open_session("t", {}, log_path=tmp_path / "log", queries=queries)
    assert ["TieredStopAtLevel=1" in settings["spark.driver.extraJavaOptions"] for settings, _ in refused] == [
        True,
        False,
    ]


@pytest.mark.parametrize(
    ("query", "queries"), [("SELECT id FROM counter", False), ("SELECT -n AS n FROM counter", True)]
)
def test_a_runner_tells_its_host_of_queries(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, query: str, queries: bool
) -> None:
    host = SparkHost("t", {}, state_dir=tmp_path)
    monkeypatch.setattr("cdc_core.spark.runner.SparkHost", lambda *_, **__: host)
    with Runner(tmp_path) as runner:
        runner.add(counter_feed(tmp_path, query=query))
    assert host.queries is queries


def submit(directory: Path, script: str) -> Path:
    """Make *directory* a Spark home whose `spark-submit` is *script*."""
    path = directory / "bin" / "spark-submit"
    path.parent.mkdir(parents=True)
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return directory


def test_a_jvm_that_does_not_answer_any_more_is_an_error_of_the_host(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A changefeed starts again after it, whichever other one has replaced the JVM meanwhile."""
    monkeypatch.setattr("cdc_core.spark.host.open_session", Mock(side_effect=ConnectionRefusedError))
    with pytest.raises(QueryHostError, match="Spark's JVM ended"):
        SparkHost("t", {}, state_dir=tmp_path).acquire("t")


@pytest.mark.usefixtures("no_jvm")
def test_an_interrupted_start_leaves_no_jvm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A JVM that is still starting, for example one that downloads packages, does not read its standard input."""
    home = submit(tmp_path / "spark", f"echo $$ > {tmp_path}/pid.new; mv {tmp_path}/pid.new {tmp_path}/pid; sleep 999")
    monkeypatch.setenv("SPARK_HOME", str(home))
    pid = tmp_path / "pid"

    def interrupt() -> None:
        eventually("the JVM", pid.exists)
        groups.append(os.getpgid(int(pid.read_text())))
        signal.raise_signal(signal.SIGINT)

    groups: list[int] = []
    before = set(psutil.Process().children())
    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        open_session("t", {}, log_path=tmp_path / "log")
    thread.join()
    assert set(psutil.Process().children()) <= before
    assert groups != [os.getpgid(0)]  # a signal to all processes of the job would end it in the middle of a step


@pytest.mark.usefixtures("no_jvm")
def test_a_spark_home_without_spark_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_HOME", str(tmp_path))
    with pytest.raises(ConfigError, match=r"SPARK_HOME is '\S+', which has no program \S+; correct or unset it$"):
        open_session("t", {}, log_path=tmp_path / "log")


@pytest.mark.usefixtures("no_jvm")
def test_a_start_that_nobody_waits_for_any_more_ends_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A changefeed that is refused while Spark starts does not wait for it."""
    home = submit(tmp_path / "spark", f"touch {tmp_path}/begun; sleep 999")
    before = set(psutil.Process().children())
    host = SparkHost("t", {}, state_dir=tmp_path)
    monkeypatch.setenv("SPARK_HOME", str(home))
    with ThreadPoolExecutor(2) as pool:
        opening = [pool.submit(host.acquire, user) for user in ("first", "second")]
        eventually("the JVM", (tmp_path / "begun").exists)
        assert forked_python() is None  # workers need the pyspark of that home
        eventually("both wait", lambda: host.is_shared)
        host.release("first")
        assert not any(each.done() for each in opening)  # the other one still wants it
        host.release("second")
        assert [type(each.exception()) for each in opening] == [Stopped, Stopped]
    assert set(psutil.Process().children()) <= before


@pytest.mark.usefixtures("no_jvm")
@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("exit 0", r"ended with status 0 before it was ready; see \S+/log, which ends with: no memory$"),
        ("exit 3", r"ended with status 3 before it was ready; see \S+/log, which ends with: no memory$"),
        ("kill -9 $$", r"was ready; it was killed \(SIGKILL\)\. If memory ran out, give .* more than its \S+ GB$"),
    ],
)
def test_a_jvm_that_ends_at_once_is_an_error(
    words: str, told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPARK_HOME", str(submit(tmp_path / "spark", f"echo no memory; {words}")))
    with pytest.raises(TerminalError, match=told):
        open_session("t", {}, log_path=tmp_path / "log")
    assert (tmp_path / "log").read_text() == "no memory\n"


@pytest.mark.usefixtures("no_jvm")
def test_an_error_of_a_temporary_host_holds_the_end_of_its_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    words = "echo one; echo; echo out of memory; echo '	at java.Main'; exit 3"
    monkeypatch.setenv("SPARK_HOME", str(submit(tmp_path / "spark", words)))
    told = "Spark's JVM ended with status 3 before it was ready"
    end = r"one \| out of memory$"
    with pytest.raises(TerminalError, match=rf"^{told}; its log ends with: {end}"):
        SparkHost("t", {}, state_dir=tmp_path, temporary=True).acquire("user")
    with pytest.raises(TerminalError, match=rf"^{told}; see {tmp_path}/u.spark.log, which ends with: {end}"):
        SparkHost("u", {}, state_dir=tmp_path).acquire("user")
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(scratch))
    feed = counter_feed(tmp_path, query="SELECT n * 2 AS n FROM counter")
    with closing(SparkEvaluation(feed)) as evaluation, pytest.raises(TerminalError, match=r"one \| out of memory$"):
        evaluation.delivered([TABLE])
    assert list(scratch.iterdir()) == []
