"""Which addresses a channel may reach: a user gives the address, the connection is made from inside a network."""

from __future__ import annotations

import ipaddress
import socket

import httpx

NAT64 = ipaddress.ip_network("64:ff9b::/96")
UNICAST = ipaddress.ip_network("2000::/3")  # all that is assigned to the public internet lies inside
# Set aside (IANA's registries of special addresses), and still global to Python 3.11.
SPECIAL = [ipaddress.ip_network(text) for text in ("192.0.0.0/24", "192.88.99.0/24", "3fff::/20")]
MAX_URL = 2048


class UnsafeAddressError(ValueError):
    """The address must not be used; the message says why and what to do."""


def is_public(address: str) -> bool:
    """Whether an IP address belongs to the public internet.

    Private, loopback, link-local, shared, reserved and multicast ranges do not, nor does any IPv6 form that carries
    such an IPv4 address (mapped, 6to4, NAT64).

    Raises:
        ValueError: not an IP address.
    """
    parsed = ipaddress.ip_address(address.partition("%")[0])
    if isinstance(parsed, ipaddress.IPv6Address):
        inner = parsed.ipv4_mapped or parsed.sixtofour
        if parsed in NAT64:
            inner = ipaddress.IPv4Address(int(parsed) & 0xFFFFFFFF)
        if inner is not None:
            return is_public(str(inner))
        if parsed.teredo is not None or parsed not in UNICAST:
            return False
    set_aside = any(parsed in network for network in SPECIAL if network.version == parsed.version)
    return parsed.is_global and not parsed.is_multicast and not set_aside


def check_url(url: str, *, allow_private: bool) -> httpx.URL:
    """The parsed address of a channel. Names are not resolved here, but at each sending.

    Raises:
        UnsafeAddressError: no https (http where `allow_private`), no host, a user name inside, or an IP address that is
            not public (any where `allow_private`).
    """
    if len(url) > MAX_URL:
        raise UnsafeAddressError(f"longer than {MAX_URL} characters")
    if any(ord(character) <= 32 or ord(character) == 127 for character in url):
        raise UnsafeAddressError("holds a space or a control character")
    try:
        parsed = httpx.URL(url)
    except (httpx.InvalidURL, ValueError, UnicodeError) as error:
        raise UnsafeAddressError(f"is no web address: {error}") from error
    allowed = ("https", "http") if allow_private else ("https",)
    if parsed.scheme not in allowed:
        hint = "" if allow_private else " (http needs PACENOTE_ALLOW_PRIVATE_CHANNELS=true)"
        raise UnsafeAddressError(f"must begin with https://{hint}")
    if not parsed.host:
        raise UnsafeAddressError("names no host")
    if parsed.port is not None and not 0 < parsed.port < 65536:
        raise UnsafeAddressError(f"has the impossible port {parsed.port}")
    if parsed.userinfo:
        raise UnsafeAddressError("must not carry a user name or password")
    if not allow_private and not _may_be_public(parsed.host.rstrip(".")):
        raise UnsafeAddressError(refusal(parsed.host))
    return parsed


def _may_be_public(host: str) -> bool:
    """Whether a host is a public address, or a name that may lead to one. An IPv4 address may be written as a single
    number, in hexadecimal, or with parts left out: resolvers take all of that."""
    try:
        return is_public(host)
    except ValueError:
        pass
    try:
        return is_public(socket.inet_ntoa(socket.inet_aton(host)))
    except OSError:
        return host != "localhost" and not host.endswith(".localhost")


def refusal(address: str) -> str:
    """Why an address is not used, in one line."""
    return f"{address} is not a public address; set PACENOTE_ALLOW_PRIVATE_CHANNELS=true to allow private ones"
