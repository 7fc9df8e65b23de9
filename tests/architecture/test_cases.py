"""What `make cases` reads out of test ids and out of the list of cases that wait."""

from __future__ import annotations

from ..cases import CASES, case_ids, gaps, host_of, read_later


def test_ids_stand_in_names_and_in_parameters() -> None:
    assert case_ids("tests/a/test_s9_x.py::TestStore::test_s13_s14_two_tasks[sqlite]") == {"S13", "S14"}
    assert case_ids("tests/contract/test_wake_bus.py::test_w17_a_wake[layer]") == {"W17"}
    assert case_ids("tests/a/test_x.py::test_kinds[S95-sqlite-1]") == {"S95"}
    assert case_ids("tests/a/test_x.py::test_p_04_and_sb13_x[cb14 target]") == {"P-04", "SB13", "CB14"}
    assert case_ids("tests/a/test_x.py::test_x_02_to_x_04_kills") == {"X-02", "X-03", "X-04"}
    assert case_ids("tests/a/test_x.py::test_folds_s_and_sqlite3[memory]") == set()


def test_a_host_stands_in_a_parameter_a_name_or_a_file() -> None:
    assert host_of("tests/contract/test_store.py::test_s13_x[S13-sqlite]") == "sqlite"
    assert host_of("tests/contract/test_ledger_sqlite.py::test_s13_x[memory]") == "memory"
    assert host_of("tests/contract/test_ledger_sqlite.py::test_s12_x") == "sqlite"
    assert host_of("tests/core/test_cache_fold.py::test_f10_x") == "core"
    assert host_of("tests/contract/test_wake_bus.py::test_w1_x[layer]") == "core"
    assert host_of("tests/contract/test_artifacts.py::test_a1_x[files]") == "files"
    assert host_of("tests/entry/test_cli.py::test_s126_x") == "other"


def test_the_list_knows_ranges_hosts_and_parts() -> None:
    rows = ["| case | reason |", "|---|---|", "| S38 to S39 | no take |", "| S7 on sqlite | memory only |"]
    rows += ["| K-01 to K-02 | no cache |"]
    assert read_later("\n".join([*rows, "| F16 in part | later |"])) == {
        ("S38", None): "no take",
        ("S39", None): "no take",
        ("S7", "sqlite"): "memory only",
        ("F16", None): "later",
        ("K-01", None): "no cache",
        ("K-02", None): "no cache",
    }


def test_a_case_must_be_tested_on_every_host_or_be_listed() -> None:
    everything = {(case, "core") for case in CASES if case not in ("S1", "S2", "S3", "A1")}
    tested = {*everything, ("S1", "memory"), ("S3", "sqlite"), ("A1", "memory"), ("A1", "sqlite")}
    wrong = gaps(tested, {("S3", "memory"): "durable only"})
    assert wrong == [
        "S1 is neither tested on sqlite nor listed as `S1 on sqlite`",
        "S2 is neither tested nor listed in tests/later.md",
        "A1 is neither tested on files nor listed as `A1 on files`",
    ]


def test_the_list_may_not_contradict_the_tests() -> None:
    everything = {(case, "core") for case in CASES} | {("S7", "sqlite")}
    assert gaps(everything, {("S7", "sqlite"): "memory only"}) == [
        "tests/later.md lists S7 on sqlite, but it is tested there"
    ]
    assert gaps(everything, {("S900", None): "?"}) == ["tests/later.md lists S900, which is no case"]
