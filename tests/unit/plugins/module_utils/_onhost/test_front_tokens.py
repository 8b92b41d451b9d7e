# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Who used up the tokens of a minute or a month; a real nginx and the program are in tests/integration/nginx."""

from __future__ import annotations

import calendar
import json
import time
from pathlib import Path

import pytest
from ansible_collections.sparkthor.cluster.plugins.module_utils._onhost import front_tokens

NOW = float(calendar.timegm((2026, 11, 23, 9, 0, 0)))
MINUTE, MONTH = {"ci": {"minute": 100}}, {"ci": {"month": 100}}


def line(key: str = "ci", status: int = 200, tokens: str = " 40 20") -> bytes:
    return f"<190>Nov 23 09:00:00 sparkthor_front: {key} mini {status} 0.100{tokens}".encode()


def test_a_minute_is_over_when_enough_of_it_is_older() -> None:
    ledger = front_tokens.Ledger()
    for second in (0, 10, 20):
        assert ledger.take(line(), NOW + second)
    # two of three have to go: 60 are left then
    assert ledger.over(MINUTE, NOW + 30) == {
        "ci": {"period": "minute", "limit": 100, "used": 180, "until": NOW + 10 + 60}
    }
    assert ledger.over(MINUTE, NOW + 69.9)["ci"]["used"] == 120
    assert ledger.over(MINUTE, NOW + 70) == {}
    assert ledger.over({"other": {"minute": 1}}, NOW) == {}


def test_a_month_ends_with_the_calendar_of_utc() -> None:
    ledger = front_tokens.Ledger()
    ledger.take(line(tokens=" 90 10"), NOW)
    december = float(calendar.timegm((2026, 12, 1, 0, 0, 0)))
    assert ledger.over(MONTH, NOW) == {"ci": {"period": "month", "limit": 100, "used": 100, "until": december}}
    assert ledger.over(MONTH, december) == {}
    assert front_tokens.end_of_month(december) == calendar.timegm((2027, 1, 1, 0, 0, 0))
    # a clock that was wrong for a while takes nothing from a month
    assert "ci" in ledger.over(MONTH, NOW)


def test_a_clock_that_was_set_back_refuses_nobody_for_longer() -> None:
    ledger = front_tokens.Ledger()
    ledger.take(line(tokens=" 90 10"), NOW + 3600)
    assert ledger.over(MINUTE, NOW) == {}


@pytest.mark.parametrize("datagram", [b"", b"noise", line(status=429), line(status=503)])
def test_what_is_no_answer_does_not_count(datagram: bytes) -> None:
    ledger = front_tokens.Ledger()
    assert not ledger.take(datagram, NOW)
    assert ledger.usage({}, NOW) == {}


def test_usage_says_what_was_not_seen() -> None:
    ledger = front_tokens.Ledger()
    ledger.take(line(), NOW)
    ledger.take(line(tokens=" "), NOW)
    assert ledger.usage(MINUTE, NOW) == {"ci": {"minute": 60, "month": 60, "unseen": 1, "limits": {"minute": 100}}}


def keeper(tmp_path: Path) -> front_tokens.Keeper:
    made = front_tokens.Keeper(str(tmp_path), str(tmp_path), str(tmp_path / "limits.json"))
    made.read_limits()
    return made


def test_the_month_is_on_the_disk_and_other_limits_come_by_themselves(tmp_path: Path) -> None:
    limits = tmp_path / "limits.json"
    limits.write_text(json.dumps(MONTH))
    first = keeper(tmp_path)
    now = time.time()
    first.take(line(tokens=" 90 10"), now)
    first.write(now)
    assert list(json.loads((tmp_path / "over.json").read_text())["over"]) == ["ci"]
    # as after a power loss
    second = keeper(tmp_path)
    assert list(second.ledger.over(second.limits, now)) == ["ci"]
    limits.unlink()
    second.read_limits()
    assert second.limits == MONTH, "a reload renames the folder twice"
    limits.write_text(json.dumps({"ci": {"month": 1000}}))
    second.read_limits()
    second.write(now)
    assert json.loads((tmp_path / "over.json").read_text())["over"] == {}
    assert json.loads((tmp_path / "usage.json").read_text())["ci"]["limits"] == {"month": 1000}


