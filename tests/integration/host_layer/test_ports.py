# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a stranger on the management network and a peer on the fabric can reach of a host.

Something listens on the ports of Ray, vLLM, the API and on arbitrary ones, over IPv4 and IPv6, TCP and UDP, so that a
closed port means that the firewall closed it.
"""

from __future__ import annotations

import json
import time
from concurrent.futures import ProcessPoolExecutor

import pytest

from tests.integration.host_layer.conftest import addresses, ways
from tests.integration.scan import KNOWN_UDP, tcp_ports, udp_ports

#: what the firewall drops on the fabric's own ports
MDNS = 5353
#: Ray's, the dashboard's, workers', vLLM's rendezvous, the API, and ports that nobody chose
TCP = (6379, 6380, 6381, 6382, 6383, 6384, 6385, 6386, 8000, 8265, 20000, 20999, 29501, 35711, 65535)

LISTENER = r"""
import select, socket, sys
tcp, udp = (tuple(int(port) for port in word.split(",")) for word in sys.argv[1:3])
sockets, bound = {}, {"tcp": [], "udp": []}
for kind, name, ports in ((socket.SOCK_STREAM, "tcp", tcp), (socket.SOCK_DGRAM, "udp", udp)):
    for port in ports:
        one = socket.socket(socket.AF_INET6, kind)
        one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        one.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        try:
            one.bind(("::", port))
        except OSError:
            continue
        if name == "tcp":
            one.listen(64)
        sockets[one] = name
        bound[name].append(port)
import json
with open("/run/test-listener.json", "w") as file:
    json.dump(bound, file)
while True:
    for one in select.select(list(sockets), [], [])[0]:
        if sockets[one] == "tcp":
            one.accept()[0].close()
        else:
            one.sendto(b"here", one.recvfrom(2048)[1])
"""

ASK = r"""
import json, select, socket, sys, time
address, tcp, udp = sys.argv[1], json.loads(sys.argv[2]), json.loads(sys.argv[3])
found = {"tcp": [], "udp": []}
for port in tcp:
    try:
        socket.create_connection((address, port), timeout=2).close()
        found["tcp"].append(port)
    except OSError:
        pass
asking = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
for port in udp:
    asking.sendto(b"?", (address, port))
end = time.monotonic() + 3
while len(found["udp"]) < len(udp) and (left := end - time.monotonic()) > 0:
    if select.select([asking], [], [], left)[0]:
        found["udp"].append(asking.recvfrom(100)[1][1])
print(json.dumps(found))
"""


def words(ports) -> str:
    return ",".join(str(port) for port in ports)


@pytest.fixture(scope="module")
def listeners(cluster):
    """By host, the ports on which something listens."""
    for host in cluster.hosts:
        cluster.lab.exec(host, ["tee", "/run/test-listener.py"], stdin=LISTENER)
        cluster.run(
            host,
            "rm -f /run/test-listener.json; systemd-run --quiet --collect --unit=test-listener"
            f" /usr/bin/python3 /run/test-listener.py {words(TCP)} {words(KNOWN_UDP)}",
        )
    ready = "for _ in $(seq 100); do test -s /run/test-listener.json && break; sleep 0.1; done"
    yield {host: json.loads(cluster.run(host, f"{ready}; cat /run/test-listener.json")) for host in cluster.hosts}
    for host in cluster.hosts:
        cluster.run(host, "systemctl stop test-listener; rm -f /run/test-listener.py /run/test-listener.json")


def link_local(cluster, host: str) -> str:
    """The host's own IPv6 address on the management network, as seen from the controller."""
    nic = cluster.lab.plan.host(host).management
    (link,) = json.loads(cluster.run(host, f"ip -json -6 address show dev {nic} scope link"))
    return f"{link['addr_info'][0]['local']}%{cluster.lab.network.uplink}"


def test_a_stranger_finds_ssh_and_on_the_head_the_api(cluster, listeners):
    targets = {
        (host, family): address
        for host in cluster.hosts
        for family, address in (("IPv4", cluster.addresses[host]), ("IPv6", link_local(cluster, host)))
    }
    begun = time.monotonic()
    with ProcessPoolExecutor(max_workers=2) as pool:
        tcp = dict(zip(targets, pool.map(tcp_ports, targets.values()), strict=True))
        udp = dict(zip(targets, pool.map(udp_ports, targets.values()), strict=True))
    for host in cluster.hosts:
        assert set(TCP) <= set(listeners[host]["tcp"]), f"{host}: a port is taken, so its closure would prove nothing"
    allowed = {key: [22, 8000] if key[0] == cluster.head else [22] for key in targets}
    assert tcp == allowed
    assert udp == {key: [] for key in targets}
    print(f"\n{len(targets)} addresses, 65,535 TCP and {len(KNOWN_UDP)} UDP ports: {time.monotonic() - begun:.0f} s")


def test_a_peer_reaches_every_port(cluster, listeners):
    for way in {(way.host, way.peer): way for way in ways(cluster.lab.plan)}.values():
        address = addresses(cluster, way.peer)[way.peer_netdev][0].partition("/")[0]
        there = listeners[way.peer]
        done = cluster.lab.exec(
            way.host,
            ["python3", "-", address, json.dumps(there["tcp"]), json.dumps(there["udp"])],
            stdin=ASK,
        )
        found = json.loads(done.stdout)
        assert sorted(found["tcp"]) == sorted(there["tcp"]), f"{way.host} to {way.peer} {address}"
        # nobody is discovered by the fabric's own ports
        fabric = way.peer_netdev != cluster.lab.plan.host(way.peer).management
        heard = [port for port in there["udp"] if port != MDNS or not fabric]
        assert sorted(found["udp"]) == sorted(heard), f"{way.host} to {way.peer} {address}"
