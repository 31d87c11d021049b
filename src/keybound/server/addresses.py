"""Which addresses a link may lead to: public ones alone, each checked before it is connected to."""

import asyncio
import ipaddress
import socket

from keybound.server.limits import RefusedError

Address = ipaddress.IPv4Address | ipaddress.IPv6Address

# Beside what `ipaddress` knows, in whichever version of Python: what reaches other addresses than
# it says (6to4, Teredo, NAT64), is assigned to protocols, or answers inside a cloud.
FORBIDDEN_4 = tuple(
    ipaddress.IPv4Network(one)
    for one in (
        "0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16",
        "172.16.0.0/12", "192.0.0.0/24", "192.0.2.0/24", "192.88.99.0/24", "192.168.0.0/16",
        "198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24", "224.0.0.0/3", "168.63.129.16/32",
    )
)  # fmt: skip
PUBLIC_6 = ipaddress.IPv6Network("2000::/3")
FORBIDDEN_6 = tuple(
    ipaddress.IPv6Network(one) for one in ("2001::/23", "2001:db8::/32", "2002::/16", "3fff::/20")
)


def is_public(address: Address) -> bool:
    """Return whether an address is one of the public internet."""
    if isinstance(address, ipaddress.IPv4Address):
        return address.is_global and not any(address in one for one in FORBIDDEN_4)
    return (
        address in PUBLIC_6 and address.is_global and not any(address in one for one in FORBIDDEN_6)
    )


async def resolve(host: str, port: int, allowed: frozenset[tuple[str, int]]) -> str:
    """Return an address of a host that may be connected to; refuse if any may not.

    `allowed` are pairs of address and port that are not public and allowed all the same.
    """
    loop = asyncio.get_running_loop()
    try:
        found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise RefusedError(422, "the host of the link is not known", "check the link") from error
    addresses = [str(one[4][0]) for one in found]
    for one in addresses:
        # A scope (fe80::1%eth0) names a link of this machine.
        if "%" in one or not ((one, port) in allowed or is_public(ipaddress.ip_address(one))):
            raise forbidden()
    if not addresses:
        raise RefusedError(422, "the host of the link has no address", "check the link")
    return addresses[0]


def forbidden() -> RefusedError:
    """Return the refusal of a link that does not lead to the public internet."""
    return RefusedError(422, "the link does not lead to a public address", "upload the file")
