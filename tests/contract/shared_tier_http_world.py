"""A shared tier over HTTP, and what its server is asked for."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager

from stepwell import ManualClock
from stepwell.core.breaker import BreakerRule
from stepwell.core.node import digest_of
from stepwell.core.shared_row import row_name, write_row
from stepwell.layers import shared_tier
from stepwell.services.shared_tier import SharedTier

from .cache_server import Server
from .shared_tier_world import KEY, LIMIT, entry, opened

TIMEOUT_MS = 7_000
ROW = f"/ac/{row_name(KEY)}"
DIGEST = digest_of(b"bytes")
BLOB = f"/cas/{DIGEST}"
NEVER = BreakerRule(failures=1_000)


def document(key: str = KEY, result: object = "ok") -> bytes:
    data = write_row(entry(result, key=key))
    assert isinstance(data, bytes)
    return data


@asynccontextmanager
async def tier_of(
    server: Server,
    clock: ManualClock,
    *,
    path: str = "",
    headers: Mapping[str, str] | None = None,
    connections: int = 8,
    pauses: BreakerRule = NEVER,
) -> AsyncGenerator[SharedTier]:
    layer = shared_tier.layer_http(
        server.url + path,
        headers=headers,
        timeout=TIMEOUT_MS / 1000,
        limit_bytes=LIMIT,
        connections=connections,
        pauses=pauses,
        proxies={},
    )
    async with opened(layer, clock) as tier:
        yield tier
