"""What the collector wants of us, and we of it: certificates and headers, from files that a Secret fills.

Our own, because the SDK's exporters do not follow files as they change.
"""

import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import grpc

from guided_contract.config import TelemetryConfig


class CredentialsError(Exception):
    """A file is missing or not what it should be. The message never holds a value."""


@dataclass(frozen=True, slots=True)
class Credentials:
    """Paths; the files are read when asked for, and may change at any time.

    Parameters
    ----------
    ca
        Certificates to trust; None: those of the system.
    certificate, key
        Ours, as PEM; None: we show none.
    headers_folder
        A file per header; None: no headers.
    """

    ca: Path | None = None
    certificate: Path | None = None
    key: Path | None = None
    headers_folder: Path | None = None

    @classmethod
    def of(cls, config: TelemetryConfig) -> Self:
        """Return those of a pod."""
        paths = (config.ca_file, config.certificate_file, config.key_file, config.headers_folder)
        return cls(*(Path(path) if path else None for path in paths))

    @property
    def stamp(self) -> tuple[int, ...]:
        """Differs after a change of the files: a Secret's mount is replaced as a whole."""
        return tuple(_changed_ns(path) for path in (self.ca, self.certificate, self.key, self.headers_folder))

    def tls(self) -> ssl.SSLContext:
        """Return how to connect with TLS; the collector's certificate is always checked.

        Raises
        ------
        CredentialsError
            A file cannot be used.
        """
        try:
            context = ssl.create_default_context(cafile=self.ca)
            if self.certificate is not None:
                context.load_cert_chain(self.certificate, self.key)
        except OSError as error:  # ssl.SSLError is one
            raise CredentialsError(f"TLS to the collector: {error}") from error
        return context

    def grpc_tls(self) -> grpc.ChannelCredentials:
        """Return the same for gRPC, which checks PEM only as it connects.

        Raises
        ------
        CredentialsError
            A file cannot be read.
        """
        return grpc.ssl_channel_credentials(_read(self.ca), _read(self.key), _read(self.certificate))

    def headers(self) -> dict[str, str]:
        """Return the headers of each request, their names in lower case.

        Raises
        ------
        CredentialsError
            A value cannot be a header's.
        """
        if self.headers_folder is None:
            return {}
        try:
            # A Secret's mount has its own files, which begin with two dots.
            files = [file for file in self.headers_folder.iterdir() if not file.name.startswith("..")]
        except OSError as error:
            raise CredentialsError(f"headers for the collector: {error.strerror}") from error
        return {file.name.lower(): _header(file) for file in sorted(files)}


def _header(file: Path) -> str:
    try:
        value = file.read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise CredentialsError(f"the header {file.name} cannot be read") from error
    if not (value.isascii() and value.isprintable()):
        raise CredentialsError(f"the header {file.name} has a value that no header can have")
    return value


def _read(path: Path | None) -> bytes | None:
    if path is None:
        return None
    try:
        return path.read_bytes()
    except OSError as error:
        raise CredentialsError(f"TLS to the collector: {path}: {error.strerror}") from error


def _changed_ns(path: Path | None) -> int:
    try:
        return 0 if path is None else path.stat().st_mtime_ns
    except OSError:
        return -1
