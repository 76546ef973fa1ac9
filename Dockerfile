# The images of all services: targets gateway, reranker, embedding, frontend, and <service>-dev of each. Build from the repository's root.
# Both base images must belong together: the virtual environment of the one runs in the other, by the interpreter's path.
ARG PYTHON_IMAGE=python:3.11-slim-bookworm
ARG RUNTIME_IMAGE=python:3.11-slim-bookworm

FROM ${PYTHON_IMAGE} AS build
ARG UV_VERSION=0.13.9
ARG PYTHON=python3
# Compiled here, because nothing can be kept on a read-only root: every start would compile anew.
ENV UV_PYTHON_DOWNLOADS=never UV_PROJECT_ENVIRONMENT=/opt/venv UV_LINK_MODE=copy UV_CACHE_DIR=/root/.cache/uv UV_COMPILE_BYTECODE=1 \
    PIP_CERT=/etc/ssl/certs/ca-certificates.crt SSL_CERT_FILE=/etc/ssl/certs/ca-certificates.crt
# A build behind a proxy that looks into TLS hands over its CA bundle as the optional secret `ca`; nothing of it stays.
RUN --mount=type=secret,id=ca,target=/etc/ssl/certs/ca-certificates.crt --mount=type=cache,target=/root/.cache \
    ${PYTHON} -m venv /opt/uv && /opt/uv/bin/pip install --quiet "uv==${UV_VERSION}"
WORKDIR /src
COPY pyproject.toml uv.lock ./
COPY services/servicekit/pyproject.toml services/servicekit/
COPY services/modelkit/pyproject.toml services/modelkit/
COPY services/knowledge/pyproject.toml services/knowledge/
COPY services/reranker/pyproject.toml services/reranker/
COPY services/embedding/pyproject.toml services/embedding/
COPY services/frontend/pyproject.toml services/frontend/

# Dependencies first, then the sources: an edit builds the last layer alone. uv's lock is one that everybody may write.
FROM build AS gateway-build
RUN --mount=type=secret,id=ca,target=/etc/ssl/certs/ca-certificates.crt --mount=type=cache,target=/root/.cache \
    /opt/uv/bin/uv sync --quiet --frozen --no-dev --no-install-workspace --package knowledge-gateway --python ${PYTHON}
COPY services/servicekit/src services/servicekit/src
COPY services/knowledge/src services/knowledge/src
RUN --mount=type=secret,id=ca,target=/etc/ssl/certs/ca-certificates.crt --mount=type=cache,target=/root/.cache \
    /opt/uv/bin/uv sync --quiet --frozen --no-dev --no-editable --package knowledge-gateway --python ${PYTHON} && rm -f /opt/venv/.lock
RUN mkdir /data

FROM build AS reranker-build
# `openvino` for the precisions that it runs.
ARG EXTRA=""
RUN --mount=type=secret,id=ca,target=/etc/ssl/certs/ca-certificates.crt --mount=type=cache,target=/root/.cache \
    /opt/uv/bin/uv sync --quiet --frozen --no-dev --no-install-workspace --package knowledge-reranker ${EXTRA:+--extra ${EXTRA}} --python ${PYTHON}
COPY services/servicekit/src services/servicekit/src
COPY services/modelkit/src services/modelkit/src
COPY services/reranker/src services/reranker/src
RUN --mount=type=secret,id=ca,target=/etc/ssl/certs/ca-certificates.crt --mount=type=cache,target=/root/.cache \
    /opt/uv/bin/uv sync --quiet --frozen --no-dev --no-editable --package knowledge-reranker ${EXTRA:+--extra ${EXTRA}} --python ${PYTHON} && rm -f /opt/venv/.lock

FROM build AS embedding-build
RUN --mount=type=secret,id=ca,target=/etc/ssl/certs/ca-certificates.crt --mount=type=cache,target=/root/.cache \
    /opt/uv/bin/uv sync --quiet --frozen --no-dev --no-install-workspace --package knowledge-embedding --python ${PYTHON}
COPY services/servicekit/src services/servicekit/src
COPY services/modelkit/src services/modelkit/src
COPY services/embedding/src services/embedding/src
RUN --mount=type=secret,id=ca,target=/etc/ssl/certs/ca-certificates.crt --mount=type=cache,target=/root/.cache \
    /opt/uv/bin/uv sync --quiet --frozen --no-dev --no-editable --package knowledge-embedding --python ${PYTHON} && rm -f /opt/venv/.lock

FROM build AS frontend-build
RUN --mount=type=secret,id=ca,target=/etc/ssl/certs/ca-certificates.crt --mount=type=cache,target=/root/.cache \
    /opt/uv/bin/uv sync --quiet --frozen --no-dev --no-install-workspace --package knowledge-frontend --python ${PYTHON}
COPY services/servicekit/src services/servicekit/src
COPY services/frontend/src services/frontend/src
RUN --mount=type=secret,id=ca,target=/etc/ssl/certs/ca-certificates.crt --mount=type=cache,target=/root/.cache \
    /opt/uv/bin/uv sync --quiet --frozen --no-dev --no-editable --package knowledge-frontend --python ${PYTHON} && rm -f /opt/venv/.lock

