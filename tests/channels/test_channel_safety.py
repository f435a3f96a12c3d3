"""Which addresses a channel may have."""

from __future__ import annotations

import pytest

from service.channels.safety import UnsafeAddressError, check_url, is_public


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1", "127.8.8.8", "10.0.0.1", "172.16.0.1", "192.168.1.1", "169.254.169.254", "100.64.0.1", "0.0.0.0",
        "224.0.0.1", "255.255.255.255", "240.0.0.1", "::1", "::", "fe80::1%eth0", "fc00::1", "ff02::1",
        "::ffff:127.0.0.1", "::ffff:a00:1", "2002:0a00:0001::", "64:ff9b::a00:1",
        "2001:0:4136:e378:8000:63bf:3fff:fdd2", "::127.0.0.1", "::ffff:0:127.0.0.1", "64:ff9b:1::7f00:1", "fec0::1",
        "3fff::1", "5f00::1", "100::1", "2001:db8::1", "192.0.0.8", "192.88.99.1", "198.18.0.1", "203.0.113.1",
    ],
)  # fmt: skip
def test_addresses_inside_a_network_are_not_public(address: str) -> None:
    assert not is_public(address)


@pytest.mark.parametrize("address", ["8.8.8.8", "2001:4860:4860::8888", "::ffff:8.8.8.8", "64:ff9b::808:808"])
def test_addresses_of_the_internet_are_public(address: str) -> None:
    assert is_public(address)


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("http://hooks.example.com/x", "must begin with https://"),
        ("ftp://hooks.example.com/x", "must begin with https://"),
        ("hooks.example.com", "must begin with https://"),
        ("https://", "names no host"),
        ("https://user:word@example.com/", "user name"),
        ("https://exam ple.com/", "space"),
        ("https://example.com/\n", "space"),
        ("https://example.com:0/", "port"),
        ("https://example.com:99999/", "port"),
        ("https://127.0.0.1/x", "not a public address"),
        ("https://[::1]/x", "not a public address"),
        ("https://169.254.169.254/latest", "not a public address"),
        ("https://localhost/x", "not a public address"),
        ("https://a.localhost/x", "not a public address"),
        ("https://localhost./x", "not a public address"),
        ("https://127.0.0.1./x", "not a public address"),
        ("https://2130706433/x", "not a public address"),
        ("https://0x7f000001/x", "not a public address"),
        ("https://127.1/x", "not a public address"),
        ("https://0/x", "not a public address"),
        ("https://0177.0.0.1/x", "no web address"),
        ("https://[::ffff:127.0.0.1]/x", "not a public address"),
        ("https://[::1%251]/x", "not a public address"),
        ("https://example.com/" + "x" * 3000, "longer than"),
    ],
)
def test_unsafe_addresses_are_refused_with_a_reason(url: str, why: str) -> None:
    with pytest.raises(UnsafeAddressError, match=why):
        check_url(url, allow_private=False)


def test_private_addresses_and_http_are_taken_where_they_are_allowed() -> None:
    assert check_url("http://127.0.0.1:8350/x", allow_private=True).port == 8350
    with pytest.raises(UnsafeAddressError, match="must begin"):
        check_url("file:///etc/passwd", allow_private=True)


def test_a_public_address_may_be_written_in_any_way() -> None:
    for url in ("https://8.8.8.8/", "https://134744072/", "https://[2001:4860:4860::8888]/", "https://a.example./"):
        assert check_url(url, allow_private=False).host


def test_a_name_in_any_script_is_taken() -> None:
    assert check_url("https://bücher.example/ä", allow_private=False).raw_host == b"xn--bcher-kva.example"
