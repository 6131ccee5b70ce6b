"""Errors that the REST catalog returns to clients."""

from __future__ import annotations


class Denied(Exception):
    """The storage rejects a caller's credentials."""


class Refused(Exception):
    """An error response: its HTTP status, and the error type of Iceberg's specification."""

    def __init__(self, status: int, kind: str, message: str) -> None:
        super().__init__(message)
        self.status, self.kind, self.message = status, kind, message


def refuse_plan(why: str) -> Refused:
    """Return the error for a scan that the client has to plan itself."""
    message = f"{why}: use scan-planning-mode=client"
    return Refused(406, "UnsupportedOperationException", message)


def as_refusal(error: Exception) -> Refused | None:
    """Return the error response that an exception stands for, or None."""
    match error:
        case Refused():
            return error
        case Denied():
            return Refused(403, "ForbiddenException", f"{error}: load the table again")
        case PermissionError():
            return refuse_plan(str(error))
    return None
