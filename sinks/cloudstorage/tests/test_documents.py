"""What docs/cloud-storage.md says is so: its examples are taken by real stores, its sentences are the code's."""

from __future__ import annotations

import dataclasses
import re
import tomllib
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from cdc_sink_cloudstorage import authentication, azure, gcs, s3_trouble
from cdc_sink_cloudstorage.sink import CloudStorageSink
from cdc_testing.gcs_gate import GcsGate
from cdc_testing.object_stores import AZURE_ACCOUNT, AZURE_KEY, S3_KEY, S3_SECRET, Azurite, SeaweedFS

from cdc_core.config.changefeed import Changefeed
from cdc_core.config.interpolation import interpolate
from cdc_core.config.resolve import resolve
from cdc_core.plugins.host import PluginHost

PAGE = (Path(__file__).parents[3] / "docs" / "cloud-storage.md").read_text()
EXAMPLES = {
    name: fields
    for block in re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)
    for name, fields in tomllib.loads(block)["changefeed"].items()
}
OTHERS = {"source": "postgresql://u@h/d", "tables": ["public.orders"]}


@pytest.mark.parametrize("name", EXAMPLES)
def test_every_example_is_taken_by_its_store(
    name: str, seaweedfs: SeaweedFS, gcs_gate: GcsGate, azurite: Azurite, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only addresses, and what the test servers know their users by, are put in the place of the page's."""
    secrets = {
        "AWS_SECRET": quote(S3_SECRET, safe=""),
        "MINIO_SECRET": S3_SECRET,
        "GOOGLE_KEY_FILE": quote(gcs_gate.credentials(), safe=""),
        "AZURE_KEY": quote(AZURE_KEY, safe=""),
    }
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", S3_KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", S3_SECRET)
    shown: Any = interpolate({**OTHERS, **EXAMPLES[name]}, place="example", directory=Path("/"), environ=secrets)
    context = resolve(Changefeed(name=name, **shown), PluginHost.load()).open_sink().context
    servers = {
        "s3": {"aws_endpoint": seaweedfs.endpoint},
        "gs": {"gcs_endpoint": gcs_gate.endpoint},
        "azure": {"azure_endpoint": azurite.endpoint, "azure_account_name": AZURE_ACCOUNT},
    }
    changes = servers[context.uri.partition(":")[0]]
    if context.options.aws_access_key_id:
        changes["aws_access_key_id"] = S3_KEY
    sink = CloudStorageSink(dataclasses.replace(context, options=dataclasses.replace(context.options, **changes)))
    sink.check()
    sink.close()


def test_every_error_of_the_page_is_raised() -> None:
    modules = (authentication, azure, gcs, s3_trouble)
    code = " ".join(Path(module.__file__).read_text() for module in modules)
    code = re.sub(r'"\s+f?"', "", code)
    table = PAGE.partition("## Errors")[2].partition("\n## ")[0]
    said = [line.split("|")[2].strip() for line in table.splitlines() if line.startswith("| ")][1:]
    parts = [part.strip() for text in said for part in re.split(r"[;…']|\(the container\)|the endpoint|says$", text)]
    missing = [part for part in parts if part and part not in code]
    assert missing == []
    assert len(said) >= 10
