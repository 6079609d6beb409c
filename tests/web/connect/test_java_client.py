"""The Java client `org.sourcelab:kafka-connect-client` as it is, in a JVM that py4j drives."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cdc_sink_kafka.demo.jars import jars_of
from cdc_testing.connect_converter import java_gateway
from cdc_testing.rest_rig import Rest, config, serving_rest
from cdc_testing.web_rig import TOKENS, write_tokens
from py4j.java_gateway import JavaGateway
from py4j.protocol import Py4JJavaError

from cdc_core.store.job_values import NodeRecord

_VERSION = "4.0.5"
_POM = f"""<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>cdc</groupId><artifactId>kafka-connect-client</artifactId><version>1</version><packaging>pom</packaging>
  <dependencies>
    <dependency>
      <groupId>org.sourcelab</groupId><artifactId>kafka-connect-client</artifactId><version>{_VERSION}</version>
    </dependency>
    <dependency>
      <groupId>org.slf4j</groupId><artifactId>slf4j-nop</artifactId><version>1.7.36</version>
    </dependency>
  </dependencies>
</project>
"""


class _Hooks:
    """The client's own hooks, and a token in every request."""

    class Java:
        implements = ("org.sourcelab.kafka.connect.apiclient.rest.HttpClientConfigHooks",)

    def __init__(self, gateway: JavaGateway, token: str) -> None:
        self._gateway, self._token = gateway, token
        self._own = gateway.jvm.org.sourcelab.kafka.connect.apiclient.rest.DefaultHttpClientConfigHooks()

    def modifyHttpClientBuilder(self, configuration: Any, builder: Any) -> Any:  # noqa: N802
        headers = self._gateway.jvm.java.util.ArrayList()
        header = self._gateway.jvm.org.apache.http.message.BasicHeader
        headers.add(header("Authorization", f"Bearer {self._token}"))
        return builder.setDefaultHeaders(headers)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._own, name)


@pytest.fixture
def rest(tmp_path: Path) -> Iterator[Rest]:
    tokens = write_tokens(tmp_path / "tokens")
    with serving_rest(tmp_path / "store", tokens=tokens) as rest:
        rest.client.headers["Authorization"] = f"Bearer {TOKENS['boss']}"
        yield rest


@pytest.fixture(scope="module")
def gateway() -> Iterator[JavaGateway]:
    jars = jars_of(f"kafka-connect-client-{_VERSION}", _POM, what="the client of Kafka Connect")
    with java_gateway(jars) as gateway:
        yield gateway


def _client(gateway: JavaGateway, rest: Rest, token: str) -> Any:
    client = gateway.jvm.org.sourcelab.kafka.connect.apiclient
    hooks = _Hooks(gateway, token)
    return client.KafkaConnectClient(client.Configuration(rest.url), client.rest.HttpClientRestClient(hooks))


@pytest.mark.slow
def test_the_java_client_does_everything_that_it_can(
    gateway: JavaGateway, rest: Rest, control: Path, one: NodeRecord
) -> None:
    api = gateway.jvm.org.sourcelab.kafka.connect.apiclient.request
    client = _client(gateway, rest, TOKENS["boss"])
    given = gateway.jvm.java.util.HashMap()
    for name, value in config(control).items():
        given.put(name, value)
    assert client.getConnectServerVersion().getVersion() == "4.3.0"

    # create, list and read
    created = client.addConnector(api.dto.NewConnectorDefinition("orders", given))
    assert (created.getName(), created.getType(), list(created.getTasks())) == ("orders", "source", [])
    assert list(client.getConnectors()) == ["orders"]
    assert dict(client.getConnectorConfig("orders")) == {**config(control), "name": "orders"}
    rest.adopted(one)
    status = client.getConnectorStatus("orders")
    assert (status.getConnector()["state"], status.getConnector()["worker_id"]) == ("RUNNING", "one")
    (task,) = status.getTasks()
    assert (task.getId(), task.getState(), task.getWorkerId()) == (0, "RUNNING", "one")
    every = client.getConnectorsWithAllExpandedMetadata()
    assert every.getStatusForConnector("orders").getType() == "source"
    assert every.getDefinitionForConnector("orders").getConfig()["sink"] == given["sink"]
    assert [task.getId().getTask() for task in client.getConnectorTasks("orders")] == [0]
    assert client.getConnectorTaskStatus("orders", 0).getState() == "RUNNING"
    assert list(client.getConnectorTopics("orders").getTopics()) == ["counter"]

    # pause, resume, restart and update
    assert client.pauseConnector("orders")
    rest.store.claims.settle("orders", one, "stopped")
    assert client.getConnectorStatus("orders").getConnector()["state"] == "PAUSED"
    assert client.resumeConnector("orders")
    rest.adopted(one)
    assert client.restartConnector("orders")
    assert rest.state() == "RESTARTING"
    rest.store.claims.settle("orders", one, "stopped")
    rest.adopted(one)
    assert client.restartConnector(api.post.PostConnectorRestart("orders").withIncludeTasks(True))
    assert client.restartConnectorTask("orders", 0)
    given.put("keys", "3")
    assert client.updateConnectorConfig("orders", given).getConfig()["keys"] == "3"

    # plugins and validation
    (plugin,) = client.getConnectorPlugins()
    given.put("name", "orders")
    plugin_config = api.dto.ConnectorPluginConfigDefinition
    right = client.validateConnectorPluginConfig(plugin_config(plugin.getClassName(), given))
    assert right.getErrorCount() == 0
    given.put("tasks.max", "0")
    wrong = client.validateConnectorPluginConfig(plugin_config(plugin.getClassName(), given))
    errors = {each.getValue().getName(): list(each.getValue().getErrors()) for each in wrong.getConfigs()}
    assert {name for name, found in errors.items() if found} == {"tasks.max"}

    # stop and delete
    assert client.stopConnector("orders")
    rest.store.claims.settle("orders", one, "stopped")
    assert list(client.getConnectorStatus("orders").getTasks()) == []
    assert client.deleteConnector("orders")
    assert list(client.getConnectors()) == []

    # what it makes of errors
    for call, error in (
        (lambda: client.getConnector("nope"), "ResourceNotFoundException"),
        (lambda: client.resetConnectorTopics("nope"), "InvalidRequestException"),
        (lambda: client.addConnector(api.dto.NewConnectorDefinition("new", given)), "InvalidRequestException"),
        (lambda: _client(gateway, rest, "wrong").getConnectors(), "UnauthorizedRequestException"),
        (lambda: _client(gateway, rest, TOKENS["viewer"]).pauseConnector("orders"), "InvalidRequestException"),
    ):
        with pytest.raises(Py4JJavaError) as raised:
            call()
        assert raised.value.java_exception.getClass().getSimpleName() == error
