#!/usr/bin/env bash
# A hook of skaffold after each build: hand the image to the command in E2E_LOAD_IMAGE, which takes the path of an archive. Without that
# variable nothing: kind, k3d and minikube are loaded by skaffold itself.
set -euo pipefail
[ -n "${E2E_LOAD_IMAGE:-}" ] || exit 0
name=${SKAFFOLD_IMAGE%%:*}
# Without a push the deployed tag is the image's id.
id=$(docker inspect --format '{{.Id}}' "$SKAFFOLD_IMAGE" | cut -d: -f2)
archive=$(mktemp -d)/image.tar
trap 'rm -f "$archive"; rmdir "$(dirname "$archive")"' EXIT
docker tag "$SKAFFOLD_IMAGE" "$name:$id"
docker save --output "$archive" "$name:$id"
$E2E_LOAD_IMAGE "$archive"
