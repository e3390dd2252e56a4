"""Small JSON over HTTP for the control side: Connect's REST interface and the schema registry.

A handful of calls per apply, so the standard library is enough and a light install needs no client. One
connection per call: nothing to keep alive, nothing to close. Redirects are not followed and no proxy is read
from the environment: these are addresses an operator gave.
"""

import base64
import http.client
import json
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote, urlsplit

from waybill.kernel.errors import ConfigError, UnavailableError

__all__ = ["JsonHttp", "Reply"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """Status and document of one answer; `document` is None when the body is empty, text when it is not JSON."""

    status: int
    document: Any

    @property
    def reason(self) -> str:
        """What the server said went wrong, shortened to one line."""
        said = self.document.get("message", self.document) if isinstance(self.document, dict) else self.document
        return " ".join(str(said).split())[:500]


class JsonHttp:
    """Calls one server.

    Args:
        url: root of the interface, user and password in it where the server wants basic authentication.
        what: the server's name in messages, with the variable that says where it is.
        timeout_s: for connecting and for each read.
    """

    def __init__(self, url: str, what: str, timeout_s: float = 20.0) -> None:
        parts = urlsplit(url)
        if parts.scheme not in {"http", "https"} or not parts.hostname:
            raise ConfigError(f"address of {what}: expected a URL such as http://127.0.0.1:8083")
        self._tls = parts.scheme == "https"
        self._host, self._port = parts.hostname, parts.port
        self._root = parts.path.rstrip("/")
        self._what, self._timeout_s = what, timeout_s
        self._headers = {"Accept": "application/json", "Content-Type": "application/json"}
        if parts.username is not None:
            pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
            self._headers["Authorization"] = "Basic " + base64.b64encode(pair.encode()).decode()
        #: The address without credentials, for messages.
        self.shown = f"{parts.scheme}://{parts.hostname}" + (f":{parts.port}" if parts.port else "") + self._root

    def call(self, method: str, path: str, body: object = None) -> Reply:
        """Send one request and return the answer, whatever its status.

        Raises:
            UnavailableError: no answer; says which server and where it was looked for.
        """
        kind = http.client.HTTPSConnection if self._tls else http.client.HTTPConnection
        connection = kind(self._host, self._port, timeout=self._timeout_s)
        payload = None if body is None else json.dumps(body).encode()
        try:
            connection.request(method, self._root + path, payload, self._headers)
            answer = connection.getresponse()
            raw = answer.read()
        except (OSError, http.client.HTTPException) as error:
            reason = str(error) or type(error).__name__
            raise UnavailableError(f"{self._what} does not answer at {self.shown} ({reason})") from error
        finally:
            connection.close()
        if not raw:
            return Reply(status=answer.status, document=None)
        try:
            return Reply(status=answer.status, document=json.loads(raw))
        except ValueError:
            return Reply(status=answer.status, document=raw.decode(errors="replace"))
