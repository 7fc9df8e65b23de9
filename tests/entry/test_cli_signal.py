"""`signal`: a value for a run, from a terminal."""

from __future__ import annotations

import pytest

import stepwell
from stepwell.core.batch import Batch, SendSignal
from stepwell.core.signal import UNREAD_SIGNALS, SignalRow

from .shell import SHOP, Shell


@pytest.mark.parametrize(
    ("word", "value"),
    [
        ("7", 7),
        ("null", None),
        ('{"ok": [true]}', {"ok": [True]}),
        ("yes, do", "yes, do"),
        ('"7"', "7"),
        ("NaN", "NaN"),
    ],
)
def test_a_value_is_json_and_a_word_that_is_none_is_text(shell: Shell, word: str, value: object) -> None:
    shell.start("decides", id="d")
    said = shell("signal", "d", "decision", word)
    assert (said.code, said.out) == (0, "signal decision was sent to run d, which is pending\n")
    assert shell("--json", "run", f"{SHOP}:decides", "--id", "d").json["result"] == value


def test_a_second_one_of_the_same_key_is_dropped(shell: Shell) -> None:
    shell.start("decides", id="d")
    for word in ("1", "2"):
        assert shell("signal", "d", "decision", word, "--dedupe", "key").code == 0
    with stepwell.open_blocking(shell.folder / "stepwell.db", drive=False) as portal:
        ledger = stepwell.get(portal.app.env, stepwell.Ledger)
        rows = portal.call(lambda: ledger.signals("d")).unwrap()
    assert [(row.value, row.dedupe) for row in rows] == [(b"1", "key")]


def test_json_tells_how_the_run_stands(shell: Shell) -> None:
    shell.start("decides", id="d")
    assert shell("signal", "d", "decision", "1", "--json").json["state"] == "pending"


def test_there_must_be_such_a_run_that_has_not_ended(shell: Shell) -> None:
    shell("run", f"{SHOP}:greet", "ann", "--id", "g")
    ended = shell("signal", "g", "decision", "1", "--json")
    assert ended.code == 1
    assert (ended.error["code"], ended.error["id"], ended.error["state"]) == ("run_ended", "g", "completed")
    missing = shell("signal", "nobody", "decision", "1")
    assert missing.code == 1
    assert "'nobody'" in missing.err


def test_what_can_be_no_signal_is_wrong_usage(shell: Shell) -> None:
    shell.start("decides", id="d")
    assert shell("signal", "d").code == 2
    wrong = shell("signal", "d", "", "1", "--json")
    assert (wrong.code, wrong.error["code"]) == (2, "invalid_argument")
    assert "a signal's name" in wrong.error["error"]


def test_too_many_are_refused_in_words_of_signals(shell: Shell) -> None:
    shell.start("decides", id="d")
    with stepwell.open_blocking(shell.folder / "stepwell.db", drive=False) as portal:
        ledger = stepwell.get(portal.app.env, stepwell.Ledger)
        sent = tuple(SendSignal(SignalRow("d", "decision", b"1")) for _ in range(UNREAD_SIGNALS))
        _ = portal.call(lambda: ledger.commit(Batch((), sent))).unwrap()
    full = shell("signal", "d", "decision", "1", "--json")
    assert (full.code, full.error["code"]) == (1, "too_many_signals")
    assert str(UNREAD_SIGNALS) in full.error["error"]
    assert "bytes" not in full.error["error"]


def test_signals_that_were_not_read_are_shown(shell: Shell) -> None:
    shell.start("decides", id="d")
    shell("signal", "d", "decison", '"yes"', "--dedupe", "k")
    assert shell("show", "d", "--json").json["unread_signals"] == [{"name": "decison", "value": "yes", "dedupe": "k"}]
    assert "decison" in shell("show", "d").out
    shell("signal", "d", "decision", "1")
    shell("run", f"{SHOP}:decides", "--id", "d")
    assert [row["name"] for row in shell("show", "d", "--json").json["unread_signals"]] == ["decison"]
