"""A browser without scripts: what a person gets who follows links and fills in forms."""

from __future__ import annotations

import http.client
from collections.abc import Mapping
from dataclasses import dataclass
from html.parser import HTMLParser
from urllib.parse import urlencode


@dataclass(frozen=True, slots=True)
class Form:
    """A form: where it is sent, and its fields with the values that they have."""

    target: str
    fields: Mapping[str, str]


class Page(HTMLParser):
    """What is on a page: its texts, the addresses of its links, its forms, and everything that could run."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.texts: list[str] = []
        self.links: list[str] = []
        self.forms: list[Form] = []
        self.active: list[str] = []
        """Scripts and styles in the page itself, and attributes that hold some."""
        self._fields: dict[str, str] = {}
        self._field = self._tag = ""
        self.feed(html)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.texts).split())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = {name: value or "" for name, value in attrs}
        if tag == "a":
            self.links.append(found["href"])
        if tag == "form":
            self._fields = {}
            self.forms.append(Form(found.get("action", ""), self._fields))
        if tag in ("input", "textarea", "select") and "name" in found:
            self._field = found["name"]
            self._fields[self._field] = found.get("value", "")
        if tag == "option" and "selected" in found:
            self._fields[self._field] = found["value"]
        self._tag = tag
        if tag == "script" and "src" not in found:
            self.active.append("script")
        if tag in ("style", "iframe", "object", "embed", "base"):
            self.active.append(tag)
        self.active += [name for name in found if name.startswith("on") or name == "style"]
        self.active += [value for value in found.values() if value.strip().lower().startswith("javascript:")]

    def handle_data(self, data: str) -> None:
        self.texts.append(data)
        if self._tag == "textarea":
            self._fields[self._field] += data

    def handle_endtag(self, tag: str) -> None:
        if tag == "textarea":
            self._fields[self._field] = self._fields[self._field].removeprefix("\n")
        self._tag = ""


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    headers: Mapping[str, str]
    body: str

    @property
    def page(self) -> Page:
        return Page(self.body)


class Browser:
    """Asks the server at a port of loopback; keeps the cookie that it gets."""

    def __init__(self, port: int) -> None:
        self.port, self.cookie = port, ""

    def get(self, path: str, **headers: str) -> Answer:
        return self._ask("GET", path, None, headers)

    def post(self, path: str, /, **fields: str) -> Answer:
        return self._ask(
            "POST",
            path,
            urlencode(fields),
            {
                "Content-Type": "application/x-www-form-urlencoded",
                "Origin": f"http://127.0.0.1:{self.port}",
                "Sec-Fetch-Site": "same-origin",
            },
        )

    def _ask(self, method: str, path: str, body: str | None, headers: Mapping[str, str]) -> Answer:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            sent = {**headers, **({"Cookie": self.cookie} if self.cookie else {})}
            connection.request(method, path, body=body, headers=sent)
            answer = connection.getresponse()
            text = answer.read().decode()
        finally:
            connection.close()
        found = {name.lower(): value for name, value in answer.getheaders()}
        if "set-cookie" in found:
            self.cookie = found["set-cookie"].partition(";")[0]
        return Answer(answer.status, found, text)
