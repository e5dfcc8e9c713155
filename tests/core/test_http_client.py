"""Requests against a server of this machine that writes whatever bytes a test wants, as slowly as it wants."""

from __future__ import annotations

import gzip
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress

import pytest

from interp.core import http_client
from interp.core.http_client import HttpClient, RequestFailed, Unreachable

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi"


@contextmanager
def server(answer: Callable[[socket.socket], None]) -> Iterator[str]:
    """Hands every connection, once its request's header has come, to `answer`, and closes it afterwards."""
    listening = socket.create_server(("127.0.0.1", 0))

    def serve(connection: socket.socket) -> None:
        with connection, suppress(OSError):
            while b"\r\n\r\n" not in connection.recv(65536):
                pass
            answer(connection)

    def accept() -> None:
        with suppress(OSError):
            while True:
                threading.Thread(target=serve, args=(listening.accept()[0],), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}/v1"
    finally:
        listening.close()


def with_body(body: bytes, *headers: str) -> Callable[[socket.socket], None]:
    head = "".join(f"{line}\r\n" for line in ("HTTP/1.1 200 OK", f"Content-Length: {len(body)}", *headers))
    return lambda connection: connection.sendall(head.encode() + b"\r\n" + body)


def dripping(before: bytes, drop: bytes) -> Callable[[socket.socket], None]:
    def answer(connection: socket.socket) -> None:
        connection.sendall(before)
        while True:
            time.sleep(0.02)
            connection.sendall(drop)

    return answer


@pytest.mark.parametrize(
    ("before", "drop"),
    [
        (b"", b""),
        (b"HTTP/1.1 200 OK\r\nX: ", b"x"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n", b" "),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b"1\r\n \r\n"),
    ],
)
def test_the_timeout_bounds_the_whole_request(before: bytes, drop: bytes) -> None:
    """Every drop comes well within the timeout; a bound on single reads would never be passed."""
    with server(dripping(before, drop)) as url:
        start = time.monotonic()
        with pytest.raises(Unreachable, match=r"no whole reply within 0\.3 s"):
            HttpClient(url).request("GET", "models", timeout=0.3)
        assert 0.29 < time.monotonic() - start < 2


def test_replies_come_whole_and_in_parallel() -> None:
    together = threading.Barrier(3, timeout=20)

    def answer(connection: socket.socket) -> None:
        together.wait()
        connection.sendall(OK)

    with server(answer) as url, ThreadPoolExecutor(3) as pool:
        client = HttpClient(url)
        found = list(pool.map(lambda _: client.request("GET", "x", timeout=20), range(3)))
        assert [(reply.status, reply.body) for reply in found] == [(200, b"hi")] * 3
        client.close()


def test_compressed_replies_are_read_and_corrupt_ones_fail() -> None:
    packed = gzip.compress(b"hello " * 100)
    with server(with_body(packed, "Content-Encoding: gzip")) as url:
        assert HttpClient(url).request("GET", "x", timeout=20).body == b"hello " * 100
    corrupt = with_body(b"no gzip at all", "Content-Encoding: gzip")
    with server(corrupt) as url, pytest.raises(RequestFailed, match="DecodingError"):
        HttpClient(url).request("GET", "x", timeout=20)


@pytest.mark.parametrize(
    "raw",
    [b"", b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhi", b"SSH-2.0-OpenSSH\r\n", b"HTTP/1.1 abc\r\n\r\n"],
)
def test_what_breaks_off_or_is_no_http_fails(raw: bytes) -> None:
    broken = server(lambda connection: connection.sendall(raw))
    with broken as url, pytest.raises(RequestFailed, match=r"ProtocolError|ReadError"):
        HttpClient(url).request("GET", "x", timeout=20)


def test_bodies_are_bounded_also_compressed_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_client, "LARGEST_BODY", 1 << 20)
    packed = with_body(gzip.compress(bytes(16 << 20)), "Content-Encoding: gzip")
    with server(packed) as url, pytest.raises(RequestFailed, match="larger than 1 MiB"):
        HttpClient(url).request("GET", "x", timeout=20)


def test_nobody_there_and_addresses_that_are_none() -> None:
    with pytest.raises(Unreachable, match="ConnectError"):
        HttpClient("http://127.0.0.1:9").request("GET", "x", timeout=20)
    for url in ("localhost:8000", "ftp://h/v1", "http://", "http://h/v1?version=2", "http://[::1/v1"):
        with pytest.raises(ValueError, match="base_url = "):
            HttpClient(url)


def test_a_password_in_the_address_is_not_told() -> None:
    assert HttpClient("http://user:secret@localhost:8000/v1/").url == "http://localhost:8000/v1"
