"""How clients reach a server so that their requests are recorded: through the proxy, or by recording themselves."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from harness.protocol.monitors import Monitors
from harness.protocol.resp import Client
from harness.record.proxy import peer_user
from harness.record.proxy.recorder import Recorder

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable

    from harness.core.sockets import Address


class RecordedAccess:
    """The recorded ways to one server. There are none before `open`."""

    def __init__(self, *, deadline_seconds: Callable[[], float]) -> None:
        """`deadline_seconds` returns that of a client's operations, unless the client has another."""
        self._deadline_seconds = deadline_seconds
        self._server: Address | None = None
        self._recorder: Recorder | None = None
        self._monitors: Monitors | None = None

    def open(self, server: Address, path: Path, *, monitors: int) -> None:
        """Open the recording proxy in front of a server, at a socket's path. So many `monitors` hear every command."""
        self._server, self._recorder = server, Recorder(server, path)
        if monitors:
            self._monitors = Monitors(server, monitors, deadline_seconds=self._deadline_seconds())

    def close_monitors(self) -> None:
        """End the clients that receive every command, for which a stopping server would wait."""
        if self._monitors is not None:
            self._monitors.close()
            self._monitors = None

    def close(self) -> None:
        """Close the proxy. What was recorded can still be read."""
        if self._recorder is not None:
            self._recorder.close()

    @property
    def recorder(self) -> Recorder | None:
        """The recorder of the clients' requests; None before the server is ready."""
        return self._recorder

    @property
    def _opened(self) -> Recorder:
        assert self._recorder is not None, "the server has not started"
        return self._recorder

    @property
    def path(self) -> Path:
        """The address for other processes' clients: the recording proxy's Unix socket."""
        return self._opened.path

    @property
    def client_endpoint(self) -> tuple[Path, Path | None]:
        """The address for a client in another process that can record by itself, and the file that it appends to
        (Recorder.file); None if the proxy records it.
        """
        return (self._server, self._opened.file) if isinstance(self._server, Path) else (self.path, None)

    @property
    def endpoint(self) -> tuple[str, int]:
        """The proxy's address on loopback, for clients that support only TCP: Tcl, and servers.

        It accepts only this user. Raises InfrastructureError if the host does not report who connects.
        """
        return peer_user.HOST, self._opened.port

    @property
    def strangers(self) -> int:
        """Number of refused connections: those of other users, and those closed before their user was known."""
        return self._recorder.strangers if self._recorder is not None else 0

    def connection(self, *, deadline_seconds: float | None = None) -> socket.socket:
        """A recorded connection for a client in this process: no proxy is between it and the server.

        Its operations have this deadline, or that of a reply.
        """
        return self._opened.connection(deadline_seconds=deadline_seconds or self._deadline_seconds())

    def client(self, *, deadline_seconds: float | None = None) -> Client:
        """A client on such a connection."""
        return Client(self.connection(deadline_seconds=deadline_seconds))
