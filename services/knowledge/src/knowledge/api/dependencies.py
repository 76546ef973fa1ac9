"""What endpoints are given: the gateway's parts and the caller's identity."""

from dataclasses import dataclass
from typing import Annotated

from fastapi import Depends, Header, Request

from knowledge.auth import Authenticator
from knowledge.deadline import Clock
from knowledge.errors import Forbidden
from knowledge.ingest.ingestor import Ingestor
from knowledge.models import Identity
from knowledge.pipeline import Pipeline
from knowledge.ports import DocumentStore
from knowledge.rerank import RerankStage
from knowledge.settings import Settings


@dataclass(slots=True)
class Gateway:
    """Everything that endpoints need, put together by `app` and kept for the life of the process."""

    settings: Settings
    authenticator: Authenticator
    pipeline: Pipeline
    rerank: RerankStage
    store: DocumentStore
    ingestor: Ingestor
    clock: Clock
    searches_in_flight: int = 0


async def gateway_of(request: Request) -> Gateway:
    """The gateway that this app serves. Asynchronous, because what is not is called in another thread."""
    gateway: Gateway = request.app.state.gateway
    return gateway


GatewayDep = Annotated[Gateway, Depends(gateway_of)]


async def identify(gateway: GatewayDep, authorization: Annotated[str | None, Header(include_in_schema=False)] = None) -> Identity:
    """The identity of the caller; 401 without one."""
    return await gateway.authenticator.identify(authorization)


Caller = Annotated[Identity, Depends(identify)]
"""An endpoint without this is visibly public."""


async def identify_writer(gateway: GatewayDep, identity: Caller) -> Identity:
    """The identity of a caller who may write; 403 for others."""
    role = gateway.settings.identity.auth_write_role
    if role not in identity.roles:
        raise Forbidden(f"Writing needs the role {role}.")
    return identity


Writer = Annotated[Identity, Depends(identify_writer)]
