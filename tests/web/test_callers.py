"""The file of tokens: what it may hold, and that every change of it counts at once."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from cdc_testing.web_rig import SECRET, TOKENS, serving, write_tokens

from cdc_core.errors import ConfigError
from cdc_core.web.access.callers import Callers, token_hash
from cdc_core.web.endpoint import Role

HASH = token_hash(SECRET)


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (f"ann admin {SECRET}", "line 6: this is not NAME ROLE sha256:HASH; write it with `cdc token`"),
        (f"ann admin {HASH.upper()}", "line 6: this is not NAME ROLE sha256:HASH"),
        ("ann admin", "line 6: this is not NAME ROLE sha256:HASH"),
        (f"ann anyone {HASH}", "line 6: 'anyone' is not a role"),
        (f"ann veiw {HASH}", "line 6: 'veiw' is not a role; did you mean 'view'?"),
        (f"boss admin {HASH}", "line 6: 'boss' appears twice; give each token its own name"),
        (f"a/b admin {HASH}", "line 6: this is not a valid name; use 1 to 64 of the characters"),
    ],
)
def test_a_line_that_is_wrong_is_named_and_not_quoted(tmp_path: Path, line: str, why: str) -> None:
    path = write_tokens(tmp_path / "tokens", line)
    with pytest.raises(ConfigError) as raised:
        Callers(path)
    assert f"--tokens {path}, {why}" in str(raised.value)
    assert SECRET not in str(raised.value)


@pytest.mark.parametrize("mode", [0o620, 0o602, 0o666])
def test_a_file_that_others_may_write_is_refused_also_when_that_begins_later(tmp_path: Path, mode: int) -> None:
    path = write_tokens(tmp_path / "tokens")
    callers = Callers(path)
    path.chmod(mode)
    why = f"--tokens {path}: other users may write to this file; run `chmod go-w {path}`"
    assert callers.refresh() == why
    assert not callers.are_known
    with pytest.raises(ConfigError, match=why):
        Callers(path)


@pytest.mark.parametrize(("content", "why"), [(None, "No such file or directory"), (b"\xff\xfe", "it is not UTF-8")])
def test_a_file_that_cannot_be_read_is_refused(tmp_path: Path, content: bytes | None, why: str) -> None:
    path = tmp_path / "tokens"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ConfigError, match=f"this file cannot be read: {why}; write it with `cdc token`"):
        Callers(path)


def test_a_caller_is_known_by_token_or_by_certificate_and_not_by_one_for_the_other(tmp_path: Path) -> None:
    callers = Callers(write_tokens(tmp_path / "tokens", "robot operate subject:CN=robot,O=Shop Ltd"))
    found = callers.by_subject("CN=robot,O=Shop Ltd")
    assert found is not None
    assert (found.name, found.role) == ("robot", Role.OPERATE)
    assert callers.by_token("subject:CN=robot,O=Shop Ltd") is None
    assert callers.by_token("CN=robot,O=Shop Ltd") is None
    assert callers.by_subject("CN=robot") is None
    boss = callers.by_token(TOKENS["boss"])
    assert boss is not None
    assert boss.role == Role.ADMIN


def test_every_change_of_the_file_counts_for_the_next_request(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with serving(tmp_path) as web:
        path = tmp_path / "tokens"
        assert web.ask(token=TOKENS["boss"]).status == 200
        path.write_text(f"new view {token_hash('another')}\n")
        assert web.ask(token=TOKENS["boss"]).status == 401
        assert web.ask(token="another").status == 200
        path.write_text("half a li")  # an editor is at work
        for _ in range(2):
            reply = web.ask(token="another")
            assert (reply.status, "cannot be read; the server" in reply.message) == (503, True)
        assert web.ask("/open").status == web.ask("/open", token="another").status == 200
        path.unlink()
        assert web.ask(token="another").status == 503
        replaced = write_tokens(tmp_path / "new")
        os.replace(replaced, path)  # as Kubernetes does
        assert web.ask(token=TOKENS["boss"]).status == 200
        assert web.ask(token="another").status == 401
    complaints = [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]
    assert len(complaints) == 2
    assert "line 1: this is not NAME ROLE" in complaints[0]
    assert complaints[1].endswith("until then every token is refused")
