"""HTTP requests that end in time: within seconds counted over the whole exchange, and with a bounded body."""

from __future__ import annotations

import asyncio
import os
import threading
import weakref
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import httpx

LARGEST_BODY = 64 * 2**20


class RequestFailed(ConnectionError):
    """No reply could be had, or not all of it."""


class Unreachable(RequestFailed):
    """Nothing took the connection, or no whole reply came in time."""


@dataclass(frozen=True)
class HttpReply:
    """A reply; header names are lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    def beginning(self, n: int = 200) -> str:
        """The first `n` characters of the body, for messages."""
        return self.body[: 4 * n].decode("utf-8", "replace")[:n]


class HttpClient:
    """Asks one server, from any number of threads, over connections that are kept.

    A reply that comes byte by byte keeps resetting the timeouts of single reads, so requests run on an event loop,
    where the whole of one is cancelled when its time is over. Redirects are not followed.

    Args:
        base_url: paths are relative to it.
        headers: of every request.

    Raises:
        ValueError: a base_url that isn't one of http or https, or headers that can't be sent.
    """

    def __init__(self, base_url: str, headers: Mapping[str, str] | None = None) -> None:
        import httpx

        try:
            url = httpx.URL(base_url)
        except (httpx.InvalidURL, TypeError) as error:
            raise ValueError(f"base_url = {base_url!r} can't be read ({error})") from error
        if url.scheme not in ("http", "https") or not url.host or url.query or url.fragment:
            raise ValueError(f"base_url = {base_url!r}: expected something like http://localhost:8000/v1")
        self.url = str(url.copy_with(userinfo=b"")).rstrip("/")
        self._client = httpx.AsyncClient(
            base_url=base_url.rstrip("/") + "/",
            headers=dict(headers or {}),
            timeout=None,
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=20),
        )
        self._finalizer = weakref.finalize(self, _close, self._client)

    def request(self, method: str, path: str, content: bytes | None = None, *, timeout: float) -> HttpReply:
        """The whole reply.

        Args:
            content: a JSON body.
            timeout: seconds, from the first attempt to connect to the last byte.

        Raises:
            Unreachable: nothing took the connection, or the time is over.
            RequestFailed: the reply broke off, can't be decoded, or is larger than 64 MiB.
        """
        exchange = _exchange(self._client, method, path, content, timeout)
        future = asyncio.run_coroutine_threadsafe(exchange, _event_loop(os.getpid()))
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def close(self) -> None:
        """Drop the connections."""
        self._finalizer()


async def _exchange(
    client: httpx.AsyncClient, method: str, path: str, content: bytes | None, timeout: float
) -> HttpReply:
    import httpx

    try:
        return await asyncio.wait_for(_read(client, method, path, content), timeout)
    except (TimeoutError, asyncio.TimeoutError):  # two classes before Python 3.11
        raise Unreachable(f"Timeout: no whole reply within {timeout:g} s") from None
    except httpx.ConnectError as error:
        raise Unreachable(f"ConnectError: {error}") from error
    except (httpx.HTTPError, httpx.StreamError, httpx.InvalidURL) as error:
        raise RequestFailed(f"{type(error).__name__}: {error}") from error


async def _read(client: httpx.AsyncClient, method: str, path: str, content: bytes | None) -> HttpReply:
    headers = {} if content is None else {"Content-Type": "application/json"}
    async with client.stream(method, path, content=content, headers=headers) as reply:
        body = bytearray()
        async for chunk in reply.aiter_bytes():
            body += chunk
            if len(body) > LARGEST_BODY:
                raise RequestFailed(f"the reply is larger than {LARGEST_BODY >> 20} MiB")
        return HttpReply(reply.status_code, dict(reply.headers), bytes(body))


@cache
def _event_loop(process: int) -> asyncio.AbstractEventLoop:
    """The loop that all requests of a process run on; a forked one gets its own."""
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, name="http requests", daemon=True).start()
    return loop


def _close(client: httpx.AsyncClient) -> None:
    asyncio.run_coroutine_threadsafe(client.aclose(), _event_loop(os.getpid()))
