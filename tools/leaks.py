# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where a secret shows that should show nowhere: as it is, in base64 of something longer, and as in a URL."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping

from ansible_collections.sparkthor.cluster.plugins.module_utils._lib.mask import forms
from sparklab import Lab

#: where on a host; what is searched for comes in by standard input, so that the search is not what is found
_SEARCH = r"""
s=$(cat)
show() { grep -aFq -f <(printf '%s\n' "$s") && echo "$1"; }
for p in /proc/[0-9]*; do for f in cmdline environ; do
  tr '\0' '\n' < $p/$f 2>/dev/null | show $p/$f
done; done
journalctl --no-pager -a -o verbose | show journal
systemctl show 'sparkthor-*' --no-pager | show systemctl-show
find /var/log /var/lib/sparkthor /var/lib/sparkthor-* /tmp /var/tmp /root /home -type f -size -50M \
  -not -path '*/journal/*' -print0 2>/dev/null | xargs -0r cat 2>/dev/null | show logs
find /etc /run -type f -size -50M -not -path '/etc/sparkthor/secrets/*' -not -path '/etc/sparkthor/front*' \
  -not -path '/run/credentials/*' -not -path '/run/log/*' -print0 2>/dev/null | xargs -0r cat 2>/dev/null | show files
ps axeww -o args | show ps
true
"""


def places(lab: Lab, host: str, secret: str) -> list[str]:
    """Where on a host a secret shows: processes, journal, units, logs, files that are not secret."""
    done = subprocess.run(
        lab.enter_command(host, ["bash", "-c", _SEARCH]),
        input="\n".join(forms([secret])) + "\n",
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
    )
    return done.stdout.split()


def shown(text: str, secrets: Mapping[str, str]) -> list[str]:
    """Names of the secrets that a text shows in any form."""
    return [name for name, secret in secrets.items() if any(form in text for form in forms([secret]))]
