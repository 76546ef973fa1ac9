#!/usr/bin/env bash
# prepare.sh NAMESPACE: what the chart needs to be there before it on a cluster for development: a secret that signs tokens, made once,
# and the house plants as documents. Run by skaffold before each deployment; KUBECTL may name another kubectl.
set -euo pipefail
namespace=$1
kubectl=${KUBECTL:-kubectl}
corpus=$(cd "$(dirname "$0")/../houseplants/corpus" && pwd)

$kubectl create namespace "$namespace" --dry-run=client -o yaml | $kubectl apply -f - >/dev/null
if ! $kubectl -n "$namespace" get secret knowledge-auth >/dev/null 2>&1; then
  $kubectl -n "$namespace" create secret generic knowledge-auth \
    --from-literal=jwt-secret="$(od -An -N32 -tx1 /dev/urandom | tr -d ' \n')" >/dev/null
fi
files=()
while IFS= read -r file; do
  files+=("--from-file=${file//\//.}=$corpus/$file") # a key holds no slash
done < <(cd "$corpus" && find . -type f ! -name '.*' | sed 's|^\./||' | sort)
$kubectl -n "$namespace" create configmap houseplants "${files[@]}" --dry-run=client -o yaml |
  $kubectl apply --server-side --force-conflicts -f - >/dev/null
echo "prepared $namespace: the secret knowledge-auth and ${#files[@]} documents"
