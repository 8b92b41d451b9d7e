# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What our chain costs: the same engine asked through the front proxy, and past it at its own socket, alternating.

Past it, the watchdog is stopped as well. So front proxy, key check, TCP and watchdog are on one side of the pair and
nothing of ours on the other. A pair is measured within seconds, and every second pair in the other order.
"""

from __future__ import annotations

import contextlib
import json
import shlex
import statistics
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tools.faults.site import VLLM, WATCHDOG, Site, wait
from tools.gpu.load import Aim, measure

BY_HAND = 8100
#: where the unit makes vLLM listen
SOCKET = "/run/sparkthor/vllm/vllm.sock"


def front(site: Site, prompt: int, tokens: int) -> Aim:
    point = site.endpoint
    return Aim(f"http://{point.address}:{point.port}", "", point.key, site.model, prompt, tokens)


def engine(site: Site, prompt: int, tokens: int) -> Aim:
    # the host's own root, as this machine sees it
    return Aim("", f"/proc/{site.leader()}/root{SOCKET}", "", site.model, prompt, tokens)


@contextlib.contextmanager
def no_watchdog(site: Site) -> Iterator[None]:
    pid = int(site.shown(site.head, WATCHDOG, "MainPID") or 0)
    if pid:
        site.signal(site.head, pid, "STOP")
    try:
        yield
    finally:
        if pid:
            site.signal(site.head, pid, "CONT")


def pairs(
    site: Site, streams: Sequence[int], rounds: int, seconds: float, tokens: int, say: Any
) -> list[dict[str, Any]]:
    """Rows of (streams, round, way) with their figures."""
    ways = {"front": front(site, 128, tokens), "engine": engine(site, 128, tokens)}
    rows = []
    measure(ways["front"], max(streams), 2.0)  # graphs and caches are warm before the first pair
    for number in range(rounds):
        for count in streams:
            order = ("front", "engine") if number % 2 == 0 else ("engine", "front")
            for way in order:
                with no_watchdog(site) if way == "engine" else contextlib.nullcontext():
                    found = measure(ways[way], count, seconds, seed=number + 1)
                rows.append({"streams": count, "round": number, "way": way, **found})
            say(f"  {count} streams: " + "; ".join(f"{row['way']} {row['tokens_per_second']}" for row in rows[-2:]))
    return rows


def summary(rows: Sequence[Mapping[str, Any]], ours: str = "front", bare: str = "engine") -> list[dict[str, Any]]:
    """By number of streams: medians of both ways, of the pairs' ratio, and of the added time to the first token."""
    found = []
    for count in sorted({int(row["streams"]) for row in rows}):
        of = {
            way: {int(row["round"]): row for row in rows if row["streams"] == count and row["way"] == way}
            for way in (ours, bare)
        }
        both = sorted(of[ours].keys() & of[bare].keys())
        if not both:
            continue

        def middle(way: str, key: str, of: Any = of, both: Any = both) -> float:
            return float(statistics.median(of[way][number][key] for number in both))

        ratios = [of[ours][n]["tokens_per_second"] / of[bare][n]["tokens_per_second"] for n in both]
        added = [of[ours][n]["ttft_p50_ms"] - of[bare][n]["ttft_p50_ms"] for n in both]
        found.append(
            {
                "streams": count,
                "pairs": len(both),
                "ours": middle(ours, "tokens_per_second"),
                "bare": middle(bare, "tokens_per_second"),
                "ratio": round(statistics.median(ratios), 4),
                "ratios": [round(min(ratios), 4), round(max(ratios), 4)],
                "ttft_ours": middle(ours, "ttft_p50_ms"),
                "ttft_bare": middle(bare, "ttft_p50_ms"),
                "ttft_added": round(statistics.median(added), 2),
                "failed": sum(of[way][n]["failed"] for way in (ours, bare) for n in both),
            }
        )
    return found


def start_by_hand(site: Site) -> float:
    """Our engine off, one with the same arguments on, as a person would start it; the seconds until it answers."""
    config = json.loads(site.on(site.head, _CONFIG))
    config.pop("uds", None)
    config.update(host="0.0.0.0", port=BY_HAND)
    site.on(site.head, f"systemctl stop {WATCHDOG} {VLLM}")
    text = shlex.quote(json.dumps(config))
    begun = time.monotonic()
    site.on(site.head, f"mkdir -p /tmp/by-hand; echo {text} >/tmp/by-hand/vllm.yaml; chmod -R a+rX /tmp/by-hand")
    site.on(site.head, _BY_HAND)
    probe = f"curl -sf -m 2 http://127.0.0.1:{BY_HAND}/health"
    wait(lambda: site.lab.exec(site.head, ["bash", "-c", probe], check=False).returncode == 0, 300, "vLLM by hand", 1.0)
    return time.monotonic() - begun


def stop_by_hand(site: Site) -> None:
    # the group of the process that was started, with its engine core and workers; often nobody is left for KILL
    site.on(site.head, "pid=$(cat /tmp/by-hand/pid); kill -TERM -- -$pid; sleep 5; kill -KILL -- -$pid || true")
    site.on(site.head, f"systemctl start {VLLM} {WATCHDOG}")


#: vLLM's file as the unit gives it, as JSON
_CONFIG = (
    "/opt/sparkthor/venv/bin/python -I -c 'import json,sys,yaml; print(json.dumps(yaml.safe_load(open(sys.argv[1]))))' "
    "$(systemctl show -p ExecStart --value sparkthor-vllm.service | grep -o '/[^ ;]*\\.yaml' | head -1)"
)
_BY_HAND = """
token=/tmp/by-hand/token; install -o sparkthor -m 0600 /etc/sparkthor/secrets/ray_token $token
set -a; for file in /etc/sparkthor/fabric.env /etc/sparkthor/engine.env /etc/sparkthor/vllm.env; do
  [ -e $file ] && . $file; done; set +a
chown -R sparkthor /tmp/by-hand; cd /tmp/by-hand
export RAY_AUTH_MODE=token RAY_AUTH_TOKEN_PATH=$token
setsid setpriv --reuid sparkthor --regid sparkthor-api --init-groups /opt/sparkthor/venv/bin/vllm serve \
  --config /tmp/by-hand/vllm.yaml >/tmp/by-hand/log 2>&1 </dev/null &
echo $! >/tmp/by-hand/pid
"""
