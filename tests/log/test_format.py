"""One event is one line, and reading never stops at damage."""

from __future__ import annotations

from pathlib import Path
from typing import cast

import msgspec
import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ipyagent_sessions.events import Event, as_raw, decode, encode
from ipyagent_sessions.log import format as log_format
from ipyagent_sessions.log.format import Damage, clean_lines, event_of, line_of, scan, scan_file

EVENTS = [
    Event(n, "Noted", "2026-01-01T00:00:00.000Z", payload=as_raw({"n": n, "t": "x\u2028\u2029\r\n\0\ud800y"}), ignorable=True)
    for n in range(1, 6)
]
LINES = [line_of(e) for e in EVENTS]


def read(data: bytes) -> tuple[list[int], list[str]]:
    items = list(scan(data, "j"))
    return [i[1].seq for i in items if isinstance(i, tuple)], [i.kind for i in items if isinstance(i, Damage)]


def test_a_line_is_json_for_any_other_program_and_ends_in_one_line_feed() -> None:
    for line in LINES:
        assert line.count(b"\n") == 1
        assert line.endswith(b"\n")
        assert b"\r" not in line
        assert msgspec.json.decode(line)["seq"]


def test_a_line_gives_back_its_event_byte_for_byte() -> None:
    for event, line in zip(EVENTS, LINES, strict=True):
        found = event_of(line[:-1])
        assert found is not None
        assert encode(found) == encode(event)


@pytest.mark.parametrize("bit", [0, 1, 5])
def test_a_flipped_bit_anywhere_in_a_line_is_seen_or_changes_nothing(bit: int) -> None:
    line = LINES[2]
    for at in range(len(line) - 1):
        flipped = bytearray(line)
        flipped[at] ^= 1 << bit
        found = event_of(bytes(flipped[:-1]))
        assert found is None or encode(found) == encode(EVENTS[2]), at
        if found is not None:
            assert 6 <= at < 14, f"only the case of a checksum's digit may differ, not byte {at}"


@pytest.mark.parametrize(
    ("data", "seqs", "kinds"),
    [
        (b"".join(LINES), [1, 2, 3, 4, 5], []),
        (b"\xef\xbb\xbf" + b"".join(LINES), [1, 2, 3, 4, 5], []),
        (b"".join(LINES).replace(b"\n", b"\r\n"), [1, 2, 3, 4, 5], []),
        (b"\n\n" + LINES[0] + b"\n\r\n" + LINES[1], [1, 2], []),
        (LINES[0][:-1] + LINES[1], [1, 2], ["glued"]),
        (LINES[0][:-1] + LINES[1][:-1] + LINES[2], [1, 2, 3], ["glued", "glued"]),
        (LINES[0][:60] + LINES[1], [2], ["malformed"]),
        (LINES[0] + LINES[1][:9] + LINES[2] + LINES[3], [1, 3, 4], ["malformed"]),
        (LINES[0] + b"\0" * 64 + LINES[1], [1, 2], ["nul"]),
        (LINES[0] + b"\0" * 64 + b"\n" + LINES[1], [1, 2], ["nul"]),
        (LINES[0][:-1] + b"\0" * 64 + b"\n" + LINES[1], [1, 2], ["nul"]),
        (LINES[0] + b"\0" * 64, [1], ["nul"]),
        (LINES[0] + b"not json\n" + LINES[1], [1, 2], ["malformed"]),
        (LINES[0] + LINES[1].replace(b"Noted", b"Nuted") + LINES[2], [1, 3], ["checksum"]),
        (LINES[0] + LINES[1][:-1], [1], ["torn"]),
        (LINES[0] + LINES[1][:20], [1], ["torn"]),
        (LINES[0][:30] + LINES[1][:-1] + LINES[2][:30], [2], ["malformed", "torn"]),
        (b"\xff\xfe\n" + LINES[0], [1], ["malformed"]),
        (b"", [], []),
    ],
)
def test_damage_is_named_and_what_verifies_is_kept(data: bytes, seqs: list[int], kinds: list[str]) -> None:
    assert read(data) == (seqs, kinds)


def test_damage_says_where_and_how_much() -> None:
    damage = [
        i for i in scan(LINES[0] + b"\0" * 7 + LINES[1] + b"rubbish\n", "journal-2-1.jsonl", base=0) if isinstance(i, Damage)
    ]
    assert [(d.offset, d.length) for d in damage] == [(len(LINES[0]), 7), (len(LINES[0]) + 7 + len(LINES[1]), 7)]
    assert str(damage[0]) == f"journal-2-1.jsonl: nul, 7 bytes at offset {len(LINES[0])}"


