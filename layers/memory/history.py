"""The histories of stores in dictionaries: their changes, a chain from the newest down, and the bases beside them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, TypeAlias, final

from ...core.batch import Commit, CreateStore, CutLog, DeleteStore, Document, Form, PatchStore
from ...core.model import Revision, StoreKey
from ...core.retention import ChangeKind, StoredChange
from ...services.ledger import StoreTip

__all__ = ["History", "StoreWrite"]

StoreWrite: TypeAlias = CreateStore | PatchStore | DeleteStore

KINDS: Final[dict[type[StoreWrite], ChangeKind]] = {
    CreateStore: "created",
    PatchStore: "patched",
    DeleteStore: "deleted",
}


@dataclass(slots=True)
class _Change:
    """One row of the log: the change, the number of the one below it of the same store, and perhaps a base."""

    write: StoreWrite
    below: int | None
    at_ms: int
    form: Form | None
    base: bytes | None = None


@dataclass(slots=True)
class _Held:
    """A store that exists or existed: its tip, None once it is deleted, and the number of its last change."""

    tip: Revision | None
    last_seq: int | None
    updated_at_ms: int
    form: Form | None


@final
class History:
    """Changes are numbered from 1, and no number is given twice."""

    def __init__(self) -> None:
        self._stores: dict[StoreKey, _Held] = {}
        self._log: dict[int, _Change] = {}
        self.last_seq = 0

    # --- questions ----------------------------------------------------------

    def tip(self, key: StoreKey) -> Revision | None:
        held = self._stores.get(key)
        return None if held is None else held.tip

    def tips(self, name: str | None) -> tuple[StoreTip, ...]:
        tips = [
            StoreTip(key, held.tip, held.updated_at_ms, held.form)
            for key, held in self._stores.items()
            if held.tip is not None and name in (None, key.name)
        ]
        return tuple(sorted(tips, key=lambda tip: (tip.key.name, tip.key.id)))

    def tail(self, key: StoreKey, after: Revision) -> tuple[Commit, ...] | None:
        tip = self.tip(key)
        if tip is None or tip.instance_id != after.instance_id or tip.version < after.version:
            return None
        commits: list[Commit] = []
        for expected, (_, change) in zip(range(tip.version, after.version, -1), self._chain(key), strict=False):
            if not isinstance(change.write, PatchStore) or change.write.revision.version != expected:
                return None
            commits.append(Commit(change.write.revision, change.write.patch, change.form))
        return tuple(reversed(commits)) if len(commits) == tip.version - after.version else None

    def document(self, key: StoreKey, at: Revision | None) -> Document | None:
        wanted = self.tip(key) if at is None else at
        found: tuple[int, _Change] | None = None
        patches: list[bytes] = []
        for seq, change in self._chain(key):
            if found is None and (change.write.revision != wanted or isinstance(change.write, DeleteStore)):
                continue
            found = (seq, change) if found is None else found
            if change.base is not None:
                seq, change_at = found
                patches.reverse()
                return Document(change_at.write.revision, seq, change.base, tuple(patches), change_at.form)
            if isinstance(change.write, PatchStore):
                patches.append(change.write.patch)
        return None

    def revisions(
        self, key: StoreKey, limit: int, before: Revision | StoredChange | None, patches: bool
    ) -> tuple[StoredChange, ...]:
        rows = [self._row(seq, change, patches) for seq, change in self._chain(key)]
        if isinstance(before, StoredChange):
            rows = [row for row in rows if row.seq < before.seq]
        elif before is not None:
            of_instance = [row for row in rows if row.revision.instance_id == before.instance_id]
            older = [row for row in of_instance if row.kind != "deleted" and row.revision.version < before.version]
            first = older[0].seq if older else of_instance[-1].seq - 1 if of_instance else 0
            rows = [row for row in rows if row.seq <= first]
        return tuple(rows[:limit])

    @property
    def keys(self) -> list[StoreKey]:
        """The stores of which changes are kept."""
        kept = (key for key, held in self._stores.items() if held.last_seq is not None)
        return sorted(kept, key=lambda key: (key.name, key.id))

    def _row(self, seq: int, change: _Change, patches: bool) -> StoredChange:
        patch = change.write.patch if isinstance(change.write, PatchStore) else None
        return StoredChange(
            seq,
            change.below,
            change.write.revision,
            KINDS[type(change.write)],
            change.at_ms,
            len(patch or b""),
            len(change.base or b""),
            patch if patches else None,
            change.form,
        )

    def _chain(self, key: StoreKey) -> Iterator[tuple[int, _Change]]:
        """The changes of a store, all its instances, the last one first."""
        held = self._stores.get(key)
        seq = None if held is None else held.last_seq
        while seq is not None:
            change = self._log[seq]
            yield seq, change
            seq = change.below

    # --- changes ------------------------------------------------------------

    def change(self, write: StoreWrite, at_ms: int) -> int:
        """The number of the change."""
        held = self._stores.get(write.key)
        form = write.form if isinstance(write, CreateStore | PatchStore) else None
        if form is None and held is not None and not isinstance(write, CreateStore):
            form = held.form
        self.last_seq = seq = self.last_seq + 1
        base = write.document if isinstance(write, CreateStore) else None
        self._log[seq] = _Change(write, None if held is None else held.last_seq, at_ms, form, base)
        self._stores[write.key] = _Held(None if isinstance(write, DeleteStore) else write.revision, seq, at_ms, form)
        return seq

    def add_base(self, seq: int, document: bytes) -> None:
        change = self._log.get(seq)
        if change is not None and not isinstance(change.write, DeleteStore):
            change.base = document

    def cut(self, cut: CutLog) -> None:
        """As `CutLog` says: nothing if the history is no longer like that."""
        held = self._stores.get(cut.key)
        last = self._log.get(cut.seqs[-1])
        if held is None or last is None or last.below != cut.below:
            return
        if cut.above is None:
            if held.tip is not None or held.last_seq != cut.seqs[0] or cut.below is not None:
                return
            held.last_seq = None
        else:
            above = self._log.get(cut.above)
            if above is None or above.below != cut.seqs[0]:
                return
            if isinstance(above.write, PatchStore) and above.base is None:
                return
            above.below = cut.below
        for seq in cut.seqs:
            self._log.pop(seq, None)

    def erase(self, key: StoreKey, upto: int | None) -> None:
        """As `EraseStore` says; nothing if the newest change that would go is not the end of an instance."""
        chain = list(self._chain(key))
        going = [(seq, change) for seq, change in chain if upto is None or seq <= upto]
        if not going or not isinstance(going[0][1].write, DeleteStore):
            return
        staying = chain[: len(chain) - len(going)]
        if staying:
            staying[-1][1].below = None
        else:
            self._stores[key].last_seq = None
        for seq, _ in going:
            del self._log[seq]

    def has(self, key: StoreKey, instance_id: str) -> bool:
        """Whether changes of the instance are kept."""
        return any(change.write.revision.instance_id == instance_id for _, change in self._chain(key))
