"""Why a run waits, in words."""

from __future__ import annotations

import pytest

from stepwell.core.model import Path, Paths, Revision, StepId, StoreKey
from stepwell.core.paths import EACH, SHAPE
from stepwell.core.waiter import Waiter, WaiterRow
from stepwell.core.waiting_on import explain, path_text


def waiting(*paths: Path, due_no: int | None = None) -> WaiterRow:
    read: Paths = paths
    waiter = Waiter(StoreKey("orders", "o-1"), StepId("run", "approved"), Revision("i", 3), read, 7)
    return WaiterRow(waiter, due_no, 1_000)


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ((), "the state"),
        ((SHAPE,), "len(the state)"),
        (("items", 0, "status"), "items[0].status"),
        (("items", EACH, "status"), "items[*].status"),
        (("items", SHAPE), "len(items)"),
        (("by key", "0"), "['by key']['0']"),
        ((3, "a"), "[3].a"),
    ],
)
def test_a_path_reads_like_code(path: Path, text: str) -> None:
    assert path_text(path) == text


def test_a_wait_tells_what_it_read_and_what_is_there_now() -> None:
    document = b'{"status":"new","items":[{"by":null},{"by":"me"}],"long":"' + b"x" * 100 + b'"}'
    text = explain(
        "when 'approved' of orders/o-1: is_approved (shop.py:41)",
        61_000,
        [(waiting(("status",), ("items", EACH, "by"), ("items", SHAPE), ("gone",), ("long",)), document)],
    )
    assert text == (
        "when 'approved' of orders/o-1: is_approved (shop.py:41), until 1970-01-01T00:01:01Z; "
        "step 'approved' waits since 1970-01-01T00:00:01Z for a change of what it read of orders/o-1 at version 3, "
        'and there now is: status = "new", items[*].by = null, "me", len(items) = 2, gone = absent, '
        'long = "' + "x" * 58 + "…"
    )


def test_many_values_and_many_paths_are_cut_short() -> None:
    document = b'{"items":[1,2,3,4],"none":[]}'
    many = tuple(("p", number) for number in range(20))
    text = explain("w", None, [(waiting(("items", EACH), ("none", EACH), *many), document)])
    assert "items[*] = 1, 2, 3, ... (4 in all), none[*] = none, p[0] = absent" in text
    assert text.endswith("and 14 more")


def test_a_store_that_is_gone_and_a_waiter_that_is_due_are_told() -> None:
    assert explain("w", None, [(waiting(("a",)), None)]).endswith("; orders/o-1 is gone")
    assert explain("w", None, [(waiting(("a",), due_no=9), b'{"a":1}')]).endswith("a = 1; it is due")
    assert explain("sleep 'nap'", 1_000, []) == "sleep 'nap', until 1970-01-01T00:00:01Z"
