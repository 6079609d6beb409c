"""Certificates for servers on loopback: a test authority, a server certificate and a client certificate."""

from __future__ import annotations

import datetime
import ipaddress
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID


@dataclass(frozen=True, slots=True, kw_only=True)
class Certificates:
    """Paths of PEM files.

    The server certificate is for localhost and 127.0.0.1. `client_cert` is signed by `ca` for the name `client`.
    `stranger_ca` is an authority that signed nothing: a client that trusts only this one must refuse the server. Keys
    are not encrypted; only this user can read them.
    """

    ca: Path
    server_cert: Path
    server_key: Path
    client_cert: Path
    client_key: Path
    stranger_ca: Path


def make_certificates(directory: Path) -> Certificates:
    """Create *directory*, write new certificates to it and return their paths. They are valid for a day."""
    directory.mkdir(parents=True, exist_ok=True)
    found = Certificates(
        ca=directory / "ca.pem",
        server_cert=directory / "server.pem",
        server_key=directory / "server.key",
        client_cert=directory / "client.pem",
        client_key=directory / "client.key",
        stranger_ca=directory / "stranger.pem",
    )
    authority = _Authority("cdc test authority")
    found.ca.write_bytes(authority.pem)
    found.stranger_ca.write_bytes(_Authority("stranger").pem)
    authority.issue("localhost", found.server_cert, found.server_key, usage=ExtendedKeyUsageOID.SERVER_AUTH)
    authority.issue("client", found.client_cert, found.client_key, usage=ExtendedKeyUsageOID.CLIENT_AUTH)
    return found


class _Authority:
    def __init__(self, name: str) -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _named(name)
        usage = x509.KeyUsage(
            digital_signature=True,
            content_commitment=False,
            key_encipherment=False,
            data_encipherment=False,
            key_agreement=False,
            key_cert_sign=True,
            crl_sign=True,
            encipher_only=False,
            decipher_only=False,
        )
        builder = self._builder(self._name, self._key.public_key())
        builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        builder = builder.add_extension(usage, critical=True)
        self.pem = builder.sign(self._key, hashes.SHA256()).public_bytes(Encoding.PEM)

    def issue(self, name: str, certificate: Path, key: Path, *, usage: x509.ObjectIdentifier) -> None:
        """Write a certificate for *name* on loopback, signed by this authority, and its private key."""
        private = ec.generate_private_key(ec.SECP256R1())
        places = [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
        builder = self._builder(_named(name), private.public_key())
        builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        builder = builder.add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
        builder = builder.add_extension(x509.SubjectAlternativeName(places), critical=False)
        builder = builder.add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), critical=False
        )
        certificate.write_bytes(builder.sign(self._key, hashes.SHA256()).public_bytes(Encoding.PEM))
        key.touch(0o600)
        key.write_bytes(private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))

    def _builder(self, subject: x509.Name, key: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
        now = datetime.datetime.now(datetime.UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(hours=1))
            .not_valid_after(now + datetime.timedelta(days=1))
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
        )


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
