"""Gets the status page of a pod's sidecar: whatever answers there, a bounded time and so many bytes.

Not by a client library, which does more with an answer than read it: pages in chunks of one byte, or one
`100 Continue` after the other, from as many pods as are asked at once, took all of the operator's time.
"""

import asyncio
from typing import Final

from guided_contract import names

TIMEOUT_S: Final = 2.0
MAX_PAGE_BYTES: Final = 64 << 10  # that of a pod of 128 ranks and 64 grammars has 20 KiB
_MAX_HEAD_BYTES: Final = 8 << 10
_TOO_LARGE: Final = f"the sidecar's status page is larger than {MAX_PAGE_BYTES} bytes"


class PageError(Exception):
    """The sidecar's page could not be had, or is not one."""


async def fetch(address: str) -> bytes:
    """Return the page of the sidecar at an IP address. Redirects are not followed.

    Raises
    ------
    PageError
        No answer in time, not 200, too large, or in chunks.
    """
    try:
        async with asyncio.timeout(TIMEOUT_S):
            answer = await _exchange(address)
    except OSError as error:  # a timeout is one
        raise PageError(f"the sidecar did not answer: {type(error).__name__}") from error
    head, end, body = answer.partition(b"\r\n\r\n")
    version, _, rest = head[:_MAX_HEAD_BYTES].partition(b" ")
    if not end or not version.startswith(b"HTTP/1.") or not rest[:3].isdigit():
        raise PageError("the sidecar did not answer in HTTP")
    if rest[:3] != b"200":
        raise PageError(f"the sidecar answered {rest[:3].decode()}")
    if b"\r\ntransfer-encoding:" in head.lower():
        raise PageError("the sidecar's status page has no Content-Length")
    if len(body) > MAX_PAGE_BYTES:
        raise PageError(_TOO_LARGE)
    return body


async def _exchange(address: str) -> bytes:
    """Return all that comes until the connection ends."""
    host = f"[{address}]" if ":" in address else address
    reader, writer = await asyncio.open_connection(address, names.SIDECAR_PORT)
    try:
        writer.write(f"GET /status HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode())
        answer = bytearray()
        while chunk := await reader.read(MAX_PAGE_BYTES):
            answer += chunk
            if len(answer) > MAX_PAGE_BYTES + _MAX_HEAD_BYTES:
                raise PageError(_TOO_LARGE)
        return bytes(answer)
    finally:
        writer.transport.abort()
