# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

from ansible_collections.sparkthor.cluster.plugins.module_utils._onhost import rank_link, rank_state, serving
from ansible_collections.sparkthor.cluster.plugins.module_utils._onhost.places import OWN, Places


def every(places: Places) -> list[str]:
    found = [getattr(places, name) for name, value in vars(Places).items() if isinstance(value, property)]
    return [path for one in found for path in ([one] if isinstance(one, str) else one)]


def test_the_hosts_own_group_is_where_programs_look_without_being_told() -> None:
    assert (OWN.config, OWN.state, OWN.started_with) == (serving.CONFIG, serving.STATE, serving.STARTED_WITH)
    assert (OWN.starts, OWN.draining, OWN.degraded) == (serving.STARTS, serving.DRAINING, serving.DEGRADED)
    assert OWN.maintenance == serving.MAINTENANCE
    assert (OWN.group, OWN.group_state) == (rank_link.CONFIG, rank_state.STATE)
    assert (OWN.unit, OWN.watchdog) == ("sparkthor-vllm.service", "sparkthor-watchdog.service")


def test_groups_on_one_host_have_nothing_in_common() -> None:
    groups = [OWN, Places("embed"), Places("rerank")]
    paths = [path for places in groups for path in every(places)]
    assert len(paths) == len(set(paths))
    embed = Places("embed")
    assert embed.config == "/etc/sparkthor/beside/embed/serving.json"
    assert embed.socket == "/run/sparkthor/beside/embed/vllm/vllm.sock"
    assert embed.maintenance[0] == "/var/lib/sparkthor/beside/embed/maintenance"
    assert (embed.unit, embed.watchdog) == ("sparkthor-vllm-embed.service", "sparkthor-watchdog-embed.service")
