# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""One thing that is wrong, in the form that every check of this collection reports it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

ERROR, WARNING, UNKNOWN = "error", "warning", "unknown"


@dataclass(frozen=True)
class Finding:
    """What is wrong, where, and what to do about it."""

    #: short name of the kind of finding, by which a user accepts it and tests find it: ``carrier``, ``removed``
    id: str
    #: what is wrong, as the rest of a sentence that begins with :attr:`host`, or with :attr:`where` and its value
    what: str
    #: what to do about it
    fix: str
    #: the host that has it, or several with commas between them; empty for the whole cluster or the inventory
    host: str = ""
    #: the variable, option, NIC, file or unit
    where: str = ""
    #: what was found there; None where :attr:`what` says it
    value: Any = None
    #: why it is so, or why it hurts, where :attr:`what` does not say it
    cause: str = ""
    #: what says so: documentation, a log, a measurement
    source: str = ""
    #: ``error`` stops a run; ``warning`` and ``unknown`` (could not be found out) are reported
    severity: str = ERROR

    def to_dict(self) -> dict[str, Any]:
        """All fields by name, as a module returns them."""
        return asdict(self)

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> Finding:
        """What :meth:`to_dict` gave.  Raises ``TypeError`` for other fields."""
        return cls(**fields)

    def __str__(self) -> str:
        """``host a: where: 'value': what; fix [source]``; a place alone that ``what`` names is not said twice."""
        place = [f"host{'s' if ', ' in self.host else ''} {self.host}"] if self.host else []
        if self.where and (self.value is not None or self.where not in self.what):
            place.append(self.where)
        if self.value is not None:
            place.append(repr(self.value))
        return ": ".join([*place, self.what]) + f"; {self.fix}" + (f" [{self.source}]" if self.source else "")


def errors_and_others(findings: Iterable[Finding]) -> tuple[list[str], list[str]]:
    """Messages that stop a run, and those that are only reported."""
    errors: list[str] = []
    others: list[str] = []
    for finding in findings:
        (errors if finding.severity == ERROR else others).append(str(finding))
    return errors, others


def nothing_changed(findings: Iterable[object]) -> str:
    """The message of a run that stops before it has changed anything: how many, and one a line."""
    lines = [f"  - {finding}" for finding in findings]
    count = "one problem" if len(lines) == 1 else f"{len(lines)} problems"
    return "\n".join([f"Nothing was changed: {count} to fix first.", *lines])
