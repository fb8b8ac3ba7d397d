# SPDX-License-Identifier: Apache-2.0
"""One exception per error code (docs/errors.md): the same codes as in C++, C, logs and --json."""

import builtins
from typing import Dict, Type


class Error(Exception):
    """Anything that weft reports. str() is the message."""

    code: str = "internal"
    """The word of docs/errors.md."""
    next_step: str = "report"
    """What the caller does: fix the request, retry later, reconnect, refetch, reseed, report."""
    stage: str = ""
    """The step in which it arose."""
    native: int = 0
    """errno, fi_errno or gRPC status; 0 when there is none."""
    detail: str = ""
    """What, where, and figures."""


class FormatError(Error):
    """A file is not what it claims to be."""

    code, next_step = "format", "fix the request"


class InconsistentCheckpointError(Error):
    """The files of one checkpoint contradict each other."""

    code, next_step = "inconsistent_checkpoint", "fix the request"


class ConcurrentModificationError(Error):
    """A file changed while it was read."""

    code, next_step = "concurrent_modification", "retry later"


class SchemaChangedError(Error):
    """Tensors differ in name, type or shape."""

    code, next_step = "schema_changed", "fix the request"


class BaseMismatchError(Error):
    """The old bytes are not those that the delta is against: open with the committed checkpoint."""

    code, next_step = "base_mismatch", "refetch"


class VersionOrderError(Error):
    """The version is not above the committed one."""

    code, next_step = "version_order", "fix the request"


class CorruptPayloadError(Error):
    """A checksum or digest does not agree."""

    code, next_step = "corrupt_payload", "refetch"


class PayloadConflictError(Error):
    """The same version was committed with other content."""

    code, next_step = "payload_conflict", "fix the request"


class DecodeLimitError(Error):
    """Decoding asks for more than the limits allow."""

    code, next_step = "decode_limit", "report"


class NoSpaceError(Error):
    """A disk, or what the configuration allows of it, is full."""

    code, next_step = "no_space", "retry later"


class IoFailedError(Error, OSError):
    """The kernel refused a read, write or sync."""

    code, next_step = "io_failed", "report"


class ResourceLimitError(Error):
    """A limit was reached: descriptors, locked memory, sessions, a queue."""

    code, next_step = "resource_limit", "retry later"


class PeerLostError(Error, ConnectionError):
    """The other side is silent or cannot be reached."""

    code, next_step = "peer_lost", "reconnect"


class TimeoutError(Error, builtins.TimeoutError):
    """A deadline passed."""

    code, next_step = "timeout", "retry later"


class ProtocolError(Error):
    """The other side said what the protocol does not allow."""

    code, next_step = "protocol", "report"


class DeniedError(Error, PermissionError):
    """No right: another fleet, a wrong certificate, a foreign owner."""

    code, next_step = "denied", "fix the request"


class FencedError(Error):
    """A newer process or coordinator has taken this one's place."""

    code, next_step = "fenced", "reconnect"


class InDoubtError(Error):
    """The decision is not known yet; the next refit asks for it first."""

    code, next_step = "in_doubt", "retry later"


class NeedsReseedError(Error):
    """Only a full copy helps."""

    code, next_step = "needs_reseed", "reseed"


class ConfigError(Error, ValueError):
    """A setting, a name or an argument is wrong; the message says which."""

    code, next_step = "config", "fix the request"


class BusyError(Error):
    """Another holds it."""

    code, next_step = "busy", "retry later"


class UnsupportedError(Error):
    """This build, kernel or file version does not do it."""

    code, next_step = "unsupported", "fix the request"


class InternalError(Error):
    """A bug of ours."""

    code, next_step = "internal", "report"


BY_CODE: Dict[str, Type[Error]] = {
    kind.code: kind for kind in list(globals().values())
    if isinstance(kind, type) and issubclass(kind, Error) and kind is not Error
}


class FullCopyNeeded(NeedsReseedError):
    """Retained journals don't lead from one version to the other: read the whole files (WeightView.acquire)."""

    @classmethod
    def because(cls, detail: str) -> "FullCopyNeeded":
        error = cls(f"needs_reseed (publish): {detail}; read the whole files")
        error.stage, error.detail = "publish", detail
        return error


def make_error(code: str, stage: str, native: int, detail: str) -> Error:
    """The exception for an error of the native part."""
    text = f"{code} ({stage}): {detail}" + (f" [native {native}]" if native else "")
    error = BY_CODE.get(code, InternalError)(text)
    error.stage, error.native, error.detail = stage, native, detail
    return error
