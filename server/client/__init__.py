"""A client of the service, in Python."""

from server.client.client import (
    Client,
    RequestRefused,
    ServiceError,
    ServiceUnreachable,
)

__all__ = ["Client", "RequestRefused", "ServiceError", "ServiceUnreachable"]
