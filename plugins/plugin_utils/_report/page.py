# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One self-contained page about the cluster: topology, memory, verify, doctor, versions.  Runs on the controller; pure.

No script, no font, no picture from anywhere: it opens from a mail, prints, and follows the reader's light or dark
scheme.  Everything that came from a host is escaped.  State is never told by colour alone.
"""

from __future__ import annotations

import html
import math
from collections.abc import Mapping, Sequence
from typing import Any

from ansible_collections.sparkthor.cluster.plugins.plugin_utils._report import status as _status

GIB = 1024**3

# Pairs of ink and paper are checked for WCAG AA by a test, in both schemes.
STYLE = """
:root{color-scheme:light dark;--paper:#ffffff;--card:#f5f6f8;--ink:#1b1f24;--soft:#4d5662;--line:#c3c9d1;
--good:#1a6b34;--goodbg:#dff3e4;--bad:#a3141e;--badbg:#fde4e4;--warn:#7a4b00;--warnbg:#fff0d0;
--weights:#2f6fb3;--kv:#2b8a5a;--over:#8a6d1f;--spare:#d4d9e0;--cable:#2b8a5a}
@media (prefers-color-scheme:dark){:root{--paper:#14171b;--card:#1e2329;--ink:#e8ebef;--soft:#adb6c1;--line:#414a55;
--good:#7fd89a;--goodbg:#173822;--bad:#ff9a9a;--badbg:#48191c;--warn:#f3c969;--warnbg:#3f2f0c;
--weights:#6ea8e6;--kv:#5fc491;--over:#cfae55;--spare:#39424d;--cable:#5fc491}}
*{box-sizing:border-box}
body{margin:0;background:var(--paper);color:var(--ink);font:16px/1.5 system-ui,"DejaVu Sans",sans-serif}
main{max-width:70rem;margin:0 auto;padding:1rem}
h1{font-size:1.5rem;margin:.5rem 0}h2{font-size:1.15rem;margin:2rem 0 .5rem}
p{margin:.4rem 0}.soft{color:var(--soft)}
.tag{display:inline-block;padding:.05rem .5rem;border-radius:.3rem;font-weight:600;white-space:nowrap}
.pass{color:var(--good);background:var(--goodbg)}.fail{color:var(--bad);background:var(--badbg)}
.warn{color:var(--warn);background:var(--warnbg)}.info{color:var(--soft);background:var(--card)}
section{margin:0}figure{margin:0}
svg{display:block;width:100%;height:auto;max-height:34rem}
svg text{fill:var(--ink);font:13px system-ui,"DejaVu Sans",sans-serif}
svg .soft{fill:var(--soft)}svg .name{font-weight:600;font-size:15px}
svg .box{fill:var(--card);stroke:var(--line);stroke-width:1.5}
svg .boxbad{fill:var(--badbg);stroke:var(--bad);stroke-width:2.5}
svg .cable{stroke:var(--cable);stroke-width:3.5;fill:none}
svg .broken{stroke:var(--bad);stroke-width:3.5;stroke-dasharray:7 6;fill:none}
svg .label{paint-order:stroke;stroke:var(--paper);stroke-width:5px;stroke-linejoin:round}
svg .labelbad{fill:var(--bad);font-weight:600}
.scroll{overflow-x:auto}
table{border-collapse:collapse;width:100%;font-size:.92rem}
th,td{text-align:left;padding:.3rem .6rem;border-bottom:1px solid var(--line);vertical-align:top}
th{color:var(--soft);font-weight:600}td.num{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap}
.bar{display:flex;height:1.5rem;border:1px solid var(--line);border-radius:.25rem;overflow:hidden;
background:var(--spare)}
.bar div{height:100%}.w{background:var(--weights)}.k{background:var(--kv)}.o{background:var(--over)}
.legend span{display:inline-block;margin-right:1rem;white-space:nowrap}
.legend i{display:inline-block;width:.9rem;height:.9rem;border-radius:.2rem;margin-right:.35rem;vertical-align:-.1rem;
border:1px solid var(--line)}
.spare{background:var(--spare)}
.budget{margin:.7rem 0}.budget p{font-size:.92rem}
.finding{border-left:4px solid var(--line);padding:.2rem 0 .2rem .8rem;margin:.8rem 0}
.finding.error{border-color:var(--bad)}.finding.warning{border-color:var(--warn)}
code{font:.9em ui-monospace,"DejaVu Sans Mono",monospace;overflow-wrap:anywhere}
svg.spark{display:inline-block;width:7rem;height:1.6rem;vertical-align:middle}
svg.spark polyline{fill:none;stroke:var(--weights);stroke-width:2}svg.spark circle{fill:var(--weights)}
@media (max-width:40rem){main{padding:.6rem}figure{overflow-x:auto}figure svg{width:52rem;max-height:none}
th,td{padding:.25rem .35rem}
table.stack thead{display:none}table.stack tr{display:block;border-bottom:2px solid var(--line);padding:.4rem 0}
table.stack td{display:block;border:0;padding:.05rem 0;text-align:left}
table.stack td[data-name]:not(:empty)::before{content:attr(data-name) ": ";color:var(--soft)}}
@media print{:root{--paper:#fff;--card:#f5f6f8;--ink:#000;--soft:#333;--line:#999;--good:#1a6b34;--goodbg:#fff;
--bad:#a3141e;--badbg:#fff;--warn:#7a4b00;--warnbg:#fff;--weights:#2f6fb3;--kv:#2b8a5a;--over:#8a6d1f;--spare:#e3e6ea;
--cable:#2b8a5a}
main{max-width:none;padding:0}body{font-size:11pt}section,tr,.budget,.finding{break-inside:avoid}
*{print-color-adjust:exact;-webkit-print-color-adjust:exact}}
"""


def esc(value: Any) -> str:
    return html.escape(str(value), quote=True)


def tag(kind: str, text: str) -> str:
    return f'<span class="tag {kind}">{esc(text)}</span>'


# -- topology -------------------------------------------------------------------------------------------------------

_WIDTH, _HEIGHT = 900.0, 470.0
_BOX_W, _BOX_H = 190.0, 84.0


def places(topology: str, hosts: Sequence[str]) -> dict[str, tuple[float, float]]:
    """Where each host's box has its middle: a row for a switch or LAN, else a regular polygon."""
    count = len(hosts)
    if topology in ("switch", "lan", ""):
        step = _WIDTH / count
        return {host: (step * (index + 0.5), _HEIGHT - 90) for index, host in enumerate(hosts)}
    if count == 2:
        return {hosts[0]: (150.0, _HEIGHT / 2), hosts[1]: (_WIDTH - 150, _HEIGHT / 2)}
    found = {}
    for index, host in enumerate(hosts):
        angle = -math.pi / 2 + 2 * math.pi * index / count
        found[host] = (_WIDTH / 2 + 310 * math.cos(angle), _HEIGHT / 2 + 30 + 175 * math.sin(angle))
    return found


def link_words(link: Mapping[str, Any]) -> tuple[str, bool]:
    """What stands beside a cable's half, and whether something is wrong with it."""
    wrong = bool(link["problems"]) or link["state"] != "up"
    rate = "no rate" if link["rate_gbits"] is None else f"{link['rate_gbits']:g}G"
    words = f"{rate} MTU {link['mtu'] or '-'}" if link["state"] == "up" else link["state"]
    if link["state"] == "up" and link["planned_mtu"] not in (None, link["mtu"]):
        words += f", not {link['planned_mtu']}"
    elif wrong and link["state"] == "up":
        words += ", wrong"
    return words, wrong


def topology_svg(status: Mapping[str, Any]) -> str:
    """Hosts, and a line for each half of each cable, as the live links are."""
    hosts = status["cluster"]["hosts"]
    topology = status["cluster"]["topology"]
    at = places(topology, hosts)
    scale = min(1.0, 4.2 / max(4.2, len(hosts))) if topology in ("switch", "lan", "") else 1.0
    box = _BOX_W * scale
    lines: list[str] = []
    labels: list[str] = []
    shared = topology in ("switch", "lan", "")
    middle = (_WIDTH / 2, 62.0)
    drawn: set[frozenset[tuple[str, str]]] = set()
    for host in hosts:
        found = status["hosts"][host]
        links = found["links"]
        for index, link in enumerate(links):
            words, wrong = link_words(link)
            if shared:
                spread = 26.0 * (index - (len(links) - 1) / 2)
                x, y = at[host]
                target = middle[0] + (x - middle[0]) * 0.35 + spread
                line = (x + spread * 1.6, y - _BOX_H / 2, target, middle[1] + 26)
            else:
                peer = link["peer"]
                key = frozenset(((host, link["netdev"]), (peer, link["peer_netdev"])))
                if key in drawn or peer not in at:
                    continue
                drawn.add(key)
                other = next(
                    (item for item in status["hosts"][peer]["links"] if item["netdev"] == link["peer_netdev"]), None
                )
                if other is not None:
                    other_words, other_wrong = link_words(other)
                    if other_wrong and not wrong:
                        words, wrong = other_words, True
                line = _between(at[host], at[peer], link["half"])
            kind = "broken" if wrong else "cable"
            title = f"{host} {link['netdev']}, half {link['half']}, {link['address']}: {words}"
            lines.append(
                f'<line class="{kind}" x1="{line[0]:.0f}" y1="{line[1]:.0f}" x2="{line[2]:.0f}" y2="{line[3]:.0f}">'
                f"<title>{esc(title)}</title></line>"
            )
            if shared:
                x = at[host][0]
                # a LAN port has no halves
                beside = words if topology == "lan" else f"half {link['half']}: {words}"
                labels.append(_label(x, at[host][1] + _BOX_H / 2 + 18 + 17 * index, beside, wrong))
            else:
                labels.append(
                    _cable_label(line, _between(at[host], at[peer], 1 - link["half"]), link["half"], words, wrong)
                )
    boxes = []
    for host in hosts:
        found = status["hosts"][host]
        x, y = at[host]
        bad = not found["reachable"]
        kind = "boxbad" if bad else "box"
        sub = "no answer" if bad else f"{found['kind']}{', head' if found['role'] == 'head' else ''}"
        boxes.append(
            f'<rect class="{kind}" x="{x - box / 2:.0f}" y="{y - _BOX_H / 2:.0f}" width="{box:.0f}" '
            f'height="{_BOX_H:.0f}" rx="9"/>'
            f'<text class="name" x="{x:.0f}" y="{y - 14:.0f}" text-anchor="middle">{esc(host)}</text>'
            f'<text class="{"labelbad" if bad else "soft"}" x="{x:.0f}" y="{y + 6:.0f}" text-anchor="middle">'
            f"{esc(sub)}</text>"
            f'<text class="soft" x="{x:.0f}" y="{y + 25:.0f}" text-anchor="middle">'
            f"{esc(found.get('control_address') or found['management'])}</text>"
        )
    if shared and topology:
        name = {"switch": "200 GbE switch", "lan": "LAN (TCP)"}[topology]
        boxes.append(
            f'<rect class="box" x="{middle[0] - 270:.0f}" y="{middle[1] - 26:.0f}" width="540" height="52" rx="9"/>'
            f'<text class="name" x="{middle[0]:.0f}" y="{middle[1] + 5:.0f}" text-anchor="middle">{name}</text>'
        )
    told = f"{len(hosts)} hosts on a {topology or 'fabric without a plan'}"
    return (
        f'<svg viewBox="0 0 {_WIDTH:.0f} {_HEIGHT:.0f}" role="img" aria-label="{esc(told)}">'
        + "".join(lines)
        + "".join(boxes)
        + "".join(labels)
        + "</svg>"
    )


def _between(a: tuple[float, float], b: tuple[float, float], half: int) -> tuple[float, float, float, float]:
    """Two parallel lines, one for each half of the cable."""
    dx, dy = b[0] - a[0], b[1] - a[1]
    length = math.hypot(dx, dy) or 1.0
    # the same side whichever end is drawn first
    sign = 1 if (a <= b) else -1
    offset = (-10 if half == 0 else 10) * sign
    ox, oy = -dy / length * offset, dx / length * offset
    return a[0] + ox, a[1] + oy, b[0] + ox, b[1] + oy


def _cable_label(line: Sequence[float], other: Sequence[float], half: int, words: str, wrong: bool) -> str:
    """Beside the cable, each half on its own side of it, so that the words keep apart."""
    x, y = (line[0] + line[2]) / 2, (line[1] + line[3]) / 2
    text = f"half {half}: {words}"
    if abs(line[3] - line[1]) <= 40:
        above = y < (other[1] + other[3]) / 2
        return _label(x, y - 11 if above else y + 21, text, wrong)
    # two thirds down, where cables that meet at the top have room between them
    part = 0.66 if line[3] > line[1] else 0.34
    left = x < (other[0] + other[2]) / 2
    x, y = line[0] + (line[2] - line[0]) * part, line[1] + (line[3] - line[1]) * part
    return _label(x - 12 if left else x + 12, y, text, wrong, "end" if left else "start")


def _label(x: float, y: float, text: str, wrong: bool, anchor: str = "middle") -> str:
    kind = "label labelbad" if wrong else "label"
    return f'<text class="{kind}" x="{x:.0f}" y="{y:.0f}" text-anchor="{anchor}">{esc(text)}</text>'


# -- memory ---------------------------------------------------------------------------------------------------------


def budgets(status: Mapping[str, Any], memory: Mapping[str, Any] | None) -> list[dict[str, Any]]:
    """By rank: weights, cache, overhead and reserve in bytes; without a plan, used and available alone."""
    found = []
    if memory and (memory.get("ranks") or {}).get("memory_bytes"):
        ranks = memory["ranks"]
        for index, host in enumerate(ranks["host"]):
            total = ranks["memory_bytes"][index] or 0
            budget = ranks["budget_bytes"][index] or 0
            weights = ranks["weights_bytes_per_rank"][index]
            cache = ranks["kv_cache_bytes"][index] or 0
            live = (status["hosts"].get(host) or {}).get("memory") or {}
            found.append(
                {
                    "host": host,
                    "total": total,
                    "weights": weights,
                    "cache": cache,
                    "overhead": max(0, budget - weights - cache),
                    "reserve": max(0, total - max(budget, weights)),
                    "available": live.get("available"),
                }
            )
        return found
    for host, item in status["hosts"].items():
        memory_now = item.get("memory")
        if memory_now:
            used = memory_now["total"] - memory_now["available"]
            found.append(
                {"host": host, "total": memory_now["total"], "used": used, "available": memory_now["available"]}
            )
    return found


def memory_section(status: Mapping[str, Any], memory: Mapping[str, Any] | None, why: str) -> str:
    rows = budgets(status, memory)
    if not rows:
        return "<p>No host answered, so nothing is known of its memory.</p>"
    planned = "weights" in rows[0]
    parts = (
        (("weights", "w", "weights"), ("cache", "k", "KV cache"), ("overhead", "o", "buffers and graphs"))
        if planned
        else (("used", "w", "used now"),)
    )
    spare = "reserve for the system" if planned else "available now"
    legend = "".join(f'<span><i class="{kind}"></i>{name}</span>' for _key, kind, name in parts)
    out = [f'<p class="legend">{legend}<span><i class="spare"></i>{spare}</span></p>']
    if planned and memory:
        verdict = str(memory.get("verdict", ""))
        kind = {"fits": "pass", "tight": "warn"}.get(verdict, "fail")
        bound = memory.get("decode_tokens_per_second_bound")
        text = f"{memory.get('max_tokens') or 0:,} tokens of cache, {memory.get('max_model_len') or 0:,} a sequence"
        if bound:
            text += f"; memory bandwidth allows one stream {bound:g} tokens/s"
        out.append(f"<p>{tag(kind, verdict or 'unknown')} {esc(text)}</p>")
    elif why:
        out.append(f'<p class="soft">Without a plan of the model ({esc(why)}): what the hosts use now.</p>')
    for row in rows:
        total = row["total"] or 1
        bars, words = [], []
        for key, kind, name in parts:
            share = 100 * row[key] / total
            bars.append(f'<div class="{kind}" style="width:{min(100.0, share):.2f}%"></div>')
            words.append(f"{name} {row[key] / GIB:.1f}")
        if planned:
            words.append(f"reserve {row['reserve'] / GIB:.1f}")
        if row.get("available") is not None:
            words.append(f"available now {row['available'] / GIB:.1f}")
        told = f"{row['host']}: {', '.join(words)} of {row['total'] / GIB:.1f} GiB"
        out.append(
            f'<div class="budget"><p><strong>{esc(row["host"])}</strong> '
            f"{esc(', '.join(words))} of {row['total'] / GIB:.1f} GiB</p>"
            f'<div class="bar" role="img" aria-label="{esc(told)}">{"".join(bars)}</div></div>'
        )
    return "".join(out)


# -- verify ---------------------------------------------------------------------------------------------------------


def spark_line(values: Sequence[float]) -> str:
    """A small curve of earlier values, oldest left; its text is beside it in the table."""
    if len(values) < 2:
        return ""
    low, high = min(values), max(values)
    span = (high - low) or 1.0
    points = [
        (4 + 104 * index / (len(values) - 1), 21 - 17 * (value - low) / span if high > low else 13.0)
        for index, value in enumerate(values)
    ]
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    told = f"{len(values)} runs, from {low:g} to {high:g}, last {values[-1]:g}"
    return (
        f'<svg class="spark" viewBox="0 0 112 26" role="img" aria-label="{esc(told)}"><polyline points="{path}"/>'
        f'<circle cx="{points[-1][0]:.1f}" cy="{points[-1][1]:.1f}" r="3"/></svg>'
    )


def history_of(runs: Sequence[Mapping[str, Any]], check: str, where: str) -> list[float]:
    found = []
    for run in runs:
        for entry in run["lines"]:
            value = entry.get("value")
            if (entry["check"], entry["where"]) == (check, where) and isinstance(value, (int, float)):
                found.append(float(value))
    return found


def verify_section(runs: Sequence[Mapping[str, Any]]) -> str:
    if not runs:
        return "<p>verify has not run yet: <code>ansible-playbook playbooks/verify.yml</code></p>"
    last = runs[-1]
    failed = sum(entry["verdict"] == "fail" for entry in last["lines"])
    head = tag("fail", f"{failed} below") if failed else tag("pass", "all lines hold")
    rows = []
    for entry in last["lines"]:
        kind = {"pass": ("pass", "ok"), "fail": ("fail", "FAIL")}.get(entry["verdict"], ("info", "info"))
        value = entry["value"]
        shown = "" if value is None else (f"{value:g}" if isinstance(value, (int, float)) else esc(value))
        sign = "≤ " if entry["check"] in ("latency", "TTFT") else "≥ "
        needed = "" if entry["threshold"] is None else f"{sign}{entry['threshold']:g}"
        note = esc(entry["note"]) + (f"<br><strong>{esc(entry['mend'])}</strong>" if entry["mend"] else "")
        cells = (
            ("", "", tag(*kind)),
            ("", "check", esc(entry["check"])),
            ("", "where", esc(entry["where"])),
            ("num", "measured", f"{shown} {esc(entry['unit'])}".strip()),
            ("num", "needed", needed),
            ("", "runs", spark_line(history_of(runs, entry["check"], entry["where"]))),
            ("", "note", note),
        )
        rows.append(
            "<tr>"
            + "".join(f'<td class="{kind}" data-name="{name}">{text}</td>' for kind, name, text in cells)
            + "</tr>"
        )
    titles = ("", "check", "where", "measured", "needed", f"last {len(runs)} runs", "note")
    return (
        f"<p>{head} {esc(last['taken'])}, {len(runs)} kept</p>"
        '<div class="scroll"><table class="stack"><thead><tr>'
        + "".join(f"<th>{esc(name)}</th>" for name in titles)
        + f"</tr></thead><tbody>{''.join(rows)}</tbody></table></div>"
    )


# -- doctor, hosts, versions ----------------------------------------------------------------------------------------


def doctor_section(doctor: Mapping[str, Any] | None, status: Mapping[str, Any]) -> str:
    out = []
    if status["problems"]:
        items = "".join(
            f"<li><strong>{esc(item['host'])}</strong>: {esc(item['text'])}<br>"
            f'<span class="soft">{esc(item["mend"])}</span></li>'
            for item in status["problems"]
        )
        out.append(f"<p>{tag('fail', str(len(status['problems'])))} seen by this look</p><ul>{items}</ul>")
    if doctor is None:
        out.append("<p>The doctor has not been asked yet: <code>ansible-playbook playbooks/doctor.yml</code></p>")
        return "".join(out)
    findings = doctor.get("findings") or []
    if not findings:
        out.append(f"<p>{tag('pass', 'nothing found')} by the doctor, {esc(doctor.get('time', ''))}</p>")
        return "".join(out)
    out.append(f"<p>{tag('fail', str(len(findings)))} found by the doctor, {esc(doctor.get('time', ''))}</p>")
    for item in findings:
        severity = "error" if item.get("severity") == "error" else "warning"
        hosts = item.get("hosts") or ([item["host"]] if item.get("host") else [])
        parts = [f'<div class="finding {severity}"><p>{tag("fail" if severity == "error" else "warn", severity)} ']
        parts.append(f"<strong>{esc(item.get('title') or item.get('symptom') or item.get('rule', ''))}</strong></p>")
        if hosts:
            parts.append(f"<p>{esc(', '.join(str(host) for host in hosts))}</p>")
        evidence = item.get("evidence") or []
        for line in [evidence] if isinstance(evidence, str) else list(evidence)[:5]:
            parts.append(f"<p><code>{esc(_words(line))}</code></p>")
        for key in ("cause", "mend", "source"):
            if item.get(key):
                parts.append(f'<p><span class="soft">{key}:</span> {esc(_words(item[key]))}</p>')
        parts.append("</div>")
        out.append("".join(parts))
    return "".join(out)


def _words(value: Any) -> str:
    if isinstance(value, Mapping) and set(value) <= {"title", "url"}:
        return " ".join(str(value[key]) for key in ("title", "url") if value.get(key))
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {item}" for key, item in value.items())
    if isinstance(value, (list, tuple)):
        return "; ".join(_words(item) for item in value)
    return str(value)


def hosts_section(status: Mapping[str, Any]) -> str:
    rows = []
    for host, found in status["hosts"].items():
        if not found["reachable"]:
            rows.append(
                f'<tr><td>{esc(host)}</td><td colspan="6">{tag("fail", "no answer")} {esc(found["error"])}</td></tr>'
            )
            continue
        units = ", ".join(
            f"{name.removeprefix('sparkthor-')} {unit['active']}" for name, unit in found["units"].items()
        )
        cells = (
            ("host", esc(host)),
            ("kind", esc(f"{found['kind']}, {found['role']}")),
            ("up", esc(_status.duration(found["uptime_seconds"]))),
            ("memory free", f"{found['memory']['available'] / GIB:.1f} GiB"),
            ("disk free", f"{found['disk']['free'] / GIB:.0f} GiB"),
            ("load", f"{found['load'][0]:.1f}" if found["load"] else ""),
            ("units", esc(units or "none")),
        )
        rows.append("<tr>" + "".join(f'<td data-name="{name}">{text}</td>' for name, text in cells) + "</tr>")
    titles = ("host", "kind", "up", "memory free", "disk free", "load", "units")
    return (
        '<div class="scroll"><table class="stack"><thead><tr>'
        + "".join(f"<th>{name}</th>" for name in titles)
        + f"</tr></thead><tbody>{''.join(rows)}</tbody></table></div>"
    )


def versions_section(status: Mapping[str, Any]) -> str:
    common = _status.common_versions(status)
    out = []
    if common:
        cells = "".join(f"<tr><td>{esc(name)}</td><td>{esc(version)}</td></tr>" for name, version in common.items())
        out.append(
            f"<table><thead><tr><th>same on all hosts</th><th>version</th></tr></thead><tbody>{cells}</tbody></table>"
        )
    for name, versions in status["differences"].items():
        told = ", ".join(f"{host} {version or '-'}" for host, version in versions.items())
        out.append(f"<p>{tag('fail', name + ' differs')} {esc(told)}</p>")
    return "".join(out) or "<p>No host answered.</p>"


def page(
    status: Mapping[str, Any],
    runs: Sequence[Mapping[str, Any]],
    doctor: Mapping[str, Any] | None,
    memory: Mapping[str, Any] | None,
    why_no_memory: str = "",
) -> str:
    """The whole page."""
    cluster, serving, ray = status["cluster"], status["serving"], status["ray"]
    state = serving["state"]
    kind = "pass" if state == "serving" else ("info" if state == "absent" else "fail")
    first = f"{cluster['topology'] or 'no plan'}, {len(cluster['hosts'])} hosts, head {cluster['head']}"
    model = ""
    if serving.get("model"):
        model = (
            f"<p>Model <strong>{esc(serving['model'])}</strong>, tensor parallel {serving['tensor_parallel']}, "
            f"pipeline parallel {serving['pipeline_parallel']}, <code>{esc(serving.get('endpoint', ''))}</code></p>"
        )
    sections = (
        ("Topology", f"<figure>{topology_svg(status)}</figure>"),
        ("To mend", doctor_section(doctor, status)),
        ("Memory by host", memory_section(status, memory, why_no_memory)),
        ("Proof (verify)", verify_section(runs)),
        ("Hosts", hosts_section(status)),
        ("Versions", versions_section(status)),
    )
    body = "".join(f"<section><h2>{title}</h2>{content}</section>" for title, content in sections)
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        '<link rel="icon" href="data:,">'
        f"<title>Cluster of {esc(cluster['head'])}, {esc(status['taken'])}</title><style>{STYLE}</style></head>"
        f"<body><main><h1>{esc(first)}</h1>"
        f"<p>{tag(kind, state)} {esc(serving['line'] if state != serving['line'] else '')}</p>{model}"
        f'<p class="soft">Ray {esc(ray["state"])}: {esc(ray["line"])}. Looked at {esc(status["taken"])}.</p>'
        f"{body}</main></body></html>\n"
    )
