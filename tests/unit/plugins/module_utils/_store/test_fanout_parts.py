# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest
from ansible_collections.sparkthor.cluster.plugins.module_utils._store import fanout_parts
from ansible_collections.sparkthor.cluster.plugins.module_utils._store.fanout_parts import FanoutError, Parts

from tests.unit.fanout_ring import FILES, PART, TOTAL, WHOLE, Ring, contents, sha


def test_a_later_run_goes_on_where_the_earlier_one_stopped(ring: Ring, monkeypatch: pytest.MonkeyPatch) -> None:
    parts = Parts(str(ring.incoming(2)), PART, contents())
    parts.adopt({}, [])
    first = parts.contents[-1].first
    for index in range(first, first + 5):
        parts.store(index, FILES[4][parts.offsets[index] : parts.offsets[index] + PART])
    assert sorted(ring.have(2)) == sorted(
        [sha(b"")] + [f"{name}.{end}" for name in WHOLE if name != sha(b"") for end in ("have", "part")]
    )
    # after a loss of power a note may speak of data that never reached the disk
    os.pwrite(parts.contents[-1].fd, b"?" * PART, parts.offsets[first])
    monkeypatch.setattr(fanout_parts, "boot_id", lambda: "b" * 36)
    again = Parts(str(ring.incoming(2)), PART, contents())
    again.adopt({}, [])
    assert [index - first for index in range(first, again.total) if again.have[index]] == [1, 2, 3, 4]
    ring.begin(1, [], [2], ring.source())
    node = ring.begin(2, [1])
    ring.end(2)
    assert node.received == TOTAL - 4 * PART
    assert ring.have(2) == WHOLE


def test_a_full_disk_is_a_sentence(ring: Ring, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(fd: int, offset: int, size: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(FanoutError, match=r"became full .*make room and run again"):
        Parts(str(ring.incoming(2)), PART, contents()).adopt({}, [])


def test_a_manifest_whose_parts_do_not_add_up(tmp_path: Path) -> None:
    with pytest.raises(FanoutError, match="not those of 2500 bytes"):
        Parts(str(tmp_path), PART, [[sha(FILES[0]), 2500, [sha(b"")]]])


def test_a_full_file_that_nobody_verified_is_read(ring: Ring) -> None:
    """A run over ssh that was killed before it had read what it brought."""
    big = bytearray(FILES[4])
    big[5678] ^= 1
    left = ring.incoming(2) / sha(FILES[4])
    left.write_bytes(big)
    ring.begin(1, [], [2], ring.source())
    local = {name: path for name, path in ring.source().items() if name != sha(FILES[4])}
    node = ring.begin(2, [1], [], local)
    assert ring.end(2)["state"] == "done"
    assert node.received == PART
    assert ring.have(2) == {sha(FILES[4]): FILES[4]}
    assert left.stat().st_mode & 0o777 == 0o400
    # and the next one takes it as it is
    parts = Parts(str(ring.incoming(2)), PART, contents([FILES[4]]))
    parts.adopt({}, [])
    assert parts.contents[0].path == str(left)


def test_a_part_file_that_another_run_took_away_is_a_sentence(ring: Ring) -> None:
    parts = Parts(str(ring.incoming(2)), PART, contents([FILES[2]]))
    parts.adopt({}, [])
    (ring.incoming(2) / f"{sha(FILES[2])}.part").unlink()
    parts.store(0, FILES[2])
    with pytest.raises(FanoutError, match="No such file"):
        parts.prove(threading.Event())
