# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The key and the certificate by which Ray's nodes, or the heads of groups, know each other. On the controller only.

Both follow from a secret that all of them have. For Ray's nodes that is the cluster's token: whoever knows it could
join the cluster anyway. For heads it is one of their own, as workers know the token. Nothing but this certificate is
trusted with the key, so its dates mean nothing.
"""

from __future__ import annotations

import datetime
from collections.abc import Sequence

from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.addresses import address_of

try:
    import ipaddress

    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.kdf.hkdf import HKDF
except ImportError as error:  # asked for only by those who want TLS
    MISSING: ImportError | None = error
else:
    MISSING = None

#: of the curve P-256: private keys are the numbers below it
_ORDER = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551
_FROM, _UNTIL = datetime.datetime(2020, 1, 1), datetime.datetime(2120, 1, 1)


class TlsError(ValueError):
    """Why there can be no certificate."""


def key_and_certificate(secret: str, addresses: Sequence[str]) -> tuple[str, str]:
    """As PEM texts: the private key, and the certificate for all nodes' addresses that is its own authority.

    The same secret and addresses give the same texts. Raises TlsError.
    """
    if MISSING is not None:
        raise TlsError(
            "TLS between hosts (ray_node_tls, or serving_groups on lan and ring) needs the Python package cryptography "
            f"on the controller ({MISSING}); install requirements/controller.txt"
        )
    seed = HKDF(hashes.SHA256(), 48, None, b"sparkthor.cluster ray_node_tls").derive(secret.encode())
    key = ec.derive_private_key(int.from_bytes(seed, "big") % (_ORDER - 1) + 1, ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "sparkthor-ray")])
    every = sorted({str(address_of(address)) for address in (*addresses, "127.0.0.1")})
    names = [x509.DNSName("localhost"), *(x509.IPAddress(ipaddress.ip_address(address)) for address in every)]
    builder = x509.CertificateBuilder(name, name, key.public_key(), 1, _FROM, _UNTIL)
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
    builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
    certificate = builder.sign(key, hashes.SHA256(), ecdsa_deterministic=True)
    encoding = serialization.Encoding.PEM
    private = key.private_bytes(encoding, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    return private.decode(), certificate.public_bytes(encoding).decode()
