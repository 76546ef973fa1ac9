"""Who asks: every rule of the token has a test, and what is not said plainly by a valid token is refused."""

import base64
import hashlib
import hmac
import json
import time
from typing import Any

import httpx
import jwt
import pytest
from cryptography.hazmat.primitives import serialization

from knowledge.adapters.jwks import JwksKeys
from knowledge.auth import Authenticator, mint_development_token
from knowledge.errors import KeysUnavailable, Unauthenticated
from knowledge.models import Identity
from knowledge.settings import IdentitySettings
from services.knowledge.tests.fakes import FakeClock
from services.knowledge.tests.serving import FAR, SECRET, token
from services.knowledge.tests.signing import ALGORITHMS, JWKS_URL, FakeIdentityProvider, jwk, jwks, kid_of, private_key, signed


def with_secret(**given: Any) -> Authenticator:
    """An authenticator with the shared secret."""
    return Authenticator(IdentitySettings(auth_jwt_secret=SECRET, **{"knowledge_env": "development", **given}))


def with_jwks(provider: FakeIdentityProvider | None = None, **given: Any) -> Authenticator:
    """An authenticator with an identity provider's keys."""
    settings = IdentitySettings(auth_jwks_url=JWKS_URL, **{"knowledge_env": "development", **given})
    return Authenticator(settings, JwksKeys(JWKS_URL, FakeClock(), (provider or FakeIdentityProvider()).client()))


async def identify(authenticator: Authenticator, presented: str) -> Identity:
    """The identity behind a token."""
    return await authenticator.identify(f"Bearer {presented}")


async def refused(authenticator: Authenticator, presented: str) -> str:
    """The detail of the refusal, which never repeats the token."""
    with pytest.raises(Unauthenticated) as caught:
        await identify(authenticator, presented)
    assert presented not in caught.value.detail
    return caught.value.detail


def unsigned(header: dict[str, Any], claims: dict[str, Any], signature: bytes = b"") -> str:
    """A token put together by hand."""
    parts = [json.dumps(header).encode(), json.dumps(claims).encode(), signature]
    return ".".join(base64.urlsafe_b64encode(part).rstrip(b"=").decode() for part in parts)


def by_hand(claims: dict[str, Any], algorithm: str = "HS256") -> str:
    """A token with a correct signature over claims that the library would not write, or an algorithm that it would warn of."""
    head = unsigned({"alg": algorithm, "typ": "JWT"}, claims).rpartition(".")[0]
    signature = base64.urlsafe_b64encode(hmac.digest(SECRET.encode(), head.encode(), f"sha{algorithm[2:]}")).rstrip(b"=").decode()
    return f"{head}.{signature}"


CLAIMS = {"sub": "ada", "tenant": "acme", "roles": ["reader"], "exp": FAR}


async def test_a_good_token_gives_tenant_subject_and_roles() -> None:
    """The identity is what the token says, and nothing else."""
    found = await identify(with_secret(), token(roles=("reader", "editor")))
    assert found == Identity("acme", "ada", frozenset({"reader", "editor"}))


@pytest.mark.parametrize("header", [None, "", "Bearer", "Bearer ", "Basic YWRhOnB3", "Token x", token()])
async def test_no_bearer_token_is_refused(header: str | None) -> None:
    """A missing header, another scheme and a bare token are all no token."""
    with pytest.raises(Unauthenticated):
        await with_secret().identify(header)


async def test_the_scheme_is_case_insensitive() -> None:
    """`bearer` is the same scheme."""
    assert (await with_secret().identify(f"bearer {token()}")).subject == "ada"


@pytest.mark.parametrize("garbage", ["x", "a.b.c", "a.b", "\x00", "....", "é.ü.ö", "e30.e30.e30"])
async def test_garbage_is_refused(garbage: str) -> None:
    """What is no token at all is a 401 and no error."""
    await refused(with_secret(), garbage)
    await refused(with_jwks(), garbage)


@pytest.mark.parametrize("alg", ["none", "None", "NONE", "nOnE", ""])
async def test_alg_none_is_refused(alg: str) -> None:
    """An unsigned token is no token, however it spells that."""
    for authenticator in (with_secret(), with_jwks()):
        await refused(authenticator, unsigned({"alg": alg, "typ": "JWT", "kid": "rsa1"}, CLAIMS))


async def test_a_bad_signature_is_refused() -> None:
    """A token signed with another secret, and one whose claims were changed afterwards."""
    other = jwt.encode(CLAIMS, "another-secret-of-thirty-two-bytes!!", algorithm="HS256")
    await refused(with_secret(), other)
    head, _, signature = token().split(".")
    claims = base64.urlsafe_b64encode(json.dumps({**CLAIMS, "tenant": "globex"}).encode()).rstrip(b"=").decode()
    await refused(with_secret(), f"{head}.{claims}.{signature}")


