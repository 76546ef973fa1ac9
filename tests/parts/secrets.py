"""The secret scan of `make check`: every tracked or new file goes through detect-secrets."""

import subprocess
import sys

from detect_secrets.core.secrets_collection import SecretsCollection
from detect_secrets.settings import transient_settings

# Hashes of pinned files and lock files look like random strings and are none; keyword and format detectors stay on.
PLUGINS = [
    {"name": name}
    for name in (
        *("AWSKeyDetector", "AzureStorageKeyDetector", "BasicAuthDetector", "CloudantDetector", "GitHubTokenDetector"),
        *("JwtTokenDetector", "KeywordDetector", "MailchimpDetector", "NpmDetector", "OpenAIDetector", "PrivateKeyDetector"),
        *("PypiTokenDetector", "SlackDetector", "StripeDetector", "TwilioKeyDetector"),
    )
]
FILTERS = [
    {"path": "detect_secrets.filters.allowlist.is_line_allowlisted"},
    {"path": "detect_secrets.filters.heuristic.is_templated_secret"},
    {"path": "detect_secrets.filters.heuristic.is_indirect_reference"},
]
# Tests hold made-up secrets by design, and charts the names of Secrets; real ones in them would still show in the format detectors.
KEYWORD_FREE = ("/tests/", "tests/", "uv.lock", "charts/", "Dockerfile", "docs/deploy.md")


def main() -> int:
    """Print every finding by place; status 1 if there is any."""
    listed = subprocess.run(["git", "ls-files", "-co", "--exclude-standard"], capture_output=True, text=True, check=True)
    secrets = SecretsCollection()
    with transient_settings({"plugins_used": PLUGINS, "filters_used": FILTERS}):
        for path in listed.stdout.splitlines():
            secrets.scan_file(path)
    found = [
        f"{path}:{secret.line_number}: {secret.type}"
        for path, secret in secrets
        if secret.type != "Secret Keyword" or not any(part in path for part in KEYWORD_FREE)
    ]
    for line in found:
        print(line, file=sys.stderr)
    if found:
        print("secret scan: move it out, or mark a false alarm with `pragma: allowlist secret`", file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    raise SystemExit(main())
