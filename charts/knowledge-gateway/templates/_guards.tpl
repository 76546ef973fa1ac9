{{- /* What would start and then not work, or leak, fails here with a sentence that says what to change. */ -}}
{{- define "knowledge.guards" -}}
{{- $values := .Values -}}
{{- if not $values.opensearch.url -}}
{{- fail "opensearch.url is required: set it to the address of your OpenSearch, as in --set opensearch.url=https://opensearch.search.svc:9200" -}}
{{- end -}}
{{- if eq (empty $values.auth.existingSecret) (empty $values.auth.jwksUrl) -}}
{{- fail "exactly one of auth.existingSecret (a Secret with the key that signs tokens) and auth.jwksUrl (the keys of your identity provider) is required" -}}
{{- end -}}
{{- $config := $values.gateway.config -}}
{{- if and (not $values.auth.audience) (ne (dig "KNOWLEDGE_ENV" "production" $config) "development") -}}
{{- fail "auth.audience is required in production: set it to the audience of your tokens, or gateway.config.KNOWLEDGE_ENV=development on a development cluster" -}}
{{- end -}}
{{- $k := dig "RERANKER_INITIAL_K" 15 $config | int -}}
{{- $chars := dig "RERANKER_MAX_DOCUMENT_CHARS" 500 $config | int -}}
{{- $budget := dig "RERANK_SCORED_CHARS_BUDGET" 7500 $config | int -}}
{{- if gt (mul $k $chars) $budget -}}
{{- fail (printf "gateway.config: RERANKER_INITIAL_K (%d) x RERANKER_MAX_DOCUMENT_CHARS (%d) is over RERANK_SCORED_CHARS_BUDGET (%d); lower one of them, or raise the budget in gateway.config and in reranker.config" $k $chars $budget) -}}
{{- end -}}
{{- $served := dig "RERANK_SCORED_CHARS_BUDGET" 7500 $values.reranker.config | int -}}
{{- if and $values.reranker.enabled (gt $served 0) (lt $served $budget) -}}
{{- fail (printf "RERANK_SCORED_CHARS_BUDGET is %d in gateway.config and %d in reranker.config; the reranker-service would refuse what the gateway sends: raise the one or lower the other" $budget $served) -}}
{{- end -}}
{{- include "knowledge.nests" (dict "inner" "gateway.config.EMBEDDING_TIMEOUT_S" "innerS" (dig "EMBEDDING_TIMEOUT_S" 5 $config) "outer" "gateway.config.SEARCH_DEADLINE_S" "outerS" (dig "SEARCH_DEADLINE_S" 30 $config)) -}}
{{- include "knowledge.nests" (dict "inner" "gateway.config.RETRIEVAL_TIMEOUT_S" "innerS" (dig "RETRIEVAL_TIMEOUT_S" 5 $config) "outer" "gateway.config.SEARCH_DEADLINE_S" "outerS" (dig "SEARCH_DEADLINE_S" 30 $config)) -}}
{{- include "knowledge.nests" (dict "inner" "gateway.config.RERANKER_TIMEOUT_S" "innerS" (dig "RERANKER_TIMEOUT_S" 27 $config) "outer" "gateway.config.SEARCH_DEADLINE_S" "outerS" (dig "SEARCH_DEADLINE_S" 30 $config)) -}}
{{- if $values.reranker.enabled -}}
{{- include "knowledge.nests" (dict "inner" "reranker.config.RERANK_DEADLINE_S" "innerS" (dig "RERANK_DEADLINE_S" 25 $values.reranker.config) "outer" "gateway.config.RERANKER_TIMEOUT_S" "outerS" (dig "RERANKER_TIMEOUT_S" 27 $config)) -}}
{{- end -}}
{{- if $values.embedding.enabled -}}
{{- include "knowledge.nests" (dict "inner" "embedding.config.EMBEDDING_DEADLINE_S" "innerS" (dig "EMBEDDING_DEADLINE_S" 4 $values.embedding.config) "outer" "gateway.config.EMBEDDING_TIMEOUT_S" "outerS" (dig "EMBEDDING_TIMEOUT_S" 5 $config)) -}}
{{- end -}}
{{- if and (not $values.embedding.enabled) (not $values.embedding.url) -}}
{{- fail "embedding.url is required with embedding.enabled=false: set it to the address of your embedding-service, or leave the bundled one on" -}}
{{- end -}}
{{- if and (not $values.reranker.enabled) (not $values.reranker.url) (ne (dig "RERANKER_ENABLED" true $config | toString) "false") -}}
{{- fail "the reranker is on without an address: set reranker.url, leave reranker.enabled on, or set gateway.config.RERANKER_ENABLED=false to search without one" -}}
{{- end -}}
{{- range $name := list "reranker" "embedding" -}}
{{- $component := index $values $name -}}
{{- if and $component.enabled $component.url -}}
{{- fail (printf "%s.url and %s.enabled=true exclude each other: unset the one, or switch the bundled service off" $name $name) -}}
{{- end -}}
{{- end -}}
{{- include "knowledge.frontendGuards" . -}}
{{- range $name := list "gateway" "reranker" "embedding" "frontend" -}}
{{- range $key, $value := (index $values $name).config -}}
{{- if has $key (list "AUTH_JWT_SECRET" "OPENSEARCH_PASSWORD" "RERANKER_API_KEY" "RERANK_API_KEY" "FRONTEND_SESSION_SECRET" "OIDC_CLIENT_SECRET" "ANSWER_API_KEY") -}}
{{- fail (printf "%s.config.%s would stand in clear text in a ConfigMap: put it into a Secret and name that (auth.existingSecret, opensearch.existingSecret, reranker.existingSecret, frontend.existingSecret), or use %s.extraEnv with valueFrom" $name $key $name) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- if and (eq $values.models.source "volume") (eq $values.models.volume.accessMode "ReadWriteOnce") -}}
{{- range $name := list "reranker" "embedding" -}}
{{- $component := index $values $name -}}
{{- if and $component.enabled (or $component.autoscaling.enabled (gt (int $component.replicas) 1)) -}}
{{- fail (printf "%s would run several replicas on one ReadWriteOnce volume, which binds them to one node: set models.volume.accessMode=ReadWriteMany, models.source=image, or one replica" $name) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "knowledge.frontendGuards" -}}
{{- $values := .Values -}}
{{- $production := ne (dig "KNOWLEDGE_ENV" "production" $values.gateway.config) "development" -}}
{{- if and $values.frontend.enabled $production -}}
{{- if or (not $values.frontend.url) (not $values.frontend.existingSecret) (not (dig "OIDC_ISSUER" "" $values.frontend.config)) -}}
{{- fail "frontend.url, frontend.existingSecret and frontend.config.OIDC_ISSUER are required in production: set them, or gateway.config.KNOWLEDGE_ENV=development to log in as a persona on a development cluster" -}}
{{- end -}}
{{- end -}}
{{- if and $values.frontend.enabled (not $values.frontend.existingSecret) (or $values.frontend.autoscaling.enabled (gt (int $values.frontend.replicas) 1)) -}}
{{- fail "frontend.existingSecret is required with more than one replica, which must read each other's sessions: set it, or frontend.replicas=1" -}}
{{- end -}}
{{- if $values.frontend.enabled -}}
{{- include "knowledge.nests" (dict "inner" "gateway.config.SEARCH_DEADLINE_S" "innerS" (dig "SEARCH_DEADLINE_S" 30 $values.gateway.config) "outer" "frontend.config.GATEWAY_TIMEOUT_S" "outerS" (dig "GATEWAY_TIMEOUT_S" 35 $values.frontend.config)) -}}
{{- end -}}
{{- if $values.canary.enabled -}}
{{- if or (not $values.canary.query) (not $values.canary.expect) -}}
{{- fail "canary.query and canary.expect are required with canary.enabled: set them to a question and the id of the passage that answers it, or leave the canary off" -}}
{{- end -}}
{{- if and (not $values.canary.existingSecret) (or $production (not $values.auth.existingSecret)) -}}
{{- fail "canary.existingSecret is required in production: set it to a Secret with a token that may see the passage; only a development gateway's own secret signs one" -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "knowledge.nests" -}}
{{- if ge (float64 .innerS) (float64 .outerS) -}}
{{- fail (printf "%s (%v) must be below %s (%v), or a failure inside could never be told: lower the one or raise the other" .inner .innerS .outer .outerS) -}}
{{- end -}}
{{- end -}}
