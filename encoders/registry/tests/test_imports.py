from __future__ import annotations

import subprocess
import sys


def test_no_http_client_is_loaded_before_the_first_request() -> None:
    program = (
        "import sys; from cdc_schema_registry import Registry; Registry.of('https://a:b@host', owner='x');"
        "sys.exit(bool({'confluent_kafka', 'httpx', 'httpx2', 'authlib'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
