"""Reading the history of a store: its changes, the newest first, a page at a time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ...core.batch import Form
from ...core.model import Revision, StoreKey
from ...core.retention import ChangeKind, StoredChange
from . import statements as sql
from .connection import Connection
from .reading import snapshot, way_down
from .rows import bounded, optional_integer, optional_text, to_blob, to_integer, to_text
from .schema import CREATED, DELETED, PATCHED

__all__ = ["revisions"]

KINDS: Final[Mapping[int, ChangeKind]] = {CREATED: "created", PATCHED: "patched", DELETED: "deleted"}

PAGE_BYTES: Final = 16 * 1024 * 1024
"""How many bytes of patches a page has at most, unless its first one alone has more."""

# The lengths first: a patch can be large, and a page has many.
CHANGES: Final = """
with recursive chain (seq, prev_seq, version, kind, instance, at_ms, size, fno) as (
    select seq, prev_seq, version, kind, instance, at_ms, length(patch), fno from log where seq = ?
    union all
    select l.seq, l.prev_seq, l.version, l.kind, l.instance, l.at_ms, length(l.patch), l.fno
    from chain c join log l on l.seq = c.prev_seq limit ?
)
select c.seq, c.prev_seq, c.version, c.kind, c.instance, c.at_ms, c.size,
       (select length(document) from base where base.seq = c.seq), f.version, f.fingerprint
from chain c left join form f on f.fno = c.fno order by c.seq desc"""

PATCH: Final = "select patch from log where seq = ?"

# Down the chain from one row, to the first that is older than a version of the instance, or to its first one.
OLDER: Final = """
with recursive chain (seq, prev_seq, version, kind) as (
    select seq, prev_seq, version, kind from log where seq = ?
    union all
    select l.seq, l.prev_seq, l.version, l.kind
    from chain c join log l on l.seq = c.prev_seq
    where (c.version >= ? and c.kind = 1) or c.seq = ?
)
select seq, prev_seq, version, kind from chain order by seq desc"""


def revisions(
    connection: Connection, key: StoreKey, limit: int, before: Revision | StoredChange | None, patches: bool
) -> tuple[StoredChange, ...]:
    """A page may be shorter than `limit` where the patches are long; after the last one comes an empty one."""
    with snapshot(connection):
        row = connection.row(sql.HELD_STORE, key.name, key.id)
        if row is None:
            return ()
        sid, instance, _, last_seq = to_integer(row[0]), optional_text(row[1]), row[2], optional_integer(row[3])
        begin = last_seq
        if isinstance(before, StoredChange):
            begin, instance = before.below, before.revision.instance_id
        elif before is not None:
            begin = _older(connection, sid, before, before.instance_id == instance, last_seq)
            instance = before.instance_id
        return () if begin is None else _page(connection, begin, instance, limit, patches)


def _older(connection: Connection, sid: int, before: Revision, current: bool, last_seq: int | None) -> int | None:
    """The number of the change below a revision, whether that itself is kept or not."""
    begin = way_down(connection, sid, before, current, last_seq)
    if begin is None:
        return None
    below: int | None = None
    for seq, prev_seq, version, kind in connection.rows(OLDER, begin, bounded(before.version), begin):
        if (kind == DELETED and seq != begin) or (kind != DELETED and to_integer(version) < before.version):
            return to_integer(seq)
        below = optional_integer(prev_seq)
    return below


def _page(
    connection: Connection, begin: int, instance: str | None, limit: int, patches: bool
) -> tuple[StoredChange, ...]:
    found: list[StoredChange] = []
    size = 0
    for seq, below, version, kind, named, at_ms, length, based, form, fingerprint in connection.rows(
        CHANGES, begin, bounded(limit)
    ):
        instance = optional_text(named) or instance
        size += optional_integer(length) or 0
        if patches and found and size > PAGE_BYTES:
            break
        patch = None
        if patches and kind == PATCHED and (row := connection.row(PATCH, seq)):
            patch = to_blob(row[0])
        found.append(
            StoredChange(
                to_integer(seq),
                optional_integer(below),
                Revision(instance or "", to_integer(version)),
                KINDS[to_integer(kind)],
                to_integer(at_ms),
                optional_integer(length) or 0,
                optional_integer(based) or 0,
                patch,
                None if form is None else Form(to_integer(form), to_text(fingerprint)),
            )
        )
    return tuple(found)