@pytest.mark.parametrize("algorithm", ["HS384", "HS512"])
async def test_a_shared_secret_means_hs256_only(algorithm: str) -> None:
    """Other HMACs with the right secret are refused too."""
    await refused(with_secret(), by_hand(CLAIMS, algorithm))


@pytest.mark.parametrize("algorithm", ALGORITHMS)
async def test_a_shared_secret_gateway_refuses_public_key_tokens(algorithm: str) -> None:
    """A token of another family is refused before its key is looked at."""
    await refused(with_secret(), signed(algorithm))


@pytest.mark.parametrize("algorithm", ALGORITHMS)
async def test_each_public_key_algorithm_holds_with_a_jwks(algorithm: str) -> None:
    """RS256, PS256, ES256 and EdDSA tokens are accepted with the provider's keys."""
    assert await identify(with_jwks(), signed(algorithm)) == Identity("acme", "ada", frozenset({"reader"}))


@pytest.mark.parametrize("algorithm", ["RS384", "RS512", "PS384", "PS512"])
async def test_other_public_key_algorithms_are_refused(algorithm: str) -> None:
    """The list of algorithms is closed, even where the key would do."""
    await refused(with_jwks(), signed(algorithm, "rsa1"))


@pytest.mark.parametrize("encoding", ["pem", "jwk"])
async def test_an_hs256_token_signed_with_the_public_key_is_refused(encoding: str) -> None:
    """Key confusion: the public key is known to everybody, so it must never serve as a shared secret."""
    public = private_key("rsa1").public_key()
    pem = public.public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    secret = pem if encoding == "pem" else json.dumps(jwk("rsa1")).encode()
    head = unsigned({"alg": "HS256", "typ": "JWT", "kid": "rsa1"}, CLAIMS).rpartition(".")[0]
    signature = base64.urlsafe_b64encode(hmac.digest(secret, head.encode(), hashlib.sha256)).rstrip(b"=").decode()
    await refused(with_jwks(), f"{head}.{signature}")


async def test_an_hs256_token_is_refused_by_a_jwks_gateway() -> None:
    """Even a correct HS256 signature means nothing where keys are public."""
    await refused(with_jwks(), jwt.encode(CLAIMS, SECRET, algorithm="HS256", headers={"kid": "rsa1"}))


@pytest.mark.parametrize(("algorithm", "kid"), [("RS256", "ec1"), ("ES256", "rsa1"), ("EdDSA", "rsa1"), ("PS256", "ed1")])
async def test_the_algorithm_must_fit_the_family_of_the_key(algorithm: str, kid: str) -> None:
    """A token that names another family's key is refused with a sentence, not with an error."""
    await refused(with_jwks(), signed(algorithm, kid_of(algorithm), {"kid": kid}))


@pytest.mark.parametrize("name", ["jku", "x5u", "jwk", "x5c"])
async def test_headers_that_name_keys_are_ignored(name: str) -> None:
    """An attacker's own key in the header is not used and no address in it is asked."""
    provider = FakeIdentityProvider(jwks("rsa1"))
    value = {"jwk": jwk("rsa9"), "x5c": ["AAAA"]}.get(name, "https://evil.example/keys")
    await refused(with_jwks(provider), signed("RS256", "rsa9", {name: value, "kid": "rsa1"}))
    await refused(with_jwks(provider), signed("RS256", "rsa9", {name: value}))
    assert set(provider.urls) == {JWKS_URL}


async def test_a_good_token_with_such_a_header_still_holds() -> None:
    """Ignored means ignored: a header that names a key harms no valid token."""
    assert (await identify(with_jwks(), signed("RS256", headers={"jku": "https://evil.example/keys"}))).subject == "ada"


async def test_an_unknown_kid_is_refused() -> None:
    """A key id that the provider does not publish belongs to no valid token."""
    await refused(with_jwks(FakeIdentityProvider(jwks("rsa1"))), signed("RS256", "rsa2"))


async def test_a_jwks_outage_is_unavailable_and_not_unauthenticated() -> None:
    """Nobody's token is wrong while the provider is away: 503, with a time to try again."""
    provider = FakeIdentityProvider()
    provider.answer = lambda _: httpx.Response(500)
    with pytest.raises(KeysUnavailable) as caught:
        await identify(with_jwks(provider), signed("RS256"))
    assert (caught.value.status, caught.value.retry_after_s) == (503, 5)


@pytest.mark.parametrize("claim", ["exp", "sub", "tenant"])
async def test_required_claims(claim: str) -> None:
    """`exp`, `sub` and the tenant must be there."""
    await refused(with_secret(), token(**{"subject" if claim == "sub" else claim: None}))


