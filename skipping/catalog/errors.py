"""Errors that clients of the REST catalog get."""

from __future__ import annotations

__all__ = ["Denied", "Refused", "as_refusal", "refuse_plan"]


class Denied(Exception):
    """The storage refuses a caller's credentials."""


class Refused(Exception):
    """A request that gets an error: the status, and Iceberg's name for the error."""

    def __init__(self, status: int, kind: str, message: str) -> None:
        super().__init__(message)
        self.status, self.kind, self.message = status, kind, message


def refuse_plan(why: str) -> Refused:
    """Return the error for a scan that the client has to plan itself."""
    message = f"{why}: use scan-planning-mode=client"
    return Refused(406, "UnsupportedOperationException", message)


def as_refusal(error: Exception) -> Refused | None:
    """Return the error that clients get for an exception, if it says which."""
    match error:
        case Refused():
            return error
        case Denied():
            return Refused(403, "ForbiddenException", f"{error}: load the table again")
        case PermissionError():
            return refuse_plan(str(error))
    return None
