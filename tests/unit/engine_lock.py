# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Small wheels that are all one content, and locks that name them by its hash."""

from __future__ import annotations

import hashlib
import io
import zipfile
from pathlib import Path


def _wheel() -> bytes:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        # with a fixed time: the same wheel made a moment later is the same wheel
        archive.writestr(zipfile.ZipInfo("x"), "1234")
    return content.getvalue()


WHEEL = _wheel()
DIGEST = hashlib.sha256(WHEEL).hexdigest()


def locked(*pins: str) -> str:
    """The text of a lock of pins such as ``ray==2.60.0``."""
    return "".join(f"{pin} --hash=sha256:{DIGEST}\n" for pin in pins)


def write_wheels(folder: Path, *names: str) -> None:
    """Wheels for pins (``ray==2.60.0``: a pure one) or whole file names."""
    for name in names:
        file = name if name.endswith(".whl") else f"{name.replace('==', '-')}-py3-none-any.whl"
        (folder / file).write_bytes(WHEEL)