# Model files: baked in where MODELS names a model, else a volume or the first start brings them. Converting needs a package of its own.
FROM build AS models
ARG MODELS=""
# Made of the model that is baked in, for `auto` to choose from: bf16 or int8-weights.
ARG PRECISION=""
COPY services/servicekit/src services/servicekit/src
COPY services/modelkit/src services/modelkit/src
# Fetched into the cache, so that an edit of the two kits neither fetches nor converts again.
RUN --mount=type=secret,id=ca,target=/etc/ssl/certs/ca-certificates.crt --mount=type=cache,target=/root/.cache \
    mkdir /models && if [ -n "${MODELS}" ]; then \
      export PATH=/opt/venv/bin:/opt/uv/bin:$PATH MODEL_CACHE_DIR=/root/.cache/models && \
      uv sync --quiet --frozen --no-dev --no-editable --package knowledge-modelkit --extra convert ${PRECISION:+--extra quantize} \
        --python ${PYTHON} && \
      knowledge-models fetch ${MODELS} && folder="$(knowledge-models path ${MODELS})" && folder="${folder#${MODEL_CACHE_DIR}/}" && \
      if [ -n "${PRECISION}" ]; then knowledge-models quantize ${MODELS} --to ${PRECISION}; fi && \
      cd ${MODEL_CACHE_DIR} && cp -r --parents "${folder}" ${PRECISION:+"${folder}-quantized"} /models; fi

FROM ${RUNTIME_IMAGE} AS runtime
ARG RUNTIME_IMAGE
ARG VERSION=0.1.0
ARG REVISION=unknown
LABEL org.opencontainers.image.version="${VERSION}" org.opencontainers.image.revision="${REVISION}" \
      org.opencontainers.image.licenses="Apache-2.0" org.opencontainers.image.vendor="Knowledge Gateway" \
      org.opencontainers.image.base.name="${RUNTIME_IMAGE}"
ENV PATH=/opt/venv/bin:$PATH PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1 HOST=0.0.0.0 HOME=/tmp
USER 65532:65532
WORKDIR /tmp

FROM runtime AS gateway
LABEL org.opencontainers.image.title="knowledge-gateway"
# The file of the embedded backend; a volume is mounted here, and takes the folder's owner over.
ENV EMBEDDED_PATH=/data/knowledge.db
COPY --from=gateway-build --chown=65532:65532 /data /data
COPY --from=gateway-build /opt/venv /opt/venv
EXPOSE 8000
CMD ["knowledge", "serve"]

FROM runtime AS reranker
LABEL org.opencontainers.image.title="knowledge-reranker"
# The model that is baked in is the one that is served; empty stands for the service's own default.
ARG MODELS=""
ENV MODEL_CACHE_DIR=/models RERANK_MODEL=${MODELS}
COPY --from=models --chown=65532:65532 /models /models
COPY --from=reranker-build /opt/venv /opt/venv
EXPOSE 8081
CMD ["knowledge-reranker"]

FROM runtime AS embedding
LABEL org.opencontainers.image.title="knowledge-embedding"
# The model that is baked in is the one that is served; empty stands for the service's own default.
ARG MODELS=""
ENV MODEL_CACHE_DIR=/models EMBEDDING_MODEL=${MODELS}
COPY --from=models --chown=65532:65532 /models /models
COPY --from=embedding-build /opt/venv /opt/venv
EXPOSE 8080
CMD ["knowledge-embedding"]

FROM runtime AS frontend
LABEL org.opencontainers.image.title="knowledge-frontend"
COPY --from=frontend-build /opt/venv /opt/venv
EXPOSE 8090
CMD ["knowledge-frontend"]

# For `skaffold dev`: a shell, tar, sources that may be written, and a process that starts anew when one of them changes.
FROM build AS dev
ENV PATH=/opt/venv/bin:$PATH PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1 HOST=0.0.0.0 HOME=/tmp MODEL_CACHE_DIR=/models
RUN --mount=type=secret,id=ca,target=/etc/ssl/certs/ca-certificates.crt --mount=type=cache,target=/root/.cache \
    /opt/uv/bin/uv sync --quiet --frozen --no-dev --no-install-workspace --all-packages --python ${PYTHON}
COPY --chown=65532:65532 services services
RUN --mount=type=secret,id=ca,target=/etc/ssl/certs/ca-certificates.crt --mount=type=cache,target=/root/.cache \
    /opt/uv/bin/uv sync --quiet --frozen --no-dev --all-packages --python ${PYTHON}
USER 65532:65532

FROM dev AS gateway-dev
EXPOSE 8000
CMD ["watchfiles", "--filter", "python", "--sigint-timeout", "5", "knowledge serve", "/src/services"]

FROM dev AS reranker-dev
ARG MODELS=""
ENV RERANK_MODEL=${MODELS}
COPY --from=models --chown=65532:65532 /models /models
EXPOSE 8081
CMD ["watchfiles", "--filter", "python", "--sigint-timeout", "5", "knowledge-reranker", "/src/services"]

FROM dev AS embedding-dev
ARG MODELS=""
ENV EMBEDDING_MODEL=${MODELS}
COPY --from=models --chown=65532:65532 /models /models
EXPOSE 8080
CMD ["watchfiles", "--filter", "python", "--sigint-timeout", "5", "knowledge-embedding", "/src/services"]

FROM dev AS frontend-dev
EXPOSE 8090
CMD ["watchfiles", "--sigint-timeout", "5", "knowledge-frontend", "/src/services"]
