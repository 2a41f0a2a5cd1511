"""The server's certificate, and whether clients have to show one."""

from __future__ import annotations

import ssl
from pathlib import Path

from headrace.config.server_settings import ServerConfig
from headrace.errors import ConfigError

_LOCKED = "the key needs a password, which cannot be given; store it without one"


def tls_context(config: ServerConfig) -> ssl.SSLContext | None:
    """TLS 1.2 or later with the certificate of the settings; None without one.

    Raises ConfigError naming flag and file for files that are missing, unreadable, no PEM, a key
    that needs a password, or one that is another certificate's.
    """
    if config.ssl_certfile is None:
        for flag, value in (
            ("--ssl-keyfile", config.ssl_keyfile),
            ("--ssl-ca-certs", config.ssl_ca_certs),
        ):
            if value is not None:
                raise ConfigError(f"{flag} {value} needs --ssl-certfile as well")
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    _check_readable("--ssl-certfile", config.ssl_certfile)
    named = f"--ssl-certfile {config.ssl_certfile}"
    if config.ssl_keyfile is not None:
        _check_readable("--ssl-keyfile", config.ssl_keyfile)
        named += f" --ssl-keyfile {config.ssl_keyfile}"
    locked: list[bool] = []

    def password() -> str:
        """Asked of a locked key; without this OpenSSL would ask on the terminal."""
        locked.append(True)
        return ""

    try:
        context.load_cert_chain(config.ssl_certfile, config.ssl_keyfile, password)
    except (ssl.SSLError, OSError) as error:
        cause = _LOCKED if locked else _cause(error)
        raise ConfigError(f"{named}: {cause}") from error
    if config.ssl_ca_certs is not None:
        _check_readable("--ssl-ca-certs", config.ssl_ca_certs)
        try:
            context.load_verify_locations(config.ssl_ca_certs)
        except (ssl.SSLError, OSError) as error:
            message = f"it has no certificates in PEM format ({error})"
            raise ConfigError(f"--ssl-ca-certs {config.ssl_ca_certs}: {message}") from error
        context.verify_mode = ssl.CERT_REQUIRED
    return context


def _check_readable(flag: str, name: str) -> None:
    """OpenSSL's own errors do not say which of the files it was."""
    try:
        with Path(name).open("rb"):
            return
    except OSError as error:
        raise ConfigError(f"{flag} {name}: cannot be read: {error.strerror or error}") from error


def _cause(error: OSError) -> str:
    reason = getattr(error, "reason", None) or ""
    if reason == "KEY_VALUES_MISMATCH":
        return "the key does not belong to the certificate; give the files that belong together"
    return (
        f"it has no usable certificate and key in PEM format ({reason or error}); without "
        "--ssl-keyfile the key has to be in the same file"
    )
