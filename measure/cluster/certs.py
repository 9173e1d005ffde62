"""Certificates of a cluster: one authority, and a certificate for each role.

Whoever holds a certificate of the authority may join: a worker runs what a client sends. The
authority's key is needed to make more certificates only, and can be kept elsewhere.
"""

from __future__ import annotations

import datetime
import os
from collections.abc import Sequence
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from autosched.errors import MeasureError
from measure.cluster.settings import CA

Issuer = tuple[x509.Certificate, ec.EllipticCurvePrivateKey]

ROLES = ("scheduler", "worker", "client")


def make_certs(folder: Path, days: int = 825) -> list[Path]:
    """Write `ca.pem`, `ca-key.pem` and, for each role, `ROLE.pem` and `ROLE-key.pem`.

    Keys are readable by this user only. Clients get certificates that no server may use. Returns
    the files. Raises MeasureError if one is there already, before anything is written, and if one
    cannot be written: then none is kept.
    """
    names = [CA, "ca-key.pem", *(f"{r}{end}" for r in ROLES for end in (".pem", "-key.pem"))]
    there = [str(folder / name) for name in names if os.path.lexists(folder / name)]
    if there:
        raise MeasureError(
            f"{', '.join(there)} would be overwritten, and whoever uses it locked out; "
            "name another folder, or remove them"
        )
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as e:
        raise MeasureError(
            f"cannot make the folder {folder} of certificates: {e.strerror}; name another one"
        ) from e
    ca_key = ec.generate_private_key(ec.SECP256R1())
    ca = _certificate("autosched cluster authority", ca_key, None, days, ())
    files = {CA: _pem(ca), "ca-key.pem": _key_pem(ca_key)}
    server = ExtendedKeyUsageOID.SERVER_AUTH
    client = ExtendedKeyUsageOID.CLIENT_AUTH
    for role in ROLES:
        key = ec.generate_private_key(ec.SECP256R1())
        uses = (client,) if role == "client" else (server, client)
        files[f"{role}.pem"] = _pem(
            _certificate(f"autosched {role}", key, (ca, ca_key), days, uses)
        )
        files[f"{role}-key.pem"] = _key_pem(key)
    made: list[Path] = []
    for name, data in files.items():
        try:
            _write(folder / name, data, 0o600 if name.endswith("-key.pem") else 0o644)
        except OSError as e:
            for path in made:  # a part of them would pass for all
                path.unlink(missing_ok=True)
            raise MeasureError(
                f"cannot write {folder / name}: {e.strerror}; none of the files was kept"
            ) from e
        made.append(folder / name)
    return made


def check_certificate(path: Path, authority: Path) -> None:
    """Raises MeasureError if a certificate is not valid now, or is not of this authority: whoever
    is shown it would only say that it does not match.

    The authority's file may hold several certificates, any of which may have issued it; behind a
    certificate its file may hold those in between.
    """
    found, *between = _read(path)
    authorities = _read(authority)
    _check_time(path, found)
    links, issued = [*between], found
    while not (above := [ca for ca in authorities if _issued(issued, ca)]):
        following = next((link for link in links if _issued(issued, link)), None)
        if following is None:
            raise MeasureError(
                f"{path} is not of the authority {authority}; take both from one run of "
                "`autosched cluster certs`"
            )
        links.remove(following)
        _check_time(path, following)
        issued = following
    # Renewed authorities stand beside those that they replace: one that is valid is enough.
    _check_time(authority, max(above, key=lambda ca: ca.not_valid_after_utc))


def _check_time(name: Path, certificate: x509.Certificate) -> None:
    """Raises MeasureError if it is not valid now."""
    now = datetime.datetime.now(datetime.UTC)
    if now >= certificate.not_valid_after_utc:
        raise MeasureError(
            f"{name} expired on {certificate.not_valid_after_utc:%Y-%m-%d %H:%M} UTC; make new "
            "certificates (`autosched cluster certs`) and copy them to every machine"
        )
    if now < certificate.not_valid_before_utc:
        raise MeasureError(
            f"{name} is valid from {certificate.not_valid_before_utc:%Y-%m-%d %H:%M} UTC on, "
            f"and here it is {now:%Y-%m-%d %H:%M}; set this machine's clock"
        )


def _issued(certificate: x509.Certificate, by: x509.Certificate) -> bool:
    try:
        certificate.verify_directly_issued_by(by)
    except (InvalidSignature, ValueError, TypeError):
        return False
    return True


def _read(path: Path) -> list[x509.Certificate]:
    """All certificates of a file, in order; at least one. Raises MeasureError."""
    try:
        return x509.load_pem_x509_certificates(path.read_bytes())
    except (OSError, ValueError) as e:
        raise MeasureError(f"{path} is no certificate: {e}") from e


def _certificate(
    name: str,
    key: ec.EllipticCurvePrivateKey,
    issuer: Issuer | None,
    days: int,
    uses: Sequence[x509.ObjectIdentifier],
) -> x509.Certificate:
    """A certificate signed by `issuer` (certificate, key), or by itself: the authority."""
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    ca, ca_key = issuer or (None, key)
    public = key.public_key()
    signed_by = ca_key.public_key()
    now = datetime.datetime.now(datetime.UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(ca.subject if ca is not None else subject)
        .public_key(public)
        .serial_number(x509.random_serial_number())
        # Clocks of a cluster's machines differ.
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(days=days))
        .add_extension(x509.BasicConstraints(ca is None, 0 if ca is None else None), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(signed_by), critical=False
        )
    )
    usage = {
        "digital_signature": ca is not None,
        "key_cert_sign": ca is None,
        "crl_sign": ca is None,
    }
    others = (
        "content_commitment", "key_encipherment", "data_encipherment", "key_agreement",
        "encipher_only", "decipher_only",
    )  # fmt: skip
    builder = builder.add_extension(
        x509.KeyUsage(**usage, **dict.fromkeys(others, False)), critical=True
    )
    if uses:
        builder = builder.add_extension(x509.ExtendedKeyUsage(uses), critical=True)
    return builder.sign(ca_key, hashes.SHA256())


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def _key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )


def _write(path: Path, data: bytes, mode: int) -> None:
    """A new file with these rights from the start."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, mode)
    try:
        with os.fdopen(fd, "wb") as file:
            os.fchmod(fd, mode)
            file.write(data)
    except OSError:
        path.unlink()
        raise
