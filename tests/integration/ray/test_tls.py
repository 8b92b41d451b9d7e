# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""``ray_node_tls``: every gRPC port of Ray asks for the cluster's certificate, and a second run changes nothing."""

from __future__ import annotations

import json

import pytest

from tests.integration.ray.conftest import assert_members

SECRETS = "/etc/sparkthor/secrets"
#: What three clients of a port hear first: a member, one without a certificate, one without TLS.  Each opens an HTTP/2
#: connection with empty settings, which a gRPC server answers with its own (frame type 4, RFC 9113).
CLIENTS = f"""
import json, socket, ssl, sys
HELLO = b"PRI * HTTP/2.0\\r\\n\\r\\nSM\\r\\n\\r\\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])

def hears(address, port, wrap):
    with socket.create_connection((address, port), 60) as raw:
        raw.settimeout(60)
        try:
            with wrap(raw) as connection:
                connection.sendall(HELLO)
                return len(frame := connection.recv(9)) == 9 and frame[3] == 4
        except OSError:
            return False

def tls(*chain):
    context = ssl.create_default_context(cafile="{SECRETS}/ray_tls.crt")
    context.check_hostname = False
    context.set_alpn_protocols(["h2"])
    if chain:
        context.load_cert_chain(*chain)
    return context.wrap_socket

member = tls("{SECRETS}/ray_tls.crt", "{SECRETS}/ray_tls.key")
print(json.dumps([[hears(sys.argv[1], int(port), wrap) for wrap in (member, tls(), lambda raw: raw)]
                  for port in sys.argv[2:]]))
"""


@pytest.fixture
def encrypted(three):
    on = three.ray("--extra-vars", json.dumps({"ray_node_tls": True}))
    try:
        assert on.rc == 0, on.output
        yield three
    finally:
        off = three.ray()
        assert off.rc == 0, off.output
        assert_members(three, three.healthy())


def test_members_show_each_other_a_certificate(encrypted):
    site = encrypted
    assert_members(site, site.healthy())
    again = site.ray("--extra-vars", json.dumps({"ray_node_tls": True}))
    assert again.rc == 0, again.output
    assert set(again.changed.values()) == {0}, again.output
    for host in site.hosts:
        assert site.on(host, f"stat -c '%a %U' {SECRETS}/ray_tls.key").split() == ["600", "root"]
        key = site.on(host, f"sed -n 2p {SECRETS}/ray_tls.key").strip()
        assert key
        assert "no" in site.on(host, f"grep -rqsF '{key}' /proc/[0-9]*/environ /var/log && echo yes || echo no")
        listening = site.on(host, r"ss -Hltnp | grep -E '\"(gcs_server|raylet)\"' | awk '{print $4}'").split()
        ports = sorted({line.rpartition(":")[2] for line in listening})
        assert len(ports) >= (3 if host == site.head else 2), listening
        quoted = CLIENTS.replace("'", "'\\''")
        heard = json.loads(site.on(host, f"python3 -c '{quoted}' {site.control(host)} {' '.join(ports)}", timeout=600))
        assert heard == [[True, False, False]] * len(ports), dict(zip(ports, heard, strict=True))
