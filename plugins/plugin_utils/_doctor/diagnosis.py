# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The doctor's engine: rules are data; it searches logs for their patterns, runs their checks and merges the findings.

Pure, on the controller.  A rule (``plugins/plugin_utils/_doctor/rules/*.yml``) says symptom, cause, fix and source; it
is seen by a check of :mod:`checks` over the hosts' evidence, by lines of a log, or by either.  What one fault
brings along is folded under it: a host without power is one finding, not twenty.
"""

from __future__ import annotations

import dataclasses
import re
import typing as t
from collections.abc import Callable, Iterable, Mapping, Sequence

from ansible_collections.sparkthor.cluster.plugins.module_utils._lib.finding import Finding
from ansible_collections.sparkthor.cluster.plugins.module_utils._lib.mask import mask
from ansible_collections.sparkthor.cluster.plugins.module_utils._lib.printable import printable
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan import fabric_speed

ERROR: t.Final = "error"
WARNING: t.Final = "warning"
SEVERITIES: t.Final = (ERROR, WARNING)
#: version of the JSON that other playbooks read
SCHEMA: t.Final = 2
#: what an expression sees of a line: so much before and after the text that was searched for
BEFORE: t.Final = 400
AFTER: t.Final = 800
#: lines quoted in one finding
QUOTED: t.Final = 3
QUOTE_LENGTH: t.Final = 400

_RULE_KEYS = frozenset(
    (
        *("id", "area", "severity", "title", "symptom", "check", "log", "cause", "fix", "source", "explains"),
        *("last_resort", "needs_plan", "profile", "full_speed", "kernel", "known_by", "unknown", "unless_serving"),
    )
)
_LOG_KEYS = frozenset(("has", "re", "not", "cleared_by", "between", "unless_file", "with_file", "least"))
_ID = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*")


class RuleError(ValueError):
    """A rule that cannot be used; the message names file, rule and field."""


@dataclasses.dataclass(frozen=True)
class Pattern:
    """A line that shows a rule's trouble.

    ``has`` is text that must be in the line as it stands (searched for first, because that is fast), ``re`` an
    expression, ``not_`` one that must not match.  ``between`` bounds the expression's group ``value``.  ``cleared_by``
    names a line that shows, later in the same log, that the trouble is over.  ``unless_file`` is text that, anywhere
    in the same log, says that what the line shows is meant, ``with_file`` text without which the line means something
    else.  ``least`` is how many such lines make a finding, of one NIC or device where the expression has a group
    ``which``.
    """

    has: str
    regex: re.Pattern[str] | None = None
    not_: re.Pattern[str] | None = None
    between: tuple[float, float] | None = None
    cleared_by: tuple[str, ...] = ()
    unless_file: str = ""
    with_file: str = ""
    least: int = 1

    def matches(self, line: str) -> bool:
        if self.regex is not None:
            found = self.regex.search(line)
            if found is None:
                return False
            if self.between is not None:
                try:
                    value = float(found["value"])
                except (ValueError, IndexError):
                    return False
                if not self.between[0] <= value <= self.between[1]:
                    return False
        return self.not_ is None or self.not_.search(line) is None

    def which(self, line: str) -> str:
        """Of what the line is one, where the expression says that."""
        found = self.regex.search(line) if self.regex and "which" in self.regex.groupindex else None
        return found["which"] if found else ""


@dataclasses.dataclass(frozen=True)
class Rule:
    id: str
    area: str
    severity: str
    title: str
    symptom: str
    cause: str
    fix: str
    source: tuple[Mapping[str, str], ...]
    check: str = ""
    log: tuple[Pattern, ...] = ()
    explains: tuple[str, ...] = ()
    last_resort: bool = False
    needs_plan: bool = False
    profile: str = ""
    #: what it sees is sound on links that are planned for less than the full speed
    full_speed: bool = False
    #: its lines are in the kernel's log, which status reads as well
    kernel: bool = False
    #: without this in the same log its lines may be sound, and ``unknown`` says what is not known
    known_by: re.Pattern[str] | None = None
    unknown: str = ""
    #: over where the group of the host serves now: its lines are in a log that does not say so
    unless_serving: bool = False


#: lines by which an engine shows that it serves: whatever kept it from starting before is over
SERVES: t.Final = (
    *("Application startup complete", "Starting vLLM server on", "Uvicorn running on"),
    *("The server is fired up and ready to roll!", ": model loaded"),
)


def _pattern(data: t.Any, where: str) -> Pattern:
    if isinstance(data, str):
        data = {"has": data}
    if not isinstance(data, Mapping):
        raise RuleError(f"{where}: a pattern is a text or a mapping")
    unknown = set(data) - _LOG_KEYS
    if unknown:
        raise RuleError(f"{where}: unknown field {sorted(unknown)[0]}")
    has = data.get("has")
    if not isinstance(has, str) or len(has) < 3:
        raise RuleError(f"{where}: has: a text of three characters or more is needed, to find lines fast")
    try:
        regex = re.compile(data["re"]) if data.get("re") else None
        not_ = re.compile(data["not"]) if data.get("not") else None
    except (re.error, TypeError) as error:
        raise RuleError(f"{where}: {error}") from error
    between = None
    if data.get("between") is not None:
        if regex is None or "value" not in regex.groupindex:
            raise RuleError(f"{where}: between needs an expression with a group named value")
        low, high = data["between"]
        between = (float(low), float(high))
    cleared = data.get("cleared_by", [])
    cleared = [cleared] if isinstance(cleared, str) else list(cleared)
    words: list[str] = []
    for item in cleared:
        words += SERVES if item == "serves" else (item,)
    return Pattern(
        has=has,
        regex=regex,
        not_=not_,
        between=between,
        cleared_by=tuple(words),
        unless_file=str(data.get("unless_file", "")),
        with_file=str(data.get("with_file", "")),
        least=int(data.get("least", 1)),
    )


def _rule(data: t.Any, where: str, checks: Iterable[str]) -> Rule:
    if not isinstance(data, Mapping):
        raise RuleError(f"{where}: a rule is a mapping")
    where = f"{where}: {data.get('id', 'a rule without id')}"
    unknown = set(data) - _RULE_KEYS
    if unknown:
        raise RuleError(f"{where}: unknown field {sorted(unknown)[0]}")
    for key in ("id", "area", "title", "symptom", "cause", "fix"):
        if not isinstance(data.get(key), str) or not data[key].strip():
            raise RuleError(f"{where}: {key} is missing")
    if not _ID.fullmatch(data["id"]):
        raise RuleError(f"{where}: id is small letters, digits and hyphens")
    severity = data.get("severity", ERROR)
    if severity not in SEVERITIES:
        raise RuleError(f"{where}: severity {severity!r} is neither error nor warning")
    sources = data.get("source")
    if not isinstance(sources, Sequence) or isinstance(sources, str) or not sources:
        raise RuleError(f"{where}: source: a list of {{title, url}} is needed")
    for item in sources:
        if not isinstance(item, Mapping) or not item.get("title"):
            raise RuleError(f"{where}: source: each needs a title")
    check = data.get("check", "")
    if check and check not in set(checks):
        raise RuleError(f"{where}: check: there is none named {check}")
    if not check and not data.get("log"):
        raise RuleError(f"{where}: neither check nor log: nothing could ever find it")
    known_by = data.get("known_by")
    if bool(known_by) != bool(data.get("unknown")):
        raise RuleError(f"{where}: known_by and unknown go together")
    if data.get("profile", "") not in ("", "roce", "tcp"):
        raise RuleError(f"{where}: profile is roce or tcp")
    return Rule(
        id=data["id"],
        area=data["area"],
        severity=severity,
        title=data["title"].strip(),
        symptom=data["symptom"].strip(),
        cause=data["cause"].strip(),
        fix=data["fix"].strip(),
        source=tuple({"title": str(item["title"]), "url": str(item.get("url", ""))} for item in sources),
        check=check,
        log=tuple(_pattern(item, f"{where}: log {number}") for number, item in enumerate(data.get("log") or [], 1)),
        explains=tuple(data.get("explains") or ()),
        last_resort=bool(data.get("last_resort", False)),
        needs_plan=bool(data.get("needs_plan", False)),
        profile=str(data.get("profile", "")),
        full_speed=bool(data.get("full_speed", False)),
        kernel=bool(data.get("kernel", False)),
        known_by=re.compile(known_by) if known_by else None,
        unknown=" ".join(str(data.get("unknown", "")).split()),
        unless_serving=bool(data.get("unless_serving", False)),
    )


def read_rules(documents: Mapping[str, t.Any], checks: Iterable[str]) -> list[Rule]:
    """Rules out of parsed files (name → list of rules), in order; RuleError names the first that is wrong."""
    known = set(checks)
    rules: list[Rule] = []
    seen: dict[str, str] = {}
    for name in sorted(documents):
        if not isinstance(documents[name], list):
            raise RuleError(f"{name}: a list of rules is needed")
        for number, data in enumerate(documents[name], 1):
            rule = _rule(data, f"{name}: rule {number}", known)
            if rule.id in seen:
                raise RuleError(f"{name}: {rule.id} is already in {seen[rule.id]}")
            seen[rule.id] = name
            rules.append(rule)
    for rule in rules:
        for other in rule.explains:
            if other not in seen:
                raise RuleError(f"{seen[rule.id]}: {rule.id}: explains {other}, which is not a rule")
    return rules


# --- logs -------------------------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Log:
    """One log: of a host (empty where it is not known), named as a person would find it."""

    host: str
    name: str
    text: str


@dataclasses.dataclass
class Hit:
    """What a check or a log shows: where, and the evidence in words."""

    host: str = ""
    evidence: list[str] = dataclasses.field(default_factory=list)
    where: str = ""
    hosts: tuple[str, ...] = ()
    count: int = 1
    #: put in place of the rule's own, where the check knows better
    cause: str = ""
    fix: str = ""


def _line_at(text: str, position: int) -> tuple[int, int]:
    start = text.rfind("\n", 0, position) + 1
    end = text.find("\n", position)
    return start, len(text) if end < 0 else end


def scan_pattern(pattern: Pattern, text: str) -> tuple[int, list[str]]:
    """How many lines match, and the first and last few of them; nothing where a later line clears them."""
    if (pattern.unless_file and pattern.unless_file in text) or pattern.with_file not in text:
        return 0, []
    quoted: list[str] = []
    each: dict[str, int] = {}
    count, position, last = 0, 0, -1
    while (position := text.find(pattern.has, position)) >= 0:
        start, end = _line_at(text, position)
        line = text[max(start, position - BEFORE) : min(end, position + AFTER)]
        if pattern.matches(line):
            count += 1
            which = pattern.which(line)
            each[which] = each.get(which, 0) + 1
            last = end
            if len(quoted) < QUOTED:
                quoted.append(line)
        position = end
    if max(each.values(), default=0) < pattern.least:
        return 0, []
    if count and any(text.find(word, last) >= 0 for word in pattern.cleared_by):
        return 0, []
    return count, quoted


def tidy(line: str) -> str:
    """A log line fit for quoting: nothing that a terminal acts on, no secrets, not too long."""
    line = mask(printable(line).strip())
    return line if len(line) <= QUOTE_LENGTH else line[: QUOTE_LENGTH - 1] + "…"


def scan(rules: Iterable[Rule], logs: Sequence[Log], unknown: list[str] | None = None) -> dict[str, list[Hit]]:
    """Hits by rule; one for each log in which a rule's trouble shows.

    A rule whose lines may be sound, and of which the log does not say, goes to ``unknown`` in words.
    """
    hits: dict[str, list[Hit]] = {}
    for rule in rules:
        for log in logs:
            count, quoted = 0, []
            for pattern in rule.log:
                number, lines = scan_pattern(pattern, log.text)
                count += number
                quoted += lines
            if count and rule.known_by is not None and not rule.known_by.search(log.text):
                if unknown is not None:
                    unknown.append(f"rule {rule.id} is unknown for {log.name}: {tidy(quoted[-1])}: {rule.unknown}")
            elif count:
                hit = Hit(log.host, [tidy(line) for line in quoted[:QUOTED]], log.name, count=count)
                hits.setdefault(rule.id, []).append(hit)
    return hits


# --- findings ---------------------------------------------------------------------------------------------------------


@dataclasses.dataclass
class Diagnosis:
    """A finding that a rule explains, with its evidence and with what it brings along."""

    rule: Rule
    finding: Finding
    evidence: list[str]
    #: all hosts that it concerns, beside the finding's own
    hosts: tuple[str, ...]
    count: int
    consequences: list[Diagnosis] = dataclasses.field(default_factory=list)

    def touches(self) -> set[str]:
        """The hosts that it concerns; none where it is about the whole cluster."""
        return {host for host in (self.finding.host, *self.hosts) if host}

    def public(self) -> dict[str, t.Any]:
        """The documented form, which other programs read."""
        finding = self.finding
        return {
            "rule": finding.id,
            "area": self.rule.area,
            "severity": finding.severity,
            "title": finding.what,
            "symptom": self.rule.symptom,
            "host": finding.host,
            "hosts": sorted(self.touches()),
            "where": finding.where,
            "evidence": list(self.evidence),
            "count": self.count,
            "cause": finding.cause,
            "fix": finding.fix,
            "source": [dict(item) for item in self.rule.source],
            "consequences": [
                {
                    "rule": item.rule.id,
                    "title": item.rule.title,
                    "host": item.finding.host,
                    "evidence": list(item.evidence),
                }
                for item in self.consequences
            ],
        }


def _diagnosis(rule: Rule, hit: Hit) -> Diagnosis:
    source = "; ".join(f"{item['title']} {item['url']}".strip() for item in rule.source)
    finding = Finding(
        rule.id,
        rule.title,
        hit.fix or rule.fix,
        hit.host,
        hit.where,
        cause=hit.cause or rule.cause,
        source=source,
        severity=rule.severity,
    )
    return Diagnosis(rule, finding, list(hit.evidence), tuple(hit.hosts), hit.count)


def _merge(rule: Rule, hits: Iterable[Hit]) -> list[Diagnosis]:
    """One finding a rule and host: what several logs of a host, or a check and a log, say is said together."""
    merged: dict[tuple[str, frozenset[str]], Diagnosis] = {}
    for hit in hits:
        # two cables of one host lead to two peers: what happened to one peer must not explain the other away
        key = (hit.host, frozenset(hit.hosts) - {hit.host})
        told = merged.get(key)
        if told is None:
            merged[key] = _diagnosis(rule, hit)
            continue
        told.count += hit.count
        told.hosts = tuple(dict.fromkeys((*told.hosts, *hit.hosts)))
        told.evidence += [line for line in hit.evidence if line not in told.evidence]
        if hit.where and hit.where not in told.finding.where.split(", "):
            where = ", ".join(filter(None, (told.finding.where, hit.where)))
            told.finding = dataclasses.replace(told.finding, where=where)
    for told in merged.values():
        spare = len(told.evidence) - 2 * QUOTED
        if spare > 0:
            told.evidence = [*told.evidence[: 2 * QUOTED], f"… and {spare} more"]
    return list(merged.values())


def _related(one: Diagnosis, other: Diagnosis) -> bool:
    """Whether two findings can be about one thing: they share a host, or one of them is about the whole cluster."""
    mine, theirs = one.touches(), other.touches()
    return not mine or not theirs or bool(mine & theirs)


def _put_under(cause: Diagnosis, other: Diagnosis) -> None:
    """With what it brings along itself: the report has one step."""
    cause.consequences += [other, *other.consequences]
    other.consequences = []


def _better(finding: Diagnosis, strong: Sequence[Diagnosis], parts: Sequence[Sequence[str]]) -> Diagnosis | None:
    """The first of the ``strong`` findings that makes a last resort superfluous: one about any host that serves with
    its own, where there are several serving groups."""
    mine = finding.touches()
    near = mine.union(*(hosts for hosts in parts if mine & set(hosts)))
    return next((one for one in strong if not parts or not mine or not one.touches() or near & one.touches()), None)


def fold(findings: Sequence[Diagnosis], parts: Sequence[Sequence[str]] = ()) -> list[Diagnosis]:
    """Put what a finding explains under it, and drop last resorts where something better was found.

    ``parts`` are the hosts of each serving group, where there are several.
    """
    swallowed: dict[int, Diagnosis] = {}

    def ends_at(start: Diagnosis, end: Diagnosis) -> bool:
        explains: Diagnosis | None = start
        while explains is not None and explains is not end:
            explains = swallowed.get(id(explains))
        return explains is end

    for number, other in enumerate(findings):
        for place, explains in enumerate(findings):
            if explains is other or other.rule.id not in explains.rule.explains or not _related(explains, other):
                continue
            # of two that explain each other the earlier rule stands, and no ring of explanations swallows itself
            mutual = explains.rule.id in other.rule.explains and number < place
            if not mutual and not ends_at(explains, other):
                swallowed[id(other)] = explains
                break
    kept = [finding for finding in findings if id(finding) not in swallowed]
    strong = [finding for finding in kept if not finding.rule.last_resort and finding.rule.severity == ERROR]
    for other in findings:
        cause = swallowed.get(id(other))
        seen = {id(other)}
        while cause is not None and id(cause) in swallowed and id(cause) not in seen:
            seen.add(id(cause))
            cause = swallowed[id(cause)]
        if cause is not None:
            _put_under(cause, other)
    result = []
    for finding in kept:
        better = _better(finding, strong, parts) if finding.rule.last_resort else None
        if better is None:
            result.append(finding)
        else:
            _put_under(better, finding)
    return result


Check = Callable[[t.Any], Iterable[Hit]]


def _judge(check: Check, case: t.Any) -> tuple[list[Hit], list[str]]:
    """What a check finds, and on which hosts it failed and why.

    Evidence of a host that is broken, or lies, may have any shape. It must not hide what is found on the others.
    """
    try:
        return list(check(case)), []
    except Exception as error:
        told: Mapping[str, t.Any] = getattr(case, "evidence", {})
        amiss = {}
        for host in told:
            try:
                list(check(dataclasses.replace(case, evidence={host: told[host]})))
            except Exception as own:
                amiss[host] = own
        if not amiss or len(amiss) == len(told):
            return [], [f": {type(error).__name__}: {error}"]
    others = {host: seen for host, seen in told.items() if host not in amiss}
    shown, more = _judge(check, dataclasses.replace(case, evidence=others))
    return shown, [*(f" on {host}: {type(own).__name__}: {own}" for host, own in amiss.items()), *more]


def diagnose(
    rules: Sequence[Rule],
    checks: Mapping[str, Check],
    case: t.Any,
    logs: Sequence[Log],
    profile: str = "",
    planned: bool = True,
) -> tuple[list[Diagnosis], list[str]]:
    """``(findings, notes)``: errors first, then in the rules' order.  A check that fails is a note, never an end."""
    notes: list[str] = []
    fabric = getattr(case, "fabric", None) or {}
    slower = any(fabric_speed.of(own) < fabric_speed.FULL for own in fabric.values())
    usable = [
        rule
        for rule in rules
        if not (rule.profile and profile and rule.profile != profile) and not (rule.full_speed and slower)
    ]
    hits = scan(usable, logs, notes)
    serving = getattr(case, "serving", None) or set()
    for rule in usable:
        if rule.unless_serving:
            hits[rule.id] = [hit for hit in hits.get(rule.id, ()) if hit.host not in serving]
        if not rule.check or case is None or (rule.needs_plan and not planned):
            continue
        shown, amiss = _judge(checks[rule.check], case)
        notes += [f"rule {rule.id} could not be judged{why}" for why in amiss]
        hits[rule.id] = [*shown, *hits.get(rule.id, [])]
    findings = [finding for rule in usable for finding in _merge(rule, hits.get(rule.id, ()))]
    folded = fold(findings)
    folded.sort(key=lambda finding: SEVERITIES.index(finding.rule.severity))
    return folded, notes


# --- for people -------------------------------------------------------------------------------------------------------


def _indent(text: str, by: str) -> list[str]:
    return [f"{by}{line}" for line in text.splitlines()]


def render(findings: Sequence[Mapping[str, t.Any]], notes: Sequence[str], summary: Mapping[str, t.Any]) -> list[str]:
    """The report as lines of text, out of the public form of the findings."""
    lines: list[str] = []
    for number, finding in enumerate(findings, 1):
        place = ", ".join(finding["hosts"]) or finding["host"] or "the cluster"
        lines.append(f"{number}. {finding['severity'].upper()}  {finding['title']}  [{finding['rule']}] on {place}")
        for line in finding["evidence"]:
            lines += _indent(str(line), "     seen   ")
        if finding["count"] > len(finding["evidence"]):
            lines.append(f"     seen   {finding['count']} times in all")
        if finding["where"]:
            lines.append(f"     where  {finding['where']}")
        lines += _indent(finding["cause"], "     cause  ")
        lines += _indent(finding["fix"], "     fix   ")
        sources = "; ".join(f"{item['title']} {item['url']}".strip() for item in finding["source"])
        lines.append(f"     source {sources}")
        for item in finding["consequences"]:
            lines.append(f"     brings {item['title']}" + (f" on {item['host']}" if item["host"] else ""))
        lines.append("")
    lines += [f"note: {note}" for note in notes]
    many = f"{summary['errors']} errors, {summary['warnings']} warnings"
    lines.append(
        (many if findings else "nothing found")
        + f": {summary['rules']} rules, {summary['hosts']} hosts, {summary['lines']} log lines, {summary['seconds']} s"
    )
    return lines
