"""The routes."""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

from fastapi import APIRouter, Request

from embedding.engine import Engine
from embedding.schemas import (
    EmbedRequest,
    EmbedResponse,
    Info,
    OpenAIEmbedding,
    OpenAIRequest,
    OpenAIResponse,
    OpenAIUsage,
    base64_floats,
    numbers,
)
from embedding.settings import EmbeddingSettings
from embedding.telemetry import Instruments
from modelkit import Background, Embedding, Gate, ModelSpec, NotServed
from modelkit.encoder import TextKind
from modelkit.serving import Clock, deadline_of
from servicekit.disconnect import ClientGoneError, run_until_disconnect
from servicekit.problems import Problem

MAX_IN_FLIGHT = 32
FIRST_GUESS_S = 0.2

NOT_SERVED: dict[int | str, dict[str, Any]] = {
    429: {"description": '`{"status": "busy", "retry_after_ms": n}`'},
    503: {"description": '`{"status": "timeout"}` or `{"status": "loading", "retry_after_ms": n}`'},
}


@dataclass
class Service:
    """Everything a route needs."""

    settings: EmbeddingSettings
    spec: ModelSpec
    engine: Background[Engine]
    info: Info
    instruments: Instruments
    clock: Clock
    gate: Gate
    usual_s: float = FIRST_GUESS_S
    """Moving average of a request's time."""

    def retry_after_ms(self) -> int:
        """When about half of the requests in flight will be done."""
        return max(100, round(self.usual_s * self.gate.inside / 2 * 1000))

    async def embed(self, request: Request, texts: Sequence[str], kind: TextKind) -> list[Embedding]:
        """The vectors, with the deadline, the limit on requests and the metrics around it."""
        started, error = self.clock(), None
        try:
            deadline = deadline_of(request, self.clock, self.settings.embedding_deadline_s)
            engine = self.engine.get()
            with self.gate.entered(self.retry_after_ms):
                found = await run_until_disconnect(request, engine.embed(texts, kind, deadline))
        except NotServed as reason:
            error = reason.status
            raise
        except (ClientGoneError, asyncio.CancelledError):
            error = "cancelled"
            raise
        except Problem as problem:
            error = problem.code
            raise
        finally:
            self.instruments.request(self.clock() - started, error)
        self.usual_s += 0.1 * (self.clock() - started - self.usual_s)
        self.instruments.texts(kind, len(found), sum(each.truncated for each in found))
        return found


def _service(request: Request) -> Service:
    return cast("Service", request.app.state.service)


router = APIRouter()


@router.post("/embed", responses=NOT_SERVED, summary="Vectors of texts")
async def embed(request: Request, body: EmbedRequest) -> EmbedResponse:
    """Prefix, pooling and normalisation are the model's own; the fingerprint says which vectors are comparable."""
    service = _service(request)
    started = time.perf_counter()
    found = await service.embed(request, body.texts, body.kind)
    info = service.info
    return EmbedResponse(
        vectors=[numbers(each) for each in found],
        model=info.model,
        revision=info.revision,
        precision=info.precision,
        dimension=info.dimension,
        fingerprint=info.fingerprint,
        truncated=[each.truncated for each in found],
        elapsed_ms=round((time.perf_counter() - started) * 1000, 1),
    )


@router.post("/v1/embeddings", responses=NOT_SERVED, summary="The same in OpenAI's shape")
async def openai_embeddings(request: Request, body: OpenAIRequest) -> OpenAIResponse:
    """For clients of OpenAI's API."""
    service = _service(request)
    info = service.info
    if body.model not in (None, "", info.model):
        raise Problem(404, "unknown_model", f"model: this service has {info.model}")
    if body.dimensions not in (None, info.dimension):
        raise Problem(422, "invalid_request", f"dimensions: the model has {info.dimension}, and they cannot be changed")
    texts = [body.input] if isinstance(body.input, str) else body.input
    found = await service.embed(request, texts, body.input_type)
    encode = base64_floats if body.encoding_format == "base64" else numbers
    data = [OpenAIEmbedding(index=index, embedding=encode(each)) for index, each in enumerate(found)]
    tokens = sum(each.tokens for each in found)
    usage = OpenAIUsage(prompt_tokens=tokens, total_tokens=tokens)
    return OpenAIResponse(data=data, model=info.model, usage=usage, fingerprint=info.fingerprint)


@router.get("/info", summary="Model, fingerprint and limits")
async def info(request: Request) -> Info:
    """Known before the model is loaded."""
    return _service(request).info