@given(st.binary(max_size=200), st.integers(0, len(b"".join(LINES))))
def test_rubbish_inside_a_journal_costs_at_most_the_line_it_hits(rubbish: bytes, at: int) -> None:
    whole = b"".join(LINES)
    seqs, kinds = read(whole[:at] + rubbish + whole[at:])
    assert len(seqs) >= 4
    assert seqs == sorted(seqs)
    if len(seqs) < 5:
        assert kinds


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 400)), max_size=12))
def test_cut_and_glued_lines_in_any_order_never_raise_and_never_invent(parts: list[tuple[int, int]]) -> None:
    data = b"".join(LINES[n][:length] for n, length in parts)
    for item in scan(data, "j"):
        if isinstance(item, tuple):
            assert encode(item[1]) == encode(EVENTS[item[1].seq - 1])


@given(st.integers(0, len(LINES) - 1), st.data())
def test_lines_are_clean_only_where_reading_finds_no_damage(number: int, data: st.DataObject) -> None:
    """One byte of a line changed: the checksum itself, its case and the signs around it count as well."""
    line = LINES[number]
    at = data.draw(st.integers(0, len(line) - 2) | st.integers(0, 20))
    changed = line[:at] + bytes([data.draw(st.integers(0, 255))]) + line[at + 1 :]
    whole = b"".join([*LINES[:number], changed, *LINES[number + 1 :]])
    clean = clean_lines(whole)
    if clean is not None:
        seqs, kinds = read(whole)
        assert (seqs, kinds) == (list(range(1, len(LINES) + 1)), [])
        assert clean == (1, whole.split(b"\n")[:-1])


def test_whole_lines_are_clean() -> None:
    assert clean_lines(b"".join(LINES)) == (1, [line[:-1] for line in LINES])


def test_the_signs_around_a_checksum_and_its_case_are_looked_at() -> None:
    line = next(line for line in LINES if set(line[6:14]) & set(b"abcdef"))
    assert clean_lines(line) is not None
    for broken in (line[:14] + b"$" + line[15:], line[:13] + b"b" + line[14:], line[:6] + line[6:14].upper() + line[14:]):
        assert clean_lines(broken) is None


def test_a_broken_line_full_of_record_starts_is_read_in_reasonable_time() -> None:
    item = b'{"c":"00000000","seq":1}'
    seqs, kinds = read(LINES[0] + b'{"c":"00000000","seq":2,"payload":[' + b",".join([item] * 3000) + b"]}\n" + LINES[1])
    assert seqs == [1, 2]
    assert kinds == ["checksum"]


def test_a_line_written_by_a_later_version_with_more_fields_is_read() -> None:
    body = encode(EVENTS[0])[:-1] + b',"mood":"fine"}'
    assert decode(body).seq == 1


@pytest.mark.parametrize("block", [1, 7, 64, 300, 10_000])
@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"".join(LINES),
        b"\xef\xbb\xbf" + b"".join(LINES),
        b"".join(LINES)[:-9],
        LINES[0] + b"\0" * 500 + LINES[1] + b"\0" * 500,
        LINES[0][:-1] + LINES[1] + LINES[2][:40] + LINES[3] + b"\r\n" + LINES[4].replace(b"Noted", b"Moted"),
    ],
)
def test_a_journal_read_in_blocks_says_what_it_says_as_a_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, data: bytes, block: int
) -> None:
    monkeypatch.setattr(log_format, "_FIRST_BLOCK", block)
    monkeypatch.setattr(log_format, "_BLOCK", block * 4)
    path = tmp_path / "j"
    path.write_bytes(data)
    found = [item for part in scan_file(path) for item in (part if isinstance(part, list) else [part])]
    assert found == [item if isinstance(item, Damage) else item[1] for item in scan(data, "j")]


def test_who_pauses_over_a_journal_keeps_it_not_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path.resolve() / "j"
    path.write_bytes(b"".join(LINES))
    monkeypatch.setattr(log_format, "_FIRST_BLOCK", len(LINES[0]))
    parts = scan_file(path)
    assert len(cast(list[Event], next(parts))) == 1
    assert str(path) not in {file.path for file in psutil.Process().open_files()}
    assert sum(len(cast(list[Event], part)) for part in parts) == len(LINES) - 1
