"""Searches one after the other from inside the cluster, each on a connection of its own; the last line says how many failed.

Runs in a pod of the gateway's image, with what that has: URL, TOKEN and SECONDS come from the environment.
"""

import json
import os
import sys
import time
from collections import Counter
from pathlib import Path

import httpx

STOP = Path("/tmp/stop")  # noqa: S108 - of the pod alone
outcomes: Counter[str] = Counter()
headers = {"Authorization": f"Bearer {os.environ['TOKEN']}", "Connection": "close"}
body = {"query": "Wie oft muss ich eine Monstera gießen?", "top_k": 5}
url = f"{os.environ['URL']}/search"

# The network of a pod that has just started may lose its first connection.
for _ in range(10):
    try:
        httpx.get(f"{os.environ['URL']}/health", timeout=10)
        break
    except httpx.HTTPError:
        time.sleep(1)

print("started", flush=True)
ends = time.monotonic() + float(os.environ["SECONDS"])
while time.monotonic() < ends and not STOP.exists():
    try:
        answer = httpx.post(url, json=body, headers=headers, timeout=40)
        outcomes[str(answer.status_code) if answer.status_code != 200 else answer.json()["ranking"]] += 1
        if answer.status_code == 200 and not answer.json()["results"]:
            outcomes["empty"] += 1
    except httpx.HTTPError as error:
        outcomes[type(error).__name__] += 1
print(json.dumps(outcomes))
sys.exit(0)
