# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Replace what tells one machine or person from another, in text that its owner shows to strangers.

The same thing becomes the same replacement, by a key that nobody keeps: who reads the text can still tell that two
places name one thing.  Makers' parts of hardware addresses, private addresses and names of models stay.
"""

from __future__ import annotations

import hmac
import ipaddress
import re
from collections.abc import Sequence
from typing import Any

_MAC = re.compile(r"(?i)\b((?:[0-9a-f]{2}:){3})([0-9a-f]{2}:[0-9a-f]{2}:[0-9a-f]{2})\b(?!:)")
#: the middle of an IPv6 address or a GID that was made from a hardware address
_EUI64 = re.compile(r"(?i)([0-9a-f]{0,2}ff:fe)([0-9a-f]{2}:[0-9a-f]{1,4})\b")
_UUID = re.compile(r"(?i)\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b")
#: a machine-id, or a boot's as systemd writes it
_ID = re.compile(r"\b[0-9a-f]{32}\b")
_SERIAL = re.compile(
    r"(?i)(\b\w{0,60}serial(?:[ _-]?n(?:umber|o))?\w{0,60}\"?\s{0,60}[:=]\s{0,60}\"?)([^\s\"\[,}][^\"\n,}]*)"
)
_IPV4 = re.compile(r"(?<![\w.])(?:\d{1,3}\.){3}\d{1,3}(?![\w.]*\d)")
_IPV6 = re.compile(r"(?i)(?<![\w:.])(?:[0-9a-f]{1,4}:){3,7}(?::?[0-9a-f]{0,4})(?::[0-9a-f]{1,4}){0,7}(?![\w:])")
_HOME = re.compile(r"/home/([A-Za-z0-9._-]+)")
#: users that a distribution or vendor makes; they name nobody
_COMMON = ("nvidia", "ubuntu", "user", "sparkthor")


class Anonymous:
    """Replaces in texts, and in all texts of plain data."""

    def __init__(self, key: str, names: Sequence[str] = ()) -> None:
        self._key = key.encode()
        # longer ones first: one name may be a part of another
        kept = sorted({name for name in names if len(name) > 1 and name != "localhost"}, key=len, reverse=True)
        self._names = re.compile(rf"(?<![\w-])(?:{'|'.join(map(re.escape, kept))})(?![\w-])") if kept else None

    def _digits(self, text: str, count: int) -> str:
        return hmac.new(self._key, text.lower().encode(), "sha256").hexdigest()[:count]

    def _tail(self, text: str) -> str:
        """Six digits of a hardware address, the same however it is written."""
        return self._digits("".join(part.rjust(2, "0") for part in text.split(":")).replace(":", "").rjust(6, "0"), 6)

    def _mac(self, match: re.Match[str]) -> str:
        # multicast, broadcast and unset ones are nobody's
        if set(match[2]) <= set("0:") or set(match[2].lower()) <= set("f:"):
            return match[0]
        tail = self._tail(match[2])
        return f"{match[1]}{tail[:2]}:{tail[2:4]}:{tail[4:]}"

    def _eui64(self, match: re.Match[str]) -> str:
        one, _colon, two = match[2].partition(":")
        tail = self._tail(one + two.rjust(4, "0"))
        return f"{match[1]}{tail[:2]}:{tail[2:]}"

    def _uuid(self, match: re.Match[str]) -> str:
        digits = self._digits(match[0], 32)
        return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))

    def _ipv4(self, match: re.Match[str]) -> str:
        try:
            address = ipaddress.IPv4Address(match[0])
        except ValueError:
            return match[0]
        # kernel and firmware versions look like addresses too: what is changed must be one that is somebody's
        if not address.is_global or str(address) != match[0]:
            return match[0]
        return f"198.51.100.{1 + int(self._digits(match[0], 8), 16) % 254}"

    def _ipv6(self, match: re.Match[str]) -> str:
        try:
            address = ipaddress.IPv6Address(match[0])
        except ValueError:
            return match[0]
        return f"2001:db8::{self._digits(match[0], 4)}" if address.is_global else match[0]

    def _home(self, match: re.Match[str]) -> str:
        return match[0] if match[1] in _COMMON else "/home/user"

    def text(self, text: str) -> str:
        text = _SERIAL.sub(r"\1********", text)
        text = _UUID.sub(self._uuid, text)
        text = _ID.sub(lambda match: self._digits(match[0], 32), text)
        text = _IPV6.sub(self._ipv6, text)
        text = _MAC.sub(self._mac, text)
        text = _EUI64.sub(self._eui64, text)
        text = _IPV4.sub(self._ipv4, text)
        text = _HOME.sub(self._home, text)
        if self._names:
            text = self._names.sub(lambda match: f"host-{self._digits(match[0], 4)}", text)
        return text

    def data(self, value: Any) -> Any:
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, dict):
            return {self.text(key) if isinstance(key, str) else key: self.data(item) for key, item in value.items()}
        if isinstance(value, (list, tuple)):
            return [self.data(item) for item in value]
        return value
