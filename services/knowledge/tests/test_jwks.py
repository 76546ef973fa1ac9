"""The signing keys of an identity provider: fetched once, again for an unknown key id, never in the way of known keys."""

import asyncio

import httpx
import pytest

from knowledge.adapters.jwks import LIFESPAN_S, MIN_REFETCH_S, RETRY_AFTER_FAILURE_S, JwksKeys
from knowledge.errors import KeysUnavailable
from services.knowledge.tests.fakes import FakeClock
from services.knowledge.tests.signing import JWKS_URL, FakeIdentityProvider, jwks


def keys_of(provider: FakeIdentityProvider) -> tuple[JwksKeys, FakeClock]:
    """Keys of this provider, on a clock that stands."""
    clock = FakeClock()
    return JwksKeys(JWKS_URL, clock, provider.client()), clock


def fail_with(status: int) -> FakeIdentityProvider:
    """A provider that answers with this status."""
    provider = FakeIdentityProvider()
    provider.answer = lambda _: httpx.Response(status, headers={"Location": "https://elsewhere.example/keys"})
    return provider


async def test_keys_are_fetched_once_and_kept() -> None:
    """Many tokens, one fetch, from the configured address."""
    provider = FakeIdentityProvider()
    keys, _ = keys_of(provider)
    for kid, family in (("rsa1", "RSA"), ("ec1", "EC"), ("ed1", "OKP")):
        found = await keys.key(kid)
        assert found is not None
        assert found[1] == family
    assert provider.urls == [JWKS_URL]


async def test_many_callers_at_the_start_make_one_fetch() -> None:
    """Requests that come at the same moment wait for one another."""
    provider = FakeIdentityProvider()
    keys, _ = keys_of(provider)
    found = await asyncio.gather(*(keys.key("rsa1") for _ in range(10)))
    assert None not in found
    assert len(provider.urls) == 1


async def test_an_unknown_kid_refetches_at_most_every_thirty_seconds() -> None:
    """Tokens with made-up key ids cannot make the gateway hammer the provider."""
    provider = FakeIdentityProvider(jwks("rsa1"))
    keys, clock = keys_of(provider)
    await keys.key("rsa1")
    for _ in range(50):
        assert await keys.key("made-up") is None
    clock.advance(MIN_REFETCH_S - 0.1)
    assert await keys.key("made-up") is None
    assert len(provider.urls) == 1
    clock.advance(0.1)
    assert await keys.key("made-up") is None
    assert await keys.key("another") is None
    assert len(provider.urls) == 2
    assert MIN_REFETCH_S == 30.0


async def test_a_new_key_is_found_after_a_rotation() -> None:
    """When the provider publishes a new key its tokens hold after a refetch, and the withdrawn key is gone."""
    provider = FakeIdentityProvider(jwks("rsa1"))
    keys, clock = keys_of(provider)
    await keys.key("rsa1")
    provider.document = jwks("rsa2")
    clock.advance(MIN_REFETCH_S)
    assert await keys.key("rsa2") is not None
    assert await keys.key("rsa1") is None


async def test_a_withdrawn_key_goes_after_the_lifespan() -> None:
    """Keys are not trusted for ever: after their lifespan the set is fetched again."""
    provider = FakeIdentityProvider(jwks("rsa1", "rsa2"))
    keys, clock = keys_of(provider)
    await keys.key("rsa1")
    provider.document = jwks("rsa2")
    clock.advance(LIFESPAN_S)
    assert await keys.key("rsa1") is None


@pytest.mark.parametrize("status", [301, 302, 307, 403, 404, 500, 503])
async def test_any_answer_but_200_is_an_outage_and_no_redirect_is_followed(status: int) -> None:
    """Without keys nobody's token can be judged: that is the provider's fault, not the caller's."""
    provider = fail_with(status)
    keys, _ = keys_of(provider)
    with pytest.raises(KeysUnavailable):
        await keys.key("rsa1")
    assert provider.urls == [JWKS_URL]


@pytest.mark.parametrize(
    "body", ["", "<html>", "[]", "null", "{}", '{"keys": 5}', '{"keys": []}', '{"keys": [{"kty": "RSA"}]}', "[" * 100_000, '{"keys": [5]}']
)
async def test_a_document_that_is_no_key_set_is_an_outage(body: str) -> None:
    """Garbage from the provider makes nobody's token wrong."""
    provider = FakeIdentityProvider()
    provider.answer = lambda _: httpx.Response(200, text=body)
    keys, _ = keys_of(provider)
    with pytest.raises(KeysUnavailable):
        await keys.key("rsa1")


async def test_a_connection_error_is_an_outage() -> None:
    """Refused, reset, late: all the same."""
    provider = FakeIdentityProvider()

    def refuse(request: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("refused", request=request)

    provider.answer = refuse
    keys, _ = keys_of(provider)
    with pytest.raises(KeysUnavailable):
        await keys.key("rsa1")


async def test_known_keys_survive_an_outage() -> None:
    """Even after their lifespan known keys hold while the provider is away; unknown ones cannot be judged."""
    provider = FakeIdentityProvider(jwks("rsa1"))
    keys, clock = keys_of(provider)
    await keys.key("rsa1")
    provider.answer = lambda _: httpx.Response(503)
    clock.advance(LIFESPAN_S)
    assert await keys.key("rsa1") is not None
    with pytest.raises(KeysUnavailable):
        await keys.key("rsa2")


async def test_an_outage_is_found_over_soon() -> None:
    """After a failed fetch the next one may come after seconds, not after half a minute, and not at once either."""
    provider = fail_with(503)
    keys, clock = keys_of(provider)
    for _ in range(3):
        with pytest.raises(KeysUnavailable):
            await keys.key("rsa1")
    assert len(provider.urls) == 1
    provider.answer = lambda _: httpx.Response(200, json=provider.document)
    clock.advance(RETRY_AFTER_FAILURE_S)
    assert await keys.key("rsa1") is not None


async def test_symmetric_keys_in_a_key_set_are_not_used() -> None:
    """A JWKS is public, so a secret in it is none."""
    document = {
        "keys": [
            {"kty": "oct", "k": "c2VjcmV0LXNlY3JldC1zZWNyZXQtc2VjcmV0LXNlY3JldA", "kid": "oct1", "alg": "HS256"},
            *jwks("rsa1")["keys"],
        ]
    }
    keys, _ = keys_of(FakeIdentityProvider(document))
    assert await keys.key("oct1") is None
    assert await keys.key("rsa1") is not None


async def test_keys_that_are_not_for_signatures_are_not_used() -> None:
    """A key published with `use: enc` signs nothing."""
    [key] = jwks("rsa1")["keys"]
    keys, _ = keys_of(FakeIdentityProvider({"keys": [{**key, "use": "enc"}, *jwks("rsa2")["keys"]]}))
    assert await keys.key("rsa1") is None
    assert await keys.key("rsa2") is not None


async def test_a_key_of_an_unknown_kind_does_not_spoil_the_others() -> None:
    """Providers publish what they like; what cannot be used is left out."""
    keys, _ = keys_of(FakeIdentityProvider({"keys": [{"kty": "quantum", "kid": "q"}, *jwks("ec1")["keys"]]}))
    assert await keys.key("ec1") is not None
    assert await keys.key("q") is None
