"""Takes away the indices that a test made, and only those."""

import json
import urllib.error
import urllib.request

PREFIX = "kgtest-"


def delete_behind(url: str, alias: str) -> None:
    """Delete the indices behind an alias whose name marks it as a test's own.

    Raises:
        ValueError: the name does not begin with `kgtest-`.
    """
    if not alias.startswith(PREFIX):
        raise ValueError(f"only names that begin with {PREFIX} are deleted")
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(f"{url}/_alias/{alias}", timeout=10) as response:
            names = list(json.load(response))
    except urllib.error.HTTPError as error:
        if error.code == 404:
            return
        raise
    for name in names:
        if name.startswith(PREFIX):
            request = urllib.request.Request(f"{url}/{name}", method="DELETE")  # noqa: S310 - the node's own URL
            opener.open(request, timeout=30).close()