@pytest.mark.parametrize("claim", ["subject", "tenant"])
@pytest.mark.parametrize("value", ["", "  ", 5, ["ada"], {"a": 1}, True, "a\x00b", "x" * 257])
async def test_subject_and_tenant_must_be_names(claim: str, value: object) -> None:
    """Empty, blank, endless and non-string values are refused rather than guessed at."""
    await refused(with_secret(), token(**{claim: value}))


@pytest.mark.parametrize(("age", "holds"), [(-3600, True), (0, True), (25, True), (35, False), (3600, False)])
async def test_expiry_has_a_leeway_of_thirty_seconds(age: int, holds: bool) -> None:
    """A clock that is a little off refuses nobody; beyond the leeway the token has expired."""
    presented = token(exp=int(time.time()) - age)
    if holds:
        assert (await identify(with_secret(), presented)).subject == "ada"
    else:
        assert "expired" in await refused(with_secret(), presented)


@pytest.mark.parametrize("exp", ["soon", [], float("inf"), -1, 0])
async def test_an_expiry_that_is_none_is_refused(exp: object) -> None:
    """A token cannot be made eternal by writing nonsense into `exp`."""
    await refused(with_secret(), by_hand({**CLAIMS, "exp": exp}))


async def test_a_token_that_does_not_hold_yet_is_refused() -> None:
    """`nbf` is honoured, with the same leeway."""
    await refused(with_secret(), token(nbf=int(time.time()) + 3600))
    assert await identify(with_secret(), token(nbf=int(time.time()) + 10))


@pytest.mark.parametrize("audience", ["other", ["other"], None, "", [], 5])
async def test_a_wrong_audience_is_refused(audience: object) -> None:
    """Where AUTH_AUDIENCE is set a token for somebody else, or for nobody, does not hold."""
    await refused(with_secret(auth_audience="gateway"), token(aud=audience))


@pytest.mark.parametrize("audience", ["gateway", ["other", "gateway"]])
async def test_the_right_audience_holds(audience: object) -> None:
    """One of several audiences is enough."""
    assert await identify(with_secret(auth_audience="gateway", knowledge_env="production"), token(aud=audience))


@pytest.mark.parametrize("issuer", ["https://evil.example", None, "", 5])
async def test_a_wrong_issuer_is_refused(issuer: object) -> None:
    """Where AUTH_ISSUER is set a token of another issuer does not hold."""
    await refused(with_secret(auth_issuer="https://idp.example"), by_hand({**CLAIMS, "iss": issuer}))
    assert await identify(with_secret(auth_issuer="https://idp.example"), token(iss="https://idp.example"))


@pytest.mark.parametrize(
    "roles", ["reader", "reader,admin", {"reader": True}, 5, True, ["reader", 5], ["reader", None], [["reader"]], ["reader", ""]]
)
async def test_roles_must_be_a_list_of_strings(roles: object) -> None:
    """Anything else is refused: a string is not split, an object's keys are no roles."""
    await refused(with_secret(), token(roles=roles))


async def test_null_roles_are_refused_and_absent_ones_are_none() -> None:
    """A token without the claim has no roles; one with `null` in it says nothing plainly."""
    assert (await identify(with_secret(), token(roles=None))).roles == frozenset()
    await refused(with_secret(), by_hand({**CLAIMS, "roles": None}))


async def test_an_empty_list_of_roles_is_an_identity_without_roles() -> None:
    """It holds: such a caller may still own passages by subject."""
    assert (await identify(with_secret(), token(roles=()))).roles == frozenset()


async def test_the_names_of_the_claims_can_be_chosen() -> None:
    """AUTH_ROLES_CLAIM and AUTH_TENANT_CLAIM name other claims; the usual ones then mean nothing."""
    authenticator = with_secret(auth_roles_claim="groups", auth_tenant_claim="org")
    found = await identify(authenticator, token(groups=["a"], org="globex"))
    assert found == Identity("globex", "ada", frozenset({"a"}))
    await refused(authenticator, token(groups=["a"]))


async def test_a_minted_development_token_holds() -> None:
    """`knowledge token` makes tokens that this gateway accepts, with issuer and audience where they are set."""
    settings = IdentitySettings(auth_jwt_secret=SECRET, knowledge_env="development", auth_issuer="me", auth_audience="gateway")
    minted = mint_development_token(settings, tenant="t", subject="s", roles=("r",), now=time.time(), ttl_s=60)
    assert await identify(Authenticator(settings), minted) == Identity("t", "s", frozenset({"r"}))


async def test_a_minted_token_ends_after_its_time() -> None:
    """Its `exp` is `ttl` seconds away."""
    settings = IdentitySettings(auth_jwt_secret=SECRET, knowledge_env="development")
    minted = mint_development_token(settings, tenant="t", subject="s", roles=(), now=time.time() - 100, ttl_s=60)
    assert "expired" in await refused(Authenticator(settings), minted)
