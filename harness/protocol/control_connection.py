"""A connection to a server in addition to those of its clients: it prepares the server, and inspects the clients'
effects.

A client may end the connections of all others. This one is then reopened, and the request is repeated.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Self

from harness.core.sockets import connect
from harness.protocol.resp import Client, ServerGoneError, info_fields

if TYPE_CHECKING:
    from harness.core.sockets import Address
    from harness.protocol.resp import Reply

_CLIENTS = Client.pack([("INFO", "clients")])
_POLL_SECONDS = 0.002


class ControlConnection:
    """The connection, which opens with the first request. Its requests must be repeatable."""

    def __init__(self, address: Address, *, deadline_seconds: float) -> None:
        self._address = address
        self._deadline_seconds = deadline_seconds
        self._client: Client | None = None
        self._question, self._count = b"", 0
        self._is_old = False
        """Whether an earlier request was answered: the connection, and not the server, may have ended since."""

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the connection."""
        self.close()

    def close(self) -> None:
        """Close the connection; another question makes it again."""
        client, self._client = self._client, None
        self._is_old = False
        if client is not None:
            client.close()

    def begin(self, question: bytes, count: int) -> None:
        """Send so many commands, without waiting. Raises OSError if the server is gone."""
        self._question, self._count = question, count
        try:
            self._send()
        except ServerGoneError:
            self._send_again()
        except OSError:
            self.close()
            raise

    def end(self) -> list[Reply]:
        """The replies to what was sent. Raises OSError if the server is gone, or does not reply in time."""
        try:
            return self._received()
        except ServerGoneError:
            self._send_again()
            return self.end()
        except OSError:
            # Replies that arrive later would be mistaken for those of the next request.
            self.close()
            raise

    def ask(self, question: bytes, count: int) -> list[Reply]:
        """Send so many commands, and return their replies. Raises as `begin` and `end`."""
        self.begin(question, count)
        return self.end()

    def blocked_clients(self) -> int:
        """The number of the server's clients that wait for others. Raises as `ask`."""
        return int(info_fields(self.ask(_CLIENTS, 1)[0])["blocked_clients"])

    def await_no_blocked_client(self) -> None:
        """Wait until the server has noticed that earlier blocked clients are gone, so that they are not mistaken for
        later ones.

        Their connections end some time after they do: a recorder stands in between. Raises TimeoutError.
        """
        deadline = time.monotonic() + self._deadline_seconds
        while self.blocked_clients():
            if time.monotonic() > deadline:
                raise TimeoutError("a client of an earlier stream is still blocked")
            time.sleep(_POLL_SECONDS)

    def _send(self) -> None:
        if self._client is None:
            self._client = Client(connect(self._address, deadline_seconds=self._deadline_seconds))
        self._client.send(self._question)

    def _send_again(self) -> None:
        """Send the question over a new connection, unless the one that ended was new."""
        if not self._is_old:
            self.close()
            raise ServerGoneError("connection closed by the server")
        self.close()
        self._send()

    def _received(self) -> list[Reply]:
        assert self._client is not None
        replies: list[Reply] = []
        self._client.receive_into(replies, self._count)
        self._is_old = True
        return replies
