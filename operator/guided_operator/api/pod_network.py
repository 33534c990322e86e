"""How a pod finds others by name, as in a pod: `dnsConfig` and `hostAliases` of `spec.pod`."""

from typing import Annotated, Final

from pydantic import Field

from guided_operator.api.addresses import IP
from guided_operator.api.base import ApiModel, distinct, text

_Address = Annotated[str, text(45, pattern=IP)]
_NAME: Final = r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$"


class DnsOption(ApiModel):
    """An option of the resolver."""

    name: Annotated[str, text(64)] = Field(description="Name of the option, such as ndots.")
    value: Annotated[str, text(64)] | None = Field(
        default=None, description="Value of the option. Default: none."
    )


class DnsConfig(ApiModel):
    """DNS settings of a pod."""

    nameservers: Annotated[list[_Address], Field(max_length=3)] = Field(
        default=[], description="IP addresses of further name servers. Default: none."
    )
    searches: Annotated[list[Annotated[str, text(253)]], Field(max_length=32)] = Field(
        default=[], description="Further domains that names are searched in. Default: none."
    )
    options: Annotated[list[DnsOption], Field(max_length=16)] = Field(
        default=[], description="Options of the resolver. Default: the cluster's."
    )


class HostAlias(ApiModel):
    """A line of /etc/hosts."""

    ip: _Address = Field(description="IP address. Unique in the list.")
    hostnames: Annotated[
        list[Annotated[str, text(253, pattern=_NAME)]], Field(min_length=1, max_length=16)
    ] = Field(description="Names of the address.")


def unique_addresses(aliases: list[HostAlias]) -> list[HostAlias]:
    """Refuse a list with two items of one address, as the server does.

    Raises
    ------
    ValueError
        An address stands twice.
    """
    distinct([alias.ip for alias in aliases])
    return aliases
