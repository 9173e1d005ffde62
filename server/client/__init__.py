"""A client of the service, in Python."""

from server.client.answers import RequestRefused, ServiceError, ServiceUnreachable
from server.client.client import Client

__all__ = ["Client", "RequestRefused", "ServiceError", "ServiceUnreachable"]