def test_an_estimate_counts_and_is_said_to_be_none_of_the_answers(tmp_path: Path) -> None:
    ledger = front_tokens.Ledger()
    ledger.take(line(tokens=" 40 20 ~"), NOW)
    # its client went away
    ledger.take(line(status=499, tokens=" 10 0 ~"), NOW)
    assert ledger.usage({}, NOW)["ci"] == {"minute": 70, "month": 70, "unseen": 2, "limits": {}}


def test_nothing_is_said_before_the_limits_are_known(tmp_path: Path) -> None:
    counter, over = keeper(tmp_path), tmp_path / "over.json"
    counter.write(NOW)
    assert not over.exists()
    (tmp_path / "limits.json").write_text(json.dumps(MONTH))
    counter.read_limits()
    counter.write(NOW)
    assert json.loads(over.read_text()) == {"at": NOW, "over": {}, "uncounted": []}


def test_the_word_to_nginx_is_renewed_though_nothing_changes(tmp_path: Path) -> None:
    (tmp_path / "limits.json").write_text(json.dumps(MONTH))
    counter = keeper(tmp_path)
    for seconds, said in ((0, 0), (1, 0), (front_tokens.SAY, front_tokens.SAY), (-60, -60)):
        counter.write(NOW + seconds)
        assert json.loads((tmp_path / "over.json").read_text())["at"] == NOW + said


def test_on_a_full_disk_keys_with_a_month_wait_and_others_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "limits.json").write_text(json.dumps({**MONTH, "web": {"minute": 100}}))
    counter, write, full = keeper(tmp_path), front_tokens.files.write_atomic, True

    def written(path: str, text: str, mode: int = 0o644) -> None:
        if full and path.endswith("months.json"):
            raise OSError(28, "No space left on device")
        write(path, text, mode=mode)

    monkeypatch.setattr(front_tokens.files, "write_atomic", written)

    def uncounted(now: float) -> list[str]:
        counter.write(now)
        return list(json.loads((tmp_path / "over.json").read_text())["uncounted"])

    # before the first answer as well
    assert uncounted(NOW) == ["ci"]
    counter.take(line(key="web"), NOW)
    assert uncounted(NOW + 6) == ["ci"]
    assert counter.ledger.usage({}, NOW)["web"]["minute"] == 60
    full = False
    assert uncounted(NOW + 12) == []
    assert json.loads((tmp_path / "months.json").read_text())["2026-11"]["web"]["tokens"] == 60
    assert capsys.readouterr().err.count("No space left on device; keys with tokens_per_month are refused") == 1


@pytest.mark.parametrize(
    "text",
    [
        *("{torn", "[]", '{"2026-11": 1}', '{"2026-11": {"ci": {"tokens": -1000000, "unseen": 0}}}', "[" * 100_000),
        *('{"2026-11": {"ci": {"tokens": "5", "unseen": 0}}}', '{"2026-11": {"ci": {"tokens": NaN, "unseen": 0}}}'),
    ],
    ids=["torn", "no object", "no keys", "negative", "deep", "text", "no number"],
)
def test_after_counts_that_cannot_be_read_months_wait_for_their_owner(
    tmp_path: Path, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path, bad = tmp_path / "months.json", tmp_path / "months.json.bad"
    path.write_text(text)

    def uncounted(counter: front_tokens.Keeper, now: float) -> list[str]:
        counter.read_limits()
        counter.write(now)
        return list(json.loads((tmp_path / "over.json").read_text())["uncounted"])

    (tmp_path / "limits.json").write_text(json.dumps({**MONTH, "web": {"minute": 100}}))
    for _start in (1, 2):
        # neither a start anew nor a sound new file makes the former counts known
        counter = front_tokens.Keeper(str(tmp_path), str(tmp_path), str(tmp_path / "limits.json"))
        assert uncounted(counter, NOW) == ["ci"]
        counter.take(line(key="ci"), NOW)
        assert uncounted(counter, NOW + 6) == ["ci"]
        assert bad.read_text() == text
    said = capsys.readouterr().err
    assert "months.json cannot be read and is put aside" in said
    assert f"rm {bad}" in said
    assert said.count("are refused until somebody says") == 2
    bad.unlink()
    assert uncounted(counter, NOW + 12) == []
    # what was counted meanwhile is known
    assert json.loads(path.read_text())["2026-11"]["ci"]["tokens"] == 120
